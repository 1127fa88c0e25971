//! Our namespaces on a peer, as far as claims are concerned: watched from the time on when there is a claim of ours.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use ferro_runtime::shutdown::Tasks;
use ferro_runtime::watch::{Limit, Watched};
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::runtime::watcher;
use kube::{Api, Client, ResourceExt as _};

use crate::pods::Way;

/// The most claims that a cluster shows us in one namespace.
const MOST: usize = 20_000;
/// The most text that a claim's labels and annotations may have.
const LARGEST: usize = 300 * 1024;
/// So many are read at once, so that an answer of a peer is not too long: a claim may have ten times its usual 4 KiB.
const PAGE: u32 = 100;

/// A namespace over there.
pub(super) struct Room {
    tasks: Tasks,
    way: Way,
    pub(super) there: String,
    pub(super) claims: Watched<PersistentVolumeClaim>,
}

impl Room {
    pub(super) fn client(&self) -> Client {
        self.way.client()
    }

    fn leave(&self) {
        self.tasks.dismiss();
    }
}

/// Who is told the name of a claim over there that has changed, or that all may have, and of the namespace here.
pub(super) type Ring = Arc<dyn Fn(&str, Option<&str>) + Send + Sync>;

/// Those that are watched, by their names here.
pub(super) struct Rooms {
    tasks: Tasks,
    ring: Ring,
    all: Mutex<HashMap<String, Arc<Room>>>,
}

impl Rooms {
    pub(super) fn new(tasks: &Tasks, ring: Ring) -> Self {
        Self { tasks: tasks.clone(), ring, all: Mutex::default() }
    }

    /// The one that stands for this namespace, by this way; watched from now on.
    pub(super) fn get(&self, way: &Way, here: &str, there: &str) -> Arc<Room> {
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(room) = all.get(here) {
            if room.there == there && room.way.is(way) && !room.tasks.have_ended() {
                return Arc::clone(room);
            }
            room.leave();
        }
        let room = Arc::new(self.start(way, here, there));
        all.insert(here.to_owned(), Arc::clone(&room));
        room
    }

    /// Lets go of those that are not reached by this way, or whose name over there is another one now: what is watched by a
    /// way that has ended is tried for ever, and keeps all that belongs to that way.
    pub(super) fn retain(&self, way: Option<&Way>, there: impl Fn(&str) -> Option<String>) {
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|here, room| {
            let is_reached = way.is_some_and(|way| room.way.is(way));
            let stays = is_reached && there(here).is_some_and(|there| there == room.there);
            if !stays {
                room.leave();
            }
            stays
        });
    }

    fn start(&self, way: &Way, here: &str, there: &str) -> Room {
        let tasks = self.tasks.child();
        // Also those that are not from here: a name that is taken is taken.
        let api = Api::namespaced(way.client(), there);
        let limit =
            Limit { most: MOST, fits: |claim: &PersistentVolumeClaim| size(claim) <= LARGEST, ..Limit::NONE };
        let all = watcher::Config::default().page_size(PAGE);
        let claims = Watched::start_limited(&tasks, "claims over there", api, all, (), limit);
        let (mut changes, ring, here) = (claims.follow(), Arc::clone(&self.ring), here.to_owned());
        let complete = claims.clone();
        tasks.spawn("changes of claims over there", async move {
            complete.ready().await?;
            // That there is nothing of a claim is news as well.
            ring(&here, None);
            loop {
                for (reference, _) in changes.take() {
                    ring(&here, Some(&reference.name));
                }
                changes.changed().await?;
            }
        });
        Room { tasks, way: way.clone(), there: there.to_owned(), claims }
    }
}

fn size(claim: &PersistentVolumeClaim) -> usize {
    let texts = claim.labels().iter().chain(claim.annotations());
    texts.map(|(key, value)| key.len() + value.len()).sum()
}
