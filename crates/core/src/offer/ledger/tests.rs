//! The books of small clusters.

use k8s_openapi::api::core::v1::{Node, Pod};
use proptest::prelude::*;
use serde_json::json;

use super::Ledger;
use crate::resources::tests::resources;

fn node(name: &str, cpu: &str) -> Node {
    serde_json::from_value(json!({
        "metadata": {"name": name},
        "status": {
            "allocatable": {"cpu": cpu, "pods": "110"},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }))
    .unwrap()
}

fn pod(name: &str, node: &str, cpu: &str) -> Pod {
    serde_json::from_value(json!({
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "nodeName": node,
            "containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}],
        },
        "status": {"phase": "Running"},
    }))
    .unwrap()
}

fn two_nodes() -> Ledger {
    let mut ledger = Ledger::default();
    ledger.set_node(&node("n1", "4"));
    ledger.set_node(&node("n2", "4"));
    ledger
}

fn cpu_for(ledger: &Ledger, consumer: &str) -> String {
    ledger.free_for(consumer).get("cpu").to_string()
}

#[test]
fn a_pod_of_this_cluster_lowers_what_everybody_is_offered() {
    let mut ledger = two_nodes();
    assert!(ledger.set_pod(&pod("p", "n1", "1500m"), None));
    assert_eq!(ledger.free_for("c1"), resources([("cpu", "6500m"), ("pods", "219")]));
}

#[test]
fn two_consumers_each_see_the_right_figure() {
    let mut ledger = two_nodes();
    ledger.set_pod(&pod("p1", "n1", "1"), Some("c1"));
    ledger.set_pod(&pod("p2", "n2", "2"), Some("c2"));
    assert_eq!(cpu_for(&ledger, "c1"), "6");
    assert_eq!(cpu_for(&ledger, "c2"), "7");
    assert_eq!(cpu_for(&ledger, "c3"), "5");
}

#[test]
fn a_node_that_is_over_full_does_not_eat_into_the_others() {
    let mut ledger = two_nodes();
    ledger.set_pod(&pod("static", "n1", "9"), None);
    assert_eq!(cpu_for(&ledger, "c1"), "4");
}

#[test]
fn pods_that_ended_or_wait_for_a_node_take_nothing() {
    let mut ledger = two_nodes();
    let mut done = pod("done", "n1", "1");
    done.status.as_mut().unwrap().phase = Some("Succeeded".into());
    let mut waiting = pod("waiting", "n1", "1");
    waiting.spec.as_mut().unwrap().node_name = None;
    assert!(!ledger.set_pod(&done, None));
    assert!(!ledger.set_pod(&waiting, None));
    assert_eq!(cpu_for(&ledger, "c1"), "8");
}

#[test]
fn a_node_that_takes_no_pods_counts_only_with_the_own_pods_of_the_consumer() {
    let closed: [fn(&mut Node); 4] = [
        |node| node.spec.get_or_insert_default().unschedulable = Some(true),
        |node| node.status.as_mut().unwrap().conditions.as_mut().unwrap()[0].status = "False".into(),
        |node| {
            let taint = json!([{"key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule"}]);
            node.spec.get_or_insert_default().taints = serde_json::from_value(taint).unwrap();
        },
        |node| {
            node.metadata.deletion_timestamp =
                Some(serde_json::from_value(json!("2025-01-01T00:00:00Z")).unwrap());
        },
    ];
    for close in closed {
        let mut ledger = two_nodes();
        ledger.set_pod(&pod("p1", "n1", "1"), Some("c1"));
        ledger.set_pod(&pod("p2", "n1", "1"), None);
        let mut node = node("n1", "4");
        close(&mut node);
        assert!(ledger.set_node(&node));
        assert_eq!(cpu_for(&ledger, "c1"), "5");
        assert_eq!(cpu_for(&ledger, "c2"), "4");
    }
}

#[test]
fn what_belongs_to_a_peer_is_not_offered() {
    let mut ledger = two_nodes();
    let mut peer = node("liqo-peer", "100");
    peer.metadata.labels = Some([("liqo.io/type".to_owned(), "virtual-node".to_owned())].into());
    ledger.set_node(&peer);
    ledger.set_pod(&pod("offloaded", "liqo-peer", "50"), None);
    assert_eq!(cpu_for(&ledger, "c1"), "8");
}

#[test]
fn nothing_changes_when_only_a_status_does() {
    let mut ledger = two_nodes();
    let mut running = pod("p", "n1", "1");
    assert!(ledger.set_pod(&running, None));
    running.status.as_mut().unwrap().message = Some("hello".into());
    assert!(!ledger.set_pod(&running, None));
    assert!(!ledger.set_node(&node("n1", "4")));
    assert!(ledger.remove_pod("default", "p"));
    assert!(!ledger.remove_pod("default", "p"));
}

#[test]
fn pods_may_be_seen_before_their_node_and_stay_after_it() {
    let mut ledger = Ledger::default();
    ledger.set_pod(&pod("p", "n1", "1"), None);
    ledger.set_node(&node("n1", "4"));
    assert_eq!(cpu_for(&ledger, "c1"), "3");
    ledger.remove_node("n1");
    assert_eq!(cpu_for(&ledger, "c1"), "0");
    ledger.set_node(&node("n1", "4"));
    assert_eq!(cpu_for(&ledger, "c1"), "3");
}

#[test]
fn an_architecture_is_named_only_when_all_nodes_have_it() {
    let of = |name: &str, architecture: &str| {
        let mut node = node(name, "4");
        node.status.as_mut().unwrap().node_info.get_or_insert_default().architecture = architecture.into();
        node
    };
    let mut ledger = Ledger::default();
    assert_eq!(ledger.architecture(), None);
    ledger.set_node(&of("n1", "arm64"));
    ledger.set_node(&of("n2", "arm64"));
    assert_eq!(ledger.architecture(), Some("arm64"));
    ledger.set_node(&of("n2", "amd64"));
    assert_eq!(ledger.architecture(), None);
}

proptest! {
    /// However it got there, the books show the same as books begun anew.
    #[test]
    fn books_kept_up_to_date_equal_books_begun_anew(
        steps in proptest::collection::vec((0_usize..6, 0_usize..4, 0_u32..4, 0_usize..3), 0..60),
    ) {
        let owners = [None, Some("c1"), Some("c2")];
        let mut kept = two_nodes();
        let mut present = std::collections::BTreeMap::new();
        for (name, place, cpu, owner) in steps {
            let pod = pod(&format!("p{name}"), ["n1", "n2", "n3", ""][place], &format!("{cpu}"));
            if place == 3 {
                kept.remove_pod("default", &format!("p{name}"));
                present.remove(&name);
            } else {
                kept.set_pod(&pod, owners[owner]);
                present.insert(name, (pod, owners[owner]));
            }
        }
        let mut anew = two_nodes();
        for (pod, owner) in present.values() {
            anew.set_pod(pod, *owner);
        }
        for consumer in ["c1", "c2", "c3"] {
            prop_assert_eq!(kept.free_for(consumer), anew.free_for(consumer));
        }
    }
}
