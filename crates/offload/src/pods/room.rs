//! One of our namespaces on another cluster: what there is in it, watched with our own eyes.
//!
//! ShadowPods are watched from the beginning, so that those which nobody wants any more are found; pods and Events only
//! from the time on when there is a pod of ours, since most namespaces have none on most clusters.

use std::sync::{Arc, OnceLock};

use ferro_api::names::{annotations, labels};
use ferro_api::virtualkubelet::{ShadowPod, ShadowPodSpec};
use ferro_runtime::queue::Queue;
use ferro_runtime::shutdown::Tasks;
use ferro_runtime::watch::{Limit, Watched};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::{Event, Pod};
use kube::runtime::watcher;
use kube::{Api, Client, Resource, ResourceExt as _};

use super::station::Key;

/// The most of a kind that a cluster shows us in one namespace.
const MOST: usize = 20_000;
/// The most text that a pod's labels and annotations, or an Event, may have.
const LARGEST: usize = 300 * 1024;

/// A namespace over there.
pub(super) struct Room {
    tasks: Tasks,
    client: Client,
    /// Its name here, and over there.
    here: String,
    pub(super) there: String,
    pub(super) shadows: Watched<ShadowPod>,
    pods: Watched<Pod>,
    queue: Queue<Key>,
    open: OnceLock<Open>,
}

/// What is watched where there are pods.
pub(super) struct Open {
    pub(super) pods: Watched<Pod>,
    pub(super) events: Watched<Event>,
}

impl Room {
    /// Begins to watch; changes put the names of their pods into the queue.
    pub(super) fn start(
        tasks: Tasks,
        client: Client,
        own: &str,
        (here, there): (&str, &str),
        pods: Watched<Pod>,
        queue: Queue<Key>,
    ) -> Arc<Self> {
        let ours = watcher::Config::default().labels(&labels::ORIGIN_ID.selector(own));
        let limit =
            Limit { most: MOST, fits: |shadow: &ShadowPod| size(shadow) <= LARGEST, trim: trim_shadow };
        let shadows = Watched::start_limited(
            &tasks,
            "shadows",
            Api::namespaced(client.clone(), there),
            ours,
            (),
            limit,
        );
        follow(&tasks, "changes of shadows", here, &shadows, &queue);
        let (here, there) = (here.to_owned(), there.to_owned());
        Arc::new(Self { tasks, client, here, there, shadows, pods, queue, open: OnceLock::new() })
    }

    /// Begins to watch pods and Events, if that is not so already.
    pub(super) fn open(&self) -> &Open {
        self.open.get_or_init(|| {
            let api = || Api::namespaced(self.client.clone(), &self.there);
            let limit = Limit { most: MOST, fits: |pod: &Pod| size(pod) <= LARGEST, trim: trim_pod };
            let all = watcher::Config::default();
            let pods = Watched::start_limited(&self.tasks, "pods over there", api(), all, (), limit);
            follow(&self.tasks, "changes of pods over there", &self.here, &pods, &self.queue);
            self.look_once_complete(&pods);
            let api = Api::namespaced(self.client.clone(), &self.there);
            let of_pods = watcher::Config::default().fields("involvedObject.kind=Pod");
            let limit = Limit { most: MOST, fits: |event: &Event| size(event) <= LARGEST, ..Limit::NONE };
            let events = Watched::start_limited(&self.tasks, "events over there", api, of_pods, (), limit);
            Open { pods, events }
        })
    }

    /// Nothing is decided before it is known what there is, which may be nothing.
    fn look_once_complete(&self, there: &Watched<Pod>) {
        let (there, shadows, pods) = (there.clone(), self.shadows.clone(), self.pods.clone());
        let (here, queue) = (self.here.clone(), self.queue.clone());
        self.tasks.spawn("first look", async move {
            shadows.ready().await?;
            there.ready().await?;
            for pod in pods.all().iter().filter(|pod| pod.namespace().as_deref() == Some(&here)) {
                queue.push((here.clone(), pod.name_any()));
            }
            Ok(())
        });
    }

    /// Whether pods and Events are watched.
    pub(super) fn is_open(&self) -> bool {
        self.open.get().is_some()
    }

    /// Ends the watches.
    pub(super) fn leave(&self) {
        let tasks = self.tasks.clone();
        tokio::spawn(async move { tasks.end().await });
    }
}

/// Puts the name of everything that changes into the queue, under the namespace that it has here.
pub(super) fn follow<K>(
    tasks: &Tasks,
    name: &'static str,
    here: &str,
    watched: &Watched<K>,
    queue: &Queue<Key>,
) where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + std::fmt::Debug
        + k8s_openapi::serde::de::DeserializeOwned
        + Send
        + Sync
        + 'static,
{
    let (mut changes, here, queue) = (watched.follow(), here.to_owned(), queue.clone());
    tasks.spawn(name, async move {
        loop {
            for (reference, _) in changes.take() {
                let namespace =
                    if here.is_empty() { reference.namespace.unwrap_or_default() } else { here.clone() };
                queue.push((namespace, reference.name));
            }
            changes.changed().await?;
        }
    });
}

/// Of a ShadowPod only what tells it apart, and what became of it.
fn trim_shadow(shadow: &mut ShadowPod) {
    shadow.spec = ShadowPodSpec::default();
}

/// Of a pod over there only who it is, and how it fares.
fn trim_pod(pod: &mut Pod) {
    pod.spec = None;
    let told = [annotations::SHADOW_UID, annotations::ORIGIN_UID, annotations::POD_CONTENT];
    let told = told.map(|annotation| annotation.key());
    let origin = labels::ORIGIN_ID.key();
    if let Some(annotations) = &mut pod.metadata.annotations {
        annotations.retain(|key, _| told.contains(&key.as_str()));
    }
    if let Some(labels) = &mut pod.metadata.labels {
        labels.retain(|key, _| key == origin);
    }
}

/// How much text there is about an object, of the sort that somebody can make long.
fn size<K: Resource>(object: &K) -> usize {
    let texts = object.labels().iter().chain(object.annotations());
    texts.map(|(key, value)| key.len() + value.len()).sum()
}
