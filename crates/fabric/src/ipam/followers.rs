//! The gateways that follow: each gets all that is in force, then every change, and says how far it has come.
//!
//! A follower that is too slow is cut off: it comes again and gets everything anew, instead of holding up the others,
//! filling the memory, or letting callers wait when another one has what they asked for.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::Result;
use ferro_api::proto::gateway::{Acknowledged, Change, Entry as Told};
use ferro_core::network::layout::Layout;
use ferro_core::network::{Board, Claims, Delta, Entry, Ipam, Turn};
use tokio::sync::{mpsc, watch};
use tracing::{info, warn};

use super::progress::{Progress, Wanted};
use super::{Trouble, nonce};

/// Changes that a follower may be behind.
const BEHIND: usize = 256;
/// Followers at once: one active gateway, one passive, and some that come again before they are missed.
const MOST: usize = 16;
/// How long a caller waits for the gateways.
const PATIENCE: Duration = Duration::from_secs(2);

/// A sheet of a peer.
pub(super) type SheetOf = (String, u32);

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
            progress: Arc::new(watch::channel(Progress::default()).0),
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

    /// The addresses of our external network that others use.
    pub(super) fn claimed(&self, ipam: &Ipam) -> Claims {
        self.desk().board.claimed(ipam)
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
                self.progress.send_modify(|progress| progress.remove(*number));
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
        self.progress.send_modify(|progress| progress.add(number));
        info!(follower = number, "a gateway follows");
        Some((Place { number, followers: self.clone() }, changes))
    }

    /// Waits until all who follow now, and at least one, have this in force.
    pub(super) async fn have(&self, wanted: &Wanted) -> Result<(), Trouble> {
        let mut progress = self.progress.subscribe();
        let present = progress.borrow().numbers();
        let reached = progress.wait_for(|progress| progress.is_in_force(&present, wanted));
        let is_reached = tokio::time::timeout(PATIENCE, reached).await.is_ok_and(|reached| reached.is_ok());
        if is_reached {
            return Ok(());
        }
        let lacking = self.progress.borrow().lacking(wanted);
        let laggards = self.progress.borrow().laggards(&present, wanted);
        if let Some(lack) = lacking {
            return Err(Trouble::NotYet(lack));
        }
        self.cut_off(&laggards);
        Ok(())
    }

    /// Cuts off those who do not confirm what another one does.
    fn cut_off(&self, laggards: &[u64]) {
        let mut desk = self.desk();
        for number in laggards {
            warn!(follower = number, "a gateway does not confirm, while another one does; it is cut off");
            desk.channels.remove(number);
            self.progress.send_modify(|progress| progress.remove(*number));
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
    /// The follower says how far it has come; of another epoch it is not believed. Which tunnels there are has nothing
    /// to do with epochs.
    pub(super) fn acknowledge(&self, said: Acknowledged) {
        let is_ours = *said.epoch == *self.followers.epoch && said.revision <= self.followers.revision();
        let revision = is_ours.then_some(said.revision);
        self.followers.progress.send_if_modified(|progress| {
            let tunnels = said.tunnels.map(|tunnels| tunnels.all);
            progress.note(self.number, revision, tunnels)
        });
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.followers.desk().channels.remove(&self.number);
        self.followers.progress.send_modify(|progress| progress.remove(self.number));
    }
}

fn told(entry: Entry) -> Told {
    Told { cluster_id: entry.peer, endpoint: entry.endpoint.to_string(), address: entry.address.to_string() }
}

#[cfg(test)]
mod tests {
    use ferro_api::proto::gateway::{Tunnel, Tunnels};

    use super::super::progress::in_force;
    use super::super::progress::tests::agreement;
    use super::*;

    fn others(host: u8) -> BTreeMap<String, BTreeMap<std::net::IpAddr, std::net::IpAddr>> {
        let entry = ([1, 1, 1, host].into(), [192, 168, 9, host].into());
        [("a".to_owned(), [entry].into())].into()
    }

    /// What a caller for this peer waits for.
    fn wanted(peer: &str, revision: u64) -> Wanted {
        Wanted::new(revision, peer, &agreement(7))
    }

    /// A gateway with tunnels to these peers has come so far.
    fn acknowledged(change: &Change, peers: &[&str]) -> Acknowledged {
        let all = peers.iter().map(|peer| in_force(peer, &agreement(7))).collect();
        let Change { epoch, revision, .. } = change.clone();
        Acknowledged { epoch, revision, tunnels: Some(Tunnels { all }) }
    }

    async fn lack(followers: &Followers, wanted: &Wanted) -> String {
        followers.have(wanted).await.unwrap_err().to_string()
    }

    #[tokio::test(start_paused = true)]
    async fn a_caller_waits_for_the_gateway_and_not_for_ever() {
        let followers = Followers::new().unwrap();
        let nobody = lack(&followers, &wanted("a", 1)).await;
        assert!(nobody.contains("no gateway is connected") && nobody.contains("ask again"), "{nobody}");
        let (place, mut changes) = followers.join().unwrap();
        let whole = changes.recv().await.unwrap();
        assert!(whole.whole && whole.set.is_empty());
        followers.set_others(&others(1));
        let change = changes.recv().await.unwrap();
        assert!(!change.whole && change.revision > whole.revision && change.set.len() == 1);
        let wanted = wanted("a", change.revision);
        assert!(lack(&followers, &wanted).await.contains("has not confirmed"));
        let said = acknowledged(&change, &["a"]);
        place.acknowledge(Acknowledged { epoch: "another".into(), ..said.clone() });
        assert!(
            lack(&followers, &wanted).await.contains("has not confirmed"),
            "another epoch does not count"
        );
        place.acknowledge(Acknowledged { tunnels: None, ..said });
        followers.have(&wanted).await.unwrap();
        drop(place);
        assert!(lack(&followers, &wanted).await.contains("no gateway"), "it has left");
    }

    #[tokio::test(start_paused = true)]
    async fn a_peer_without_a_tunnel_waits_alone_and_is_told_why() {
        let followers = Followers::new().unwrap();
        let (place, mut changes) = followers.join().unwrap();
        let change = changes.recv().await.unwrap();
        place.acknowledge(acknowledged(&change, &["a"]));
        let [good, bad] = ["a", "b"].map(|peer| wanted(peer, change.revision));
        let begin = tokio::time::Instant::now();
        followers.have(&good).await.unwrap();
        assert_eq!(begin.elapsed(), Duration::ZERO, "nobody waits for the tunnel of another peer");
        assert!(lack(&followers, &bad).await.contains("no tunnel to b yet"));
        let trouble = Tunnel { cluster_id: "b".into(), trouble: "two keys".into(), ..Tunnel::default() };
        let mut said = acknowledged(&change, &["a"]);
        said.tunnels.as_mut().unwrap().all.push(trouble);
        place.acknowledge(said);
        let (lacks, begin) = (lack(&followers, &bad).await, tokio::time::Instant::now());
        assert!(lacks.contains("no tunnel to b: two keys"), "{lacks}");
        let waits = {
            let (followers, bad) = (followers.clone(), wanted("b", change.revision));
            tokio::spawn(async move { followers.have(&bad).await })
        };
        tokio::time::sleep(PATIENCE / 2).await;
        place.acknowledge(acknowledged(&change, &["a", "b"]));
        waits.await.unwrap().unwrap();
        assert_eq!(begin.elapsed(), PATIENCE / 2, "it is answered as soon as the tunnel is there");
    }

    #[tokio::test(start_paused = true)]
    async fn an_address_is_not_told_before_the_gateway_has_the_names_that_were_agreed_on() {
        let followers = Followers::new().unwrap();
        let (place, mut changes) = followers.join().unwrap();
        let change = changes.recv().await.unwrap();
        place.acknowledge(acknowledged(&change, &["a"]));
        let renamed = Wanted::new(change.revision, "a", &agreement(8));
        assert!(lack(&followers, &renamed).await.contains("other names"));
        let tunnels = Some(Tunnels { all: vec![in_force("a", &agreement(8))] });
        place.acknowledge(Acknowledged { tunnels, ..Acknowledged::default() });
        followers.have(&renamed).await.unwrap();
        let former = wanted("a", change.revision);
        assert!(lack(&followers, &former).await.contains("other names"), "they are no more");
    }

    #[tokio::test(start_paused = true)]
    async fn who_confirms_nothing_is_cut_off_when_another_one_does() {
        let followers = Followers::new().unwrap();
        let (good, mut to_good) = followers.join().unwrap();
        let (_bad, mut to_bad) = followers.join().unwrap();
        followers.set_others(&others(1));
        let (_, change) = (to_good.recv().await, to_good.recv().await.unwrap());
        let wanted = wanted("a", change.revision);
        assert!(followers.have(&wanted).await.is_err(), "nobody has it yet");
        good.acknowledge(acknowledged(&change, &["a"]));
        followers.have(&wanted).await.unwrap();
        let mut heard = 0;
        while to_bad.recv().await.is_some() {
            heard += 1;
        }
        assert_eq!(heard, 2, "it hears what it was told before, and that it is over");
        followers.have(&wanted).await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_gateway_without_the_tunnel_is_not_waited_for_twice_over_but_kept() {
        let followers = Followers::new().unwrap();
        let (with, mut changes) = followers.join().unwrap();
        let (without, mut to_other) = followers.join().unwrap();
        let change = changes.recv().await.unwrap();
        with.acknowledge(acknowledged(&change, &["a", "b"]));
        without.acknowledge(acknowledged(&change, &["a"]));
        let begin = tokio::time::Instant::now();
        followers.have(&wanted("b", change.revision)).await.unwrap();
        assert_eq!(begin.elapsed(), PATIENCE, "it may still come");
        to_other.recv().await.unwrap();
        followers.set_others(&others(1));
        assert!(to_other.recv().await.is_some(), "all others are served by it");
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
