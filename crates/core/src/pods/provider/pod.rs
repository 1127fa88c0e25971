//! The pod that a provider makes of a ShadowPod: within the limits of its Tenant, whatever the consumer wrote.
//!
//! Nothing is taken over that is not known to be harmless: what may not cross is refused by name, what is the provider's to
//! decide is overruled, and the hash of the content is that of what was made here. Pod Security of the namespace, its
//! quota and its fences come after this; they are not repeated here, except where a refusal should say why early.

mod bounds;
mod security;
#[cfg(test)]
mod tests;

use ferro_api::names::{annotations, labels};
use ferro_api::tenancy::TenantSpec;
use ferro_api::virtualkubelet::ShadowPod;
use k8s_openapi::api::core::v1::{
    Affinity, NodeAffinity, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, Pod, PodSpec,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::pods::Refusal;
use crate::pods::outward::{barred, content, kept, keys, portable};
use crate::tenancy::confine;

/// Why a pod may not run here that asks for more than pods of others get.
const NOT_ALLOWED: &str = "NotAllowed";
/// The account of pods that have nothing to say to the API server.
const NOBODY: &str = "default";

/// The pod for a ShadowPod of this Tenant, or why it may not run here. `tenant` is the name of the Tenant, which is the
/// identifier of the consumer. Terms that leave the Pod Security level open are taken as baseline.
///
/// Ephemeral containers are in it as the consumer wants them. An API server takes no pod with any when it is created: they
/// are added to one that is there.
pub fn pod(shadow: &ShadowPod, tenant: &str, terms: &TenantSpec) -> Result<Pod, Refusal> {
    bounds::check(shadow)?;
    let spec = spec(&shadow.spec.pod, terms)?;
    let given = &shadow.metadata;
    let mut metadata = ObjectMeta {
        name: given.name.clone(),
        namespace: given.namespace.clone(),
        labels: Some(kept(given.labels.as_ref(), keys::label_is_kept)),
        annotations: Some(kept(given.annotations.as_ref(), keys::annotation_is_kept)),
        ..ObjectMeta::default()
    };
    labels::ORIGIN_ID.put_on(&mut metadata, tenant);
    labels::SHADOWED.put_on(&mut metadata);
    annotations::SHADOW_UID.put_on(&mut metadata, given.uid.clone().unwrap_or_default());
    content::put_on(&mut metadata, &spec);
    Ok(Pod { metadata, spec: Some(spec), status: None })
}

fn spec(given: &PodSpec, terms: &TenantSpec) -> Result<PodSpec, Refusal> {
    if let Some(barred) = barred::find(given) {
        let message = format!("{} is not allowed on this cluster: {}; take it out", barred.what, barred.why);
        return Err(Refusal::new(NOT_ALLOWED, message));
    }
    security::check(given, terms)?;
    let mut spec = portable::spec(given.clone());
    spec.service_account_name = Some(NOBODY.to_owned());
    spec.affinity = Some(on_real_nodes());
    confine(terms, &mut spec);
    Ok(spec)
}

/// Pods of others are not passed on.
fn on_real_nodes() -> Affinity {
    let mark = labels::TYPE_VIRTUAL_NODE;
    let real = NodeSelectorRequirement {
        key: mark.key().to_owned(),
        operator: "NotIn".to_owned(),
        values: Some(vec![mark.value().to_owned()]),
    };
    let term = NodeSelectorTerm { match_expressions: Some(vec![real]), match_fields: None };
    let required = NodeSelector { node_selector_terms: vec![term] };
    Affinity {
        node_affinity: Some(NodeAffinity {
            required_during_scheduling_ignored_during_execution: Some(required),
            preferred_during_scheduling_ignored_during_execution: None,
        }),
        pod_affinity: None,
        pod_anti_affinity: None,
    }
}
