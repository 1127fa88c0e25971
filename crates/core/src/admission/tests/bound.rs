//! Which pods may stay on a virtual node.

use std::collections::BTreeMap;

use ferro_api::offloading::NamespaceOffloading;
use ferro_api::virtualkubelet::{CurrentMapping, MappingPhase};
use serde_json::{Value, json};

use super::super::{Place, admits};
use super::{expression, in_region, pod, term, west, with_terms};

const NODE: &str = "liqo-turin-0123456789";

fn mapping(phase: MappingPhase) -> CurrentMapping {
    CurrentMapping { phase, remote_namespace: Some("shop".into()), message: Some("over quota".into()) }
}

fn labels() -> BTreeMap<String, String> {
    let labels = [("liqo.io/type", "virtual-node"), ("liqo.io/region", "us-west-1")];
    labels.map(|(key, value)| (key.to_owned(), value.to_owned())).into()
}

/// What a pod is told, as one word and a sentence.
fn told(
    pod: &Value,
    offloading: Option<&NamespaceOffloading>,
    mapping: Option<&CurrentMapping>,
) -> Result<(), (&'static str, String)> {
    let pod = serde_json::from_value(pod.clone()).unwrap();
    let place = Place { name: NODE, labels: &labels() };
    admits(&pod, offloading, mapping, place).map_err(|refusal| (refusal.word(), refusal.to_string()))
}

fn refused(
    pod: &Value,
    offloading: Option<&NamespaceOffloading>,
    mapping: Option<&CurrentMapping>,
) -> &'static str {
    told(pod, offloading, mapping).unwrap_err().0
}

#[test]
fn a_pod_that_policy_and_scheduler_sent_is_admitted() {
    let accepted = mapping(MappingPhase::Accepted);
    for policy in [west("Remote"), west("LocalAndRemote")] {
        assert_eq!(told(&pod(&json!({})), Some(&policy), Some(&accepted)), Ok(()));
        let narrowed = super::admitted(&with_terms(&json!([term(&[in_region("us-west-1")])])), &policy);
        assert_eq!(told(&narrowed, Some(&policy), Some(&accepted)), Ok(()));
    }
}

#[test]
fn a_namespace_must_be_offloaded_and_exist_over_there() {
    let (plain, policy, accepted) = (pod(&json!({})), west("Remote"), mapping(MappingPhase::Accepted));
    assert_eq!(refused(&plain, None, Some(&accepted)), "NamespaceNotOffloaded");
    let mut going = west("Remote");
    going.metadata.deletion_timestamp = serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap();
    assert_eq!(refused(&plain, Some(&going), Some(&accepted)), "NamespaceNotOffloaded");
    assert_eq!(refused(&plain, Some(&west("Local")), Some(&accepted)), "LocalOnly");
    assert_eq!(refused(&plain, Some(&policy), None), "NoRemoteNamespace");
    for (phase, reason) in
        [(MappingPhase::CreationLoopBackOff, "over quota"), (MappingPhase::Terminating, "being removed")]
    {
        let (word, text) = told(&plain, Some(&policy), Some(&mapping(phase))).unwrap_err();
        assert!(word == "NoRemoteNamespace" && text.contains(reason), "{text}");
    }
}

#[test]
fn a_pod_that_came_past_scheduler_and_webhook_is_told_why_it_may_not_stay() {
    let accepted = mapping(MappingPhase::Accepted);
    let east = super::offloading("Remote", &json!([term(&[in_region("us-east-1")])]));
    let (word, text) = told(&pod(&json!({"nodeName": NODE})), Some(&east), Some(&accepted)).unwrap_err();
    assert_eq!(word, "ClusterNotSelected");
    assert!(text.contains("liqo.io/region is \"us-west-1\", and must be us-east-1"), "{text}");
    for own in [
        pod(&json!({"nodeName": NODE, "nodeSelector": {"disk": "ssd"}})),
        with_terms(&json!([term(&[in_region("us-east-1")])])),
        with_terms(&json!([term(&[expression("a", "Gt", &["x"])])])),
        with_terms(&json!([{}])),
    ] {
        assert_eq!(refused(&own, Some(&west("Remote")), Some(&accepted)), "NodeAffinity", "{own}");
    }
}

#[test]
fn pods_of_daemon_sets_are_kept_off() {
    let mut daemon = pod(&json!({"tolerations": [{"operator": "Exists"}]}));
    let owner = |kind: &str| json!([{"apiVersion": "apps/v1", "kind": kind, "name": "a", "uid": "1", "controller": true}]);
    daemon["metadata"]["ownerReferences"] = owner("DaemonSet");
    let accepted = mapping(MappingPhase::Accepted);
    assert_eq!(refused(&daemon, Some(&west("Remote")), Some(&accepted)), "DaemonSetPod");
    assert_eq!(refused(&daemon, None, None), "DaemonSetPod", "that comes first: nothing else would help");
    daemon["metadata"]["ownerReferences"] = owner("ReplicaSet");
    assert_eq!(told(&daemon, Some(&west("Remote")), Some(&accepted)), Ok(()));
}
