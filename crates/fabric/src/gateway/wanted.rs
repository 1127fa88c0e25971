//! What the engine is to do: the tunnels that the resources tell of, with what is published to each peer.
//!
//! What is published changes often, and may be much; the resources change seldom. So a change of the one does not read
//! the other again, and costs what changed and not what there is.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use ferro_api::config::Reach;
use ferro_api::net::{NatMapping, TunnelEndpoint};
use ferro_api::proto::gateway::{self as proto, Tunnels};
use ferro_core::network::{Problem, Redirections, Tunnel, tunnels_of, tunnels_publishing, without_ourselves};

use crate::dataplane::PeerPlan;
use crate::ipam::in_force;
use crate::wireguard::PublicKey;

/// Sessions are kept through whatever stands between the gateways and forgets who talks to whom.
const KEEPALIVE: Duration = Duration::from_secs(25);

/// What is published to each peer, by its identifier.
pub(super) type Published = BTreeMap<String, Redirections>;

/// Who says what is published.
#[derive(Clone, Debug)]
pub(super) enum Source {
    /// The address manager, which knows it first.
    Heard(Arc<Published>),
    /// What it and others wrote down, until it can be asked.
    Written(Vec<Arc<NatMapping>>),
}

/// All that the engine is to do.
#[derive(Clone, Debug, Default)]
pub(super) struct Wanted {
    tunnels: BTreeMap<String, Tunnel>,
    /// Those that are to go: there are no tunnels for them.
    pub(super) going: Vec<Arc<TunnelEndpoint>>,
    /// What of the resources is not used.
    pub(super) problems: Vec<Problem>,
    /// As the address manager is told of the tunnels.
    pub(super) told: Arc<Tunnels>,
}

impl Wanted {
    /// Reads the resources.
    pub(super) fn read(
        endpoints: Vec<Arc<TunnelEndpoint>>,
        source: &Source,
        own: &PublicKey,
        reach: Reach,
    ) -> Self {
        let is_going = |endpoint: &Arc<TunnelEndpoint>| endpoint.metadata.deletion_timestamp.is_some();
        let (going, endpoints): (Vec<_>, Vec<_>) = endpoints.into_iter().partition(is_going);
        let endpoints: Vec<&TunnelEndpoint> = endpoints.iter().map(AsRef::as_ref).collect();
        let (mut tunnels, mut problems) = match source {
            Source::Heard(published) => tunnels_publishing(&endpoints, published, reach),
            Source::Written(mappings) => {
                let mappings: Vec<&NatMapping> = mappings.iter().map(AsRef::as_ref).collect();
                tunnels_of(&endpoints, &mappings, reach)
            }
        };
        problems.extend(without_ourselves(&own.0, &mut tunnels));
        let told = Arc::new(told(&tunnels, &problems));
        Self { tunnels, going, problems, told }
    }

    /// The same tunnels, when this is published.
    pub(super) fn publish(&mut self, published: &Published) {
        for (peer, tunnel) in &mut self.tunnels {
            let of_peer = published.get(peer).cloned().unwrap_or_default();
            tunnel.table = tunnel.table.clone().publishing(of_peer);
        }
    }

    /// The peers whose tunnels are probed.
    pub(super) fn probed(&self) -> BTreeSet<String> {
        let probed = self.tunnels.iter().filter(|(_, tunnel)| tunnel.probe.is_some());
        probed.map(|(peer, _)| peer.clone()).collect()
    }

    /// In the form that the engine takes.
    pub(super) fn plans(&self) -> BTreeMap<String, PeerPlan> {
        self.tunnels.iter().map(|(peer, tunnel)| (peer.clone(), plan(tunnel))).collect()
    }
}

fn plan(tunnel: &Tunnel) -> PeerPlan {
    PeerPlan {
        key: PublicKey(tunnel.public_key),
        endpoint: Some(tunnel.endpoint),
        keepalive: Some(KEEPALIVE),
        table: tunnel.table.clone(),
        probe: tunnel.probe,
    }
}

/// All tunnels, and why there are none to other peers.
fn told(tunnels: &BTreeMap<String, Tunnel>, problems: &[Problem]) -> Tunnels {
    let running = tunnels.iter().map(|(peer, tunnel)| in_force(peer, &tunnel.agreement));
    let missing = problems.iter().filter(|problem| !tunnels.contains_key(&problem.peer));
    let missing = missing.map(|problem| proto::Tunnel {
        cluster_id: problem.peer.clone(),
        trouble: problem.to_string(),
        ..proto::Tunnel::default()
    });
    Tunnels { all: running.chain(missing).collect() }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;
    use std::time::Instant;

    use ferro_core::network::Packet;
    use serde_json::json;

    use super::super::follow::tests::heard;
    use super::*;

    /// The tunnel to a peer of that number, which calls our pods 10.N.0.0/16.
    fn endpoint(peer: &str, number: u8) -> Arc<TunnelEndpoint> {
        let key = base64::Engine::encode(&base64::engine::general_purpose::STANDARD, [number; 32]);
        let endpoint = json!({
            "apiVersion": "net.liqo.io/v1alpha1", "kind": "TunnelEndpoint",
            "metadata": {"name": peer, "namespace": "tenant"},
            "spec": {
                "clusterID": peer, "podCIDR": format!("10.{}.0.0/16", 100 + number), "endpointIP": "192.0.2.2",
                "backendType": "wireguard", "backend_config": {"port": "51820", "publicKey": key},
            },
            "status": {
                "localPodCIDR": "10.0.0.0/16", "localNATPodCIDR": format!("10.{number}.0.0/16"),
                "localExternalCIDR": "172.16.0.0/12",
            },
        });
        Arc::new(serde_json::from_value(endpoint).unwrap())
    }

    fn read(endpoints: &[Arc<TunnelEndpoint>], published: &Arc<Published>) -> Wanted {
        let source = Source::Heard(Arc::clone(published));
        Wanted::read(endpoints.to_vec(), &source, &PublicKey([0; 32]), Reach::Default)
    }

    #[test]
    fn a_peer_that_is_left_out_is_told_of_with_the_reason() {
        let wanted = read(&[endpoint("rome", 1), endpoint("twin", 1), endpoint("oslo", 2)], &Arc::default());
        let told: Vec<_> =
            wanted.told.all.iter().map(|it| (it.cluster_id.as_str(), it.trouble.as_str())).collect();
        assert_eq!(told[..2], [("oslo", ""), ("rome", "")]);
        assert!(told[2].0 == "twin" && told[2].1.contains("overlaps"), "{told:?}");
        assert_eq!(wanted.told.all[0].pod_cidr, "10.2.0.0/16");
        assert_eq!(wanted.plans().len(), 2);
    }

    #[test]
    fn other_redirections_change_the_tables_of_the_same_tunnels() {
        let (rome, endpoint): (_, IpAddr) = (endpoint("rome", 1), "198.18.0.1".parse().unwrap());
        let mut wanted = read(&[rome], &Arc::default());
        let before = wanted.plans();
        let published = heard(&[("rome", "198.18.0.1", "172.16.0.5")]).published();
        wanted.publish(&published);
        assert_eq!(wanted.plans()["rome"].table.published().keys().collect::<Vec<_>>(), [&endpoint]);
        assert!(before["rome"].table.published().is_empty());
        wanted.publish(&Published::default());
        assert_eq!(wanted.plans(), before);
    }

    /// The least time that a change takes, from what is heard to what the engine gets, beside so many others.
    fn time_of_a_change(count: u32) -> Duration {
        let ip = |first: u32, number: u32| IpAddr::V4((first + number).into()).to_string();
        let entries: Vec<_> =
            (0..count).map(|number| (ip(0xc612_0000, number), ip(0xac10_0000, number))).collect();
        let entries: Vec<_> = entries.iter().map(|(from, to)| ("rome", from.as_str(), to.as_str())).collect();
        let (mut now, rome) = (heard(&entries), endpoint("rome", 1));
        let mut wanted = read(&[rome], &now.published());
        let destination = "10.101.0.1".parse().unwrap();
        let rounds = (0..200).map(|round| {
            let begin = Instant::now();
            now = now.moved("rome", &ip(0xc612_0000, round), &ip(0xac17_0000, round));
            wanted.publish(&now.published());
            let (plans, took) = (wanted.plans(), begin.elapsed());
            let sent = Packet { source: [198, 18, 0, u8::try_from(round).unwrap()].into(), destination };
            let named = plans["rome"].table.outbound(sent).unwrap().source;
            assert_eq!(named.to_string(), ip(0xac17_0000, round));
            took
        });
        rounds.min().unwrap()
    }

    #[test]
    fn a_change_costs_the_same_among_a_hundred_thousand() {
        let [few, many] = [1_000, 100_000].map(time_of_a_change);
        assert!(many < few * 10, "{many:?} among a hundred thousand, {few:?} among a thousand");
    }
}
