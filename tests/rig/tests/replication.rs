//! Replication between two real API servers: spec goes there, status comes back, and cuts lose nothing.

use std::sync::LazyLock;

use anyhow::{Context, Result, ensure};
use ferro_api::crds;
use ferro_api::discovery::ResourceRequest;
use ferro_api::names::{finalizers, labels};
use ferro_core::replication::rules;
use ferro_peering::replicator::{self, Ends, Originals};
use ferro_runtime::shutdown::Tasks;
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt as _};
use rig::plan::ClusterSpec;
use rig::topology::{Cluster, Topology};
use rig::wait::{block_on, eventually};
use serde_json::json;
use tokio::sync::OnceCell;

static TOPOLOGY: OnceCell<Topology> = OnceCell::const_new();
static TASKS: LazyLock<Tasks> = LazyLock::new(Tasks::default);

const US: &str = "0a1b2c3d-0000-8000-8000-00000000000a";
const PEER: &str = "0a1b2c3d-0000-8000-8000-00000000000b";

/// Two bare clusters with the kinds and with a tenant namespace for each other.
async fn topology() -> Result<&'static Topology> {
    TOPOLOGY.get_or_try_init(|| start("replication")).await
}

async fn start(name: &str) -> Result<Topology> {
    let spec = |name| ClusterSpec { bare: true, ..ClusterSpec::named(name) };
    let topology = Topology::up(name, vec![spec("a"), spec("b")]).await?;
    for name in ["a", "b"] {
        let cluster = topology.cluster(name)?;
        let definitions: Api<CustomResourceDefinition> = Api::all(cluster.client.clone());
        for definition in crds() {
            definitions
                .patch(&definition.name_any(), &PatchParams::apply("test"), &Patch::Apply(&definition))
                .await?;
        }
        cluster.kubectl(&["wait", "--for=condition=Established", "crd", "--all", "--timeout=300s"]).await?;
    }
    Ok(topology)
}

/// A pair of tenant namespaces of its own for each test, with replication between them.
struct Pair {
    here: Api<ResourceRequest>,
    there: Api<ResourceRequest>,
    tasks: Tasks,
}

async fn pair(topology: &Topology, name: &str) -> Result<Pair> {
    let (a, b) = (topology.cluster("a")?, topology.cluster("b")?);
    let (local, remote) = (format!("tenant-b-{name}"), format!("tenant-a-{name}"));
    for (cluster, namespace) in [(a, &local), (b, &remote)] {
        let object: Namespace = serde_json::from_value(json!({"metadata": {"name": namespace}}))?;
        Api::all(cluster.client.clone()).create(&PostParams::default(), &object).await?;
    }
    let pair = Pair {
        here: Api::namespaced(a.client.clone(), &local),
        there: Api::namespaced(b.client.clone(), &remote),
        tasks: TASKS.child(),
    };
    pair.start(a, b, local, remote);
    Ok(pair)
}

impl Pair {
    fn start(&self, a: &Cluster, b: &Cluster, local_namespace: String, remote_namespace: String) {
        let ends = Ends { us: US.into(), peer: PEER.into(), local_namespace, remote_namespace };
        let originals = Originals::new(self.tasks.clone(), a.client.clone());
        replicator::start(&self.tasks, &ends, &originals, &b.client, rules(&[]), || {});
    }

    async fn copied(&self, name: &str, url: &str) -> Result<ResourceRequest> {
        eventually("the copy is there", || async {
            let copy = self.there.get(name).await?;
            ensure!(copy.spec.auth_url.as_deref() == Some(url), "it says {:?}", copy.spec.auth_url);
            Ok(copy)
        })
        .await
    }
}

fn request(name: &str, url: &str) -> Result<ResourceRequest> {
    let marks = json!({labels::REPLICATION.key(): "true", labels::REMOTE_ID.key(): PEER});
    let object = json!({"apiVersion": "discovery.liqo.io/v1alpha1", "kind": "ResourceRequest",
        "metadata": {"name": name, "labels": marks}, "spec": {"authUrl": url}});
    Ok(serde_json::from_value(object)?)
}

async fn change(api: &Api<ResourceRequest>, name: &str, url: &str) -> Result<()> {
    api.patch(name, &PatchParams::default(), &Patch::Merge(json!({"spec": {"authUrl": url}})))
        .await
        .map(drop)
        .context("cannot change it")
}

const ONE: &str = "https://one.example:30443";
const TWO: &str = "https://two.example:30443";

#[test]
fn spec_goes_there_status_comes_back_and_deletion_waits_for_the_copy() -> Result<()> {
    block_on(async {
        let pair = pair(topology().await?, "life").await?;
        pair.here.create(&PostParams::default(), &request("r", ONE)?).await?;
        let copy = pair.copied("r", ONE).await?;
        ensure!(
            labels::REPLICATED.is_on(&copy.metadata) && labels::ORIGIN_ID.of(&copy.metadata) == Some(US),
            "{copy:?}"
        );
        ensure!(!labels::REPLICATION.is_on(&copy.metadata), "a copy must not travel on");

        change(&pair.here, "r", TWO).await?;
        pair.copied("r", TWO).await?;

        let status = json!({"status": {"offerState": "Created"}});
        pair.there.patch_status("r", &PatchParams::default(), &Patch::Merge(status)).await?;
        eventually("the status is home", || async {
            let original = pair.here.get("r").await?;
            ensure!(
                original.status.as_ref().is_some_and(
                    |status| serde_json::to_value(status).is_ok_and(|it| it["offerState"] == "Created")
                ),
                "{:?}",
                original.status
            );
            ensure!(original.finalizers().contains(&finalizers::REPLICATION.to_owned()), "it must be held");
            Ok(())
        })
        .await?;

        // What is changed over there is changed back; what is deleted over there is made again.
        change(&pair.there, "r", ONE).await?;
        pair.copied("r", TWO).await?;
        pair.there.delete("r", &DeleteParams::default()).await?;
        pair.copied("r", TWO).await?;

        pair.here.delete("r", &DeleteParams::default()).await?;
        eventually("both are gone", || async {
            ensure!(
                pair.here.get_opt("r").await?.is_none() && pair.there.get_opt("r").await?.is_none(),
                "not yet"
            );
            Ok(())
        })
        .await?;
        pair.tasks.end().await;
        Ok(())
    })
}

#[test]
fn what_others_made_over_there_is_left_alone() -> Result<()> {
    block_on(async {
        let pair = pair(topology().await?, "foreign").await?;
        let mut foreign = request("r", TWO)?;
        foreign.metadata.labels = None;
        pair.there.create(&PostParams::default(), &foreign).await?;
        pair.here.create(&PostParams::default(), &request("r", ONE)?).await?;
        pair.here.create(&PostParams::default(), &request("other", ONE)?).await?;
        pair.copied("other", ONE).await?;
        ensure!(pair.there.get("r").await?.spec.auth_url.as_deref() == Some(TWO), "it was overwritten");
        pair.here.delete("r", &DeleteParams::default()).await?;
        eventually("the original goes", || async {
            ensure!(pair.here.get_opt("r").await?.is_none(), "not yet");
            Ok(())
        })
        .await?;
        ensure!(pair.there.get_opt("r").await?.is_some(), "it was deleted");
        pair.tasks.end().await;
        Ok(())
    })
}

#[test]
fn a_cut_loses_nothing_that_happened_meanwhile_on_either_side() -> Result<()> {
    block_on(async {
        // A topology of its own: the others must not feel the dead API server.
        let topology = start("replication-cut").await?;
        let pair = pair(&topology, "cut").await?;
        for name in ["changed", "deleted"] {
            pair.here.create(&PostParams::default(), &request(name, ONE)?).await?;
            pair.copied(name, ONE).await?;
        }
        // This machine is the client of both, so the cut that counts is a dead API server on the peer's side.
        topology.kill("b/kube-apiserver").await?;
        change(&pair.here, "changed", TWO).await?;
        pair.here.delete("deleted", &DeleteParams::default()).await?;
        pair.here.create(&PostParams::default(), &request("new", ONE)?).await?;
        topology.restart("b/kube-apiserver").await?;
        pair.copied("changed", TWO).await?;
        pair.copied("new", ONE).await?;
        eventually("the deleted one is gone on both sides", || async {
            ensure!(
                pair.here.get_opt("deleted").await?.is_none()
                    && pair.there.get_opt("deleted").await?.is_none(),
                "not yet"
            );
            Ok(())
        })
        .await?;
        pair.tasks.end().await;
        Ok(())
    })
}
