//! `ferro trace`: the chain from a pod to its containers on another cluster, or the way of a packet to a peer; and the first
//! link that is broken.

mod chain;
mod facts;
mod live;
mod lost;
mod send;
mod target;
mod text;

use anyhow::bail;
use ferro_core::network::trace::{Way, trace};
use k8s_openapi::jiff::Timestamp;
use kube::Client;
use serde_json::json;

use crate::complete;
use crate::kube_args::KubeArgs;
use crate::network::Network;
use crate::output::{self, Format, View};
use target::Wanted;

/// Show the chain from a pod to its containers on another cluster, or the way of its packets; and the first broken link
///
/// With POD: the pod, its virtual node, the peering, the API server of the peer, the namespace, the ShadowPod and the pod over
/// there, its containers, the tunnel and the addresses, each with its state. The peer is asked by way of the pod's node,
/// which takes the right to get nodes/proxy; what may not be read is unknown.
///
/// With --from and --to: the way of a packet, hop by hop. It is computed from the objects of this cluster with the table
/// that the gateway runs. Of the peer's side it shows what follows from what the two clusters have agreed on. Network
/// policies are not looked at.
///
/// The command fails if a link is broken.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  Why does a pod of the namespace shop not run?
    ferro trace web-6d9c7f5f7c-8hzvm -n shop

  The way of a packet to a pod of a peer, by the address that it has here:
    ferro trace --from client --to 10.0.0.5

  To a Service, wherever its endpoints are:
    ferro trace --from client -n shop --to web.shop:80

  And send packets along it, and ask the parts that it passes how they fare:
    ferro trace --from client --to 10.0.0.5 --live")]
pub(crate) struct Args {
    /// The pod whose chain is shown
    #[arg(value_name = "POD", required_unless_present = "from", conflicts_with_all = ["from", "to", "live"],
        add = complete::pods())]
    pod: Option<String>,

    /// The pod that sends
    #[arg(long, value_name = "POD", requires = "to", add = complete::pods())]
    from: Option<String>,

    /// The namespace of the pod [default: that of the context]
    #[arg(short, long, value_name = "NAMESPACE")]
    namespace: Option<String>,

    /// To whom: an address, or SERVICE[.NAMESPACE][:PORT]
    #[arg(long, value_name = "IP|SERVICE", requires = "from")]
    to: Option<Wanted>,

    /// Also send packets from the pod, and ask the parts on the way how they fare
    ///
    /// For a few seconds a container without rights runs beside those of the pod. Kubernetes lists it there, as ended, for
    /// as long as the pod exists.
    #[arg(long, requires = "from")]
    live: bool,

    /// The format to print in
    #[arg(short, long, value_enum, value_name = "FORMAT")]
    output: Option<View>,

    #[command(flatten)]
    kube: KubeArgs,
}

/// Shows the chain, or the way.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    super::block_on(async {
        let client = args.kube.client().await?;
        let namespace = args.namespace.clone().unwrap_or_else(|| client.default_namespace().to_owned());
        match (&args.pod, &args.from, &args.to) {
            (Some(pod), _, _) => chain::run(&client, &namespace, pod, args.output).await,
            (None, Some(from), Some(to)) => args.way(&client, &namespace, from, to).await,
            (None, _, _) => bail!("name a pod, or say from which one to whom with --from and --to"),
        }
    })
}

impl Args {
    async fn way(&self, client: &Client, namespace: &str, from: &str, to: &Wanted) -> anyhow::Result<()> {
        let network = Network::find(client).await?;
        let snapshot = facts::snapshot(client, &network, namespace, from, to).await?;
        let ways = trace(&snapshot);
        let checks = if self.live {
            Some(live::checks(client, &network, &snapshot, &ways, Timestamp::now()).await?)
        } else {
            None
        };
        let names = network.names();
        match self.output {
            Some(View::Json | View::Yaml) => {
                let ways: Vec<_> = ways.iter().map(|way| text::Shown::of(way, &names)).collect();
                let value = match &checks {
                    Some(checks) => json!({"ways": ways, "checks": checks}),
                    None => json!({"ways": ways}),
                };
                let format = if self.output == Some(View::Json) { Format::Json } else { Format::Yaml };
                output::print_value(&value, format)?;
            }
            Some(View::Wide) | None => {
                let mut shown = text::ways(&snapshot, &ways, self.output.is_some());
                if let Some(checks) = &checks {
                    shown.push_str(&live::text(checks));
                }
                output::print(shown.as_bytes())?;
            }
        }
        verdict(&ways, checks.as_deref().unwrap_or_default())
    }
}

/// Fails if something is broken, so that a script can tell.
fn verdict(ways: &[Way], checks: &[live::Check]) -> anyhow::Result<()> {
    if let Some(fault) = ways.iter().find_map(|way| way.broken.as_ref()) {
        bail!("the way is broken at the {}: {fault}", fault.link());
    }
    if let Some(check) = checks.iter().find(|check| check.is_bad()) {
        bail!("the way is broken at the {}: {}", check.link, check.message);
    }
    Ok(())
}
