//! Two clusters with two nodes each, born with the same networks: every pod of one reaches every pod of the other.

use anyhow::{Result, ensure};
use rig::installation::{SILENT, ferro, install, load};
use rig::objects::{at_rest, await_same};
use rig::plan::{ClusterSpec, Cni};
use rig::pods::{self, Caller, Echo};
use rig::topology::{Cluster, Topology};
use rig::tunnels::{connected, seen, view};
use rig::wait::{block_on, eventually};

/// What the kernel of a node has that could be ours.
async fn kernel(cluster: &Cluster, number: u8) -> Result<String> {
    let mut state = String::new();
    for command in [
        &["ip", "-o", "link"][..],
        &["ip", "route", "show", "table", "all"],
        &["ip", "rule"],
        &["nft", "list", "tables"],
    ] {
        let text = cluster.on_node(number, command).await?;
        // Interfaces of pods come and go.
        let ours = |line: &&str| line.contains("ferro") || line.contains("1880");
        state += &text.lines().filter(ours).collect::<Vec<_>>().join("\n");
    }
    Ok(state)
}

#[test]
fn pods_of_clusters_with_the_same_networks_reach_each_other() -> Result<()> {
    block_on(async {
        let spec = |name, cni| ClusterSpec { nodes: 2, cni, ..ClusterSpec::named(name).with_same_cidrs() };
        let topology =
            Topology::up("fabric", vec![spec("rome", Cni::Bridge), spec("turin", Cni::Ptp)]).await?;
        load(&topology).await?;
        let [rome, turin] = [topology.cluster("rome")?, topology.cluster("turin")?];
        let before = (at_rest(rome).await?, at_rest(turin).await?);
        let settings = [&SILENT[..], &["--set", "auth.config.allowEmptyToken=true"]].concat();
        install(rome, &settings).await?;
        install(turin, &settings).await?;
        let remote = turin.kubeconfig.to_string_lossy().into_owned();
        ferro(rome, &["peer", "--remote-kubeconfig", &remote, "--bidirectional", "--wait"]).await?;

        let (in_rome, in_turin) = (view(&connected(rome).await?)?, view(&connected(turin).await?)?);
        let everyone = [(rome, turin, in_rome, in_turin), (turin, rome, in_turin, in_rome)];
        for (cluster, ..) in &everyone {
            pods::start(cluster).await?;
        }
        for (here, there, theirs, ours) in everyone {
            for from in 1..=2 {
                for to in 1..=2 {
                    let caller = Caller::on(here, from).await?;
                    let echo = Echo::on(there, to).await?;
                    let address = seen(echo.ip, theirs)?;
                    // It is the right pod, and it sees the caller under the name that its own cluster has for it.
                    let answer = caller.get(address).await?;
                    ensure!(answer.contains(&there.plan.name) && answer.contains(&echo.node), "{answer}");
                    let known_as = seen(caller.ip, ours)?.to_string();
                    ensure!(answer.contains(&known_as), "the caller is not known as {known_as}: {answer}");
                    caller.ping(address, 56).await?;
                    caller.ping(address, 9_000).await?;
                }
            }
        }

        ferro(rome, &["unpeer", "turin", "--bidirectional", "--wait"]).await?;
        for cluster in [rome, turin] {
            for number in 1..=2 {
                eventually("the kernel is as before", || async {
                    let left = kernel(cluster, number).await?;
                    // The link to the gateway stays as long as the gateway does.
                    let left: Vec<_> = left.lines().filter(|line| !line.contains("ferro.host")).collect();
                    ensure!(left.is_empty(), "node {number} of {} has {left:?}", cluster.plan.name);
                    Ok(())
                })
                .await?;
            }
        }
        ferro(rome, &["remove", "turin", "--wait", "--yes"]).await?;
        ferro(turin, &["remove", "rome", "--wait", "--yes"]).await?;
        for (cluster, before) in [(rome, &before.0), (turin, &before.1)] {
            pods::stop(cluster).await?;
            ferro(cluster, &["uninstall", "--yes", "--wait"]).await?;
            await_same(cluster, before).await?;
            for number in 1..=2 {
                eventually("nothing is left in the kernel", || async {
                    let left = kernel(cluster, number).await?;
                    ensure!(left.is_empty(), "node {number} of {} has {left}", cluster.plan.name);
                    Ok(())
                })
                .await?;
            }
        }
        Ok(())
    })
}
