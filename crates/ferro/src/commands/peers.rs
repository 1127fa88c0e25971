//! `ferro peers`: all other clusters that this one knows, and how far each peering has come.

use ferro_api::discovery::ForeignCluster;
use k8s_openapi::jiff::Timestamp;

use crate::kube_args::KubeArgs;
use crate::output::{self, View};
use crate::{peers, table};

/// List the other clusters, and how far each peering has come
///
/// OUTGOING is about resources of the peer that this cluster uses, INCOMING about those that it gives. The wide table
/// has both amounts, as GETS and GIVES.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  ferro peers
  ferro peers -o wide
  ferro peers -o json | jq '.items[].status.conditions'

  What a peering waits for, and what to do about it:
    kubectl describe foreigncluster PEER

  The namespaces that this cluster has there, and those that others have here:
    ferro namespaces; ferro tenants")]
pub(crate) struct Args {
    /// The format to print in
    #[arg(short, long, value_enum, value_name = "FORMAT")]
    output: Option<View>,

    #[command(flatten)]
    kube: KubeArgs,
}

/// Lists the peers.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    super::block_on(async {
        let known = peers::list(&args.kube.client().await?).await?;
        show(&known, args.output)
    })
}

fn show(known: &[ForeignCluster], view: Option<View>) -> anyhow::Result<()> {
    let table = |wide| table::peers(known, wide, Timestamp::now());
    output::objects(known, view, table, &capitalised(peers::nobody()))
}

/// A sentence on its own.
pub(super) fn capitalised(sentence: &str) -> String {
    let mut letters = sentence.chars();
    let first = letters.next().map(|letter| letter.to_ascii_uppercase());
    first.into_iter().chain(letters).chain(['.']).collect()
}

#[cfg(test)]
mod tests {
    use super::capitalised;
    use crate::peers::nobody;

    #[test]
    fn when_there_is_nobody_it_is_said_what_to_do() {
        let said = capitalised(nobody());
        assert!(said.starts_with("This cluster knows no other cluster yet; run 'ferro token'"), "{said}");
        assert!(said.ends_with("without that."), "{said}");
    }
}
