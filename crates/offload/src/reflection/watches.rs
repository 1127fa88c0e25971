//! Watches of kinds that are known only at run time, and queues that hear of what they see.

use ferro_core::reflection::Kind;
use ferro_runtime::queue::Queue;
use ferro_runtime::shutdown::Tasks;
use ferro_runtime::watch::{Limit, Watched};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::DynamicObject;
use kube::runtime::watcher;
use kube::{Api, Client, ResourceExt as _};

use super::Key;

/// The most of a kind that is looked at in one namespace of another cluster.
const MOST: usize = 20_000;
/// The most that the labels, annotations, finalizers and owners of a copy may take up.
const LARGEST: usize = 300 * 1024;

/// Watches the originals of a kind in one of our namespaces.
pub(super) fn originals(
    tasks: &Tasks,
    client: &Client,
    namespace: &str,
    kind: &Kind,
) -> Watched<DynamicObject> {
    let resource = kind.resource();
    let api = Api::namespaced_with(client.clone(), namespace, &resource);
    let mut config = watcher::Config::default();
    if let Some(fields) = kind.fields() {
        config = config.fields(fields);
    }
    let limit = Limit { trim: kind.keep_original(), ..Limit::NONE };
    Watched::start_limited(tasks, "originals", api, config, resource, limit)
}

/// Watches our copies of a kind in a namespace over there.
pub(super) fn copies(
    tasks: &Tasks,
    client: &Client,
    namespace: &str,
    kind: &Kind,
    ours: &str,
) -> Watched<DynamicObject> {
    let resource = kind.resource();
    let api = Api::namespaced_with(client.clone(), namespace, &resource);
    let config = watcher::Config::default().labels(ours).page_size(page(kind));
    let limit = Limit { most: MOST, fits: |copy| size(copy) <= LARGEST, trim: kind.keep_copy() };
    Watched::start_limited(tasks, "copies", api, config, resource, limit)
}

/// Puts the name of everything that changes into the queue, and what else a change is about. What comes together is noted
/// down before any of it is looked at: what takes the place of another needs the same as that.
pub(super) fn follow(
    tasks: &Tasks,
    watched: &Watched<DynamicObject>,
    namespace: &str,
    kind: &Kind,
    queue: &Queue<Key>,
    note: impl Fn(&str) -> Vec<Key> + Send + Sync + 'static,
) {
    let (mut changes, queue) = (watched.follow(), queue.clone());
    let (namespace, kind) = (namespace.to_owned(), kind.clone());
    tasks.spawn("changes of originals and copies", async move {
        loop {
            let names: Vec<String> =
                changes.take().into_iter().map(|(reference, _)| reference.name).collect();
            let besides: Vec<Key> = names.iter().flat_map(|name| note(name)).collect();
            let themselves = names.into_iter().map(|name| (namespace.clone(), kind.clone(), name));
            for key in besides.into_iter().chain(themselves) {
                queue.push(key);
            }
            changes.changed().await?;
        }
    });
}

/// How much there is about an object, of the sort that somebody can make long. Lists may be long of nothing.
fn size(object: &DynamicObject) -> usize {
    let texts = object.labels().iter().chain(object.annotations());
    let texts = texts.map(|(key, value)| key.len() + value.len());
    let finalizers = object.finalizers().iter().map(|finalizer| size_of::<String>() + finalizer.len());
    let owners = object.owner_references().iter().map(|owner| {
        let texts = [&owner.api_version, &owner.kind, &owner.name, &owner.uid];
        size_of::<OwnerReference>() + texts.iter().map(|text| text.len()).sum::<usize>()
    });
    texts.chain(finalizers).chain(owners).sum()
}

/// So many copies of a kind are read at once, so that an answer of a peer is not too long.
fn page(kind: &Kind) -> u32 {
    match kind {
        // Each may be as large as an API server takes it.
        Kind::ConfigMap | Kind::Secret | Kind::Custom(_) => 2,
        // Each may have a thousand endpoints.
        Kind::EndpointSlice => 20,
        Kind::Service | Kind::Ingress => 100,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use ferro_peering::remote;

    use super::*;

    #[test]
    fn nothing_about_a_copy_can_be_made_long_unnoticed() {
        let mut copy = DynamicObject::new("a", &Kind::Service.resource());
        copy.metadata.finalizers = Some(vec![String::new(); LARGEST / 8]);
        assert!(size(&copy) > LARGEST, "many empty ones are much");
        let owner = OwnerReference { name: "x".repeat(LARGEST), ..OwnerReference::default() };
        copy.metadata.finalizers = None;
        assert_eq!(size(&copy), 0);
        copy.metadata.owner_references = Some(vec![owner]);
        assert!(size(&copy) > LARGEST);
    }

    #[test]
    fn a_page_fits_into_an_answer_of_a_peer() {
        let kinds = [
            (Kind::Custom(Arc::default()), 1536 * 1024, "what etcd takes"),
            (Kind::Secret, 1400 * 1024, "a MiB of content, as text"),
            (Kind::ConfigMap, 1400 * 1024, "a MiB of content"),
            (Kind::EndpointSlice, 1000 * 200, "all endpoints that one may have"),
            (Kind::Service, 40 * 1024, "ten times the usual"),
            (Kind::Ingress, 40 * 1024, "ten times the usual"),
        ];
        for (kind, largest, why) in kinds {
            let page = usize::try_from(page(&kind)).unwrap();
            assert!(page * largest <= remote::MOST, "{kind:?}: {why}");
        }
    }
}
