//! Whether a namespace is to stay on a cluster, as its offloading shows it: by this the agent of a node knows which of its
//! pods have to go.
//!
//! It is read from the status and not decided again, so that whoever takes the entry from the map and whoever deletes
//! the pods are never of two minds.

use ferro_api::names::annotations;
use ferro_api::offloading::{NamespaceOffloading, condition as type_of};

/// Whether a namespace is to stay on a cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Standing {
    /// It stays, as far as anybody has said.
    #[default]
    Wanted,
    /// It was to go, and its selector is another by now. Until that was looked at nothing begins there, since its entry may
    /// be gone, and nothing has to go.
    Undecided,
    /// It goes when its pods are gone.
    Dropped,
    /// It goes, and nothing over there is waited for.
    GivenUp,
}

/// Whether a namespace with this offloading, or with none, is to stay on a cluster.
pub fn standing(offloading: Option<&NamespaceOffloading>, cluster: &str) -> Standing {
    let Some(offloading) = offloading else { return Standing::GivenUp };
    if !is_dropped(offloading, cluster) {
        Standing::Wanted
    } else if !is_current(offloading) {
        Standing::Undecided
    } else if is_forced(offloading) {
        Standing::GivenUp
    } else {
        Standing::Dropped
    }
}

/// Whether an offloading goes from clusters without waiting for them.
pub(super) fn is_forced(offloading: &NamespaceOffloading) -> bool {
    annotations::FORCE.of(&offloading.metadata) == Some("true")
}

fn is_dropped(offloading: &NamespaceOffloading, cluster: &str) -> bool {
    let status = offloading.status.as_ref();
    let conditions = status.and_then(|status| status.remote_namespaces_conditions.get(cluster));
    let mut conditions = conditions.into_iter().flatten();
    let required = conditions.find(|condition| condition.type_ == type_of::OFFLOADING_REQUIRED);
    required.is_some_and(|required| required.status == "False")
}

/// Whether what is said is said of the present selector.
fn is_current(offloading: &NamespaceOffloading) -> bool {
    let observed = offloading.status.as_ref().and_then(|status| status.observed_generation);
    observed == offloading.metadata.generation
}

#[cfg(test)]
mod tests {
    use ferro_api::offloading::NamespaceOffloading;
    use serde_json::{Value, json};

    use super::{Standing, standing};

    fn offloading(required: &str, generation: i64, annotations: &Value) -> NamespaceOffloading {
        let condition = json!({"type": "OffloadingRequired", "status": required, "reason": "R", "message": "",
            "lastTransitionTime": "2025-01-01T00:00:00Z"});
        serde_json::from_value(json!({
            "metadata": {"name": "offloading", "generation": generation, "annotations": annotations}, "spec": {},
            "status": {"observedGeneration": 2, "remoteNamespacesConditions": {"turin": [condition]}},
        }))
        .unwrap()
    }

    #[test]
    fn a_namespace_is_dropped_where_its_offloading_says_so_of_its_present_selector() {
        let said =
            |required, generation| standing(Some(&offloading(required, generation, &json!({}))), "turin");
        assert_eq!(said("True", 2), Standing::Wanted);
        assert_eq!(said("False", 2), Standing::Dropped);
        assert_eq!(said("True", 3), Standing::Wanted);
        assert_eq!(said("False", 3), Standing::Undecided, "the selector is another by now");
        assert_eq!(standing(Some(&offloading("False", 2, &json!({}))), "milan"), Standing::Wanted);
    }

    #[test]
    fn by_force_or_without_an_offloading_nobody_is_waited_for() {
        let forced = |required| offloading(required, 2, &json!({"liqo.io/force": "true"}));
        assert_eq!(standing(Some(&forced("False")), "turin"), Standing::GivenUp);
        assert_eq!(standing(Some(&forced("True")), "turin"), Standing::Wanted);
        assert_eq!(standing(None, "turin"), Standing::GivenUp);
    }
}
