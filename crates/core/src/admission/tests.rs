mod bound;
mod properties;

use ferro_api::offloading::NamespaceOffloading;
use serde_json::{Value, json};

use super::{Addition, Refusal, admit};

const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";

fn expression(key: &str, operator: &str, values: &[&str]) -> Value {
    json!({"key": key, "operator": operator, "values": values})
}

fn in_region(region: &str) -> Value {
    expression("liqo.io/region", "In", &[region])
}

fn is_remote() -> Value {
    expression("liqo.io/type", "In", &["virtual-node"])
}

fn is_local() -> Value {
    expression("liqo.io/type", "NotIn", &["virtual-node"])
}

fn term(expressions: &[Value]) -> Value {
    json!({"matchExpressions": expressions})
}

fn offloading(strategy: &str, terms: &Value) -> NamespaceOffloading {
    serde_json::from_value(json!({
        "apiVersion": "offloading.liqo.io/v1alpha1", "kind": "NamespaceOffloading",
        "metadata": {"name": "offloading", "namespace": "shop"},
        "spec": {"podOffloadingStrategy": strategy, "clusterSelector": {"nodeSelectorTerms": terms}},
    }))
    .unwrap()
}

/// One that selects `liqo.io/region In [us-west-1]`, as the contract prints it.
fn west(strategy: &str) -> NamespaceOffloading {
    offloading(strategy, &json!([term(&[in_region("us-west-1")])]))
}

fn pod(spec: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"}, "spec": spec})
}

fn with_terms(terms: &Value) -> Value {
    pod(&json!({"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": terms}}}}))
}

fn additions(pod: &Value, offloading: &NamespaceOffloading) -> Result<Vec<Addition>, Refusal> {
    admit(&serde_json::from_value(pod.clone()).unwrap(), offloading)
}

/// The pod with the patch applied, as an API server does.
fn patched(pod: &Value, additions: &[Addition]) -> Value {
    let mut pod = pod.clone();
    for Addition { path, value } in additions {
        let (parent, key) = path.rsplit_once('/').unwrap();
        match pod.pointer_mut(parent).unwrap() {
            Value::Array(list) if key == "-" => list.push(value.clone()),
            Value::Object(fields) => _ = fields.insert(key.to_owned(), value.clone()),
            other => panic!("{path} leads into {other}"),
        }
    }
    pod
}

/// The pod as it is admitted, which a second look leaves alone.
fn admitted(pod: &Value, offloading: &NamespaceOffloading) -> Value {
    let once = patched(pod, &additions(pod, offloading).unwrap());
    assert_eq!(additions(&once, offloading), Ok(Vec::new()), "a second look changes something");
    once
}

fn terms(pod: &Value) -> Value {
    pod["spec"]["affinity"]["nodeAffinity"][REQUIRED]["nodeSelectorTerms"].clone()
}

fn toleration() -> Value {
    json!({"key": "virtual-node.liqo.io/not-allowed", "operator": "Equal", "value": "true", "effect": "NoExecute"})
}

#[test]
fn a_plain_pod_gets_the_terms_that_the_contract_prints() {
    let both = admitted(&pod(&json!({})), &west("LocalAndRemote"));
    assert_eq!(terms(&both), json!([term(&[in_region("us-west-1")]), term(&[is_local()])]));
    assert_eq!(both["spec"]["tolerations"], json!([toleration()]));

    let remote = admitted(&pod(&json!({})), &west("Remote"));
    assert_eq!(terms(&remote), json!([term(&[in_region("us-west-1"), is_remote()])]));
    assert_eq!(remote["spec"]["tolerations"], json!([toleration()]));

    assert_eq!(additions(&pod(&json!({})), &west("Local")), Ok(Vec::new()));
}

#[test]
fn users_terms_and_policy_are_multiplied_out() {
    let own = json!([
        {"matchExpressions": [expression("disk", "In", &["ssd"])],
         "matchFields": [expression("metadata.name", "In", &["n1"])]},
        term(&[expression("gpu", "Exists", &[])]),
    ]);
    let pod = admitted(&with_terms(&own), &west("LocalAndRemote"));
    let fields = &own[0]["matchFields"];
    let (ssd, gpu) =
        (expression("disk", "In", &["ssd"]), json!({"key": "gpu", "operator": "Exists", "values": []}));
    assert_eq!(
        terms(&pod),
        json!([
            {"matchExpressions": [ssd, in_region("us-west-1")], "matchFields": fields},
            {"matchExpressions": [ssd, is_local()], "matchFields": fields},
            term(&[gpu.clone(), in_region("us-west-1")]),
            term(&[gpu, is_local()]),
        ])
    );
}

#[test]
fn a_pod_that_says_already_what_the_policy_says_is_left_alone() {
    let own = json!([term(&[is_remote(), in_region("us-west-1"), expression("gpu", "Exists", &[])])]);
    let pod = admitted(&with_terms(&own), &west("Remote"));
    assert_eq!(terms(&pod), own);
}

#[test]
fn a_local_pod_that_tolerates_virtual_nodes_is_kept_at_home() {
    let own = toleration();
    let by_key = json!({"key": "virtual-node.liqo.io/not-allowed", "operator": "Exists"});
    for tolerant in
        [json!({"operator": "Exists"}), own, by_key, json!({"operator": "Exists", "effect": "NoExecute"})]
    {
        let pod = admitted(&pod(&json!({"tolerations": [tolerant]})), &west("Local"));
        assert_eq!(terms(&pod), json!([term(&[is_local()])]), "{tolerant}");
        assert_eq!(pod["spec"]["tolerations"], json!([tolerant]));
    }
    for other in [
        json!({"key": "virtual-node.liqo.io/not-allowed", "value": "false"}),
        json!({"key": "virtual-node.liqo.io/draining", "operator": "Exists"}),
        json!({"operator": "Exists", "effect": "NoSchedule"}),
    ] {
        assert_eq!(
            additions(&pod(&json!({"tolerations": [other]})), &west("Local")),
            Ok(Vec::new()),
            "{other}"
        );
    }
}

#[test]
fn what_else_the_pod_says_stays_as_it_is() {
    let preferred = json!([{"weight": 1, "preference": term(&[in_region("us-east-1")])}]);
    let spec = json!({
        "nodeSelector": {"disk": "ssd"},
        "nodeName": "n1",
        "tolerations": [{"key": "a", "operator": "Exists"}],
        "affinity": {
            "nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred},
            "podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []},
        },
    });
    let mut left = admitted(&pod(&spec), &west("Remote"));
    assert_eq!(terms(&left), json!([term(&[in_region("us-west-1"), is_remote()])]));
    left["spec"]["affinity"]["nodeAffinity"].as_object_mut().unwrap().remove(REQUIRED);
    assert_eq!(left["spec"]["tolerations"].as_array_mut().unwrap().pop(), Some(toleration()));
    assert_eq!(left, pod(&spec));
}

#[test]
fn additions_go_to_the_deepest_place_there_is() {
    for (spec, path) in [
        (json!({}), "/spec/affinity"),
        (json!({"affinity": {}}), "/spec/affinity/nodeAffinity"),
        (
            json!({"affinity": {"nodeAffinity": {}}}),
            "/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution",
        ),
    ] {
        let found = additions(&pod(&spec), &west("Remote")).unwrap();
        assert_eq!(found[0].path, path);
        assert_eq!(found[1].path, "/spec/tolerations");
    }
    let found = additions(&with_terms(&json!([term(&[in_region("a")])])), &west("Remote")).unwrap();
    assert!(found[0].path.ends_with("/nodeSelectorTerms"), "{}", found[0].path);
    let found = additions(&pod(&json!({"tolerations": []})), &west("Remote")).unwrap();
    assert_eq!(found[1].path, "/spec/tolerations/-");
    assert_eq!(json!(found[1]), json!({"op": "add", "path": "/spec/tolerations/-", "value": toleration()}));
}

#[test]
fn where_nothing_is_selected_pods_stay_at_home_or_wait() {
    for nothing in [json!([]), json!([{}])] {
        let both = admitted(&pod(&json!({})), &offloading("LocalAndRemote", &nothing));
        assert_eq!(terms(&both), json!([term(&[is_local()])]));
        let remote = admitted(&pod(&json!({})), &offloading("Remote", &nothing));
        assert_eq!(terms(&remote), json!([{}]), "a term that selects nothing");
        let own = with_terms(&json!([term(&[in_region("us-west-1")])]));
        assert_eq!(terms(&admitted(&own, &offloading("Remote", &nothing))), json!([{}]));
    }
}

#[test]
fn a_users_term_that_selects_nothing_goes_on_to_do_so() {
    let pod = admitted(&with_terms(&json!([{}, term(&[in_region("a")])])), &west("Remote"));
    assert_eq!(terms(&pod), json!([{}, term(&[in_region("a"), in_region("us-west-1"), is_remote()])]));
    let nothing = with_terms(&json!([]));
    let pod = admitted(&nothing, &west("Local"));
    assert_eq!(pod, nothing, "what an API server refuses is not made acceptable");
}

#[test]
fn nothing_is_added_once_the_offloading_is_being_deleted() {
    let mut going = west("Remote");
    going.metadata.deletion_timestamp = serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap();
    assert_eq!(additions(&pod(&json!({})), &going), Ok(Vec::new()));
}

#[test]
fn a_selector_that_cannot_be_understood_is_the_administrators_to_mend() {
    let wrong = json!([term(&[expression("a", "Like", &["b"])])]);
    let refusal = additions(&pod(&json!({})), &offloading("Remote", &wrong)).unwrap_err();
    assert!(refusal.to_string().contains("nodeSelectorTerms[0].matchExpressions[0] (a Like)"), "{refusal}");
    assert_eq!(additions(&pod(&json!({})), &offloading("Local", &wrong)), Ok(Vec::new()));
}

#[test]
fn a_product_that_no_pod_can_hold_is_refused() {
    let many = |key: &str, count: u32| -> Value {
        (0..count).map(|number| term(&[expression(key, "In", &[&number.to_string()])])).collect()
    };
    let policy = offloading("Remote", &many("a", 60));
    assert!(additions(&with_terms(&many("b", 10)), &policy).is_ok());
    let refusal = additions(&with_terms(&many("b", 20)), &policy).unwrap_err();
    assert_eq!(refusal, Refusal::TooLarge);
    assert!(refusal.to_string().contains("more than 4096"), "{refusal}");
}
