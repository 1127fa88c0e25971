//! Whatever is stored is read back, whichever writes of a turn were done, and no object grows beyond its bounds.

use ferro_api::config::Reach;
use proptest::prelude::*;
use serde_json::json;

use super::super::super::{Answer, Asker, Naming, Offered, QUARANTINE, default_pools};
use super::*;

fn own() -> OwnNetworks {
    OwnNetworks {
        pod: "10.0.0.0/16".parse().unwrap(),
        service: "10.96.0.0/16".parse().unwrap(),
        reserved: BTreeSet::new(),
        pools: default_pools(),
        reach: Reach::Strict,
    }
}

fn start() -> Timestamp {
    Timestamp::from_second(1_900_000_000).unwrap()
}

/// Some are asked for by callers, the others by slices.
fn asker(host: u32) -> Asker {
    if host.is_multiple_of(2) { Asker::Caller } else { Asker::Slices }
}

fn endpoint(host: u32) -> IpAddr {
    IpAddr::V4((0xac12_0000 + host).into())
}

fn pod(host: u32) -> IpAddr {
    IpAddr::V4((0x0a00_0100 + host).into())
}

/// What the API server keeps.
type Objects = BTreeMap<u32, Value>;

/// RFC 7386.
fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else { return target.clone_from(patch) };
    if !target.is_object() {
        *target = json!({});
    }
    let Value::Object(target) = target else { return };
    for (key, value) in patch {
        if value.is_null() {
            target.remove(key);
        } else {
            merge(target.entry(key).or_insert(Value::Null), value);
        }
    }
}

/// A writer with its storage.
struct Store {
    objects: Objects,
    layout: Layout,
    ipam: Ipam,
    writes: usize,
}

impl Store {
    fn new(external_length: u8) -> Self {
        let ipam = Ipam::new(own(), external_length).unwrap();
        let mut store = Self { objects: Objects::new(), layout: Layout::default(), ipam, writes: 0 };
        let first = Turn::new(&store.ipam, start());
        store.store(first);
        store
    }

    fn perform(&mut self, write: &Write) {
        assert_eq!(write.deed == Deed::Create, !self.objects.contains_key(&write.part));
        if write.deed == Deed::Delete {
            self.objects.remove(&write.part);
        } else {
            merge(self.objects.entry(write.part).or_insert(json!({})), &write.spec);
        }
        self.writes += 1;
    }

    fn store(&mut self, turn: Turn) {
        let plan = self.layout.plan(&turn);
        for write in &plan.writes {
            self.perform(write);
        }
        self.layout.done(plan);
        self.ipam = turn.into_after();
    }

    /// Ends after some of the writes, in the order in which they must be, and starts again.
    fn cut_off(&mut self, turn: &Turn, after: usize, now: Timestamp) {
        let mut writes = self.layout.plan(turn).writes;
        writes.sort_by_key(|write| write.wave);
        for write in writes.iter().take(after) {
            self.perform(write);
        }
        self.restart(now);
    }

    fn read(&self, now: Timestamp) -> (Layout, Turn) {
        let parsed = |(part, spec): (&u32, &Value)| (*part, serde_json::from_value(spec.clone()).unwrap());
        Layout::read(&self.objects.iter().map(parsed).collect(), &own(), now).unwrap().unwrap()
    }

    fn restart(&mut self, now: Timestamp) {
        let (layout, turn) = self.read(now);
        self.layout = layout;
        self.store(turn);
    }

    fn turn(&self, now: Timestamp) -> Turn {
        Turn::new(&self.ipam, now)
    }
}

fn meet(turn: &mut Turn, peer: &str, number: u8) {
    let offered = Offered {
        pod: format!("10.{}.0.0/16", 100 + number).parse().unwrap(),
        external: Some(format!("192.168.{number}.0/24").parse().unwrap()),
    };
    turn.acquire(peer, offered).unwrap();
    turn.agree(peer, Answer { pod: Naming::Kept, external: Some(Naming::Kept) }).unwrap();
}

/// No address stands for two endpoints, nothing is kept for nobody, and what is used does not rest.
fn is_sound(ipam: &Ipam) {
    let mut addresses = BTreeSet::new();
    for (endpoint, mapping) in ipam.mappings() {
        assert!(addresses.insert(mapping.ip), "{endpoint} shares {}", mapping.ip);
        assert!(!mapping.is_idle() && mapping.peers.iter().all(|peer| ipam.peers.contains_key(peer)));
        assert!(ipam.external.resting_since(&mapping.ip).is_none());
    }
}

#[test]
fn names_and_numbers_go_together() {
    for (number, text) in [(0, "ipam"), (1, "ipam-1"), (17, "ipam-17")] {
        assert_eq!((name(number), part(text)), (text.to_owned(), Some(number)));
    }
    for foreign in ["ipam-", "ipam-0", "ipam-01", "ipam-x", "ipam1", "other", "ipam-99999999999"] {
        assert_eq!(part(foreign), None, "{foreign}");
    }
}

#[test]
fn a_turn_is_one_write_and_objects_stay_small() {
    let mut store = Store::new(16);
    let mut turn = store.turn(start());
    meet(&mut turn, "a", 1);
    store.store(turn);
    let before = store.writes;
    for group in 0..200 {
        let mut turn = store.turn(start());
        for host in 0..5 {
            turn.map(Asker::Caller, "a", endpoint(group * 5 + host)).unwrap();
        }
        store.store(turn);
    }
    let objects = store.objects.len();
    assert!((5..20).contains(&objects), "{objects} objects");
    assert!(store.writes - before <= 200 + 2 * objects, "{} writes", store.writes - before);
    for object in store.objects.values() {
        assert!(object.to_string().len() < 2 * FULL, "{}", object.to_string().len());
    }
    let again = store.read(start());
    assert!(again.0.plan(&again.1).writes.is_empty(), "nothing has to be put right");
    assert_eq!((again.0, again.1.after()), (store.layout.clone(), &store.ipam));
}

#[test]
fn what_is_asked_again_is_not_written() {
    let mut store = Store::new(24);
    let mut turn = store.turn(start());
    meet(&mut turn, "a", 1);
    let first = turn.map(Asker::Caller, "a", endpoint(1)).unwrap();
    store.store(turn);
    let mut again = store.turn(start());
    meet(&mut again, "a", 1);
    assert_eq!(again.map(Asker::Caller, "a", endpoint(1)), Ok(first));
    again.unmap(Asker::Caller, "b", endpoint(1));
    again.unmap(Asker::Caller, "a", endpoint(2));
    assert_eq!(store.layout.plan(&again).writes, []);
}

#[test]
fn a_pod_that_is_published_stays_so_and_nothing_rests_for_it() {
    let mut store = Store::new(24);
    let mut turn = store.turn(start());
    meet(&mut turn, "a", 1);
    turn.map(Asker::Caller, "a", pod(1)).unwrap();
    store.store(turn);
    store.restart(start());
    assert_eq!(store.ipam.redirections("a"), [(pod(1), pod(1))].into());
    let mut turn = store.turn(start());
    turn.unmap(Asker::Caller, "a", pod(1));
    store.store(turn);
    let object = store.objects[&0].to_string();
    assert!(!object.contains(&pod(1).to_string()), "{object}");
    // Nobody stands for a pod but itself.
    store.objects.get_mut(&0).unwrap()["endpointMappings"] =
        json!({pod(2).to_string(): {"ip": pod(3), "clusterMappings": {"a": {}}}});
    store.restart(start());
    assert_eq!(store.ipam.mapped(), 0);
}

#[test]
fn a_node_that_is_open_to_all_stays_so_until_the_reach_says_otherwise() {
    let mut store = Store::new(24);
    let mut turn = store.turn(start());
    meet(&mut turn, "a", 1);
    turn.reach(Reach::Full, &[endpoint(1), endpoint(2)].into()).unwrap();
    store.store(turn);
    let mut turn = store.turn(start());
    meet(&mut turn, "b", 2);
    turn.map(Asker::Caller, "b", endpoint(2)).unwrap();
    store.store(turn);
    store.restart(start());
    for peer in ["a", "b"] {
        let published: Vec<IpAddr> = store.ipam.redirections(peer).into_keys().collect();
        assert_eq!(published, [endpoint(1), endpoint(2)], "{peer}");
    }
    let mut turn = store.turn(start());
    turn.reach(Reach::Default, &BTreeSet::new()).unwrap();
    store.store(turn);
    store.restart(start());
    assert!(store.ipam.redirections("a").is_empty());
    assert_eq!(store.ipam.redirections("b").len(), 1, "somebody has asked for this one");
    let rests = store.ipam.external.resting().count();
    assert_eq!((store.ipam.mapped(), rests), (1, 1));
}

#[test]
fn a_pod_that_runs_here_for_a_peer_is_its_own_until_it_is_gone() {
    let mut store = Store::new(24);
    let mut turn = store.turn(start());
    meet(&mut turn, "a", 1);
    meet(&mut turn, "b", 2);
    turn.reach(Reach::Strict, &BTreeSet::new()).unwrap();
    turn.host(&[(pod(1), "a".to_owned()), (pod(2), "b".to_owned()), (pod(3), "a".to_owned())].into());
    store.store(turn);
    let mut turn = store.turn(start());
    turn.map(Asker::Caller, "b", pod(1)).unwrap();
    turn.host(&[(pod(1), "a".to_owned()), (pod(2), "a".to_owned())].into());
    store.store(turn);
    store.restart(start());
    let published = |store: &Store, peer: &str| store.ipam.redirections(peer).into_keys().collect::<Vec<_>>();
    assert_eq!(published(&store, "a"), [pod(1), pod(2)]);
    assert_eq!(published(&store, "b"), [pod(1)], "what somebody asked for, and no longer the other one");
    let mut turn = store.turn(start());
    turn.host(&BTreeMap::new());
    store.store(turn);
    store.restart(start());
    assert_eq!((published(&store, "a"), published(&store, "b")), (vec![], vec![pod(1)]));
}

#[test]
fn mappings_that_outgrow_their_object_move_and_may_be_cut_off_on_the_way() {
    let mut store = Store::new(16);
    let mut turn = store.turn(start());
    for peer in 0..60_u8 {
        meet(&mut turn, &format!("peer-{peer}"), peer);
    }
    for host in 0..100 {
        turn.map(Asker::Caller, "peer-0", endpoint(host)).unwrap();
    }
    store.store(turn);
    // As if all of them were published to very many.
    let place = store.layout.places[&endpoint(7)];
    store.layout.parts.get_mut(&place).unwrap().mapped = MOST;
    let mut turn = store.turn(start());
    let address = turn.map(Asker::Caller, "peer-1", endpoint(7)).unwrap();
    let plan = store.layout.plan(&turn);
    assert_eq!(
        plan.writes
            .iter()
            .filter(|write| write.wave == Wave::Last)
            .map(|write| write.part)
            .collect::<Vec<_>>(),
        [place]
    );
    // The announcement, and the new place.
    store.cut_off(&turn, 2, start());
    assert_eq!(store.ipam.mapping(&endpoint(7)).unwrap().peers.len(), 2);
    let mut again = store.turn(start());
    assert_eq!(again.map(Asker::Caller, "peer-1", endpoint(7)), Ok(address));
    let holders = store
        .objects
        .values()
        .filter(|object| object["endpointMappings"].get(endpoint(7).to_string()).is_some());
    assert_eq!(holders.count(), 1, "the other copy is gone");
}

#[test]
fn coming_and_going_leaves_no_objects_behind() {
    let (mut store, mut now) = (Store::new(16), start());
    let mut turn = store.turn(now);
    meet(&mut turn, "a", 1);
    store.store(turn);
    for round in 0..6 {
        let mut turn = store.turn(now);
        for host in 0..1000 {
            turn.map(Asker::Caller, "a", endpoint(host)).unwrap();
        }
        store.store(turn);
        assert!((5..12).contains(&store.objects.len()), "{} objects in round {round}", store.objects.len());
        let mut turn = store.turn(now);
        for host in 0..1000 {
            turn.unmap(Asker::Caller, "a", endpoint(host));
        }
        store.store(turn);
        now += QUARANTINE;
    }
    for host in 0..3 {
        let mut turn = store.turn(now);
        turn.map(Asker::Caller, "a", endpoint(host)).unwrap();
        store.store(turn);
    }
    assert_eq!(store.objects.len(), 1, "what holds nothing is deleted");
    let (layout, again) = store.read(now);
    assert_eq!((layout, again.after()), (store.layout.clone(), &store.ipam));
}

#[test]
fn an_object_is_announced_before_it_is_made() {
    let mut store = Store::new(16);
    let mut turn = store.turn(start());
    meet(&mut turn, "a", 1);
    store.store(turn);
    let specs = |store: &Store| -> BTreeMap<u32, IpamStorageSpec> {
        let parsed = |(part, spec): (&u32, &Value)| (*part, serde_json::from_value(spec.clone()).unwrap());
        store.objects.iter().map(parsed).collect()
    };
    assert!(missing(&specs(&store)).unwrap().is_empty());
    let mut turn = store.turn(start());
    for host in 0..300 {
        turn.map(Asker::Caller, "a", endpoint(host)).unwrap();
    }
    let plan = store.layout.plan(&turn);
    assert!(plan.writes.iter().any(|write| write.deed == Deed::Create));
    let first: Vec<Write> = plan.writes.iter().filter(|write| write.wave == Wave::First).cloned().collect();
    assert_eq!(first.len(), 1);
    store.perform(&first[0]);
    assert!(!missing(&specs(&store)).unwrap().is_empty(), "who comes after knows what may still be made");
    for write in plan.writes.iter().filter(|write| write.wave != Wave::First) {
        store.perform(write);
    }
    assert!(missing(&specs(&store)).unwrap().is_empty());
    assert!(missing(&BTreeMap::new()).unwrap().is_empty());
}

#[test]
fn of_two_endpoints_with_one_address_one_is_forgotten() {
    let mut store = Store::new(24);
    let mut turn = store.turn(start());
    meet(&mut turn, "a", 1);
    turn.map(Asker::Caller, "a", endpoint(1)).unwrap();
    turn.map(Asker::Caller, "a", endpoint(2)).unwrap();
    store.store(turn);
    let mappings = store.objects.get_mut(&0).unwrap();
    let one = mappings["endpointMappings"][endpoint(1).to_string()].clone();
    mappings["endpointMappings"][endpoint(2).to_string()] = one;
    store.restart(start());
    is_sound(&store.ipam);
    assert!(store.ipam.mapping(&endpoint(1)).is_some() && store.ipam.mapping(&endpoint(2)).is_none());
}

#[test]
fn whoever_takes_over_lets_addresses_rest_in_full_whatever_its_clock_says() {
    for taken_over in [start() + QUARANTINE * 100, start() - QUARANTINE * 100] {
        let mut store = Store::new(29);
        let mut turn = store.turn(start());
        meet(&mut turn, "a", 1);
        let all: Vec<_> = (1..=5).map(|host| turn.map(Asker::Caller, "a", endpoint(host)).unwrap()).collect();
        store.store(turn);
        let mut turn = store.turn(start());
        turn.unmap(Asker::Caller, "a", endpoint(1));
        store.store(turn);
        store.restart(taken_over);
        let soon = taken_over + QUARANTINE - std::time::Duration::from_secs(1);
        assert!(store.turn(soon).map(Asker::Caller, "a", endpoint(9)).is_err(), "{} rests", all[0]);
        let mut turn = store.turn(taken_over + QUARANTINE);
        assert_eq!(turn.map(Asker::Caller, "a", endpoint(9)), Ok(all[0]));
        store.store(turn);
        let (layout, again) = store.read(taken_over + QUARANTINE);
        assert_eq!((layout, again.after()), (store.layout.clone(), &store.ipam), "it rests no longer");
    }
}

#[test]
fn whoever_takes_over_lets_names_rest_in_full_whatever_its_clock_says() {
    for taken_over in [start() + QUARANTINE * 100, start() - QUARANTINE * 100] {
        let mut store = Store::new(24);
        let mut turn = store.turn(start());
        meet(&mut turn, "a", 1);
        store.store(turn);
        let mut turn = store.turn(start());
        turn.release("a");
        store.store(turn);
        store.restart(taken_over);
        let name = |now: Timestamp| {
            let mut turn = store.turn(now);
            meet(&mut turn, "b", 1);
            turn.after().peers()["b"].their_pods.here().to_string()
        };
        let soon = taken_over + QUARANTINE - std::time::Duration::from_secs(1);
        assert_ne!(name(soon), "10.101.0.0/16", "it rests");
        assert_eq!(name(taken_over + QUARANTINE), "10.101.0.0/16");
    }
}

#[derive(Clone, Debug)]
enum Change {
    Meet(u8),
    Part(u8),
    Map(u8, u32),
    Unmap(u8, u32),
    MapPod(u8, u32),
    UnmapPod(u8, u32),
    Reach(bool, u32),
}

fn change() -> impl Strategy<Value = Change> {
    prop_oneof![
        1 => (0_u8..4).prop_map(Change::Meet),
        1 => (0_u8..4).prop_map(Change::Part),
        8 => (0_u8..4, 0_u32..400).prop_map(|(peer, host)| Change::Map(peer, host)),
        4 => (0_u8..4, 0_u32..400).prop_map(|(peer, host)| Change::Unmap(peer, host)),
        2 => (0_u8..4, 0_u32..40).prop_map(|(peer, host)| Change::MapPod(peer, host)),
        1 => (0_u8..4, 0_u32..40).prop_map(|(peer, host)| Change::UnmapPod(peer, host)),
        1 => (any::<bool>(), 0_u32..400).prop_map(|(is_full, host)| Change::Reach(is_full, host)),
    ]
}

fn apply(turn: &mut Turn, change: &Change) {
    match change {
        Change::Meet(peer) => meet(turn, &peer.to_string(), *peer),
        Change::Part(peer) => turn.release(&peer.to_string()),
        Change::Map(peer, host) => _ = turn.map(asker(*host), &peer.to_string(), endpoint(*host)),
        Change::Unmap(peer, host) => turn.unmap(asker(*host), &peer.to_string(), endpoint(*host)),
        Change::MapPod(peer, host) => _ = turn.map(Asker::Caller, &peer.to_string(), pod(*host)),
        Change::UnmapPod(peer, host) => turn.unmap(Asker::Caller, &peer.to_string(), pod(*host)),
        Change::Reach(is_full, host) => {
            let nodes = (*host..*host + 5).map(endpoint).collect();
            _ = turn.reach(if *is_full { Reach::Full } else { Reach::Strict }, &nodes);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_restart_gives_the_same_value_and_a_kill_between_writes_a_sound_one(
        turns in proptest::collection::vec(
            (proptest::collection::vec(change(), 1..60), proptest::option::of(0_usize..6), 0_u32..4),
            1..20,
        )
    ) {
        let (mut store, mut now) = (Store::new(22), start());
        for (changes, cut, wait) in turns {
            now += QUARANTINE / 3 * wait;
            let mut turn = store.turn(now);
            // Small objects only come about with many mappings.
            for part in store.layout.parts.values_mut() {
                part.mapped += FULL / 40;
            }
            for change in &changes {
                apply(&mut turn, change);
            }
            if let Some(after) = cut {
                store.cut_off(&turn, after, now);
            } else {
                store.store(turn);
            }
            is_sound(&store.ipam);
            let (layout, again) = store.read(now);
            prop_assert!(layout.plan(&again).writes.is_empty());
            for (ip, _) in store.ipam.external.resting() {
                prop_assert_eq!(again.after().external.resting_since(&ip), Some(now), "it rests in full");
            }
            let [restored, expected] = [again.after(), &store.ipam].map(|ipam| {
                let mut rested = ipam.clone();
                rested.rest_anew(now);
                rested.external.wake(now + QUARANTINE);
                // What peers reach is said anew at each start.
                rested.own.reach = Reach::Strict;
                rested
            });
            prop_assert_eq!(restored, expected);
            prop_assert_eq!(&layout.places, &store.layout.places);
        }
    }
}
