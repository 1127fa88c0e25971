//! `ferro tenant`: one cluster that uses this one: showing it, changing what it may use, and letting people into it.

mod delegate;
mod set;

use clap::Subcommand;
use serde_json::json;

use crate::kube_args::KubeArgs;
use crate::output::{self, View};
use crate::{complete, tenants, this_cluster};

/// Show or change what another cluster may use here
#[derive(clap::Args)]
#[command(arg_required_else_help = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Show(Show),
    Set(set::Args),
    Delegate(delegate::Args),
    Revoke(delegate::Revoke),
}

/// Show one Tenant: what it may use, its namespaces, and who was let into them
#[derive(clap::Args)]
#[command(after_help = "Examples:
  ferro tenant show rome
  ferro tenant show rome -o yaml")]
struct Show {
    /// The Tenant: name or ID of the consumer cluster, or the beginning of one
    #[arg(add = complete::tenant_names())]
    tenant: String,

    /// The format to print in
    #[arg(short, long, value_enum, value_name = "FORMAT")]
    output: Option<View>,

    #[command(flatten)]
    kube: KubeArgs,
}

/// Does what was asked for.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    super::block_on(async {
        match &args.command {
            Command::Show(args) => show(args).await,
            Command::Set(args) => set::set(args).await,
            Command::Delegate(args) => delegate::delegate(args).await,
            Command::Revoke(args) => delegate::revoke(args).await,
        }
    })
}

async fn show(args: &Show) -> anyhow::Result<()> {
    let client = args.kube.client().await?;
    let tenant = tenants::meant(&client, &args.tenant).await?;
    let namespace = tenants::control_namespace(&client, &tenant).await;
    let delegations = tenants::delegations(&client, &namespace).await?;
    // An owner may read the Tenant, but perhaps not how the cluster is configured.
    let config = this_cluster::config(&client).await.unwrap_or_default().spec.tenancy();
    let value = json!({
        "tenant": output::presentable(&tenant),
        "delegations": delegations.iter().map(output::presentable).collect::<Vec<_>>(),
    });
    output::value(&value, |_| tenants::details(&tenant, &delegations, &config), args.output)
}
