//! One of our namespaces on another cluster: what there is in it, watched with our own eyes.
//!
//! ShadowPods are watched from the beginning, so that those which nobody wants any more are found; pods and Events only
//! from the time on when there is a pod of ours, since most namespaces have none on most clusters. Events are passed on and
//! not kept: there are several for each pod, and they outlive it by an hour. Secrets with tokens are watched from the time on
//! when a pod wants some, or if a former process has left some, which is asked once.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use ferro_api::names::{annotations, labels};
use ferro_api::virtualkubelet::{ShadowPod, ShadowPodSpec};
use ferro_core::pods::home::{keeps_pod, keeps_shadow};
use ferro_core::pods::tokens::secret_name;
use ferro_runtime::queue::Queue;
use ferro_runtime::shutdown::Tasks;
use ferro_runtime::watch::{Limit, Watched};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::{EphemeralContainer, Pod, PodSpec, Secret};
use kube::api::ListParams;
use kube::runtime::watcher;
use kube::{Api, Client, Resource, ResourceExt as _};
use tracing::debug;

use super::events;
use super::station::Key;

/// The most of a kind that a cluster shows us in one namespace.
const MOST: usize = 20_000;
/// The most text that a pod's labels and annotations may have.
const LARGEST: usize = 300 * 1024;
/// So many containers for debugging of a pod over there are known.
const MOST_DEBUGGING: usize = 64;
/// So many are read at once, so that an answer of a peer is not too long (`remote::MOST`): pods and ShadowPods have about
/// 12 KiB each with all that API servers note on them, and may have three times that.
const PAGE: u32 = 100;
/// The same of Secrets with tokens: one has 5 KiB, and more where pods want several or there are many authorities.
const TOKENS_PAGE: u32 = 50;
/// When to ask again whether there are any, after no answer.
const RETRY: Duration = Duration::from_secs(30);

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
    /// The pods over there, where there are any.
    open: OnceLock<Watched<Pod>>,
    /// What tells those from here.
    ours: String,
    tokens: OnceLock<Watched<Secret>>,
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
        let ours_alone = labels::ORIGIN_ID.selector(own);
        let ours = watcher::Config::default().labels(&ours_alone).page_size(PAGE);
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
        let (open, tokens, ours) = (OnceLock::new(), OnceLock::new(), ours_alone);
        let room = Arc::new(Self { tasks, client, here, there, shadows, pods, queue, open, ours, tokens });
        room.tasks.spawn("leftover tokens", Arc::clone(&room).find_tokens());
        room
    }

    /// Begins to watch pods, and to tell here what is told of them there, if that is not so already.
    pub(super) fn open(&self, home: &Client) -> &Watched<Pod> {
        self.open.get_or_init(|| {
            let api = Api::namespaced(self.client.clone(), &self.there);
            let limit = Limit { most: MOST, fits: |pod: &Pod| size(pod) <= LARGEST, trim: trim_pod };
            let all = watcher::Config::default().page_size(PAGE);
            let pods = Watched::start_limited(&self.tasks, "pods over there", api, all, (), limit);
            follow(&self.tasks, "changes of pods over there", &self.here, &pods, &self.queue);
            self.look_once_complete(&pods);
            let (from, to) = ((self.client.clone(), self.there.clone()), (home.clone(), self.here.clone()));
            self.tasks.spawn("events of a namespace", events::copy(from, to, self.pods.clone()));
            pods
        })
    }

    /// The Secrets with tokens, once any were wanted: who they are, and never what is in them.
    pub(super) fn tokens(&self, are_wanted: bool) -> Option<&Watched<Secret>> {
        if !are_wanted {
            return self.tokens.get();
        }
        Some(self.tokens.get_or_init(|| {
            let api = Api::namespaced(self.client.clone(), &self.there);
            let trim = |secret: &mut Secret| (secret.data, secret.string_data) = (None, None);
            let limit = Limit { most: MOST, fits: |secret: &Secret| size(secret) <= LARGEST, trim };
            let ours = watcher::Config::default().labels(&self.of_tokens()).page_size(TOKENS_PAGE);
            let tokens = Watched::start_limited(&self.tasks, "tokens over there", api, ours, (), limit);
            self.look_when_tokens_change(&tokens);
            tokens
        }))
    }

    /// What tells Secrets with tokens from here.
    fn of_tokens(&self) -> String {
        format!("{},{}", labels::TOKENS.selector(), self.ours)
    }

    /// Tokens of pods that went while nobody looked are found, although no pod may ever want some again.
    async fn find_tokens(self: Arc<Self>) -> Result<()> {
        self.shadows.ready().await?;
        let secrets: Api<Secret> = Api::namespaced(self.client.clone(), &self.there);
        let any = ListParams::default().labels(&self.of_tokens()).limit(1);
        while self.tokens(false).is_none() {
            match secrets.list_metadata(&any).await {
                Ok(found) if found.items.is_empty() => break,
                Ok(_) => _ = self.tokens(true),
                Err(error) => {
                    debug!(namespace = self.there, %error, "it is not known yet whether there are tokens");
                    tokio::time::sleep(RETRY).await;
                }
            }
        }
        Ok(())
    }

    /// A Secret has the name of its pod on it; of one that is gone, the UID of the pod is known. Whether it is of use is
    /// known with the ShadowPods.
    fn look_when_tokens_change(&self, tokens: &Watched<Secret>) {
        let (mut changes, complete, shadows) = (tokens.follow(), tokens.clone(), self.shadows.clone());
        let (pods, here, queue) = (self.pods.clone(), self.here.clone(), self.queue.clone());
        self.tasks.spawn("changes of tokens over there", async move {
            shadows.ready().await?;
            complete.ready().await?;
            let of_here = |pod: &&Arc<Pod>| pod.namespace().as_deref() == Some(&here);
            for pod in pods.all().iter().filter(of_here) {
                queue.push((here.clone(), pod.name_any()));
            }
            loop {
                for (reference, secret) in changes.take() {
                    let is_its =
                        |pod: &Arc<Pod>| pod.uid().is_some_and(|uid| secret_name(&uid) == reference.name);
                    let name = match &secret {
                        Some(secret) => annotations::ORIGIN_POD.of(&secret.metadata).map(str::to_owned),
                        None => pods.all().iter().find(|pod| is_its(pod)).map(|pod| pod.name_any()),
                    };
                    if let Some(name) = name {
                        queue.push((here.clone(), name));
                    }
                }
                changes.changed().await?;
            }
        });
    }

    /// The pods over there, if they are watched.
    pub(super) fn pods(&self) -> Option<&Watched<Pod>> {
        self.open.get()
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
            // Those that nobody wants any more are known by themselves only.
            for shadow in shadows.all() {
                queue.push((here.clone(), shadow.name_any()));
            }
            Ok(())
        });
    }

    /// Ends the watches.
    pub(super) fn leave(&self) {
        self.tasks.dismiss();
    }
}

/// Whether nothing in a namespace over there keeps it, by a look at all that is there now: ShadowPods first, since of these
/// pods are made.
pub(super) async fn is_clear(client: &Client, own: &str, there: &str) -> Result<bool> {
    let ours = labels::ORIGIN_ID.selector(own);
    let shadows: Api<ShadowPod> = Api::namespaced(client.clone(), there);
    let pods: Api<Pod> = Api::namespaced(client.clone(), there);
    Ok(has_none(&shadows, &ours, |shadow| keeps_shadow(own, shadow)).await?
        && has_none(&pods, &ours, |pod| keeps_pod(own, pod)).await?)
}

async fn has_none<K>(api: &Api<K>, ours: &str, counts: impl Fn(&K) -> bool) -> Result<bool>
where
    K: Clone + std::fmt::Debug + k8s_openapi::serde::de::DeserializeOwned,
{
    let mut page = ListParams::default().labels(ours).limit(PAGE);
    for _ in 0..MOST.div_ceil(PAGE as usize) {
        let list = api.list(&page).await.context("cannot look into the namespace over there")?;
        if list.items.iter().any(&counts) {
            return Ok(false);
        }
        match list.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => page = page.continue_token(&token),
            None => return Ok(true),
        }
    }
    bail!("there is more in the namespace over there than anybody wants to know")
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

/// Of a pod over there only who it is, how it fares, and the names of its containers for debugging.
fn trim_pod(pod: &mut Pod) {
    let debug = pod.spec.take().and_then(|spec| spec.ephemeral_containers).unwrap_or_default();
    let named = |container: EphemeralContainer| EphemeralContainer {
        name: container.name,
        ..EphemeralContainer::default()
    };
    let debug: Vec<EphemeralContainer> = debug.into_iter().take(MOST_DEBUGGING).map(named).collect();
    if !debug.is_empty() {
        pod.spec = Some(PodSpec { ephemeral_containers: Some(debug), ..PodSpec::default() });
    }
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
