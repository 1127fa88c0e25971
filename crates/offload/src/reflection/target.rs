//! One of our namespaces on another cluster: the copies in it, watched with our own eyes.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use ferro_api::names::labels;
use ferro_core::reflection::Kind;
use ferro_runtime::queue::Queue;
use ferro_runtime::shutdown::Tasks;
use ferro_runtime::watch::Watched;
use kube::api::DynamicObject;
use kube::{Client, ResourceExt as _};

use super::proofs::Proofs;
use super::source::Source;
use super::{Key, watches};

/// A namespace over there.
pub(super) struct Target {
    tasks: Tasks,
    /// Its name over there.
    pub(super) there: String,
    pub(super) source: Arc<Source>,
    pairs: HashMap<Kind, Pair>,
    proofs: Arc<Proofs>,
}

/// A kind, here and there.
#[derive(Clone)]
struct Pair {
    originals: Watched<DynamicObject>,
    copies: Watched<DynamicObject>,
    /// Whether all is known that decides about it.
    is_ready: Arc<AtomicBool>,
}

impl Target {
    /// Begins to watch; changes on both sides put the names of objects into the queue.
    pub(super) fn start(
        tasks: Tasks,
        remote: &Client,
        own: &str,
        (here, there): (&str, &str),
        source: Arc<Source>,
        kinds: &[Kind],
        queue: &Queue<Key>,
    ) -> Arc<Self> {
        let ours = format!("{},{}", labels::ORIGIN_ID.selector(own), labels::REFLECTED.selector());
        let mut pairs = HashMap::new();
        for kind in kinds {
            // What the other cluster makes of our Services has their labels.
            let ours = match kind {
                Kind::EndpointSlice => format!("{ours},{}", labels::REFLECTED_SLICE.selector()),
                _ => ours.clone(),
            };
            let copies = watches::copies(&tasks, remote, there, kind, &ours);
            let pair = Pair { originals: source.of(kind), copies, is_ready: Arc::default() };
            pairs.insert(kind.clone(), pair);
        }
        let proofs = Arc::new(Proofs::default());
        let files =
            Files { here: here.to_owned(), source: Arc::downgrade(&source), proofs: Arc::clone(&proofs) };
        for (kind, pair) in &pairs {
            for watched in [&pair.originals, &pair.copies] {
                let (files, of) = (files.clone(), kind.clone());
                watches::follow(&tasks, watched, here, kind, queue, move |name: &str| files.note(&of, name));
            }
            let pair_of = |kind: &Kind| Some((kind.clone(), pairs.get(kind)?.clone()));
            look_once_complete(&tasks, decisive(kind).filter_map(pair_of).collect(), files.clone(), queue);
        }
        Arc::new(Self { tasks, there: there.to_owned(), source, pairs, proofs })
    }

    /// Whether all is known that decides about a kind, here and there.
    pub(super) fn is_ready(&self, kind: &Kind) -> bool {
        self.pairs.get(kind).is_some_and(|pair| pair.is_ready.load(Ordering::SeqCst))
    }

    /// Our copy of that kind and name.
    pub(super) fn copy(&self, kind: &Kind, name: &str) -> Option<Arc<DynamicObject>> {
        self.pairs.get(kind)?.copies.get(Some(&self.there), name)
    }

    /// Everything of a kind that there is, here or there.
    pub(super) fn names(&self, kind: &Kind) -> Vec<String> {
        let Some(pair) = self.pairs.get(kind) else { return Vec::new() };
        pair.originals.all().iter().chain(&pair.copies.all()).map(|object| object.name_any()).collect()
    }

    /// The Ingresses at home that refer to a Secret.
    pub(super) fn ingresses(&self, secret: &str) -> Vec<Arc<DynamicObject>> {
        let names = self.proofs.ingresses(secret).into_iter();
        names.filter_map(|name| self.source.get(&Kind::Ingress, &name)).collect()
    }

    /// The kinds that are watched.
    pub(super) fn kinds(&self) -> impl Iterator<Item = &Kind> {
        self.pairs.keys()
    }

    /// Whether all these are.
    pub(super) fn has(&self, kinds: &[Kind]) -> bool {
        kinds.iter().all(|kind| self.pairs.contains_key(kind))
    }

    /// Ends the watches.
    pub(super) fn leave(&self) {
        self.tasks.dismiss();
    }
}

/// The kinds by which it is decided about one: its own first. A slice goes where its Service is, and a Secret where an
/// Ingress refers to it.
fn decisive(kind: &Kind) -> impl Iterator<Item = &Kind> {
    let besides = match kind {
        Kind::EndpointSlice => Some(&Kind::Service),
        Kind::Secret => Some(&Kind::Ingress),
        Kind::Service | Kind::ConfigMap | Kind::Ingress | Kind::Custom(_) => None,
    };
    std::iter::once(kind).chain(besides)
}

/// What belongs together in one of our namespaces: slices to their Service, Secrets to Ingresses.
#[derive(Clone)]
struct Files {
    here: String,
    source: Weak<Source>,
    proofs: Arc<Proofs>,
}

impl Files {
    /// Notes down what an object has to do with others; says which of these are to be looked at because of it.
    fn note(&self, kind: &Kind, name: &str) -> Vec<Key> {
        let Some(source) = self.source.upgrade() else { return Vec::new() };
        let (kind, names) = match kind {
            Kind::EndpointSlice => {
                source.file(name);
                return Vec::new();
            }
            Kind::Service => (Kind::EndpointSlice, source.slices(name)),
            Kind::Ingress => (Kind::Secret, self.proofs.file(name, || source.get(&Kind::Ingress, name))),
            Kind::ConfigMap | Kind::Secret | Kind::Custom(_) => return Vec::new(),
        };
        names.into_iter().map(|name| (self.here.clone(), kind.clone(), name)).collect()
    }
}

/// Nothing is decided before it is known what there is on both sides, which may be nothing, and noted down what that has to
/// do with others.
fn look_once_complete(tasks: &Tasks, decisive: Vec<(Kind, Pair)>, files: Files, queue: &Queue<Key>) {
    let queue = queue.clone();
    tasks.spawn("first look", async move {
        for (kind, pair) in &decisive {
            pair.originals.ready().await?;
            pair.copies.ready().await?;
            for original in pair.originals.all() {
                files.note(kind, &original.name_any());
            }
        }
        let Some((kind, own)) = decisive.first() else { return Ok(()) };
        own.is_ready.store(true, Ordering::SeqCst);
        for object in [own.originals.all(), own.copies.all()].concat() {
            queue.push((files.here.clone(), kind.clone(), object.name_any()));
        }
        Ok(())
    });
}
