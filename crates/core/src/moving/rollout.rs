//! The rolling update by which a Deployment moves: whether it leaves nobody to serve for a while, and how far it is.

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

/// How far a Deployment has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Progress {
    /// New pods that serve.
    pub ready: i32,
    /// How many there are to be.
    pub wanted: i32,
    /// Pods that are still to end.
    pub old: i32,
    /// What to think of that.
    pub standing: Standing,
}

/// What to think of an update.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It goes on.
    UnderWay,
    /// All is where it belongs.
    Done,
    /// It does not go on by itself.
    Stuck(String),
}

/// Why nobody serves for a while when a Deployment is updated; nothing if somebody always does.
pub fn outage(deployment: &Deployment) -> Option<String> {
    let spec = deployment.spec.as_ref()?;
    let replicas = spec.replicas.unwrap_or(1);
    if replicas == 0 {
        return None;
    }
    let strategy = spec.strategy.clone().unwrap_or_default();
    if strategy.type_.as_deref() == Some("Recreate") {
        return Some("its strategy is Recreate: all pods end before a new one begins".to_owned());
    }
    let rolling = strategy.rolling_update.unwrap_or_default();
    let quarter = IntOrString::String("25%".to_owned());
    let surge = resolved(rolling.max_surge.as_ref().unwrap_or(&quarter), replicas, true);
    let unavailable = resolved(rolling.max_unavailable.as_ref().unwrap_or(&quarter), replicas, false);
    // Where both come to nothing, Kubernetes lets one be missing.
    let unavailable = if surge == 0 { unavailable.max(1) } else { unavailable };
    (unavailable >= replicas)
        .then(|| format!("its maxUnavailable lets all of its {replicas} pods end before a new one is ready"))
}

/// As Kubernetes counts: parts of a pod count as one where more pods are made, and as none where some may be missing.
fn resolved(value: &IntOrString, replicas: i32, up: bool) -> i32 {
    match value {
        IntOrString::Int(count) => *count,
        IntOrString::String(text) => {
            let percent: i64 = text.trim_end_matches('%').parse().unwrap_or(0);
            let parts = percent.saturating_mul(i64::from(replicas));
            let whole = if up { parts.saturating_add(99) / 100 } else { parts / 100 };
            i32::try_from(whole).unwrap_or(i32::MAX)
        }
    }
}

/// How far the update of a Deployment has come.
pub fn progress(deployment: &Deployment) -> Progress {
    let wanted = deployment.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1);
    let status = deployment.status.clone().unwrap_or_default();
    let (all, updated) = (status.replicas.unwrap_or(0), status.updated_replicas.unwrap_or(0));
    let is_current = status.observed_generation >= deployment.metadata.generation;
    let old = (all - updated).max(0);
    let ready = updated.min((status.available_replicas.unwrap_or(0) - old).max(0));
    let stuck = status.conditions.iter().flatten().find(|condition| {
        condition.type_ == "Progressing" && condition.reason.as_deref() == Some("ProgressDeadlineExceeded")
    });
    let standing = match stuck {
        _ if !is_current => Standing::UnderWay,
        _ if updated >= wanted && old == 0 && status.available_replicas.unwrap_or(0) >= wanted => {
            Standing::Done
        }
        Some(condition) => Standing::Stuck(condition.message.clone().unwrap_or_default()),
        None => Standing::UnderWay,
    };
    Progress { ready, wanted, old, standing }
}
