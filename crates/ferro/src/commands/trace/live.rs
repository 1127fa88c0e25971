//! What the parts on a way say of themselves at this moment.
//!
//! A command has no place inside the cluster from which it could send packets. It asks those that have: the tunnel is
//! probed by the gateway all the time, and roles tell whether they are ready, through the API server. A probe that is sent
//! along the whole way would be one more kind of check here.

use ferro_api::net::TunnelEndpoint;
use ferro_core::network::trace::{Link, Snapshot, Way, complaint};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, ListParams};
use kube::{Client, ResourceExt as _};
use serde::Serialize;

use crate::commands::network::{share, time};
use crate::kube_errors::Explain as _;
use crate::network::Network;
use crate::{chart, output, table};

/// The label by which the pods of a role are found.
const NAME: &str = "app.kubernetes.io/name";
/// The port at which a role tells of itself.
const HEALTH: &str = "health";

/// How a part fares.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Outcome {
    Good,
    Bad,
    /// It could not be asked.
    Unknown,
}

/// One part that was asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Check {
    pub(super) link: Link,
    pub(super) subject: String,
    pub(super) outcome: Outcome,
    pub(super) message: String,
}

impl Check {
    pub(super) fn is_bad(&self) -> bool {
        self.outcome == Outcome::Bad
    }
}

/// Asks all parts on the ways that lead out of this cluster.
pub(super) async fn checks(
    client: &Client,
    network: &Network,
    snapshot: &Snapshot,
    ways: &[Way],
    now: Timestamp,
) -> anyhow::Result<Vec<Check>> {
    let peers: Vec<&str> = ways.iter().filter_map(|way| way.peer.as_deref()).collect();
    if peers.is_empty() {
        return Ok(Vec::new());
    }
    let pods = Api::<Pod>::namespaced(client.clone(), &network.namespace);
    let pods = pods
        .list(&ListParams::default().labels(&format!("{NAME} in ({}, {})", chart::NODE, chart::GATEWAY)))
        .await;
    let pods = pods.explain(|| format!("list the pods of {}", network.namespace))?.items;
    let gateway = snapshot.gateway.as_ref().map(|gateway| gateway.node.as_str());
    let mut nodes: Vec<&str> = snapshot.source.node.as_deref().into_iter().chain(gateway).collect();
    nodes.dedup();
    let mut checks = Vec::new();
    for node in nodes {
        checks.push(role(client, &pods, chart::NODE, node, Link::Node).await);
    }
    if let Some(node) = gateway {
        checks.push(role(client, &pods, chart::GATEWAY, node, Link::Gateway).await);
    }
    let on_way = |endpoint: &&TunnelEndpoint| peers.contains(&endpoint.spec.cluster_id.as_str());
    for endpoint in snapshot.endpoints.iter().filter(on_way) {
        let id = &endpoint.spec.cluster_id;
        checks.push(tunnel(snapshot.names.get(id).unwrap_or(id), endpoint, now));
    }
    Ok(checks)
}

/// Asks a role on a node whether it is ready.
async fn role(client: &Client, pods: &[Pod], name: &str, node: &str, link: Link) -> Check {
    let subject = format!("{name} on {node}");
    let is_meant = |pod: &&Pod| {
        let on = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref());
        on == Some(node) && pod.labels().get(NAME).is_some_and(|label| label == name)
    };
    let Some(pod) = pods.iter().find(is_meant) else {
        let message = format!("{name} does not run on {node}; see 'ferro status'");
        return Check { link, subject, outcome: Outcome::Bad, message };
    };
    let Some(port) = health_port(pod) else {
        let message = format!("the pod {} has no port named {HEALTH}", pod.name_any());
        return Check { link, subject, outcome: Outcome::Unknown, message };
    };
    let (outcome, message) = answer(ask(client, pod, port).await, &pod.name_any());
    Check { link, subject, outcome, message }
}

fn health_port(pod: &Pod) -> Option<i32> {
    let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
    let mut ports = containers.flat_map(|container| container.ports.iter().flatten());
    ports.find(|port| port.name.as_deref() == Some(HEALTH)).map(|port| port.container_port)
}

async fn ask(client: &Client, pod: &Pod, port: i32) -> kube::Result<String> {
    let (namespace, name) = (pod.namespace().unwrap_or_default(), pod.name_any());
    let path = format!("/api/v1/namespaces/{namespace}/pods/{name}:{port}/proxy/readyz");
    let request = http::Request::get(path).body(Vec::new()).map_err(kube::Error::HttpError)?;
    client.request_text(request).await
}

fn answer(answer: kube::Result<String>, pod: &str) -> (Outcome, String) {
    match answer {
        Ok(_) => (Outcome::Good, "is ready".into()),
        Err(kube::Error::Api(status)) if matches!(status.code, 401 | 403) => (
            Outcome::Unknown,
            format!(
                "this user may not ask it: that needs the right to get pods/proxy; see the logs of {pod} instead"
            ),
        ),
        Err(kube::Error::Api(status)) => {
            let said = status.message.trim();
            let said = if said.is_empty() { "without a reason" } else { said };
            (Outcome::Bad, format!("the pod {pod} is not ready: {said}; see its logs"))
        }
        Err(error) => {
            let why = crate::kube_errors::root(&error);
            (Outcome::Unknown, format!("the pod {pod} could not be asked: {why}"))
        }
    }
}

/// What the gateway has measured.
fn tunnel(peer: &str, endpoint: &TunnelEndpoint, now: Timestamp) -> Check {
    let check = |outcome, message| Check {
        link: Link::Tunnel,
        subject: format!("tunnel to {peer}"),
        outcome,
        message,
    };
    if let Some((status, message)) = complaint(endpoint) {
        return check(Outcome::Bad, format!("the tunnel to {peer} is {status}: {message}"));
    }
    let connection = endpoint.status.as_ref().and_then(|status| status.connection.as_ref());
    let Some(probe) = connection.and_then(|connection| connection.probe.as_ref()) else {
        return check(Outcome::Unknown, "is connected, and has not been probed".into());
    };
    let round_trip = probe.round_trip_microseconds.map_or_else(|| table::NOTHING.into(), time);
    let lost = probe.lost_per_thousand.map_or_else(|| table::NOTHING.into(), share);
    let age = table::since(probe.measured_at.as_ref().map(|at| at.0), now);
    check(Outcome::Good, format!("is connected; round trip {round_trip}, lost {lost}, measured {age} ago"))
}

/// The checks as a table.
pub(super) fn text(checks: &[Check]) -> String {
    if checks.is_empty() {
        return "\nNothing on the way can be asked.\n".into();
    }
    let row = |check: &Check| {
        let outcome = match check.outcome {
            Outcome::Good => "good",
            Outcome::Bad => "bad",
            Outcome::Unknown => "unknown",
        };
        [check.subject.as_str(), outcome, &check.message].map(output::plain).into()
    };
    let head = ["ASKED", "RESULT", "WHAT IT SAYS"].map(str::to_owned).into();
    format!("\n{}", table::aligned(&std::iter::once(head).chain(checks.iter().map(row)).collect::<Vec<_>>()))
}

#[cfg(test)]
mod tests {
    use super::{Outcome, answer, health_port, text, tunnel};
    use crate::network::tests;
    use kube::core::Status;
    use serde_json::{from_value, json};

    fn refused(code: u16, message: &str) -> kube::Result<String> {
        Err(kube::Error::Api(Status::failure(message, "Reason").with_code(code).boxed()))
    }

    #[test]
    fn a_part_that_may_not_be_asked_is_not_called_broken() {
        let (outcome, said) = answer(refused(403, "pods/proxy is forbidden"), "ferro-node-x");
        assert_eq!(outcome, Outcome::Unknown);
        assert!(said.contains("the right to get pods/proxy"), "{said}");
        let (outcome, said) = answer(refused(503, "waits for: routes"), "ferro-node-x");
        assert_eq!(outcome, Outcome::Bad);
        assert_eq!(said, "the pod ferro-node-x is not ready: waits for: routes; see its logs");
        assert_eq!(answer(Ok("ok".into()), "ferro-node-x").0, Outcome::Good);
    }

    #[test]
    fn a_tunnel_is_as_its_last_probe() {
        let now = "2030-01-01T00:00:05Z".parse().unwrap();
        let good = tunnel("turin", &tests::tunnel(&tests::connected()), now);
        assert_eq!(good.message, "is connected; round trip 812us, lost 0.4%, measured 5s ago");
        let bad =
            tunnel("turin", &tests::tunnel(&json!({"status": "error", "statusMessage": "no route"})), now);
        assert!(bad.is_bad());
        assert_eq!(bad.message, "the tunnel to turin is in error: no route");
        assert_eq!(
            text(&[good]),
            "\nASKED             RESULT   WHAT IT SAYS\ntunnel to turin   good     is connected; round trip 812us, lost 0.4%, \
             measured 5s ago\n"
        );
        let silent = tunnel("turin", &tests::tunnel(&json!({"status": "connected"})), now);
        assert_eq!(silent.outcome, Outcome::Unknown);
    }

    #[test]
    fn the_port_is_the_one_that_the_pod_names() {
        let pod = json!({"metadata": {}, "spec": {"containers": [{"name": "node", "ports": [
            {"containerPort": 1}, {"containerPort": 9441, "name": "health"},
        ]}]}});
        assert_eq!(health_port(&from_value(pod).unwrap()), Some(9441));
        assert_eq!(health_port(&from_value(json!({"metadata": {}})).unwrap()), None);
    }
}
