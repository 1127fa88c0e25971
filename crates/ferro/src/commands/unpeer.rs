//! `ferro unpeer`: ends a peering, in one direction or both; the clusters go on knowing each other.

use ferro_api::discovery::{Decision, ForeignCluster};
use ferro_api::names::annotations;
use kube::{Client, ResourceExt as _};
use serde_json::{Value, json};

use crate::kube_args::KubeArgs;
use crate::output::Show;
use crate::peers;
use crate::progress::{Aim, Goal, Patience, Watched};
use crate::wait::Deadline;
use crate::{ask, complete, output, volumes};

/// End a peering
///
/// By default this cluster no longer uses resources of the peer: pods are moved off its node, and the node goes. With
/// --incoming the peer may no longer use resources of this cluster. The peer stays known: see 'ferro remove'.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  Use resources of milan no longer, and wait until its node is gone:
    ferro unpeer milan --wait

  Give nothing to milan any more:
    ferro unpeer milan --incoming

  A peer that is gone for good:
    ferro unpeer milan --bidirectional --force")]
pub(crate) struct Args {
    /// The peer: its name, the name or ID of its cluster, or the beginning of one
    #[arg(add = complete::peer_names())]
    peer: String,

    #[command(flatten)]
    which: Which,

    #[command(flatten)]
    force: Force,

    #[command(flatten)]
    show: Show,

    #[command(flatten)]
    patience: Patience,

    #[command(flatten)]
    kube: KubeArgs,
}

/// Which of the two directions.
#[derive(clap::Args)]
struct Which {
    /// End the use of the peer's resources by this cluster [default]
    #[arg(long)]
    outgoing: bool,

    /// End the peer's use of resources of this cluster
    #[arg(long)]
    incoming: bool,

    /// End both
    #[arg(long)]
    bidirectional: bool,
}

/// Flags for a peer that does not answer.
#[derive(clap::Args)]
pub(crate) struct Force {
    /// Do not wait for the peer: for one that is gone for good
    #[arg(long)]
    pub(crate) force: bool,

    /// Do not ask for confirmation of --force, or of the loss of data that claims have on the peer
    #[arg(short, long)]
    yes: bool,
}

impl Force {
    /// Says what force leaves behind and what is lost, and asks whether to go on.
    pub(crate) fn confirm(&self, warning: &str, loss: Option<&str>) -> anyhow::Result<()> {
        let warning = Some(warning).filter(|_| self.force);
        if warning.is_none() && loss.is_none() {
            return Ok(());
        }
        warning.into_iter().chain(loss).for_each(output::note);
        if self.yes { Ok(()) } else { ask::confirm("This cannot be undone.", "nothing was changed") }
    }
}

/// What may stay behind when a peering is ended without the peer.
pub(super) fn warning(peer: &str) -> String {
    format!(
        "This does not wait for {peer}. If {peer} still runs, there stay behind on it, perhaps: pods that this cluster \
         has there, its request and offer, and a node and a namespace for this cluster; remove them there with 'ferro \
         remove --force'. Pods of {peer} on this cluster are not moved first."
    )
}

/// What claims of this cluster lose with the peer.
pub(super) async fn loss(client: &Client, peer: &ForeignCluster) -> anyhow::Result<Option<String>> {
    match &peer.spec.cluster_identity {
        Some(identity) => volumes::lost_with_peer(client, &identity.cluster_id).await,
        None => Ok(None),
    }
}

/// Ends a peering.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    super::block_on(unpeer(args))
}

async fn unpeer(args: &Args) -> anyhow::Result<()> {
    let client = args.kube.client().await?;
    let peer = peers::meant(&client, Some(&args.peer)).await?;
    let name = peer.name_any();
    let loss = if args.which.is_outgoing() { loss(&client, &peer).await? } else { None };
    args.force.confirm(&warning(&name), loss.as_deref())?;
    let deadline = Deadline::after(args.patience.timeout);
    let peer = peers::change(&client, &name, &args.which.patch(args.force.force)).await?;
    if !args.patience.wait {
        let said = format!(
            "the peering with {name} is being ended; see how it goes with 'ferro peers', or use --wait"
        );
        return args.show.result(&peer, &said);
    }
    let peer = Watched::new(&client, &name).reach(&args.which.goal(), deadline).await?;
    args.show.result(&peer, &format!("the peering with {name} is over"))
}

impl Which {
    fn is_incoming(&self) -> bool {
        self.incoming || self.bidirectional
    }

    fn is_outgoing(&self) -> bool {
        self.outgoing || !self.incoming || self.bidirectional
    }

    fn goal(&self) -> Goal {
        let aim = |wanted: bool| wanted.then_some(Aim::Ended);
        Goal { outgoing: aim(self.is_outgoing()), incoming: aim(self.is_incoming()), ..Goal::default() }
    }

    /// Everything in one patch, so that force counts for just this end.
    fn patch(&self, force: bool) -> Value {
        let mut patch = json!({"spec": {}});
        if self.is_outgoing() {
            patch["spec"]["join"] = json!(false);
            // A person's word: whatever the configuration says, it is not joined again by itself.
            patch["metadata"]["annotations"][annotations::AUTO_JOINED.key()] = json!("true");
        }
        if self.is_incoming() {
            patch["spec"]["incoming"] = json!(Decision::Refuse);
        }
        if force {
            patch["metadata"]["annotations"][annotations::FORCE.key()] = json!("true");
        }
        patch
    }
}

#[cfg(test)]
mod tests {
    use super::{Which, warning};
    use crate::progress::Aim;
    use serde_json::json;

    fn which(outgoing: bool, incoming: bool, bidirectional: bool) -> Which {
        Which { outgoing, incoming, bidirectional }
    }

    #[test]
    fn by_default_the_use_of_the_peers_resources_ends() {
        let once = json!({"annotations": {"liqo.io/auto-joined": "true"}});
        for which in [which(false, false, false), which(true, false, false)] {
            assert_eq!(which.patch(false), json!({"spec": {"join": false}, "metadata": once}));
            assert_eq!((which.goal().outgoing, which.goal().incoming), (Some(Aim::Ended), None));
        }
    }

    #[test]
    fn the_other_direction_ends_alone_or_with_it() {
        assert_eq!(which(false, true, false).patch(false), json!({"spec": {"incoming": "Refuse"}}));
        assert_eq!(which(false, true, false).goal().outgoing, None);
        for both in [which(true, true, false), which(false, false, true)] {
            assert_eq!(both.patch(false)["spec"], json!({"join": false, "incoming": "Refuse"}));
        }
    }

    #[test]
    fn force_comes_in_the_same_patch() {
        let patch = which(false, true, false).patch(true);
        let metadata = json!({"annotations": {"liqo.io/force": "true"}});
        assert_eq!(patch, json!({"spec": {"incoming": "Refuse"}, "metadata": metadata}));
    }

    #[test]
    fn it_is_said_what_force_leaves_behind() {
        let said = warning("milan");
        assert!(
            said.contains("stay behind") && said.contains("milan") && said.contains("'ferro remove --force'")
        );
    }
}
