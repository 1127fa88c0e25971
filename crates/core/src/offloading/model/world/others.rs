//! Everybody else who has a part in it: replicator, providers, controllers of peers and of namespaces.

use std::collections::BTreeMap;

use ferro_api::discovery::ForeignCluster;
use ferro_api::names::{annotations, finalizers};
use ferro_api::virtualkubelet::{CurrentMapping, MappingPhase};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::json;

use super::{Peer, Provider, World, tenant};
use crate::offloading::{Standing, standing};

impl World {
    /// Replicator, providers, controllers of peers and of namespaces: each does the next step.
    pub(in crate::offloading) fn others(&mut self) {
        for id in self.clusters.keys().cloned().collect::<Vec<_>>() {
            self.replicate(&id);
            self.clusters.get_mut(&id).unwrap().provide();
            self.move_pods(&id);
            self.end_peering(&id);
        }
        let going = self.namespaces.iter().filter(|(_, home)| home.metadata.deletion_timestamp.is_some());
        for name in going.map(|(name, _)| name.clone()).collect::<Vec<_>>() {
            if self.offloadings.contains_key(&name) {
                self.delete(&name);
            } else {
                self.namespaces.remove(&name);
                self.unseen.insert(('n', name));
            }
        }
    }

    fn replicate(&mut self, id: &str) {
        let peer = self.clusters.get_mut(id).unwrap();
        if peer.provider == Provider::Silent {
            return;
        }
        let Some(map) = self.maps.get_mut(id) else {
            peer.copy = None;
            return;
        };
        if map.metadata.deletion_timestamp.is_some() {
            peer.copy = None;
            if peer.there.is_empty() {
                self.finalize_map(id, finalizers::REPLICATION);
            }
            return;
        }
        let before = map.clone();
        let held = map.metadata.finalizers.get_or_insert_default();
        if !held.iter().any(|name| name == finalizers::REPLICATION) {
            held.push(finalizers::REPLICATION.into());
        }
        peer.copy = Some(map.spec.desired_mapping.clone());
        map.status.get_or_insert_default().current_mapping.clone_from(&peer.there);
        if *map != before {
            self.bump('m', id);
        }
    }

    /// The agent of the node: pods go from where their namespace is dropped, once the peer answers, and with the namespace.
    fn move_pods(&mut self, id: &str) {
        let (current, drains) = (self.current(id), !self.clusters[id].peered);
        let is_silent = self.clusters[id].provider == Provider::Silent;
        let mut pods = self.clusters[id].pods.clone();
        pods.retain(|namespace| {
            let stays = match standing(self.offloadings.get(namespace), id) {
                Standing::Wanted | Standing::Undecided => true,
                Standing::Dropped => is_silent,
                Standing::GivenUp => false,
            };
            stays && !drains && !current[namespace].is_null()
        });
        if pods != self.clusters[id].pods {
            self.clusters.get_mut(id).unwrap().pods = pods;
            self.see_pods();
        }
    }

    /// The end of a peering, as `crate::peering` goes about it: the map first, then the node.
    fn end_peering(&mut self, id: &str) {
        let (mapped, peer) = (self.maps.contains_key(id), self.clusters.get_mut(id).unwrap());
        let next = match (peer.peered, mapped) {
            (true, _) => return,
            (false, true) => ("Disconnecting", "NamespacesEnd", peer.has_node && !peer.forced, peer.forced),
            (false, false) => ("None", "NotJoined", false, false),
        };
        if next != (peer.state, peer.reason, peer.has_node, peer.forced) {
            (peer.state, peer.reason, peer.has_node, peer.forced) = next;
            self.see_cluster(id);
        }
    }
}

impl Peer {
    pub(super) fn object(&self, id: &str) -> ForeignCluster {
        let mut peer: ForeignCluster = serde_json::from_value(json!({
            "apiVersion": "discovery.liqo.io/v1alpha1", "kind": "ForeignCluster", "metadata": {"name": id},
            "spec": {"clusterIdentity": {"clusterID": id}},
            "status": {
                "outgoing": {"state": self.state}, "tenantNamespaces": {"local": tenant(id)},
                "conditions": [{"type": "OutgoingPeering", "status": "False", "reason": self.reason, "message": "",
                    "lastTransitionTime": "2025-01-01T00:00:00Z"}],
            },
        }))
        .unwrap();
        if self.forced {
            annotations::FORCE.put_on(&mut peer.metadata, "true");
        }
        peer
    }

    pub(super) fn node(&self, id: &str) -> Option<Node> {
        let metadata = ObjectMeta {
            name: Some(format!("liqo-{id}")),
            labels: Some(self.labels.clone()),
            ..ObjectMeta::default()
        };
        self.has_node.then(|| Node { metadata, ..Node::default() })
    }

    /// The provider: what is asked for is made, and what is not goes in two steps.
    fn provide(&mut self) {
        if self.provider == Provider::Silent {
            return;
        }
        let nothing = BTreeMap::new();
        let asked = self.copy.as_ref().unwrap_or(&nothing).clone();
        self.there.retain(|namespace, there| {
            let stays = asked.get(namespace) == there.remote_namespace.as_ref();
            let was_going = there.phase == MappingPhase::Terminating;
            if !stays {
                there.phase = MappingPhase::Terminating;
            }
            stays || !was_going
        });
        for (namespace, remote) in asked {
            let is_taken = self.there.iter().any(|(other, there)| {
                *other != namespace && there.remote_namespace.as_ref() == Some(&remote)
            });
            let (phase, message) = match &self.provider {
                // What was taken back before its answer came home may still be there.
                _ if is_taken => (MappingPhase::CreationLoopBackOff, Some("the name is taken".into())),
                Provider::Refuses(why) => (MappingPhase::CreationLoopBackOff, Some(why.clone())),
                Provider::Answers | Provider::Silent => (MappingPhase::Accepted, None),
            };
            let is_going =
                self.there.get(&namespace).is_some_and(|there| there.phase == MappingPhase::Terminating);
            let is_made =
                self.there.get(&namespace).is_some_and(|there| there.phase == MappingPhase::Accepted);
            if is_going {
                self.there.remove(&namespace);
            } else if !is_made {
                self.there
                    .insert(namespace, CurrentMapping { phase, remote_namespace: Some(remote), message });
            }
        }
    }
}
