//! Building blocks of the schemas: what a value of a certain sort looks like, said once.
//!
//! Each is a schemars transform and is named at the field it applies to, so that field, documentation and
//! validation stand together. A rule that one value can break by itself is a pattern or a length; CEL is for
//! what these cannot say, and its message tells what is expected. Lists, maps and strings are bounded: many
//! come from a peer, and the API server estimates the cost of a rule from the bounds.

mod finish;
mod limits;
mod selector;

use schemars::{Schema, json_schema};
use serde_json::{Value, json};

pub(crate) use finish::finish;
pub(crate) use limits::limit_range;
pub(crate) use selector::node_selector;

const DNS_LABEL: &str = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$";

/// Adds a CEL rule, with the message for those who break it.
pub(crate) fn rule(expression: &str, message: &str) -> impl FnMut(&mut Schema) {
    let rule = json!({"rule": expression, "message": message});
    move |schema| match schema.get_mut("x-kubernetes-validations") {
        Some(Value::Array(rules)) => rules.push(rule.clone()),
        _ => _ = schema.insert("x-kubernetes-validations".into(), json!([rule])),
    }
}

/// Applies a building block to each element of a list or value of a map.
pub(crate) fn each(mut block: impl FnMut(&mut Schema)) -> impl FnMut(&mut Schema) {
    move |schema| {
        for key in ["items", "additionalProperties"] {
            let element = schema.get_mut(key).and_then(|element| element.try_into().ok());
            if let Some(element) = element {
                block(element);
            }
        }
    }
}

/// For enums: leaves the documentation to the field, which would otherwise lose its own to that of the type.
pub(crate) fn described_by_field(schema: &mut Schema) {
    schema.remove("description");
}

/// Bounds a list, a map or a string.
pub(crate) fn at_most(limit: u32) -> impl FnMut(&mut Schema) {
    move |schema| {
        let key = if schema.get("items").is_some() {
            "maxItems"
        } else if schema.get("additionalProperties").is_some() {
            "maxProperties"
        } else {
            "maxLength"
        };
        schema.insert(key.into(), limit.into());
    }
}

/// Only these values.
pub(crate) fn one_of(values: &'static [&'static str]) -> impl FnMut(&mut Schema) {
    move |schema| _ = schema.insert("enum".into(), json!(values))
}

/// Applies a building block somewhere inside, for embedded Kubernetes types, whose fields cannot name one.
pub(crate) fn at(schema: &mut Schema, pointer: &str, mut block: impl FnMut(&mut Schema)) {
    if let Some(inner) = schema.pointer_mut(pointer).and_then(|inner| inner.try_into().ok()) {
        block(inner);
    }
}

/// The elements of a list are a set: each at most once, and several writers may add their own.
pub(crate) fn set(schema: &mut Schema) {
    schema.insert("x-kubernetes-list-type".into(), "set".into());
}

/// A set that is written as a map from each member to an empty object.
pub(crate) fn set_as_map(limit: u32) -> impl FnMut(&mut Schema) {
    move |schema| {
        schema.insert("additionalProperties".into(), json!({"type": "object"}));
        at_most(limit)(schema);
    }
}

/// A map with one writer: the API server then need not note for each entry who wrote it.
pub(crate) fn of_one_writer(schema: &mut Schema) {
    schema.insert("x-kubernetes-map-type".into(), "atomic".into());
}

/// The elements of a list are told apart by these keys, and several writers may add their own.
pub(crate) fn keyed_by(keys: &'static [&'static str]) -> impl FnMut(&mut Schema) {
    move |schema| {
        schema.insert("x-kubernetes-list-type".into(), "map".into());
        schema.insert("x-kubernetes-list-map-keys".into(), json!(keys));
    }
}

/// Standard conditions: one of each type, and bounded, since some are written by a peer.
pub(crate) fn conditions(schema: &mut Schema) {
    keyed_by(&["type"])(schema);
    at_most(32)(schema);
    each(|condition| {
        at(condition, "/properties/type", at_most(316));
        at(condition, "/properties/status", one_of(&["True", "False", "Unknown"]));
        at(condition, "/properties/reason", at_most(1024));
        at(condition, "/properties/message", at_most(32_768));
    })(schema);
}

/// The identifier of a cluster: a UUID, or any name that could be a DNS label.
pub(crate) fn cluster_id(schema: &mut Schema) {
    matching(schema, 63, DNS_LABEL);
}

/// The name of a cluster: what may stand in a label value, and is not empty.
pub(crate) fn cluster_name(schema: &mut Schema) {
    matching(schema, 63, "^[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$");
}

/// The value of a Kubernetes label.
pub(crate) fn label_value(schema: &mut Schema) {
    matching(schema, 63, "^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$");
}

/// The key of a Kubernetes label.
pub(crate) fn label_key(schema: &mut Schema) {
    matching(schema, 317, "^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$");
}

/// The name of a namespace.
pub(crate) fn namespace(schema: &mut Schema) {
    matching(schema, 63, DNS_LABEL);
}

/// A network in CIDR notation, with no bit set after the mask.
pub(crate) fn cidr(schema: &mut Schema) {
    at_most(43)(schema);
    rule(
        "isCIDR(self) && cidr(self) == cidr(self).masked()",
        "must be a network in CIDR notation, such as 10.42.0.0/16",
    )(schema);
}

/// The network that stands for another one, or None where it is used as it is.
pub(crate) fn cidr_or_none(schema: &mut Schema) {
    at_most(43)(schema);
    rule(
        "self == 'None' || (isCIDR(self) && cidr(self) == cidr(self).masked())",
        "must be None or a network in CIDR notation, such as 10.45.0.0/16",
    )(schema);
}

/// An IP address.
pub(crate) fn ip(schema: &mut Schema) {
    at_most(45)(schema);
    rule("isIP(self)", "must be an IP address, such as 192.0.2.7")(schema);
}

/// An IP address where there may be very many: checked without CEL, which would cost too much on every write.
pub(crate) fn ip_in_bulk(schema: &mut Schema) {
    at_most(45)(schema);
    schema.insert("anyOf".into(), json!([{"format": "ipv4"}, {"format": "ipv6"}]));
}

/// Bytes, written in base64.
pub(crate) fn bytes(schema: &mut Schema) {
    schema.insert("format".into(), "byte".into());
}

/// A whole object of one of these kinds, whose other fields the API server checks when it is made.
pub(crate) fn embedded_object(kinds: &'static [&'static str]) -> impl FnMut(&mut Schema) {
    move |schema| {
        *schema = json_schema!({
            "type": "object",
            "properties": {
                "apiVersion": {"type": "string", "maxLength": 317, "description": "The API group and version of the object."},
                "kind": {"type": "string", "enum": kinds, "description": "The kind of the object."},
                "metadata": {"type": "object", "description": "The name, labels and annotations of the object."},
            },
            "required": ["apiVersion", "kind", "metadata"],
            "x-kubernetes-embedded-resource": true,
            "x-kubernetes-preserve-unknown-fields": true,
        });
    }
}

/// Where the auth service of a cluster answers: an https URL, or just its host name.
pub(crate) fn auth_url(schema: &mut Schema) {
    matching(schema, 2048, r"^\S+$");
    rule(
        "!self.contains('://') || self.startsWith('https://')",
        "must be an https URL or a host name, such as https://192.0.2.7:31466 or auth.example.org",
    )(schema);
}

/// An https URL.
pub(crate) fn https_url(schema: &mut Schema) {
    matching(schema, 2048, r"^https://\S+$");
}

fn matching(schema: &mut Schema, limit: u32, pattern: &str) {
    at_most(limit)(schema);
    schema.insert("pattern".into(), pattern.into());
}
