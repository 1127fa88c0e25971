//! The gateways that follow: each gets all that is in force, then every change, and says how far it has come.
//!
//! A follower that is too slow is cut off: it comes again and gets everything anew, instead of holding up the others or
//! filling the memory.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::Result;
use ferro_api::proto::gateway::{Acknowledged, Change, Entry as Told};
use ferro_core::network::layout::Layout;
use ferro_core::network::{Board, Delta, Entry, Turn};
use tokio::sync::{mpsc, watch};
use tracing::{info, warn};

use super::{Trouble, nonce};

/// Changes that a follower may be behind.
const BEHIND: usize = 256;
/// Followers at once: one active gateway, one passive, and some that come again before they are missed.
const MOST: usize = 16;
/// How long a caller waits for the gateways.
const PATIENCE: Duration = Duration::from_secs(2);

/// A sheet of a peer.
pub(super) type SheetOf = (String, u32);

/// How far each follower has come.
type Progress = BTreeMap<u64, u64>;

/// All followers, and what they follow.
#[derive(Clone, Debug)]
pub(super) struct Followers {
    epoch: Arc<str>,
    desk: Arc<Mutex<Desk>>,
    progress: Arc<watch::Sender<Progress>>,
    /// How often sheets have changed, for who writes them into the API.
    changed: Arc<watch::Sender<u64>>,
}

#[derive(Debug, Default)]
struct Desk {
    board: Board,
    revision: u64,
    channels: BTreeMap<u64, mpsc::Sender<Change>>,
    next: u64,
    changed: BTreeSet<SheetOf>,
}

/// A follower's place, which it leaves when this is dropped.
#[derive(Debug)]
pub(super) struct Place {
    number: u64,
    followers: Followers,
}

impl Followers {
    pub(super) fn new() -> Result<Self> {
        Ok(Self {
            epoch: nonce()?.into(),
            desk: Arc::new(Mutex::new(Desk { revision: 1, ..Desk::default() })),
            progress: Arc::new(watch::channel(Progress::new()).0),
            changed: Arc::new(watch::channel(0).0),
        })
    }

    /// The revision of what was told last.
    pub(super) fn revision(&self) -> u64 {
        self.desk().revision
    }

    /// Follows a turn that was stored.
    pub(super) fn follow(&self, turn: &Turn, layout: &Layout) {
        let mut desk = self.desk();
        let (delta, mut sheets) = desk.board.follow(turn, layout);
        let (before, after) = (turn.before().peers(), turn.after().peers());
        let other = |peer: &&String| before.contains_key(*peer) != after.contains_key(*peer);
        // The first sheet of a peer is there as long as the peer is.
        sheets.extend(before.keys().chain(after.keys()).filter(other).map(|peer| (peer.clone(), 0)));
        self.tell(&mut desk, delta);
        drop(desk);
        self.touch(sheets);
    }

    /// Takes over what others wrote.
    pub(super) fn set_others(&self, others: &BTreeMap<String, BTreeMap<std::net::IpAddr, std::net::IpAddr>>) {
        let mut desk = self.desk();
        let delta = desk.board.set_others(others);
        self.tell(&mut desk, delta);
    }

    fn tell(&self, desk: &mut Desk, delta: Delta) {
        if delta.is_empty() {
            return;
        }
        desk.revision += 1;
        let change = self.change(desk.revision, false, delta);
        desk.channels.retain(|number, channel| {
            let is_told = channel.try_send(change.clone()).is_ok();
            if !is_told {
                warn!(follower = number, "a gateway does not keep up and is cut off; it will come again");
                self.progress.send_modify(|progress| _ = progress.remove(number));
            }
            is_told
        });
    }

    fn change(&self, revision: u64, whole: bool, delta: Delta) -> Change {
        let told = |entries: Vec<Entry>| entries.into_iter().map(told).collect();
        let (set, removed) = (told(delta.set), told(delta.removed));
        Change { epoch: self.epoch.to_string(), revision, whole, set, removed }
    }

    /// Lets one more follow, unless there are too many; the first change that it gets is everything.
    pub(super) fn join(&self) -> Option<(Place, mpsc::Receiver<Change>)> {
        let mut desk = self.desk();
        desk.channels.retain(|_, channel| !channel.is_closed());
        if desk.channels.len() >= MOST {
            return None;
        }
        let (channel, changes) = mpsc::channel(BEHIND);
        let all = Delta { set: desk.board.in_force().collect(), removed: Vec::new() };
        // A new channel has room.
        _ = channel.try_send(self.change(desk.revision, true, all));
        desk.next += 1;
        let number = desk.next;
        desk.channels.insert(number, channel);
        self.progress.send_modify(|progress| _ = progress.insert(number, 0));
        info!(follower = number, "a gateway follows");
        Some((Place { number, followers: self.clone() }, changes))
    }

    /// Waits until all who follow now, and at least one, have this revision in force.
    pub(super) async fn acknowledged(&self, revision: u64) -> Result<(), Trouble> {
        let mut progress = self.progress.subscribe();
        let present: BTreeSet<u64> = progress.borrow().keys().copied().collect();
        let reached = progress.wait_for(|progress| is_in_force(progress, &present, revision));
        match tokio::time::timeout(PATIENCE, reached).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(_)) | Err(_) if present.is_empty() => {
                Err(Trouble::NotYet("it is stored, but no gateway is connected".into()))
            }
            Ok(Err(_)) | Err(_) => {
                Err(Trouble::NotYet("it is stored, but the gateway has not confirmed it".into()))
            }
        }
    }

    /// Marks sheets to be looked at.
    pub(super) fn touch(&self, sheets: BTreeSet<SheetOf>) {
        if !sheets.is_empty() {
            self.desk().changed.extend(sheets);
            self.changed.send_modify(|count| *count += 1);
        }
    }

    /// The sheets to be looked at, once; and how to hear of more.
    pub(super) fn take_touched(&self) -> BTreeSet<SheetOf> {
        std::mem::take(&mut self.desk().changed)
    }

    pub(super) fn touched(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// The address manager's own entries on a sheet.
    pub(super) fn own(&self, sheet: &SheetOf) -> BTreeMap<std::net::IpAddr, std::net::IpAddr> {
        self.desk().board.own(&sheet.0, sheet.1)
    }

    /// All sheets with something on them.
    pub(super) fn sheets(&self) -> BTreeSet<SheetOf> {
        self.desk().board.sheets()
    }

    fn desk(&self) -> MutexGuard<'_, Desk> {
        self.desk.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Place {
    /// The follower says how far it has come; of another epoch it is not believed.
    pub(super) fn acknowledge(&self, said: &Acknowledged) {
        if *said.epoch != *self.followers.epoch || said.revision > self.followers.revision() {
            return;
        }
        self.followers.progress.send_if_modified(|progress| match progress.get_mut(&self.number) {
            Some(reached) if *reached < said.revision => {
                *reached = said.revision;
                true
            }
            Some(_) | None => false,
        });
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.followers.desk().channels.remove(&self.number);
        self.followers.progress.send_modify(|progress| _ = progress.remove(&self.number));
    }
}

fn told(entry: Entry) -> Told {
    Told { cluster_id: entry.peer, endpoint: entry.endpoint.to_string(), address: entry.address.to_string() }
}

/// Whether all of those who were present, as far as they still are, and at least one, have come so far.
fn is_in_force(progress: &Progress, present: &BTreeSet<u64>, revision: u64) -> bool {
    let is_behind = |number: &u64| progress.get(number).is_some_and(|reached| *reached < revision);
    progress.values().any(|reached| *reached >= revision) && !present.iter().any(is_behind)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn others(host: u8) -> BTreeMap<String, BTreeMap<std::net::IpAddr, std::net::IpAddr>> {
        let entry = ([1, 1, 1, host].into(), [192, 168, 9, host].into());
        [("a".to_owned(), [entry].into())].into()
    }

    #[test]
    fn all_who_were_there_count_and_one_is_needed() {
        let both = BTreeSet::from([1, 2]);
        for (progress, is_enough) in [
            (&[(1, 5), (2, 5)][..], true),
            (&[(1, 5), (2, 4)], false),
            (&[(1, 5)], true),
            (&[], false),
            (&[(3, 5)], true),
            (&[(1, 5), (2, 6), (3, 0)], true),
        ] {
            let progress: Progress = progress.iter().copied().collect();
            assert_eq!(is_in_force(&progress, &both, 5), is_enough, "{progress:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_caller_waits_for_the_gateway_and_not_for_ever() {
        let followers = Followers::new().unwrap();
        let nobody = followers.acknowledged(1).await.unwrap_err().to_string();
        assert!(nobody.contains("no gateway is connected") && nobody.contains("ask again"), "{nobody}");
        let (place, mut changes) = followers.join().unwrap();
        let whole = changes.recv().await.unwrap();
        assert!(whole.whole && whole.set.is_empty());
        followers.set_others(&others(1));
        let change = changes.recv().await.unwrap();
        assert!(!change.whole && change.revision > whole.revision && change.set.len() == 1);
        assert!(followers.acknowledged(change.revision).await.is_err());
        place.acknowledge(&Acknowledged { epoch: "another".into(), revision: change.revision });
        assert!(followers.acknowledged(change.revision).await.is_err(), "another epoch does not count");
        place.acknowledge(&Acknowledged { epoch: change.epoch, revision: change.revision });
        followers.acknowledged(change.revision).await.unwrap();
        drop(place);
        assert!(followers.acknowledged(change.revision).await.is_err(), "it has left");
    }

    #[tokio::test]
    async fn a_follower_that_does_not_keep_up_is_cut_off_and_gets_everything_anew() {
        let followers = Followers::new().unwrap();
        let (_place, mut changes) = followers.join().unwrap();
        for round in 0..=BEHIND {
            followers.set_others(&others(u8::try_from(round % 2).unwrap()));
        }
        let mut heard = 0;
        while changes.recv().await.is_some() {
            heard += 1;
        }
        assert_eq!(heard, BEHIND);
        let (_place, mut changes) = followers.join().unwrap();
        let whole = changes.recv().await.unwrap();
        assert!(whole.whole && whole.set.len() == 1);
    }
}
