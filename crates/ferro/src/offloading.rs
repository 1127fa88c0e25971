//! Namespaces that are extended over other clusters: their objects, and how each fares on each cluster.

mod shown;
mod waiting;

use ferro_api::names::labels;
use ferro_api::offloading::{NamespaceOffloading, OffloadingPhase, condition};
use ferro_core::offloading::OFFLOADING;
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::api::Api;
use kube::{Client, ResourceExt as _};

pub(crate) use self::shown::{complaints, mapping, phase, pods, summary, table};
pub(crate) use self::waiting::Watched;

use crate::kube_errors::{Explain as _, found};
use crate::listing;
use crate::peers::Names;

/// What to do when no namespace is offloaded.
pub(crate) const NONE: &str =
    "No namespace uses other clusters; run 'ferro offload NAMESPACE' to let one do so.";

/// Access to the object of a namespace, which is the only one there.
pub(crate) fn api(client: &Client, namespace: &str) -> Api<NamespaceOffloading> {
    Api::namespaced(client.clone(), namespace)
}

/// The offloading of a namespace, if it has one.
pub(crate) async fn get(client: &Client, namespace: &str) -> anyhow::Result<Option<NamespaceOffloading>> {
    let offloading = found(api(client, namespace).get(OFFLOADING).await);
    offloading.explain(|| format!("read the offloading of the namespace {namespace}"))
}

/// All offloadings, by namespace.
pub(crate) async fn list(client: &Client) -> anyhow::Result<Vec<NamespaceOffloading>> {
    listing::all(client, "offloaded namespaces").await
}

/// What can be seen of a namespace.
pub(crate) enum Seen {
    /// It exists, and asks for its offloading by the label or not.
    There {
        /// Whether it does.
        is_labelled: bool,
    },
    /// There is none of that name.
    Missing,
    /// Whoever may offload a namespace may not always read the object itself.
    Hidden,
}

/// Looks at a namespace.
pub(crate) async fn namespace(client: &Client, name: &str) -> anyhow::Result<Seen> {
    match found(Api::<Namespace>::all(client.clone()).get(name).await) {
        Err(kube::Error::Api(status)) if status.is_forbidden() => Ok(Seen::Hidden),
        namespace => match namespace.explain(|| format!("read the namespace {name}"))? {
            Some(namespace) => Ok(Seen::There { is_labelled: labels::ENABLED.is_on(&namespace.metadata) }),
            None => Ok(Seen::Missing),
        },
    }
}

/// Whether the status is about what was last asked for.
pub(crate) fn is_current(offloading: &NamespaceOffloading) -> bool {
    let observed = offloading.status.as_ref().and_then(|status| status.observed_generation);
    observed >= offloading.metadata.generation
}

/// What became of it on all clusters together.
pub(crate) fn state(offloading: &NamespaceOffloading) -> Option<OffloadingPhase> {
    offloading.status.as_ref()?.offloading_phase
}

/// How a namespace fares on one cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Seat<'a> {
    /// What the cluster is called here.
    pub(crate) cluster: &'a str,
    /// Whether the namespace exists there.
    pub(crate) is_ready: bool,
    /// How it is, in one word.
    pub(crate) state: &'a str,
    /// Why, and what to do.
    pub(crate) message: &'a str,
}

impl Seat<'_> {
    /// What is said of it, with the cluster that it is about.
    pub(crate) fn told(&self) -> String {
        let said = if self.message.is_empty() { self.state } else { self.message };
        if said.contains(self.cluster) { said.to_owned() } else { format!("{}: {said}", self.cluster) }
    }
}

/// How a namespace fares on each cluster that it uses or leaves.
pub(crate) fn seats<'a>(offloading: &'a NamespaceOffloading, names: &'a Names) -> Vec<Seat<'a>> {
    let status = offloading.status.iter();
    let all = status.flat_map(|status| &status.remote_namespaces_conditions);
    let mut seats: Vec<_> = all.map(|(id, conditions)| seat(called(names, id), conditions)).collect();
    seats.sort_by_key(|seat| seat.cluster);
    seats
}

/// How a namespace fares on the cluster with this identifier.
pub(crate) fn seat_on<'a>(offloading: &'a NamespaceOffloading, id: &str, name: &'a str) -> Option<Seat<'a>> {
    let conditions = offloading.status.as_ref()?.remote_namespaces_conditions.get(id)?;
    Some(seat(name, conditions))
}

fn called<'a>(names: &'a Names, id: &'a str) -> &'a str {
    names.get(id).map_or(id, String::as_str)
}

fn seat<'a>(cluster: &'a str, conditions: &'a [Condition]) -> Seat<'a> {
    let of = |type_: &str| conditions.iter().find(|condition| condition.type_ == type_);
    let (ready, required) = (of(condition::READY), of(condition::OFFLOADING_REQUIRED));
    let is_leaving = required.is_some_and(|condition| condition.status != "True");
    let is_ready = ready.is_some_and(|condition| condition.status == "True") && !is_leaving;
    let told = if is_leaving { ready.or(required) } else { ready };
    let word = told.map_or("Pending", |condition| condition.reason.as_str());
    let state = if is_ready { condition::READY } else { word };
    Seat { cluster, is_ready, state, message: told.map_or("", |condition| condition.message.as_str()) }
}

/// The name of the namespace, which is that of whatever it uses.
pub(crate) fn name(offloading: &NamespaceOffloading) -> String {
    offloading.namespace().unwrap_or_default()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::{Seat, is_current, seats};
    use crate::peers::Names;
    use ferro_api::offloading::NamespaceOffloading;
    use serde_json::{Value, json};

    pub(crate) const TURIN: &str = "d14e610e-4c1b-802c-a5f1-5ef6f39c0490";
    pub(crate) const MILAN: &str = "0aaaaaaa-4c1b-802c-a5f1-5ef6f39c0490";

    /// The offloading of a namespace, with this spec and status.
    pub(crate) fn offloading(namespace: &str, spec: &Value, status: &Value) -> NamespaceOffloading {
        serde_json::from_value(json!({
            "apiVersion": "offloading.liqo.io/v1alpha1", "kind": "NamespaceOffloading",
            "metadata": {
                "name": "offloading", "namespace": namespace, "generation": 1,
                "creationTimestamp": "2030-01-01T00:00:00Z",
            },
            "spec": spec, "status": status,
        }))
        .unwrap()
    }

    /// A condition that says yes or no.
    pub(crate) fn condition(type_: &str, status: bool, reason: &str, message: &str) -> Value {
        let status = if status { "True" } else { "False" };
        json!({"type": type_, "status": status, "reason": reason, "message": message,
            "lastTransitionTime": "2030-01-01T00:00:00Z"})
    }

    /// One cluster has the namespace, another one has something else of that name.
    pub(crate) fn half() -> Value {
        json!({
            "offloadingPhase": "SomeFailed", "observedGeneration": 1,
            "remoteNamespacesConditions": {
                (TURIN): [
                    condition("OffloadingRequired", true, "Selected", ""),
                    condition("Ready", true, "Accepted", "it exists"),
                ],
                (MILAN): [
                    condition("OffloadingRequired", true, "Selected", ""),
                    condition("Ready", false, "CreationLoopBackOff", "milan has a namespace of that name"),
                ],
            },
        })
    }

    pub(crate) fn names() -> Names {
        [(TURIN, "turin"), (MILAN, "milan")].map(|(id, name)| (id.to_owned(), name.to_owned())).into()
    }

    #[test]
    fn a_namespace_is_shown_as_it_fares_on_each_cluster() {
        let half = offloading("shop", &json!({}), &half());
        let message = "milan has a namespace of that name";
        let milan = Seat { cluster: "milan", is_ready: false, state: "CreationLoopBackOff", message };
        let turin = Seat { cluster: "turin", is_ready: true, state: "Ready", message: "it exists" };
        assert_eq!(seats(&half, &names()), [milan, turin]);
        assert_eq!(seats(&half, &Names::new())[0].cluster, MILAN);
        assert_eq!(seats(&offloading("shop", &json!({}), &json!(null)), &names()), []);
    }

    #[test]
    fn a_cluster_that_is_left_is_not_ready_though_the_namespace_still_exists() {
        let status = json!({"remoteNamespacesConditions": {(TURIN): [
            condition("OffloadingRequired", false, "NotSelected", "turin no longer matches"),
            condition("Ready", true, "Terminating", "it is being removed from turin"),
        ]}});
        let (leaving, names) = (offloading("shop", &json!({}), &status), names());
        let seat = &seats(&leaving, &names)[0];
        assert_eq!((seat.is_ready, seat.state), (false, "Terminating"));
    }

    #[test]
    fn a_status_counts_only_for_the_spec_that_it_is_about() {
        let mut half = offloading("shop", &json!({}), &half());
        assert!(is_current(&half));
        half.metadata.generation = Some(2);
        assert!(!is_current(&half));
        assert!(!is_current(&offloading("shop", &json!({}), &json!(null))));
    }
}
