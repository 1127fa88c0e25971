//! The chain from a pod at home to its containers elsewhere: what this cluster shows of it, and what the other one answers.
//!
//! The other cluster is asked by way of the pod's node, so that whoever asks needs a right on that node and no key of the
//! peering. What may not be read is unknown.

mod text;

use std::time::Duration;

use anyhow::bail;
use ferro_api::discovery::ForeignCluster;
use ferro_api::names::labels;
use ferro_api::net::TunnelEndpoint;
use ferro_api::virtualkubelet::{CurrentMapping, MappingPhase, NamespaceMap};
use ferro_core::pods::chain::{Found, Objects, Snapshot, Step, There, broken, chain};
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, ListParams};
use kube::{Client, ResourceExt as _};
use serde::de::DeserializeOwned;
use serde_json::json;

use super::facts;
use crate::kube_errors::{Explain as _, found, sentence};
use crate::output::{self, View};
use crate::{listing, network, peers};

/// How long a node may take to ask its cluster.
const ANSWER: Duration = Duration::from_secs(30);

/// Shows the chain, and fails if a link is broken.
pub(super) async fn run(
    client: &Client,
    namespace: &str,
    pod: &str,
    view: Option<View>,
) -> anyhow::Result<()> {
    let snapshot = snapshot(client, facts::pod(client, namespace, pod).await?).await;
    let links = chain(&snapshot);
    let value = json!({"pod": format!("{namespace}/{pod}"), "links": links, "broken": broken(&links)});
    output::value(&value, |_| text::links(&links), view)?;
    verdict(&links)
}

/// Fails if a link is broken, so that a script can tell.
fn verdict(links: &[Step]) -> anyhow::Result<()> {
    if let Some(step) = broken(links) {
        let fault = step.fault.as_deref().unwrap_or(&step.shows);
        bail!("the chain is broken at the {} {}: {}", step.link, step.name, output::plain(fault));
    }
    Ok(())
}

/// Reads all that the chain depends on.
async fn snapshot(client: &Client, pod: Pod) -> Snapshot {
    let bound = pod.spec.as_ref().and_then(|spec| spec.node_name.clone());
    let node = match &bound {
        Some(name) => node(client, name).await,
        None => Found::None,
    };
    let id = node.seen().and_then(|node| labels::REMOTE_ID.of(&node.metadata)).map(str::to_owned);
    let (peer, mapping, tunnel) = match (&id, &node) {
        (Some(id), _) => {
            let namespace = pod.namespace().unwrap_or_default();
            tokio::join!(peer(client, id), mapping(client, id, &namespace), tunnel(client, id))
        }
        (None, Found::Unknown(_)) => {
            let why = || "which cluster its node stands for cannot be seen".to_owned();
            (Found::Unknown(why()), Found::Unknown(why()), Found::Unknown(why()))
        }
        (None, Found::Some(_) | Found::None) => (Found::None, Found::None, Found::None),
    };
    let there = match bound.filter(|_| id.is_some()) {
        Some(node) if may_hold(&mapping) => there(client, &node, &pod).await,
        _ => There::Unknown("there is no namespace over there to look into".to_owned()),
    };
    Snapshot { pod, node, peer, mapping, there, tunnel, now: Timestamp::now() }
}

/// What was read, or why it could not be.
fn seen<T>(answer: anyhow::Result<Option<T>>) -> Found<T> {
    match answer {
        Ok(Some(found)) => Found::Some(found),
        Ok(None) => Found::None,
        Err(error) => Found::Unknown(error.to_string()),
    }
}

async fn node(client: &Client, name: &str) -> Found<Node> {
    let node = Api::<Node>::all(client.clone()).get(name).await;
    seen(found(node).explain(|| format!("read the node {name}")))
}

/// Of several that claim to be one cluster, the oldest stands for it.
async fn peer(client: &Client, id: &str) -> Found<ForeignCluster> {
    let all = listing::all::<ForeignCluster>(client, "peers").await;
    let is_it = |peer: &ForeignCluster| peers::cluster_id(peer) == Some(id);
    let oldest = |all: Vec<ForeignCluster>| {
        all.into_iter().filter(is_it).min_by_key(|peer| peer.creation_timestamp().map(|created| created.0))
    };
    seen(all.map(oldest))
}

/// What the other cluster says about the namespace.
async fn mapping(client: &Client, id: &str, namespace: &str) -> Found<CurrentMapping> {
    let for_peer = ListParams::default().labels(&format!("{}={id}", labels::REMOTE_ID.key()));
    let maps = listing::labelled::<NamespaceMap>(client, "namespaces on other clusters", &for_peer).await;
    let of_ours = |maps: Vec<NamespaceMap>| {
        let ours = maps.into_iter().find(|map| !labels::REPLICATED.is_on(&map.metadata));
        ours.and_then(|map| map.status?.current_mapping.remove(namespace))
    };
    seen(maps.map(of_ours))
}

async fn tunnel(client: &Client, id: &str) -> Found<TunnelEndpoint> {
    let tunnels = network::tunnels(client).await;
    seen(tunnels.map(|all| all.into_iter().find(|tunnel| tunnel.spec.cluster_id == id)))
}

/// Whether there may be anything of the pod in the namespace over there.
fn may_hold(mapping: &Found<CurrentMapping>) -> bool {
    match mapping {
        Found::Some(mapping) => mapping.phase != MappingPhase::CreationLoopBackOff,
        Found::None => false,
        Found::Unknown(_) => true,
    }
}

/// Asks the other cluster, by way of the node.
async fn there(client: &Client, node: &str, pod: &Pod) -> There {
    let both = async {
        let shadow = ask(client, node, "shadowPod", pod).await?;
        Ok(Objects { shadow, pod: ask(client, node, "remotePod", pod).await? })
    };
    match tokio::time::timeout(ANSWER, both).await {
        Ok(Ok(objects)) => There::Answers(Box::new(objects)),
        Ok(Err(error)) => unanswered(error),
        Err(_) => There::Unknown(format!("the node does not answer within {} s", ANSWER.as_secs())),
    }
}

async fn ask<T: DeserializeOwned>(
    client: &Client,
    node: &str,
    what: &str,
    pod: &Pod,
) -> kube::Result<Option<T>> {
    let (namespace, name) = (pod.namespace().unwrap_or_default(), pod.name_any());
    let path = format!("/api/v1/nodes/{node}/proxy/{what}/{namespace}/{name}");
    let request = http::Request::get(path).body(Vec::new()).map_err(kube::Error::HttpError)?;
    serde_json::from_str(&client.request_text(request).await?).map_err(kube::Error::SerdeError)
}

/// A node answers with 502 when its cluster does not answer as it should.
fn unanswered(error: kube::Error) -> There {
    match error {
        kube::Error::Api(status) if status.code == 502 => There::Fails(status.message.clone()),
        kube::Error::SerdeError(error) => There::Fails(format!("it answers with no such object: {error}")),
        error => There::Unknown(sentence(&error, "ask the node")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kube::core::Status;

    fn refused(code: u16, message: &str) -> There {
        unanswered(kube::Error::Api(Status::failure(message, "").with_code(code).boxed()))
    }

    #[test]
    fn a_cluster_that_fails_is_told_from_one_that_may_not_be_asked() {
        let There::Fails(why) = refused(502, "the cluster behind node x cannot be asked") else { panic!() };
        assert_eq!(why, "the cluster behind node x cannot be asked");
        let There::Unknown(why) = refused(403, "jane cannot get nodes/proxy") else { panic!() };
        assert!(why.starts_with("cannot ask the node: jane cannot get nodes/proxy; ask an"), "{why}");
        assert!(matches!(refused(503, "error trying to reach service"), There::Unknown(_)));
        let nonsense = serde_json::from_str::<Pod>("?").unwrap_err();
        assert!(matches!(unanswered(kube::Error::SerdeError(nonsense)), There::Fails(_)));
    }

    #[test]
    fn only_where_there_can_be_something_it_is_looked_for() {
        let mapping = |phase| CurrentMapping { phase, remote_namespace: None, message: None };
        assert!(may_hold(&Found::Some(mapping(MappingPhase::Terminating))));
        assert!(!may_hold(&Found::Some(mapping(MappingPhase::CreationLoopBackOff))));
        assert!(!may_hold(&Found::None) && may_hold(&Found::Unknown(String::new())));
    }
}
