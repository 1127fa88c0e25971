//! Whatever user and administrator write: a pod runs exactly where both allow it, and a second look changes nothing.

use std::collections::BTreeMap;

use ferro_api::offloading::NamespaceOffloading;
use ferro_api::virtualkubelet::{CurrentMapping, MappingPhase};
use k8s_openapi::api::core::v1::NodeSelector;
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::{Value, json};

use super::super::{Place, admits};
use super::{additions, expression, offloading, patched, pod, terms, with_terms};
use crate::selector::Selector;

fn expressions() -> impl Strategy<Value = Value> {
    let key = || select(vec!["a", "b", "liqo.io/type"]);
    let values = proptest::collection::vec(select(vec!["1", "2", "virtual-node"]), 1..3);
    prop_oneof![
        (key(), select(vec!["In", "NotIn"]), values)
            .prop_map(|(key, operator, values)| expression(key, operator, &values)),
        (key(), select(vec!["Exists", "DoesNotExist"])).prop_map(|(key, operator)| expression(
            key,
            operator,
            &[]
        )),
        (key(), select(vec!["Gt", "Lt"]), select(vec!["1", "2"]))
            .prop_map(|(key, operator, value)| expression(key, operator, &[value])),
    ]
}

fn some_terms(least: usize) -> impl Strategy<Value = Value> {
    let fields = proptest::option::weighted(
        0.2,
        select(vec!["In", "NotIn"]).prop_map(|operator| expression("metadata.name", operator, &["n"])),
    );
    let term = (proptest::collection::vec(expressions(), 0..3), fields).prop_map(
        |(expressions, field)| json!({"matchExpressions": expressions, "matchFields": Vec::from_iter(field)}),
    );
    proptest::collection::vec(term, least..4).prop_map(Value::Array)
}

fn nodes() -> impl Strategy<Value = (String, BTreeMap<String, String>)> {
    let labels = proptest::collection::btree_map(
        select(vec!["a", "b"]).prop_map(str::to_owned),
        select(vec!["1", "2", "3"]).prop_map(str::to_owned),
        0..3,
    );
    (select(vec!["n", "m"]).prop_map(str::to_owned), labels, any::<bool>()).prop_map(
        |(name, mut labels, is_virtual)| {
            if is_virtual {
                labels.insert("liqo.io/type".into(), "virtual-node".into());
            }
            (name, labels)
        },
    )
}

fn pods() -> impl Strategy<Value = Value> {
    let own = prop_oneof![Just(pod(&json!({}))), some_terms(1).prop_map(|terms| with_terms(&terms))];
    (own, any::<bool>()).prop_map(|(mut pod, is_tolerant)| {
        if is_tolerant {
            pod["spec"]["tolerations"] = json!([{"operator": "Exists"}]);
        }
        pod
    })
}

fn policies() -> impl Strategy<Value = NamespaceOffloading> {
    (select(vec!["LocalAndRemote", "Local", "Remote"]), some_terms(0))
        .prop_map(|(strategy, terms)| offloading(strategy, &terms))
}

/// Whether the scheduler puts the pod onto the node, as far as affinity and our taint go.
fn runs(pod: &Value, (name, labels): &(String, BTreeMap<String, String>)) -> bool {
    let terms = terms(pod);
    let selects = terms.is_null() || parsed(&terms).matches(name, labels);
    selects && (!is_virtual(labels) || pod["spec"]["tolerations"].is_array())
}

fn parsed(terms: &Value) -> Selector {
    let selector: NodeSelector = serde_json::from_value(json!({"nodeSelectorTerms": terms})).unwrap();
    Selector::parse(&selector).unwrap()
}

fn is_virtual(labels: &BTreeMap<String, String>) -> bool {
    labels.contains_key("liqo.io/type")
}

/// What the policy says about a node, put as the contract puts it.
fn allows(policy: &NamespaceOffloading, (name, labels): &(String, BTreeMap<String, String>)) -> bool {
    let selected = Selector::parse(&policy.spec.cluster_selector()).unwrap().matches(name, labels);
    match json!(policy.spec)["podOffloadingStrategy"].as_str() {
        Some("LocalAndRemote") => selected || !is_virtual(labels),
        Some("Remote") => selected && is_virtual(labels),
        _ => !is_virtual(labels),
    }
}

proptest! {
    #[test]
    fn a_pod_runs_exactly_where_user_and_policy_allow_it(policy in policies(), pod in pods(), node in nodes()) {
        let after = patched(&pod, &additions(&pod, &policy).unwrap());
        let own = terms(&pod);
        let wanted = own.is_null() || parsed(&own).matches(&node.0, &node.1);
        prop_assert_eq!(runs(&after, &node), wanted && allows(&policy, &node), "{}", after);
    }

    #[test]
    fn a_second_look_changes_nothing(policy in policies(), pod in pods(), more in expressions()) {
        let mut once = patched(&pod, &additions(&pod, &policy).unwrap());
        prop_assert_eq!(additions(&once, &policy), Ok(Vec::new()));
        // Nor does one after somebody else has narrowed it further, and has written it in their own way.
        let path = "/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms";
        for term in once.pointer_mut(path).and_then(Value::as_array_mut).into_iter().flatten() {
            // An expression in an empty term would widen it.
            let Some(expressions) = term["matchExpressions"].as_array_mut().filter(|list| !list.is_empty()) else {
                continue;
            };
            expressions.insert(0, more.clone());
            for expression in expressions.iter_mut().filter(|one| one["values"] == json!([])) {
                expression.as_object_mut().unwrap().remove("values");
            }
        }
        prop_assert_eq!(additions(&once, &policy), Ok(Vec::new()));
    }

    #[test]
    fn what_the_scheduler_puts_onto_a_virtual_node_may_stay_there(
        policy in policies(), pod in pods(), node in nodes(),
    ) {
        let after = patched(&pod, &additions(&pod, &policy).unwrap());
        let accepted = CurrentMapping { phase: MappingPhase::Accepted, remote_namespace: None, message: None };
        let place = Place { name: &node.0, labels: &node.1 };
        let stays = admits(&serde_json::from_value(after.clone()).unwrap(), Some(&policy), Some(&accepted), place);
        if is_virtual(&node.1) {
            prop_assert_eq!(runs(&after, &node), stays.is_ok(), "{:?}", stays);
        }
    }
}
