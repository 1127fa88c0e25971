//! Brings one object into the state that the chart wants, and tells whether that changed anything.
//!
//! Everything goes through server-side apply with one field manager: what the chart no longer says is taken
//! away, what others wrote beside it stays.

use anyhow::{Context as _, bail};
use ferro_api::config::ClusterConfig;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, DynamicObject, ListParams, Patch, PatchParams, ValidationDirective};
use kube::{Client, ResourceExt as _};
use serde_json::Value;

use crate::inventory::{Item, Kind};
use crate::kube_errors::{Explain as _, found};
use crate::wait::Deadline;

/// Who wrote a field, as the API server remembers it.
const MANAGER: &str = "ferro-install";
/// Written by a controller soon after a Deployment changed, and nobody's wish.
const REVISION: &str = "deployment.kubernetes.io/revision";

/// What applying did to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Created,
    Changed,
    Unchanged,
}

/// Applies objects, each after the one before.
pub(super) struct Applier<'a> {
    pub(super) client: &'a Client,
    pub(super) deadline: Deadline,
    /// Whether settings that somebody else made in the configuration are overwritten.
    pub(super) force: bool,
}

impl Applier<'_> {
    /// Applies one object.
    pub(super) async fn apply(&self, object: &DynamicObject) -> anyhow::Result<Outcome> {
        let item = Item::described(object)?;
        let before = self.settled(&item).await?;
        let mut how = PatchParams::apply(MANAGER);
        how.field_validation = Some(ValidationDirective::Strict);
        // The configuration is the one object that people edit; all others are nobody's but ours.
        how.force = self.force || !item.kind.is::<ClusterConfig>();
        let after = match item.api(self.client).patch(item.name(), &how, &Patch::Apply(object)).await {
            Err(kube::Error::Api(status)) if status.is_conflict() => bail!(
                "{item} was changed by somebody else: {}; to keep that, give the same with --set, and to lose it, \
                 use --force-conflicts",
                status.message
            ),
            after => after.explain(|| format!("apply {item}"))?,
        };
        Ok(match before.map(content) {
            None => Outcome::Created,
            Some(before) if before == content(after) => Outcome::Unchanged,
            Some(_) => Outcome::Changed,
        })
    }

    /// The object as it is now; one that is on its way out is waited for.
    async fn settled(&self, item: &Item) -> anyhow::Result<Option<DynamicObject>> {
        let api = item.api(self.client);
        let look = async || {
            let now = found(api.get(item.name()).await).explain(|| format!("read {item}"))?;
            let is_going = now.as_ref().is_some_and(|now| now.metadata.deletion_timestamp.is_some());
            Ok((!is_going).then_some(now))
        };
        self.deadline.until(look).await?.with_context(|| {
            format!(
                "{item} is being deleted and does not go; see what holds it with 'kubectl get {item} -o yaml'"
            )
        })
    }

    /// Waits until the API server serves the kinds that these definitions define.
    pub(super) async fn await_served(&self, definitions: &[CustomResourceDefinition]) -> anyhow::Result<()> {
        let api = Api::<CustomResourceDefinition>::all(self.client.clone());
        for definition in definitions {
            let name = definition.name_any();
            let kind = Kind::defined_by(definition)?;
            let look = async || {
                let now = api.get(&name).await.explain(|| format!("read the definition {name}"))?;
                if !is_established(&now) {
                    return Ok(None);
                }
                // Established is said a moment before every part of the server knows it.
                let listed = kind.api(self.client, None).list_metadata(&ListParams::default().limit(1)).await;
                Ok(found(listed).explain(|| format!("list {}", kind.resource.plural))?.map(drop))
            };
            self.deadline.until(look).await?.with_context(|| {
                format!("the API server does not serve {name}; see 'kubectl describe crd {name}'")
            })?;
        }
        Ok(())
    }
}

/// Whether this program applied the object once.
pub(super) fn is_applied(item: &Item) -> bool {
    let managers = item.meta.managed_fields.iter().flatten();
    managers
        .into_iter()
        .any(|entry| entry.manager.as_deref() == Some(MANAGER) && entry.operation.as_deref() == Some("Apply"))
}

fn is_established(definition: &CustomResourceDefinition) -> bool {
    let conditions = definition.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.into_iter().any(|condition| condition.type_ == "Established" && condition.status == "True")
}

/// What counts as a change: everything but what the API server and controllers note down.
fn content(mut object: DynamicObject) -> DynamicObject {
    object.metadata.resource_version = None;
    object.metadata.managed_fields = None;
    object.annotations_mut().remove(REVISION);
    if let Value::Object(data) = &mut object.data {
        data.remove("status");
    }
    object
}

#[cfg(test)]
mod tests {
    use super::content;
    use kube::api::DynamicObject;
    use serde_json::json;

    fn deployment(replicas: u8, version: &str, ready: u8) -> DynamicObject {
        serde_json::from_value(json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {
                "name": "a", "resourceVersion": version, "managedFields": [{"manager": version}],
                "annotations": {"deployment.kubernetes.io/revision": version},
            },
            "spec": {"replicas": replicas},
            "status": {"readyReplicas": ready},
        }))
        .unwrap()
    }

    #[test]
    fn what_others_note_down_is_not_a_change() {
        assert_eq!(content(deployment(1, "7", 0)), content(deployment(1, "8", 1)));
        assert_ne!(content(deployment(1, "7", 0)), content(deployment(2, "7", 0)));
    }
}
