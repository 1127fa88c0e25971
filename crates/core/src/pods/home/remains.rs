//! What is found over there by a look at one pod that is to go, or at all of a namespace: watches may be behind, and a former
//! process may have left something.

use ferro_api::virtualkubelet::ShadowPod;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::there::{ending_of, is_ours, made_here};
use crate::pods::inward::Ending;

/// Whether a pod has ended, and nobody removes it.
pub(super) fn is_kept(pod: &Pod) -> bool {
    pod.metadata.deletion_timestamp.is_none() && Ending::of(pod).is_some()
}

/// Whether something is left of a pod that was deleted at home, by what has its name over there: the ShadowPod, and the pod.
pub fn is_left(home: &str, shadow: Option<&ObjectMeta>, pod: Option<&ObjectMeta>) -> bool {
    shadow.is_some_and(|shadow| is_ours(home, shadow)) || pod.is_some_and(|pod| made_here(home, pod))
}

/// Whether a namespace has to stay for this ShadowPod: for one of this cluster, unless its pod has ended and is kept.
pub fn keeps_shadow(home: &str, shadow: &ShadowPod) -> bool {
    let is_kept = shadow.metadata.deletion_timestamp.is_none() && ending_of(shadow).is_some();
    is_ours(home, &shadow.metadata) && !is_kept
}

/// The same for a pod.
pub fn keeps_pod(home: &str, pod: &Pod) -> bool {
    made_here(home, &pod.metadata) && !is_kept(pod)
}

#[cfg(test)]
mod tests {
    use ferro_api::names::{annotations, labels};
    use serde_json::{Value, json};

    use super::{is_left, keeps_pod, keeps_shadow};

    fn meta(origin: &str, is_going: bool) -> Value {
        let time = is_going.then_some("2025-01-01T00:00:00Z");
        json!({"name": "a", "deletionTimestamp": time, "labels": {labels::ORIGIN_ID.key(): origin},
            "annotations": {annotations::SHADOW_UID.key(): "uid"}})
    }

    #[test]
    fn of_a_pod_everything_is_left_that_is_ours() {
        let [ours, foreign] =
            ["rome", "milan"].map(|origin| serde_json::from_value(meta(origin, true)).unwrap());
        for (shadow, pod, is_so) in [
            (None, None, false),
            (Some(&ours), None, true),
            (None, Some(&ours), true),
            (Some(&foreign), Some(&foreign), false),
        ] {
            assert_eq!(is_left("rome", shadow, pod), is_so);
        }
    }

    #[test]
    fn only_what_is_ours_and_runs_or_goes_keeps_a_namespace() {
        for (origin, phase, is_going, keeps) in [
            ("rome", "Running", false, true),
            ("rome", "Pending", false, true),
            ("rome", "Succeeded", false, false),
            ("rome", "Failed", false, false),
            ("rome", "Failed", true, true),
            ("milan", "Running", false, false),
        ] {
            let meta = meta(origin, is_going);
            let pod = json!({"metadata": meta, "status": {"phase": phase}});
            assert_eq!(keeps_pod("rome", &serde_json::from_value(pod).unwrap()), keeps, "{origin} {phase}");
            let phase = if phase == "Running" { "Active" } else { phase };
            let shadow = json!({"metadata": meta, "spec": {"pod": {}}, "status": {"phase": phase}});
            assert_eq!(
                keeps_shadow("rome", &serde_json::from_value(shadow).unwrap()),
                keeps,
                "{origin} {phase}"
            );
        }
    }
}
