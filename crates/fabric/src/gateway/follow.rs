//! The redirections, as the address manager has them: told by it as they arise, and acknowledged once they work.
//!
//! Nobody is told of an address before packets to it arrive. That is why this does not go through the API, which is
//! slower; what is written there trails, and serves a gateway that starts while nobody manages addresses.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use ferro_api::net::{NatMapping, NatMappingSpec};
use ferro_api::proto::gateway::gateway_client::GatewayClient;
use ferro_api::proto::gateway::{Acknowledged, Change, Entry};
use ferro_runtime::shutdown::Tasks;
use futures::{StreamExt as _, stream};
use http::Uri;
use k8s_openapi::api::core::v1::{Secret, Service};
use kube::{Api, Client};
use tokio::sync::watch;
use tokio::time::sleep;
use tracing::{debug, info};

use crate::door::SERVICE;
use crate::ipam::client::{self, Channel, Identity};
use crate::ipam::{GATEWAY, PORT};

/// How long it waits before it connects again.
const PAUSE: Duration = Duration::from_secs(1);

/// All redirections of a moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Heard {
    epoch: String,
    revision: u64,
    /// By peer, and then by endpoint.
    entries: BTreeMap<String, BTreeMap<String, String>>,
}

impl Heard {
    /// In the form in which they are written down.
    pub(super) fn mappings(&self) -> Vec<NatMapping> {
        let mapping = |(peer, entries): (&String, &BTreeMap<String, String>)| {
            let spec = NatMappingSpec { cluster_id: peer.clone(), cluster_mappings: entries.clone() };
            NatMapping::new(peer, spec)
        };
        self.entries.iter().map(mapping).collect()
    }

    /// What it is after a change.
    fn after(&self, change: Change) -> Self {
        let Change { epoch, revision, whole, set, removed } = change;
        let mut entries = if whole { BTreeMap::new() } else { self.entries.clone() };
        for Entry { cluster_id, endpoint, .. } in removed {
            if let Some(of_peer) = entries.get_mut(&cluster_id) {
                of_peer.remove(&endpoint);
            }
        }
        for Entry { cluster_id, endpoint, address } in set {
            entries.entry(cluster_id).or_default().insert(endpoint, address);
        }
        Self { epoch, revision, entries }
    }
}

/// What was heard, and what is acknowledged.
pub(super) struct Follower {
    heard: watch::Receiver<Option<Arc<Heard>>>,
    acknowledged: watch::Sender<Acknowledged>,
}

impl Follower {
    /// The last that was heard; none before the first time.
    pub(super) fn heard(&mut self) -> Option<Arc<Heard>> {
        self.heard.borrow_and_update().clone()
    }

    /// Waits for more.
    pub(super) async fn changed(&mut self) -> Result<()> {
        self.heard.changed().await.context("nobody follows the address manager any more")
    }

    /// Says that all of it works.
    pub(super) fn acknowledge(&self, heard: &Heard) {
        let Heard { epoch, revision, .. } = heard;
        self.acknowledged.send_replace(Acknowledged { epoch: epoch.clone(), revision: *revision });
    }
}

/// Follows the address manager until the tasks end.
pub(super) fn start(tasks: &Tasks, client: Client, namespace: String) -> Follower {
    let (tell, heard) = watch::channel(None);
    let (acknowledged, to_send) = watch::channel(Acknowledged::default());
    let session = Session { client, namespace, tell, to_send };
    tasks.spawn("redirections", session.keep());
    Follower { heard, acknowledged }
}

struct Session {
    client: Client,
    namespace: String,
    tell: watch::Sender<Option<Arc<Heard>>>,
    to_send: watch::Receiver<Acknowledged>,
}

impl Session {
    async fn keep(self) -> Result<()> {
        loop {
            if let Err(error) = self.follow().await {
                debug!(
                    error = format!("{error:#}"),
                    "the address manager cannot be followed; will be tried again"
                );
            }
            sleep(PAUSE).await;
        }
    }

    async fn follow(&self) -> Result<()> {
        let mut client = self.connect().await?;
        let acknowledgements = stream::unfold(self.to_send.clone(), |mut to_send| async {
            to_send.changed().await.ok()?;
            let next = to_send.borrow_and_update().clone();
            Some((next, to_send))
        });
        let mut changes =
            client.follow(acknowledgements).await.context("the address manager refuses")?.into_inner();
        info!("follows the address manager");
        let mut heard = Heard::default();
        while let Some(change) = changes.next().await {
            heard = heard.after(change.context("the address manager is gone")?);
            self.tell.send_replace(Some(Arc::new(heard.clone())));
        }
        bail!("the address manager has ended")
    }

    /// Who this is and where to go, read anew for each connection: certificates are renewed.
    async fn connect(&self) -> Result<GatewayClient<Channel>> {
        let secrets: Api<Secret> = Api::namespaced(self.client.clone(), &self.namespace);
        let secret = secrets.get(GATEWAY).await.context("cannot read the gateway's certificate")?;
        let services: Api<Service> = Api::namespaced(self.client.clone(), &self.namespace);
        let service = services.get(SERVICE).await.context("cannot find the address manager")?;
        let ip =
            service.spec.and_then(|spec| spec.cluster_ip).context("the address manager has no address")?;
        let ip: IpAddr = ip.parse().with_context(|| format!("the address manager is at {ip:?}"))?;
        let origin: Uri = format!("https://{}", SocketAddr::new(ip, PORT)).parse()?;
        client::gateway(&Identity::from_secret(&secret)?, origin)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(peer: &str, endpoint: &str, address: &str) -> Entry {
        Entry { cluster_id: peer.into(), endpoint: endpoint.into(), address: address.into() }
    }

    fn change(whole: bool, set: Vec<Entry>, removed: Vec<Entry>) -> Change {
        Change { epoch: "e".into(), revision: 1, whole, set, removed }
    }

    #[test]
    fn changes_add_up_and_a_whole_one_begins_anew() {
        let first =
            Heard::default().after(change(true, vec![entry("a", "1", "2"), entry("b", "1", "3")], vec![]));
        let second = first.after(change(false, vec![entry("a", "4", "5")], vec![entry("b", "1", "3")]));
        let of = |heard: &Heard, peer: &str| heard.entries.get(peer).map(BTreeMap::len);
        assert_eq!((of(&second, "a"), of(&second, "b")), (Some(2), Some(0)));
        let moved = second.after(change(false, vec![entry("a", "4", "9")], vec![entry("a", "4", "5")]));
        assert_eq!(moved.entries["a"]["4"], "9");
        assert_eq!(moved.after(change(true, vec![], vec![])).mappings(), []);
    }
}
