//! Home and a provider with one name of a pod between them, which take writes as API servers do.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ferro_api::names::{annotations, labels};
use ferro_api::tenancy::TenantSpec;
use ferro_api::virtualkubelet::{ShadowPod, ShadowPodPhase, ShadowPodSpec};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

use crate::pods::Refusal;
use crate::pods::home::{Look, Plan, Snapshot, Standing, Write, lodges, marking, plan};
use crate::pods::inward::{Ending, has_run, tests::show};
use crate::pods::outward::access::Access;
use crate::pods::provider::{self, Step};
use crate::replication::apply;

const HOME: &str = "34750f98-bd59-8cfc-946d-a45aaabe933b";
const THERE: &str = "shop-rome";
pub(in crate::pods::home) const PAUSE: Duration = Duration::from_secs(20);

#[expect(clippy::struct_excessive_bools, reason = "each is a fault that comes and goes by itself")]
pub(in crate::pods::home) struct World {
    pub(in crate::pods::home) policy: &'static str,
    pub(in crate::pods::home) local: Option<Pod>,
    pub(in crate::pods::home) shadow: Option<ShadowPod>,
    pub(in crate::pods::home) remote: Option<Pod>,
    pub(in crate::pods::home) namespace: Option<&'static str>,
    pub(in crate::pods::home) is_near: bool,
    /// Whether nothing gets to the peer, which nobody has noticed yet.
    pub(in crate::pods::home) is_cut: bool,
    pub(in crate::pods::home) tunnel_is_up: bool,
    pub(in crate::pods::home) has_room: bool,
    /// Whether the provider allows such a pod.
    pub(in crate::pods::home) is_allowed: bool,
    pub(in crate::pods::home) admitted: Result<(), Refusal>,
    standing: Standing,
    pub(in crate::pods::home) seconds: i64,
    /// All that home has written.
    pub(in crate::pods::home) written: Vec<Write>,
    /// How many pods the provider has made for each pod at home.
    pub(in crate::pods::home) made: BTreeMap<String, u32>,
    /// Which of them have run.
    pub(in crate::pods::home) ran: BTreeMap<String, BTreeSet<String>>,
    /// The grace that the last of them was first deleted with: a kubelet keeps to it, whatever comes later.
    pub(in crate::pods::home) heard: Option<i64>,
    uids: u32,
}

impl World {
    pub(in crate::pods::home) fn new(policy: &'static str) -> Self {
        let mut world = Self {
            policy,
            local: None,
            shadow: None,
            remote: None,
            namespace: Some(THERE),
            is_near: true,
            is_cut: false,
            tunnel_is_up: true,
            has_room: true,
            is_allowed: true,
            admitted: Ok(()),
            standing: Standing::Wanted,
            seconds: 1_000_000,
            written: Vec::new(),
            made: BTreeMap::new(),
            ran: BTreeMap::new(),
            heard: None,
            uids: 0,
        };
        world.create();
        world
    }

    fn uid(&mut self) -> String {
        self.uids += 1;
        format!("uid-{}", self.uids)
    }

    pub(in crate::pods::home) fn time(&self) -> Time {
        Time(self.now())
    }

    fn now(&self) -> Timestamp {
        Timestamp::from_second(self.seconds).unwrap()
    }

    /// Somebody at home creates a pod, and it is bound to the node.
    pub(in crate::pods::home) fn create(&mut self) {
        if self.local.is_some() {
            return;
        }
        let silent = |key: &str| json!({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300});
        let pod = json!({
            "metadata": {"name": "web", "namespace": "shop", "uid": self.uid(), "generation": 1},
            "spec": {
                "restartPolicy": self.policy, "nodeName": "liqo-turin",
                "containers": [{"name": "a", "image": "nginx"}],
                "tolerations": [silent("node.kubernetes.io/not-ready"), silent("node.kubernetes.io/unreachable")],
            },
            "status": {"phase": "Pending"},
        });
        self.local = Some(serde_json::from_value(pod).unwrap());
    }

    /// Somebody at home deletes it.
    pub(in crate::pods::home) fn delete(&mut self, grace: i64) {
        let time = self.time();
        if let Some(pod) = &mut self.local {
            end(&mut pod.metadata, time, grace);
        }
    }

    /// Somebody over there has a ShadowPod of that name.
    pub(in crate::pods::home) fn squat(&mut self) {
        if self.shadow.is_none() {
            let mut metadata = ObjectMeta { uid: Some("foreign".into()), ..ObjectMeta::default() };
            metadata.name = Some("web".into());
            labels::ORIGIN_ID.put_on(&mut metadata, "somebody-else");
            self.shadow = Some(ShadowPod { metadata, ..ShadowPod::default() });
        }
    }

    pub(in crate::pods::home) fn is_squatted(&self) -> bool {
        self.shadow.as_ref().is_some_and(|shadow| shadow.metadata.uid.as_deref() == Some("foreign"))
    }

    /// Whether the provider would make another pod in place of one that is gone.
    fn would_make_another(&self) -> bool {
        let shadow = self.shadow.as_ref().filter(|_| !self.is_squatted());
        shadow.is_some_and(|shadow| annotations::ENDING.of(&shadow.metadata).is_none())
    }

    /// The policy of the namespace has changed, or the node of the provider.
    pub(in crate::pods::home) fn set_standing(&mut self, standing: Standing) {
        self.standing = standing;
        self.admitted = match standing {
            Standing::Wanted | Standing::Undecided => Ok(()),
            Standing::Dropped | Standing::GivenUp => Err(Refusal::new("ClusterNotSelected", "it is not")),
        };
    }

    pub(in crate::pods::home) fn plan(&self) -> Plan {
        self.see(plan)
    }

    pub(in crate::pods::home) fn lodges(&self) -> bool {
        self.see(lodges)
    }

    /// Whether the namespace over there has to stay for the sake of what is there, or is about to be.
    pub(in crate::pods::home) fn keeps_namespace(&self) -> bool {
        self.lodges() || self.plan().begins()
    }

    /// Whether something of ours is over there that has not ended, or is being removed.
    pub(in crate::pods::home) fn has_something_there(&self) -> bool {
        let shadow = self.shadow.as_ref().filter(|_| !self.is_squatted());
        let is_kept = |pod: &Pod| pod.metadata.deletion_timestamp.is_none() && Ending::of(pod).is_some();
        let is_over = self.local.as_ref().is_some_and(is_kept) && self.remote.as_ref().is_none_or(is_kept);
        (shadow.is_some() || self.remote.is_some()) && !is_over
    }

    fn see<T>(&self, look: impl Fn(&Snapshot<'_>) -> T) -> T {
        let shadow = self.shadow.clone().map(|shadow| ShadowPod { spec: ShadowPodSpec::default(), ..shadow });
        let remote = self.remote.clone().map(|remote| Pod { spec: None, ..remote });
        look(&Snapshot {
            home: HOME,
            pod: self.local.as_ref(),
            shadow: shadow.as_ref().filter(|_| self.is_near),
            remote: remote.as_ref().filter(|_| self.is_near),
            namespace: self.namespace,
            admitted: self.admitted.clone(),
            access: &Access::Closed,
            standing: self.standing,
            is_near: self.is_near,
            tunnel_is_up: self.tunnel_is_up,
            view: &Some,
            host_ip: Some([172, 16, 0, 9].into()),
            drain_delay: Duration::from_hours(24),
            pause: PAUSE,
            now: self.now(),
        })
    }

    /// Home performs so many writes of one plan, and is killed. How many it did.
    pub(in crate::pods::home) fn work(&mut self, most: usize) -> usize {
        let looks = |write: &Write| matches!(write, Write::Finish { look: Look::Needed, .. });
        let arrives = |write: &Write| !(self.is_cut && (is_for_there(write) || looks(write)));
        let writes: Vec<Write> =
            self.plan().writes.into_iter().take(most).take_while(|write| arrives(write)).collect();
        let done = writes.len();
        for write in writes {
            self.perform(write);
        }
        done
    }

    fn perform(&mut self, write: Write) {
        self.written.push(write.clone());
        let is_for_there = is_for_there(&write);
        assert!(self.is_near || !is_for_there, "nothing is written to a peer that does not answer");
        match write {
            Write::CreateShadow(shadow) => self.create_shadow(*shadow),
            Write::ChangeShadow { uid, patch } => self.change_shadow(&uid, &patch),
            Write::DeleteShadow { uid } => {
                let shadow = self.shadow.take().unwrap();
                assert_eq!(shadow.metadata.uid, Some(uid));
                assert_eq!(labels::ORIGIN_ID.of(&shadow.metadata), Some(HOME), "not ours");
            }
            Write::MarkEnding { uid } => {
                let generation = self.shadow.as_ref().unwrap().metadata.generation;
                self.change_shadow(&uid, &marking());
                self.shadow.as_mut().unwrap().metadata.generation = generation;
            }
            Write::EndRemote { uid, grace } => {
                assert!(!self.would_make_another(), "it would be made again");
                assert_eq!(self.remote.as_ref().unwrap().metadata.uid, Some(uid));
                self.end_remote(grace.into());
            }
            Write::Tolerate(patch) => {
                let mut pod = serde_json::to_value(&self.local).unwrap();
                apply(&mut pod, &patch);
                let mut pod: Pod = serde_json::from_value(pod).unwrap();
                pod.metadata.generation = pod.metadata.generation.map(|generation| generation + 1);
                self.local = Some(pod);
            }
            Write::Show(patch) => {
                let pod = self.local.as_mut().unwrap();
                let before = Ending::of(pod);
                show(pod, &patch);
                assert!(before.is_none() || Ending::of(pod) == before, "an end is final");
            }
            Write::Delete { uid } => {
                let pod = self.local.as_ref().unwrap();
                assert_eq!(pod.metadata.uid, Some(uid));
                let is_dropped = matches!(self.standing, Standing::Dropped | Standing::GivenUp);
                assert!(is_dropped || self.namespace.is_none(), "nobody wants it to go");
                let hears = !self.is_cut || self.standing == Standing::GivenUp || self.namespace.is_none();
                assert!(hears, "it runs on while another is made in its place");
                self.delete(30);
            }
            Write::Finish { uid, look } => self.finish(&uid, look),
            Write::Ask | Write::Tell(_) => {}
        }
    }

    fn create_shadow(&mut self, mut shadow: ShadowPod) {
        assert!(self.remote.is_none(), "the former is not gone");
        assert_eq!(self.standing, Standing::Wanted, "it begins where its namespace is about to go");
        if self.shadow.is_none() {
            shadow.metadata.uid = Some(self.uid());
            shadow.metadata.generation = Some(1);
            self.shadow = Some(shadow);
        }
    }

    fn change_shadow(&mut self, uid: &str, patch: &Value) {
        let shadow = self.shadow.as_mut().unwrap();
        assert_eq!(shadow.metadata.uid.as_deref(), Some(uid));
        let mut changed = serde_json::to_value(&*shadow).unwrap();
        apply(&mut changed, patch);
        *shadow = serde_json::from_value(changed).unwrap();
        shadow.metadata.generation = shadow.metadata.generation.map(|generation| generation + 1);
    }

    fn finish(&mut self, uid: &str, look: Look) {
        let is_given_up = look == Look::Tried && self.standing == Standing::GivenUp;
        assert!(!self.is_cut || self.namespace.is_none() || is_given_up, "nobody has looked");
        let pod = self.local.as_mut().unwrap();
        assert_eq!(pod.metadata.uid.as_deref(), Some(uid));
        assert!(pod.metadata.deletion_timestamp.is_some(), "nobody deleted it");
        assert!(self.remote.is_none(), "something runs on");
        assert!(self.shadow.as_ref().is_none_or(|shadow| shadow.metadata.uid.as_deref() == Some("foreign")));
        if pod.metadata.finalizers.as_ref().is_some_and(|all| !all.is_empty()) {
            pod.metadata.deletion_grace_period_seconds = Some(0);
        } else {
            self.local = None;
        }
    }

    /// The provider takes one step. Whether there was one.
    pub(in crate::pods::home) fn provide(&mut self) -> bool {
        let (terms, now) = (TenantSpec::default(), self.now());
        let shadow = self.shadow.clone().filter(|_| !self.is_squatted());
        let snapshot = provider::Snapshot {
            shadow: shadow.as_ref(),
            pod: self.remote.as_ref(),
            tenant: Some((HOME, &terms)),
            is_open: true,
            now,
        };
        match provider::plan(&snapshot) {
            Step::Rest | Step::AwaitTenant => return false,
            Step::Wait(pause) => self.seconds += i64::try_from(pause.as_secs()).unwrap() + 1,
            Step::Create(_) if !self.is_allowed => self.reject("NotAllowed"),
            Step::Create(_) if !self.has_room => self.reject("QuotaExceeded"),
            Step::Create(pod) => self.make(*pod),
            Step::Open(_) => self.remote.as_mut().unwrap().spec.as_mut().unwrap().scheduling_gates = None,
            Step::Change(pod) => {
                self.remote.as_mut().unwrap().metadata.annotations = pod.metadata.annotations;
            }
            Step::Delete(_) => self.take(),
            Step::Show(status) | Step::Lose(status) => self.shadow.as_mut().unwrap().status = Some(*status),
        }
        true
    }

    fn reject(&mut self, word: &str) {
        let (why, now) = (Refusal::new(word, "so it is"), self.now());
        let shadow = self.shadow.as_mut().unwrap();
        let status = provider::rejected(shadow, &why, now);
        shadow.status = Some(status);
    }

    fn make(&mut self, mut pod: Pod) {
        assert!(self.remote.is_none(), "two of one name");
        let origin = annotations::ORIGIN_UID.of(&pod.metadata).unwrap().to_owned();
        *self.made.entry(origin).or_default() += 1;
        pod.metadata.uid = Some(self.uid());
        pod.status = Some(serde_json::from_value(json!({"phase": "Pending"})).unwrap());
        (self.remote, self.heard) = (Some(pod), None);
    }

    /// Somebody deletes the pod over there, with its own grace.
    pub(in crate::pods::home) fn take(&mut self) {
        self.end_remote(30);
    }

    fn end_remote(&mut self, grace: i64) {
        let time = self.time();
        if let Some(remote) = &mut self.remote {
            end(&mut remote.metadata, time, grace);
            self.heard.get_or_insert(grace);
        }
    }

    /// A kubelet over there takes one step. Whether there was one.
    pub(in crate::pods::home) fn run(&mut self) -> bool {
        let Some(remote) = &mut self.remote else { return false };
        let is_going = remote.metadata.deletion_timestamp.is_some();
        let is_gated = remote.spec.as_ref().is_some_and(|spec| spec.scheduling_gates.is_some());
        match (remote.status.as_ref().unwrap().phase.as_deref(), is_going) {
            (Some("Pending"), false) if is_gated => return false,
            (Some("Pending"), false) => {
                let origin = annotations::ORIGIN_UID.of(&remote.metadata).unwrap().to_owned();
                self.ran.entry(origin).or_default().insert(remote.metadata.uid.clone().unwrap());
                self.is_now("Running", &json!({"running": {}}));
            }
            (Some("Running"), true) => self.is_now("Failed", &json!({"terminated": {"exitCode": 143}})),
            (_, true) => self.remote = None,
            (_, false) => return false,
        }
        true
    }

    fn is_now(&mut self, phase: &str, state: &Value) {
        let word = if phase == "Running" { "True" } else { "False" };
        let condition = |type_: &str| json!({"type": type_, "status": word});
        let id = self.remote.as_ref().and_then(|remote| remote.metadata.uid.as_deref());
        let container = json!({"name": "a", "image": "nginx", "imageID": "", "containerID": id, "ready": true,
            "restartCount": 0, "state": state});
        let status = json!({"phase": phase, "podIP": "10.1.0.7", "podIPs": [{"ip": "10.1.0.7"}],
            "containerStatuses": [container], "conditions": [condition("Ready"), condition("ContainersReady")]});
        self.remote.as_mut().unwrap().status = Some(serde_json::from_value(status).unwrap());
    }

    /// The pod over there ends by itself.
    pub(in crate::pods::home) fn end(&mut self, is_well: bool) {
        let is_running = |pod: &Pod| pod.status.as_ref().unwrap().phase.as_deref() == Some("Running");
        if self.policy != "Always" && self.remote.as_ref().is_some_and(is_running) {
            let (phase, code) = if is_well { ("Succeeded", 0) } else { ("Failed", 1) };
            self.is_now(phase, &json!({"terminated": {"exitCode": code}}));
        }
    }

    /// A node over there burns down.
    pub(in crate::pods::home) fn burn(&mut self) {
        self.remote = None;
    }

    /// Somebody over there deletes our ShadowPod. What home never saw running it cannot miss.
    pub(in crate::pods::home) fn lose(&mut self) {
        if !self.is_squatted() && self.local.as_ref().is_some_and(has_run) {
            self.shadow = None;
        }
    }

    /// All work until nothing is left to be done.
    pub(in crate::pods::home) fn rest(&mut self) {
        (self.is_near, self.is_cut, self.tunnel_is_up) = (true, false, true);
        (self.has_room, self.is_allowed) = (true, true);
        self.set_standing(Standing::Wanted);
        if self.is_squatted() {
            self.shadow = None;
        }
        for _ in 0..300 {
            let has_worked = self.work(usize::MAX) > 0;
            let again = self.plan().again;
            if !(self.provide() || self.run() || has_worked) {
                let Some(pause) = again else { return };
                self.seconds += i64::try_from(pause.as_secs()).unwrap().max(1);
            }
        }
        panic!("it never rests: {:?}, {:?}, {:?}", self.plan(), self.shadow, self.remote);
    }

    /// How often the pod is said to have been started again, and how many were made for it.
    pub(in crate::pods::home) fn counts(&self) -> Option<(u32, u32)> {
        let local = self.local.as_ref()?;
        let container = local.status.as_ref()?.container_statuses.as_ref()?.first()?;
        let made = self.made.get(local.metadata.uid.as_ref()?).copied().unwrap_or_default();
        Some((u32::try_from(container.restart_count).unwrap(), made))
    }

    pub(in crate::pods::home) fn phase_over_there(&self) -> Option<ShadowPodPhase> {
        self.shadow.as_ref()?.status.as_ref()?.phase
    }
}

fn is_for_there(write: &Write) -> bool {
    matches!(
        write,
        Write::CreateShadow(_)
            | Write::ChangeShadow { .. }
            | Write::DeleteShadow { .. }
            | Write::MarkEnding { .. }
            | Write::EndRemote { .. }
            | Write::Ask
    )
}

fn end(meta: &mut ObjectMeta, time: Time, grace: i64) {
    meta.deletion_timestamp.get_or_insert(time);
    let given = meta.deletion_grace_period_seconds.get_or_insert(grace);
    *given = grace.min(*given);
}
