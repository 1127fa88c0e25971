//! The copy that is wanted of an object, and what brings the one that is there nearer to it.

use std::collections::BTreeMap;

use ferro_api::names::{annotations, labels};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::core::{DynamicObject, TypeMeta};
use serde_json::{Value, json};

use super::Kind;
use super::content::{digest, put_class};
use super::kind::{kept_class, kept_content, kept_digest};
use crate::pods::outward::keys;

/// A copy that is wanted.
#[derive(Clone, Debug, PartialEq)]
pub struct Wish {
    types: Option<TypeMeta>,
    metadata: ObjectMeta,
    digest: String,
    /// Of what is bulky it is read when it is to be written.
    content: Option<Value>,
}

impl Wish {
    /// The copy that is wanted of an original that a watch keeps; `home` is the identifier of this cluster.
    pub fn of(kind: &Kind, original: &DynamicObject, home: &str) -> Self {
        let digest = kept_digest(original).to_owned();
        Self::new(kind, original, home, digest, kept_content(original))
    }

    /// The same for a slice, as the other cluster is told it.
    pub fn of_slice(original: &DynamicObject, home: &str, told: Value) -> Self {
        let kind = Kind::EndpointSlice;
        let content =
            kind.content(&DynamicObject { types: None, metadata: ObjectMeta::default(), data: told });
        let mut wish = Self::new(&kind, original, home, digest(&content), Some(content));
        labels::REFLECTED_SLICE.put_on(&mut wish.metadata);
        wish.metadata.annotations = None;
        wish.sign(original);
        wish
    }

    fn new(
        kind: &Kind,
        original: &DynamicObject,
        home: &str,
        digest: String,
        content: Option<Value>,
    ) -> Self {
        let given = &original.metadata;
        let mut metadata = ObjectMeta {
            name: given.name.clone(),
            labels: Some(kept(given.labels.as_ref(), keys::label_is_kept)),
            annotations: Some(kept(given.annotations.as_ref(), keys::annotation_is_kept)),
            ..ObjectMeta::default()
        };
        labels::ORIGIN_ID.put_on(&mut metadata, home);
        labels::REFLECTED.put_on(&mut metadata);
        let mut wish = Self { types: kind.types(original), metadata, digest, content };
        wish.sign(original);
        wish
    }

    /// Says on the copy what it is of, and what it shows.
    fn sign(&mut self, original: &DynamicObject) {
        let meta = &mut self.metadata;
        annotations::REFLECTED_CONTENT.take_off(meta);
        annotations::REFLECTED_UID.put_on(meta, original.metadata.uid.clone().unwrap_or_default());
        let all = digest(&json!([meta.labels, meta.annotations, self.digest]));
        annotations::REFLECTED_CONTENT.put_on(meta, all);
    }

    /// Whether the content is at hand.
    pub fn is_complete(&self) -> bool {
        self.content.is_some()
    }

    /// Takes the content of the original as it was just read. Whether it is the one that was wished for.
    pub fn complete(&mut self, kind: &Kind, read: &DynamicObject) -> bool {
        let content = kind.content(read);
        let is_it = digest(&content) == self.digest;
        self.content = is_it.then_some(content);
        is_it
    }

    /// The copy, in this namespace over there. When it takes the place of another one, it has what is not ours of that.
    pub fn object(&self, namespace: &str, former: Option<&Former>) -> DynamicObject {
        let metadata = ObjectMeta {
            namespace: Some(namespace.to_owned()),
            resource_version: former.map(|former| former.version.clone()),
            finalizers: former.and_then(|former| former.finalizers.clone()),
            owner_references: former.and_then(|former| former.owners.clone()),
            ..self.metadata.clone()
        };
        let mut data = self.content.clone().unwrap_or_default();
        if let Some(class) = former.and_then(|former| former.class.as_deref()) {
            put_class(&mut data, class);
        }
        DynamicObject { types: self.types.clone(), metadata, data }
    }

    /// A hash of all that is wished for.
    pub fn signature(&self) -> &str {
        annotations::REFLECTED_CONTENT.of(&self.metadata).unwrap_or_default()
    }

    /// What an API server has made of the wish, as it answered, where that is something else: one that does not know a
    /// field leaves it out.
    pub fn otherwise(&self, kind: &Kind, mut answered: DynamicObject) -> Option<String> {
        kind.keep_copy()(&mut answered);
        let made = kept_digest(&answered);
        (made != self.digest).then(|| made.to_owned())
    }

    /// Whether a copy has all that is wished for. What somebody has added to it does not matter.
    fn is_met_by(&self, copy: &DynamicObject, made_of_it: Option<&str>) -> bool {
        let content = kept_digest(copy);
        let (wanted, has) = (&self.metadata, &copy.metadata);
        (content == self.digest || made_of_it == Some(content))
            && holds(wanted.labels.as_ref(), has.labels.as_ref())
            && holds(wanted.annotations.as_ref(), has.annotations.as_ref())
    }
}

/// What a copy has that is the other cluster's, and stays when another one takes its place: controllers there hold it by
/// finalizers, without which they leave behind what they made for it. Labels and annotations of theirs do not stay: nobody
/// could tell them from those that the original has lost.
#[derive(Clone, Debug, PartialEq)]
pub struct Former {
    uid: String,
    version: String,
    finalizers: Option<Vec<String>>,
    owners: Option<Vec<OwnerReference>>,
    /// Of an Ingress: its cluster gives it one when it is made, and never again.
    class: Option<String>,
}

impl Former {
    fn of(copy: &DynamicObject) -> Self {
        let meta = &copy.metadata;
        Self {
            uid: meta.uid.clone().unwrap_or_default(),
            version: meta.resource_version.clone().unwrap_or_default(),
            finalizers: meta.finalizers.clone(),
            owners: meta.owner_references.clone(),
            class: kept_class(copy).map(str::to_owned),
        }
    }

    /// Which object it is.
    pub fn uid(&self) -> &str {
        &self.uid
    }
}

/// What to do about a copy.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Nothing, for now.
    Rest,
    /// Somebody else has an object of that name, which is left alone.
    Taken,
    /// Create it.
    Create,
    /// Put it in the place of this one, if that is still as it was seen.
    Replace(Former),
    /// Delete the one that is there, if it has this UID.
    Delete(String),
}

/// What to do about a copy, as a watch over there keeps it; `made_of_it` is what the API server there is known to make of
/// the wish.
pub fn step(home: &str, wish: Option<&Wish>, copy: Option<&DynamicObject>, made_of_it: Option<&str>) -> Step {
    let Some(copy) = copy else {
        return if wish.is_some() { Step::Create } else { Step::Rest };
    };
    let meta = &copy.metadata;
    let is_ours = is_ours(home, meta);
    let uid = || meta.uid.clone().unwrap_or_default();
    match wish {
        None if !is_ours => Step::Rest,
        Some(_) if !is_ours => Step::Taken,
        // Until it is gone.
        _ if meta.deletion_timestamp.is_some() => Step::Rest,
        None => Step::Delete(uid()),
        // Some fields never change in the life of an object, but from one to the next of the same name.
        Some(wish)
            if annotations::REFLECTED_UID.of(meta) != annotations::REFLECTED_UID.of(&wish.metadata) =>
        {
            Step::Delete(uid())
        }
        Some(wish) if wish.is_met_by(copy, made_of_it) => Step::Rest,
        Some(_) => Step::Replace(Former::of(copy)),
    }
}

/// Whose an object is that has the name of a copy which is to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Holder {
    /// Somebody else's, who keeps it.
    Another,
    /// Ours: the watch over there is late to show it, or it is about to go.
    Ours,
    /// Ours, but it lost what the watch selects by, so that this one of this UID is never shown.
    Stray(String),
}

/// Whose the object is that keeps a copy from being made.
pub fn holder(kind: &Kind, home: &str, wish: &Wish, present: &ObjectMeta) -> Holder {
    let is_selected = *kind != Kind::EndpointSlice || labels::REFLECTED_SLICE.is_on(present);
    if is_ours(home, present) && is_selected {
        return Holder::Ours;
    }
    // What the other cluster derives from copies of ours has their labels, and never their annotations.
    let of = annotations::REFLECTED_UID.of(present);
    let was_ours = labels::ORIGIN_ID.of(present) == Some(home)
        && of.is_some()
        && of == annotations::REFLECTED_UID.of(&wish.metadata);
    match &present.uid {
        Some(uid) if was_ours && present.deletion_timestamp.is_none() => Holder::Stray(uid.clone()),
        _ if was_ours => Holder::Ours,
        _ => Holder::Another,
    }
}

fn is_ours(home: &str, meta: &ObjectMeta) -> bool {
    labels::ORIGIN_ID.of(meta) == Some(home) && labels::REFLECTED.is_on(meta) && !is_derived(meta)
}

/// Whether the other cluster has made it of a copy of ours: its slices have all labels of their Service.
fn is_derived(meta: &ObjectMeta) -> bool {
    let by = meta.labels.as_ref().and_then(|labels| labels.get(labels::REFLECTED_SLICE.key()));
    by.is_some() && !labels::REFLECTED_SLICE.is_on(meta)
}

/// Whether all that is wanted is there.
fn holds(wanted: Option<&BTreeMap<String, String>>, present: Option<&BTreeMap<String, String>>) -> bool {
    let has = |(key, value): (&String, &String)| present.and_then(|present| present.get(key)) == Some(value);
    wanted.into_iter().flatten().all(has)
}

fn kept(
    all: Option<&BTreeMap<String, String>>,
    passes: impl Fn(&str, &str) -> bool,
) -> BTreeMap<String, String> {
    let kept = all.into_iter().flatten().filter(|(key, value)| passes(key, value));
    kept.map(|(key, value)| (key.clone(), value.clone())).collect()
}
