//! What belongs into a namespace of a Tenant, and what lets the consumer see its Tenant: made, compared and taken away.
//!
//! All kinds are handled alike, as objects with our marks. Whether one is as it should be is told by a hash of what was
//! wanted when it was written, and by its content: an API server fills in defaults and writes quantities in its own way,
//! so that equal is not what is asked, but whether everything that was wanted holds. The hash alone would not do: who
//! changes an object may well leave the hash on it.
//!
//! A Tenant has many namespaces, and what belongs into them is the same but for a few rights. So it is made once for all,
//! and copied only where it is written.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use ferro_api::names::{annotations, labels};
use k8s_openapi::api::rbac::v1::Subject;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::{ApiResource, DynamicObject, GroupVersionKind, TypeMeta};
use serde_json::{Value, json};

use super::delegation::{Delegated, bound, role};
use super::{Snapshot, Terms, isolation};
use crate::identity::sha256;
use crate::resources::{Amount, ResourceMap};

/// The name of what we put into a namespace.
pub const NAME: &str = "ferro-tenant";
/// What the consumer may do in its namespaces.
const PEER_ROLE: &str = "ferro-tenant-peer";
/// What other owners may do in the namespace through which the two clusters talk: say whom they let in.
const OWNER_ROLE: &str = "ferro-tenant-owner";
const RBAC: &str = "rbac.authorization.k8s.io";
const HASH_BYTES: usize = 16;
/// A ceiling that follows the offer is written anew when it differs by so many thousandths: what a Tenant uses
/// altogether is enforced exactly, and an offer changes whenever a pod comes or goes.
const WORTH_A_WRITE: u32 = 100;

/// A kind that we put somewhere for a Tenant, in the order in which it is done: fences before rights.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// Whom pods may talk to.
    NetworkPolicy,
    /// The most that a namespace uses.
    ResourceQuota,
    /// What each container may ask for.
    LimitRange,
    /// Something for pods to read, from a template.
    ConfigMap,
    /// Who may do what in a namespace.
    RoleBinding,
    /// That somebody may see this Tenant.
    ClusterRole,
    /// Who may see it.
    ClusterRoleBinding,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::NetworkPolicy,
        Self::ResourceQuota,
        Self::LimitRange,
        Self::ConfigMap,
        Self::RoleBinding,
        Self::ClusterRole,
        Self::ClusterRoleBinding,
    ];

    /// The kind as an API server knows it.
    pub fn resource(self) -> ApiResource {
        let (group, kind, plural) = match self {
            Self::NetworkPolicy => ("networking.k8s.io", "NetworkPolicy", "networkpolicies"),
            Self::ResourceQuota => ("", "ResourceQuota", "resourcequotas"),
            Self::LimitRange => ("", "LimitRange", "limitranges"),
            Self::ConfigMap => ("", "ConfigMap", "configmaps"),
            Self::RoleBinding => (RBAC, "RoleBinding", "rolebindings"),
            Self::ClusterRole => (RBAC, "ClusterRole", "clusterroles"),
            Self::ClusterRoleBinding => (RBAC, "ClusterRoleBinding", "clusterrolebindings"),
        };
        ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, "v1", kind), plural)
    }

    /// Whether its objects lie in a namespace.
    pub fn is_namespaced(self) -> bool {
        !matches!(self, Self::ClusterRole | Self::ClusterRoleBinding)
    }

    /// The kind of a template.
    fn of_template(kind: &str) -> Option<Self> {
        let allowed = [Self::NetworkPolicy, Self::ResourceQuota, Self::LimitRange, Self::ConfigMap];
        allowed.into_iter().find(|allowed| allowed.resource().kind == kind)
    }
}

/// Something that is to be there.
#[derive(Clone, Debug, PartialEq)]
pub struct Item {
    /// Its kind.
    pub kind: Kind,
    /// All of it. When it takes the place of another one, it has that one's version.
    pub object: DynamicObject,
    /// Whether figures that are close are close enough.
    pub(super) is_rough: bool,
}

impl Item {
    /// Something with our marks, for any namespace.
    fn new(kind: Kind, tenant: &str, name: &str, data: Value) -> Self {
        Self::unhashed(kind, tenant, name, data).hashed()
    }

    fn unhashed(kind: Kind, tenant: &str, name: &str, data: Value) -> Self {
        let resource = kind.resource();
        let mut metadata = ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() };
        labels::PART_OF.put_on(&mut metadata);
        labels::TENANT.put_on(&mut metadata, tenant);
        let types = Some(TypeMeta { api_version: resource.api_version, kind: resource.kind });
        Self { kind, object: DynamicObject { types, metadata, data }, is_rough: false }
    }

    fn hashed(mut self) -> Self {
        let meta = &self.object.metadata;
        let content = json!([self.object.data, meta.labels, meta.annotations]).to_string();
        let mut hash = String::new();
        for byte in sha256(content.as_bytes()).iter().take(HASH_BYTES) {
            // Writing to a string cannot fail.
            _ = write!(hash, "{byte:02x}");
        }
        annotations::CONTENT.put_on(&mut self.object.metadata, hash);
        self
    }

    /// What tells it apart from others in the same namespace.
    pub(super) fn key(&self) -> (Kind, &str) {
        (self.kind, self.object.metadata.name.as_deref().unwrap_or_default())
    }

    /// As it is put into a namespace, or beside all of them; in place of what is there, if that is still the same.
    pub(super) fn placed(&self, namespace: Option<&str>, present: Option<&ObjectMeta>) -> Self {
        let mut item = self.clone();
        let meta = &mut item.object.metadata;
        meta.namespace = namespace.map(str::to_owned);
        if let Some(present) = present {
            meta.resource_version.clone_from(&present.resource_version);
            meta.uid.clone_from(&present.uid);
        }
        item
    }

    /// Whether what is there will do.
    pub(super) fn is_met_by(&self, present: &DynamicObject) -> bool {
        let (wanted, has) = (&self.object.metadata, &present.metadata);
        let is_exact = annotations::CONTENT.of(wanted) == annotations::CONTENT.of(has)
            && carries(has, wanted)
            && holds(&self.object.data, &present.data);
        is_exact || (self.is_rough && is_close(&self.object, present))
    }
}

/// All that belongs into the namespaces of a Tenant, made once for all of them.
pub(super) struct Furniture<'a> {
    /// In the order in which it is put there; what follows from a delegation, only where that reaches.
    items: Vec<(Item, Option<&'a Delegated<'a>>)>,
}

impl<'a> Furniture<'a> {
    /// What follows from a snapshot, for any number of namespaces.
    pub(super) fn of(snapshot: &Snapshot<'_>, terms: &Terms, delegated: &'a [Delegated<'a>]) -> Self {
        let everywhere = everywhere(snapshot, terms).into_iter().map(|item| (item, None));
        let somewhere = delegated.iter().filter_map(|delegated| {
            let role = role(delegated.object.spec.level);
            // What a binding binds to cannot be changed, so that another level is another binding.
            let name = format!("{role}-{}", delegated.number);
            Some((binding(snapshot, &name, role, &delegated.subjects)?, Some(delegated)))
        });
        let mut items: Vec<_> = everywhere.chain(somewhere).collect();
        items.sort_by(|(one, _), (other, _)| one.key().cmp(&other.key()));
        Self { items }
    }

    /// All that belongs into one namespace, in the order in which it is put there.
    pub(super) fn within(&self, namespace: &str) -> Vec<&Item> {
        let here = self.items.iter().filter(|(_, of)| of.is_none_or(|of| of.reaches(namespace)));
        let mut items: Vec<&Item> = here.map(|(item, _)| item).collect();
        items.dedup_by(|later, earlier| later.key() == earlier.key());
        items
    }
}

/// What belongs into every namespace.
fn everywhere(snapshot: &Snapshot<'_>, terms: &Terms) -> Vec<Item> {
    let tenant = snapshot.consumer.cluster_id.as_str();
    let item = |kind, data| Item::new(kind, tenant, NAME, data);
    let mut items = Vec::new();
    if terms.isolation {
        let policy = isolation::policy(tenant, snapshot.views, snapshot.own);
        items.push(item(Kind::NetworkPolicy, json!({"spec": policy})));
    }
    if !terms.ceiling.hard.is_empty() {
        let quota = item(Kind::ResourceQuota, json!({"spec": {"hard": terms.ceiling.hard}}));
        items.push(Item { is_rough: terms.ceiling.follows_offer, ..quota });
    }
    if let Some(limits) = &terms.limit_range {
        items.push(item(Kind::LimitRange, json!({"spec": limits})));
    }
    items.extend(snapshot.config.templates.iter().filter_map(|template| from_template(template, tenant)));
    items.extend(binding(snapshot, NAME, PEER_ROLE, &all_owners(snapshot)));
    items
}

/// That some have the rights of a role in a namespace; nothing where there is nobody.
fn binding(snapshot: &Snapshot<'_>, name: &str, role: &str, subjects: &[Subject]) -> Option<Item> {
    let tenant = snapshot.consumer.cluster_id.as_str();
    let to = json!({"apiGroup": RBAC, "kind": "ClusterRole", "name": role});
    let data = json!({"roleRef": to, "subjects": subjects});
    (!subjects.is_empty()).then(|| Item::new(Kind::RoleBinding, tenant, name, data))
}

/// The consumer itself, while it is let in, and the other owners.
fn all_owners(snapshot: &Snapshot<'_>) -> Vec<Subject> {
    snapshot.identity.iter().cloned().chain(owners(snapshot)).collect()
}

/// The owners besides the consumer itself.
fn owners(snapshot: &Snapshot<'_>) -> impl Iterator<Item = Subject> {
    snapshot.tenant.into_iter().flat_map(|tenant| &tenant.spec.owners).map(bound)
}

/// What lets owners see their Tenant, and no other.
pub(super) fn window(snapshot: &Snapshot<'_>) -> Vec<Item> {
    let tenant = snapshot.consumer.cluster_id.as_str();
    let subjects = all_owners(snapshot);
    if subjects.is_empty() {
        return Vec::new();
    }
    let name = format!("{NAME}-{tenant}");
    let rule = json!({"apiGroups": ["tenancy.liqo.io"], "resources": ["tenants"], "resourceNames": [tenant],
        "verbs": ["get", "watch"]});
    let to = json!({"apiGroup": RBAC, "kind": "ClusterRole", "name": name});
    let binding = json!({"roleRef": to, "subjects": subjects});
    vec![
        Item::new(Kind::ClusterRole, tenant, &name, json!({"rules": [rule]})),
        Item::new(Kind::ClusterRoleBinding, tenant, &name, binding),
    ]
}

/// What lets owners say whom they let in. The consumer itself may do so anyway.
pub(super) fn desk(snapshot: &Snapshot<'_>) -> Vec<Item> {
    let owners: Vec<_> = owners(snapshot).collect();
    binding(snapshot, NAME, OWNER_ROLE, &owners).into_iter().collect()
}

/// A template, as it is put into namespaces; none if it cannot be: see [`bad_templates`].
fn from_template(template: &serde_json::Map<String, Value>, tenant: &str) -> Option<Item> {
    let template: DynamicObject = serde_json::from_value(Value::Object(template.clone())).ok()?;
    let kind = Kind::of_template(&template.types.as_ref()?.kind)?;
    let name = template.metadata.name.as_deref().filter(|name| *name != NAME)?;
    let mut item = Item::unhashed(kind, tenant, name, template.data.clone());
    let meta = &mut item.object.metadata;
    let given = template.metadata.labels.clone().unwrap_or_default();
    let ours = meta.labels.take().unwrap_or_default();
    meta.labels = Some(given.into_iter().chain(ours).collect());
    meta.annotations.clone_from(&template.metadata.annotations);
    Some(item.hashed())
}

/// What is wrong with the templates, for an administrator.
pub(super) fn bad_templates(snapshot: &Snapshot<'_>) -> Option<String> {
    let is_bad = |template: &&serde_json::Map<String, Value>| from_template(template, "").is_none();
    let bad = snapshot.config.templates.iter().filter(is_bad).count();
    (bad > 0).then(|| {
        format!(
            "{bad} of the templates in tenancyConfig cannot be used: each needs a kind that is allowed there, and a name \
             other than {NAME}"
        )
    })
}

/// Whether an object has all these labels and annotations.
pub(super) fn carries(has: &ObjectMeta, wanted: &ObjectMeta) -> bool {
    has_all(has.labels.as_ref(), wanted.labels.as_ref())
        && has_all(has.annotations.as_ref(), wanted.annotations.as_ref())
}

fn has_all(has: Option<&BTreeMap<String, String>>, wanted: Option<&BTreeMap<String, String>>) -> bool {
    let is_there = |(key, value): (&String, &String)| has.and_then(|has| has.get(key)) == Some(value);
    wanted.into_iter().flatten().all(is_there)
}

/// Whether everything in one value holds in another. Quantities may be written in another way.
fn holds(wanted: &Value, present: &Value) -> bool {
    match (wanted, present) {
        (Value::Null, _) => true,
        (Value::Object(wanted), _) if wanted.is_empty() => present.is_null() || present.is_object(),
        (Value::Object(wanted), Value::Object(present)) => {
            wanted.iter().all(|(key, value)| holds(value, present.get(key).unwrap_or(&Value::Null)))
        }
        (Value::Array(wanted), Value::Null) => wanted.is_empty(),
        (Value::Array(wanted), Value::Array(present)) => {
            wanted.len() == present.len()
                && wanted.iter().zip(present).all(|(wanted, present)| holds(wanted, present))
        }
        (wanted, present) => {
            wanted == present || amount(wanted).is_some_and(|one| amount(present) == Some(one))
        }
    }
}

fn amount(value: &Value) -> Option<Amount> {
    match value {
        Value::String(text) => text.parse().ok(),
        Value::Number(number) => number.to_string().parse().ok(),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    }
}

/// Whether two quotas limit the same, by about as much.
fn is_close(wanted: &DynamicObject, present: &DynamicObject) -> bool {
    let (wanted, present) = (limits(wanted), limits(present));
    wanted.names().eq(present.names()) && wanted.change_from(&present) < WORTH_A_WRITE
}

fn limits(quota: &DynamicObject) -> ResourceMap {
    amounts(quota, "/spec/hard")
}

/// What a namespace uses, as its `ResourceQuota` says.
pub(super) fn used(quota: &DynamicObject) -> ResourceMap {
    amounts(quota, "/status/used")
}

fn amounts(quota: &DynamicObject, pointer: &str) -> ResourceMap {
    let entries = quota.data.pointer(pointer).and_then(Value::as_object).into_iter().flatten();
    entries.filter_map(|(name, value)| Some((name.clone(), amount(value)?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_api_server_fills_in_or_writes_differently_still_holds() {
        let wanted = json!({"limits": [{"type": "Container", "max": {"cpu": "0.5"}}], "hard": {"pods": 5}});
        let stored = json!({"limits": [{"type": "Container", "max": {"cpu": "500m"}, "default": {"cpu": "500m"}}],
            "hard": {"pods": "5"}, "status": {}});
        assert!(holds(&wanted, &stored));
        assert!(!holds(&json!({"hard": {"pods": 6}}), &stored));
        assert!(!holds(&json!({"limits": []}), &stored));
        assert!(!holds(&json!({"gone": "x"}), &stored));
        assert!(holds(&json!({"podSelector": {}, "ports": []}), &json!({"podSelector": {}})));
        assert!(holds(&json!({"podSelector": {}}), &json!({})));
    }

    #[test]
    fn another_content_is_known_even_if_it_only_takes_something_away() {
        let quota = |hard: Value| Item::new(Kind::ResourceQuota, "c1", NAME, json!({"spec": {"hard": hard}}));
        let (larger, smaller) = (quota(json!({"cpu": "1", "pods": "2"})), quota(json!({"cpu": "1"})));
        assert!(larger.is_met_by(&larger.object));
        assert!(!smaller.is_met_by(&larger.object), "pods would stay limited");
    }

    #[test]
    fn a_ceiling_that_follows_the_offer_moves_only_when_it_is_worth_a_write() {
        let quota = |cpu: &str| Item {
            is_rough: true,
            ..Item::new(Kind::ResourceQuota, "c1", NAME, json!({"spec": {"hard": {"cpu": cpu}}}))
        };
        assert!(quota("95").is_met_by(&quota("100").object));
        assert!(!quota("85").is_met_by(&quota("100").object));
        let exact = Item { is_rough: false, ..quota("95") };
        assert!(!exact.is_met_by(&quota("100").object));
    }

    #[test]
    fn kinds_are_named_as_an_api_server_has_them() {
        let urls =
            Kind::ALL.map(|kind| format!("{}/{}", kind.resource().api_version, kind.resource().plural));
        assert_eq!(urls[0], "networking.k8s.io/v1/networkpolicies");
        assert_eq!(urls[1], "v1/resourcequotas");
        assert_eq!(urls[6], "rbac.authorization.k8s.io/v1/clusterrolebindings");
        assert_eq!(Kind::of_template("ConfigMap"), Some(Kind::ConfigMap));
        assert_eq!(Kind::of_template("RoleBinding"), None, "a template grants no rights");
    }
}
