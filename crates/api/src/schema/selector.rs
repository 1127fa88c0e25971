//! The schema of a node selector, as strict as the scheduler is when it parses one.
//!
//! A selector with a wrong operator would select nothing and say so only in a status; refused at once, it is
//! noticed.

use schemars::Schema;

use super::{at, at_most, label_key, label_value, one_of, rule};

/// A core/v1 NodeSelector, bounded, whose operators exist and have the values they need.
pub(crate) fn node_selector(schema: &mut Schema) {
    const TERMS: &str = "/properties/nodeSelectorTerms";
    at(schema, TERMS, at_most(64));
    for (requirements, block) in
        [("matchExpressions", on_label as fn(&mut Schema)), ("matchFields", on_field as fn(&mut Schema))]
    {
        let list = format!("{TERMS}/items/properties/{requirements}");
        at(schema, &list, at_most(64));
        at(schema, &format!("{list}/items"), block);
    }
}

fn on_label(schema: &mut Schema) {
    at(schema, "/properties/key", label_key);
    at(schema, "/properties/operator", one_of(&["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"]));
    at(schema, "/properties/values", at_most(256));
    at(schema, "/properties/values/items", label_value);
    rule(
        "!(self.operator in ['In', 'NotIn']) || (has(self.values) && self.values.size() > 0)",
        "values must not be empty with operator In or NotIn",
    )(schema);
    rule(
        "!(self.operator in ['Exists', 'DoesNotExist']) || !has(self.values) || self.values.size() == 0",
        "values must be empty with operator Exists or DoesNotExist",
    )(schema);
    rule(
        "!(self.operator in ['Gt', 'Lt']) || \
         (has(self.values) && self.values.size() == 1 && self.values[0].matches('^[0-9]{1,18}$'))",
        "values must hold one integer with operator Gt or Lt",
    )(schema);
}

/// The one field that there is, which is one name or another.
fn on_field(schema: &mut Schema) {
    at(schema, "/properties/key", one_of(&["metadata.name"]));
    at(schema, "/properties/operator", one_of(&["In", "NotIn"]));
    at(schema, "/properties/values", at_most(1));
    at(schema, "/properties/values/items", at_most(253));
    rule("has(self.values) && self.values.size() == 1", "values must hold one name")(schema);
}
