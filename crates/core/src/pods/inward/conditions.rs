//! The conditions of a pod at home: those that kubelets set come from over there, readiness is decided here, and what
//! others have set here stays.

use k8s_openapi::api::core::v1::{Pod, PodCondition};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;

use super::bounds;
use super::containers::unready;
use super::{Ending, NO_ROOM, RECREATING, Seen, Sight, Surroundings, Wait};

const READY: &str = "Ready";
const CONTAINERS_READY: &str = "ContainersReady";
const SCHEDULED: &str = "PodScheduled";
/// That the pod is taken away: by a drain, for one that is more important, or with its node.
const DISRUPTED: &str = "DisruptionTarget";
/// Those that only kubelets set: they go when the pod over there has them no more.
const OF_KUBELETS: [&str; 4] =
    ["Initialized", "PodReadyToStartContainers", "PodResizeInProgress", RESIZE_PENDING];
/// The reason of a pod that is not ready because nothing reaches it.
const TUNNEL_DOWN: &str = "TunnelDown";
/// The reason of a pod that is not ready because the one over there is being ended.
const ENDING: &str = "Terminating";
/// That a change of the pod is not followed over there.
const CHANGE_REFUSED: &str = "liqo.io/ChangeRefused";
const RESIZE_PENDING: &str = "PodResizePending";
/// The reason of a resize that no kubelet will come to; kubelets have it, too.
const INFEASIBLE: &str = "Infeasible";
/// So many conditions of a pod over there are looked at, and with more than these a pod gets no others.
const MOST: usize = 32;

/// The condition Ready of a pod.
pub(in crate::pods) fn ready(pod: &Pod) -> Option<&PodCondition> {
    find(pod, READY)
}

/// Since when it is shown that the pod is taken away.
pub(in crate::pods) fn disrupted_since(pod: &Pod) -> Option<Timestamp> {
    let shown = find(pod, DISRUPTED).filter(|shown| shown.status == "True")?;
    shown.last_transition_time.as_ref().map(|since| since.0)
}

/// What was shown of a change that is not followed over there: the word and the sentence.
pub(in crate::pods) fn refused_change(pod: &Pod) -> Option<(&str, &str)> {
    let shown = find(pod, CHANGE_REFUSED)?;
    Some((shown.reason.as_deref()?, shown.message.as_deref()?))
}

fn find<'a>(pod: &'a Pod, type_: &str) -> Option<&'a PodCondition> {
    let conditions = pod.status.as_ref()?.conditions.as_ref()?;
    conditions.iter().find(|condition| condition.type_ == type_)
}

/// What a condition says.
struct Word {
    type_: String,
    status: &'static str,
    reason: Option<String>,
    message: Option<String>,
    probed: Option<Time>,
}

impl Word {
    fn new(type_: &str, is_true: bool) -> Self {
        let status = if is_true { "True" } else { "False" };
        Self { type_: type_.to_owned(), status, reason: None, message: None, probed: None }
    }

    fn yes(type_: &str, reason: &str, message: Option<&str>) -> Self {
        let reason = Some(bounds::word(reason));
        Self { reason, message: message.map(bounds::text), ..Self::new(type_, true) }
    }

    fn no(type_: &str, reason: &str, message: Option<&str>) -> Self {
        let reason = Some(bounds::word(reason)).filter(|reason| !reason.is_empty());
        Self { reason, message: message.map(bounds::text), ..Self::new(type_, false) }
    }

    /// As a condition over there says it, if it says anything that can be understood.
    fn of(condition: &PodCondition) -> Option<Self> {
        let status = ["True", "False", "Unknown"].into_iter().find(|status| *status == condition.status)?;
        let reason = condition.reason.as_deref().map(bounds::word);
        let message = condition.message.as_deref().map(bounds::text);
        bounds::is_type(&condition.type_).then(|| Self {
            type_: condition.type_.clone(),
            status,
            reason,
            message,
            probed: None,
        })
    }

    fn is_true(&self) -> bool {
        self.status == "True"
    }
}

/// The conditions of a pod, being changed.
struct Board<'a> {
    local: &'a Pod,
    around: &'a Surroundings<'a>,
    observed_generation: Option<i64>,
    conditions: Vec<PodCondition>,
}

/// The conditions that the pod shows from now on.
pub(super) fn after(
    local: &Pod,
    sight: &Sight<'_>,
    around: &Surroundings<'_>,
    observed_generation: Option<i64>,
) -> Option<Vec<PodCondition>> {
    let conditions = local.status.as_ref().and_then(|status| status.conditions.clone()).unwrap_or_default();
    let mut board = Board { local, around, observed_generation, conditions };
    match sight {
        Sight::Unknown => board.follow_tunnel(),
        Sight::Nothing(wait) => board.wait(wait),
        Sight::Seen(seen) => board.see(seen),
        Sight::Over(ending, why) => board.end(*ending, why),
    }
    (!board.conditions.is_empty()).then_some(board.conditions)
}

impl Board<'_> {
    /// Puts a condition in place of the one of its type. The time of the last change is that at which its status changed.
    fn put(&mut self, word: Word) {
        let present = self.conditions.iter_mut().find(|condition| condition.type_ == word.type_);
        let since = present.as_ref().filter(|present| present.status == word.status);
        let since = since.and_then(|present| present.last_transition_time.clone());
        let condition = PodCondition {
            type_: word.type_,
            status: word.status.to_owned(),
            reason: word.reason,
            message: word.message,
            last_probe_time: word.probed,
            last_transition_time: since.or(Some(Time(self.around.now))),
            observed_generation: self.observed_generation,
        };
        match present {
            Some(present) => *present = condition,
            None => self.conditions.push(condition),
        }
    }

    /// Only readiness that was withheld because of the tunnel comes back with it.
    fn follow_tunnel(&mut self) {
        let Some(ready) = ready(self.local) else { return };
        let is_ours = ready.status == "True" || ready.reason.as_deref() == Some(TUNNEL_DOWN);
        let containers =
            find(self.local, CONTAINERS_READY).is_some_and(|condition| condition.status == "True");
        if is_ours && (containers || !self.around.tunnel_is_up) {
            self.put(self.readiness(None));
        }
    }

    fn wait(&mut self, wait: &Wait<'_>) {
        self.place();
        // What took away the pod over there does not threaten the one that is made in its place.
        if wait.word == Some(RECREATING) && self.local.metadata.deletion_timestamp.is_none() {
            self.conditions.retain(|one| one.type_ != DISRUPTED);
        }
        let unready = unready(self.local);
        let (word, message) = match wait.word {
            Some(word) => (word, wait.message),
            None => ("ContainersNotReady", Some(unready.as_str())),
        };
        self.put(Word::no(CONTAINERS_READY, word, message));
        self.put(Word { probed: wait.since.map(Time), ..Word::no(READY, word, message) });
    }

    fn end(&mut self, ending: Ending, why: &Wait<'_>) {
        self.place();
        let word = match ending {
            Ending::Succeeded => "PodCompleted",
            Ending::Failed => why.word.unwrap_or("PodFailed"),
        };
        self.put(Word::no(CONTAINERS_READY, word, why.message));
        self.put(Word::no(READY, word, why.message));
        // A Job may be told not to count that as a failure: it is none of its pod.
        if matches!(ending, Ending::Failed) && word == NO_ROOM {
            self.put(Word::yes(DISRUPTED, word, why.message));
        }
    }

    fn see(&mut self, seen: &Seen<'_>) {
        self.place();
        let there = seen.pod.status.as_ref().and_then(|status| status.conditions.as_deref());
        let there = there.unwrap_or_default().iter().take(MOST);
        let words: Vec<Word> =
            there.filter(|one| !self.is_of_home(&one.type_)).filter_map(Word::of).collect();
        let is_there = |type_: &str| words.iter().any(|word| word.type_ == type_);
        self.conditions.retain(|one| !OF_KUBELETS.contains(&one.type_.as_str()) || is_there(&one.type_));
        let unready = unready(self.local);
        let unsaid = |type_| Word::no(type_, "ContainersNotReady", Some(&unready));
        let (mut is_ready, mut containers) = (unsaid(READY), unsaid(CONTAINERS_READY));
        for word in words {
            match word.type_.as_str() {
                READY => is_ready = word,
                CONTAINERS_READY => containers = word,
                type_ if self.has_room_for(type_) => self.put(word),
                _ => {}
            }
        }
        self.put(containers);
        // One that is deleted here is seen to go by everybody, and may serve to the last.
        let is_deleted = |pod: &Pod| pod.metadata.deletion_timestamp.is_some();
        if is_ready.is_true() && is_deleted(seen.pod) && !is_deleted(self.local) {
            is_ready = Word::no(READY, ENDING, Some("the pod is being ended on the cluster of this node"));
        }
        let is_ready = self.readiness(Some(is_ready));
        self.put(is_ready);
        self.complain(seen);
    }

    /// Kubelets have a few types; of others, a peer could have new ones at every look, and those of before stay.
    fn has_room_for(&self, type_: &str) -> bool {
        let is_known = |one: &PodCondition| one.type_ == type_;
        OF_KUBELETS.contains(&type_) || self.conditions.len() < MOST || self.conditions.iter().any(is_known)
    }

    /// A change that is not followed. Who waits for a resize looks where kubelets say that it cannot be had.
    fn complain(&mut self, seen: &Seen<'_>) {
        let Some(complaint) = seen.complaint else {
            self.conditions.retain(|one| one.type_ != CHANGE_REFUSED);
            return;
        };
        self.put(Word::yes(CHANGE_REFUSED, &complaint.why.word, Some(&complaint.why.message)));
        if let Some(size) = &complaint.size {
            self.put(Word::yes(RESIZE_PENDING, INFEASIBLE, Some(size)));
        }
    }

    /// Where a pod is bound to, what was said of its changes, and whether its gates are open, is known at home.
    fn is_of_home(&self, type_: &str) -> bool {
        [SCHEDULED, CHANGE_REFUSED].contains(&type_) || self.gates().any(|gate| gate == type_)
    }

    fn gates(&self) -> impl Iterator<Item = &str> {
        let gates = self.local.spec.as_ref().and_then(|spec| spec.readiness_gates.as_deref());
        gates.unwrap_or_default().iter().map(|gate| gate.condition_type.as_str())
    }

    /// A pod that was bound by hand has nobody who says so but us.
    fn place(&mut self) {
        if find(self.local, SCHEDULED).is_none_or(|condition| condition.status != "True") {
            self.put(Word::new(SCHEDULED, true));
        }
    }

    /// Whether the pod is ready, from what is said over there.
    fn readiness(&self, there: Option<Word>) -> Word {
        if let Some(there) = there.filter(|there| !there.is_true()) {
            return there;
        }
        let is_open = |gate: &str| find(self.local, gate).is_some_and(|condition| condition.status == "True");
        if let Some(gate) = self.gates().find(|gate| !is_open(gate)) {
            let message =
                format!("the condition \"{gate}\", which is a readiness gate of the pod, is not true");
            return Word::no(READY, "ReadinessGatesNotReady", Some(&message));
        }
        if !self.around.tunnel_is_up {
            let message = "the tunnel to the cluster of this pod is down; its containers may well run on";
            return Word::no(READY, TUNNEL_DOWN, Some(message));
        }
        Word::new(READY, true)
    }
}
