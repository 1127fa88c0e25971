//! The kinds that are reflected, and what watches keep of them: thousands of objects are cheap as one line of text each.

use std::collections::BTreeMap;
use std::sync::Arc;

use ferro_api::config::ReplicatedResource;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::{ApiResource, DynamicObject, GroupVersionKind, TypeMeta};
use serde_json::{Map, Value, json};

use super::content::{class, content, digest};
use super::silence;

/// Under these names a watch keeps what it needs of an object.
const CONTENT: &str = "content";
const DIGEST: &str = "digest";
const TYPE: &str = "type";
const ADDRESSES: &str = "addresses";
const CLASS: &str = "class";
/// No name of a class is longer, and what another cluster says is kept only as far as it can be true.
const LONGEST_CLASS: usize = 253;

/// A kind that is reflected.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// A Service.
    Service,
    /// Endpoints of one.
    EndpointSlice,
    /// Configuration.
    ConfigMap,
    /// The same, confidential.
    Secret,
    /// How strangers reach a Service.
    Ingress,
    /// Another one, which an administrator has listed.
    Custom(Arc<ReplicatedResource>),
}

impl Kind {
    /// Those that every cluster has.
    pub const BUILT_IN: [Self; 5] =
        [Self::Service, Self::EndpointSlice, Self::ConfigMap, Self::Secret, Self::Ingress];

    /// The kinds that an administrator has listed: each in one version, since all versions are the same objects, and none
    /// that Kubernetes has itself, of which more would leave home than pods need.
    pub fn custom(listed: Vec<ReplicatedResource>) -> Vec<Self> {
        let mut kinds: Vec<ReplicatedResource> = Vec::new();
        for one in listed {
            let is_same =
                |other: &ReplicatedResource| other.group == one.group && other.resource == one.resource;
            let is_own = one.group.is_empty() || Self::BUILT_IN.iter().any(|kind| kind.is(&one));
            if !is_own && !kinds.iter().any(is_same) {
                kinds.push(one);
            }
        }
        kinds.into_iter().map(|one| Self::Custom(Arc::new(one))).collect()
    }

    fn is(&self, listed: &ReplicatedResource) -> bool {
        let resource = self.resource();
        resource.group == listed.group && resource.plural == listed.resource
    }

    /// The kind as an API server knows it.
    pub fn resource(&self) -> ApiResource {
        let (group, version, kind, plural) = match self {
            Self::Service => ("", "v1", "Service", "services"),
            Self::EndpointSlice => ("discovery.k8s.io", "v1", "EndpointSlice", "endpointslices"),
            Self::ConfigMap => ("", "v1", "ConfigMap", "configmaps"),
            Self::Secret => ("", "v1", "Secret", "secrets"),
            Self::Ingress => ("networking.k8s.io", "v1", "Ingress", "ingresses"),
            // What an object of it is called is written on the object.
            Self::Custom(listed) => (&*listed.group, &*listed.version, "", &*listed.resource),
        };
        ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, kind), plural)
    }

    /// What selects the objects at home that are worth a look.
    pub fn fields(&self) -> Option<&'static str> {
        // Releases of Helm are large, and none of these ever leaves home.
        (*self == Self::Secret).then_some(
            "type!=helm.sh/release.v1,type!=bootstrap.kubernetes.io/token,type!=kubernetes.io/service-account-token",
        )
    }

    /// Whether the content is large or confidential, so that it is read only when it is needed.
    pub fn is_bulky(&self) -> bool {
        matches!(self, Self::ConfigMap | Self::Secret)
    }

    /// Keeps of an original what travels of it.
    pub fn keep_original(&self) -> fn(&mut DynamicObject) {
        match self {
            Self::Service => |object| keep_original(&Self::Service, object),
            Self::EndpointSlice => |object| keep_original(&Self::EndpointSlice, object),
            Self::ConfigMap => |object| keep_original(&Self::ConfigMap, object),
            Self::Secret => |object| keep_original(&Self::Secret, object),
            Self::Ingress => |object| keep_original(&Self::Ingress, object),
            Self::Custom(_) => |object| keep_original(&custom(), object),
        }
    }

    /// Keeps of a copy what tells whether it is as it should be, and what of it is not ours.
    pub fn keep_copy(&self) -> fn(&mut DynamicObject) {
        match self {
            Self::Service => |object| keep_copy(&Self::Service, object),
            Self::EndpointSlice => |object| keep_copy(&Self::EndpointSlice, object),
            Self::ConfigMap => |object| keep_copy(&Self::ConfigMap, object),
            Self::Secret => |object| keep_copy(&Self::Secret, object),
            Self::Ingress => |object| keep_copy(&Self::Ingress, object),
            Self::Custom(_) => |object| keep_copy(&custom(), object),
        }
    }

    /// What travels of an object as an API server gives it.
    pub fn content(&self, object: &DynamicObject) -> Value {
        content(self, object)
    }

    /// What an object is called when it is written.
    pub(super) fn types(&self, original: &DynamicObject) -> Option<TypeMeta> {
        match self {
            Self::Custom(_) => original.types.clone(),
            built_in => {
                let resource = built_in.resource();
                Some(TypeMeta { api_version: resource.api_version, kind: resource.kind })
            }
        }
    }
}

/// Any that is not built in: what is kept of it does not depend on which it is.
fn custom() -> Kind {
    Kind::Custom(Arc::default())
}

fn keep_original(kind: &Kind, object: &mut DynamicObject) {
    let content = content(kind, object);
    let mut kept = Map::new();
    kept.insert(DIGEST.to_owned(), digest(&content).into());
    if let Some(type_) = object.data.get(TYPE).filter(|_| *kind == Kind::Secret) {
        kept.insert(TYPE.to_owned(), type_.clone());
    }
    if !kind.is_bulky() {
        kept.insert(CONTENT.to_owned(), content.to_string().into());
    }
    object.data = Value::Object(kept);
    trim(&mut object.metadata);
}

fn keep_copy(kind: &Kind, object: &mut DynamicObject) {
    if *kind == Kind::EndpointSlice {
        silence::undo(object);
    }
    let mut kept = json!({DIGEST: digest(&content(kind, object))});
    if *kind == Kind::EndpointSlice {
        kept[ADDRESSES] = addresses(&object.data);
    }
    let class = class(&object.data).filter(|class| *kind == Kind::Ingress && class.len() <= LONGEST_CLASS);
    if let Some(class) = class {
        kept[CLASS] = class.into();
    }
    object.data = kept;
    let meta = &mut object.metadata;
    let theirs = (meta.finalizers.take(), meta.owner_references.take());
    trim(meta);
    (meta.finalizers, meta.owner_references) = theirs;
}

/// Who it is, how it is labelled, and whether it goes.
fn trim(meta: &mut ObjectMeta) {
    let labels = meta.labels.take();
    let mut annotations: BTreeMap<String, String> = meta.annotations.take().unwrap_or_default();
    annotations.remove("kubectl.kubernetes.io/last-applied-configuration");
    *meta = ObjectMeta {
        name: meta.name.take(),
        namespace: meta.namespace.take(),
        uid: meta.uid.take(),
        resource_version: meta.resource_version.take(),
        deletion_timestamp: meta.deletion_timestamp.take(),
        labels,
        annotations: Some(annotations),
        ..ObjectMeta::default()
    };
}

/// All addresses in a slice.
fn addresses(slice: &Value) -> Value {
    let endpoints = slice["endpoints"].as_array().into_iter().flatten();
    let all = endpoints.flat_map(|endpoint| endpoint["addresses"].as_array().into_iter().flatten());
    all.cloned().collect()
}

/// The addresses in the copy of a slice that is kept.
pub(super) fn kept_addresses(copy: &DynamicObject) -> impl Iterator<Item = &str> {
    copy.data[ADDRESSES].as_array().into_iter().flatten().filter_map(Value::as_str)
}

/// The class of the copy of an Ingress that is kept.
pub(super) fn kept_class(copy: &DynamicObject) -> Option<&str> {
    copy.data.get(CLASS).and_then(Value::as_str)
}

/// The content of an original that is kept.
pub(super) fn kept_content(original: &DynamicObject) -> Option<Value> {
    serde_json::from_str(original.data.get(CONTENT)?.as_str()?).ok()
}

/// The hash of the content of what is kept.
pub(super) fn kept_digest(object: &DynamicObject) -> &str {
    object.data.get(DIGEST).and_then(Value::as_str).unwrap_or_default()
}

/// The type of a Secret that is kept.
pub(super) fn kept_type(original: &DynamicObject) -> &str {
    original.data.get(TYPE).and_then(Value::as_str).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_is_listed_in_one_version_and_those_of_kubernetes_itself_are_not() {
        let kind = |(group, version, resource): (&str, &str, &str)| ReplicatedResource {
            group: group.into(),
            version: version.into(),
            resource: resource.into(),
        };
        let (menus, former) = (("example.org", "v1", "menus"), ("example.org", "v1beta1", "menus"));
        let plates = ("example.org", "v1", "plates");
        let own = [
            ("", "v1", "secrets"),
            ("", "v1", "pods"),
            ("discovery.k8s.io", "v1", "endpointslices"),
            ("networking.k8s.io", "v1", "ingresses"),
        ];
        let listed = own.into_iter().chain([menus, former, plates]).map(kind).collect();
        let expected = [menus, plates].map(|one| Kind::Custom(Arc::new(kind(one))));
        assert_eq!(Kind::custom(listed), expected);
    }
}
