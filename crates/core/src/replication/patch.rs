//! JSON merge patches: the smallest one that makes one value into another.

use serde_json::{Map, Value};

/// The merge patch from one value to another; none when they are equal. A null counts as absent.
pub(crate) fn difference(from: &Value, to: &Value) -> Option<Value> {
    let (Value::Object(from), Value::Object(to)) = (from, to) else {
        return (from != to).then(|| to.clone());
    };
    let mut patch = Map::new();
    for name in from.keys().filter(|name| to.get(*name).is_none_or(Value::is_null)) {
        patch.insert(name.clone(), Value::Null);
    }
    for (name, value) in to.iter().filter(|(_, value)| !value.is_null()) {
        let change = from.get(name).map_or_else(|| Some(value.clone()), |present| difference(present, value));
        if let Some(change) = change {
            patch.insert(name.clone(), change);
        }
    }
    (!patch.is_empty()).then_some(Value::Object(patch))
}

/// Whether a merge patch does nothing but remove fields.
pub(super) fn only_removes(patch: &Value) -> bool {
    match patch {
        Value::Null => true,
        Value::Object(fields) => !fields.is_empty() && fields.values().all(only_removes),
        Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => false,
    }
}

/// Applies a merge patch, as an API server does.
#[cfg(test)]
pub(crate) fn apply(target: &mut Value, patch: &Value) {
    let Value::Object(fields) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    let target = target.as_object_mut().unwrap();
    for (name, value) in fields {
        if value.is_null() {
            target.remove(name);
        } else {
            apply(target.entry(name.clone()).or_insert(Value::Null), value);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::{apply, difference, only_removes};

    #[test]
    fn a_patch_holds_only_what_differs() {
        let from = json!({"a": 1, "b": {"c": [1], "d": 2}, "e": 3});
        let to = json!({"a": 1, "b": {"c": [1, 2], "d": 2}, "f": 4});
        assert_eq!(difference(&from, &to), Some(json!({"b": {"c": [1, 2]}, "e": null, "f": 4})));
        assert_eq!(difference(&from, &from), None);
    }

    #[test]
    fn a_patch_that_only_removes_is_known_as_such() {
        assert!(only_removes(&json!({"a": null, "b": {"c": null}})));
        assert!(!only_removes(&json!({"a": null, "b": {"c": 1}})));
        assert!(!only_removes(&json!({"a": {}})));
    }

    fn values() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![any::<bool>().prop_map(Value::from), (0..4).prop_map(Value::from)];
        leaf.prop_recursive(4, 32, 4, |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
                proptest::collection::btree_map("[a-c]", inner, 0..3)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn a_patch_makes_the_one_into_the_other(from in values(), to in values()) {
            let mut patched = from.clone();
            if let Some(patch) = difference(&from, &to) {
                apply(&mut patched, &patch);
            }
            prop_assert_eq!(patched, to);
        }
    }
}
