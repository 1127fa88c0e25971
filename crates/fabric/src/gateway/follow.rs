//! The redirections, as the address manager has them: told by it as they arise, and acknowledged once they work.
//!
//! Nobody is told of an address before packets to it arrive. That is why this does not go through the API, which is
//! slower; what is written there trails, and serves a gateway that starts while nobody manages addresses. Which tunnels
//! there are is told along: a peer without one must not keep the redirections of others waiting, and is not said to
//! reach anything.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use ferro_api::proto::gateway::gateway_client::GatewayClient;
use ferro_api::proto::gateway::{Acknowledged, Change, Entry, Tunnels};
use ferro_core::network::Redirections;
use ferro_runtime::shutdown::Tasks;
use futures::{StreamExt as _, stream};
use http::Uri;
use k8s_openapi::api::core::v1::{Secret, Service};
use kube::{Api, Client};
use tokio::sync::watch;
use tokio::time::sleep;
use tracing::{debug, info, warn};

use super::wanted::Published;
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
    /// A clone shares what does not change: there may be many.
    published: Arc<Published>,
}

impl Heard {
    /// By peer.
    pub(super) fn published(&self) -> Arc<Published> {
        Arc::clone(&self.published)
    }

    /// What it is after a change. Only what changes is looked at.
    fn after(&self, change: Change) -> Self {
        let Change { epoch, revision, whole, set, removed } = change;
        let mut published = if whole { Published::new() } else { Published::clone(&self.published) };
        // An address may go from one endpoint to another: all that goes is gone before anything comes.
        for Entry { cluster_id, endpoint, .. } in removed.iter().chain(&set) {
            if let (Some(of_peer), Ok(endpoint)) = (published.get_mut(cluster_id), endpoint.parse()) {
                of_peer.remove(&endpoint);
            }
        }
        for Entry { cluster_id, endpoint, address } in set {
            let entry = Redirections::read(&endpoint, &address);
            let of_peer = published.entry(cluster_id);
            let added = entry.and_then(|(endpoint, address)| of_peer.or_default().insert(endpoint, address));
            if let Err(trouble) = added {
                warn!(%trouble, "a redirection is not used");
            }
        }
        published.retain(|_, of_peer| !of_peer.is_empty());
        Self { epoch, revision, published: Arc::new(published) }
    }
}

/// What works: all changes up to this one, in these tunnels.
#[derive(Clone, Debug, Default, PartialEq)]
struct Working {
    epoch: String,
    revision: u64,
    tunnels: Arc<Tunnels>,
}

/// What the address manager is told of it. It need not be told twice of the same tunnels.
#[derive(Debug)]
struct Telling {
    working: watch::Receiver<Working>,
    told: Option<Arc<Tunnels>>,
}

impl Telling {
    async fn next(mut self) -> Option<(Acknowledged, Self)> {
        self.working.changed().await.ok()?;
        let Working { epoch, revision, tunnels } = self.working.borrow_and_update().clone();
        let is_new = self.told.as_ref() != Some(&tunnels);
        let told = is_new.then(|| Tunnels::clone(&tunnels));
        self.told = Some(tunnels);
        Some((Acknowledged { epoch, revision, tunnels: told }, self))
    }
}

/// What was heard, and what is acknowledged.
pub(super) struct Follower {
    heard: watch::Receiver<Option<Arc<Heard>>>,
    working: watch::Sender<Working>,
}

impl Follower {
    /// The last that was heard; none before the first time.
    pub(super) fn heard(&mut self) -> Option<Arc<Heard>> {
        self.heard.borrow_and_update().clone()
    }

    /// Whether anything was heard yet.
    pub(super) fn has_heard(&self) -> bool {
        self.heard.borrow().is_some()
    }

    /// Waits for more.
    pub(super) async fn changed(&mut self) -> Result<()> {
        self.heard.changed().await.context("nobody follows the address manager any more")
    }

    /// Says that all of it works, in these tunnels.
    pub(super) fn acknowledge(&self, heard: Option<&Heard>, tunnels: Arc<Tunnels>) {
        // Before anything was heard, no change is said to work.
        let (epoch, revision) = heard.map(|heard| (heard.epoch.clone(), heard.revision)).unwrap_or_default();
        self.working.send_replace(Working { epoch, revision, tunnels });
    }
}

/// Follows the address manager until the tasks end.
pub(super) fn start(tasks: &Tasks, client: Client, namespace: String) -> Follower {
    let (tell, heard) = watch::channel(None);
    let (working, to_tell) = watch::channel(Working::default());
    let session = Session { client, namespace, tell, to_tell };
    tasks.spawn("redirections", session.keep());
    Follower { heard, working }
}

struct Session {
    client: Client,
    namespace: String,
    tell: watch::Sender<Option<Arc<Heard>>>,
    /// Nobody has looked at it: whoever clones it is told of what there is.
    to_tell: watch::Receiver<Working>,
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
        let telling = Telling { working: self.to_tell.clone(), told: None };
        let acknowledgements = stream::unfold(telling, Telling::next);
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
pub(super) mod tests {
    use std::collections::BTreeMap;

    use ferro_api::proto::gateway::Tunnel;

    use super::*;

    /// As after a whole change with these.
    pub(in super::super) fn heard(entries: &[(&str, &str, &str)]) -> Heard {
        let set = entries.iter().map(|(peer, endpoint, address)| entry(peer, endpoint, address)).collect();
        Heard::default().after(change(true, set, vec![]))
    }

    impl Heard {
        /// As after an endpoint got another address.
        pub(in super::super) fn moved(&self, peer: &str, endpoint: &str, address: &str) -> Self {
            self.after(change(false, vec![entry(peer, endpoint, address)], vec![]))
        }

        fn of(&self, peer: &str) -> BTreeMap<String, String> {
            let of_peer = self.published.get(peer).into_iter().flat_map(Redirections::entries);
            of_peer.map(|(endpoint, address)| (endpoint.to_string(), address.to_string())).collect()
        }
    }

    fn entry(peer: &str, endpoint: &str, address: &str) -> Entry {
        Entry { cluster_id: peer.into(), endpoint: endpoint.into(), address: address.into() }
    }

    fn change(whole: bool, set: Vec<Entry>, removed: Vec<Entry>) -> Change {
        Change { epoch: "e".into(), revision: 1, whole, set, removed }
    }

    fn entries(entries: &[(&str, &str)]) -> BTreeMap<String, String> {
        entries.iter().map(|(endpoint, address)| ((*endpoint).into(), (*address).into())).collect()
    }

    #[test]
    fn changes_add_up_and_a_whole_one_begins_anew() {
        let first = heard(&[("a", "10.0.0.1", "10.9.0.1"), ("b", "10.0.0.1", "10.9.0.1")]);
        let added = vec![entry("a", "10.0.0.2", "10.9.0.2")];
        let second = first.after(change(false, added, vec![entry("b", "10.0.0.1", "10.9.0.1")]));
        assert_eq!(second.of("a"), entries(&[("10.0.0.1", "10.9.0.1"), ("10.0.0.2", "10.9.0.2")]));
        assert!(second.of("b").is_empty() && first.of("b").len() == 1, "who has the former is not disturbed");
        let moved = second.moved("a", "10.0.0.2", "10.9.0.3");
        assert_eq!(moved.of("a")["10.0.0.2"], "10.9.0.3");
        assert!(moved.after(change(true, vec![], vec![])).published().is_empty());
    }

    #[test]
    fn an_address_goes_from_one_endpoint_to_another_in_whatever_order_it_is_told() {
        let before = heard(&[("a", "10.0.0.1", "10.9.0.1"), ("a", "10.0.0.2", "10.9.0.2")]);
        let swapped = [entry("a", "10.0.0.1", "10.9.0.2"), entry("a", "10.0.0.2", "10.9.0.1")];
        let after = before.after(change(false, swapped.into(), vec![]));
        assert_eq!(after.of("a"), entries(&[("10.0.0.1", "10.9.0.2"), ("10.0.0.2", "10.9.0.1")]));
        let bad = [entry("a", "host", "10.9.0.7"), entry("a", "10.0.0.3", "10.9.0.3")];
        assert_eq!(after.after(change(false, bad.into(), vec![])).of("a").len(), 3, "the others hold");
    }

    #[tokio::test]
    async fn tunnels_are_told_when_they_change_and_on_each_new_connection() {
        let (working, to_tell) = watch::channel(Working::default());
        let follower = Follower { heard: watch::channel(None).1, working };
        let tunnels = |peers: &[&str]| Tunnels {
            all: peers
                .iter()
                .map(|peer| Tunnel { cluster_id: (*peer).into(), ..Tunnel::default() })
                .collect(),
        };
        let acknowledge =
            |heard: Option<&Heard>, peers: &[&str]| follower.acknowledge(heard, Arc::new(tunnels(peers)));
        let telling = || Telling { working: to_tell.clone(), told: None };
        acknowledge(None, &["a"]);
        let (said, first) = telling().next().await.unwrap();
        assert_eq!((said.epoch.as_str(), said.revision, said.tunnels), ("", 0, Some(tunnels(&["a"]))));
        let heard = heard(&[("b", "10.0.0.1", "10.9.0.1")]);
        acknowledge(Some(&heard), &["a"]);
        let (said, first) = first.next().await.unwrap();
        assert_eq!((said.epoch.as_str(), said.revision, said.tunnels), ("e", 1, None), "b holds nobody up");
        acknowledge(Some(&heard), &["a", "b"]);
        let (said, _) = first.next().await.unwrap();
        assert_eq!((said.revision, said.tunnels), (1, Some(tunnels(&["a", "b"]))));
        let (said, _) = telling().next().await.unwrap();
        assert_eq!(said.tunnels, Some(tunnels(&["a", "b"])), "who listens anew has heard nothing");
    }
}
