use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::NodeSelector;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::Selector;

const NODE: &str = "liqo-turin-0123456789";

fn selector(terms: &Value) -> NodeSelector {
    serde_json::from_value(json!({"nodeSelectorTerms": terms})).unwrap()
}

fn parse(terms: &Value) -> Selector {
    Selector::parse(&selector(terms)).unwrap()
}

fn labels<const N: usize>(labels: [(&str, &str); N]) -> BTreeMap<String, String> {
    labels.map(|(key, value)| (key.to_owned(), value.to_owned())).into()
}

fn expression(key: &str, operator: &str, values: &[&str]) -> Value {
    json!({"key": key, "operator": operator, "values": values})
}

/// Whether one expression holds for a node whose label `size` has that value, or none.
fn holds(operator: &str, values: &[&str], size: Option<&str>) -> bool {
    let selector = parse(&json!([{"matchExpressions": [expression("size", operator, values)]}]));
    let labels = size.map(|size| labels([("size", size)])).unwrap_or_default();
    selector.matches(NODE, &labels)
}

#[test]
fn each_operator_means_what_it_means_to_the_scheduler() {
    for (operator, values, absent, three, thirty, word) in [
        ("In", &["3", "word"][..], false, true, false, true),
        ("NotIn", &["3", "word"], true, false, true, false),
        ("Exists", &[], false, true, true, true),
        ("DoesNotExist", &[], true, false, false, false),
        ("Gt", &["3"], false, false, true, false),
        ("Lt", &["4"], false, true, false, false),
    ] {
        let held = [None, Some("3"), Some("30"), Some("word")].map(|size| holds(operator, values, size));
        assert_eq!(held, [absent, three, thirty, word], "{operator}");
    }
    assert!(!holds("Lt", &["4"], Some("99999999999999999999")), "no integer of 64 bits");
}

#[test]
fn terms_are_alternatives_and_all_of_a_term_must_hold() {
    let (west, large) = (expression("region", "In", &["west"]), expression("size", "Gt", &["3"]));
    let both = parse(&json!([{"matchExpressions": [west, large]}]));
    let either = parse(&json!([{"matchExpressions": [west]}, {"matchExpressions": [large]}]));
    for (region, size, all, any) in [
        ("west", "4", true, true),
        ("west", "1", false, true),
        ("east", "4", false, true),
        ("east", "1", false, false),
    ] {
        let labels = labels([("region", region), ("size", size)]);
        assert_eq!(
            (both.matches(NODE, &labels), either.matches(NODE, &labels)),
            (all, any),
            "{region} {size}"
        );
    }
}

#[test]
fn what_is_empty_selects_nothing() {
    let labels = labels([("region", "west")]);
    let nothing = parse(&json!([]));
    assert!(!nothing.matches(NODE, &labels));
    assert_eq!(nothing.explain(NODE, &labels), ["the selector has no term, and so selects nothing"]);
    let empty = parse(&json!([{}, {"matchExpressions": [], "matchFields": []}]));
    assert!(!empty.matches(NODE, &labels));
    assert_eq!(empty.explain(NODE, &labels), ["the term is empty, and so selects nothing"; 2]);
    let beside = parse(&json!([{}, {"matchExpressions": [expression("region", "Exists", &[])]}]));
    assert!(beside.matches(NODE, &labels));
}

#[test]
fn a_node_can_be_meant_by_its_name() {
    let by = |operator| parse(&json!([{"matchFields": [expression("metadata.name", operator, &[NODE])]}]));
    let labels = BTreeMap::new();
    assert!(by("In").matches(NODE, &labels) && !by("In").matches("other", &labels));
    assert!(by("NotIn").matches("other", &labels) && !by("NotIn").matches(NODE, &labels));
    let east = expression("region", "In", &["east"]);
    let both = parse(&json!([
        {"matchFields": [expression("metadata.name", "In", &[NODE])], "matchExpressions": [east]},
    ]));
    assert!(!both.matches(NODE, &labels), "fields and labels of a term must both hold");
}

#[test]
fn a_wrong_requirement_is_refused_with_its_place_and_the_reason() {
    let label =
        |key, operator, values: &[&str]| json!({"matchExpressions": [expression(key, operator, values)]});
    let field = |key, operator, values: &[&str]| json!({"matchFields": [expression(key, operator, values)]});
    for (term, reason) in [
        (label("a", "in", &["b"]), "the operator must be"),
        (label("a b", "Exists", &[]), "the key cannot be"),
        (label("a", "In", &[]), "at least one value"),
        (label("a", "NotIn", &[]), "at least one value"),
        (label("a", "In", &["a b"]), "a value cannot be"),
        (label("a", "Exists", &["b"]), "have no values"),
        (label("a", "DoesNotExist", &["b"]), "have no values"),
        (label("a", "Gt", &["b"]), "an integer"),
        (label("a", "Lt", &["1", "2"]), "an integer"),
        (label("a", "Gt", &["-1"]), "a value cannot be"),
        (field("metadata.namespace", "In", &["b"]), "the only field"),
        (field("metadata.name", "In", &["a", "b"]), "with one value"),
        (field("metadata.name", "Exists", &[]), "In or NotIn"),
    ] {
        let error = Selector::parse(&selector(&json!([{}, term]))).unwrap_err().to_string();
        assert!(error.starts_with("nodeSelectorTerms[1].match") && error.contains(reason), "{error}");
    }
}

#[test]
fn who_asks_why_a_node_is_not_selected_is_told_for_each_term() {
    let selector = parse(&json!([
        {"matchExpressions": [expression("region", "In", &["west"]), expression("size", "Gt", &["3"])]},
        {"matchExpressions": [expression("region", "NotIn", &["east", "north"])]},
        {"matchFields": [expression("metadata.name", "In", &["other"])]},
    ]));
    assert_eq!(
        selector.explain(NODE, &labels([("region", "east")])),
        [
            "region is \"east\", and must be west; size is not set, and must be an integer greater than 3",
            "region is \"east\", and must be none of east, north",
            "metadata.name is \"liqo-turin-0123456789\", and must be other",
        ]
    );
    assert_eq!(selector.explain("other", &labels([])), Vec::<String>::new());
}

fn expressions() -> impl Strategy<Value = Value> {
    let (key, value) =
        (|| proptest::sample::select(vec!["a", "b"]), || proptest::sample::select(vec!["1", "2", "x"]));
    let number = proptest::sample::select(vec!["1", "2"]);
    prop_oneof![
        (key(), proptest::sample::select(vec!["In", "NotIn"]), proptest::collection::vec(value(), 1..3))
            .prop_map(|(key, operator, values)| expression(key, operator, &values)),
        (key(), proptest::sample::select(vec!["Exists", "DoesNotExist"]))
            .prop_map(|(key, operator)| expression(key, operator, &[])),
        (key(), proptest::sample::select(vec!["Gt", "Lt"]), number)
            .prop_map(|(key, operator, value)| expression(key, operator, &[value])),
    ]
}

fn terms() -> impl Strategy<Value = Vec<Vec<Value>>> {
    proptest::collection::vec(proptest::collection::vec(expressions(), 0..4), 0..4)
}

fn nodes() -> impl Strategy<Value = BTreeMap<String, String>> {
    let value = proptest::sample::select(vec!["0", "1", "2", "3", "x"]).prop_map(str::to_owned);
    proptest::collection::btree_map(
        proptest::sample::select(vec!["a", "b", "c"]).prop_map(str::to_owned),
        value,
        0..3,
    )
}

fn of(terms: &[Vec<Value>]) -> Selector {
    parse(&terms.iter().map(|term| json!({"matchExpressions": term})).collect())
}

proptest! {
    #[test]
    fn a_further_term_can_only_widen_and_a_further_requirement_only_narrow(
        terms in terms(), further in expressions(), node in nodes(),
    ) {
        let matched = of(&terms).matches(NODE, &node);
        let mut wider = terms.clone();
        wider.push(vec![further.clone()]);
        prop_assert!(!matched || of(&wider).matches(NODE, &node));
        let narrower: Vec<Vec<Value>> = terms
            .iter()
            .filter(|term| !term.is_empty())
            .map(|term| term.iter().cloned().chain([further.clone()]).collect())
            .collect();
        prop_assert!(matched || !of(&narrower).matches(NODE, &node));
    }

    #[test]
    fn there_is_an_explanation_for_each_term_exactly_when_nothing_matches(terms in terms(), node in nodes()) {
        let selector = of(&terms);
        let explained = selector.explain(NODE, &node);
        let expected = if selector.matches(NODE, &node) { 0 } else { terms.len().max(1) };
        prop_assert_eq!(explained.len(), expected);
    }

    #[test]
    fn an_operator_and_its_opposite_never_agree(
        node in nodes(), value in proptest::sample::select(vec!["1", "2", "x"]),
    ) {
        for (operator, opposite, values) in
            [("In", "NotIn", &[value][..]), ("Exists", "DoesNotExist", &[])]
        {
            let one = of(&[vec![expression("a", operator, values)]]).matches(NODE, &node);
            let other = of(&[vec![expression("a", opposite, values)]]).matches(NODE, &node);
            prop_assert_ne!(one, other);
        }
    }
}
