//! `ferro tenants`: the clusters that use this one, what each may use, and how much of it is used.

use k8s_openapi::jiff::Timestamp;

use super::peers::capitalised;
use crate::kube_args::KubeArgs;
use crate::output::{self, View};
use crate::tenants;

/// List the clusters that use this one, with what each may use and uses
///
/// NAMESPACES, CPU, MEMORY and PODS are used/allowed. 'ferro tenant show' has all of one Tenant.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  ferro tenants
  ferro tenants -o wide

  All of one Tenant, with its namespaces:
    ferro tenant show rome

  Give it more:
    ferro tenant set rome --namespaces 200 --cpu 8")]
pub(crate) struct Args {
    /// The format to print in
    #[arg(short, long, value_enum, value_name = "FORMAT")]
    output: Option<View>,

    #[command(flatten)]
    kube: KubeArgs,
}

/// Lists the Tenants.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    super::block_on(async {
        let all = tenants::list(&args.kube.client().await?).await?;
        let text = |wide| {
            let mut text = tenants::table(&all, wide, Timestamp::now());
            let wrong: Vec<_> = all.iter().filter_map(tenants::complaint).collect();
            text.push_str(&output::below(&wrong));
            text
        };
        output::objects(&all, args.output, text, &capitalised(tenants::NONE))
    })
}
