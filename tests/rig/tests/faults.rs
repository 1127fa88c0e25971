//! Faults on three bare control planes: a cut cuts what it says and nothing else, and what was killed comes back.

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Namespace;
use kube::Api;
use kube::api::{ListParams, PostParams};
use rig::lan::Loss;
use rig::plan::ClusterSpec;
use rig::topology::Topology;
use rig::wait::{block_on, eventually};
use serde_json::json;
use tokio::sync::OnceCell;

static TOPOLOGY: OnceCell<Topology> = OnceCell::const_new();

async fn topology() -> Result<&'static Topology> {
    let spec = |name| ClusterSpec { bare: true, ..ClusterSpec::named(name) };
    TOPOLOGY.get_or_try_init(|| Topology::up("faults", vec![spec("a"), spec("b"), spec("c")])).await
}

/// Whether a process on one cluster's node reaches another's node.
async fn reaches(topology: &Topology, from: &str, to: &str) -> Result<bool> {
    let address = topology.cluster(to)?.plan.control_plane().to_string();
    Ok(topology.cluster(from)?.on_node(1, &["busybox", "ping", "-c", "2", "-W", "1", &address]).await.is_ok())
}

async fn await_reach(topology: &Topology, from: &str, to: &str) -> Result<()> {
    eventually("one node reaches the other", || async {
        ensure!(reaches(topology, from, to).await?, "{from} does not reach {to}");
        Ok(())
    })
    .await
}

/// Sends datagrams that nobody waits for.
async fn send(topology: &Topology, from: &str, to: &str, count: u32) -> Result<()> {
    let address = topology.cluster(to)?.plan.control_plane();
    let script = format!("for i in $(seq {count}); do echo x > /dev/udp/{address}/9; done 2>/dev/null; true");
    topology.cluster(from)?.on_node(1, &["bash", "-c", &script]).await?;
    Ok(())
}

/// Sends datagrams and counts those that arrive.
async fn arriving(topology: &Topology, from: &str, to: &str, count: u32) -> Result<u32> {
    let before = unwanted(topology, to).await?;
    send(topology, from, to, count).await?;
    Ok(unwanted(topology, to).await? - before)
}

/// Sends datagrams and waits until exactly so many have arrived: on a busy machine the last ones come a moment later.
async fn all_arrive(topology: &Topology, from: &str, to: &str, count: u32) -> Result<()> {
    let before = unwanted(topology, to).await?;
    send(topology, from, to, count).await?;
    eventually("all datagrams arrive", || async {
        let arrived = unwanted(topology, to).await? - before;
        ensure!(arrived == count, "{arrived} of {count} arrived from {from} at {to}");
        Ok(())
    })
    .await
}

/// The kernel's count of datagrams to closed ports.
async fn unwanted(topology: &Topology, name: &str) -> Result<u32> {
    let text = topology.cluster(name)?.on_node(1, &["cat", "/proc/net/snmp"]).await?;
    let line =
        text.lines().filter(|line| line.starts_with("Udp:")).nth(1).context("the kernel counts datagrams")?;
    Ok(line.split_whitespace().nth(2).context("and names those to closed ports")?.parse()?)
}

#[test]
fn a_cut_separates_two_and_leaves_the_third_alone() -> Result<()> {
    block_on(async {
        let topology = topology().await?;
        for (from, to) in [("a", "b"), ("a", "c"), ("c", "b")] {
            await_reach(topology, from, to).await?;
        }
        topology.cut("a", "b", Loss::CUT, false).await?;
        ensure!(!reaches(topology, "a", "b").await? && !reaches(topology, "b", "a").await?, "cut");
        ensure!(
            reaches(topology, "a", "c").await? && reaches(topology, "c", "b").await?,
            "the third is undisturbed"
        );
        topology.heal("b", "a").await?;
        await_reach(topology, "a", "b").await?;

        topology.cut("a", "b", Loss::CUT, true).await?;
        for name in ["a", "b"] {
            topology.cluster(name)?.on_node(1, &["ip", "neigh", "flush", "all"]).await?;
        }
        ensure!(arriving(topology, "a", "b", 50).await? == 0, "nothing arrives the cut way");
        all_arrive(topology, "b", "a", 50).await.context("all arrives the other way")?;
        topology.heal("a", "b").await?;

        topology.cut("a/1", "b", Loss::parse("20%")?, true).await?;
        let arrived = arriving(topology, "a", "b", 1000).await?;
        println!("loss asked for 20 %, measured {:.1} %", f64::from(1000 - arrived) / 10.0);
        // Five standard deviations of a thousand throws.
        ensure!((737..=863).contains(&arrived), "{arrived} of 1000 arrived at a loss of 20 %");
        Ok(())
    })
}

#[test]
fn a_killed_api_server_stays_dead_and_a_restarted_one_knows_everything() -> Result<()> {
    block_on(async {
        let topology = topology().await?;
        let namespaces: Api<Namespace> = Api::all(topology.cluster("a")?.client.clone());
        let object = serde_json::from_value(json!({"metadata": {"name": "kept"}}))?;
        namespaces.create(&PostParams::default(), &object).await?;
        topology.kill("a/kube-apiserver").await?;
        ensure!(namespaces.list(&ListParams::default()).await.is_err(), "a killed API server answers");
        let other: Api<Namespace> = Api::all(topology.cluster("b")?.client.clone());
        other.list(&ListParams::default()).await.context("the neighbour is disturbed")?;

        topology.restart("a/kube-apiserver").await?;
        eventually("the cluster recovers", || async { Ok(namespaces.get("kept").await.map(drop)?) }).await?;

        topology.restart("a/etcd").await?;
        eventually("the cluster recovers from a lost store", || async {
            Ok(namespaces.get("kept").await.map(drop)?)
        })
        .await?;
        // The controller-manager works again, too: it fills every namespace with a default ServiceAccount.
        let fresh = serde_json::from_value(json!({"metadata": {"name": "fresh"}}))?;
        eventually("a new namespace", || async {
            Ok(namespaces.create(&PostParams::default(), &fresh).await.map(drop)?)
        })
        .await?;
        let accounts: Api<k8s_openapi::api::core::v1::ServiceAccount> =
            Api::namespaced(topology.cluster("a")?.client.clone(), "fresh");
        eventually("its ServiceAccount", || async { Ok(accounts.get("default").await.map(drop)?) }).await
    })
}

#[test]
fn an_unknown_cluster_node_or_process_is_named_together_with_what_there_is() -> Result<()> {
    block_on(async {
        let topology = topology().await?;
        for (error, expected) in [
            (topology.cut("a", "x", Loss::CUT, false).await, "no cluster x runs; running: a, b, c"),
            (topology.cut("a/2", "b", Loss::CUT, false).await, "cluster a has no node 2; it has a-1"),
            (topology.cut("a", "a", Loss::CUT, false).await, "both ends are the same"),
            (
                topology.kill("a/kubelet").await,
                "cluster a has no process kubelet; it has etcd, kube-apiserver",
            ),
            (topology.restart("a").await, "say CLUSTER/COMPONENT"),
            (topology.reboot("a").await, "say CLUSTER/NODE"),
            (topology.reboot("a/2").await, "cluster a has no node 2; it has a-1"),
        ] {
            let text = error.err().context("must be refused")?.to_string();
            ensure!(text.contains(expected), "{text}");
        }
        Ok(())
    })
}
