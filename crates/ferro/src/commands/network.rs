//! `ferro network`: how this cluster and its peers name each other's networks, and how the tunnels fare.

mod overview;
mod rules;

use clap::Subcommand;

pub(super) use overview::{share, time};

use crate::complete;
use crate::kube_args::KubeArgs;
use crate::network::Network;
use crate::output::View;

/// Show the networks of this cluster and its peers, and how the tunnels fare
///
/// THEIR PODS is the network under which pods of the peer are reached from here, AT HOME what the peer itself calls it.
/// OUR PODS THERE is the network under which the peer reaches the pods of this cluster. The host part of an address is the
/// same under every name.
#[derive(clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
#[command(after_help = "Examples:
  ferro network

  With the networks for endpoints that are not pods, and when the tunnels were last probed:
    ferro network -o wide

  What the gateway does to the addresses of a peer's packets:
    ferro network rules milan

  Where a packet would go, and where it would stop:
    ferro trace --from POD --to ADDRESS")]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Option<Command>,

    /// The format to print in
    #[arg(short, long, value_enum, value_name = "FORMAT")]
    output: Option<View>,

    #[command(flatten)]
    kube: KubeArgs,
}

#[derive(Subcommand)]
enum Command {
    Rules(Rules),
}

/// Show what the gateway does to the addresses of each peer's packets
///
/// The gateway has a table of its own; it is shown in words that are known from iptables. What no line is about is
/// dropped.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  ferro network rules
  ferro network rules milan
  ferro network rules milan -o json | jq '.items[].inbound'")]
struct Rules {
    /// The peer: its name, the name or ID of its cluster, or the beginning of one [default: all]
    #[arg(add = complete::peer_names())]
    peer: Option<String>,

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
            None => {
                let network = Network::find(&args.kube.client().await?).await?;
                overview::show(&network, args.output)
            }
            Some(Command::Rules(args)) => {
                let network = Network::find(&args.kube.client().await?).await?;
                rules::show(&network, args.peer.as_deref(), args.output)
            }
        }
    })
}
