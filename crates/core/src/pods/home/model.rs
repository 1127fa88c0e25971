//! Home and a provider, in which anything may happen between any two writes: it always comes to rest, and at rest it is as
//! it should be. The provider decides as the real one does.

mod world;

use proptest::prelude::*;

use super::{Standing, Write};
use crate::pods::inward::{Ending, ready};
pub(super) use world::{PAUSE, World};

/// Something that happens.
#[derive(Clone, Copy, Debug)]
enum Deed {
    /// A pod is created at home.
    Create,
    /// It is deleted with this grace.
    Delete(i64),
    /// It is deleted by force: it is gone at once.
    Force,
    /// Home performs so many writes, and is killed.
    Work(usize),
    /// The provider takes a step.
    Provide,
    /// A kubelet over there takes a step.
    Run,
    /// The pod over there ends, well or not.
    End(bool),
    /// Somebody over there deletes it.
    Take,
    /// Its node burns down.
    Burn,
    /// Somebody over there deletes the ShadowPod.
    Lose,
    /// Somebody else has a ShadowPod of that name over there.
    Squat,
    /// The peer answers, or does not.
    Near(bool),
    /// Nothing gets to the peer, or all does again, before anybody notices.
    Cut(bool),
    /// The tunnel is up, or is not.
    Tunnel(bool),
    /// There is room for a pod over there, or is none.
    Room(bool),
    /// The provider allows such a pod, or does not.
    Allow(bool),
    /// The namespace is dropped from the provider, or wanted there again.
    Drop(Standing),
    /// Time passes.
    Pass,
}

fn deeds() -> impl Strategy<Value = Vec<Deed>> {
    let deed = prop_oneof![
        2 => Just(Deed::Create),
        2 => prop_oneof![Just(0), Just(1), Just(30), Just(300)].prop_map(Deed::Delete),
        1 => Just(Deed::Force),
        12 => (0..4_usize).prop_map(Deed::Work),
        9 => Just(Deed::Provide),
        6 => Just(Deed::Run),
        1 => any::<bool>().prop_map(Deed::End),
        1 => Just(Deed::Take),
        1 => Just(Deed::Burn),
        1 => Just(Deed::Lose),
        1 => Just(Deed::Squat),
        2 => any::<bool>().prop_map(Deed::Near),
        2 => any::<bool>().prop_map(Deed::Cut),
        1 => any::<bool>().prop_map(Deed::Tunnel),
        1 => any::<bool>().prop_map(Deed::Room),
        1 => any::<bool>().prop_map(Deed::Allow),
        3 => prop_oneof![
            Just(Standing::Wanted),
            Just(Standing::Undecided),
            Just(Standing::Dropped),
            Just(Standing::GivenUp),
        ]
        .prop_map(Deed::Drop),
        1 => Just(Deed::Pass),
    ];
    proptest::collection::vec(deed, 0..60)
}

fn policies() -> impl Strategy<Value = &'static str> {
    prop_oneof![Just("Always"), Just("OnFailure"), Just("Never")]
}

impl World {
    fn suffer(&mut self, deed: Deed) {
        match deed {
            Deed::Create => self.create(),
            Deed::Delete(grace) => self.delete(grace),
            Deed::Force => self.local = None,
            Deed::Work(most) => _ = self.work(most),
            Deed::Provide => _ = self.provide(),
            Deed::Run => _ = self.run(),
            Deed::End(is_well) => self.end(is_well),
            Deed::Take => self.take(),
            Deed::Burn => self.burn(),
            Deed::Lose => self.lose(),
            Deed::Squat => self.squat(),
            Deed::Near(is_near) => self.is_near = is_near,
            Deed::Cut(is_cut) => self.is_cut = is_cut,
            Deed::Tunnel(is_up) => self.tunnel_is_up = is_up,
            Deed::Room(has_room) => self.has_room = has_room,
            Deed::Allow(is_allowed) => self.is_allowed = is_allowed,
            Deed::Drop(standing) => self.set_standing(standing),
            Deed::Pass => self.seconds += 25,
        }
    }

    /// What must hold at any moment.
    fn assert_sound(&self) {
        if self.policy == "Never" {
            assert!(
                self.ran.values().all(|ran| ran.len() <= 1),
                "what runs once does not run twice: {:?}",
                self.ran
            );
        }
        if self.is_near && self.has_something_there() {
            assert!(self.keeps_namespace(), "its namespace goes before it: {:?}", self.remote);
        }
        if let Some((restarts, made)) = self.counts() {
            assert!(restarts <= made.saturating_sub(1), "{restarts} restarts of {made}");
        }
    }

    /// What must hold once nothing is left to do.
    fn assert_at_rest(&self) {
        assert_eq!(self.plan().writes, [], "at rest nothing is written");
        let Some(local) = &self.local else {
            assert!(!self.lodges(), "nothing is waited for");
            assert!(self.shadow.is_none() && self.remote.is_none(), "an orphan");
            return;
        };
        assert!(local.metadata.deletion_timestamp.is_none(), "who is deleted goes");
        let runs = self.remote.as_ref().is_some_and(|remote| Ending::of(remote).is_none());
        assert_eq!(runs, Ending::of(local).is_none(), "it runs there as it shows here");
        assert_eq!(runs, ready(local).is_some_and(|ready| ready.status == "True"));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn whatever_happens_in_between_it_comes_to_the_right_end(policy in policies(), deeds in deeds()) {
        let mut world = World::new(policy);
        for deed in deeds {
            world.suffer(deed);
            world.assert_sound();
        }
        world.rest();
        world.assert_sound();
        world.assert_at_rest();
        world.delete(30);
        world.rest();
        prop_assert!(world.local.is_none());
        world.assert_at_rest();
    }
}

#[test]
fn a_life_that_is_cut_off_after_any_write_comes_to_the_same_end() {
    for cut in 0..12 {
        let mut world = World::new("Always");
        let mut left = cut;
        while left > 0 {
            let done = world.work(left);
            left -= done;
            if !(world.provide() || world.run() || done > 0) {
                break;
            }
        }
        world.rest();
        world.assert_at_rest();
        assert_eq!(world.made.values().sum::<u32>(), 1, "cut off after {cut} writes");
        world.delete(1);
        let mut left = cut;
        while left > 0 && world.local.is_some() {
            let done = world.work(left);
            left -= done;
            if !(world.provide() || world.run() || done > 0) {
                break;
            }
        }
        world.rest();
        assert!(world.local.is_none());
        world.assert_at_rest();
    }
}

#[test]
fn an_undisturbed_life_takes_few_writes() {
    let mut world = World::new("Always");
    world.rest();
    world.delete(30);
    world.rest();
    let over_there = |write: &&Write| {
        matches!(write, Write::CreateShadow(_) | Write::ChangeShadow { .. } | Write::DeleteShadow { .. })
    };
    assert_eq!(world.written.iter().filter(over_there).count(), 2, "{:?}", world.written);
    assert!(world.written.len() <= 8, "{:#?}", world.written);
}
