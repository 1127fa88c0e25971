//! The kinds that are reflected, and what watches keep of them: thousands of objects are cheap as one line of text each.

use std::collections::BTreeMap;
use std::sync::Arc;

use ferro_api::config::ReplicatedResource;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::{ApiResource, DynamicObject, GroupVersionKind, TypeMeta};
use serde_json::{Map, Value, json};

use super::content::{content, digest};
use super::silence;

/// Under these names a watch keeps what it needs of an object.
const CONTENT: &str = "content";
const DIGEST: &str = "digest";
const TYPE: &str = "type";
const ADDRESSES: &str = "addresses";

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

    /// Keeps of a copy what tells whether it is as it should be.
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
    object.data = kept;
    trim(&mut object.metadata);
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
