//! What is found out at this moment: how far packets from the pod get, and what the parts on the way say of themselves.
//!
//! Packets are sent in the pod itself. Between the gateways they are not needed: these probe the tunnel all the time, and
//! tell what they measure. What may not be tried or asked is unknown, which is not the same as broken.

use ferro_api::net::TunnelEndpoint;
use ferro_core::network::trace::probe::{Probed, State, judge};
use ferro_core::network::trace::{Link, Snapshot, Way, complaint};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, ListParams};
use kube::{Client, ResourceExt as _};
use serde::Serialize;

use super::lost::Lost;
use super::send::{send, targets};
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
    let mut checks = packets(client, &pods, snapshot, ways).await;
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

/// Sends packets along all ways to peers that are whole as computed, and tells how far they got.
async fn packets(client: &Client, pods: &[Pod], snapshot: &Snapshot, ways: &[Way]) -> Vec<Check> {
    let whole: Vec<_> = ways.iter().filter(|way| way.broken.is_none() && way.peer.is_some()).collect();
    let to = targets(whole.iter().filter_map(|way| way.to));
    if to.is_empty() {
        return Vec::new();
    }
    let node = snapshot.source.node.as_deref().unwrap_or_default();
    let Some(image) = of_role(pods, chart::NODE, node).and_then(image) else { return Vec::new() };
    let gateway = snapshot.gateway.as_ref().and_then(|on| of_role(pods, chart::GATEWAY, &on.node));
    let before = lost(client, gateway).await;
    let pod = snapshot.source.pod.split_once('/').unwrap_or_default();
    let answers = match send(client, pod, image, &to).await {
        Ok(answers) => answers,
        Err(error) => return vec![unsent(&snapshot.source.pod, &error)],
    };
    let after = lost(client, gateway).await;
    let heard = |way: &Way| answers.iter().find(|(to, _)| way.to == Some((**to).into()));
    let judged = whole.iter().filter_map(|way| {
        let (_, heard) = heard(way)?;
        Some(judge(way, heard, way.peer.as_deref().and_then(|peer| before.is_up(&after, peer))))
    });
    judged.flatten().map(seen).collect()
}

fn unsent(pod: &str, error: &anyhow::Error) -> Check {
    let message = format!("no packets could be sent from it: {error:#}");
    Check { link: Link::Pod, subject: format!("pod {pod}"), outcome: Outcome::Unknown, message }
}

/// What packets tell of a place.
fn seen(probed: Probed) -> Check {
    let (outcome, message) = match probed.state {
        State::Answered(ip) => (Outcome::Good, format!("answers to packets of the pod, as {ip}")),
        State::Passed => (Outcome::Good, "passes packets on".into()),
        State::Broken(gap) => (Outcome::Bad, gap.to_string()),
        State::Unknown(gap) => (Outcome::Unknown, gap.to_string()),
    };
    Check { link: probed.link, subject: probed.place.to_string(), outcome, message }
}

/// What the gateway says about its probes; nothing where it cannot be asked.
async fn lost(client: &Client, gateway: Option<&Pod>) -> Lost {
    let Some((pod, port)) = gateway.and_then(|pod| Some((pod, health_port(pod)?))) else {
        return Lost::default();
    };
    Lost::read(&ask(client, pod, port, "metrics").await.unwrap_or_default())
}

/// The pod of a role on a node.
fn of_role<'a>(pods: &'a [Pod], name: &str, node: &str) -> Option<&'a Pod> {
    pods.iter().find(|pod| {
        let on = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref());
        on == Some(node) && pod.labels().get(NAME).is_some_and(|label| label == name)
    })
}

fn image(pod: &Pod) -> Option<&str> {
    pod.spec.as_ref()?.containers.first()?.image.as_deref()
}

/// Asks a role on a node whether it is ready.
async fn role(client: &Client, pods: &[Pod], name: &str, node: &str, link: Link) -> Check {
    let subject = format!("{name} on {node}");
    let Some(pod) = of_role(pods, name, node) else {
        let message = format!("{name} does not run on {node}; see 'ferro status'");
        return Check { link, subject, outcome: Outcome::Bad, message };
    };
    let Some(port) = health_port(pod) else {
        let message = format!("the pod {} has no port named {HEALTH}", pod.name_any());
        return Check { link, subject, outcome: Outcome::Unknown, message };
    };
    let (outcome, message) = answer(ask(client, pod, port, "readyz").await, &pod.name_any());
    Check { link, subject, outcome, message }
}

fn health_port(pod: &Pod) -> Option<i32> {
    let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
    let mut ports = containers.flat_map(|container| container.ports.iter().flatten());
    ports.find(|port| port.name.as_deref() == Some(HEALTH)).map(|port| port.container_port)
}

async fn ask(client: &Client, pod: &Pod, port: i32, what: &str) -> kube::Result<String> {
    let (namespace, name) = (pod.namespace().unwrap_or_default(), pod.name_any());
    let path = format!("/api/v1/namespaces/{namespace}/pods/{name}:{port}/proxy/{what}");
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
    let head = ["TRIED", "RESULT", "WHAT IS FOUND"].map(str::to_owned).into();
    format!("\n{}", table::aligned(&std::iter::once(head).chain(checks.iter().map(row)).collect::<Vec<_>>()))
}

#[cfg(test)]
mod tests {
    use super::{Outcome, answer, health_port, image, of_role, seen, text, tunnel, unsent};
    use crate::network::tests;
    use ferro_core::network::trace::probe::{Gap, Probed, State};
    use ferro_core::network::trace::{Link, Place};
    use k8s_openapi::api::core::v1::Pod;
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
            "\nTRIED             RESULT   WHAT IS FOUND\ntunnel to turin   good     is connected; round trip 812us, lost 0.4%, \
             measured 5s ago\n"
        );
        let silent = tunnel("turin", &tests::tunnel(&json!({"status": "connected"})), now);
        assert_eq!(silent.outcome, Outcome::Unknown);
    }

    #[test]
    fn the_first_broken_link_is_named_by_the_packets() {
        let probed = |place, link, state| seen(Probed { place, link, state });
        let node = Place::Node("rome-2".into());
        let good = probed(node.clone(), Link::Pod, State::Answered("10.244.0.1".parse().unwrap()));
        let overlay = Place::Overlay("rome-1".into());
        let gap = Gap::Overlay { node: "rome-1".into() };
        let bad = probed(overlay, Link::Overlay, State::Broken(gap));
        let table = text(&[good.clone(), probed(node, Link::Pod, State::Passed)]);
        assert!(
            table.contains("node rome-2   good     answers to packets of the pod, as 10.244.0.1\n"),
            "{table}"
        );
        assert!(table.contains("node rome-2   good     passes packets on\n"), "{table}");
        let error = super::super::verdict(&[], &[good, bad]).unwrap_err().to_string();
        assert!(error.starts_with("the way is broken at the overlay: packets get to the node"), "{error}");
        let unknown = unsent("default/client", &anyhow::anyhow!("cannot start a container"));
        assert!(super::super::verdict(&[], &[unknown]).is_ok());
    }

    #[test]
    fn the_port_is_the_one_that_the_pod_names() {
        let pod = json!({"metadata": {}, "spec": {"containers": [{"name": "node", "ports": [
            {"containerPort": 1}, {"containerPort": 9441, "name": "health"},
        ]}]}});
        assert_eq!(health_port(&from_value(pod).unwrap()), Some(9441));
        assert_eq!(health_port(&from_value(json!({"metadata": {}})).unwrap()), None);
    }

    #[test]
    fn the_image_is_the_one_that_the_node_has() {
        let pod = |node: &str| -> Pod {
            from_value(json!({
                "metadata": {"labels": {"app.kubernetes.io/name": "ferro-node"}},
                "spec": {"nodeName": node, "containers": [{"name": "node", "image": format!("ferro:{node}")}]},
            }))
            .unwrap()
        };
        let pods = [pod("rome-1"), pod("rome-2")];
        assert_eq!(of_role(&pods, "ferro-node", "rome-2").and_then(image), Some("ferro:rome-2"));
        assert!(of_role(&pods, "ferro-gateway", "rome-2").is_none());
    }
}
