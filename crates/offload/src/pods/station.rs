//! One virtual node: the pods that are bound to it, its namespaces over there, and the work on both.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use anyhow::{Result, bail};
use ferro_api::offloading::NamespaceOffloading;
use ferro_core::admission::{Place, admits};
use ferro_core::pods::Refusal;
use ferro_core::pods::home::{Plan, Snapshot, Write, plan};
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

use super::events;
use super::hand::{Desk, Hand};
use super::outlook::{Outlook, Shared};
use super::room::{Room, follow};
use super::setbacks::Setbacks;
use crate::kubelet::Target;

/// A pod: its namespace here, and its name.
pub(super) type Key = (String, String);

/// So many pods of one node are worked on at once.
const AT_ONCE: usize = 16;
/// A pod is settled in fewer rounds than this; one that is not shall not keep API servers busy.
const MOST_ROUNDS: usize = 8;
/// Pause after something that failed: first, and at most.
const RETRY: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(30));
/// Changes that come together are looked at together.
const GATHER: Duration = Duration::from_millis(20);
/// The one offloading that a namespace can have.
const OFFLOADING: &str = "offloading";

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
    /// To the API server of the peer, as long as it lets us in.
    remote: Option<Client>,
    pods: Watched<Pod>,
    rooms: RwLock<HashMap<String, Arc<Room>>>,
    outlook: RwLock<Shared>,
    queue: Queue<Key>,
    setbacks: Mutex<Setbacks>,
    failures: Mutex<HashMap<Key, u32>>,
    hand: Hand,
    tasks: Tasks,
}

impl Station {
    /// Begins to look after the pods of a node.
    pub(super) fn start(
        tasks: &Tasks,
        home: &Home,
        offloadings: Watched<NamespaceOffloading>,
        own: &str,
        made_of: MadeOf,
    ) -> Result<Arc<Self>> {
        let remote = remote::client(&made_of.keepsake)?.map(|(client, _)| client);
        let bound = watcher::Config::default().fields(&format!("spec.nodeName={}", made_of.node));
        let pods = Watched::start(tasks, "pods of a virtual node", Api::all(home.client.clone()), bound);
        let queue = Queue::default();
        follow(tasks, "changes of pods", "", &pods, &queue);
        let station = Arc::new(Self {
            outlook: RwLock::new(Arc::new(Outlook::gather(home, own, &made_of.node, &made_of.peer_id))),
            made_of,
            own: own.to_owned(),
            home: home.clone(),
            offloadings,
            remote,
            pods,
            rooms: RwLock::default(),
            queue,
            setbacks: Mutex::default(),
            failures: Mutex::default(),
            hand: Hand::new(home.client.clone()),
            tasks: tasks.clone(),
        });
        tasks.spawn("outlook of a virtual node", Arc::clone(&station).keep_watch());
        tasks.spawn("work of a virtual node", Arc::clone(&station).work());
        Ok(station)
    }

    /// Where a pod of this node runs.
    pub(super) fn target(&self, namespace: &str, pod: &str) -> Option<Target> {
        let found = self.pods.get(Some(namespace), pod)?;
        let room = self.room(namespace)?;
        Some(Target {
            node: self.made_of.node.clone(),
            uid: found.uid()?,
            keepsake: Arc::clone(&self.made_of.keepsake),
            namespace: room.there.clone(),
            pod: pod.to_owned(),
        })
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
            let is_news = *self.outlook() != *present;
            *self.outlook.write().unwrap_or_else(PoisonError::into_inner) = Arc::clone(&present);
            let has_moved = self.furnish(&present);
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
            if !rooms.contains_key(here) {
                let (tasks, pods, queue) = (self.tasks.child(), self.pods.clone(), self.queue.clone());
                let room = Room::start(tasks, remote.clone(), &self.own, (here, there), pods, queue);
                rooms.insert(here.clone(), room);
                has_moved = true;
            }
        }
        has_moved
    }

    async fn work(self: Arc<Self>) -> Result<()> {
        self.pods.ready().await?;
        self.queue.work(AT_ONCE, |key| self.look(key)).await;
        Ok(())
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
            let plan = self.plan(pod.as_deref(), room.as_deref(), key);
            if plan.writes.is_empty() {
                return Ok(plan.again);
            }
            let desk = Desk {
                key,
                pod: pod.as_deref(),
                pods: &self.pods,
                room: room.as_deref(),
                remote: self.remote.as_ref(),
            };
            for write in &plan.writes {
                debug!(namespace = key.0, pod = key.1, ?write, "writes");
                self.hand.perform(&desk, write).await?;
                self.note(write, pod.as_deref());
            }
        }
        bail!("this is never settled")
    }

    fn plan(&self, pod: Option<&Pod>, room: Option<&Room>, key: &Key) -> Plan {
        let outlook = self.outlook();
        let shadow = room.and_then(|room| room.shadows.get(Some(&room.there), &key.1));
        if let Some(room) = room.filter(|room| !room.is_open() && (pod.is_some() || shadow.is_some())) {
            events::copy(&self.tasks, &self.home.client, room, &key.0, &self.pods);
        }
        let open = room.filter(|room| room.is_open()).map(Room::open);
        let remote = room.zip(open).and_then(|(room, open)| open.pods.get(Some(&room.there), &key.1));
        let is_near =
            room.zip(open).is_some_and(|(room, open)| room.shadows.is_ready() && open.pods.is_ready());
        let view = |ip| outlook.network.view(ip);
        let pause = pod.map_or(Duration::ZERO, |pod| {
            self.setbacks.lock().unwrap_or_else(PoisonError::into_inner).pause(pod)
        });
        plan(&Snapshot {
            home: &self.own,
            pod,
            shadow: shadow.as_deref(),
            remote: remote.as_deref(),
            namespace: outlook.namespace(&key.0),
            admitted: self.admits(pod, &outlook),
            is_near,
            tunnel_is_up: outlook.tunnel_is_up,
            view: &view,
            host_ip: outlook.host_ip,
            drain_delay: outlook.drain_delay,
            pause,
            now: Timestamp::now(),
        })
    }

    fn admits(&self, pod: Option<&Pod>, outlook: &Outlook) -> Result<(), Refusal> {
        let Some(pod) = pod else { return Ok(()) };
        let namespace = pod.namespace().unwrap_or_default();
        let offloading = self.offloadings.get(Some(&namespace), OFFLOADING);
        let node = Place { name: &self.made_of.node, labels: &outlook.labels };
        admits(pod, offloading.as_deref(), outlook.mappings.get(&namespace), node).map_err(Refusal::from)
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
