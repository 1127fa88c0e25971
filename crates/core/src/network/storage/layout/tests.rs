//! Whatever is stored is read back, whichever writes of a turn were done, and no object grows beyond its bounds.

use proptest::prelude::*;

use super::super::super::{Answer, Naming, Offered, QUARANTINE, default_pools};
use super::*;

fn own() -> OwnNetworks {
    OwnNetworks {
        pod: "10.0.0.0/16".parse().unwrap(),
        service: "10.96.0.0/16".parse().unwrap(),
        reserved: BTreeSet::new(),
        pools: default_pools(),
    }
}

fn start() -> Timestamp {
    Timestamp::from_second(1_900_000_000).unwrap()
}

fn endpoint(host: u32) -> IpAddr {
    IpAddr::V4((0xac12_0000 + host).into())
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
        assert_eq!(write.is_new, !self.objects.contains_key(&write.part));
        merge(self.objects.entry(write.part).or_insert(json!({})), &write.spec);
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
        writes.sort_by_key(|write| write.is_last);
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
        assert!(!mapping.peers.is_empty() && mapping.peers.iter().all(|peer| ipam.peers.contains_key(peer)));
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
            turn.map("a", endpoint(group * 5 + host)).unwrap();
        }
        store.store(turn);
    }
    let objects = store.objects.len();
    assert!((5..20).contains(&objects), "{objects} objects");
    assert!(store.writes - before <= 200 + objects, "{} writes", store.writes - before);
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
    let first = turn.map("a", endpoint(1)).unwrap();
    store.store(turn);
    let mut again = store.turn(start());
    meet(&mut again, "a", 1);
    assert_eq!(again.map("a", endpoint(1)), Ok(first));
    again.unmap("b", endpoint(1));
    again.unmap("a", endpoint(2));
    assert_eq!(store.layout.plan(&again).writes, []);
}

#[test]
fn mappings_that_outgrow_their_object_move_and_may_be_cut_off_on_the_way() {
    let mut store = Store::new(16);
    let mut turn = store.turn(start());
    for peer in 0..60_u8 {
        meet(&mut turn, &format!("peer-{peer}"), peer);
    }
    for host in 0..100 {
        turn.map("peer-0", endpoint(host)).unwrap();
    }
    store.store(turn);
    // As if all of them were published to very many.
    let place = store.layout.places[&endpoint(7)];
    store.layout.parts.get_mut(&place).unwrap().weight = MOST;
    let mut turn = store.turn(start());
    let address = turn.map("peer-1", endpoint(7)).unwrap();
    let plan = store.layout.plan(&turn);
    assert_eq!(
        plan.writes.iter().filter(|write| write.is_last).map(|write| write.part).collect::<Vec<_>>(),
        [place]
    );
    store.cut_off(&turn, 1, start());
    assert_eq!(store.ipam.mapping(&endpoint(7)).unwrap().peers.len(), 2);
    let mut again = store.turn(start());
    assert_eq!(again.map("peer-1", endpoint(7)), Ok(address));
    let holders = store
        .objects
        .values()
        .filter(|object| object["endpointMappings"].get(endpoint(7).to_string()).is_some());
    assert_eq!(holders.count(), 1, "the other copy is gone");
}

#[test]
fn of_two_endpoints_with_one_address_one_is_forgotten() {
    let mut store = Store::new(24);
    let mut turn = store.turn(start());
    meet(&mut turn, "a", 1);
    turn.map("a", endpoint(1)).unwrap();
    turn.map("a", endpoint(2)).unwrap();
    store.store(turn);
    let mappings = store.objects.get_mut(&0).unwrap();
    let one = mappings["endpointMappings"][endpoint(1).to_string()].clone();
    mappings["endpointMappings"][endpoint(2).to_string()] = one;
    store.restart(start());
    is_sound(&store.ipam);
    assert!(store.ipam.mapping(&endpoint(1)).is_some() && store.ipam.mapping(&endpoint(2)).is_none());
}

#[derive(Clone, Debug)]
enum Change {
    Meet(u8),
    Part(u8),
    Map(u8, u32),
    Unmap(u8, u32),
}

fn change() -> impl Strategy<Value = Change> {
    prop_oneof![
        1 => (0_u8..4).prop_map(Change::Meet),
        1 => (0_u8..4).prop_map(Change::Part),
        8 => (0_u8..4, 0_u32..400).prop_map(|(peer, host)| Change::Map(peer, host)),
        4 => (0_u8..4, 0_u32..400).prop_map(|(peer, host)| Change::Unmap(peer, host)),
    ]
}

fn apply(turn: &mut Turn, change: &Change) {
    match change {
        Change::Meet(peer) => meet(turn, &peer.to_string(), *peer),
        Change::Part(peer) => turn.release(&peer.to_string()),
        Change::Map(peer, host) => _ = turn.map(&peer.to_string(), endpoint(*host)),
        Change::Unmap(peer, host) => turn.unmap(&peer.to_string(), endpoint(*host)),
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
                part.weight += FULL / 40;
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
            let mut expected = store.ipam.clone();
            expected.external.wake(now);
            prop_assert_eq!(again.after(), &expected);
            prop_assert_eq!(&layout.places, &store.layout.places);
        }
    }
}
