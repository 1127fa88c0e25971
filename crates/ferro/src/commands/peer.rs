//! `ferro peer`: asks another cluster for its resources, and with the keys to both clusters arranges both sides.

use std::path::PathBuf;

use anyhow::{bail, ensure};
use ferro_api::discovery::ForeignCluster;
use kube::ResourceExt as _;
use serde_json::json;

use crate::complete;
use crate::introduction::{Introduction, Wishes};
use crate::invitation::{self, Wanted};
use crate::kube_args::KubeArgs;
use crate::output::{self, Show};
use crate::peers::{self, cluster_id};
use crate::progress::{self, Aim, Glance, Goal, Patience, Watched};
use crate::this_cluster::ThisCluster;
use crate::wait::Deadline;

/// Use resources of another cluster, which then appear as a node
///
/// The other cluster must be known: see 'ferro peers' and 'ferro add'. With --remote-kubeconfig or --remote-context
/// it need not be: this program then talks to both clusters and does all that is needed on either side.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  Use resources of the only cluster that is known:
    ferro peer --wait

  Use resources of milan, and let it use those of this cluster:
    ferro peer milan --bidirectional

  With the keys to both clusters, everything in one go:
    ferro peer --remote-kubeconfig milan.yaml --bidirectional --wait")]
pub(crate) struct Args {
    /// The peer: its name, the name or ID of its cluster, or the beginning of one [default: the only one there is]
    #[arg(add = complete::peer_names())]
    peer: Option<String>,

    /// Let the peer use resources of this cluster, too
    #[arg(long)]
    bidirectional: bool,

    /// The kubeconfig file of the other cluster, to arrange both sides
    #[arg(long, value_name = "FILE")]
    remote_kubeconfig: Option<PathBuf>,

    /// The context of the other cluster, in that file or beside the one of this cluster
    #[arg(long, value_name = "NAME")]
    remote_context: Option<String>,

    #[command(flatten)]
    show: Show,

    #[command(flatten)]
    patience: Patience,

    #[command(flatten)]
    kube: KubeArgs,
}

/// Peers.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let is_both = args.remote_kubeconfig.is_some() || args.remote_context.is_some();
    super::block_on(async { if is_both { both_sides(args).await } else { this_side(args).await } })
}

impl Args {
    fn wishes(&self) -> Wishes {
        Wishes { join: true, accept: self.bidirectional }
    }

    fn goal(&self) -> Goal {
        let incoming = self.bidirectional.then_some(Aim::Established);
        Goal { outgoing: Some(Aim::Established), incoming, ..Goal::default() }
    }
}

async fn this_side(args: &Args) -> anyhow::Result<()> {
    let deadline = Deadline::after(args.patience.timeout);
    let client = args.kube.client().await?;
    let peer = peers::meant(&client, args.peer.as_deref()).await?;
    let name = peer.name_any();
    ensure!(
        peer.metadata.deletion_timestamp.is_none(),
        "{name} is being removed; wait until it is gone (ferro remove {name} --wait), and add it again"
    );
    let peer = peers::change(&client, &name, &json!({"spec": args.wishes().spec()})).await?;
    if !args.patience.wait {
        return args.show.result(&peer, &asked(&name));
    }
    let peer = Watched::new(&client, &name).reach(&args.goal(), deadline).await?;
    args.show.result(&peer, &arranged(&peer))
}

/// Lets itself in with a token of the other side, and once that knows this cluster, has it join, too.
async fn both_sides(args: &Args) -> anyhow::Result<()> {
    let deadline = Deadline::after(args.patience.timeout);
    let elsewhere = args.kube.elsewhere(args.remote_kubeconfig.clone(), args.remote_context.clone());
    let here = ThisCluster::find(args.kube.client().await?).await?;
    let there = match elsewhere.client().await {
        Ok(client) => ThisCluster::find(client).await,
        Err(error) => Err(error),
    };
    let there = there.map_err(|error| error.context("the other cluster"))?;
    ensure!(
        here.identity.id != there.identity.id,
        "both are the same cluster, {}; name the other one with --remote-kubeconfig or --remote-context",
        here.identity.name
    );
    let known = peers::list(&here.client).await?;
    let before = of_cluster(&known, &there);
    if let Some(wanted) = &args.peer {
        let meant = peers::find(&known, wanted)?;
        ensure!(
            before.is_some_and(|before| before.name_any() == meant.name_any()),
            "{wanted} is not the cluster that the other kubeconfig leads to, {}; leave the name out",
            there.identity.name
        );
    }
    let token = if before.is_some_and(progress::is_let_in) {
        None
    } else {
        let wanted = Wanted { bound_to: Some(here.identity.id), ..Wanted::default() };
        let token = invitation::give_out(&there, wanted).await;
        Some(token.map_err(|error| error.context("the other cluster"))?.token)
    };
    let introduction = Introduction {
        token: token.as_ref(),
        identity: Some((there.identity.id, &there.identity.name)),
        wishes: args.wishes(),
        ..Introduction::default()
    };
    let introduced = introduction.perform(&here).await?;
    let name = introduced.peer.name_any();
    let earlier = introduced.before.as_ref().and_then(progress::refusal);
    let mut watched = Watched::at(&here.client, &name, &here.identity.name);
    let goal = Goal { earlier, ..args.goal() };
    let back = if args.bidirectional {
        Some(answer(&mut watched, &goal, &here, &there, deadline).await?)
    } else {
        None
    };
    if !args.patience.wait {
        return args.show.result(&introduced.peer, &asked(&name));
    }
    let peer = watched.reach(&goal, deadline).await?;
    if let Some(back) = back {
        Watched::at(&there.client, &back, &there.identity.name).reach(&args.goal(), deadline).await?;
    }
    args.show.result(&peer, &arranged(&peer))
}

/// On the other side: waits until it knows this cluster, has it join, and gives back what it calls this cluster.
async fn answer(
    watched: &mut Watched<'_>,
    goal: &Goal,
    here: &ThisCluster,
    there: &ThisCluster,
    deadline: Deadline,
) -> anyhow::Result<String> {
    let mut missing = String::new();
    let found = deadline
        .until(async || {
            let known = peers::list(&there.client).await?;
            if let Some(peer) = of_cluster(&known, here) {
                return Ok(Some(peer.name_any()));
            }
            if let Glance::NotYet(why) = watched.glance(goal).await? {
                missing = why;
            }
            Ok(None)
        })
        .await?;
    let Some(name) = found else {
        bail!("{} does not get to know {} in time: {missing}", there.identity.name, here.identity.name)
    };
    let wishes = Wishes { join: true, accept: true };
    peers::change(&there.client, &name, &json!({"spec": wishes.spec()})).await?;
    output::note(&format!(
        "{}: {name} is asked for its resources, and may use those of this cluster",
        there.identity.name
    ));
    Ok(name)
}

/// The object for a cluster, unless it is on its way out.
fn of_cluster<'a>(known: &'a [ForeignCluster], cluster: &ThisCluster) -> Option<&'a ForeignCluster> {
    let id = cluster.identity.id.to_string();
    known.iter().find(|peer| cluster_id(peer) == Some(&id) && peer.metadata.deletion_timestamp.is_none())
}

fn asked(name: &str) -> String {
    format!("{name} is asked for its resources; see how it goes with 'ferro peers', or use --wait")
}

fn arranged(peer: &ForeignCluster) -> String {
    let outgoing = peer.status.as_ref().and_then(|status| status.outgoing.as_ref());
    let node = outgoing.and_then(|outgoing| outgoing.virtual_node.as_ref());
    let node = node.map_or_else(String::new, |node| format!(": the node {} stands for it", node.name));
    format!("peered with {}{node}", peer.name_any())
}

#[cfg(test)]
mod tests {
    use super::{Args, arranged};
    use crate::peers::tests::peer;
    use crate::progress::Aim;
    use clap::Parser;
    use serde_json::{Value, json};

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    fn args(words: &[&str]) -> Args {
        Line::parse_from(std::iter::once(&"peer").chain(words)).args
    }

    #[test]
    fn one_direction_leaves_the_other_as_it_is() {
        let one = args(&["milan"]);
        assert_eq!(Value::Object(one.wishes().spec()), json!({"join": true}));
        assert_eq!((one.goal().outgoing, one.goal().incoming), (Some(Aim::Established), None));
        let both = args(&["milan", "--bidirectional", "--wait", "--timeout", "90s"]);
        assert_eq!(Value::Object(both.wishes().spec()), json!({"join": true, "incoming": "Accept"}));
        assert_eq!(both.goal().incoming, Some(Aim::Established));
        assert!(both.patience.wait && both.patience.timeout.as_secs() == 90);
    }

    #[test]
    fn the_node_is_named_once_it_is_there() {
        let status = json!({"outgoing": {"state": "Established", "virtualNode": {"name": "liqo-milan"}}});
        let said = arranged(&peer("milan", &json!({"authUrl": "m"}), &status));
        assert_eq!(said, "peered with milan: the node liqo-milan stands for it");
        assert_eq!(arranged(&peer("milan", &json!({"authUrl": "m"}), &json!({}))), "peered with milan");
    }
}
