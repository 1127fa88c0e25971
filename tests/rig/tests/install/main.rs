//! The installation: the embedded chart is the chart that Helm renders, and what comes with it goes with it.

mod chart;
mod network;
mod rights;

use std::path::PathBuf;
use std::process::Output;

use anyhow::{Context, Result, ensure};
use http::Request;
use rig::objects::{at_rest, await_same, everything};
use rig::plan::ClusterSpec;
use rig::tools::{Tools, workspace};
use rig::topology::{Cluster, Topology, built};
use rig::wait::block_on;
use serde_json::{Value, json};
use tokio::process::Command;
use tokio::sync::{Mutex, MutexGuard, OnceCell};

static TOPOLOGY: OnceCell<Topology> = OnceCell::const_new();
static TURN: Mutex<()> = Mutex::const_new(());

/// A bare cluster, for one test at a time, since a cluster has one installation.
async fn cluster() -> Result<(&'static Cluster, MutexGuard<'static, ()>)> {
    let turn = TURN.lock().await;
    let start = || async {
        let spec = ClusterSpec { bare: true, ..ClusterSpec::named("a") };
        Topology::up("install", vec![spec]).await
    };
    let cluster = TOPOLOGY.get_or_try_init(start).await?.cluster("a")?;
    // What a test that failed left behind is not the next one's business.
    ferro_says(cluster, &["uninstall", "--yes", "--force", "--wait"]).await?;
    Ok((cluster, turn))
}

/// ferro without a cluster.
fn ferro() -> Result<Command> {
    let mut command = Command::new(built("ferro")?);
    command.env("KUBECONFIG", "/nonexistent").env_remove("KUBERNETES_SERVICE_HOST").kill_on_drop(true);
    Ok(command)
}

/// Helm without a cluster, and without a home to write to.
fn helm() -> Result<Command> {
    let home = std::env::temp_dir().join(format!("ferro-install-helm-{}", std::process::id()));
    let mut command = Command::new(Tools::cache()?.check()?.path("helm"));
    command.env("KUBECONFIG", "/nonexistent").kill_on_drop(true);
    for folder in ["HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME"] {
        command.env(folder, &home);
    }
    Ok(command)
}

fn chart_folder() -> PathBuf {
    workspace().join("deploy/chart")
}

async fn ferro_says(cluster: &Cluster, arguments: &[&str]) -> Result<String> {
    said(&ferro()?.env("KUBECONFIG", &cluster.kubeconfig).args(arguments).output().await?)
}

async fn helm_says(cluster: &Cluster, arguments: &[&str]) -> Result<String> {
    said(&helm()?.env("KUBECONFIG", &cluster.kubeconfig).args(arguments).output().await?)
}

fn said(output: &Output) -> Result<String> {
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[test]
fn what_is_installed_is_there_once_and_nothing_stays_when_it_goes() -> Result<()> {
    block_on(async {
        let (cluster, _turn) = cluster().await?;
        let before = at_rest(cluster).await?;

        let first = ferro_says(cluster, &["install", "--cluster-name", "milan"]).await?;
        ensure!(first.contains("namespace/liqo created") && first.contains("as cluster milan"), "{first}");
        let second = ferro_says(cluster, &["install"]).await?;
        ensure!(
            second.lines().count() == 1 && second.ends_with("as cluster milan: nothing to change\n"),
            "{second}"
        );
        let config =
            cluster.kubectl(&["get", "clusterconfig", "liqo-configuration", "--output=json"]).await?;
        let config: Value = serde_json::from_str(&config)?;
        ensure!(config["spec"]["discoveryConfig"]["name"] == "milan", "{config:#}");

        let removed = ferro_says(cluster, &["uninstall", "--yes", "--wait"]).await?;
        ensure!(removed.contains("namespace/liqo removed"), "{removed}");
        await_same(cluster, &before).await?;
        let again = ferro_says(cluster, &["uninstall", "--yes"]).await?;
        ensure!(again.contains("nothing to remove"), "{again}");
        Ok(())
    })
}

#[test]
fn a_later_run_changes_what_differs_removes_what_is_gone_and_spares_what_people_set() -> Result<()> {
    block_on(async {
        let (cluster, _turn) = cluster().await?;
        let before = at_rest(cluster).await?;
        cluster.kubectl(&["create", "namespace", "own"]).await?;

        ferro_says(cluster, &["install", "--namespace", "own", "--set", "clusterLabels.zone=a"]).await?;
        let leftover = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "ferro-old",
            "namespace": "own", "labels": {"app.kubernetes.io/part-of": "ferrofluid"}}});
        let url = "/api/v1/namespaces/own/serviceaccounts/ferro-old?fieldManager=ferro-install";
        let request = Request::patch(url)
            .header("Content-Type", "application/apply-patch+yaml")
            .body(serde_json::to_vec(&leftover)?)?;
        cluster.client.request::<Value>(request).await?;
        cluster.kubectl(&["delete", "clusterrole", "ferro-peer"]).await?;

        let other = ferro_says(cluster, &["install"]).await.err().context("a second one")?.to_string();
        ensure!(other.contains("in the namespace own already"), "{other}");
        let update = ferro_says(cluster, &["install", "--namespace", "own"]).await?;
        for line in [
            "clusterrole/ferro-peer created",
            "clusterconfig/liqo-configuration changed",
            "serviceaccount/ferro-old removed",
        ] {
            ensure!(update.contains(line), "{line}: {update}");
        }

        let patch = r#"{"spec":{"advertisementConfig":{"ingoingConfig":{"acceptPolicy":"Manual"}}}}"#;
        cluster
            .kubectl(&["patch", "clusterconfig", "liqo-configuration", "--type=merge", "--patch", patch])
            .await?;
        let conflict =
            ferro_says(cluster, &["install", "--namespace", "own"]).await.err().context("a conflict")?;
        ensure!(conflict.to_string().contains(".acceptPolicy; to keep that"), "{conflict}");
        let agreed = "advertisement.ingoingConfig.acceptPolicy=Manual";
        ferro_says(cluster, &["install", "--namespace", "own", "--set", agreed]).await?;
        ferro_says(cluster, &["install", "--namespace", "own", "--force-conflicts"]).await?;

        ferro_says(cluster, &["uninstall", "--yes", "--wait"]).await?;
        let namespaces = cluster.kubectl(&["get", "namespaces", "--output=name"]).await?;
        ensure!(
            namespaces.contains("namespace/own\n"),
            "a namespace that was there before stays: {namespaces}"
        );
        cluster.kubectl(&["delete", "namespace", "own"]).await?;
        await_same(cluster, &before).await
    })
}

#[test]
fn peers_and_unfinished_work_keep_an_installation_until_it_is_forced_out() -> Result<()> {
    block_on(async {
        let (cluster, _turn) = cluster().await?;
        let before = at_rest(cluster).await?;
        ferro_says(cluster, &["install"]).await?;
        let peer = |join: bool| {
            json!({"apiVersion": "discovery.liqo.io/v1alpha1", "kind": "ForeignCluster",
                "metadata": {"name": "b", "finalizers": ["discovery.liqo.io/peering"]},
                "spec": {"authUrl": "b.example.org", "join": join}})
        };
        let tenant = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "liqo-tenant-b",
            "labels": {"app.kubernetes.io/part-of": "ferrofluid"}}});
        let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "liqo-b",
            "labels": {"liqo.io/type": "virtual-node"}}});
        let shop = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop",
            "labels": {"liqo.io/enabled": "true", "offloading.liqo.io/admitted": "true"}}});
        let offloading = json!({"apiVersion": "offloading.liqo.io/v1alpha1", "kind": "NamespaceOffloading",
            "metadata": {"name": "offloading", "namespace": "shop", "finalizers": ["offloading.liqo.io/namespaces"]},
            "spec": {}});
        let consumer = "d14e610e-4c1b-802c-a5f1-5ef6f39c0490";
        let guest = json!({"apiVersion": "tenancy.liqo.io/v1alpha1", "kind": "Tenant",
            "metadata": {"name": consumer, "finalizers": ["tenancy.liqo.io/namespaces"]},
            "spec": {"cluster": {"clusterID": consumer}}});
        for object in [&peer(true), &tenant, &node, &shop, &offloading, &guest] {
            cluster.apply(&object.to_string()).await?;
        }
        let installed = everything(cluster).await?;

        let peered = ferro_says(cluster, &["uninstall", "--yes"]).await.err().context("a peer")?.to_string();
        ensure!(peered.contains("shares with b") && peered.contains("ferro unpeer b"), "{peered}");
        cluster.apply(&peer(false).to_string()).await?;
        let held = ferro_says(cluster, &["uninstall", "--yes"]).await.err().context("nobody")?.to_string();
        ensure!(held.contains("does not run") && held.contains("foreigncluster/b"), "{held}");
        ensure!(held.contains("namespaceoffloading/offloading"), "{held}");
        let now = everything(cluster).await?;
        let lost: Vec<_> = installed.difference(&now).collect();
        ensure!(lost.is_empty(), "a refusal leaves everything as it is, but these are gone: {lost:?}");

        cluster.apply(&peer(true).to_string()).await?;
        let forced = ferro_says(cluster, &["uninstall", "--yes", "--force", "--wait"]).await?;
        ensure!(forced.contains("Left behind on b"), "{forced}");
        ensure!(forced.contains("took the label liqo.io/enabled off the namespaces shop"), "{forced}");
        let labels =
            cluster.kubectl(&["get", "namespace", "shop", "-o", "jsonpath={.metadata.labels}"]).await?;
        ensure!(!labels.contains("liqo.io"), "the namespace stays, without our labels: {labels}");
        cluster.kubectl(&["delete", "namespace", "shop"]).await?;
        await_same(cluster, &before).await
    })
}

#[test]
fn plain_helm_installs_and_either_tool_removes() -> Result<()> {
    block_on(async {
        let (cluster, _turn) = cluster().await?;
        let before = at_rest(cluster).await?;
        let chart = chart_folder().display().to_string();
        let install = [
            "install",
            "fluid",
            &chart,
            "--namespace",
            "liqo",
            "--create-namespace",
            "--set",
            "clusterName=milan",
        ];

        helm_says(cluster, &install).await?;
        let refused = ferro_says(cluster, &["install"]).await.err().context("Helm's")?.to_string();
        ensure!(refused.contains("helm upgrade fluid --namespace liqo"), "{refused}");
        helm_says(
            cluster,
            &["upgrade", "fluid", &chart, "--namespace", "liqo", "--set", "controller.replicas=2"],
        )
        .await?;
        helm_says(cluster, &["uninstall", "fluid", "--namespace", "liqo", "--wait"]).await?;
        ferro_says(cluster, &["uninstall", "--yes", "--wait"]).await?;
        cluster.kubectl(&["delete", "namespace", "liqo"]).await?;
        await_same(cluster, &before).await.context("after helm uninstall")?;

        helm_says(cluster, &install).await?;
        ferro_says(cluster, &["uninstall", "--yes", "--wait"]).await?;
        cluster.kubectl(&["delete", "namespace", "liqo"]).await?;
        await_same(cluster, &before).await.context("after ferro uninstall")
    })
}
