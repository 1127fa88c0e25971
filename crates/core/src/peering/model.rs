//! A model of two whole clusters: whatever people do and wherever the work is cut off, they end up right.

mod cluster;
mod world;

use ferro_api::discovery::{Decision, PeeringState};
use proptest::prelude::*;

use self::cluster::Cluster;
use self::world::{Event, WORKERS, Worker, World};
use super::{Standing, incoming, outgoing};

const BOTH: [usize; 2] = [0, 1];

fn peered() -> World {
    let mut world = World::new();
    for side in BOTH {
        world.happen(side, Event::Add);
        world.happen(side, Event::Join(true));
    }
    world.settle();
    world
}

fn states(world: &World, side: usize) -> (outgoing::State, incoming::State) {
    let plan = world.clusters[side].plan(world.now).unwrap();
    assert_eq!(plan.writes, [], "at rest there is nothing to write");
    assert_eq!(plan.status, None, "at rest the status is written");
    (plan.outgoing, plan.incoming)
}

/// Where the direction from one cluster to the other must end up when both know each other.
fn expected(world: &World, consumer: usize) -> (outgoing::State, incoming::State) {
    let spec = |side: usize| &world.clusters[side].peer.as_ref().unwrap().spec;
    let (ours, theirs) = (spec(consumer), spec(1 - consumer));
    match (ours.join(), theirs.incoming(), ours.offer()) {
        (false, _, _) => (outgoing::State::Idle, incoming::State::Idle),
        (true, Decision::Refuse, _) => (outgoing::State::Denied, incoming::State::Refused),
        (true, _, Decision::Refuse) => (outgoing::State::Declined, incoming::State::Declined),
        (true, _, Decision::Auto | Decision::Accept) => (outgoing::State::InUse, incoming::State::InUse),
    }
}

/// What one direction has in the two clusters: our request, its copy, the offer, its copy, the node, and the map.
fn objects(consumer: &Cluster, provider: &Cluster) -> [bool; 6] {
    let (request, offer) = (consumer.request_name(), provider.offer_name());
    [
        consumer.requests.contains_key(&request),
        provider.requests.contains_key(&request),
        provider.offers.contains_key(&offer),
        consumer.offers.contains_key(&offer),
        consumer.node.is_some(),
        consumer.mapped,
    ]
}

fn expected_objects(state: outgoing::State) -> [bool; 6] {
    match state {
        outgoing::State::InUse => [true; 6],
        outgoing::State::Declined => [true, true, true, true, false, false],
        outgoing::State::Denied => [true, true, false, false, false, false],
        _ => [false; 6],
    }
}

fn assert_right(world: &World) {
    let [a, b] = &world.clusters;
    if a.peer.is_none() || b.peer.is_none() {
        return;
    }
    assert_eq!((a.standing, b.standing), (Standing::Accepted, Standing::Accepted));
    assert!(!a.is_forced() && !b.is_forced(), "force outlives what it was for");
    for consumer in BOTH {
        let expected = expected(world, consumer);
        let found = (states(world, consumer).0, states(world, 1 - consumer).1);
        assert_eq!(found, expected, "{world:#?}");
        let found = objects(&world.clusters[consumer], &world.clusters[1 - consumer]);
        assert_eq!(found, expected_objects(expected.0), "{world:#?}");
    }
}

fn assert_bare(world: &World) {
    for cluster in &world.clusters {
        assert!(cluster.is_bare(), "something is left: {cluster:#?}");
    }
}

#[test]
fn two_clusters_that_want_each_other_are_peered_both_ways() {
    let world = peered();
    assert_right(&world);
    for cluster in &world.clusters {
        let status = cluster.peer.as_ref().unwrap().status.clone().unwrap();
        assert_eq!(status.outgoing.unwrap().state, PeeringState::Established);
        assert_eq!(status.incoming.unwrap().state, PeeringState::Established);
    }
}

#[test]
fn after_unpeering_both_are_as_when_merely_authenticated_and_can_peer_again() {
    let mut world = World::new();
    world.happen_to_both(Event::Add);
    world.settle();
    let authenticated = world.clone();
    for _ in 0..2 {
        world.happen_to_both(Event::Join(true));
        world.settle();
        world.happen_to_both(Event::StartPod);
        world.happen_to_both(Event::Join(false));
        world.settle();
        for (now, then) in world.clusters.iter().zip(&authenticated.clusters) {
            assert_eq!((&now.requests, &now.offers, now.node), (&then.requests, &then.offers, then.node));
            assert_eq!((now.namespace, now.standing), (then.namespace, then.standing));
        }
    }
}

#[test]
fn the_directions_are_independent() {
    let mut world = peered();
    world.happen(0, Event::Join(false));
    world.settle();
    assert_right(&world);
    world.happen(0, Event::Incoming(Decision::Refuse));
    world.settle();
    assert_right(&world);
}

#[test]
fn an_offer_that_was_taken_back_is_gone_before_the_next_one_is_made() {
    let mut world = peered();
    world.happen(1, Event::Incoming(Decision::Refuse));
    assert!(world.work(1, Worker::Controller, usize::MAX) > 0);
    world.happen(1, Event::Incoming(Decision::Auto));
    world.settle();
    assert_right(&world);
}

#[test]
fn removing_on_one_side_then_the_other_leaves_nothing() {
    for first in BOTH {
        let mut world = peered();
        world.happen(first, Event::Remove);
        world.settle();
        assert!(world.clusters[first].is_bare());
        world.happen(1 - first, Event::Remove);
        world.settle();
        assert_bare(&world);
    }
}

#[test]
fn a_peer_that_is_gone_for_good_holds_up_nothing_when_forced() {
    let mut world = peered();
    world.happen(0, Event::StartPod);
    world.happen(0, Event::Cut(true));
    world.happen(0, Event::Remove);
    for _ in 0..20 {
        world.everybody_works(0, usize::MAX);
    }
    assert!(world.clusters[0].peer.is_some(), "without force it waits");
    world.happen(0, Event::Force);
    for _ in 0..20 {
        world.everybody_works(0, usize::MAX);
    }
    assert!(world.clusters[0].is_bare(), "{:#?}", world.clusters[0]);
}

#[test]
fn a_long_silence_moves_the_pods_and_a_word_brings_the_node_back() {
    let mut world = peered();
    world.happen(0, Event::StartPod);
    world.happen(0, Event::Cut(true));
    let mut after = |seconds| {
        world.happen(0, Event::Wait(seconds));
        world.everybody_works(0, usize::MAX);
        (states(&world, 0).0, world.clusters[0].node.unwrap().pods)
    };
    assert_eq!(after(59), (outgoing::State::InUse, 1));
    assert_eq!(after(2), (outgoing::State::Silent, 1));
    assert_eq!(after(23 * 3600), (outgoing::State::Silent, 1));
    assert_eq!(after(3600), (outgoing::State::Evacuating, 0));
    world.settle();
    assert_right(&world);
    assert!(!world.clusters[0].node.unwrap().draining);
}

/// A cut after every single write, in order: the same end each time.
#[test]
fn a_cut_after_any_write_changes_nothing_in_the_end() {
    let (_, all) = peer_unpeer_and_remove(usize::MAX);
    assert!(all > 40, "{all} writes are too few to be all of them");
    for cut in 1..all {
        let (world, _) = peer_unpeer_and_remove(cut);
        assert_bare(&world);
    }
}

/// The whole story, in which the plan that holds the write of this number is cut off after it. Returns how
/// many writes there were.
fn peer_unpeer_and_remove(cut: usize) -> (World, usize) {
    let (mut world, mut left, mut writes) = (World::new(), cut, 0);
    for event in [Event::Add, Event::Join(true), Event::StartPod, Event::Join(false), Event::Remove] {
        world.happen_to_both(event);
        for _ in 0..12 {
            for (side, worker) in BOTH.into_iter().flat_map(|side| WORKERS.map(|worker| (side, worker))) {
                let done = world.work(side, worker, left);
                left = left.checked_sub(done).filter(|left| *left > 0).unwrap_or(usize::MAX);
                writes += done;
            }
        }
        assert_right(&world);
    }
    (world, writes)
}

fn events() -> impl Strategy<Value = Event> {
    let decision = || proptest::sample::select(vec![Decision::Auto, Decision::Accept, Decision::Refuse]);
    prop_oneof![
        2 => Just(Event::Add),
        6 => proptest::bool::weighted(0.7).prop_map(Event::Join),
        6 => decision().prop_map(Event::Incoming),
        4 => decision().prop_map(Event::Offer),
        1 => Just(Event::Remove),
        1 => Just(Event::Force),
        1 => Just(Event::DeleteRequestByHand),
        2 => Just(Event::StartPod),
        1 => any::<bool>().prop_map(Event::Cut),
        1 => (0_u64..100_000).prop_map(Event::Wait),
    ]
}

#[derive(Clone, Debug)]
enum Move {
    Happen(usize, Event),
    Work(usize, Worker, usize),
    Round(usize, usize),
}

fn moves() -> impl Strategy<Value = Move> {
    let worker = proptest::sample::select(WORKERS.to_vec());
    prop_oneof![
        3 => (0_usize..2, events()).prop_map(|(side, event)| Move::Happen(side, event)),
        4 => (0_usize..2, worker, 0_usize..5).prop_map(|(side, worker, most)| Move::Work(side, worker, most)),
        5 => (0_usize..2, 0_usize..5).prop_map(|(side, most)| Move::Round(side, most)),
    ]
}

proptest! {
    /// Random deeds, every plan cut off after a random number of writes, and a link that comes and goes: left
    /// in peace, the two end up as their users want it; removed on both sides, nothing is left.
    #[test]
    fn whatever_happens_they_end_up_right(
        strangers in any::<bool>(),
        moves in proptest::collection::vec(moves(), 0..80),
    ) {
        let mut world = if strangers { World::new() } else { peered() };
        for one in moves {
            match one {
                Move::Happen(side, event) => world.happen(side, event),
                Move::Work(side, worker, most) => _ = world.work(side, worker, most),
                Move::Round(side, most) => world.everybody_works(side, most),
            }
        }
        world.settle();
        assert_right(&world);
        world.happen_to_both(Event::Remove);
        world.settle();
        assert_bare(&world);
    }
}
