//! Removes the objects of our own kinds: deletes them, and lets the controllers finish what their finalizers ask.
//!
//! Flow: delete whatever is not going yet, look again, until nothing is left. Guarantees: without force no
//! finalizer is touched, so that nothing stays behind on a peer; with force only finalizers of ours are taken
//! off, and only when nobody else did in time.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::bail;
use ferro_api::discovery::ForeignCluster;
use ferro_api::names::annotations;
use ferro_api::offloading::NamespaceOffloading;
use kube::Client;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use serde_json::{Value, json};

use crate::inventory::{Item, Kind};
use crate::kube_errors::Explain as _;
use crate::output;
use crate::wait::Deadline;

/// How long an object may take to go once its finalizers are off.
const MOMENT: Duration = Duration::from_secs(30);
/// How many objects an error names.
const SHOWN: usize = 10;

/// What removing objects may rely on.
pub(super) struct Removal<'a> {
    pub(super) client: &'a Client,
    /// How long they have for it.
    pub(super) patience: Duration,
    /// Whether a controller is there to finish.
    pub(super) is_attended: bool,
    pub(super) force: bool,
}

impl Removal<'_> {
    /// Says no, before anything is removed, where nobody would finish.
    pub(super) async fn refuse_in_vain(&self, kinds: &[Kind]) -> anyhow::Result<()> {
        let mut held = Vec::new();
        if !self.is_attended && !self.force {
            for kind in kinds {
                let items = kind.list(self.client, &ListParams::default()).await?;
                held.extend(items.into_iter().filter(has_finalizers));
            }
        }
        if held.is_empty() { Ok(()) } else { self.give_up(&held) }
    }

    /// Removes all objects of these kinds.
    pub(super) async fn remove(&self, kinds: &[Kind]) -> anyhow::Result<()> {
        let mut seen = BTreeMap::new();
        let mut stuck = Vec::new();
        Deadline::after(self.patience)
            .until(async || {
                stuck = self.delete(kinds, &mut seen).await?;
                // Without a controller, waiting for what has finalizers is in vain.
                let is_over = if self.is_attended {
                    stuck.is_empty()
                } else {
                    stuck.iter().all(|item| item.is_going() && has_finalizers(item))
                };
                Ok(is_over.then_some(()))
            })
            .await?;
        if !stuck.is_empty() {
            self.release(kinds, &stuck).await?;
        }
        for (plural, count) in seen {
            output::line(&format!("{count} {plural} removed"))?;
        }
        Ok(())
    }

    /// Deletes what is there, and gives it back.
    async fn delete(&self, kinds: &[Kind], seen: &mut BTreeMap<String, usize>) -> anyhow::Result<Vec<Item>> {
        let mut all = Vec::new();
        for kind in kinds {
            let items = kind.list(self.client, &ListParams::default()).await?;
            for item in items.iter().filter(|item| !item.is_going()) {
                if self.force && (kind.is::<ForeignCluster>() || kind.is::<NamespaceOffloading>()) {
                    self.annotate(item).await?;
                }
                item.delete(self.client, &DeleteParams::background()).await?;
                *seen.entry(kind.resource.plural.clone()).or_default() += 1;
            }
            all.extend(items);
        }
        Ok(all)
    }

    /// Tells the controllers not to wait for a peer.
    async fn annotate(&self, item: &Item) -> anyhow::Result<()> {
        let metadata = json!({"annotations": {(annotations::FORCE.key()): "true"}});
        self.patch(item, metadata).await.explain(|| format!("annotate {item}"))
    }

    /// Takes our finalizers off what did not go, if that was asked for.
    async fn release(&self, kinds: &[Kind], stuck: &[Item]) -> anyhow::Result<()> {
        if !self.force {
            return self.give_up(stuck);
        }
        let mut left = Vec::new();
        let gone = Deadline::after(MOMENT)
            .until(async || {
                left = self.delete(kinds, &mut BTreeMap::new()).await?;
                for item in &left {
                    self.strip(item).await?;
                }
                Ok(left.is_empty().then_some(()))
            })
            .await?;
        if gone.is_none() {
            bail!(
                "finalizers of others hold these: {}; remove whatever put them there, and try again",
                shown(&left)
            );
        }
        output::line(&format!("took the finalizers off {}", shown(stuck)))
    }

    fn give_up(&self, stuck: &[Item]) -> anyhow::Result<()> {
        let cause = if self.is_attended { "does not finish in time" } else { "does not run" };
        bail!(
            "the controller {cause}, so that these stay: {}; see 'kubectl get pods --all-namespaces --selector \
             app.kubernetes.io/name=ferro-controller' and its logs, or use --force, which may leave objects behind on \
             peers",
            shown(stuck)
        );
    }

    async fn strip(&self, item: &Item) -> anyhow::Result<()> {
        let finalizers = item.meta.finalizers.iter().flatten();
        let (ours, others): (Vec<_>, Vec<_>) = finalizers.partition(|finalizer| is_ours(finalizer));
        if ours.is_empty() {
            return Ok(());
        }
        // The version makes sure that a finalizer which somebody adds meanwhile is not lost.
        let metadata = json!({"finalizers": others, "resourceVersion": item.meta.resource_version});
        self.patch(item, metadata).await.explain(|| format!("take the finalizers off {item}"))
    }

    /// Changes metadata. Gone or changed meanwhile is fine: whoever calls this looks again.
    async fn patch(&self, item: &Item, metadata: Value) -> kube::Result<()> {
        let patch = Patch::Merge(json!({"metadata": metadata}));
        match item.api(self.client).patch_metadata(item.name(), &PatchParams::default(), &patch).await {
            Err(kube::Error::Api(status)) if status.is_not_found() || status.is_conflict() => Ok(()),
            patched => patched.map(drop),
        }
    }
}

fn has_finalizers(item: &Item) -> bool {
    item.meta.finalizers.as_ref().is_some_and(|finalizers| !finalizers.is_empty())
}

/// All finalizers of ours are under one domain.
fn is_ours(finalizer: &str) -> bool {
    let domain = finalizer.split('/').next().unwrap_or_default();
    domain == "liqo.io" || domain.ends_with(".liqo.io")
}

fn shown(items: &[Item]) -> String {
    let mut names: Vec<_> = items.iter().take(SHOWN).map(ToString::to_string).collect();
    if items.len() > SHOWN {
        names.push(format!("and {} more", items.len() - SHOWN));
    }
    names.join(", ")
}

#[cfg(test)]
mod tests {
    use super::{is_ours, shown};
    use crate::inventory::{Item, Kind};
    use ferro_api::discovery::ForeignCluster;
    use ferro_api::names::finalizers;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

    #[test]
    fn only_finalizers_of_our_domain_are_ours() {
        for finalizer in [
            finalizers::PEERING,
            finalizers::REPLICATION,
            finalizers::VIRTUAL_NODE,
            finalizers::TUNNEL,
            finalizers::OFFLOADING,
            finalizers::NAMESPACE_MAP,
            finalizers::TENANT,
        ] {
            assert!(is_ours(finalizer), "{finalizer}");
        }
        for finalizer in ["foregroundDeletion", "kubernetes", "notliqo.io/x", "example.org/liqo.io"] {
            assert!(!is_ours(finalizer), "{finalizer}");
        }
    }

    #[test]
    fn a_long_list_is_cut() {
        let item = |name: u8| Item {
            kind: Kind::cluster::<ForeignCluster>(),
            meta: ObjectMeta { name: Some(name.to_string()), ..ObjectMeta::default() },
        };
        assert_eq!(shown(&[item(1), item(2)]), "foreigncluster/1, foreigncluster/2");
        assert!(shown(&(0..12).map(item).collect::<Vec<_>>()).ends_with("foreigncluster/9, and 2 more"));
    }
}
