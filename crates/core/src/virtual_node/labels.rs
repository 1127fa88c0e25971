//! The labels of a virtual node: ours, the peer's claims without those that are reserved, and corrections.

use std::collections::BTreeMap;

use ferro_api::names::annotations::{self, Annotation};
use ferro_api::names::labels::{ENABLED, ORIGIN_ID, REMOTE_ID, REPLICATED, REPLICATION, TYPE_VIRTUAL_NODE};
use ferro_api::sharing::ResourceOfferSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::{OPERATING_SYSTEM, VirtualNode};
use crate::names::{is_label_key, is_label_value};

const ARCHITECTURE: &str = "kubernetes.io/arch";
const HOSTNAME: &str = "kubernetes.io/hostname";
const OS: &str = "kubernetes.io/os";
/// Several nodes that are not ready would otherwise count as a failure of the home zone, and stop evictions.
const REGION: &str = "topology.kubernetes.io/region";
const NO_LOAD_BALANCER: &str = "node.kubernetes.io/exclude-from-external-load-balancers";

/// What Kubernetes runs on; the first is assumed of a peer that does not say.
const ARCHITECTURES: [&str; 8] = ["amd64", "arm64", "arm", "ppc64le", "s390x", "riscv64", "386", "loong64"];

/// The reserved names directly under `liqo.io`.
const RESERVED: [&str; 6] = [
    TYPE_VIRTUAL_NODE.key(),
    ENABLED.key(),
    REPLICATION.key(),
    REPLICATED.key(),
    REMOTE_ID.key(),
    ORIGIN_ID.key(),
];

type Labels = BTreeMap<String, String>;

/// Puts the labels on, takes those off that were put on before and are no longer wanted, and lists which come
/// from whom.
pub(super) fn put_on(meta: &mut ObjectMeta, node: &VirtualNode<'_>) {
    let set = node.corrections.map(|corrections| corrections.set.clone()).unwrap_or_default();
    let dropped = node.corrections.map(|corrections| corrections.drop.as_slice()).unwrap_or_default();
    let mut claimed = claims(node.offer);
    claimed.retain(|key, _| !dropped.contains(key) && !set.contains_key(key));
    let mut general = general(node);
    general.retain(|key, _| !dropped.contains(key));

    let earlier = [annotations::CLAIMED_LABELS, annotations::SET_LABELS];
    let obsolete: Vec<_> = earlier.iter().flat_map(|list| listed(meta, *list)).map(str::to_owned).collect();
    let present = meta.labels.get_or_insert_default();
    obsolete.iter().chain(dropped).for_each(|key| _ = present.remove(key));
    list(meta, annotations::CLAIMED_LABELS, &claimed);
    list(meta, annotations::SET_LABELS, &set);
    let present = meta.labels.get_or_insert_default();
    for labels in [general, claimed, set, fixed(node)] {
        present.extend(labels);
    }
}

/// All labels but those by which a node is known as that of its peer.
pub(super) fn beside_its_own(meta: &ObjectMeta) -> impl Iterator<Item = &str> {
    let is_its_own = |key: &&str| [TYPE_VIRTUAL_NODE.key(), REMOTE_ID.key()].contains(key);
    meta.labels.iter().flatten().map(|(key, _)| key.as_str()).filter(move |key| !is_its_own(key))
}

/// The architecture that the peer names, or the most common one.
pub(super) fn architecture(offer: &ResourceOfferSpec) -> &'static str {
    let claimed = offer.labels.get(ARCHITECTURE);
    let known = ARCHITECTURES.into_iter().find(|known| claimed.is_some_and(|claimed| claimed == known));
    known.unwrap_or(ARCHITECTURES[0])
}

/// The keys that an annotation lists.
pub(super) fn listed(meta: &ObjectMeta, list: Annotation) -> Vec<&str> {
    list.of(meta).unwrap_or_default().split(',').filter(|key| !key.is_empty()).collect()
}

fn list(meta: &mut ObjectMeta, list: Annotation, labels: &Labels) {
    let keys: Vec<_> = labels.keys().map(String::as_str).collect();
    if keys.is_empty() {
        list.take_off(meta);
    } else {
        list.put_on(meta, keys.join(","));
    }
}

fn general(node: &VirtualNode<'_>) -> Labels {
    labels([
        (OS, OPERATING_SYSTEM),
        (ARCHITECTURE, architecture(node.offer)),
        (REGION, node.name),
        (NO_LOAD_BALANCER, "true"),
    ])
}

fn fixed(node: &VirtualNode<'_>) -> Labels {
    labels([
        (TYPE_VIRTUAL_NODE.key(), TYPE_VIRTUAL_NODE.value()),
        (REMOTE_ID.key(), node.cluster_id),
        (HOSTNAME, node.name),
    ])
}

fn claims(offer: &ResourceOfferSpec) -> Labels {
    let usable =
        |(key, value): &(&String, &String)| is_label_key(key) && is_label_value(value) && !is_reserved(key);
    offer.labels.iter().filter(usable).map(|(key, value)| (key.clone(), value.clone())).collect()
}

fn is_reserved(key: &str) -> bool {
    let Some((prefix, _)) = key.split_once('/') else { return false };
    let under = |domain: &str| prefix.strip_suffix(domain).is_some_and(|rest| rest.ends_with('.'));
    let system = ["kubernetes.io", "k8s.io"].into_iter().any(|domain| prefix == domain || under(domain));
    system || under("liqo.io") || RESERVED.contains(&key)
}

fn labels<const N: usize>(entries: [(&str, &str); N]) -> Labels {
    entries.map(|(key, value)| (key.to_owned(), value.to_owned())).into()
}
