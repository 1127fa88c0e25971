//! Three clusters with nodes that meet in all three ways: on the LAN without a command, through DNS, and by hand.

mod flood;

use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use ferro_api::discovery::{ForeignCluster, PeeringState};
use kube::api::ListParams;
use kube::{Api, ResourceExt as _};
use rig::installation::{ON_LAN, SILENT, ferro, ferro_with_input, install, load};
use rig::objects::{at_rest, await_same};
use rig::plan::ClusterSpec;
use rig::tools::Tools;
use rig::topology::{Cluster, Topology};
use rig::wait::{block_on, eventually};
use tokio::process::{Child, Command};

const DOMAIN: &str = "clusters.example.org";
const DNS_PORT: u16 = 15353;

/// What a cluster knows of another.
async fn peer(cluster: &Cluster, other: &str) -> Result<ForeignCluster> {
    let peers: Api<ForeignCluster> = Api::all(cluster.client.clone());
    let all = peers.list(&ListParams::default()).await?.items;
    let is_other = |peer: &ForeignCluster| {
        peer.spec.cluster_identity.as_ref().and_then(|identity| identity.cluster_name.as_deref())
            == Some(other)
    };
    let mut found: Vec<_> = all.into_iter().filter(is_other).collect();
    ensure!(found.len() <= 1, "{} knows {other} {} times", cluster.plan.name, found.len());
    found.pop().with_context(|| format!("{} does not know {other}", cluster.plan.name))
}

async fn reaches(cluster: &Cluster, other: &str, outgoing: PeeringState) -> Result<()> {
    eventually(&format!("{} uses {other}: {outgoing:?}", cluster.plan.name), || async {
        let peer = peer(cluster, other).await?;
        let status = peer.status.unwrap_or_default();
        let to = status.outgoing.unwrap_or_default();
        ensure!(to.state == outgoing, "{:?}: {:?}; {:?}", to.state, to.message, status.authentication);
        Ok(())
    })
    .await
}

/// A real DNS server, until it is dropped.
struct DnsServer {
    _process: Child,
    folder: PathBuf,
    address: Ipv4Addr,
}

impl Drop for DnsServer {
    fn drop(&mut self) {
        _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// Serves these records on the LAN.
async fn dns_server(topology: &Topology, records: &str) -> Result<DnsServer> {
    let address = topology.cluster("rome")?.plan.lan.host();
    let folder = std::env::temp_dir().join(format!("ferro-dns-{}", std::process::id()));
    tokio::fs::create_dir_all(&folder).await?;
    let zone = format!(
        "$ORIGIN {DOMAIN}.\n@ 60 IN SOA ns admin 1 60 60 60 60\n@ 60 IN NS ns\nns 60 IN A {address}\n{records}"
    );
    tokio::fs::write(folder.join("zone"), zone).await?;
    let corefile = format!("{DOMAIN}:{DNS_PORT} {{\n bind {address}\n file zone\n errors\n}}\n");
    tokio::fs::write(folder.join("Corefile"), corefile).await?;
    let process = Command::new(Tools::cache()?.path("coredns")?)
        .current_dir(&folder)
        .stdout(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .context("cannot start CoreDNS")?;
    Ok(DnsServer { _process: process, folder, address })
}

/// The row of `ferro peers` for a peer, in columns.
async fn row(cluster: &Cluster, other: &str) -> Result<Vec<String>> {
    let table = ferro(cluster, &["peers"]).await?;
    let line = table.lines().find(|line| line.starts_with(other));
    let line = line.with_context(|| format!("ferro peers does not show {other}:\n{table}"))?;
    Ok(line.split_whitespace().map(str::to_owned).collect())
}

/// Waits until `ferro peers` shows these columns of a peer, beside its name.
async fn shows(cluster: &Cluster, other: &str, columns: &[&str]) -> Result<()> {
    eventually(&format!("{} shows {other}: {columns:?}", cluster.plan.name), || async {
        let row = row(cluster, other).await?;
        ensure!(row.get(1..=columns.len()).is_some_and(|shown| shown == columns), "{row:?}");
        Ok(())
    })
    .await
}

/// A flood on the LAN has made nobody known, ended no process for want of memory, and left the others alone.
async fn withstands(cluster: &Cluster, other: &str) -> Result<()> {
    let heard = || async {
        let maps = ["-n", "liqo", "get", "configmaps", "-o", "jsonpath={.items[*].data}"];
        cluster.kubectl(&maps).await
    };
    eventually("some of the flood was heard", || async {
        ensure!(heard().await?.contains("bogus-"), "nothing yet");
        Ok(())
    })
    .await?;
    let known = ferro(cluster, &["peers"]).await?;
    ensure!(!known.contains("bogus-"), "it believes what nobody proved:\n{known}");
    reaches(cluster, other, PeeringState::Established).await?;
    let restarts = "jsonpath={.items[*].status.containerStatuses[*].restartCount}";
    let restarts = cluster.kubectl(&["-n", "liqo", "get", "pods", "-o", restarts]).await?;
    ensure!(restarts.split_whitespace().all(|count| count == "0"), "processes ended: {restarts}");
    Ok(())
}

/// Kills the controller of a cluster as hard as Kubernetes can.
async fn kill_controller(cluster: &Cluster) -> Result<()> {
    let chosen = ["-l", "app.kubernetes.io/name=ferro-controller", "--force", "--grace-period=0"];
    cluster.kubectl(&[&["-n", "liqo", "delete", "pod"][..], &chosen].concat()).await.map(drop)
}

#[test]
fn clusters_meet_on_the_lan_through_dns_and_by_hand_and_part_without_a_trace() -> Result<()> {
    block_on(async {
        let specs = ["rome", "naples", "milan"].map(ClusterSpec::named);
        let topology = Topology::up("meeting", specs.into()).await?;
        load(&topology).await?;
        let [rome, naples, milan] =
            [topology.cluster("rome")?, topology.cluster("naples")?, topology.cluster("milan")?];
        let before = at_rest(milan).await?;
        let silent = [&SILENT[..], &["--set", "auth.config.allowEmptyToken=true"]].concat();
        tokio::try_join!(install(milan, &silent), install(rome, &ON_LAN), install(naples, &ON_LAN))?;

        // On the LAN: no command at all.
        for (cluster, other) in [(rome, "naples"), (naples, "rome")] {
            reaches(cluster, other, PeeringState::Established).await?;
            shows(cluster, other, &["LAN", "Untrusted", "ACCEPTED"]).await?;
        }

        // Ten thousand that do not exist: nobody is made known, and nothing breaks.
        flood::announce(rome.plan.lan.host(), 10_000)?;
        withstands(rome, "naples").await?;

        // Through DNS: the records that milan prints, in a real server.
        let records = ferro(milan, &["discovery", "records", "--domain", DOMAIN]).await?;
        let dns = dns_server(&topology, &records).await?;
        naples
            .apply(&format!(
                "apiVersion: discovery.liqo.io/v1alpha1\nkind: SearchDomain\nmetadata: {{name: example}}\nspec: \
                 {{domain: {DOMAIN}, dnsServer: \"{}:{DNS_PORT}\", searchPeriodSeconds: 2}}\n",
                dns.address
            ))
            .await?;
        shows(naples, "milan", &["WAN", "Untrusted", "ACCEPTED"]).await?;

        // By hand, with a token; the controllers of both are killed on the way.
        let printed = ferro(milan, &["token"]).await?;
        let token =
            printed.lines().find(|line| line.starts_with("ferro_")).context("no token was printed")?;
        let name =
            printed.split_whitespace().skip_while(|word| *word != "--name").nth(1).context("no name")?;
        ferro_with_input(rome, &["add", "--name", name, "--token-stdin", "--wait"], token).await?;
        let milan_at_rome = peer(rome, "milan").await?.name_any();
        ferro(rome, &["peer", &milan_at_rome]).await?;
        kill_controller(milan).await?;
        reaches(rome, "milan", PeeringState::Established).await?;
        shows(rome, "milan", &["MANUAL", "Untrusted", "ACCEPTED"]).await?;
        shows(milan, "rome", &["INCOMING"]).await?;

        ferro(rome, &["unpeer", &milan_at_rome]).await?;
        kill_controller(rome).await?;
        reaches(rome, "milan", PeeringState::None).await?;
        reaches(naples, "rome", PeeringState::Established).await?;

        // Where no token is needed, whoever still knows the other comes back: so both forget each other at once.
        naples.kubectl(&["delete", "searchdomain", "example"]).await?;
        for (cluster, other) in [(rome, "milan"), (milan, "rome"), (naples, "milan"), (milan, "naples")] {
            let known = peer(cluster, other).await?.name_any();
            ferro(cluster, &["remove", &known, "--yes"]).await?;
        }
        kill_controller(rome).await?;
        for (cluster, other) in [(rome, "milan"), (naples, "milan"), (milan, "rome"), (milan, "naples")] {
            eventually(&format!("{} has forgotten {other}", cluster.plan.name), || async {
                ensure!(peer(cluster, other).await.is_err(), "it has not");
                Ok(())
            })
            .await?;
        }
        drop(dns);
        ferro(milan, &["uninstall", "--yes", "--wait"]).await?;
        await_same(milan, &before).await
    })
}
