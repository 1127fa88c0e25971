//! What is published depends on what peers reach: pods by strict reach, and by full reach the nodes.

use anyhow::{Result, ensure};
use ferro_api::config::Reach;
use rig::addresses::Manner;
use rig::fuse::Fuse;
use rig::wait::{block_on, eventually};
use tonic::Code;

use crate::stage::Stage;
use crate::{map, refused, unmap};

#[test]
fn by_strict_reach_a_pod_waits_for_the_gateway_and_is_open_until_it_is_taken_back() -> Result<()> {
    block_on(async {
        let mut stage = Stage::new(16).await?;
        stage.meet("rome", 1).await?;
        stage.handle.reach(Reach::Strict, [].into()).await?;
        let controller = stage.client("controller").await?;
        // It serves a moment after it has begun.
        eventually("it is said to ask again", || async {
            let answer = controller.clone().map_endpoint_ip(map("rome", "10.0.0.9")).await;
            let said = refused(answer, Code::Unavailable)?;
            ensure!(said.contains("ask again"), "{said}");
            Ok(())
        })
        .await?;
        // What was stored meanwhile is in force for a gateway that comes now, also after a restart.
        stage.restart(Fuse::none()).await?;
        let gateway = stage.gateway(Manner::Promptly).await?;
        eventually("the pod is open", || async {
            ensure!(gateway.rule("rome", "10.0.0.9").as_deref() == Some("10.0.0.9"), "it is not");
            let mapping = stage.mappings().get("natmapping-rome").await?;
            ensure!(mapping.spec.cluster_mappings.contains_key("10.0.0.9"), "{:?}", mapping.spec);
            Ok(())
        })
        .await?;
        stage.handle.reach(Reach::Strict, [].into()).await?;
        let mut controller = stage.client("controller").await?;
        Stage::told(&controller, map("rome", "10.0.0.10")).await?;
        ensure!(gateway.rule("rome", "10.0.0.10").is_some(), "it is answered before it works");
        controller.unmap_endpoint_ip(unmap("rome", "10.0.0.9")).await?;
        eventually("the pod is closed", || async {
            ensure!(gateway.rule("rome", "10.0.0.9").is_none(), "the gateway still has it");
            Ok(())
        })
        .await?;
        ensure!(stage.stored().await?.into_keys().collect::<Vec<_>>() == ["10.0.0.10"]);
        stage.end().await;
        Ok(())
    })
}

#[test]
fn by_full_reach_nodes_are_published_to_every_peer_until_it_is_another_one() -> Result<()> {
    block_on(async {
        let mut stage = Stage::new(16).await?;
        stage.meet("rome", 1).await?;
        let gateway = stage.gateway(Manner::Promptly).await?;
        let nodes = ["172.18.0.3".parse()?, "172.18.0.4".parse()?];
        stage.handle.reach(Reach::Full, nodes.into()).await?;
        stage.meet("turin", 2).await?;
        let first = eventually("both peers reach both nodes", || async {
            ensure!(gateway.count() == 4, "{} rules", gateway.count());
            let mapping = stage.mappings().get("natmapping-turin").await?;
            ensure!(mapping.spec.cluster_mappings.len() == 2, "{:?}", mapping.spec);
            Ok(mapping.spec.cluster_mappings)
        })
        .await?;
        stage.restart(Fuse::none()).await?;
        stage.handle.reach(Reach::Full, nodes.into()).await?;
        let mut controller = stage.client("controller").await?;
        // Once the gateway is back.
        let asked = Stage::told(&controller, map("turin", "172.18.0.3")).await?;
        ensure!(first.get("172.18.0.3") == Some(&asked), "{asked} is not in {first:?}");
        // A node leaves; then the reach is another one, and what was asked for stays.
        stage.handle.reach(Reach::Full, [nodes[0]].into()).await?;
        eventually("the node is closed", || async {
            ensure!(gateway.rule("rome", "172.18.0.4").is_none(), "it is not");
            Ok(())
        })
        .await?;
        stage.handle.reach(Reach::Default, [].into()).await?;
        eventually("nodes are closed", || async {
            ensure!(gateway.count() == 1, "{} rules", gateway.count());
            ensure!(gateway.rule("turin", "172.18.0.3").is_some(), "it was asked for");
            Ok(())
        })
        .await?;
        controller.unmap_endpoint_ip(unmap("turin", "172.18.0.3")).await?;
        ensure!(stage.stored().await?.is_empty());
        stage.end().await;
        Ok(())
    })
}
