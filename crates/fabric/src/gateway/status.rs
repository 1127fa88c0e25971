//! How the tunnels fare, in the status of each TunnelEndpoint: the one writer of `connection`.
//!
//! It writes by itself, so that no tunnel waits for an API that is slow; and to one that fails ever more seldom.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use ferro_api::net::{Connection, Throughput, TunnelEndpoint};
use ferro_core::network::report::{Observed, Pace, connection, is_news, is_unheard, refused};
use ferro_runtime::watch::Watched;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client, ResourceExt as _};
use serde_json::json;
use tokio::sync::watch;
use tokio::time::timeout;
use tracing::{debug, info, warn};

use super::Look;
use super::house::House;
use super::notice::MANAGER;
use crate::dataplane::Statistics;
use crate::wireguard::REJECT_AFTER_TIME;

/// So long a write may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long it rests after a write that failed: first, and at most.
const REST: (Duration, Duration) = (Duration::from_secs(1), Duration::from_mins(1));

/// Writes down how tunnels fare.
pub(super) struct Reporter {
    client: Client,
    interfaces: serde_json::Value,
    /// Whether others know that we live.
    heard: watch::Receiver<bool>,
    /// What was written last, which a watch shows only later.
    written: BTreeMap<String, Written>,
    failing: BTreeMap<String, Failing>,
    paces: BTreeMap<String, Pace>,
}

/// What was written of a tunnel.
struct Written {
    connection: Connection,
    at: Instant,
}

/// A tunnel of which nothing can be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Failing {
    rest: Duration,
    until: Instant,
}

impl Failing {
    /// After another failure it rests twice as long.
    fn again(before: Option<&Self>, now: Instant) -> Self {
        let (first, most) = REST;
        let rest = before.map_or(first, |before| before.rest.saturating_mul(2).min(most));
        Self { rest, until: now + rest }
    }
}

impl Reporter {
    pub(super) fn new(client: Client, house: &House, heard: watch::Receiver<bool>) -> Self {
        let interfaces = json!({"tunnelIFaceIndex": house.tunnel, "vethIFaceIndex": house.inner});
        let (written, failing, paces) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        Self { client, interfaces, heard, written, failing, paces }
    }

    /// Writes down what is seen, for ever; of what is seen while it writes, the last.
    pub(super) async fn keep(
        mut self,
        endpoints: Watched<TunnelEndpoint>,
        mut looks: watch::Receiver<Look>,
    ) -> Result<()> {
        loop {
            looks.changed().await.context("nobody looks at the tunnels any more")?;
            let look = looks.borrow_and_update().clone();
            self.report(&endpoints.all(), &look).await;
        }
    }

    /// Writes what is news.
    async fn report(&mut self, endpoints: &[Arc<TunnelEndpoint>], look: &Look) {
        let uids: BTreeSet<String> = endpoints.iter().filter_map(|endpoint| endpoint.uid()).collect();
        self.written.retain(|uid, _| uids.contains(uid));
        self.failing.retain(|uid, _| uids.contains(uid));
        self.paces.retain(|uid, _| uids.contains(uid));
        for endpoint in endpoints {
            let uid = endpoint.uid().unwrap_or_default();
            let seen = self.seen(endpoint, &uid, look);
            if self.failing.get(&uid).is_some_and(|failing| Instant::now() < failing.until) {
                continue;
            }
            let written = self.written.get(&uid);
            let in_status = endpoint.status.as_ref().and_then(|status| status.connection.as_ref());
            let age = written.map(|written| written.at.elapsed());
            let ours = written.filter(|_| !is_contested(*self.heard.borrow(), age, in_status));
            if !is_news(ours.map(|written| &written.connection).or(in_status), &seen, age) {
                continue;
            }
            let done = self.write(endpoint, &seen).await;
            if self.note(endpoint, &uid, done) {
                self.written.insert(uid, Written { connection: seen, at: Instant::now() });
            }
        }
    }

    /// What is to be shown of a tunnel, or why there is none.
    fn seen(&mut self, endpoint: &TunnelEndpoint, uid: &str, look: &Look) -> Connection {
        if let Some(problem) = look.problems.iter().find(|problem| problem.is_of(endpoint)) {
            return refused(&problem.trouble);
        }
        let peer = &endpoint.spec.cluster_id;
        let seen = look.statistics.get(peer).map(|figures| {
            let throughput = self.throughput(uid, figures);
            observed(figures, look.probed.contains(peer), throughput)
        });
        connection(&seen.unwrap_or_default(), Timestamp::now())
    }

    fn throughput(&mut self, uid: &str, figures: &Statistics) -> Option<Throughput> {
        let (sent, received, now) = (figures.sent.bytes, figures.received.bytes, Instant::now());
        let pace = self.paces.entry(uid.to_owned()).or_insert_with(|| Pace::new(sent, received, now));
        pace.look(sent, received, now)
    }

    /// Tells how a write went: of the same trouble once. Whether it went well.
    fn note(&mut self, endpoint: &TunnelEndpoint, uid: &str, done: Result<()>) -> bool {
        let Err(error) = done else {
            self.failing.remove(uid);
            return true;
        };
        let (before, name) = (self.failing.get(uid), endpoint.name_any());
        let error = format!("{error:#}");
        if before.is_none() {
            warn!(error, name, "cannot write how a tunnel fares; will be tried again");
        } else {
            debug!(error, name, "still cannot write how a tunnel fares");
        }
        let failing = Failing::again(before, Instant::now());
        self.failing.insert(uid.to_owned(), failing);
        false
    }

    async fn write(&self, endpoint: &TunnelEndpoint, seen: &Connection) -> Result<()> {
        let namespace = endpoint.namespace().unwrap_or_default();
        let api: Api<TunnelEndpoint> = Api::namespaced(self.client.clone(), &namespace);
        let mut status = self.interfaces.clone();
        // A merge: what is no longer so must be taken away by name.
        let mut connection = json!(seen);
        let gone = [
            ("probe", seen.probe.is_none()),
            ("silent", seen.silent.is_none()),
            ("throughput", seen.throughput.is_none()),
        ];
        for (field, is_gone) in gone {
            if is_gone {
                connection[field] = json!(null);
            }
        }
        status["connection"] = connection;
        let patch = Patch::Merge(json!({"status": status}));
        let name = endpoint.name_any();
        let by = PatchParams { field_manager: Some(MANAGER.into()), ..PatchParams::default() };
        let written = timeout(PATIENCE, api.patch_status(&name, &by, &patch)).await;
        written.context("the API does not answer")??;
        let (state, message) = (seen.status, &seen.status_message);
        info!(peer = endpoint.spec.cluster_id, ?state, message, "how a tunnel fares");
        Ok(())
    }
}

/// Whether it is shown that we are silent, though we are heard, and what we wrote is not just on its way.
fn is_contested(is_heard: bool, written: Option<Duration>, in_status: Option<&Connection>) -> bool {
    let has_arrived = written.is_none_or(|age| age > PATIENCE);
    is_heard && has_arrived && in_status.is_some_and(is_unheard)
}

/// What is seen of a tunnel.
pub(super) fn observed(statistics: &Statistics, is_probed: bool, throughput: Option<Throughput>) -> Observed {
    let age = statistics.last_handshake.map(|at| at.elapsed());
    Observed {
        has_session: age.is_some_and(|age| age < REJECT_AFTER_TIME),
        endpoint: statistics.endpoint,
        public_key: statistics.key.map(|key| key.0),
        probe: is_probed.then_some(statistics.probe),
        throughput,
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::sync::atomic::{AtomicU32, Ordering};

    use ferro_api::net::ConnectionStatus;
    use ferro_core::network::report::unheard;
    use ferro_core::network::{Problem, Trouble};
    use http::{Request, Response};
    use kube::client::{Body, ClientBuilder};

    use super::*;

    /// An API that takes everything, and counts.
    fn api(writes: &Arc<AtomicU32>) -> Client {
        let writes = Arc::clone(writes);
        let answer = tower::service_fn(move |_: Request<Body>| {
            writes.fetch_add(1, Ordering::Relaxed);
            let object = json!(TunnelEndpoint::default()).to_string();
            std::future::ready(Response::builder().body(Body::from(object.into_bytes())))
        });
        ClientBuilder::new(answer, "liqo").build()
    }

    fn reporter(client: Client) -> Reporter {
        let (_, heard) = watch::channel(true);
        let (written, failing, paces) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        Reporter { client, interfaces: json!({}), heard, written, failing, paces }
    }

    fn tunnel(name: &str) -> TunnelEndpoint {
        let mut tunnel = TunnelEndpoint::default();
        tunnel.metadata.uid = Some(name.into());
        tunnel.metadata.name = Some(name.into());
        tunnel.spec.cluster_id = "milan".into();
        tunnel
    }

    #[tokio::test]
    async fn a_tunnel_that_is_refused_is_an_error_also_beside_one_to_the_same_peer() {
        let mut reporter = reporter(api(&Arc::default()));
        let (trouble, object) = (Trouble::Second("the first".into()), "TunnelEndpoint /second".into());
        let problem = Problem { peer: "milan".into(), object, trouble };
        let up = Statistics { last_handshake: Some(Instant::now()), ..Statistics::default() };
        let statistics = [("milan".to_owned(), up)].into();
        let look = Look { statistics, problems: [problem].into(), ..Look::default() };
        let [first, second] = ["first", "second"].map(|name| reporter.seen(&tunnel(name), name, &look));
        assert_eq!(first.status, Some(ConnectionStatus::Connected));
        assert_eq!(second.status, Some(ConnectionStatus::Error));
        assert!(second.status_message.is_some_and(|message| message.contains("already a tunnel")));
    }

    #[tokio::test]
    async fn a_peer_that_flips_its_port_causes_no_writes() {
        let writes = Arc::default();
        let mut reporter = reporter(api(&writes));
        let tunnel = tunnel("milan");
        for port in [1000, 2000].into_iter().cycle().take(40) {
            let endpoint = Some(SocketAddr::from(([192, 0, 2, 7], port)));
            let seen = Statistics { endpoint, last_handshake: Some(Instant::now()), ..Statistics::default() };
            let look = Look { statistics: [("milan".to_owned(), seen)].into(), ..Look::default() };
            reporter.report(&[Arc::new(tunnel.clone())], &look).await;
        }
        assert_eq!(writes.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn who_is_said_to_be_silent_contradicts_when_it_is_heard() {
        let up = Connection { status_message: Some("packets get through".into()), ..Connection::default() };
        let silent = unheard(up.clone());
        let (late, just_now) = (Some(PATIENCE + Duration::from_secs(1)), Some(Duration::ZERO));
        assert!(is_contested(true, late, Some(&silent)));
        assert!(!is_contested(true, just_now, Some(&silent)), "the watch shows it only later");
        assert!(!is_contested(false, late, Some(&silent)), "they are right");
        assert!(!is_contested(true, late, Some(&up)) && !is_contested(true, late, None));
    }

    #[test]
    fn what_fails_is_tried_ever_more_seldom_but_every_minute() {
        let now = Instant::now();
        let mut failing = None;
        let mut rests = Vec::new();
        for _ in 0..8 {
            let again = Failing::again(failing.as_ref(), now);
            assert_eq!(again.until, now + again.rest);
            rests.push(again.rest.as_secs());
            failing = Some(again);
        }
        assert_eq!(rests, [1, 2, 4, 8, 16, 32, 60, 60]);
    }
}
