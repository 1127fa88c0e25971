//! A small world: a consumer that writes and deletes, pods that run, end and are lost at any moment, and a controller that
//! is ended after any of its writes. Whatever happens, no two run for one, what runs once does not run twice, and all
//! comes to rest.

use std::collections::{BTreeMap, BTreeSet};

use ferro_api::names::annotations;
use ferro_api::tenancy::TenantSpec;
use ferro_api::virtualkubelet::{ShadowPod, ShadowPodPhase};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;
use proptest::prelude::*;
use serde_json::json;

use super::plan::{is_gated, plan_with};
use super::tests::{make, shadow};
use super::*;

/// What happens outside.
#[derive(Clone, Copy, Debug)]
enum Deed {
    /// The consumer wants one, by its policy; in place of what it wanted before.
    Want(&'static str),
    /// It wants another image.
    Change,
    /// It wants none.
    Forget,
    /// A kubelet starts the pod.
    Start,
    /// It ends.
    End(&'static str),
    /// Somebody deletes it.
    Take,
    /// A kubelet is done with one that is deleted.
    Vanish,
    /// Its node burns down.
    Burn,
    /// The controller performs so many writes and is ended.
    Work(usize),
    /// The controller works until nothing is left to do.
    Settle,
}

#[derive(Default)]
struct World {
    shadow: Option<ShadowPod>,
    pod: Option<Pod>,
    uids: u32,
    seconds: i64,
    /// How many pods were made from each ShadowPod, in their order.
    made: BTreeMap<String, u32>,
    /// Which of those have run that must not run twice.
    ran: BTreeMap<String, BTreeSet<String>>,
}

impl World {
    fn uid(&mut self) -> String {
        self.uids += 1;
        format!("uid-{}", self.uids)
    }

    fn snapshot<'a>(&'a self, terms: &'a TenantSpec) -> Snapshot<'a> {
        Snapshot {
            shadow: self.shadow.as_ref(),
            pod: self.pod.as_ref(),
            tenant: Some(("c1", terms)),
            is_open: true,
            now: Timestamp::from_second(self.seconds).unwrap(),
        }
    }

    fn plan(&self) -> Step {
        plan_with(&self.snapshot(&TenantSpec::default()), make)
    }

    /// Performs one step; says whether there was any.
    fn step(&mut self) -> bool {
        match self.plan() {
            Step::Rest | Step::AwaitTenant => return false,
            Step::Wait(pause) => self.seconds += i64::try_from(pause.as_secs()).unwrap() + 1,
            Step::Create(pod) => self.create(*pod),
            Step::Open(uid) => {
                let pod = self.pod.as_mut().unwrap();
                assert_eq!(pod.metadata.uid, Some(uid));
                pod.spec.as_mut().unwrap().scheduling_gates = None;
            }
            Step::Change(wanted) => {
                self.pod.as_mut().unwrap().metadata.annotations = wanted.metadata.annotations;
            }
            Step::Delete(uid) => {
                assert_eq!(self.pod.as_ref().unwrap().metadata.uid, Some(uid));
                self.take();
            }
            Step::Show(status) | Step::Lose(status) => self.shadow.as_mut().unwrap().status = Some(*status),
        }
        true
    }

    fn create(&mut self, mut pod: Pod) {
        assert!(self.pod.is_none(), "of one name there is one");
        pod.metadata.uid = Some(self.uid());
        let source = self.shadow.as_ref().unwrap();
        let uid = annotations::SHADOW_UID.of(&pod.metadata).unwrap().to_owned();
        assert_eq!(Some(&uid), source.metadata.uid.as_ref());
        *self.made.entry(uid).or_default() += 1;
        self.pod = Some(pod);
    }

    fn take(&mut self) {
        let Some(pod) = &mut self.pod else { return };
        pod.metadata.deletion_timestamp = serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap();
        if pod.status.is_none() {
            // Nothing of it runs, so that nobody is waited for.
            self.pod = None;
        }
    }

    fn settle(&mut self) {
        for _ in 0..50 {
            if !self.step() {
                return;
            }
        }
        panic!("this never comes to rest: {:?}", self.plan());
    }

    /// Kubelets have nothing to do with a pod that no scheduler has placed.
    fn set_phase(&mut self, phase: &str) {
        if let Some(pod) = self.pod.as_mut().filter(|pod| !is_gated(pod)) {
            if pod.spec.as_ref().unwrap().restart_policy.as_deref() == Some("Never") {
                let source = annotations::SHADOW_UID.of(&pod.metadata).unwrap().to_owned();
                self.ran.entry(source).or_default().insert(pod.metadata.uid.clone().unwrap());
            }
            let present = pod.status.as_ref().and_then(|status| status.phase.as_deref());
            if !matches!(present, Some("Succeeded" | "Failed")) {
                pod.status = serde_json::from_value(json!({"phase": phase})).unwrap();
            }
        }
    }

    fn perform(&mut self, deed: Deed) {
        match deed {
            Deed::Want(policy) => {
                let uid = self.uid();
                self.shadow = Some(shadow(&uid, policy, "i"));
            }
            Deed::Change => {
                if let Some(shadow) = &mut self.shadow {
                    shadow.metadata.generation = shadow.metadata.generation.map(|generation| generation + 1);
                    shadow.spec.pod.containers[0].image = Some(format!("i{}", self.uids));
                }
            }
            Deed::Forget => self.shadow = None,
            Deed::Start => self.set_phase("Running"),
            Deed::End(phase) => self.set_phase(phase),
            Deed::Take => self.take(),
            Deed::Vanish => {
                if self.pod.as_ref().is_some_and(|pod| pod.metadata.deletion_timestamp.is_some()) {
                    self.pod = None;
                }
            }
            Deed::Burn => self.pod = None,
            Deed::Work(writes) => _ = (0..writes).take_while(|_| self.step()).count(),
            Deed::Settle => self.settle(),
        }
    }

    fn check(&self) {
        for (uid, ran) in &self.ran {
            assert!(ran.len() <= 1, "{uid} runs once, and has run as {ran:?}");
        }
    }

    /// Everything that is on its way arrives.
    fn come_to_rest(&mut self) {
        for _ in 0..10 {
            self.settle();
            self.perform(Deed::Vanish);
        }
        assert_eq!(self.plan(), Step::Rest);
        self.check();
        let Some(shadow) = &self.shadow else {
            assert!(self.pod.is_none(), "no orphan is left");
            return;
        };
        match shadow.status.as_ref().unwrap().phase.unwrap() {
            ShadowPodPhase::Active => assert!(is_made_from(self.pod.as_ref().unwrap(), shadow)),
            ShadowPodPhase::Succeeded | ShadowPodPhase::Failed | ShadowPodPhase::Rejected => {
                assert!(!takes_room(&self.snapshot(&TenantSpec::default())));
            }
            ShadowPodPhase::Pending => panic!("it is still to be made"),
        }
    }
}

fn deed() -> impl Strategy<Value = Deed> {
    prop_oneof![
        2 => prop_oneof![Just("Always"), Just("OnFailure"), Just("Never")].prop_map(Deed::Want),
        1 => Just(Deed::Change),
        1 => Just(Deed::Forget),
        3 => Just(Deed::Start),
        1 => prop_oneof![Just("Succeeded"), Just("Failed")].prop_map(Deed::End),
        2 => Just(Deed::Take),
        2 => Just(Deed::Vanish),
        2 => Just(Deed::Burn),
        4 => (0..4_usize).prop_map(Deed::Work),
        1 => Just(Deed::Settle),
    ]
}

proptest! {
    #[test]
    fn whatever_happens_and_wherever_it_is_cut_off_all_comes_to_rest(
        deeds in proptest::collection::vec(deed(), 0..60),
    ) {
        let mut world = World::default();
        for deed in deeds {
            world.perform(deed);
            world.check();
        }
        world.come_to_rest();
    }
}

#[test]
fn a_life_that_is_cut_off_after_any_write_comes_to_the_same_end() {
    let life = [
        Deed::Want("Always"),
        Deed::Settle,
        Deed::Start,
        Deed::Take,
        Deed::Vanish,
        Deed::Settle,
        Deed::Start,
        Deed::Change,
        Deed::Settle,
        Deed::Want("Never"),
        Deed::Settle,
        Deed::Vanish,
        Deed::Settle,
        Deed::Start,
        Deed::End("Failed"),
        Deed::Settle,
    ];
    let settled = life.iter().filter(|deed| matches!(deed, Deed::Settle)).count();
    for (cut, writes) in (0..settled).flat_map(|cut| (0..5).map(move |writes| (cut, writes))) {
        let (mut world, mut round) = (World::default(), 0);
        for deed in life {
            if matches!(deed, Deed::Settle) {
                if round == cut {
                    world.perform(Deed::Work(writes));
                }
                round += 1;
            }
            world.perform(deed);
        }
        world.come_to_rest();
        let phase = world.shadow.as_ref().unwrap().status.as_ref().unwrap().phase;
        assert_eq!(phase, Some(ShadowPodPhase::Failed));
        let counts: Vec<u32> = world.made.values().copied().collect();
        assert_eq!(counts, [2, 1], "cut off in round {cut} after {writes} writes");
    }
}

#[test]
fn a_pod_that_runs_once_and_is_lost_right_after_its_creation_has_not_run() {
    let mut world = World::default();
    world.perform(Deed::Want("Never"));
    world.perform(Deed::Work(1));
    assert!(world.pod.is_some(), "the controller was ended before it noted the pod down");
    world.perform(Deed::Start);
    world.perform(Deed::Burn);
    world.perform(Deed::Settle);
    world.perform(Deed::Start);
    world.perform(Deed::Burn);
    world.come_to_rest();
    assert_eq!((world.ran.values().next().unwrap().len(), world.made.values().sum::<u32>()), (1, 2));
    assert_eq!(world.shadow.unwrap().status.unwrap().phase, Some(ShadowPodPhase::Failed));
}

#[test]
fn only_a_pod_that_runs_once_costs_a_write_more() {
    for (policy, expected) in [("Always", 2), ("OnFailure", 2), ("Never", 3)] {
        let mut world = World::default();
        world.perform(Deed::Want(policy));
        assert_eq!((0..50).take_while(|_| world.step()).count(), expected, "{policy}");
    }
}
