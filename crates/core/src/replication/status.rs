//! The status that a peer gives to an object of ours: only what the kind allows, and not without bounds.

use serde_json::{Map, Value, json};

use super::patch::difference;
use super::rules::Rule;

const MOST_LEVELS: usize = 16;
/// It counts the versions of the copy, which say nothing about the original.
const OBSERVED_GENERATION: &str = "observedGeneration";

/// Why a status is not taken over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadStatus {
    /// It is not an object.
    #[error("it is not an object")]
    NotAnObject,
    /// It is larger than the kind allows.
    #[error("it has {bytes} bytes, and {most} are allowed")]
    TooLarge {
        /// How large it is.
        bytes: usize,
        /// How large it may be.
        most: usize,
    },
    /// It is nested deeper than any status needs.
    #[error("it is nested more than {MOST_LEVELS} levels deep")]
    TooDeep,
}

/// The merge patch that gives the original the status of its copy.
pub(super) fn patch(
    rule: &Rule,
    ours: Option<&Value>,
    theirs: Option<&Value>,
) -> Result<Option<Value>, BadStatus> {
    let theirs = match theirs {
        Some(Value::Object(status)) => allowed(rule, status),
        Some(Value::Null) | None => Map::new(),
        Some(_) => return Err(BadStatus::NotAnObject),
    };
    let ours = ours.and_then(Value::as_object).map(|status| allowed(rule, status)).unwrap_or_default();
    let theirs = Value::Object(theirs);
    let Some(patch) = difference(&Value::Object(ours), &theirs) else { return Ok(None) };
    let bytes = theirs.to_string().len();
    if bytes > rule.status_bytes {
        Err(BadStatus::TooLarge { bytes, most: rule.status_bytes })
    } else if is_deeper(&theirs, MOST_LEVELS) {
        Err(BadStatus::TooDeep)
    } else {
        Ok(Some(json!({"status": patch})))
    }
}

fn allowed(rule: &Rule, status: &Map<String, Value>) -> Map<String, Value> {
    let passes = |field: &&String| field.as_str() != OBSERVED_GENERATION && rule.status.allow(field);
    let fields = status.iter().filter(|(field, _)| passes(field));
    fields.map(|(field, value)| (field.clone(), without_generation(value))).collect()
}

/// Conditions are the only lists in which the field occurs.
fn without_generation(value: &Value) -> Value {
    let Value::Array(items) = value else { return value.clone() };
    let mut items = items.clone();
    items.iter_mut().filter_map(Value::as_object_mut).for_each(|item| _ = item.remove(OBSERVED_GENERATION));
    Value::Array(items)
}

fn is_deeper(value: &Value, levels: usize) -> bool {
    let Some(below) = levels.checked_sub(1) else { return true };
    match value {
        Value::Object(fields) => fields.values().any(|field| is_deeper(field, below)),
        Value::Array(items) => items.iter().any(|item| is_deeper(item, below)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}
