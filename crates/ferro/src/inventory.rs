//! What an installation may consist of, and how to find it in a cluster: by its label, whoever put it there.

use std::fmt;

use anyhow::Context as _;
use ferro_api::config::ClusterConfig;
use ferro_api::names::labels;
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
};
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment};
use k8s_openapi::api::core::v1::{Namespace, Service, ServiceAccount};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding};
use k8s_openapi::api::storage::v1::StorageClass;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{Api, DeleteParams, DynamicObject, ListParams};
use kube::core::{ApiResource, ClusterResourceScope, NamespaceResourceScope};
use kube::{Client, Resource, ResourceExt as _};

use crate::chart;
use crate::kube_errors::{Explain as _, found};

/// Helm writes the name of the release on everything that it installs.
const HELM_RELEASE: &str = "meta.helm.sh/release-name";

/// A kind of object, with what is needed to ask for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Kind {
    pub(crate) resource: ApiResource,
    pub(crate) namespaced: bool,
}

/// The kinds that the chart has, each after those that it needs.
pub(crate) fn kinds() -> Vec<Kind> {
    vec![
        Kind::cluster::<CustomResourceDefinition>(),
        Kind::cluster::<Namespace>(),
        Kind::cluster::<ClusterConfig>(),
        Kind::namespaced::<ServiceAccount>(),
        Kind::cluster::<ClusterRole>(),
        Kind::cluster::<ClusterRoleBinding>(),
        Kind::namespaced::<Role>(),
        Kind::namespaced::<RoleBinding>(),
        Kind::cluster::<ValidatingAdmissionPolicy>(),
        Kind::cluster::<ValidatingAdmissionPolicyBinding>(),
        Kind::cluster::<StorageClass>(),
        Kind::namespaced::<Service>(),
        Kind::namespaced::<PodDisruptionBudget>(),
        Kind::namespaced::<Deployment>(),
        Kind::namespaced::<DaemonSet>(),
        Kind::cluster::<MutatingWebhookConfiguration>(),
    ]
}

impl Kind {
    /// A kind whose objects belong to the cluster as a whole.
    pub(crate) fn cluster<K: Resource<DynamicType = (), Scope = ClusterResourceScope>>() -> Self {
        Self { resource: ApiResource::erase::<K>(&()), namespaced: false }
    }

    /// A kind whose objects lie in namespaces.
    pub(crate) fn namespaced<K: Resource<DynamicType = (), Scope = NamespaceResourceScope>>() -> Self {
        Self { resource: ApiResource::erase::<K>(&()), namespaced: true }
    }

    /// The kind that a definition defines.
    pub(crate) fn defined_by(definition: &CustomResourceDefinition) -> anyhow::Result<Self> {
        let spec = &definition.spec;
        let version = spec.versions.iter().find(|version| version.storage);
        let version = version.with_context(|| format!("{} has no version", definition.name_any()))?;
        let resource = ApiResource {
            group: spec.group.clone(),
            version: version.name.clone(),
            api_version: format!("{}/{}", spec.group, version.name),
            kind: spec.names.kind.clone(),
            plural: spec.names.plural.clone(),
        };
        Ok(Self { resource, namespaced: spec.scope == "Namespaced" })
    }

    /// The kind of an object of the chart.
    pub(crate) fn of(object: &DynamicObject) -> anyhow::Result<Self> {
        let types = object.types.as_ref().context("an object of the chart has no kind")?;
        kinds()
            .into_iter()
            .find(|kind| kind.resource.kind == types.kind && kind.resource.api_version == types.api_version)
            .with_context(|| format!("the chart has a kind that is not known here: {}", types.kind))
    }

    /// Whether this is the kind of that type.
    pub(crate) fn is<K: Resource<DynamicType = ()>>(&self) -> bool {
        self.resource.group == K::group(&()) && self.resource.kind == K::kind(&())
    }

    /// Access to the objects of one namespace, or of the whole cluster.
    pub(crate) fn api(&self, client: &Client, namespace: Option<&str>) -> Api<DynamicObject> {
        match namespace.filter(|_| self.namespaced) {
            Some(namespace) => Api::namespaced_with(client.clone(), namespace, &self.resource),
            None => Api::all_with(client.clone(), &self.resource),
        }
    }

    /// All objects of the kind that carry the label of an installation.
    pub(crate) async fn ours(&self, client: &Client) -> anyhow::Result<Vec<Item>> {
        self.list(client, &ListParams::default().labels(&labels::PART_OF.selector())).await
    }

    /// All objects of the kind that match; none where the kind is not known.
    pub(crate) async fn list(&self, client: &Client, which: &ListParams) -> anyhow::Result<Vec<Item>> {
        let listed = found(self.api(client, None).list_metadata(which).await);
        let listed = listed.explain(|| format!("list {}", self.resource.plural))?;
        let items = listed.into_iter().flat_map(|listed| listed.items);
        Ok(items.map(|item| Item { kind: self.clone(), meta: item.metadata }).collect())
    }
}

/// An object in a cluster.
#[derive(Clone, Debug)]
pub(crate) struct Item {
    pub(crate) kind: Kind,
    pub(crate) meta: ObjectMeta,
}

impl Item {
    /// The object of that name, whether it is there or not.
    pub(crate) fn named<K>(namespace: &str, name: &str) -> Self
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        let (namespace, name) = (Some(namespace.to_owned()), Some(name.to_owned()));
        Self { kind: Kind::namespaced::<K>(), meta: ObjectMeta { namespace, name, ..ObjectMeta::default() } }
    }

    /// The object that a manifest describes, whether it is there or not.
    pub(crate) fn described(object: &DynamicObject) -> anyhow::Result<Self> {
        Ok(Self { kind: Kind::of(object)?, meta: object.metadata.clone() })
    }

    /// The name.
    pub(crate) fn name(&self) -> &str {
        self.meta.name.as_deref().unwrap_or_default()
    }

    /// Access to the objects beside this one.
    pub(crate) fn api(&self, client: &Client) -> Api<DynamicObject> {
        self.kind.api(client, self.meta.namespace.as_deref())
    }

    /// Whether it is on its way out.
    pub(crate) fn is_going(&self) -> bool {
        self.meta.deletion_timestamp.is_some()
    }

    /// Has it deleted, if it is still there.
    pub(crate) async fn delete(&self, client: &Client, how: &DeleteParams) -> anyhow::Result<()> {
        let deleted = found(self.api(client).delete(self.name(), how).await);
        deleted.map(drop).explain(|| format!("delete {self}"))
    }
}

/// As kubectl names an object.
impl fmt::Display for Item {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "{}/{}", self.kind.resource.kind.to_lowercase(), self.name())
    }
}

/// The installation that a cluster has.
pub(crate) struct Installation {
    /// The namespace of its roles.
    pub(crate) namespace: String,
    /// The Helm release that it came with.
    pub(crate) helm_release: Option<String>,
    /// Whether a controller is at work.
    pub(crate) is_running: bool,
}

impl Installation {
    /// Looks for the installation of a cluster.
    pub(crate) async fn find(client: &Client) -> anyhow::Result<Option<Self>> {
        let ours = ListParams::default().labels(&labels::PART_OF.selector());
        let deployments = Api::<Deployment>::all(client.clone()).list(&ours).await;
        let deployments = deployments.explain(|| "look for an installation".into())?;
        let controller = deployments.items.into_iter().find(|found| found.name_any() == chart::CONTROLLER);
        Ok(controller.map(|controller| Self {
            namespace: controller.namespace().unwrap_or_default(),
            helm_release: controller.annotations().get(HELM_RELEASE).cloned(),
            is_running: controller.status.and_then(|status| status.available_replicas).unwrap_or(0) > 0,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::{Kind, kinds};
    use crate::chart::{self, values};
    use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;

    #[test]
    fn every_object_of_the_chart_is_of_a_known_kind_and_lies_where_its_kind_does() {
        let values = values::collect(&[], &[], None).unwrap();
        let objects = chart::objects(&values, "liqo").unwrap();
        for object in objects.iter().chain(&chart::definitions().unwrap()) {
            let kind = Kind::of(object).unwrap();
            assert_eq!(kind.namespaced, object.metadata.namespace.is_some(), "{:?}", object.metadata.name);
        }
    }

    #[test]
    fn a_definition_gives_its_kind() {
        for definition in ferro_api::crds() {
            let kind = Kind::defined_by(&definition).unwrap();
            assert_eq!(
                format!("{}.{}", kind.resource.plural, kind.resource.group),
                definition.metadata.name.unwrap()
            );
            assert_eq!(kind.resource.api_version, format!("{}/v1alpha1", kind.resource.group));
        }
    }

    #[test]
    fn a_kind_knows_its_type() {
        assert!(kinds()[0].is::<CustomResourceDefinition>());
        assert!(!kinds()[1].is::<CustomResourceDefinition>());
    }
}
