//! The schema of a LimitRange's spec, bounded, with the types of limit that Kubernetes knows.

use schemars::Schema;

use super::{at, at_most, one_of};

/// A core/v1 LimitRangeSpec that an API server accepts as such.
pub(crate) fn limit_range(schema: &mut Schema) {
    const LIMITS: &str = "/properties/limits";
    at(schema, LIMITS, at_most(16));
    at(
        schema,
        &format!("{LIMITS}/items/properties/type"),
        one_of(&["Container", "PersistentVolumeClaim", "Pod"]),
    );
    for amounts in ["default", "defaultRequest", "max", "maxLimitRequestRatio", "min"] {
        at(schema, &format!("{LIMITS}/items/properties/{amounts}"), at_most(64));
    }
}
