//! What is wrong with a cluster, each as one sentence that says what to do.

use ferro_api::discovery::{AuthState, ForeignCluster, NetworkState, PeeringState, PeeringStatus};
use ferro_api::net::TunnelEndpoint;
use ferro_core::peering::{AUTHENTICATED, INCOMING, OUTGOING, REJECTED_BY_PEER};
use ferro_core::policy::WAITS_FOR_DECISION;
use kube::ResourceExt as _;

use super::{Facts, Role};
use crate::{chart, network, offloading, peers, tenants};

/// How many complaints of one sort there are.
const SHOWN: usize = 10;

/// All that is wrong, the most important first.
pub(super) fn of(facts: &Facts) -> Vec<String> {
    let mut problems: Vec<_> =
        facts.roles.iter().filter_map(|role| of_role(role, &facts.namespace)).collect();
    if facts.identity.is_none() {
        problems.push("this cluster has no identity yet; the controller makes one as soon as it runs".into());
    } else if facts.config.status.as_ref().and_then(|status| status.auth_url.as_ref()).is_none() {
        problems.push(
            "others cannot reach the auth service: no URL is known; set authConfig.url in the ClusterConfig, or give \
             the Service ferro-auth an address"
                .into(),
        );
    }
    let conditions = facts.config.status.iter().flat_map(|status| &status.conditions);
    problems.extend(
        conditions
            .filter(|condition| condition.status == "False")
            .map(|condition| format!("the ClusterConfig is not in effect: {}", condition.message)),
    );
    if let Some(version) = facts.version.as_ref().filter(|version| *version != chart::VERSION) {
        problems.push(format!(
            "the cluster runs version {version}, and this program is {}; use the same version of both: 'ferro install' \
             brings the cluster to that of this program",
            chart::VERSION
        ));
    }
    let of_peers: Vec<_> = facts
        .peers
        .iter()
        .filter_map(|peer| of_peer(peer).or_else(|| of_tunnel(peer, &facts.tunnels)))
        .collect();
    problems.extend(cut(of_peers, "peers need attention; see 'ferro peers'"));
    let names = peers::names(&facts.peers);
    let of_namespaces =
        facts.offloadings.iter().flat_map(|one| offloading::complaints(one, &names)).collect();
    problems.extend(cut(of_namespaces, "things are wrong with namespaces; see 'ferro namespaces'"));
    let of_tenants = facts.tenants.iter().filter_map(tenants::complaint).collect();
    problems.extend(cut(of_tenants, "Tenants need attention; see 'ferro tenants'"));
    problems
}

/// The first of them, and how many more there are.
fn cut(mut all: Vec<String>, rest: &str) -> Vec<String> {
    let more = all.len().saturating_sub(SHOWN);
    all.truncate(SHOWN);
    if more > 0 {
        all.push(format!("{more} more {rest}"));
    }
    all
}

fn of_role(role: &Role, namespace: &str) -> Option<String> {
    let name = role.name;
    match role.pods {
        None => Some(format!("{name} is not installed; run 'ferro install --namespace {namespace}'")),
        Some(pods) if pods.ready < pods.desired => Some(format!(
            "{name}: {} of {} pods are ready; see 'kubectl --namespace {namespace} describe pods --selector \
             app.kubernetes.io/name={name}' and their logs",
            pods.ready, pods.desired
        )),
        Some(_) => None,
    }
}

/// The first thing that a person should look at. The messages say what to do.
fn of_peer(peer: &ForeignCluster) -> Option<String> {
    let status = peer.status.as_ref()?;
    let refused = status.authentication.as_ref().filter(|shown| shown.state == AuthState::Refused);
    let rejected = peers::condition(peer, AUTHENTICATED).filter(|shown| shown.reason == REJECTED_BY_PEER);
    let entry = refused
        .map(|shown| shown.message.clone().unwrap_or_else(|| "it does not let this cluster in".into()))
        .or_else(|| rejected.map(|shown| shown.message.clone()));
    let direction = |type_: &str, direction: &Option<PeeringStatus>| {
        let direction = direction.as_ref()?;
        let waits =
            peers::condition(peer, type_).is_some_and(|condition| condition.reason == WAITS_FOR_DECISION);
        let bad = matches!(direction.state, PeeringState::Refused | PeeringState::Unreachable);
        (bad || waits).then(|| direction.message.clone().unwrap_or_else(|| "it is refused or silent".into()))
    };
    let network = status.network.as_ref().filter(|network| network.state == NetworkState::Error);
    let network =
        network.map(|network| network.message.clone().unwrap_or_else(|| "the tunnel failed".into()));
    let problem = entry
        .or_else(|| direction(OUTGOING, &status.outgoing))
        .or_else(|| direction(INCOMING, &status.incoming))
        .or(network)?;
    Some(format!("{}: {problem}", peer.name_any()))
}

/// A peer with which all is well but the tunnel.
fn of_tunnel(peer: &ForeignCluster, tunnels: &[TunnelEndpoint]) -> Option<String> {
    let id = peers::cluster_id(peer)?;
    let tunnel = tunnels.iter().find(|tunnel| tunnel.spec.cluster_id == id)?;
    Some(format!("{}; see 'ferro network'", network::complaint(&peer.name_any(), tunnel)?))
}

#[cfg(test)]
pub(super) mod tests {
    use super::of;
    use crate::chart;
    use crate::commands::status::{Facts, Pods, Role};
    use crate::network::tests::{connected, joined, tunnel};
    use crate::offloading::tests::{MILAN, half, offloading};
    use crate::peers::tests::peer;
    use crate::this_cluster::Identity;
    use ferro_api::config::{ClusterConfig, ClusterConfigStatus};
    use ferro_core::auth::Pin;
    use serde_json::json;

    /// A cluster in which all runs, and which knows nobody.
    pub(crate) fn healthy() -> Facts {
        let role = |name, count| Role { name, pods: Some(Pods { ready: count, desired: count }) };
        let auth_url = Some("https://192.0.2.1:30443".to_owned());
        Facts {
            namespace: "liqo".into(),
            version: Some(chart::VERSION.into()),
            identity: Some(Identity {
                id: "0aaaaaaa-4c1b-802c-a5f1-5ef6f39c0490".parse().unwrap(),
                name: "rome".into(),
                pin: Pin([1; 32]),
                api_server: None,
            }),
            config: ClusterConfig {
                status: Some(ClusterConfigStatus { auth_url, ..ClusterConfigStatus::default() }),
                ..ClusterConfig::default()
            },
            roles: vec![
                role(chart::CONTROLLER, 1),
                role(chart::AUTH, 1),
                role(chart::NODE, 2),
                role(chart::GATEWAY, 1),
            ],
            peers: Vec::new(),
            tunnels: Vec::new(),
            offloadings: Vec::new(),
            tenants: Vec::new(),
        }
    }

    #[test]
    fn a_healthy_cluster_has_no_problem() {
        assert_eq!(of(&healthy()), Vec::<String>::new());
    }

    #[test]
    fn what_is_missing_is_named_with_what_to_do() {
        let mut facts = Facts { identity: None, version: Some("0.0.9".into()), ..healthy() };
        facts.roles[0].pods = Some(Pods { ready: 0, desired: 1 });
        facts.roles[1].pods = None;
        let said = of(&facts);
        assert!(said[0].starts_with("ferro-controller: 0 of 1 pods are ready; see 'kubectl"), "{said:?}");
        assert!(said[1].contains("'ferro install --namespace liqo'"), "{said:?}");
        assert!(said[2].contains("no identity") && said[3].contains("0.0.9"), "{said:?}");
        let unreachable = Facts { config: ClusterConfig::default(), ..healthy() };
        assert!(of(&unreachable)[0].contains("authConfig.url"));
        let mut wrong = healthy();
        let condition = json!({"type": "Configured", "status": "False", "reason": "Wrong",
            "message": "url has no host", "lastTransitionTime": "2030-01-01T00:00:00Z"});
        let status = wrong.config.status.get_or_insert_default();
        status.conditions.push(serde_json::from_value(condition).unwrap());
        assert_eq!(of(&wrong), ["the ClusterConfig is not in effect: url has no host"]);
    }

    #[test]
    fn peers_that_need_somebody_are_named_with_their_own_words() {
        let mut facts = healthy();
        let refused = json!({
            "authentication": {"state": "REFUSED", "message": "the token has expired; run ferro token there"},
            "outgoing": {"state": "Refused", "message": "later"},
        });
        let waiting = json!({
            "incoming": {"state": "Pending", "message": "the request of b waits for you: ferro accept b"},
            "conditions": [{"type": "IncomingPeering", "status": "False", "reason": "WaitsForDecision",
                "message": "m", "lastTransitionTime": "2030-01-01T00:00:00Z"}],
        });
        let rejected = json!({
            "authentication": {"state": "ACCEPTED"},
            "conditions": [{"type": "Authenticated", "status": "False", "reason": "RejectedByPeer",
                "message": "d no longer lets this cluster in", "lastTransitionTime": "2030-01-01T00:00:00Z"}],
        });
        let fine = json!({"outgoing": {"state": "Established"}, "incoming": {"state": "Pending", "message": "soon"}});
        for (name, status) in [("a", refused), ("b", waiting), ("c", fine), ("d", rejected)] {
            facts.peers.push(peer(name, &json!({"authUrl": name}), &status));
        }
        assert_eq!(
            of(&facts),
            [
                "a: the token has expired; run ferro token there",
                "b: the request of b waits for you: ferro accept b",
                "d: d no longer lets this cluster in"
            ]
        );
    }

    #[test]
    fn a_tunnel_that_carries_nothing_is_a_problem_of_its_peer() {
        let joined = joined(&json!({"status": "error", "statusMessage": "no route to 192.0.2.2"}));
        let mut facts = Facts { peers: joined.peers, tunnels: joined.endpoints, ..healthy() };
        assert_eq!(of(&facts), ["turin: the tunnel is in error: no route to 192.0.2.2; see 'ferro network'"]);
        facts.tunnels = vec![tunnel(&connected())];
        assert_eq!(of(&facts), Vec::<String>::new());
    }

    #[test]
    fn a_namespace_that_does_not_arrive_is_a_problem() {
        let mut facts = healthy();
        facts.peers.push(peer("milan", &json!({"clusterIdentity": {"clusterID": MILAN}}), &json!({})));
        facts.offloadings.push(offloading("shop", &json!({}), &half()));
        assert_eq!(of(&facts), ["shop: milan has a namespace of that name"]);
    }

    #[test]
    fn a_long_list_is_cut() {
        let mut facts = healthy();
        for number in 0..12 {
            let status = json!({"outgoing": {"state": "Refused", "message": "no"}});
            facts.peers.push(peer(&format!("p{number}"), &json!({"authUrl": "x"}), &status));
        }
        let said = of(&facts);
        assert_eq!((said.len(), said[10].as_str()), (11, "2 more peers need attention; see 'ferro peers'"));
    }
}
