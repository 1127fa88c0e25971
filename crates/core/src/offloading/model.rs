//! A model of a whole home cluster with its peers: whatever people do, however late a peer answers and wherever the work is
//! cut off, it ends up right.

mod world;

use std::collections::{BTreeMap, BTreeSet};

use ferro_api::offloading::OffloadingPhase;
use proptest::prelude::*;
use serde_json::{Value, json};

pub(super) use self::world::{HOME, Provider, World};

const NAMESPACES: [&str; 5] = ["a", "b", "c", "a-d14e610e-4c1b-402c-a5f1-5ef6f39c0490", UNSEEN];
/// Its pods are not shown to the webhook.
const UNSEEN: &str = "kube-system";
const CLUSTERS: [&str; 3] = ["turin", "milan", "genoa"];

/// Something that happens.
#[derive(Clone, Copy, Debug)]
enum Event {
    Offload(usize, bool, usize),
    Reselect(usize, usize),
    Delete(usize),
    Force(usize),
    /// Somebody takes the finalizer off.
    Strip(usize),
    Label(usize, bool),
    DeleteNamespace(usize),
    Join(usize, usize),
    Relabel(usize, usize),
    LoseNode(usize),
    Unpeer(usize, bool),
    Answer(usize, u8),
    /// A pod comes to a cluster.
    Run(usize, usize),
    DeleteMap(usize),
    /// The controller does so many writes of its plan.
    Work(usize),
    /// It ends, and another one starts.
    Restart,
    /// Replicator, provider and namespace controller do what they have to do.
    Others,
}

fn selector(kind: usize) -> Value {
    let term = |expression: Value| json!({"nodeSelectorTerms": [{"matchExpressions": [expression]}]});
    match kind {
        0 => term(json!({"key": "liqo.io/type", "operator": "In", "values": ["virtual-node"]})),
        1 => term(json!({"key": "zone", "operator": "In", "values": ["1"]})),
        2 => term(json!({"key": "zone", "operator": "NotIn", "values": ["1"]})),
        _ => json!({"nodeSelectorTerms": []}),
    }
}

fn zone(kind: usize) -> Vec<(&'static str, &'static str)> {
    match kind {
        0 => vec![("zone", "1")],
        1 => vec![("zone", "2")],
        _ => vec![],
    }
}

fn happen(world: &mut World, event: Event) {
    let (namespace, cluster) = (|n: usize| NAMESPACES[n], |n: usize| CLUSTERS[n]);
    match event {
        Event::Offload(n, same, kind) => {
            let strategy = if same { "EnforceSameName" } else { "DefaultName" };
            world.make_namespace(namespace(n));
            let spec = json!({"namespaceMappingStrategy": strategy, "clusterSelector": selector(kind)});
            world.offload(namespace(n), &spec);
        }
        Event::Reselect(n, kind) => world.reselect(namespace(n), &selector(kind)),
        Event::Delete(n) => world.delete(namespace(n)),
        Event::Force(n) => world.force(namespace(n)),
        Event::Strip(n) => world.strip(namespace(n)),
        Event::Label(n, on) => {
            world.make_namespace(namespace(n));
            world.label(namespace(n), on);
        }
        Event::DeleteNamespace(n) => world.delete_namespace(namespace(n)),
        Event::Join(c, kind) => world.join(cluster(c), &zone(kind)),
        Event::Relabel(c, kind) => world.relabel(cluster(c), &zone(kind)),
        Event::LoseNode(c) => world.lose_node(cluster(c)),
        Event::Unpeer(c, force) => world.unpeer(cluster(c), force),
        Event::Answer(c, 0) => world.provider(cluster(c), Provider::Silent),
        Event::Answer(c, 1) => world.provider(cluster(c), Provider::Refuses("full".into())),
        Event::Answer(c, _) => world.provider(cluster(c), Provider::Answers),
        Event::Run(n, c) => world.run(namespace(n), cluster(c)),
        Event::DeleteMap(c) => world.delete_map(cluster(c)),
        Event::Work(most) => _ = world.work(most),
        Event::Restart => world.restart(),
        Event::Others => world.others(),
    }
}

fn events() -> impl Strategy<Value = Event> {
    let (n, c) = (|| 0..NAMESPACES.len(), || 0..CLUSTERS.len());
    prop_oneof![
        4 => (n(), any::<bool>(), 0..4_usize).prop_map(|(n, same, kind)| Event::Offload(n, same, kind)),
        3 => (n(), 0..4_usize).prop_map(|(n, kind)| Event::Reselect(n, kind)),
        2 => n().prop_map(Event::Delete),
        1 => n().prop_map(Event::Force),
        1 => n().prop_map(Event::Strip),
        2 => (n(), any::<bool>()).prop_map(|(n, on)| Event::Label(n, on)),
        1 => n().prop_map(Event::DeleteNamespace),
        4 => (c(), 0..3_usize).prop_map(|(c, kind)| Event::Join(c, kind)),
        2 => (c(), 0..3_usize).prop_map(|(c, kind)| Event::Relabel(c, kind)),
        1 => c().prop_map(Event::LoseNode),
        1 => (c(), any::<bool>()).prop_map(|(c, force)| Event::Unpeer(c, force)),
        2 => (c(), 0..4_u8).prop_map(|(c, how)| Event::Answer(c, how)),
        4 => (n(), c()).prop_map(|(n, c)| Event::Run(n, c)),
        1 => c().prop_map(Event::DeleteMap),
        8 => (0..5_usize).prop_map(Event::Work),
        1 => Just(Event::Restart),
        6 => Just(Event::Others),
    ]
}

/// What each map must hold, from what is there alone; of several that want one name, one has it.
fn assert_right(world: &World) {
    for (id, cluster) in &world.clusters {
        let selected: BTreeSet<String> = world.selected(id);
        let desired: BTreeMap<String, String> = serde_json::from_value(world.desired(id)).unwrap();
        for (namespace, remote) in &desired {
            assert!(selected.contains(namespace), "{namespace} is not wanted on {id}: {world:#?}");
            assert_eq!(Some(remote.clone()), world.remote(namespace), "{world:#?}");
        }
        let names: BTreeSet<&String> = desired.values().collect();
        assert_eq!(names.len(), desired.len(), "two namespaces have one name on {id}: {world:#?}");
        for namespace in &selected {
            let Some(remote) = world.remote(namespace) else { continue };
            assert!(names.contains(&remote), "{namespace} is missing on {id}: {world:#?}");
        }
        assert!(cluster.pods.is_subset(&selected), "pods are left on {id}: {world:#?}");
        if !cluster.peered {
            assert!(!world.maps.contains_key(id), "the map outlives the peering: {world:#?}");
        }
    }
    for (namespace, offloading) in &world.offloadings {
        assert!(offloading.metadata.deletion_timestamp.is_none(), "{namespace} does not go: {world:#?}");
        assert_phase(world, namespace);
    }
    for (namespace, home) in &world.namespaces {
        let offloaded = world.offloadings.contains_key(namespace);
        let enabled =
            home.metadata.labels.as_ref().is_some_and(|labels| labels.contains_key("liqo.io/enabled"));
        let refused = enabled && !offloaded;
        assert_eq!(
            refused,
            (namespace.len() > 26 || namespace == UNSEEN) && refused,
            "the label on {namespace} is not followed: {world:#?}"
        );
        let told = home.status.iter().flat_map(|status| status.conditions.iter().flatten()).count();
        assert_eq!(told, usize::from(refused), "{world:#?}");
        assert_eq!(world.is_admitted(namespace), offloaded && namespace != UNSEEN, "{world:#?}");
    }
}

fn assert_phase(world: &World, namespace: &str) {
    let wanted: Vec<&String> =
        world.clusters.keys().filter(|id| world.selected(id).contains(namespace)).collect();
    let there = |id: &&&String| {
        world.current(id)[namespace]["phase"] == json!("Accepted")
            && world.desired(id)[namespace] != json!(null)
    };
    let created = wanted.iter().filter(there).count();
    let expected = match (wanted.len(), created) {
        (0, _) => OffloadingPhase::NoClusterSelected,
        (_, 0) => OffloadingPhase::AllFailed,
        (wanted, created) if wanted == created => OffloadingPhase::Ready,
        (_, _) => OffloadingPhase::SomeFailed,
    };
    assert_eq!(world.phase(namespace), Some(expected), "{namespace}: {world:#?}");
    let conditions = &world.offloadings[namespace].status.as_ref().unwrap().remote_namespaces_conditions;
    assert_eq!(conditions.keys().collect::<Vec<_>>(), wanted, "{namespace}: {world:#?}");
}

proptest! {
    /// Random deeds, every plan cut off after a random number of writes, controllers that start anew and peers that
    /// answer late: left in peace, all is as people want it, at rest nothing is written, and an index that is filled
    /// anew agrees with the one that followed every change.
    #[test]
    fn whatever_happens_it_ends_up_right(events in proptest::collection::vec(events(), 0..60)) {
        let mut world = World::new();
        for event in events {
            happen(&mut world, event);
        }
        for cluster in CLUSTERS {
            let refuses = matches!(world.clusters.get(cluster).map(|cluster| &cluster.provider), Some(Provider::Refuses(_)));
            if !refuses {
                world.provider(cluster, Provider::Answers);
            }
        }
        world.settle();
        world.renew_nodes();
        world.settle();
        assert_right(&world);
        world.restart();
        prop_assert_eq!(world.plan(), vec![]);
    }

    /// Whatever was there, when all is deleted nothing is left.
    #[test]
    fn when_all_is_taken_back_nothing_is_left(events in proptest::collection::vec(events(), 0..40)) {
        let mut world = World::new();
        for event in events {
            happen(&mut world, event);
        }
        for cluster in CLUSTERS {
            world.provider(cluster, Provider::Answers);
        }
        world.renew_nodes();
        for namespace in NAMESPACES {
            world.label(namespace, false);
            world.delete(namespace);
        }
        world.settle();
        for cluster in CLUSTERS {
            prop_assert_eq!(world.desired(cluster), json!({}));
            prop_assert_eq!(world.current(cluster), json!({}));
            world.unpeer(cluster, false);
        }
        world.settle();
        prop_assert!(world.offloadings.is_empty() && world.maps.is_empty(), "{:#?}", world);
    }
}

/// A cut after every single write, in order: the same end each time.
#[test]
fn a_cut_after_any_write_changes_nothing_in_the_end() {
    let story = |cut: usize| {
        let (mut world, mut left, mut writes) = (World::new(), cut, 0);
        for event in [
            Event::Join(0, 0),
            Event::Join(1, 1),
            Event::Offload(0, false, 0),
            Event::Label(1, true),
            Event::Reselect(0, 1),
            Event::Relabel(1, 0),
            Event::Label(1, false),
            Event::Unpeer(1, false),
            Event::Delete(0),
        ] {
            happen(&mut world, event);
            for _ in 0..12 {
                let done = world.work(left);
                if done == left {
                    world.restart();
                }
                left = left.checked_sub(done).filter(|left| *left > 0).unwrap_or(usize::MAX);
                writes += done;
                world.others();
            }
        }
        world.settle();
        (world, writes)
    };
    let (whole, all) = story(usize::MAX);
    assert!(all > 15, "{all} writes are too few to be all of them");
    for cut in 1..all {
        let (world, _) = story(cut);
        assert_eq!(world.desired("turin"), json!({}));
        assert_eq!((world.maps.len(), world.offloadings.len()), (whole.maps.len(), whole.offloadings.len()));
        assert_eq!((world.maps.len(), world.offloadings.len()), (1, 0), "{world:#?}");
    }
}
