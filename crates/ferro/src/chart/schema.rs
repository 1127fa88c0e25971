//! Checks a value against a schema, so that mistakes are found, and named, before a cluster is touched.
//!
//! Two schemas are checked: the chart's own, which Helm checks as well, and that of a custom resource. Of JSON
//! Schema only what these two use is understood; rules across fields are left to the API server. A field that
//! the schema does not name is a mistake, as it is with strict validation on an API server.

use regex::Regex;
use serde_json::{Map, Value};

/// Below this, two names are too different for one to be a slip for the other.
const ALIKE: f64 = 0.7;

/// Everything that is wrong with a value, each with the path of the field.
pub(super) fn problems(value: &Value, schema: &Value) -> Vec<String> {
    let mut found = Vec::new();
    check(value, schema, "", &mut found);
    found
}

fn check(value: &Value, schema: &Value, path: &str, found: &mut Vec<String>) {
    if let Some(wanted) = wrong_type(value, schema) {
        found.push(format!("{path}: must be {wanted}, is {value}"));
        return;
    }
    match value {
        Value::Object(fields) => check_fields(fields, schema, path, found),
        Value::Array(items) => {
            check_count(items.len(), schema, "maxItems", path, found);
            for (index, item) in items.iter().enumerate() {
                check(item, &schema["items"], &format!("{path}[{index}]"), found);
            }
        }
        Value::String(text) => check_text(text, schema, path, found),
        Value::Number(number) => check_range(number.as_f64(), schema, path, found),
        Value::Null | Value::Bool(_) => {}
    }
    let choices = schema["enum"].as_array().filter(|choices| !choices.contains(value));
    if let Some(choices) = choices {
        let choices: Vec<_> = choices.iter().filter_map(Value::as_str).collect();
        found.push(format!("{path}: must be one of {}, is {value}", choices.join(", ")));
    }
}

/// What the value should have been, if it is something else.
fn wrong_type<'s>(value: &Value, schema: &'s Value) -> Option<&'s str> {
    if schema["x-kubernetes-int-or-string"] == true {
        return (!value.is_string() && !value.is_i64()).then_some("a string or an integer");
    }
    let wanted = schema["type"].as_str()?;
    let right = match wanted {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_i64() || value.is_u64(),
        _ => value.is_number(),
    };
    (!right).then_some(wanted)
}

fn check_fields(fields: &Map<String, Value>, schema: &Value, path: &str, found: &mut Vec<String>) {
    check_count(fields.len(), schema, "maxProperties", path, found);
    let inside = |name: &str| if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
    let known = schema["properties"].as_object();
    for (name, value) in fields {
        let named = known.and_then(|known| known.get(name));
        match (named.unwrap_or(&schema["additionalProperties"]), known) {
            (Value::Null | Value::Bool(false), Some(known)) => {
                let hint = nearest(name, known.keys());
                let hint = hint.map_or_else(String::new, |near| format!("; did you mean {}?", inside(near)));
                found.push(format!("{}: there is no such setting{hint}", inside(name)));
            }
            (schema, _) => check(value, schema, &inside(name), found),
        }
    }
    let required = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str);
    for name in required.filter(|name| !fields.contains_key(*name)) {
        found.push(format!("{}: must be set", inside(name)));
    }
}

fn nearest<'n>(name: &str, known: impl Iterator<Item = &'n String>) -> Option<&'n str> {
    let likeness = |known: &&String| strsim::jaro_winkler(name, known);
    let near = known.max_by(|a, b| likeness(a).total_cmp(&likeness(b)))?;
    (likeness(&near) >= ALIKE).then_some(near.as_str())
}

fn check_text(text: &str, schema: &Value, path: &str, found: &mut Vec<String>) {
    check_count(text.chars().count(), schema, "maxLength", path, found);
    let shortest = schema["minLength"].as_u64().unwrap_or(0);
    if (text.chars().count() as u64) < shortest {
        found.push(format!("{path}: must not be empty"));
    }
    let pattern = schema["pattern"].as_str();
    // The few patterns that this crate cannot read are left to the API server.
    let regex = pattern.and_then(|pattern| Regex::new(pattern).ok());
    if regex.is_some_and(|regex| !regex.is_match(text)) {
        found.push(format!("{path}: {text:?} does not have the form {}", pattern.unwrap_or_default()));
    }
}

fn check_count(count: usize, schema: &Value, limit: &str, path: &str, found: &mut Vec<String>) {
    if let Some(limit) = schema[limit].as_u64().filter(|limit| count as u64 > *limit) {
        found.push(format!("{path}: is too long; at most {limit} are allowed"));
    }
}

fn check_range(number: Option<f64>, schema: &Value, path: &str, found: &mut Vec<String>) {
    let Some(number) = number else { return };
    if let Some(least) = schema["minimum"].as_f64().filter(|least| number < *least) {
        found.push(format!("{path}: must be at least {least}, is {number}"));
    }
    if let Some(most) = schema["maximum"].as_f64().filter(|most| number > *most) {
        found.push(format!("{path}: must be at most {most}, is {number}"));
    }
}

#[cfg(test)]
mod tests {
    use super::problems;
    use serde_json::{Value, json};

    fn schema() -> Value {
        json!({
            "type": "object",
            "required": ["name"],
            "properties": {
                "name": {"type": "string", "minLength": 1, "maxLength": 5, "pattern": "^[a-z]*$"},
                "policy": {"type": "string", "enum": ["Auto", "Manual"]},
                "replicas": {"type": "integer", "minimum": 1, "maximum": 9},
                "amounts": {"additionalProperties": {"x-kubernetes-int-or-string": true}, "maxProperties": 2},
                "list": {"type": "array", "maxItems": 1, "items": {"type": "boolean"}},
                "anything": {"type": "object"},
            }
        })
    }

    fn found(value: &Value) -> Vec<String> {
        problems(value, &schema())
    }

    #[test]
    fn what_fits_is_not_mentioned() {
        let fits = json!({"name": "a", "policy": "Auto", "replicas": 3, "amounts": {"cpu": 2, "memory": "1Gi"},
            "list": [true], "anything": {"goes": [1, "x"]}});
        assert_eq!(found(&fits), [""; 0]);
    }

    #[test]
    fn an_unknown_field_is_named_with_the_nearest_known_one() {
        assert_eq!(
            found(&json!({"name": "a", "polcy": "Auto"})),
            ["polcy: there is no such setting; did you mean policy?"]
        );
        assert_eq!(found(&json!({"name": "a", "xyz": 1})), ["xyz: there is no such setting"]);
    }

    #[test]
    fn each_mistake_is_told_with_its_path() {
        let wrong = json!({"policy": "Sometimes", "replicas": 10, "amounts": {"cpu": true},
            "list": [true, 1]});
        assert_eq!(
            found(&wrong),
            [
                "amounts.cpu: must be a string or an integer, is true",
                "list: is too long; at most 1 are allowed",
                "list[1]: must be boolean, is 1",
                "policy: must be one of Auto, Manual, is \"Sometimes\"",
                "replicas: must be at most 9, is 10",
                "name: must be set",
            ]
        );
    }

    #[test]
    fn texts_have_a_length_and_a_form() {
        assert_eq!(found(&json!({"name": ""})), ["name: must not be empty"]);
        assert_eq!(found(&json!({"name": "A"})), ["name: \"A\" does not have the form ^[a-z]*$"]);
        assert_eq!(found(&json!({"name": "abcdef"})), ["name: is too long; at most 5 are allowed"]);
    }
}
