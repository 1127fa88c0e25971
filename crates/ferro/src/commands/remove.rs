//! `ferro remove`: ends all with another cluster, takes back its rights, and forgets it.

use ferro_api::names::annotations;
use kube::ResourceExt as _;
use kube::api::DeleteParams;
use serde_json::{Value, json};

use super::unpeer::{self, Force};
use crate::complete;
use crate::kube_args::KubeArgs;
use crate::kube_errors::{Explain as _, found};
use crate::output::Show;
use crate::peers;
use crate::progress::{Patience, Watched};
use crate::wait::Deadline;

/// Forget another cluster, after all peerings with it are ended
///
/// Ends both directions, takes back the rights that the peer has here, and removes its namespace. A cluster that
/// announces itself on the local network is found again.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  ferro remove milan --wait

  A peer that is gone for good:
    ferro remove milan --force")]
pub(crate) struct Args {
    /// The peer: its name, the name or ID of its cluster, or the beginning of one
    #[arg(add = complete::peer_names())]
    peer: String,

    #[command(flatten)]
    force: Force,

    #[command(flatten)]
    show: Show,

    #[command(flatten)]
    patience: Patience,

    #[command(flatten)]
    kube: KubeArgs,
}

/// Removes a peer.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    super::block_on(remove(args))
}

async fn remove(args: &Args) -> anyhow::Result<()> {
    let client = args.kube.client().await?;
    let mut peer = peers::meant(&client, Some(&args.peer)).await?;
    let name = peer.name_any();
    args.force.confirm(&unpeer::warning(&name))?;
    let deadline = Deadline::after(args.patience.timeout);
    if args.force.force {
        // Before the deletion, so that whoever sees that knows not to wait.
        peer = peers::change(&client, &name, &forced()).await?;
    }
    let deleted = found(peers::api(&client).delete(&name, &DeleteParams::background()).await);
    deleted.map(drop).explain(|| format!("remove the peer {name}"))?;
    if !args.patience.wait {
        let said = format!("{name} is being removed; see how it goes with 'ferro peers', or use --wait");
        return args.show.result(&peer, &said);
    }
    Watched::new(&client, &name).gone(peer.uid().as_deref(), deadline).await?;
    args.show.result(&peer, &format!("{name} is removed"))
}

fn forced() -> Value {
    json!({"metadata": {"annotations": {(annotations::FORCE.key()): "true"}}})
}

#[cfg(test)]
mod tests {
    #[test]
    fn force_is_an_annotation_that_the_controller_sees_before_the_end() {
        let patch = serde_json::json!({"metadata": {"annotations": {"liqo.io/force": "true"}}});
        assert_eq!(super::forced(), patch);
    }
}
