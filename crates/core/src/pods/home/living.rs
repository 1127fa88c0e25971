//! A pod at home that is wanted: it gets a ShadowPod, and shows what becomes of it.

use std::time::Duration;

use ferro_api::virtualkubelet::{ShadowPod, ShadowPodPhase};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::SignedDuration;

use super::there::{Shadow, ending_of, phase_of, seen};
use super::{Case, Notice, Plan, Write, delete, tolerations};
use crate::admission;
use crate::offloading::Standing;
use crate::pods::inward::{self, Ending, NO_ROOM, Seen, Sight, Wait};
use crate::pods::{Refusal, outward, provider};

/// The word of a pod over there that is gone, and is not made again.
const LOST: &str = "RemotePodLost";
/// A provider is asked again after so long whether it still does not take a pod: it does not say when that is over.
const ASKED_AGAIN: Duration = Duration::from_mins(5);

impl Case<'_> {
    /// What to do about a pod that is wanted.
    pub(super) fn live(&self) -> Plan {
        match self.there.shadow {
            Shadow::Absent => self.begin(),
            Shadow::Foreign => self.refuse(&Refusal::new(
                "NameTaken",
                "the cluster of this node has a ShadowPod of that name that is not from here; rename the pod, or have \
                 that one removed there",
            )),
            Shadow::Former(shadow) => {
                let mut plan = self.wait_for_former();
                plan.writes.splice(0..0, self.dismiss(shadow));
                plan
            }
            Shadow::Own(shadow) => self.follow(shadow),
        }
    }

    fn wait_for_former(&self) -> Plan {
        self.wait("the former pod of that name is being removed on the cluster of this node")
    }

    fn begin(&self) -> Plan {
        if let Some(remote) = self.there.remote {
            // Somebody deleted its ShadowPod over there. What comes next depends on when it is gone.
            let seen =
                Seen { pod: remote, recreations: 0, is_current: false, is_last: false, complaint: None };
            return Plan::of(self.show(&Sight::Seen(seen)));
        }
        if let Some(left) = self.there.left {
            let mut plan = self.wait_for_former();
            plan.writes.splice(0..0, self.end(left));
            return plan;
        }
        let has_run = inward::has_run(self.pod);
        match self.wanted() {
            Ok(_) if self.snapshot.standing != Standing::Wanted => self.refuse(&Self::not_now()),
            Ok(_) if has_run && !self.may_run_again() => self.fail(&Refusal::new(
                LOST,
                "the ShadowPod of this pod was removed on the cluster of this node",
            )),
            Ok(shadow) => self.create(shadow),
            Err(refusal) if has_run && self.is_surely_lost() => {
                let message = format!("the pod is gone from the cluster of this node: {}", refusal.message);
                self.fail(&Refusal::new(LOST, message))
            }
            Err(refusal) => self.refuse(&refusal),
        }
    }

    /// Where there is no namespace, nothing was looked up in it. And a pod of a DaemonSet that fails is made again at once.
    fn is_surely_lost(&self) -> bool {
        self.snapshot.namespace.is_some() && !self.is_of_a_daemon_set()
    }

    fn may_run_again(&self) -> bool {
        let policy = self.pod.spec.as_ref().and_then(|spec| spec.restart_policy.as_deref());
        policy != Some("Never")
    }

    /// The ShadowPod that is wanted, if the pod may have one.
    fn wanted(&self) -> Result<ShadowPod, Refusal> {
        self.snapshot.admitted.clone()?;
        self.shadow()
    }

    fn shadow(&self) -> Result<ShadowPod, Refusal> {
        let unmade = admission::Refusal::NoNamespace(admission::Missing::Unmade);
        let namespace = self.snapshot.namespace.ok_or(unmade)?;
        let access = self.snapshot.access;
        if !access.is_known_for(self.pod) {
            return Err(Refusal::new(
                "ApiServerUnknown",
                "it is not known yet at which address the pod reaches the API server of this cluster; it starts when it is",
            ));
        }
        outward::shadow(self.pod, namespace, self.snapshot.home, access)
    }

    fn create(&self, shadow: ShadowPod) -> Plan {
        let create = Write::CreateShadow(Box::new(shadow));
        // What is shown holds the generation of the pod, which is another once it tolerates more: that is shown next.
        let then = self.tolerate().or_else(|| self.show(&Sight::Nothing(self.nothing_yet(None))));
        Plan::of([create].into_iter().chain(then))
    }

    fn tolerate(&self) -> Option<Write> {
        tolerations::raise(self.pod, self.snapshot.drain_delay).map(Write::Tolerate)
    }

    /// No container has started yet; or, as the pod over there is gone, one is made in its place.
    fn nothing_yet<'a>(&self, message: Option<&'a str>) -> Wait<'a> {
        let word = inward::has_run(self.pod).then_some(inward::RECREATING);
        let gone = "the pod is gone from the cluster of this node, which makes it again";
        Wait { word, message: message.or(word.map(|_| gone)), since: None }
    }

    fn follow(&self, shadow: &ShadowPod) -> Plan {
        let is_going = shadow.metadata.deletion_timestamp.is_some();
        let wanted = self.shadow().ok().filter(|_| !is_going);
        let patch = wanted.as_ref().and_then(|wanted| outward::change(shadow, wanted));
        let is_wished = wanted.is_some() && patch.is_none();
        let change =
            patch.zip(shadow.metadata.uid.clone()).map(|(patch, uid)| Write::ChangeShadow { uid, patch });
        let mut plan = self.show_shadow(shadow, is_wished);
        plan.writes.splice(0..0, change);
        plan.writes.extend(self.tolerate());
        plan
    }

    fn show_shadow(&self, shadow: &ShadowPod, is_wished: bool) -> Plan {
        if phase_of(shadow) == ShadowPodPhase::Rejected {
            return self.rejected(shadow);
        }
        if let Some(remote) = self.there.remote {
            let mut plan = self.stranded(remote).unwrap_or_default();
            plan.writes.splice(0..0, self.show_seen(shadow, remote, is_wished));
            return plan;
        }
        let status = shadow.status.as_ref();
        let message = status.and_then(|status| status.message.as_deref());
        match ending_of(shadow) {
            Some(Ending::Failed) => self.fail(&why(shadow, LOST)),
            Some(ending @ Ending::Succeeded) => {
                Plan::of(self.show(&Sight::Over(ending, Wait { message, ..Wait::default() })))
            }
            None => {
                let wait = self.nothing_yet(message);
                let told = Refusal::new(wait.word.unwrap_or_default(), wait.message.unwrap_or_default());
                match wait.word {
                    Some(_) => Plan::of(self.show_and_tell(&Sight::Nothing(wait), &told)),
                    None => Plan::of(self.show(&Sight::Nothing(wait))),
                }
            }
        }
    }

    /// Shows the pod over there, and tells what it does not follow when that is new.
    fn show_seen(&self, shadow: &ShadowPod, remote: &Pod, is_wished: bool) -> Vec<Write> {
        let complaint = provider::complaint(shadow).filter(|_| is_wished);
        let seen = Seen { complaint: complaint.as_ref(), ..seen(shadow, remote, is_wished) };
        let show = self.show(&Sight::Seen(seen));
        let why = complaint
            .as_ref()
            .map(|complaint| (inward::word(&complaint.why.word), inward::text(&complaint.why.message)));
        let shown = inward::refused_change(self.pod);
        let news = why.filter(|(word, text)| shown != Some((word.as_str(), text.as_str())));
        let tell = news.map(|(reason, note)| Write::Tell(Notice { warning: true, reason, note }));
        show.into_iter().chain(tell).collect()
    }

    fn fail(&self, why: &Refusal) -> Plan {
        let wait = Wait { word: Some(&why.word), message: Some(&why.message), since: None };
        Plan::of(self.show_and_tell(&Sight::Over(Ending::Failed, wait), why))
    }

    /// A pod that finds no room is held back for a while, because its owner makes another at once when it fails. Any other
    /// one waits, and gets a new ShadowPod from time to time, of which the provider decides anew.
    fn rejected(&self, shadow: &ShadowPod) -> Plan {
        let why = why(shadow, "Rejected");
        let has_no_room = why.word == NO_ROOM;
        let (now, pause) = (self.snapshot.now, if has_no_room { self.snapshot.pause } else { ASKED_AGAIN });
        let shown = inward::ready(self.pod).filter(|ready| ready.reason.as_ref() == Some(&why.word));
        let shown = shown.and_then(|ready| ready.last_probe_time.as_ref());
        let since = shown.map_or(now, |since| since.0.min(now));
        let held = now.duration_since(since);
        let is_over =
            shown.is_some() && held >= SignedDuration::try_from(pause).unwrap_or(SignedDuration::MAX);
        if is_over && has_no_room {
            let mut plan = self.fail(&why);
            plan.writes.extend(delete(shadow));
            return plan;
        }
        if is_over && self.may_begin() {
            return Plan::of(delete(shadow));
        }
        let wait = Wait { word: Some(&why.word), message: Some(&why.message), since: Some(since) };
        let mut plan = Plan::of(self.show_and_tell(&Sight::Nothing(wait), &why));
        // Who may not begin anew is looked at when that changes.
        plan.again = Some(pause.saturating_sub(held.unsigned_abs())).filter(|_| !is_over);
        plan
    }

    /// Whether the pod may get another ShadowPod in place of the one that it has.
    fn may_begin(&self) -> bool {
        self.snapshot.standing == Standing::Wanted && self.wanted().is_ok()
    }
}

/// Why a pod does not run, in the words of the provider.
fn why(shadow: &ShadowPod, unsaid: &str) -> Refusal {
    let status = shadow.status.as_ref();
    let word = status.and_then(|status| status.reason.as_deref()).map(inward::word);
    let message = status.and_then(|status| status.message.as_deref()).map(inward::text);
    let silent = || "the cluster of this node gives no reason".to_owned();
    Refusal::new(
        word.filter(|word| !word.is_empty()).unwrap_or_else(|| unsaid.to_owned()),
        message.unwrap_or_else(silent),
    )
}
