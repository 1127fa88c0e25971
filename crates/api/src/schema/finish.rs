//! The last touch on a derived schema: what a Kubernetes API server expects and the derive does not know.
//!
//! Works on the whole tree, embedded Kubernetes types included, so that these follow the same conventions.

use std::collections::BTreeMap;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};

/// The pattern of a Kubernetes quantity, as the API server's own types print it.
const QUANTITY: &str = concat!(
    r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))",
    r"(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$"
);

/// Makes a derived schema one that an API server accepts without a warning and `kubectl explain` prints well.
pub(crate) fn finish(schema: &mut JSONSchemaProps) {
    schema.nullable = None;
    schema.format = schema.format.take().map(known_format);
    schema.description = schema.description.take().map(|text| unwrapped(&text));
    if schema.x_kubernetes_int_or_string == Some(true) {
        finish_quantity(schema);
    }

    for inner in children(schema) {
        finish(inner);
    }
    allow_unset_times(schema);
}

/// Nothing may be null but a time: Kubernetes and its tools print one that is not set as null.
fn allow_unset_times(schema: &mut JSONSchemaProps) {
    let required = schema.required.as_deref().unwrap_or_default();
    for (name, property) in schema.properties.iter_mut().flatten() {
        if property.format.as_deref() == Some("date-time") && !required.contains(name) {
            property.nullable = Some(true);
        }
    }
}

/// All direct subschemas.
fn children(schema: &mut JSONSchemaProps) -> impl Iterator<Item = &mut JSONSchemaProps> {
    let items = match &mut schema.items {
        Some(JSONSchemaPropsOrArray::Schema(item)) => std::slice::from_mut(&mut **item),
        Some(JSONSchemaPropsOrArray::Schemas(items)) => items,
        None => &mut [],
    };
    let values = match &mut schema.additional_properties {
        Some(JSONSchemaPropsOrBool::Schema(value)) => Some(&mut **value),
        Some(JSONSchemaPropsOrBool::Bool(_)) | None => None,
    };
    schema.properties.iter_mut().flat_map(BTreeMap::values_mut).chain(items).chain(values)
}

/// Kubernetes knows signed integers only.
fn known_format(format: String) -> String {
    match format.as_str() {
        "uint8" | "uint16" => "int32".into(),
        "uint32" | "uint64" => "int64".into(),
        _ => format,
    }
}

/// The derive says only "integer or string"; a quantity has a pattern, and a long text that is repeated at
/// each one.
fn finish_quantity(schema: &mut JSONSchemaProps) {
    if schema.description.as_ref().is_some_and(|text| text.starts_with("Quantity is a fixed-point")) {
        schema.description = Some("An amount, such as 500m, 2 or 1Gi.".into());
        schema.pattern = Some(QUANTITY.into());
        schema.any_of = Some(["integer", "string"].map(of_type).into());
    }
}

fn of_type(name: &str) -> JSONSchemaProps {
    JSONSchemaProps { type_: Some(name.into()), ..JSONSchemaProps::default() }
}

/// Joins the lines of a paragraph, which the source wraps; lists, indented lines and blank lines stay.
fn unwrapped(text: &str) -> String {
    let mut joined = String::with_capacity(text.len());
    for line in text.split('\n') {
        let continues = line.starts_with(|first: char| first.is_alphanumeric() || first == '(');
        if continues && !joined.is_empty() && !joined.ends_with('\n') {
            joined.push(' ');
        } else if !joined.is_empty() {
            joined.push('\n');
        }
        joined.push_str(line);
    }
    joined
}

#[cfg(test)]
mod tests {
    use super::unwrapped;

    #[test]
    fn a_wrapped_sentence_becomes_one_line() {
        assert_eq!(unwrapped("one\ntwo"), "one two");
    }

    #[test]
    fn paragraphs_and_lists_keep_their_lines() {
        assert_eq!(unwrapped("one\n\ntwo\n- three\n- four"), "one\n\ntwo\n- three\n- four");
    }
}
