//! `ferro uninstall`: takes everything out of a cluster again, however it was put there.

mod custom;
mod namespaces;
mod peerings;
mod roles;
mod sweep;

use std::time::Duration;

use anyhow::bail;
use ferro_api::config::ClusterConfig;
use ferro_api::discovery::{ForeignCluster, SearchDomain};
use ferro_api::names::labels;
use ferro_api::offloading::NamespaceOffloading;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Client;
use kube::api::{Api, ListParams};

use self::custom::Removal;
use self::roles::Roles;
use crate::ask;
use crate::inventory::{Installation, Item, Kind};
use crate::kube_args::KubeArgs;
use crate::kube_errors::Explain as _;
use crate::output;
use crate::volumes;
use crate::wait::{self, Deadline};

/// Remove Ferrofluid from a cluster
///
/// Takes namespaces off other clusters, and removes what other clusters have here; then the roles, their rights, all
/// objects of our kinds and the kinds themselves, and the namespaces that were made for all of this. End the peerings
/// first, so that the other clusters forget about this one.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  Remove everything from the cluster of the current context, and wait until it is gone:
    ferro uninstall --wait

  Without being asked, even though a peer is gone for good:
    ferro uninstall --yes --force")]
pub(crate) struct Args {
    /// Do not ask for confirmation
    #[arg(short, long)]
    yes: bool,

    /// Wait until everything is gone
    #[arg(long)]
    wait: bool,

    /// How long to wait at most for each step
    #[arg(long, value_name = "DURATION", value_parser = wait::duration, default_value = "5m")]
    timeout: Duration,

    /// Go on in spite of peerings and of objects that do not go by themselves
    #[arg(long)]
    force: bool,

    #[command(flatten)]
    kube: KubeArgs,
}

/// Uninstalls.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    super::block_on(uninstall(args))
}

async fn uninstall(args: &Args) -> anyhow::Result<()> {
    let client = args.kube.client().await?;
    let found = sweep::find(&client).await?;
    if found.is_empty() {
        return output::line("Ferrofluid is not installed in this cluster: nothing to remove");
    }
    let peers = peerings::peers(&client).await?;
    if !args.force {
        peerings::refuse(&peers)?;
    }
    let installation = Installation::find(&client).await?;
    let is_attended = installation.as_ref().is_some_and(|installation| installation.is_running);
    let removal = Removal { client: &client, patience: args.timeout, is_attended, force: args.force };
    let stages = custom_kinds(&client).await?;
    removal.refuse_in_vain(&stages.concat()).await?;
    if !args.yes {
        confirm(args, &found)?;
    }

    let patience = || Deadline::after(args.timeout);
    let roles = Roles { client: &client, force: args.force };
    roles.close_doors(patience()).await?;
    namespaces::unlabel(&client).await?;
    for kinds in &stages {
        removal.remove(kinds).await?;
    }
    roles.stop(patience()).await?;
    volumes::release(&client).await?;
    sweep::sweep(&client, installation.as_ref()).await?;
    namespaces::unmark(&client).await?;
    if args.wait {
        await_gone(&client, patience()).await?;
    }
    output::line("Ferrofluid is uninstalled")?;
    tell_about(&peers)
}

/// Our kinds, in the order in which their objects go: first those by which namespaces use other clusters, as long as
/// these can be told; then those that other clusters are known by, whose end brings about the end of many more, such as
/// their Tenants; then the rest. The configuration is not among them: whoever finishes needs it to the last.
async fn custom_kinds(client: &Client) -> anyhow::Result<[Vec<Kind>; 3]> {
    let ours = ListParams::default().labels(&labels::PART_OF.selector());
    let definitions = Api::<CustomResourceDefinition>::all(client.clone()).list(&ours).await;
    let definitions = definitions.explain(|| "list the kinds".into())?;
    let mut stages = [const { Vec::new() }; 3];
    for definition in &definitions.items {
        let kind = Kind::defined_by(definition)?;
        let [namespaces, clusters, others] = &mut stages;
        if kind.is::<NamespaceOffloading>() {
            namespaces.push(kind);
        } else if kind.is::<ForeignCluster>() || kind.is::<SearchDomain>() {
            clusters.push(kind);
        } else if !kind.is::<ClusterConfig>() {
            others.push(kind);
        }
    }
    Ok(stages)
}

fn confirm(args: &Args, found: &[Item]) -> anyhow::Result<()> {
    let context =
        args.kube.context()?.map_or_else(String::new, |context| format!(" of the context {context}"));
    let question = format!(
        "This removes Ferrofluid from the cluster{context}: {} objects, and all objects of its kinds.",
        found.len()
    );
    ask::confirm(&question, "nothing was removed")
}

async fn await_gone(client: &Client, deadline: Deadline) -> anyhow::Result<()> {
    let mut left = Vec::new();
    let gone = deadline
        .until(async || {
            left = sweep::find(client).await?;
            Ok(left.is_empty().then_some(()))
        })
        .await?;
    if gone.is_none() {
        let left: Vec<_> = left.iter().map(ToString::to_string).collect();
        bail!("not gone yet: {}; see what holds them with 'kubectl get -o yaml'", left.join(", "));
    }
    Ok(())
}

/// What force may have left behind.
fn tell_about(peers: &[String]) -> anyhow::Result<()> {
    if peers.is_empty() {
        return Ok(());
    }
    output::line(&format!(
        "Left behind on {}, perhaps: namespaces, a node and a certificate for this cluster. Remove them there with 'ferro \
         remove'.",
        peers.join(", ")
    ))
}
