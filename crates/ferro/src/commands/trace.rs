//! `ferro trace`: the way of a packet to a peer, hop by hop, and the first link that is broken.

mod facts;
mod live;
mod lost;
mod send;
mod target;
mod text;

use anyhow::bail;
use ferro_core::network::trace::{Way, trace};
use k8s_openapi::jiff::Timestamp;
use serde_json::json;

use crate::kube_args::KubeArgs;
use crate::network::Network;
use crate::output::{self, Format, View};
use target::Wanted;

/// Show the way of a packet from a pod, hop by hop, and the first link that is broken
///
/// It is computed from the objects of this cluster with the table that the gateway runs. Of the peer's side it shows what
/// follows from what the two clusters have agreed on. Network policies are not looked at. The command fails if a link is
/// broken.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  To a pod of a peer, by the address that it has here:
    ferro trace --from client --to 10.0.0.5

  To a Service, wherever its endpoints are:
    ferro trace --from client -n shop --to web.shop:80

  And send packets along it, and ask the parts that it passes how they fare:
    ferro trace --from client --to 10.0.0.5 --live")]
pub(crate) struct Args {
    /// The pod that sends
    #[arg(long, value_name = "POD")]
    from: String,

    /// The namespace of the pod [default: that of the context]
    #[arg(short, long, value_name = "NAMESPACE")]
    namespace: Option<String>,

    /// To whom: an address, or SERVICE[.NAMESPACE][:PORT]
    #[arg(long, value_name = "IP|SERVICE")]
    to: Wanted,

    /// Also send packets from the pod, and ask the parts on the way how they fare
    ///
    /// For a few seconds a container without rights runs beside those of the pod. Kubernetes lists it there, as ended, for
    /// as long as the pod exists.
    #[arg(long)]
    live: bool,

    /// The format to print in
    #[arg(short, long, value_enum, value_name = "FORMAT")]
    output: Option<View>,

    #[command(flatten)]
    kube: KubeArgs,
}

/// Shows the way.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    super::block_on(async {
        let client = args.kube.client().await?;
        let namespace = args.namespace.clone().unwrap_or_else(|| client.default_namespace().to_owned());
        let network = Network::find(&client).await?;
        let snapshot = facts::snapshot(&client, &network, &namespace, &args.from, &args.to).await?;
        let ways = trace(&snapshot);
        let checks = if args.live {
            Some(live::checks(&client, &network, &snapshot, &ways, Timestamp::now()).await?)
        } else {
            None
        };
        let names = network.names();
        match args.output {
            Some(View::Json | View::Yaml) => {
                let ways: Vec<_> = ways.iter().map(|way| text::Shown::of(way, &names)).collect();
                let value = match &checks {
                    Some(checks) => json!({"ways": ways, "checks": checks}),
                    None => json!({"ways": ways}),
                };
                let format = if args.output == Some(View::Json) { Format::Json } else { Format::Yaml };
                output::print_value(&value, format)?;
            }
            Some(View::Wide) | None => {
                let mut shown = text::ways(&snapshot, &ways, args.output.is_some());
                if let Some(checks) = &checks {
                    shown.push_str(&live::text(checks));
                }
                output::print(shown.as_bytes())?;
            }
        }
        verdict(&ways, checks.as_deref().unwrap_or_default())
    })
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
