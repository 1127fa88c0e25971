//! `ferro unoffload`: takes a namespace off all other clusters.

use anyhow::bail;
use ferro_api::names::{annotations, labels};
use ferro_api::offloading::NamespaceOffloading;
use ferro_core::offloading::OFFLOADING;
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, DeleteParams, Patch, PatchParams};
use kube::{Client, ResourceExt as _};
use serde_json::{Value, json};

use super::unpeer::Force;
use crate::complete;
use crate::kube_args::KubeArgs;
use crate::kube_errors::{Explain as _, found};
use crate::offloading::{self, Seen, Watched};
use crate::output::{self, Show};
use crate::peers;
use crate::progress::Patience;
use crate::volumes;
use crate::wait::Deadline;

/// Take a namespace off other clusters
///
/// Its namespaces on other clusters are removed with all that is in them. The namespace itself stays.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  ferro unoffload shop --wait

  Although a cluster that has it is gone for good:
    ferro unoffload shop --force")]
pub(crate) struct Args {
    /// The namespace
    #[arg(add = complete::offloaded_namespaces())]
    namespace: String,

    #[command(flatten)]
    force: Force,

    #[command(flatten)]
    show: Show,

    #[command(flatten)]
    patience: Patience,

    #[command(flatten)]
    kube: KubeArgs,
}

/// Takes a namespace back.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    super::block_on(unoffload(args))
}

async fn unoffload(args: &Args) -> anyhow::Result<()> {
    let client = args.kube.client().await?;
    let namespace = args.namespace.as_str();
    let before = offloading::get(&client, namespace).await?;
    let seen = offloading::namespace(&client, namespace).await?;
    let labelled = matches!(seen, Seen::There { is_labelled: true });
    if before.is_none() && !labelled {
        return output::line(&format!("{namespace} uses no other cluster: nothing to do"));
    }
    if matches!(seen, Seen::Hidden) && before.as_ref().is_some_and(is_made_by_label) {
        bail!(
            "the label {} of the namespace {namespace} would make it again, and you may not take it off; ask whoever looks \
             after the namespace to do so: kubectl label namespace {namespace} {}-",
            labels::ENABLED.key(),
            labels::ENABLED.key()
        );
    }
    let loss = volumes::lost_with_namespace(&client, namespace).await?;
    args.force.confirm(&warning(namespace), loss.as_deref())?;
    let deadline = Deadline::after(args.patience.timeout);
    if labelled {
        unlabel(&client, namespace).await?;
    }
    // The label may have made it only now.
    let Some(offloading) = offloading::get(&client, namespace).await? else {
        return output::line(&format!("{namespace} uses no other cluster any more"));
    };
    let names = peers::known_names(&client).await?;
    end(&client, namespace, args.force.force).await?;
    let said = if args.patience.wait {
        Watched::new(&client, namespace, &names).gone(offloading.uid().as_deref(), deadline).await?;
        format!("{namespace} uses no other cluster any more")
    } else {
        format!(
            "{namespace} is being taken off other clusters; see how it goes with 'ferro explain {namespace}', or use --wait"
        )
    };
    let table = || offloading::table(std::slice::from_ref(&offloading), &names, true, Timestamp::now());
    args.show.object(&offloading, table, &said)
}

fn is_made_by_label(offloading: &NamespaceOffloading) -> bool {
    annotations::CREATED_BY_LABEL.of(&offloading.metadata) == Some("true")
}

/// Takes off the label that would make the object again.
async fn unlabel(client: &Client, namespace: &str) -> anyhow::Result<()> {
    let api = Api::<Namespace>::all(client.clone());
    let patched = api.patch_metadata(namespace, &PatchParams::default(), &Patch::Merge(unlabelled())).await;
    found(patched)
        .explain(|| format!("take the label {} off the namespace {namespace}", labels::ENABLED.key()))?;
    output::note(&format!("took the label {} off the namespace {namespace}", labels::ENABLED.key()));
    Ok(())
}

fn unlabelled() -> Value {
    json!({"metadata": {"labels": {(labels::ENABLED.key()): null}}})
}

/// Deletes the object; with force it is marked before, so that whoever sees the deletion knows not to wait.
async fn end(client: &Client, namespace: &str, force: bool) -> anyhow::Result<()> {
    let api = offloading::api(client, namespace);
    let doing = || format!("take {namespace} off other clusters");
    if force {
        let patch = json!({"metadata": {"annotations": {(annotations::FORCE.key()): "true"}}});
        let marked = api.patch_metadata(OFFLOADING, &PatchParams::default(), &Patch::Merge(patch)).await;
        found(marked).explain(doing)?;
    }
    let deleted = found(api.delete(OFFLOADING, &DeleteParams::background()).await);
    deleted.map(drop).explain(doing)
}

fn warning(namespace: &str) -> String {
    format!(
        "This does not wait for other clusters. On those that cannot be reached, the namespace of {namespace} stays with \
         all that runs in it, until the peering with them ends, or its administrator removes it."
    )
}

#[cfg(test)]
mod tests {
    use super::{unlabelled, warning};
    use serde_json::json;

    #[test]
    fn a_label_goes_by_a_null_in_its_place() {
        assert_eq!(unlabelled(), json!({"metadata": {"labels": {"liqo.io/enabled": null}}}));
    }

    #[test]
    fn force_says_what_may_stay_behind() {
        assert!(warning("shop").contains("the namespace of shop stays"));
    }
}
