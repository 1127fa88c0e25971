//! The replicator: keeps copies of our objects in a peer's namespace, and brings their status home.
//!
//! One task for each peer and kind, so that a slow, dead or hostile peer delays only itself. What is here is watched
//! once for all peers, what is there once for each. `ferro_core::replication` decides; a plan is performed write by
//! write until one fails, and made anew from what is then.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};
use ferro_api::config::ReplicatedResource;
use ferro_api::names::{finalizers, labels};
use ferro_core::replication::{Link, Rule, Write, plan};
use ferro_runtime::shutdown::Tasks;
use ferro_runtime::watch::{Limit, Watched};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use kube::runtime::watcher;
use kube::{Api, Client, ResourceExt as _};
use serde_json::{Value, json};
use tracing::{debug, warn};

/// Who writes the copies and their status.
const MANAGER: &str = "ferro-replicator";
/// Pause after a write that failed; the next plan may be another one.
const RETRY: Duration = Duration::from_secs(1);

/// So many copies of earlier originals may lie at a peer, beside those of the present ones.
const LEFTOVERS: usize = 100;
/// So many objects are read at once, and each may be so large: a peer may be hostile.
const PAGE: u32 = 50;
const LARGEST: usize = 256 * 1024;

/// The two ends of a replication.
#[derive(Clone, Debug)]
pub struct Ends {
    /// The identifier of this cluster.
    pub us: String,
    /// The identifier of the peer.
    pub peer: String,
    /// The namespace that this cluster keeps for the peer.
    pub local_namespace: String,
    /// The namespace that the peer keeps for this cluster.
    pub remote_namespace: String,
}

/// The kinds that are copied, as they are here: each is watched once, however many peers there are.
#[derive(Clone)]
pub struct Originals {
    tasks: Tasks,
    client: Client,
    watches: Arc<Mutex<HashMap<ReplicatedResource, Watched<DynamicObject>>>>,
}

impl Originals {
    /// Nothing is watched until it is needed.
    pub fn new(tasks: Tasks, client: Client) -> Self {
        Self { tasks, client, watches: Arc::default() }
    }

    fn of(&self, resource: &ReplicatedResource) -> Watched<DynamicObject> {
        let mut watches = self.watches.lock().unwrap_or_else(PoisonError::into_inner);
        let start = || {
            let kind = api_resource(resource);
            let api = Api::all_with(self.client.clone(), &kind);
            Watched::start_kind(&self.tasks, "originals", api, watcher::Config::default(), kind)
        };
        watches.entry(resource.clone()).or_insert_with(start).clone()
    }
}

/// One kind on its way to one peer.
struct Replicator {
    ends: Ends,
    rule: Rule,
    local: Api<DynamicObject>,
    remote: Api<DynamicObject>,
    trouble: Arc<dyn Fn() + Send + Sync>,
}

/// Starts replication to a peer of all kinds that the rules name; it ends with the tasks. Whoever asks is told of
/// trouble, so that it can find out whether the peer still lets this cluster in.
pub fn start(
    tasks: &Tasks,
    ends: &Ends,
    originals: &Originals,
    remote: &Client,
    rules: Vec<Rule>,
    trouble: impl Fn() + Send + Sync + 'static,
) {
    let trouble: Arc<dyn Fn() + Send + Sync> = Arc::new(trouble);
    for rule in rules {
        let kind = api_resource(&rule.resource);
        let replicator = Replicator {
            ends: ends.clone(),
            local: Api::namespaced_with(originals.client.clone(), &ends.local_namespace, &kind),
            remote: Api::namespaced_with(remote.clone(), &ends.remote_namespace, &kind),
            rule,
            trouble: Arc::clone(&trouble),
        };
        let here = originals.of(&replicator.rule.resource);
        tasks.spawn("replicator", replicator.run(tasks.clone(), here, kind));
    }
}

impl Replicator {
    async fn run(self, tasks: Tasks, mut originals: Watched<DynamicObject>, kind: ApiResource) -> Result<()> {
        let ours = watcher::Config::default().labels(&labels::ORIGIN_ID.selector(&self.ends.us));
        let limit =
            Limit { most: self.rule.most + LEFTOVERS, fits: |copy| size(copy) <= LARGEST, ..Limit::NONE };
        let mut copies =
            Watched::start_limited(&tasks, "copies", self.remote.clone(), ours.page_size(PAGE), kind, limit);
        loop {
            // Both lists must be complete: an object missing from one of them counts as gone.
            originals.ready().await?;
            copies.ready().await?;
            let again = self.reconcile(&originals.all(), &copies.all()).await;
            tokio::select! {
                changed = originals.changed() => changed?,
                changed = copies.changed() => changed?,
                () = tokio::time::sleep(RETRY), if again => {}
            }
        }
    }

    /// Plans and performs; says whether to try again without waiting for a change.
    async fn reconcile(&self, originals: &[Arc<DynamicObject>], copies: &[Arc<DynamicObject>]) -> bool {
        let link = Link { us: &self.ends.us, peer: &self.ends.peer, namespace: &self.ends.remote_namespace };
        let here = |object: &&Arc<DynamicObject>| {
            object.metadata.namespace.as_ref() == Some(&self.ends.local_namespace)
        };
        let originals: Vec<DynamicObject> =
            originals.iter().filter(here).map(|object| (**object).clone()).collect();
        let copies: Vec<DynamicObject> = copies.iter().map(|object| (**object).clone()).collect();
        let plan = plan(&link, &self.rule, &originals, &copies);
        for problem in &plan.problems {
            warn!(peer = self.ends.peer, kind = self.rule.resource.resource, %problem, "an object is not replicated");
        }
        for write in plan.writes {
            debug!(peer = self.ends.peer, kind = self.rule.resource.resource, ?write, "replicating");
            if let Err(error) = self.perform(write, &originals).await {
                warn!(
                    peer = self.ends.peer,
                    kind = self.rule.resource.resource,
                    error = format!("{error:#}"),
                    "will be tried again"
                );
                (self.trouble)();
                return true;
            }
        }
        false
    }

    /// The one place that writes.
    async fn perform(&self, write: Write, originals: &[DynamicObject]) -> Result<()> {
        let how = PatchParams { field_manager: Some(MANAGER.into()), ..PatchParams::default() };
        match write {
            Write::Hold(name) => self.change_finalizers(&name, originals, true).await,
            Write::Release(name) => self.change_finalizers(&name, originals, false).await,
            Write::CreateRemote(copy) => {
                let how = PostParams { field_manager: Some(MANAGER.into()), ..PostParams::default() };
                match self.remote.create(&how, &copy).await {
                    // The watch has yet to see it; whose it is shows then.
                    Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
                    created => created
                        .map(drop)
                        .with_context(|| format!("cannot create the copy of {}", copy.name_any())),
                }
            }
            Write::PatchRemote(name, patch) => {
                let patched = self.remote.patch(&name, &how, &Patch::Merge(patch)).await;
                patched.map(drop).with_context(|| format!("cannot change the copy of {name}"))
            }
            Write::DeleteRemote(name, uid) => {
                let preconditions = Some(Preconditions { uid, resource_version: None });
                let how = DeleteParams { preconditions, ..DeleteParams::default() };
                unless_gone(self.remote.delete(&name, &how).await.map(drop))
                    .with_context(|| format!("cannot delete the copy of {name}"))
            }
            Write::PatchLocalStatus(name, patch) => {
                let patched = self.local.patch_status(&name, &how, &Patch::Merge(patch)).await;
                unless_gone(patched.map(drop))
                    .with_context(|| format!("cannot take over the status of {name}"))
            }
        }
    }

    /// Finalizers are one list that several write: the version makes sure that nobody's is lost.
    async fn change_finalizers(&self, name: &str, originals: &[DynamicObject], hold: bool) -> Result<()> {
        let Some(original) = originals.iter().find(|object| object.name_any() == name) else { return Ok(()) };
        let patch = finalizer_patch(&original.metadata, hold);
        let patched = self.local.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await;
        unless_gone(patched.map(drop)).with_context(|| format!("cannot change the finalizers of {name}"))
    }
}

fn finalizer_patch(meta: &ObjectMeta, hold: bool) -> Value {
    let others = meta.finalizers.iter().flatten().filter(|finalizer| *finalizer != finalizers::REPLICATION);
    let finalizers: Vec<&str> =
        others.map(String::as_str).chain(hold.then_some(finalizers::REPLICATION)).collect();
    json!({"metadata": {"finalizers": finalizers, "resourceVersion": meta.resource_version}})
}

/// How large an object is, about.
fn size(object: &DynamicObject) -> usize {
    let lengths = |map: Option<&BTreeMap<String, String>>| -> usize {
        map.into_iter().flatten().map(|(key, value)| key.len() + value.len()).sum()
    };
    let meta = &object.metadata;
    object.data.to_string().len() + lengths(meta.labels.as_ref()) + lengths(meta.annotations.as_ref())
}

/// What is gone needs no more change.
fn unless_gone(result: kube::Result<()>) -> kube::Result<()> {
    match result {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        other => other,
    }
}

/// A kind by its plural; its other name is not needed to reach it.
fn api_resource(resource: &ReplicatedResource) -> ApiResource {
    let kind = GroupVersionKind::gvk(&resource.group, &resource.version, &resource.resource);
    ApiResource::from_gvk_with_plural(&kind, &resource.resource)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holding_and_releasing_keep_the_finalizers_of_others() {
        let mut meta = ObjectMeta { finalizers: Some(vec!["other".into()]), ..ObjectMeta::default() };
        let held = finalizer_patch(&meta, true);
        assert_eq!(held["metadata"]["finalizers"], json!(["other", finalizers::REPLICATION]));
        meta.finalizers = Some(vec!["other".into(), finalizers::REPLICATION.into()]);
        assert_eq!(
            finalizer_patch(&meta, true)["metadata"]["finalizers"],
            json!(["other", finalizers::REPLICATION])
        );
        assert_eq!(finalizer_patch(&meta, false)["metadata"]["finalizers"], json!(["other"]));
    }
}
