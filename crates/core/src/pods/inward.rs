//! What the pod at home shows of the one over there.
//!
//! A status is always made anew from the present one and from what is seen, and only what differs is written: whoever else
//! writes to the status of a pod, such as a controller of a readiness gate, is not in our way, nor we in its.
//!
//! # Guarantees
//! - Who shows the same again writes nothing.
//! - A pod that has ended is never shown as anything else, and a container that ended for good is never shown as running:
//!   API servers refuse both.
//! - A pod is ready only when its containers are, its readiness gates at home are open, and the tunnel to it is up; and no
//!   more when the one over there is deleted, unless this one is deleted, too.
//! - Of what a peer says only known fields are taken over, of containers that the pod has, and in bounded length.

mod bounds;
mod conditions;
mod containers;
mod details;
mod patch;

use std::net::IpAddr;

use k8s_openapi::api::core::v1::{HostIP, Pod, PodIP, PodStatus};
use k8s_openapi::jiff::Timestamp;

use super::provider::Complaint;

pub(crate) use bounds::text;
pub(super) use bounds::{cut, word};
pub(super) use conditions::{disrupted_since, ready, refused_change};
pub use patch::patch;

/// No container has started yet.
const PENDING: &str = "Pending";
/// The word of a pod that is gone over there, and is made again.
pub(super) const RECREATING: &str = "Recreating";
/// The word of a provider that has no room for a pod. Another node may have some.
pub(super) const NO_ROOM: &str = "QuotaExceeded";
/// At least one container has started.
const RUNNING: &str = "Running";

/// How a pod has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// All its containers ended well.
    Succeeded,
    /// One did not, or was lost.
    Failed,
}

impl Ending {
    /// The phase of a pod that has ended so.
    pub const fn phase(self) -> &'static str {
        match self {
            Self::Succeeded => "Succeeded",
            Self::Failed => "Failed",
        }
    }

    /// How this pod has ended, if it has.
    pub fn of(pod: &Pod) -> Option<Self> {
        match phase_of(pod)? {
            "Succeeded" => Some(Self::Succeeded),
            "Failed" => Some(Self::Failed),
            _ => None,
        }
    }
}

/// What there is to be seen of a pod over there.
#[derive(Clone, Copy, Debug)]
pub enum Sight<'a> {
    /// Nobody knows. All stays as it was, but readiness follows the tunnel.
    Unknown,
    /// There is no pod, and one may come.
    Nothing(Wait<'a>),
    /// There is this pod.
    Seen(Seen<'a>),
    /// There is no pod, and none will come.
    Over(Ending, Wait<'a>),
}

/// Why nothing runs.
#[derive(Clone, Copy, Debug, Default)]
pub struct Wait<'a> {
    /// One word; none when a pod simply takes its time to start.
    pub word: Option<&'a str>,
    /// In a sentence.
    pub message: Option<&'a str>,
    /// Since when, if that is to be remembered: it is the probe time of the condition Ready.
    pub since: Option<Timestamp>,
}

/// The pod over there.
#[derive(Clone, Copy, Debug)]
pub struct Seen<'a> {
    /// Its metadata and status, and the names of its containers for debugging.
    pub pod: &'a Pod,
    /// How often it was lost and made again.
    pub recreations: u32,
    /// Whether it shows what the pod at home wishes for now.
    pub is_current: bool,
    /// Whether its end is that of the pod at home. One that is deleted over there ends, too, and may be made again.
    pub is_last: bool,
    /// What it does not follow of what the pod at home wishes for.
    pub complaint: Option<&'a Complaint>,
}

/// What else counts.
#[derive(Clone, Copy)]
pub struct Surroundings<'a> {
    /// Whether pods over there can be reached from here.
    pub tunnel_is_up: bool,
    /// An address of a pod over there, as it is named at home.
    pub view: &'a dyn Fn(IpAddr) -> Option<IpAddr>,
    /// The address of the virtual node.
    pub host_ip: Option<IpAddr>,
    /// The time.
    pub now: Timestamp,
}

/// The status of the pod at home, from what it is and what is seen over there.
pub fn status(local: &Pod, sight: &Sight<'_>, around: &Surroundings<'_>) -> PodStatus {
    let before = local.status.clone().unwrap_or_default();
    if Ending::of(local).is_some() && !is_of_the_same_end(local, sight) {
        return before;
    }
    let mut after = before.clone();
    match sight {
        Sight::Unknown => {}
        Sight::Nothing(wait) => {
            after.phase = Some(before.phase.clone().unwrap_or_else(|| PENDING.to_owned()));
            (after.reason, after.message) = (None, None);
            (after.pod_ip, after.pod_ips) = (None, None);
            containers::wait(local, wait, &mut after);
        }
        Sight::Seen(seen) => see(local, seen, around, &mut after),
        Sight::Over(ending, why) => {
            after.phase = Some(ending.phase().to_owned());
            after.reason = why.word.map(word);
            after.message = why.message.map(text);
            (after.pod_ip, after.pod_ips) = (None, None);
            containers::end(local, *ending, why, around.now, &mut after);
        }
    }
    after.conditions = conditions::after(local, sight, around, after.observed_generation);
    after
}

fn is_of_the_same_end(local: &Pod, sight: &Sight<'_>) -> bool {
    matches!(sight, Sight::Seen(seen) if Ending::of(seen.pod) == Ending::of(local))
}

fn see(local: &Pod, seen: &Seen<'_>, around: &Surroundings<'_>, after: &mut PodStatus) {
    let unsaid = PodStatus::default();
    let remote = seen.pod.status.as_ref().unwrap_or(&unsaid);
    let phase = phase(phase_of(local), seen);
    let has_ended = phase == Ending::Succeeded.phase() || phase == Ending::Failed.phase();
    // A pod that is deleted over there and made again has not ended, and why that one did is not why this one would.
    let is_told = has_ended || Ending::of(seen.pod).is_none();
    after.phase = Some(phase.to_owned());
    after.reason = remote.reason.as_deref().filter(|_| is_told).map(word);
    after.message = remote.message.as_deref().filter(|_| is_told).map(text);
    after.start_time = remote.start_time.clone().or(after.start_time.take());
    after.resize = remote.resize.as_deref().map(word);
    if seen.is_current {
        after.observed_generation = local.metadata.generation;
    }
    containers::see(local, seen, around.now, after);
    set_addresses(remote, around, after);
}

/// A pod that has run does not go back to Pending because another was made in place of the one over there.
fn phase<'a>(before: Option<&'a str>, seen: &Seen<'_>) -> &'a str {
    let before = before.unwrap_or(PENDING);
    match (phase_of(seen.pod), Ending::of(seen.pod)) {
        (_, Some(ending)) if seen.is_last => ending.phase(),
        (Some(RUNNING), _) => RUNNING,
        _ => before,
    }
}

/// Addresses that have no name at home are left out.
fn set_addresses(remote: &PodStatus, around: &Surroundings<'_>, after: &mut PodStatus) {
    let several = remote.pod_ips.iter().flatten().map(|pod_ip| pod_ip.ip.as_str());
    let one = remote.pod_ip.as_deref().filter(|_| remote.pod_ips.as_ref().is_none_or(Vec::is_empty));
    let parsed = several.chain(one).filter_map(|ip| ip.parse().ok());
    let mut ips: Vec<IpAddr> = Vec::new();
    for ip in parsed.filter_map(|ip: IpAddr| (around.view)(ip)) {
        // Two at most, one of each family: more than that no API server takes.
        if ips.iter().all(|known| known.is_ipv4() != ip.is_ipv4()) {
            ips.push(ip);
        }
    }
    after.pod_ip = ips.first().map(IpAddr::to_string);
    after.pod_ips = (!ips.is_empty()).then(|| ips.iter().map(|ip| PodIP { ip: ip.to_string() }).collect());
    if let Some(ip) = around.host_ip {
        after.host_ip = Some(ip.to_string());
        after.host_ips = Some(vec![HostIP { ip: ip.to_string() }]);
    }
}

pub(super) fn phase_of(pod: &Pod) -> Option<&str> {
    pod.status.as_ref()?.phase.as_deref()
}

/// Whether it is shown that any container of the pod has ever run.
pub(super) fn has_run(pod: &Pod) -> bool {
    let Some(status) = &pod.status else { return false };
    status.phase.as_deref() == Some(RUNNING) || containers::any_has_run(status)
}

/// Whether anything was shown of the containers of the pod yet.
pub(super) fn is_shown(pod: &Pod) -> bool {
    pod.status
        .as_ref()
        .and_then(|status| status.container_statuses.as_ref())
        .is_some_and(|all| !all.is_empty())
}

#[cfg(test)]
pub(super) mod tests;
