//! Ends the roles: first those that let new peers in, and last the one that finishes everything.

use anyhow::ensure;
use ferro_api::names::labels;
use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Client;
use kube::api::DeleteParams;

use crate::chart;
use crate::inventory::{Item, Kind};
use crate::output;
use crate::wait::Deadline;

/// How the names begin under which nodes note down whom they see.
const SIGHTINGS: &str = "ferro-sightings-";

/// The roles of an installation.
pub(super) struct Roles<'a> {
    pub(super) client: &'a Client,
    /// Whether to go on when pods do not end, as on a node that is lost.
    pub(super) force: bool,
}

impl Roles<'_> {
    /// Ends the roles through which new peers come in, so that nothing is made anew while objects are removed; and no pod
    /// is shown to the webhook any more, since nobody may answer from now on.
    pub(super) async fn close_doors(&self, deadline: Deadline) -> anyhow::Result<()> {
        for item in Kind::cluster::<MutatingWebhookConfiguration>().ours(self.client).await? {
            item.delete(self.client, &DeleteParams::background()).await?;
            output::line(&format!("{item} removed"))?;
        }
        self.remove(deadline, |item| [chart::AUTH, chart::NODE].contains(&item.name())).await?;
        for item in Kind::namespaced::<ConfigMap>().ours(self.client).await? {
            if item.name().starts_with(SIGHTINGS) {
                item.delete(self.client, &DeleteParams::background()).await?;
            }
        }
        Ok(())
    }

    /// Ends all roles.
    pub(super) async fn stop(&self, deadline: Deadline) -> anyhow::Result<()> {
        self.remove(deadline, |_| true).await
    }

    /// Removes workloads together with their pods, and waits for these to end.
    async fn remove(&self, deadline: Deadline, which: impl Fn(&Item) -> bool) -> anyhow::Result<()> {
        let ended = deadline.until(async || {
            let left = self.delete(&which).await?;
            Ok((left == 0).then_some(()))
        });
        ensure!(
            ended.await?.is_some() || self.force,
            "the pods do not end in time; see 'kubectl get pods --all-namespaces --selector {}', and try again or use \
             --force",
            labels::PART_OF.selector()
        );
        Ok(())
    }

    /// Has workloads deleted, and counts those that are still there.
    async fn delete(&self, which: impl Fn(&Item) -> bool) -> anyhow::Result<usize> {
        let mut left = 0;
        for kind in [Kind::namespaced::<Deployment>(), Kind::namespaced::<DaemonSet>()] {
            for item in kind.ours(self.client).await?.into_iter().filter(&which) {
                left += 1;
                if !item.is_going() {
                    item.delete(self.client, &DeleteParams::foreground()).await?;
                    output::line(&format!("{item} removed"))?;
                }
            }
        }
        Ok(left)
    }
}
