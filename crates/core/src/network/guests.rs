//! Pods that run here for peers: where peers reach only what is published to them, each reaches its own.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ferro_api::names::labels;
use k8s_openapi::api::core::v1::{Pod, PodStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

/// The addresses of pods that run here for peers, each with the peer that it runs for. `owner` says whose a namespace is.
///
/// The mark on a pod says that we have made it, and its namespace for whom. One that has ended has its address no
/// longer; an address that two peers would have is nobody's.
pub fn guests<'a>(
    pods: impl Iterator<Item = &'a Pod>,
    owner: impl Fn(&str) -> Option<String>,
) -> BTreeMap<IpAddr, String> {
    let (mut guests, mut contested) = (BTreeMap::new(), BTreeSet::new());
    for pod in pods.filter(|pod| is_guest(pod)) {
        let peer = pod.metadata.namespace.as_deref().and_then(&owner);
        let Some(peer) = peer.filter(|peer| labels::ORIGIN_ID.of(&pod.metadata) == Some(peer)) else {
            continue;
        };
        for ip in addresses(pod) {
            let former = guests.insert(ip, peer.clone());
            if former.is_some_and(|former| former != peer) {
                contested.insert(ip);
            }
        }
    }
    guests.retain(|ip, _| !contested.contains(ip));
    guests
}

/// Takes out of a pod what is not read here.
pub fn keep_of_guest(pod: &mut Pod) {
    let meta = std::mem::take(&mut pod.metadata);
    pod.metadata = ObjectMeta {
        name: meta.name,
        namespace: meta.namespace,
        uid: meta.uid,
        resource_version: meta.resource_version,
        labels: meta.labels.map(|all| {
            let is_read = |key: &str| [labels::SHADOWED.key(), labels::ORIGIN_ID.key()].contains(&key);
            all.into_iter().filter(|(key, _)| is_read(key)).collect()
        }),
        ..ObjectMeta::default()
    };
    pod.spec = None;
    pod.status = pod.status.take().map(|status| PodStatus {
        phase: status.phase,
        pod_ip: status.pod_ip,
        pod_ips: status.pod_ips,
        ..PodStatus::default()
    });
}

fn is_guest(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    labels::SHADOWED.is_on(&pod.metadata) && !matches!(phase, Some("Succeeded" | "Failed"))
}

fn addresses(pod: &Pod) -> BTreeSet<IpAddr> {
    let Some(status) = &pod.status else { return BTreeSet::new() };
    let several = status.pod_ips.iter().flatten().map(|pod_ip| &pod_ip.ip);
    several.chain(&status.pod_ip).filter_map(|ip| ip.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod(namespace: &str, origin: &str, status: &Value) -> Pod {
        serde_json::from_value(json!({
            "metadata": {"name": "p", "namespace": namespace, "annotations": {"a": "b"},
                "labels": {"virtualkubelet.liqo.io/shadowed": "true", "liqo.io/originID": origin, "app": "x"}},
            "spec": {"containers": []}, "status": status,
        }))
        .unwrap()
    }

    fn at(ip: &str) -> Value {
        json!({"phase": "Running", "podIP": ip, "podIPs": [{"ip": ip}], "hostIP": "172.18.0.2"})
    }

    fn found(pods: &[Pod]) -> Vec<(String, String)> {
        let owner = |namespace: &str| match namespace {
            "shop-rome" => Some("rome".to_owned()),
            "shop-milan" => Some("milan".to_owned()),
            _ => None,
        };
        guests(pods.iter(), owner).into_iter().map(|(ip, peer)| (ip.to_string(), peer)).collect()
    }

    fn of(ip: &str, peer: &str) -> (String, String) {
        (ip.to_owned(), peer.to_owned())
    }

    #[test]
    fn a_pod_belongs_to_the_peer_whose_namespace_it_runs_in() {
        let pods = [pod("shop-rome", "rome", &at("10.0.0.7")), pod("shop-milan", "milan", &at("10.0.0.8"))];
        assert_eq!(found(&pods), [of("10.0.0.7", "rome"), of("10.0.0.8", "milan")]);
        let both = json!({"podIPs": [{"ip": "10.0.0.7"}, {"ip": "fd00::7"}]});
        assert_eq!(found(&[pod("shop-rome", "rome", &both)]).len(), 2);
    }

    #[test]
    fn what_is_not_the_peers_own_is_not_found() {
        let mut unmarked = pod("shop-rome", "rome", &at("10.0.0.7"));
        unmarked.metadata.labels.as_mut().unwrap().remove("virtualkubelet.liqo.io/shadowed");
        let pods = [
            unmarked,
            pod("kube-system", "rome", &at("10.0.0.8")),
            pod("shop-milan", "rome", &at("10.0.0.9")),
            pod("shop-rome", "rome", &json!({"phase": "Pending"})),
            pod("shop-rome", "rome", &json!({"podIP": "nowhere"})),
        ];
        assert_eq!(found(&pods), []);
    }

    #[test]
    fn one_that_has_ended_has_its_address_no_longer_and_two_peers_never_have_the_same() {
        let mut ended = at("10.0.0.7");
        ended["phase"] = json!("Succeeded");
        let pods = [pod("shop-rome", "rome", &ended), pod("shop-milan", "milan", &at("10.0.0.7"))];
        assert_eq!(found(&pods), [of("10.0.0.7", "milan")]);
        let pods = [pod("shop-rome", "rome", &at("10.0.0.7")), pod("shop-milan", "milan", &at("10.0.0.7"))];
        assert_eq!(found(&pods), []);
    }

    #[test]
    fn what_is_kept_of_a_pod_is_enough() {
        let whole = pod("shop-rome", "rome", &at("10.0.0.7"));
        let mut kept = whole.clone();
        keep_of_guest(&mut kept);
        assert!(kept.spec.is_none() && kept.metadata.annotations.is_none());
        assert_eq!(found(&[kept]), found(&[whole]));
    }
}
