//! One peer: our namespaces over there, what their pods need, and the work on all copies.

mod follow;
mod sweep;
mod wanted;

use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use anyhow::Result;
use ferro_api::virtualkubelet::MappingPhase;
use ferro_core::reflection::travel::PodName;
use ferro_core::reflection::{Kind, Ledger, Step, Wish, step};
use ferro_peering::home::Home;
use ferro_runtime::queue::Queue;
use ferro_runtime::shutdown::Tasks;
use ferro_runtime::watch::Watched;
use k8s_openapi::api::core::v1::Pod;
use kube::Client;
use kube::api::DynamicObject;
use tracing::warn;

use super::addresses::{Addresses, User};
use super::hand::{Done, Hand};
use super::notices::{Notice, Told};
use super::recent::Recent;
use super::roads::Gate;
use super::source::Sources;
use super::target::Target;
use super::{Key, Reflection};
use crate::pods::outlook::{Outlook, Shared};

/// So many copies are worked on at once.
const AT_ONCE: usize = 16;
/// Pause after something that failed: first, and at most.
const RETRY: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(30));
/// Addresses that do not work yet are asked for again after so long.
const SOON: Duration = Duration::from_secs(1);
/// Whether a name is still taken is tried after so long.
const TAKEN: Duration = Duration::from_mins(1);

/// What a reflector is made of.
pub(crate) struct MadeOf<'a> {
    /// The node that stands for the peer, and the peer's identifier.
    pub(crate) node: &'a str,
    pub(crate) peer_id: &'a str,
    /// This cluster's identifier.
    pub(crate) own: &'a str,
    /// What the peer has granted us.
    pub(crate) remote: Client,
    /// The pods that run there.
    pub(crate) pods: Watched<Pod>,
}

/// One peer.
pub(crate) struct Reflector {
    tasks: Tasks,
    home: Home,
    own: String,
    node: String,
    remote: Client,
    sources: Arc<Sources>,
    outlook: RwLock<Shared>,
    targets: RwLock<HashMap<String, Arc<Target>>>,
    queue: Queue<Key>,
    /// Which configuration the pods over there refer to, as soon as all pods are known.
    needs: Mutex<Ledger<PodName, Key>>,
    knows_pods: AtomicBool,
    addresses: Arc<Addresses>,
    gate: Gate,
    recent: Mutex<Recent>,
    failures: Mutex<HashMap<Key, u32>>,
    told: Mutex<Told>,
    hand: Hand,
}

impl Reflector {
    /// Begins to reflect to a peer, as soon as it is told about its namespaces.
    pub(crate) fn start(tasks: &Tasks, home: &Home, shared: &Reflection, made_of: MadeOf<'_>) -> Arc<Self> {
        let reflector = Arc::new(Self {
            tasks: tasks.clone(),
            home: home.clone(),
            own: made_of.own.to_owned(),
            node: made_of.node.to_owned(),
            sources: Arc::clone(&shared.sources),
            outlook: RwLock::default(),
            targets: RwLock::default(),
            queue: Queue::default(),
            needs: Mutex::default(),
            knows_pods: AtomicBool::default(),
            addresses: Arc::new(Addresses::new(made_of.peer_id, shared.asked.clone())),
            gate: shared.roads.join(made_of.peer_id),
            recent: Mutex::default(),
            failures: Mutex::default(),
            told: Mutex::default(),
            hand: Hand::new(home.client.clone(), made_of.remote.clone(), made_of.own),
            remote: made_of.remote,
        });
        tasks.spawn("needs of pods", Arc::clone(&reflector).follow_pods(made_of.pods));
        tasks.spawn("addresses of endpoints", Arc::clone(&reflector).follow_addresses());
        tasks.spawn("leftover addresses", Arc::clone(&reflector).sweep());
        tasks.spawn("settings of reflection", Arc::clone(&reflector).follow_settings());
        let work = Arc::clone(&reflector);
        tasks.spawn("reflection", async move {
            work.queue.work(AT_ONCE, |key| work.look(key)).await;
            Ok(())
        });
        let work = Arc::clone(&reflector);
        tasks.spawn("pods of other peers", async move {
            work.gate.queue.work(AT_ONCE, |pod| work.name(pod)).await;
            Ok(())
        });
        reflector
    }

    /// What is known about the peer now.
    pub(crate) fn set(&self, outlook: Shared) {
        let before = {
            let mut shared = self.outlook.write().unwrap_or_else(PoisonError::into_inner);
            std::mem::replace(&mut *shared, outlook)
        };
        let present = self.outlook();
        self.furnish();
        if before.labels != present.labels || before.network != present.network {
            self.look_at_all();
        }
    }

    fn outlook(&self) -> Shared {
        Arc::clone(&self.outlook.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn target(&self, namespace: &str) -> Option<Arc<Target>> {
        self.targets.read().unwrap_or_else(PoisonError::into_inner).get(namespace).cloned()
    }

    fn recent(&self) -> MutexGuard<'_, Recent> {
        self.recent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn needs(&self) -> MutexGuard<'_, Ledger<PodName, Key>> {
        self.needs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The kinds that are reflected.
    fn kinds(&self) -> Vec<Kind> {
        let listed = self.home.settings().reflection().custom_resources;
        Kind::BUILT_IN.into_iter().chain(Kind::custom(listed)).collect()
    }

    /// Watches the namespaces that there are, and no others. Kinds that are listed no longer are still watched: their copies
    /// are taken back.
    fn furnish(&self) {
        let (outlook, listed) = (self.outlook(), self.kinds());
        let wanted = namespaces(&outlook);
        let mut targets = self.targets.write().unwrap_or_else(PoisonError::into_inner);
        targets.retain(|here, target| {
            let stays = wanted.get(here).is_some_and(|there| **there == target.there);
            if !stays {
                target.leave();
                self.abandon(here);
            }
            stays
        });
        for (here, there) in wanted {
            let present = targets.get(here);
            if present.is_some_and(|target| target.has(&listed)) {
                continue;
            }
            let kinds = united(&listed, present.into_iter().flat_map(|target| target.kinds()));
            let (tasks, source) = (self.tasks.child(), self.sources.get(here));
            let place = (here.as_str(), there.as_str());
            let target = Target::start(tasks, &self.remote, &self.own, place, source, &kinds, &self.queue);
            // One that watches fewer kinds goes when this one has begun, so that no change is missed.
            if let Some(former) = targets.insert(here.clone(), target) {
                former.leave();
            }
        }
    }

    /// What was in a namespace over there goes with it.
    fn abandon(&self, namespace: &str) {
        self.recent().forget(namespace);
        self.told.lock().unwrap_or_else(PoisonError::into_inner).leave(namespace);
        self.failures.lock().unwrap_or_else(PoisonError::into_inner).retain(|key, _| key.0 != namespace);
        let idle = self.addresses.leave(namespace);
        let (addresses, bells) = (Arc::clone(&self.addresses), self.bells());
        self.tasks.spawn("addresses of a namespace", async move {
            bells.ring(addresses.give_back(&idle).await);
            Ok(())
        });
    }

    fn look_at_all(&self) {
        let targets: Vec<(String, Arc<Target>)> = {
            let targets = self.targets.read().unwrap_or_else(PoisonError::into_inner);
            targets.iter().map(|(here, target)| (here.clone(), Arc::clone(target))).collect()
        };
        for (here, target) in targets {
            for kind in target.kinds() {
                for name in target.names(kind) {
                    self.queue.push((here.clone(), kind.clone(), name));
                }
            }
        }
    }

    /// Brings one copy nearer to how it should be.
    async fn look(&self, key: Key) -> Option<Duration> {
        match self.settle(&key).await {
            Ok(again) => {
                self.failures.lock().unwrap_or_else(PoisonError::into_inner).remove(&key);
                again
            }
            Err(error) => {
                let (namespace, kind, name) = &key;
                warn!(namespace, ?kind, name, error = format!("{error:#}"), "will be tried again");
                self.complain(&key, &error).await;
                Some(self.setback(&key))
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
        let Some(target) = self.target(&key.0) else {
            // Who was at work on it when the namespace went may have asked for addresses after that.
            self.keep(key, &BTreeSet::new()).await;
            return Ok(None);
        };
        if !self.is_ready(&target, &key.1) || is_superseded(&key.1, &self.kinds()) {
            return Ok(None);
        }
        let copy = target.copy(&key.1, &key.2);
        if let Some(wait) = self.recent().pending(key, copy.as_deref()) {
            return Ok(Some(wait));
        }
        let original = target.source.get(&key.1, &key.2);
        let mut wanted = self.wanted(&target, key, original.as_deref()).await;
        if wanted.is_blind {
            return Ok(Some(SOON));
        }
        let step = self.step(key, wanted.wish.as_ref(), copy.as_deref());
        let done = self.hand.perform(key, &target.there, step, wanted.wish.as_mut()).await?;
        let is_taken = matches!(done, Done::Taken);
        // No watch tells the end of one that it does not select.
        let is_cleared = matches!(done, Done::Deleted(_)) && wanted.wish.is_some();
        self.note(key, wanted.wish.as_ref(), done);
        self.keep(key, &wanted.endpoints).await;
        let taken = is_taken.then(|| Notice::taken(&key.1, &key.2, &self.node, &target.there));
        self.tell(key, original.as_deref(), taken.or(wanted.why_not)).await;
        let again = if is_taken { Some(TAKEN) } else { (wanted.is_waiting || is_cleared).then_some(SOON) };
        // Whoever looks next knows what has become of the namespace meanwhile.
        let is_present = self.target(&key.0).is_some_and(|present| Arc::ptr_eq(&present, &target));
        Ok(if is_present { again } else { Some(Duration::ZERO) })
    }

    /// A slice needs no addresses but those of these endpoints any more.
    async fn keep(&self, key: &Key, endpoints: &BTreeSet<IpAddr>) {
        if key.1 == Kind::EndpointSlice {
            let user = User::Slice(key.clone());
            self.bells().ring(self.addresses.keep(&user, endpoints).await);
        }
    }

    /// Whether all is known that decides about a kind: what is bulky goes where pods refer to it.
    fn is_ready(&self, target: &Target, kind: &Kind) -> bool {
        target.is_ready(kind) && (!kind.is_bulky() || self.knows_pods.load(Ordering::SeqCst))
    }

    fn step(&self, key: &Key, wish: Option<&Wish>, copy: Option<&DynamicObject>) -> Step {
        let made = wish.and_then(|wish| self.recent().made_of(key, wish.signature()));
        step(&self.own, wish, copy, made.as_deref())
    }

    fn note(&self, key: &Key, wish: Option<&Wish>, done: Done) {
        match (done, wish) {
            (Done::Put(answered), Some(wish)) => self.recent().put(key, wish, *answered),
            (Done::Deleted(uid), _) => self.recent().deleted(key, &uid),
            (Done::Nothing | Done::Taken | Done::Put(_), _) => {}
        }
    }

    /// What the other cluster does not allow is worth a word to whoever made the original.
    async fn complain(&self, key: &Key, error: &anyhow::Error) {
        let refusal = error.downcast_ref::<kube::Error>().and_then(|error| match error {
            kube::Error::Api(status) if matches!(status.code, 403 | 422) => Some(status.message.clone()),
            _ => None,
        });
        let (Some(refusal), Some(target)) = (refusal, self.target(&key.0)) else { return };
        let original = target.source.get(&key.1, &key.2);
        self.tell(key, original.as_deref(), Some(Notice::refused(&self.node, &refusal))).await;
    }

    /// Tells about an original what keeps it at home: the same once, however often it is looked at.
    async fn tell(&self, key: &Key, original: Option<&DynamicObject>, notice: Option<Notice>) {
        let told = || self.told.lock().unwrap_or_else(PoisonError::into_inner);
        let news = told().news(key, notice);
        if let (Some(notice), Some(original)) = (news, original)
            && !self.hand.tell(key, original, &notice).await
        {
            told().forget(key);
        }
    }
}

/// All kinds that are listed, and then those that are watched besides.
fn united<'a>(listed: &'a [Kind], watched: impl Iterator<Item = &'a Kind>) -> Vec<Kind> {
    let besides = watched.filter(|kind| !listed.contains(kind));
    listed.iter().chain(besides).cloned().collect()
}

/// Whether a kind is listed in another version only: its objects are the same ones, and that one decides about them.
fn is_superseded(kind: &Kind, listed: &[Kind]) -> bool {
    let Kind::Custom(former) = kind else { return false };
    let is_same = |one: &Kind| match one {
        Kind::Custom(one) => one.group == former.group && one.resource == former.resource,
        _ => false,
    };
    !listed.contains(kind) && listed.iter().any(is_same)
}

/// Our namespaces that exist over there: their names here, and there.
fn namespaces(outlook: &Outlook) -> HashMap<&String, &String> {
    let accepted = outlook.mappings.iter().filter(|(_, to)| to.phase == MappingPhase::Accepted);
    accepted.filter_map(|(here, to)| Some((here, to.remote_namespace.as_ref()?))).collect()
}

#[cfg(test)]
mod tests {
    use ferro_api::config::ReplicatedResource;

    use super::*;

    fn custom(resource: &str) -> Kind {
        let listed = ReplicatedResource { resource: resource.into(), ..ReplicatedResource::default() };
        Kind::Custom(Arc::new(listed))
    }

    #[test]
    fn of_two_versions_of_a_kind_the_one_that_is_listed_decides() {
        let of = |version: &str| {
            let (resource, version) = ("menus".to_owned(), version.to_owned());
            Kind::Custom(Arc::new(ReplicatedResource { resource, version, ..ReplicatedResource::default() }))
        };
        let listed = [Kind::Service, of("v1")];
        assert!(is_superseded(&of("v1beta1"), &listed));
        assert!(!is_superseded(&of("v1"), &listed));
        assert!(!is_superseded(&custom("plates"), &listed), "its copies are taken back");
        assert!(!is_superseded(&Kind::Service, &listed));
    }

    #[test]
    fn a_kind_that_takes_the_place_of_another_on_the_list_is_watched_beside_it() {
        let (former, present) = ([Kind::Service, custom("menus")], [Kind::Service, custom("plates")]);
        let expected = [Kind::Service, custom("plates"), custom("menus")];
        assert_eq!(united(&present, former.iter()), expected);
        assert_eq!(united(&present, expected.iter()).len(), expected.len(), "each once");
        assert_eq!(united(&present, [].iter()), present);
    }
}
