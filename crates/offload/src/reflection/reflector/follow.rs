//! What a reflector follows beside the objects themselves: pods, addresses, settings.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::Result;
use ferro_core::reflection::references;
use ferro_core::reflection::travel::PodName;
use ferro_runtime::queue::Queue;
use ferro_runtime::watch::Watched;
use k8s_openapi::api::core::v1::Pod;

use super::{Reflector, SOON};
use crate::pods::outlook::Network;
use crate::reflection::Key;
use crate::reflection::addresses::User;

/// Where those are rung for who need an address.
pub(super) struct Bells {
    slices: Queue<Key>,
    pods: Queue<PodName>,
}

impl Bells {
    pub(super) fn ring(&self, users: Vec<User>) {
        for user in users {
            match user {
                User::Slice(slice) => self.slices.push(slice),
                User::Pod(pod) => self.pods.push(pod),
            }
        }
    }
}

impl Reflector {
    /// Follows which configuration pods over there refer to. Before all pods are known, nobody knows what none refers to.
    pub(super) async fn follow_pods(self: Arc<Self>, pods: Watched<Pod>) -> Result<()> {
        let mut changes = pods.follow();
        pods.ready().await?;
        loop {
            // Those that come together are noted down together: what takes the place of a pod needs the same.
            let mut concerned = Vec::new();
            for (reference, pod) in changes.take() {
                let name = (reference.namespace.unwrap_or_default(), reference.name);
                let needs = pod.as_deref().map(references::of_pod).unwrap_or_default();
                self.gate.set(&name, pod.as_deref().and_then(address));
                concerned.extend(self.need(&name, needs));
            }
            for key in concerned {
                self.queue.push(key);
            }
            if !self.knows_pods.swap(true, Ordering::SeqCst) {
                self.look_at_all();
            }
            changes.changed().await?;
        }
    }

    /// A pod needs this configuration over there, and no other. What is to be looked at because of that.
    fn need(&self, pod: &PodName, needs: BTreeSet<references::Reference>) -> Vec<Key> {
        let needs: BTreeSet<Key> =
            needs.into_iter().map(|(kind, name)| (pod.0.clone(), kind, name)).collect();
        let mut ledger = self.needs();
        let gained = ledger.hold(pod, &needs);
        [gained, ledger.keep(pod, &needs)].concat()
    }

    /// Other names of networks are other addresses of endpoints, and by another reach they have to be asked for.
    pub(super) async fn follow_addresses(self: Arc<Self>) -> Result<()> {
        let mut terms = None;
        loop {
            self.addresses.changed(&mut terms).await?;
            self.look_at_all();
            self.gate.look_at_all();
        }
    }

    pub(super) async fn follow_settings(self: Arc<Self>) -> Result<()> {
        let mut config = self.home.config.clone();
        let mut before = self.home.settings().reflection();
        loop {
            config.changed().await?;
            let present = self.home.settings().reflection();
            if present != before {
                before = present;
                self.furnish();
                self.look_at_all();
            }
        }
    }

    /// A pod on another peer may call from there, or no longer.
    pub(super) async fn name(&self, pod: PodName) -> Option<Duration> {
        let is_joined = self.outlook().network != Network::External;
        let address: BTreeSet<IpAddr> = self.gate.address(&pod).filter(|_| is_joined).into_iter().collect();
        let user = User::Pod(pod);
        let names = self.addresses.names(&user, &address, &BTreeSet::new()).await;
        self.bells().ring(self.addresses.keep(&user, &address).await);
        (names.is_waiting || names.is_blind && !address.is_empty()).then_some(SOON)
    }

    pub(super) fn bells(&self) -> Bells {
        Bells { slices: self.queue.clone(), pods: self.gate.queue.clone() }
    }
}

/// The address of a pod that runs, as it is named here.
fn address(pod: &Pod) -> Option<IpAddr> {
    let status = pod.status.as_ref()?;
    let has_ended = matches!(status.phase.as_deref(), Some("Succeeded" | "Failed"));
    status.pod_ip.as_ref().filter(|_| !has_ended)?.parse().ok()
}
