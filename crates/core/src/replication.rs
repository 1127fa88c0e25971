//! Copies of our objects in a peer's namespace: from what is here and what is there to the wanted writes.
//!
//! Spec flows to the copy, status flows back. There is one function for everything, because it looks only at
//! what is: a start, a resync after a long cut and a restart in mid-way are the same to it.
//!
//! # Guarantees
//! - Performing any part of a plan, in order, and planning again comes to the same end.
//! - An original that is deleted stays, held by a finalizer, until its copy is gone.
//! - What others made over there is never changed or deleted, whatever it is called.
//! - What comes back is limited to the status, to the fields that the kind allows, and in size and depth.
//!
//! # Assumptions
//! - Both lists are complete: an object that is missing from one of them does not exist.
//! - Deletions are done with the UID as precondition, and a create that finds the name taken is an error.

mod inbound;
mod patch;
mod rules;
mod status;

use std::collections::BTreeMap;

use ferro_api::names::{annotations, finalizers, labels};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::DynamicObject;
use serde_json::{Map, Value, json};

pub use inbound::{Ignored, Inbound, Why, inbound};
#[cfg(test)]
pub(crate) use patch::apply;
pub(crate) use patch::difference;
pub use rules::{Rule, StatusFields, rules};
pub use status::BadStatus;

/// So many leftovers of ours are removed in one go; a peer could make up any number of them.
const MOST_LEFTOVERS: usize = 100;

/// The two ends of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link<'a> {
    /// The identifier of this cluster.
    pub us: &'a str,
    /// The identifier of the peer.
    pub peer: &'a str,
    /// The namespace that the peer keeps for this cluster.
    pub namespace: &'a str,
}

/// What to do, in this order, and what cannot be done.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// The writes.
    pub writes: Vec<Write>,
    /// What cannot be done, and why.
    pub problems: Vec<Problem>,
}

/// One write. Names are those of the object, here and there.
#[derive(Clone, Debug, PartialEq)]
pub enum Write {
    /// Adds the finalizer [`finalizers::REPLICATION`] to the original.
    Hold(String),
    /// Takes it off again.
    Release(String),
    /// Creates the copy.
    CreateRemote(Box<DynamicObject>),
    /// Applies a merge patch to the copy.
    PatchRemote(String, Value),
    /// Deletes the copy, if it has this UID.
    DeleteRemote(String, Option<String>),
    /// Applies a merge patch to the status of the original.
    PatchLocalStatus(String, Value),
}

/// What stands in the way of a copy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// Somebody over there has an object of that name.
    #[error("the peer has a {0} of its own in the namespace that it keeps for us; it must be removed there")]
    NotOurs(String),
    /// The status is not something that can be taken over.
    #[error("the status that the peer gave to {name} is not taken over: {why}")]
    BadStatus {
        /// The name of the object.
        name: String,
        /// What is wrong with it.
        why: BadStatus,
    },
    /// There are more objects with our mark than are removed in one go.
    #[error("the peer has {0} objects with our mark that are not ours; they are removed little by little")]
    ManyLeftovers(usize),
}

/// Marks an object to be copied to a peer.
pub fn mark(meta: &mut ObjectMeta, peer: &str) {
    labels::REPLICATION.put_on(meta);
    labels::REMOTE_ID.put_on(meta, peer);
}

/// What is to be done so that the copies of one kind over there, and the status here, are as they should be.
pub fn plan(link: &Link<'_>, rule: &Rule, local: &[DynamicObject], remote: &[DynamicObject]) -> Plan {
    let mut copies: BTreeMap<_, _> =
        remote.iter().map(|copy| (copy.metadata.name.as_deref(), copy)).collect();
    let mut plan = Plan::default();
    for original in local.iter().filter(|object| concerns(link, &object.metadata)) {
        let copy = copies.remove(&original.metadata.name.as_deref());
        plan.follow(link, rule, original, copy);
    }
    plan.clear(copies.into_values().filter(|copy| is_ours(link, copy)).collect());
    plan
}

impl Plan {
    fn follow(
        &mut self,
        link: &Link<'_>,
        rule: &Rule,
        original: &DynamicObject,
        copy: Option<&DynamicObject>,
    ) {
        match (is_wanted(link, &original.metadata), Copy::of(link, original, copy)) {
            (true, Copy::Missing) => {
                self.hold(original);
                self.take_over_status(rule, original, None);
                self.writes.push(Write::CreateRemote(Box::new(copy_of(link, original))));
            }
            (true, Copy::Current(copy)) => {
                self.hold(original);
                self.update(rule, original, copy);
            }
            (true, Copy::Stale(copy)) | (false, Copy::Stale(copy) | Copy::Current(copy)) => self.delete(copy),
            (true, Copy::Foreign) => self.problems.push(Problem::NotOurs(name_of(original))),
            (true | false, Copy::Going) => {}
            (false, Copy::Missing | Copy::Foreign) => self.release(original),
        }
    }

    fn update(&mut self, rule: &Rule, original: &DynamicObject, copy: &DynamicObject) {
        if let Some(patch) = spec_patch(rule, original, copy) {
            self.writes.push(Write::PatchRemote(name_of(copy), patch));
        }
        self.take_over_status(rule, original, copy.data.get("status"));
    }

    /// Where there is no copy, nobody's answer holds.
    fn take_over_status(&mut self, rule: &Rule, original: &DynamicObject, status: Option<&Value>) {
        match status::patch(rule, original.data.get("status"), status) {
            Ok(Some(patch)) => self.writes.push(Write::PatchLocalStatus(name_of(original), patch)),
            Ok(None) => {}
            Err(why) => self.problems.push(Problem::BadStatus { name: name_of(original), why }),
        }
    }

    fn clear(&mut self, leftovers: Vec<&DynamicObject>) {
        if leftovers.len() > MOST_LEFTOVERS {
            self.problems.push(Problem::ManyLeftovers(leftovers.len()));
        }
        leftovers.into_iter().take(MOST_LEFTOVERS).for_each(|copy| self.delete(copy));
    }

    fn delete(&mut self, copy: &DynamicObject) {
        if copy.metadata.deletion_timestamp.is_none() {
            self.writes.push(Write::DeleteRemote(name_of(copy), copy.metadata.uid.clone()));
        }
    }

    fn hold(&mut self, original: &DynamicObject) {
        if !is_held(&original.metadata) {
            self.writes.push(Write::Hold(name_of(original)));
        }
    }

    fn release(&mut self, original: &DynamicObject) {
        if is_held(&original.metadata) {
            self.writes.push(Write::Release(name_of(original)));
        }
    }
}

/// What there is over there under the name of an original.
enum Copy<'a> {
    Missing,
    /// Not made by us.
    Foreign,
    /// Ours, and being deleted.
    Going,
    /// Of an earlier original of that name.
    Stale(&'a DynamicObject),
    Current(&'a DynamicObject),
}

impl<'a> Copy<'a> {
    fn of(link: &Link<'_>, original: &DynamicObject, copy: Option<&'a DynamicObject>) -> Self {
        let Some(copy) = copy else { return Self::Missing };
        let version = annotations::ORIGIN_VERSION.of(&copy.metadata);
        let copied_uid = version.and_then(|version| version.split_once('/')).map(|(uid, _)| uid);
        if !is_ours(link, copy) {
            Self::Foreign
        } else if copy.metadata.deletion_timestamp.is_some() {
            Self::Going
        } else if copied_uid.is_some_and(|uid| Some(uid) != original.metadata.uid.as_deref()) {
            Self::Stale(copy)
        } else {
            Self::Current(copy)
        }
    }
}

/// Whether an object here is, or was, one to copy. A copy from the peer never is.
fn concerns(link: &Link<'_>, meta: &ObjectMeta) -> bool {
    !labels::REPLICATED.is_on(meta) && (is_wanted(link, meta) || is_held(meta))
}

fn is_wanted(link: &Link<'_>, meta: &ObjectMeta) -> bool {
    labels::REPLICATION.is_on(meta)
        && labels::REMOTE_ID.of(meta) == Some(link.peer)
        && meta.deletion_timestamp.is_none()
}

fn is_held(meta: &ObjectMeta) -> bool {
    meta.finalizers.iter().flatten().any(|finalizer| finalizer == finalizers::REPLICATION)
}

fn is_ours(link: &Link<'_>, copy: &DynamicObject) -> bool {
    labels::REPLICATED.is_on(&copy.metadata) && labels::ORIGIN_ID.of(&copy.metadata) == Some(link.us)
}

fn name_of(object: &DynamicObject) -> String {
    object.metadata.name.clone().unwrap_or_default()
}

fn version_of(original: &DynamicObject) -> String {
    let meta = &original.metadata;
    format!("{}/{}", meta.uid.as_deref().unwrap_or_default(), meta.generation.unwrap_or_default())
}

/// The copy as it is first created: the content, and our marks; nothing else of the original's metadata.
fn copy_of(link: &Link<'_>, original: &DynamicObject) -> DynamicObject {
    let mut metadata = ObjectMeta {
        name: original.metadata.name.clone(),
        namespace: Some(link.namespace.to_owned()),
        ..ObjectMeta::default()
    };
    labels::REPLICATED.put_on(&mut metadata);
    labels::ORIGIN_ID.put_on(&mut metadata, link.us);
    labels::REMOTE_ID.put_on(&mut metadata, link.peer);
    annotations::ORIGIN_VERSION.put_on(&mut metadata, version_of(original));
    DynamicObject { types: original.types.clone(), metadata, data: Value::Object(content_of(original)) }
}

/// Everything that is not metadata or status.
fn content_of(object: &DynamicObject) -> Map<String, Value> {
    let mut content = object.data.as_object().cloned().unwrap_or_default();
    content.remove("status");
    content
}

/// What must change on the copy.
///
/// The API server over there may fill in fields that the original does not have. They are removed once for
/// each version of the original, and then left alone: otherwise the two would take turns for ever.
fn spec_patch(rule: &Rule, original: &DynamicObject, copy: &DynamicObject) -> Option<Value> {
    let content = |object| {
        let mut content = content_of(object);
        if let Some(Value::Object(spec)) = content.get_mut("spec") {
            rule.kept_by_others.iter().for_each(|field| _ = spec.remove(*field));
        }
        Value::Object(content)
    };
    let version = version_of(original);
    let known = annotations::ORIGIN_VERSION.of(&copy.metadata);
    let patch = difference(&content(copy), &content(original));
    let settled = patch.as_ref().is_none_or(patch::only_removes);
    if settled && known.is_some_and(|known| patch.is_none() || known == version) {
        return None;
    }
    let mut patch = patch.unwrap_or_else(|| json!({}));
    patch["metadata"] = json!({"annotations": {annotations::ORIGIN_VERSION.key(): version}});
    Some(patch)
}

#[cfg(test)]
mod tests;
