//! The address manager against a real API server: what it answers is stored, in force, and the same after a restart.

mod crashes;
mod reach;
mod stage;

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use ferro_api::net::NatMapping;
use ferro_api::proto::ipam::ipam_client::IpamClient;
use ferro_api::proto::ipam::{BelongsRequest, GetHomePodIpRequest, MapRequest, MapResponse, UnmapRequest};
use ferro_fabric::ipam::client::{self, Identity};
use futures::future::try_join_all;
use kube::ResourceExt as _;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use rig::addresses::{Manner, kept, offered};
use rig::wait::{block_on, eventually};
use serde_json::json;
use tonic::{Code, Response, Status};

use rig::fuse::Fuse;
use stage::{NAMESPACE, Stage};

fn map(cluster: &str, ip: &str) -> MapRequest {
    MapRequest { cluster_id: cluster.into(), ip: ip.into() }
}

fn unmap(cluster: &str, ip: &str) -> UnmapRequest {
    UnmapRequest { cluster_id: cluster.into(), ip: ip.into() }
}

fn refused(answer: Result<Response<MapResponse>, Status>, code: Code) -> Result<String> {
    match answer {
        Ok(answer) => bail!("it was answered: {answer:?}"),
        Err(status) => {
            ensure!(status.code() == code, "{status:?} is not {code:?}");
            Ok(status.message().to_owned())
        }
    }
}

#[test]
fn an_answer_waits_for_the_gateway_and_says_so_when_that_does_not_come() -> Result<()> {
    block_on(async {
        let stage = Stage::new(16).await?;
        let mut controller = stage.client("controller").await?;
        // It serves a moment after it has begun.
        eventually("the address manager answers that it does not know rome", || async {
            let answer = controller.clone().map_endpoint_ip(map("rome", "172.18.0.3")).await;
            refused(answer, Code::NotFound)
        })
        .await?;
        stage.handle.acquire("rome", offered(1)?).await?;
        refused(controller.map_endpoint_ip(map("rome", "172.18.0.3")).await, Code::FailedPrecondition)?;
        stage.handle.agree("rome", kept()).await?;
        refused(controller.map_endpoint_ip(map("rome", "172.18.0")).await, Code::InvalidArgument)?;
        refused(controller.map_endpoint_ip(map("rome", "127.0.0.1")).await, Code::InvalidArgument)?;
        let own = controller.map_endpoint_ip(map("rome", "10.101.0.9")).await?.into_inner().ip;
        ensure!(own == "10.101.0.9", "to its own pods rome has its own way: {own}");

        for endpoint in ["172.18.0.3", "10.0.0.9"] {
            let answer = controller.map_endpoint_ip(map("rome", endpoint)).await;
            let said = refused(answer, Code::Unavailable)?;
            ensure!(said.contains("no gateway is connected") && said.contains("ask again"), "{said}");
        }
        let silent = stage.gateway(Manner::Never).await?;
        let said = refused(controller.map_endpoint_ip(map("rome", "172.18.0.3")).await, Code::Unavailable)?;
        ensure!(said.contains("has not confirmed"), "{said}");
        drop(silent);
        let late = stage.gateway(Manner::After(Duration::from_millis(700))).await?;
        let begin = Instant::now();
        // Once the silent gateway is forgotten.
        let address = Stage::told(&controller, map("rome", "172.18.0.4")).await?;
        ensure!(begin.elapsed() >= Duration::from_millis(600), "{:?}", begin.elapsed());
        ensure!(late.rule("rome", "172.18.0.4").as_ref() == Some(&address), "it is answered before it works");
        drop(late);

        let prompt = stage.gateway(Manner::Promptly).await?;
        // Once the late gateway is forgotten.
        let first = Stage::told(&controller, map("rome", "172.18.0.3")).await?;
        ensure!(first != address && prompt.count() == 2);
        let pod = Stage::told(&controller, map("rome", "10.0.0.9")).await?;
        ensure!(pod == "10.0.0.9" && prompt.count() == 2, "a pod needs the tunnel, and no rule: {pod}");
        let belongs = BelongsRequest { ip: "10.0.3.4".into() };
        ensure!(controller.belongs_to_pod_cidr(belongs).await?.into_inner().belongs);
        let home = GetHomePodIpRequest { cluster_id: "rome".into(), ip: "10.101.0.5".into() };
        ensure!(controller.get_home_pod_ip(home).await?.into_inner().home_ip == "10.101.0.5");

        controller.unmap_endpoint_ip(unmap("rome", "172.18.0.3")).await?;
        controller.unmap_endpoint_ip(unmap("rome", "172.18.0.3")).await?;
        eventually("the rule goes, and the NatMapping follows", || async {
            ensure!(prompt.rule("rome", "172.18.0.3").is_none(), "the gateway still has it");
            let mapping = stage.mappings().get("natmapping-rome").await?;
            let expected = [("172.18.0.4".to_owned(), address.clone())].into();
            ensure!(mapping.spec.cluster_mappings == expected, "{:?}", mapping.spec);
            Ok(())
        })
        .await?;
        stage.end().await;
        Ok(())
    })
}

#[test]
fn a_certificate_is_good_for_what_its_name_says() -> Result<()> {
    block_on(async {
        let stage = Stage::new(16).await?;
        stage.meet("rome", 1).await?;
        stage.meet("turin", 2).await?;
        let _gateway = stage.gateway(Manner::Promptly).await?;
        let mut rome = stage.client("rome").await?;
        Stage::told(&rome, map("rome", "172.18.0.3")).await?;
        refused(rome.map_endpoint_ip(map("turin", "172.18.0.3")).await, Code::PermissionDenied)?;
        let taken = rome.unmap_endpoint_ip(unmap("turin", "172.18.0.3")).await;
        ensure!(taken.is_err_and(|status| status.code() == Code::PermissionDenied));
        let mut gateway = stage.client("gateway").await?;
        refused(gateway.map_endpoint_ip(map("rome", "172.18.0.3")).await, Code::PermissionDenied)?;
        let controller = client::issue(&stage.cluster.client, NAMESPACE, "controller").await?;
        let mut nosy = client::gateway(&controller, stage.origin()?)?;
        let followed = nosy.follow(futures::stream::pending()).await;
        ensure!(followed.is_err_and(|status| status.code() == Code::PermissionDenied));

        let strange = rcgen::generate_simple_self_signed(vec!["controller".to_owned()])?;
        let (certificate, key) = (strange.cert.pem(), strange.signing_key.serialize_pem());
        let stranger = Identity { ca: controller.ca.clone(), certificate: certificate.clone(), key };
        let mut stranger = client::ipam(&stranger, stage.origin()?)?;
        ensure!(stranger.map_endpoint_ip(map("rome", "172.18.0.3")).await.is_err(), "a stranger was let in");
        let mut deceived = client::ipam(&Identity { ca: certificate, ..controller }, stage.origin()?)?;
        ensure!(deceived.map_endpoint_ip(map("rome", "172.18.0.3")).await.is_err(), "any server is believed");
        stage.end().await;
        Ok(())
    })
}

#[test]
fn a_restart_answers_the_same_and_a_full_network_says_so() -> Result<()> {
    block_on(async {
        let mut stage = Stage::new(27).await?;
        stage.meet("rome", 1).await?;
        stage.meet("turin", 2).await?;
        let _gateway = stage.gateway(Manner::Promptly).await?;
        let mut controller = stage.client("controller").await?;
        let ask = async |controller: &IpamClient<_>| {
            let mut answers = Vec::new();
            for host in 1..=29 {
                let request = map(if host % 2 == 0 { "rome" } else { "turin" }, &format!("172.18.0.{host}"));
                answers.push(Stage::told(controller, request).await?);
            }
            anyhow::Ok(answers)
        };
        let before = ask(&controller).await?;
        refused(controller.map_endpoint_ip(map("rome", "172.18.1.1")).await, Code::ResourceExhausted)?;
        let stored = stage.stored().await?;
        stage.restart(Fuse::none()).await?;
        let mut controller = stage.client("controller").await?;
        let after = ask(&controller).await?;
        ensure!(before == after, "{before:?} became {after:?}");
        ensure!(stored == stage.stored().await?);
        ensure!(stage.metrics.so_far().1 == 0, "what is asked again is not written");
        refused(controller.map_endpoint_ip(map("turin", "172.18.1.1")).await, Code::ResourceExhausted)?;
        stage.end().await;
        Ok(())
    })
}

#[test]
fn many_requests_are_few_writes() -> Result<()> {
    block_on(async {
        let stage = Stage::new(16).await?;
        let _gateway = stage.gateway(Manner::Promptly).await?;
        let peers = ["a", "b", "c", "d", "e"];
        for (number, peer) in (1..).zip(peers) {
            stage.meet(peer, number).await?;
        }
        let (_, before) = stage.metrics.so_far();
        // Each client asks for 200 endpoints, 20 at a time.
        let clients = (0..).zip(peers).map(|(number, peer)| {
            let stage = &stage;
            async move {
                let client = stage.client(peer).await?;
                for group in 0..10 {
                    try_join_all((0..20).map(|host| {
                        Stage::told(&client, map(peer, &format!("172.{}.{group}.{host}", 20 + number)))
                    }))
                    .await?;
                }
                anyhow::Ok(())
            }
        });
        try_join_all(clients).await?;
        let writes = stage.metrics.so_far().1 - before;
        println!("1000 requests of 5 clients were {writes} writes");
        // How many come together is the scheduler's to say.
        ensure!(writes <= 400, "{writes} writes for 1000 requests");
        ensure!(stage.stored().await?.len() == 1000);
        for object in stage.storage().await? {
            let size = serde_json::to_string(&object)?.len();
            ensure!(size < 64 * 1024, "{} has {size} bytes", object.name_any());
        }
        stage.end().await;
        Ok(())
    })
}

#[test]
fn what_others_write_is_followed_and_never_taken_away() -> Result<()> {
    block_on(async {
        let stage = Stage::new(16).await?;
        stage.meet("rome", 1).await?;
        let gateway = stage.gateway(Manner::Promptly).await?;
        let controller = stage.client("controller").await?;
        let by_hand: NatMapping = serde_json::from_value(json!({
            "apiVersion": "net.liqo.io/v1alpha1", "kind": "NatMapping", "metadata": {"name": "natmapping-1"},
            "spec": {"clusterID": "rome", "clusterMappings": {"10.0.0.5": "192.168.0.45"}},
        }))?;
        stage.mappings().create(&PostParams::default(), &by_hand).await?;
        eventually("what was written by hand is in force", || async {
            let rule = gateway.rule("rome", "10.0.0.5");
            ensure!(rule.as_deref() == Some("192.168.0.45"), "{rule:?}");
            Ok(())
        })
        .await?;

        // Somebody adds to our object, once it is there.
        let address = Stage::told(&controller, map("rome", "172.18.0.3")).await?;
        let ours = stage.mappings();
        eventually("the NatMapping follows", || async {
            let mapping = ours.get("natmapping-rome").await?;
            ensure!(mapping.spec.cluster_mappings.contains_key("172.18.0.3"), "{:?}", mapping.spec);
            Ok(())
        })
        .await?;
        let more = json!({"apiVersion": "net.liqo.io/v1alpha1", "kind": "NatMapping",
            "spec": {"clusterID": "rome", "clusterMappings": {"172.18.0.9": "192.168.0.46"}}});
        ours.patch("natmapping-rome", &PatchParams::apply("somebody"), &Patch::Apply(more)).await?;
        // An address that we have given out is ours.
        let clash = json!({"spec": {"clusterMappings": {"172.18.0.8": address}}});
        ours.patch("natmapping-1", &PatchParams::default(), &Patch::Merge(clash)).await?;
        eventually("both are in force", || async {
            ensure!(gateway.rule("rome", "172.18.0.9").is_some(), "not the new one");
            ensure!(gateway.rule("rome", "172.18.0.3").as_ref() == Some(&address), "not ours");
            ensure!(gateway.rule("rome", "172.18.0.8").is_none(), "two endpoints have one address");
            Ok(())
        })
        .await?;

        stage.handle.release("rome").await?;
        eventually("only what others wrote stays", || async {
            let mapping = ours.get("natmapping-rome").await?;
            let expected = [("172.18.0.9".to_owned(), "192.168.0.46".to_owned())].into();
            ensure!(mapping.spec.cluster_mappings == expected, "{:?}", mapping.spec);
            ensure!(
                gateway.rule("rome", "172.18.0.3").is_none() && gateway.count() == 3,
                "{}",
                gateway.count()
            );
            Ok(())
        })
        .await?;
        for name in ["natmapping-rome", "natmapping-1"] {
            ours.delete(name, &DeleteParams::default()).await?;
        }
        eventually("nothing is in force", || async {
            ensure!(gateway.count() == 0, "{} are", gateway.count());
            Ok(())
        })
        .await?;
        stage.end().await;
        Ok(())
    })
}

#[test]
fn a_release_forgets_everything() -> Result<()> {
    block_on(async {
        let stage = Stage::new(16).await?;
        let gateway = stage.gateway(Manner::Promptly).await?;
        stage.meet("turin", 2).await?;
        stage.map("turin", "172.18.0.1".parse()?).await?;
        let before = stage.storage().await?.pop().context("no storage")?.spec;
        stage.meet("rome", 1).await?;
        for host in 1..=5_u8 {
            stage.map("rome", [172, 18, 0, host].into()).await?;
        }
        stage.handle.release("rome").await?;
        let mut after = stage.storage().await?.pop().context("no storage")?.spec;
        // Where to look next, and that addresses and names rest, is all that may be remembered.
        after.prefixes.retain(|_, record| !String::from_utf8_lossy(&record.0).contains("since"));
        let (networks, known): (Vec<_>, Vec<_>) =
            (after.prefixes.keys().collect(), before.prefixes.keys().collect());
        ensure!(networks == known, "{networks:?} is not {known:?}");
        after.prefixes.clone_from(&before.prefixes);
        ensure!(after == before, "{after:?} is not {before:?}");
        eventually("its NatMapping and rules are gone", || async {
            ensure!(stage.mappings().get_opt("natmapping-rome").await?.is_none(), "not yet");
            ensure!(gateway.count() == 1, "{} rules", gateway.count());
            Ok(())
        })
        .await?;
        refused(
            stage.client("controller").await?.map_endpoint_ip(map("rome", "172.18.0.1")).await,
            Code::NotFound,
        )?;
        stage.end().await;
        Ok(())
    })
}
