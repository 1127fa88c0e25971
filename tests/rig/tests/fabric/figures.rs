//! How a tunnel fares, in figures: those that `ferro network` shows to people, and those of the gateway for Prometheus.

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use kube::{Api, ResourceExt as _};
use rig::installation::ferro;
use rig::pods::{Caller, Echo};
use rig::topology::Cluster;
use rig::wait::eventually;
use serde_json::Value;

use crate::NAMESPACE;
use crate::pair::{Pair, Side};

/// Where a gateway tells its figures.
const PORT: u16 = 9442;
/// What closed doors are counted under.
const REFUSED: &str = r#"ferro_gateway_dropped_total{reason="a packet out of a tunnel for somebody whom the peer may not reach"}"#;

/// Both show latency, loss and throughput of the tunnel between them, and their gateways measure it.
pub async fn are_shown(pair: &Pair<'_>) -> Result<()> {
    let [here, there] = &pair.0;
    let caller = Caller::on(here.cluster, 1).await?;
    let server = here.name_of(Echo::on(there.cluster, 1).await?.ip)?;
    for (here, there) in pair.ways() {
        let name = &here.cluster.plan.name;
        eventually(&format!("{name} shows how its tunnel fares"), || async {
            let shown = is_shown(here, there).await;
            if shown.is_err() {
                // An idle tunnel has no throughput that would be worth a write.
                caller.mirror(server).await?;
            }
            shown
        })
        .await?;
        eventually(&format!("the gateway of {name} measures"), || is_measured(here, there)).await?;
    }
    Ok(())
}

/// What a user sees.
async fn is_shown(here: &Side<'_>, there: &Side<'_>) -> Result<()> {
    let said = ferro(here.cluster, &["network", "-o", "json"]).await?;
    let said: Value = serde_json::from_str(&said).context("ferro network prints something else")?;
    let mut peers = said["peers"].as_array().into_iter().flatten();
    let peer = peers.find(|peer| peer["clusterID"] == there.id.as_str()).context("the peer is not shown")?;
    let figure = |place: &str| {
        let figure = peer.pointer(place).and_then(Value::as_u64);
        figure.with_context(|| format!("{place} is not shown: {peer}"))
    };
    ensure!(peer["connection"] == "connected", "the tunnel is down: {peer}");
    ensure!(figure("/probe/roundTripMicroseconds")? > 0, "packets take no time: {peer}");
    ensure!(figure("/probe/lostPerThousand")? < 1000, "all is lost: {peer}");
    for way in ["/throughput/sentBytesPerSecond", "/throughput/receivedBytesPerSecond"] {
        ensure!(figure(way)? > 0, "nothing goes through: {peer}");
    }
    Ok(())
}

/// What Prometheus sees.
async fn is_measured(here: &Side<'_>, there: &Side<'_>) -> Result<()> {
    let page = page(here.cluster).await?;
    for name in ["ferro_tunnel_up", "ferro_tunnel_round_trip_seconds"] {
        let name = format!("{name}{{cluster_id=\"{}\"}}", there.id);
        let value = value(&page, &name).with_context(|| format!("no {name} in {page}"))?;
        ensure!(value > 0.0, "{name} is {value}");
    }
    Ok(())
}

/// How many packets of peers the gateway of a cluster had refused at some moment.
pub struct Refused<'a> {
    cluster: &'a Cluster,
    before: f64,
}

impl<'a> Refused<'a> {
    /// Those until now.
    pub async fn until_now(cluster: &'a Cluster) -> Result<Self> {
        let what = format!("the gateway of {} tells its figures", cluster.plan.name);
        Ok(Self { cluster, before: eventually(&what, || refused(cluster)).await? })
    }

    /// Waits until there are more.
    pub async fn are_more(&self) -> Result<()> {
        eventually(&format!("the gateway of {} counts what it refuses", self.cluster.plan.name), || async {
            let (before, now) = (self.before, refused(self.cluster).await?);
            ensure!(now > before, "it had refused {before} packets, and has refused {now}");
            Ok(())
        })
        .await
    }
}

/// What never happened is not told.
async fn refused(cluster: &Cluster) -> Result<f64> {
    Ok(value(&page(cluster).await?, REFUSED).unwrap_or_default())
}

/// All figures of the gateway. Its pod is in the network of its node, and so is the port.
async fn page(cluster: &Cluster) -> Result<String> {
    let pods: Api<Pod> = Api::namespaced(cluster.client.clone(), NAMESPACE);
    let of_gateway = ListParams::default().labels("app.kubernetes.io/name=ferro-gateway");
    let gateway = pods.list(&of_gateway).await?.items.pop().context("there is no gateway")?.name_any();
    let path = format!("/api/v1/namespaces/{NAMESPACE}/pods/{gateway}:{PORT}/proxy/metrics");
    let page = cluster.client.request_text(http::Request::get(path).body(Vec::new())?).await?;
    ensure!(page.contains("ferro_api_requests_total"), "these are no figures: {page}");
    Ok(page)
}

/// A figure, by its name and labels.
fn value(page: &str, name: &str) -> Option<f64> {
    page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok())
}
