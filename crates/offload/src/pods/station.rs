//! One virtual node: the pods that are bound to it, its namespaces over there, and the work on both.

mod silence;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use ferro_api::offloading::NamespaceOffloading;
use ferro_api::virtualkubelet::MappingPhase;
use ferro_core::admission::{Place, admits};
use ferro_core::offloading::{OFFLOADING, Standing, standing};
use ferro_core::pods::Refusal;
use ferro_core::pods::home::{Plan, Snapshot, Write, lodges, plan};
use ferro_core::usage::Lodger;
use ferro_peering::home::Home;
use ferro_peering::keepsake::Keepsake;
use ferro_peering::remote;
use ferro_runtime::queue::Queue;
use ferro_runtime::shutdown::Tasks;
use ferro_runtime::watch::Watched;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;
use kube::runtime::watcher;
use kube::{Api, Client, ResourceExt as _};
use tracing::{debug, warn};

use super::Around;
use super::claims::Claims;
use super::hand::{Desk, Hand};
use super::lodgers::Lodgers;
use super::outlook::{Outlook, Shared};
use super::room::{Room, follow, is_clear};
use super::setbacks::Setbacks;
use crate::kubelet::{Site, Target};
use crate::reflection::{self, Reflector};
use crate::tokens::{Kept, Place as Beside, Tokens};

/// A pod: its namespace here, and its name.
pub(super) type Key = (String, String);

/// So many pods of one node are worked on at once.
const AT_ONCE: usize = 16;
/// A pod is settled in fewer rounds than this; one that is not shall not keep API servers busy.
const MOST_ROUNDS: usize = 8;
/// Pause after something that failed: first, and at most.
const RETRY: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(30));
/// A pod that may not begin, because its namespace is about to go, is looked at again after so long.
const CLOSED: Duration = Duration::from_millis(500);
/// A namespace that is to go is looked into again after so long: as something was found there, and as nobody could look.
const FOUND: Duration = Duration::from_secs(1);
const BLIND: Duration = Duration::from_secs(5);
/// So many are looked into at once.
const LOOKED_INTO: usize = 4;
/// Changes that come together are looked at together.
const GATHER: Duration = Duration::from_millis(20);

/// What a station is made of: when this changes, another one is needed.
#[derive(Clone, PartialEq)]
pub(super) struct MadeOf {
    pub(super) node: String,
    pub(super) peer_id: String,
    pub(super) keepsake: Arc<Keepsake>,
}

/// A virtual node.
pub(super) struct Station {
    made_of: MadeOf,
    own: String,
    home: Home,
    offloadings: Watched<NamespaceOffloading>,
    claims: Claims,
    tokens: Tokens,
    /// To the API server of the peer, as long as it lets us in.
    remote: Option<Client>,
    /// What goes there beside pods.
    reflector: Option<Arc<Reflector>>,
    pods: Watched<Pod>,
    rooms: RwLock<HashMap<String, Arc<Room>>>,
    outlook: RwLock<Shared>,
    queue: Queue<Key>,
    /// Pods that are to show that they cannot be reached.
    silenced: Queue<Key>,
    setbacks: Mutex<Setbacks>,
    lodgers: Lodgers,
    failures: Mutex<HashMap<Key, u32>>,
    hand: Hand,
    tasks: Tasks,
}

impl Station {
    /// Begins to look after the pods of a node.
    pub(super) fn start(
        tasks: &Tasks,
        home: &Home,
        around: &Around,
        own: &str,
        made_of: MadeOf,
        lodgers: Lodgers,
    ) -> Result<Arc<Self>> {
        let remote = remote::client(&made_of.keepsake)?.map(|(client, _)| match &home.between {
            Some(between) => between(client),
            None => client,
        });
        let bound = watcher::Config::default().fields(&format!("spec.nodeName={}", made_of.node));
        let pods = Watched::start(tasks, "pods of a virtual node", Api::all(home.client.clone()), bound);
        let queue = Queue::default();
        follow(tasks, "changes of pods", "", &pods, &queue);
        let claims = Claims::follow(tasks, around.ledger.clone(), &queue);
        let tokens = Tokens::start(tasks, home, &around.issuer, own, &made_of.peer_id, &queue);
        let reflector = remote.clone().map(|remote| {
            let MadeOf { node, peer_id, .. } = &made_of;
            let made_of = reflection::MadeOf { node, peer_id, own, remote, pods: pods.clone() };
            Reflector::start(tasks, home, &around.reflection, made_of)
        });
        let station = Arc::new(Self {
            outlook: RwLock::new(Arc::new(Outlook::gather(home, own, &made_of.node, &made_of.peer_id))),
            made_of,
            own: own.to_owned(),
            home: home.clone(),
            offloadings: around.offloadings.clone(),
            claims,
            tokens,
            remote,
            reflector,
            pods,
            rooms: RwLock::default(),
            queue,
            silenced: Queue::default(),
            setbacks: Mutex::default(),
            lodgers,
            failures: Mutex::default(),
            hand: Hand::new(home.client.clone()),
            tasks: tasks.clone(),
        });
        tasks.spawn("outlook of a virtual node", Arc::clone(&station).keep_watch());
        tasks.spawn("work of a virtual node", Arc::clone(&station).work());
        tasks.spawn("pods that cannot be reached", Arc::clone(&station).work_on_silence());
        tasks.spawn("namespaces without pods", Arc::clone(&station).watch_deserted());
        Ok(station)
    }

    /// A pod of this node, and where it runs.
    pub(super) fn target(&self, namespace: &str, pod: &str) -> Option<Target> {
        let here = self.pods.get(Some(namespace), pod)?;
        Some(Target {
            node: self.made_of.node.clone(),
            uid: here.uid()?,
            keepsake: Arc::clone(&self.made_of.keepsake),
            namespace: self.room(namespace).map(|room| room.there.clone()),
            pod: pod.to_owned(),
            here,
        })
    }

    /// Whether all its pods are known.
    pub(super) fn has_listed(&self) -> bool {
        self.pods.is_ready()
    }

    pub(super) fn peer(&self) -> &str {
        &self.made_of.peer_id
    }

    pub(super) fn remote(&self) -> Option<&Client> {
        self.remote.as_ref()
    }

    /// The pods of this node that run, and their cluster.
    pub(super) fn site(&self) -> Site {
        let lodger = |pod: &Arc<Pod>| Lodger::of(pod, &self.room(pod.namespace()?.as_str())?.there);
        Site { client: self.remote.clone(), lodgers: self.pods.all().iter().filter_map(lodger).collect() }
    }

    fn room(&self, namespace: &str) -> Option<Arc<Room>> {
        self.rooms.read().unwrap_or_else(PoisonError::into_inner).get(namespace).cloned()
    }

    fn outlook(&self) -> Shared {
        Arc::clone(&self.outlook.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Follows what is known about the peer: its namespaces are watched, and all pods are looked at when it matters.
    async fn keep_watch(self: Arc<Self>) -> Result<()> {
        let mut home = self.home.clone();
        let mut offloadings = self.offloadings.clone();
        loop {
            let present =
                Arc::new(Outlook::gather(&home, &self.own, &self.made_of.node, &self.made_of.peer_id));
            let before = self.outlook();
            let is_news = *before != *present;
            *self.outlook.write().unwrap_or_else(PoisonError::into_inner) = Arc::clone(&present);
            self.show_silence(&before, &present);
            let has_moved = self.furnish(&present);
            if let Some(reflector) = &self.reflector {
                reflector.set(Arc::clone(&present));
            }
            if is_news || has_moved {
                self.look_at_all();
            }
            tokio::select! {
                changed = home.nodes.changed() => changed?,
                changed = home.maps.changed() => changed?,
                changed = home.peers.changed() => changed?,
                changed = home.config.changed() => changed?,
                changed = home.networks.tunnels.changed() => changed?,
                changed = offloadings.changed() => {
                    changed?;
                    self.look_at_all();
                }
            }
            tokio::time::sleep(GATHER).await;
        }
    }

    fn look_at_all(&self) {
        for pod in self.pods.all() {
            self.queue.push(key(&pod));
        }
        self.lodgers.look_at_deserted();
    }

    /// Watches the namespaces that there are, and no others. Whether these are different ones now.
    fn furnish(&self, outlook: &Outlook) -> bool {
        let Some(remote) = &self.remote else { return false };
        let mut rooms = self.rooms.write().unwrap_or_else(PoisonError::into_inner);
        let before = rooms.len();
        let wanted: HashMap<&String, &str> = outlook.namespaces().collect();
        rooms.retain(|here, room| {
            let stays = wanted.get(here).is_some_and(|there| *there == room.there);
            if !stays {
                room.leave();
            }
            stays
        });
        let mut has_moved = rooms.len() != before;
        for (here, there) in wanted {
            if rooms.contains_key(here) {
                continue;
            }
            let (tasks, pods, queue) = (self.tasks.child(), self.pods.clone(), self.queue.clone());
            let room = Room::start(tasks, remote.clone(), &self.own, (here, there), pods, queue);
            rooms.insert(here.clone(), room);
            has_moved = true;
        }
        has_moved
    }

    async fn work(self: Arc<Self>) -> Result<()> {
        self.pods.ready().await?;
        let outlook = self.outlook();
        let namespaces = outlook.namespaces().map(|(here, _)| here.clone());
        self.lodgers.expect(self.pods.all().iter().map(|pod| key(pod)), namespaces);
        self.queue.work(AT_ONCE, |key| self.look(key)).await;
        Ok(())
    }

    async fn watch_deserted(self: Arc<Self>) -> Result<()> {
        self.lodgers.deserted().work(LOOKED_INTO, |namespace| self.look_into(namespace)).await;
        Ok(())
    }

    /// Looks whether anything is left in a namespace that no pod is known of any more, if it is to go.
    async fn look_into(&self, namespace: String) -> Option<Duration> {
        let departed = self.lodgers.departed(&namespace)?;
        let offloading = self.offloadings.get(Some(&namespace), OFFLOADING);
        let outlook = self.outlook();
        let mapping = outlook.mappings.get(&namespace).filter(|map| map.phase == MappingPhase::Accepted);
        let there = mapping.and(outlook.namespace(&namespace));
        let is_clear = match there {
            // There is none, or who has it removes it already.
            None => Ok(true),
            Some(_) if standing(offloading.as_deref(), self.peer()) == Standing::Wanted => return None,
            Some(there) => self.is_clear(there).await,
        };
        match is_clear {
            Ok(true) => self.lodgers.leave(&namespace, departed),
            Ok(false) => return Some(FOUND),
            Err(error) => {
                debug!(namespace, error = format!("{error:#}"), "it is not known whether anything is left");
                return Some(BLIND);
            }
        }
        None
    }

    async fn is_clear(&self, there: &str) -> Result<bool> {
        let remote = self.remote.as_ref().context("the peer does not let us in")?;
        is_clear(remote, &self.own, there).await
    }

    /// Brings one pod nearer to how it should be, until nothing is left to be done now.
    async fn look(&self, key: Key) -> Option<Duration> {
        match self.settle(&key).await {
            Ok(again) => {
                self.failures.lock().unwrap_or_else(PoisonError::into_inner).remove(&key);
                again
            }
            Err(error) => {
                let pause = self.setback(&key);
                let (namespace, pod) = &key;
                warn!(namespace, pod, error = format!("{error:#}"), "will be tried again");
                Some(pause)
            }
        }
    }

    fn setback(&self, key: &Key) -> Duration {
        let mut failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        let count = failures.entry(key.clone()).or_insert(0);
        let (first, most) = RETRY;
        let pause = first.saturating_mul(2_u32.saturating_pow(*count)).min(most);
        *count = count.saturating_add(1);
        pause
    }

    async fn settle(&self, key: &Key) -> Result<Option<Duration>> {
        let room = self.room(&key.0);
        for _ in 0..MOST_ROUNDS {
            let pod = self.pods.get(Some(&key.0), &key.1);
            match pod.as_deref().map(|pod| self.claims.delay(pod)) {
                Some(Some(pause)) => return Ok(Some(pause)),
                Some(None) => {}
                None => self.claims.forget_pod(key),
            }
            let check_in = |snapshot: &Snapshot<'_>| self.check_in(key, snapshot);
            let plan = self.decide(pod.as_deref(), room.as_deref(), key, check_in);
            let begins = plan.begins();
            let kept = if begins || plan.writes.is_empty() {
                self.keep_tokens(pod.as_deref(), room.as_deref(), key, begins).await?
            } else {
                Kept::Until(None)
            };
            match kept {
                Kept::NotYet => return Ok(plan.again),
                Kept::Until(renewal) if plan.writes.is_empty() => {
                    return Ok(plan.again.into_iter().chain(renewal).min());
                }
                Kept::Until(_) => {}
            }
            let desk = self.desk(key, pod.as_deref(), room.as_deref());
            for write in &plan.writes {
                debug!(namespace = key.0, pod = key.1, ?write, "writes");
                self.hand.perform(&desk, write).await?;
                self.note(write, pod.as_deref());
            }
        }
        bail!("this is never settled")
    }

    /// The tokens of a pod are there before its ShadowPod is, and go after it.
    async fn keep_tokens(
        &self,
        pod: Option<&Pod>,
        room: Option<&Room>,
        key: &Key,
        begins: bool,
    ) -> Result<Kept> {
        let nothing = Kept::Until(None);
        let (Some(room), Some(remote)) = (room, &self.remote) else { return Ok(nothing) };
        let Some(secrets) = room.tokens(pod.is_some_and(Tokens::are_wanted)) else { return Ok(nothing) };
        let place = Beside { namespace: &room.there, secrets, remote };
        let shadow = room.shadows.get(Some(&room.there), &key.1);
        if begins || pod.is_none() {
            place.clear(&key.1, pod, shadow.as_deref()).await?;
        }
        match pod.filter(|_| begins || shadow.is_some()) {
            Some(pod) => self.tokens.keep(pod, &place).await,
            None => Ok(nothing),
        }
    }

    fn desk<'a>(&'a self, key: &'a Key, pod: Option<&'a Pod>, room: Option<&'a Room>) -> Desk<'a> {
        Desk { own: &self.own, key, pod, pods: &self.pods, room, remote: self.remote.as_ref() }
    }

    /// What follows from all that is known of a pod now.
    fn decide(
        &self,
        pod: Option<&Pod>,
        room: Option<&Room>,
        key: &Key,
        decision: impl FnOnce(&Snapshot<'_>) -> Plan,
    ) -> Plan {
        let outlook = self.outlook();
        let shadow = room.and_then(|room| room.shadows.get(Some(&room.there), &key.1));
        if let Some(room) = room.filter(|_| pod.is_some() || shadow.is_some()) {
            room.open(&self.home.client);
        }
        let pods = room.and_then(Room::pods);
        let remote = room.zip(pods).and_then(|(room, pods)| pods.get(Some(&room.there), &key.1));
        let is_near = room.zip(pods).is_some_and(|(room, pods)| room.shadows.is_ready() && pods.is_ready());
        let offloading = self.offloadings.get(Some(&key.0), OFFLOADING);
        let view = |ip| outlook.network.view(ip);
        let access = pod.map(|pod| self.tokens.access(pod)).unwrap_or_default();
        let pause = pod.map_or(Duration::ZERO, |pod| {
            self.setbacks.lock().unwrap_or_else(PoisonError::into_inner).pause(pod)
        });
        let snapshot = Snapshot {
            home: &self.own,
            pod,
            shadow: shadow.as_deref(),
            remote: remote.as_deref(),
            namespace: outlook.namespace(&key.0),
            admitted: self.admits(pod, offloading.as_deref(), &outlook),
            access: &access,
            standing: standing(offloading.as_deref(), &self.made_of.peer_id),
            is_near,
            tunnel_is_up: outlook.tunnel_is_up,
            view: &view,
            host_ip: outlook.host_ip,
            drain_delay: outlook.drain_delay,
            pause,
            now: Timestamp::now(),
        };
        decision(&snapshot)
    }

    /// What to do about a pod, once it is noted down whether anything of it is over there, or is about to be.
    fn check_in(&self, key: &Key, snapshot: &Snapshot<'_>) -> Plan {
        let plan = plan(snapshot);
        if !plan.begins() {
            self.lodgers.set(key, lodges(snapshot));
        } else if !self.lodgers.begin(key) {
            return Plan { again: Some(CLOSED), ..Plan::default() };
        }
        plan
    }

    fn admits(
        &self,
        pod: Option<&Pod>,
        offloading: Option<&NamespaceOffloading>,
        outlook: &Outlook,
    ) -> Result<(), Refusal> {
        let Some(pod) = pod else { return Ok(()) };
        let namespace = pod.namespace().unwrap_or_default();
        let node = Place { name: &self.made_of.node, labels: &outlook.labels };
        admits(pod, offloading, outlook.mappings.get(&namespace), node)?;
        self.claims.admit(pod, &self.made_of.peer_id)
    }

    /// Whose pods had no room over there waits longer the next time.
    fn note(&self, write: &Write, pod: Option<&Pod>) {
        if let (Write::Show(status), Some(pod)) = (write, pod)
            && status.pointer("/status/phase").and_then(|phase| phase.as_str()) == Some("Failed")
        {
            self.setbacks.lock().unwrap_or_else(PoisonError::into_inner).note(pod);
        }
    }
}

fn key(pod: &Pod) -> Key {
    (pod.namespace().unwrap_or_default(), pod.name_any())
}
