//! A small world: a consumer that writes and deletes, pods that run, end and are lost, and a controller that is ended
//! after any of its writes. Whatever happens, no two run for one, what runs once is made once, and all comes to rest.

use std::collections::BTreeMap;

use ferro_api::names::annotations;
use ferro_api::tenancy::TenantSpec;
use ferro_api::virtualkubelet::{ShadowPod, ShadowPodPhase};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;
use proptest::prelude::*;
use serde_json::json;

use super::plan::plan_with;
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
    /// How many pods were made from each ShadowPod, with its policy.
    made: BTreeMap<String, (String, u32)>,
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
        let policy = source.spec.pod.restart_policy.clone().unwrap();
        self.made.entry(uid).or_insert((policy, 0)).1 += 1;
        self.pod = Some(pod);
    }

    fn take(&mut self) {
        let Some(pod) = &mut self.pod else { return };
        pod.metadata.deletion_timestamp = serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap();
        if pod.status.is_none() {
            // Nothing of it runs, so that nobody is waited for.
            self.vanish();
        }
    }

    /// Only what was noted down is lost: who is ended right after a creation looks at the pod when it comes back.
    fn vanish(&mut self) {
        let is_noted = |shadow: &ShadowPod| {
            let noted = shadow.status.as_ref().and_then(|status| status.pod_uid.as_ref());
            noted == self.pod.as_ref().and_then(|pod| pod.metadata.uid.as_ref())
        };
        let source = self.shadow.as_ref();
        let is_of_it = |shadow: &ShadowPod| self.pod.as_ref().is_some_and(|pod| is_made_from(pod, shadow));
        if source.is_none_or(|shadow| !is_of_it(shadow) || is_noted(shadow)) {
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

    fn set_phase(&mut self, phase: &str) {
        if let Some(pod) = &mut self.pod {
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
                    self.vanish();
                }
            }
            Deed::Work(writes) => _ = (0..writes).take_while(|_| self.step()).count(),
            Deed::Settle => self.settle(),
        }
    }

    fn check(&self) {
        for (uid, (policy, made)) in &self.made {
            assert!(*made <= 1 || policy != "Never", "{uid} runs once, and was made {made} times");
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
        let counts: Vec<u32> = world.made.values().map(|(_, made)| *made).collect();
        assert_eq!(counts, [2, 1], "cut off in round {cut} after {writes} writes");
    }
}
