//! Real clusters of two nodes each, with different CNIs: whatever networks they were born with, and whatever befalls
//! their gateways, pods of one reach pods, Services and nodes of the other; and when they part, nothing is left.

mod addresses;
mod births;
mod churn;
mod conversation;
mod faults;
mod figures;
mod full;
mod hops;
mod kernel;
mod memory;
mod namings;
mod pair;
mod rules;
mod services;
mod settings;
mod strict;
mod traces;

use std::collections::BTreeSet;

use anyhow::{Result, ensure};
use futures::future::try_join_all;
use rig::installation::{SILENT, ferro, install, load};
use rig::objects::{at_rest, await_same};
use rig::plan::{ClusterSpec, Cni};
use rig::pods;
use rig::topology::{Cluster, Topology};
use rig::wait::block_on;

use conversation::Conversation;
use figures::Refused;
use kernel::{Kernels, OF_GATEWAY};
use pair::Pair;

/// Where ferro is installed.
const NAMESPACE: &str = "liqo";
/// By this a cluster chooses an external network that no other one has.
const OTHER_POOLS: [&str; 2] =
    ["--set", "networkManager.config.pools={172.16.0.0/12,10.0.0.0/8,192.168.0.0/16}"];

/// Rome and turin have the same networks; those of paris are its own.
fn specs() -> Vec<ClusterSpec> {
    let spec = |name, cni| ClusterSpec { nodes: 2, cni, ..ClusterSpec::named(name) };
    vec![
        spec("rome", Cni::Bridge).with_same_cidrs(),
        spec("turin", Cni::Ptp).with_same_cidrs(),
        spec("paris", Cni::Ptp),
    ]
}

/// A cluster as it was before it knew of any other.
struct Before<'a> {
    cluster: &'a Cluster,
    objects: BTreeSet<String>,
    kernels: Kernels,
}

impl<'a> Before<'a> {
    async fn of(cluster: &'a Cluster) -> Result<Self> {
        Ok(Self { cluster, objects: at_rest(cluster).await?, kernels: kernel::at_rest(cluster).await? })
    }

    /// Waits until the kernels are so again. What the gateway has for itself stays as long as the gateway does.
    async fn is_unpeered(&self) -> Result<()> {
        kernel::await_same(self.cluster, &self.kernels, &OF_GATEWAY).await
    }

    /// Takes away all that the test has made, and waits until nothing is left.
    async fn restore(&self, others: &[&Cluster]) -> Result<()> {
        services::remove(self.cluster, others).await?;
        pods::stop(self.cluster).await?;
        ferro(self.cluster, &["uninstall", "--yes", "--wait"]).await?;
        await_same(self.cluster, &self.objects).await?;
        kernel::await_same(self.cluster, &self.kernels, &[]).await
    }
}

/// Installs ferro in a cluster, with these pools.
async fn install_with(cluster: &Cluster, pools: &[&str]) -> Result<()> {
    install(cluster, &[&SILENT[..], &["--set", "auth.config.allowEmptyToken=true"], pools].concat()).await
}

/// Installs ferro, and meanwhile starts those who call and those who answer.
async fn set_up(cluster: &Cluster, pools: &[&str]) -> Result<()> {
    tokio::try_join!(install_with(cluster, pools), pods::start(cluster), pods::start_processes(cluster))
        .map(drop)
}

async fn remove(here: &Cluster, there: &Cluster) -> Result<()> {
    for (here, there) in [(here, there), (there, here)] {
        ferro(here, &["remove", &there.plan.name, "--wait", "--yes"]).await?;
    }
    Ok(())
}

#[test]
fn clusters_are_one_network_whatever_networks_they_have_and_whatever_befalls_them() -> Result<()> {
    block_on(async {
        let topology = Topology::up("fabric", specs()).await?;
        load(&topology).await?;
        let all = [topology.cluster("rome")?, topology.cluster("turin")?, topology.cluster("paris")?];
        let [rome, turin, paris] = all;
        let before = try_join_all(all.map(Before::of)).await?;
        tokio::try_join!(set_up(rome, &[]), set_up(turin, &[]), set_up(paris, &OTHER_POOLS))?;

        let (equal, disjoint) = tokio::try_join!(Pair::join(rome, turin), Pair::join(rome, paris))?;
        ensure!(equal.renamed()? == [true; 4], "equal networks keep their names: {:?}", equal.renamed()?);
        ensure!(disjoint.renamed()? == [false; 4], "free networks do not: {:?}", disjoint.renamed()?);
        // Not side by side: both call from the same pods, of which each pings one at a time, and through one gateway.
        equal.works().await?;
        disjoint.works().await?;
        hops::are_as_named(&equal).await?;
        hops::are_as_named(&disjoint).await?;
        traces::name_what_is_cut(&equal, &disjoint).await?;
        rules::are_shown(&equal).await?;
        figures::are_shown(&equal).await?;
        let refused = Refused::until_now(turin).await?;
        strict::hides_what_is_not_published(&equal).await?;
        refused.are_more().await?;
        full::opens_the_nodes(&equal).await?;
        churn::nobody_else_is_met(&equal).await?;
        memory::outlives_the_controllers(&equal).await?;

        let mut conversations = Conversation::both_ways(&equal).await?;
        faults::kill_gateway(turin).await?;
        try_join_all(conversations.iter_mut().map(Conversation::goes_on)).await?;
        drop(conversations);
        equal.is_open().await?;
        faults::reboot_under_gateway(&topology, rome).await?;
        equal.is_open().await?;
        disjoint.is_open().await?;

        let is_soak = std::env::var_os("SOAK").is_some();
        if is_soak {
            equal.part().await?;
            namings::try_the_others(disjoint).await?.part().await?;
        } else {
            tokio::try_join!(equal.part(), disjoint.part())?;
        }
        try_join_all(before.iter().map(Before::is_unpeered)).await?;
        tokio::try_join!(remove(rome, turin), remove(rome, paris))?;
        if is_soak {
            births::try_equal_networks(all).await?;
        }
        try_join_all(before.iter().map(|before| before.restore(&all))).await.map(drop)
    })
}
