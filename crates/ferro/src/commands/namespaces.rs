//! `ferro namespaces`: all namespaces that use other clusters, and how each fares there.

use ferro_api::offloading::NamespaceOffloading;
use k8s_openapi::jiff::Timestamp;

use crate::kube_args::KubeArgs;
use crate::offloading;
use crate::output::{self, View};
use crate::peers::{self, Names};

/// List the namespaces that use other clusters, and how each fares there
///
/// READY counts the selected clusters on which the namespace exists. Below the table stands what is wrong, and what to do.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  ferro namespaces

  With all clusters of each namespace, and which ones it selects:
    ferro namespaces -o wide

  Why a cluster is used by a namespace or not:
    ferro explain shop")]
pub(crate) struct Args {
    /// The format to print in
    #[arg(short, long, value_enum, value_name = "FORMAT")]
    output: Option<View>,

    #[command(flatten)]
    kube: KubeArgs,
}

/// Lists the namespaces.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    super::block_on(async {
        let client = args.kube.client().await?;
        let all = offloading::list(&client).await?;
        let names = peers::known_names(&client).await?;
        output::objects(&all, args.output, |wide| text(&all, &names, wide), offloading::NONE)
    })
}

fn text(all: &[NamespaceOffloading], names: &Names, wide: bool) -> String {
    let mut text = offloading::table(all, names, wide, Timestamp::now());
    let wrong: Vec<_> = all.iter().flat_map(|one| offloading::complaints(one, names)).collect();
    text.push_str(&output::below(&wrong));
    text
}
