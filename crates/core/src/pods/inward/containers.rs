//! The states of the containers of a pod at home: one for each that the pod has, whatever the peer lists.

use k8s_openapi::api::core::v1::{
    ContainerState, ContainerStateTerminated, ContainerStateWaiting, ContainerStatus, Pod, PodStatus,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;

use super::{Ending, Seen, Wait, bounds, details};
use crate::pods::Refusal;

/// What a container that was killed exits with.
const KILLED: i32 = 137;
/// What a container exits with that could not be started.
const NOT_STARTED: i32 = 128;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Init,
    Main,
    Ephemeral,
}

impl Kind {
    const ALL: [Self; 3] = [Self::Init, Self::Main, Self::Ephemeral];

    fn of(self, status: &PodStatus) -> &[ContainerStatus] {
        let list = match self {
            Self::Init => &status.init_container_statuses,
            Self::Main => &status.container_statuses,
            Self::Ephemeral => &status.ephemeral_container_statuses,
        };
        list.as_deref().unwrap_or_default()
    }

    fn set(self, status: &mut PodStatus, list: Vec<ContainerStatus>) {
        let place = match self {
            Self::Init => &mut status.init_container_statuses,
            Self::Main => &mut status.container_statuses,
            Self::Ephemeral => &mut status.ephemeral_container_statuses,
        };
        *place = (!list.is_empty()).then_some(list);
    }
}

/// One container of the pod at home.
struct Container<'a> {
    name: &'a str,
    image: &'a str,
    kind: Kind,
    /// When it is started again: Always, `OnFailure` or Never.
    restarts: &'a str,
}

fn all(local: &Pod) -> Vec<Container<'_>> {
    let Some(spec) = &local.spec else { return Vec::new() };
    let policy = spec.restart_policy.as_deref().unwrap_or("Always");
    let mut all = Vec::new();
    for (kind, list) in
        [(Kind::Init, spec.init_containers.as_deref()), (Kind::Main, Some(spec.containers.as_slice()))]
    {
        all.extend(list.unwrap_or_default().iter().map(|container| Container {
            name: &container.name,
            image: container.image.as_deref().unwrap_or_default(),
            kind,
            restarts: container.restart_policy.as_deref().unwrap_or(policy),
        }));
    }
    all.extend(spec.ephemeral_containers.iter().flatten().map(|container| Container {
        name: &container.name,
        image: container.image.as_deref().unwrap_or_default(),
        kind: Kind::Ephemeral,
        restarts: "Never",
    }));
    all
}

impl Container<'_> {
    fn find<'a>(&self, status: &'a PodStatus) -> Option<&'a ContainerStatus> {
        self.kind.of(status).iter().find(|status| status.name == self.name)
    }

    /// Whether a container that is in this state stays in it for good, so that no API server lets it out of it. One for
    /// debugging that was refused has never run, and may be let in later.
    fn is_done(&self, status: &ContainerStatus) -> bool {
        let Some(ended) = terminated(status) else { return false };
        match self.restarts {
            _ if self.kind == Kind::Ephemeral && status.container_id.is_none() => false,
            "Never" => true,
            "OnFailure" => ended.exit_code == 0,
            _ => false,
        }
    }

    fn wait(&self, before: Option<&ContainerStatus>, word: &str, message: Option<&str>) -> ContainerStatus {
        let waiting =
            ContainerStateWaiting { reason: Some(bounds::word(word)), message: message.map(bounds::text) };
        ContainerStatus {
            name: self.name.to_owned(),
            image: before.map_or(self.image, |before| &before.image).to_owned(),
            image_id: before.map(|before| before.image_id.clone()).unwrap_or_default(),
            // By this the next one is known as another.
            container_id: before.and_then(|before| before.container_id.clone()),
            last_state: before.and_then(|before| before.last_state.clone()),
            restart_count: before.map_or(0, |before| before.restart_count),
            started: Some(false),
            state: Some(ContainerState { waiting: Some(waiting), ..ContainerState::default() }),
            ..ContainerStatus::default()
        }
    }

    fn see(
        &self,
        before: Option<&ContainerStatus>,
        there: &ContainerStatus,
        recreations: u32,
    ) -> ContainerStatus {
        let recreations = i32::try_from(recreations).unwrap_or(i32::MAX);
        let id = there.container_id.as_deref().map(bounds::text).filter(|id| !id.is_empty());
        let former = before.and_then(|before| before.container_id.clone());
        // The one that is made again counts once it has started, by its identifier.
        let is_to_come = id.is_none() && former.is_some();
        let counted = there.restart_count.max(0).saturating_add(recreations);
        let counted = if is_to_come { 0 } else { counted };
        let is_another = former.as_ref().zip(id.as_ref()).is_some_and(|(former, id)| former != id);
        // One that was made again counts from zero over there.
        let shown = before.map_or(0, |before| before.restart_count.saturating_add(i32::from(is_another)));
        ContainerStatus {
            name: self.name.to_owned(),
            image: bounds::text(&there.image),
            image_id: bounds::text(&there.image_id),
            container_id: id.or(former),
            state: there.state.clone().map(bounded),
            last_state: there.last_state.clone().map(bounded),
            ready: there.ready,
            started: there.started,
            restart_count: counted.max(shown),
            allocated_resources: details::amounts(there.allocated_resources.as_ref()),
            // Which devices of a node over there are in order says nothing here.
            allocated_resources_status: None,
            resources: details::resources(there.resources.as_ref()),
            stop_signal: there.stop_signal.as_deref().map(bounds::word),
            user: details::user(there.user.as_ref()),
            volume_mounts: details::mounts(there.volume_mounts.as_deref()),
        }
    }

    /// It is never started.
    fn refuse(&self, before: Option<&ContainerStatus>, why: &Refusal, now: Timestamp) -> ContainerStatus {
        if let Some(before) = before.filter(|before| terminated(before).is_some()) {
            return before.clone();
        }
        let ended = ContainerStateTerminated {
            exit_code: NOT_STARTED,
            finished_at: Some(Time(now)),
            message: Some(bounds::text(&why.message)),
            reason: Some(bounds::word(&why.word)),
            ..ContainerStateTerminated::default()
        };
        let state = ContainerState { terminated: Some(ended), ..ContainerState::default() };
        // Without an identifier: of this one, nothing has run.
        ContainerStatus { state: Some(state), container_id: None, ..self.wait(before, &why.word, None) }
    }

    fn end(
        &self,
        before: Option<&ContainerStatus>,
        ending: Ending,
        why: &Wait<'_>,
        now: Timestamp,
    ) -> ContainerStatus {
        let word = why.word.unwrap_or("Unknown");
        let was_running = before.is_some_and(has_run);
        let (exit_code, reason) = match ending {
            Ending::Failed if !was_running => return self.wait(before, word, why.message),
            Ending::Failed => (KILLED, word),
            Ending::Succeeded => (0, "Completed"),
        };
        let running =
            before.and_then(|before| before.state.as_ref()).and_then(|state| state.running.as_ref());
        let ended = ContainerStateTerminated {
            container_id: before.and_then(|before| before.container_id.clone()),
            exit_code,
            finished_at: Some(Time(now)),
            message: why.message.map(bounds::text),
            reason: Some(bounds::word(reason)),
            signal: None,
            started_at: running.and_then(|running| running.started_at.clone()),
        };
        let state = ContainerState { terminated: Some(ended), ..ContainerState::default() };
        ContainerStatus { state: Some(state), ..self.wait(before, word, None) }
    }
}

fn terminated(status: &ContainerStatus) -> Option<&ContainerStateTerminated> {
    status.state.as_ref()?.terminated.as_ref()
}

fn bounded(mut state: ContainerState) -> ContainerState {
    if let Some(waiting) = &mut state.waiting {
        waiting.reason = waiting.reason.as_deref().map(bounds::word);
        waiting.message = waiting.message.as_deref().map(bounds::text);
    }
    if let Some(ended) = &mut state.terminated {
        ended.reason = ended.reason.as_deref().map(bounds::word);
        ended.message = ended.message.as_deref().map(bounds::text);
        ended.container_id = ended.container_id.as_deref().map(bounds::text);
    }
    state
}

fn has_run(status: &ContainerStatus) -> bool {
    let is_in = |state: &Option<ContainerState>| {
        state.as_ref().is_some_and(|state| state.running.is_some() || state.terminated.is_some())
    };
    status.container_id.is_some() || is_in(&status.state) || is_in(&status.last_state)
}

/// Whether any container of the pod itself has ever run. One for debugging, which may have been refused, says nothing.
pub(super) fn any_has_run(status: &PodStatus) -> bool {
    [Kind::Init, Kind::Main].iter().any(|kind| kind.of(status).iter().any(has_run))
}

/// The names of those that are not ready, as kubelets list them.
pub(super) fn unready(local: &Pod) -> String {
    let names: Vec<&str> =
        all(local).iter().filter(|one| one.kind == Kind::Main).map(|one| one.name).collect();
    format!("containers with unready status: [{}]", names.join(" "))
}

/// What a container waits for that simply takes its time.
fn usual_word(local: &Pod) -> &'static str {
    let has_init =
        local.spec.as_ref().and_then(|spec| spec.init_containers.as_ref()).is_some_and(|all| !all.is_empty());
    if has_init { "PodInitializing" } else { "ContainerCreating" }
}

/// All containers as one function sees them; a container that is done stays so, unless it is seen as ended otherwise.
fn set(
    local: &Pod,
    after: &mut PodStatus,
    see: impl Fn(&Container<'_>, Option<&ContainerStatus>) -> ContainerStatus,
) {
    let all = all(local);
    for kind in Kind::ALL {
        let list = all.iter().filter(|one| one.kind == kind).map(|one| {
            let before = one.find(after);
            let now = see(one, before);
            match before {
                Some(before) if one.is_done(before) && terminated(&now).is_none() => before.clone(),
                _ => now,
            }
        });
        let list = list.collect();
        kind.set(after, list);
    }
}

/// No container runs.
pub(super) fn wait(local: &Pod, wait: &Wait<'_>, after: &mut PodStatus) {
    let word = wait.word.unwrap_or_else(|| usual_word(local));
    set(local, after, |container, before| container.wait(before, word, wait.message));
}

/// Containers as those of the pod over there. One for debugging that is not in it is one that was refused: who waits for
/// it is to hear that.
pub(super) fn see(local: &Pod, seen: &Seen<'_>, now: Timestamp, after: &mut PodStatus) {
    let unsaid = PodStatus::default();
    let there = seen.pod.status.as_ref().unwrap_or(&unsaid);
    let unplaced = there.conditions.iter().flatten().find(|one| {
        // A gate is the provider's own, and open in a moment.
        one.type_ == "PodScheduled"
            && one.status == "False"
            && one.reason.as_deref() != Some("SchedulingGated")
    });
    let word = unplaced.and_then(|unplaced| unplaced.reason.as_deref());
    let word = word.unwrap_or_else(|| usual_word(local));
    let message = unplaced.and_then(|unplaced| unplaced.message.as_deref());
    let debug = seen.pod.spec.as_ref().and_then(|spec| spec.ephemeral_containers.as_deref());
    let is_added =
        |container: &Container<'_>| debug.into_iter().flatten().any(|one| one.name == container.name);
    set(local, after, |container, before| match container.find(there) {
        Some(there) => container.see(before, there, seen.recreations),
        None => match seen.complaint.filter(|_| container.kind == Kind::Ephemeral && !is_added(container)) {
            Some(complaint) => container.refuse(before, &complaint.why, now),
            None => container.wait(before, word, message),
        },
    });
}

/// No container runs any more.
pub(super) fn end(local: &Pod, ending: Ending, why: &Wait<'_>, now: Timestamp, after: &mut PodStatus) {
    set(local, after, |container, before| match before {
        Some(before) if terminated(before).is_some() => before.clone(),
        before => container.end(before, ending, why, now),
    });
}
