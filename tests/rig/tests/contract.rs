//! The kinds on a real API server: installed without a warning, explained, and strict about what they accept.

use std::process::{Output, Stdio};

use anyhow::{Context, Result, ensure};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use rig::plan::ClusterSpec;
use rig::tools::workspace;
use rig::topology::{Cluster, Topology, built};
use rig::wait::{block_on, eventually};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;
use tokio::sync::OnceCell;

static TOPOLOGY: OnceCell<Topology> = OnceCell::const_new();

/// A bare cluster with the kinds installed, by the very command that the documentation gives.
async fn cluster() -> Result<&'static Cluster> {
    let start = || async {
        let spec = ClusterSpec { bare: true, ..ClusterSpec::named("a") };
        let topology = Topology::up("contract", vec![spec]).await?;
        let printed = tokio::process::Command::new(built("ferro")?).arg("crds").output().await?;
        ensure!(printed.status.success(), "ferro crds failed");
        let applied =
            kubectl(topology.cluster("a")?, &["apply", "--server-side", "-f", "-"], &printed.stdout).await?;
        ensure!(applied.status.success() && applied.stderr.is_empty(), "{}", text(&applied));
        let lines = String::from_utf8_lossy(&applied.stdout).lines().count();
        ensure!(lines == ferro_api::crds().len(), "{lines} definitions were applied");
        topology
            .cluster("a")?
            .kubectl(&["wait", "--for=condition=Established", "crd", "--all", "--timeout=300s"])
            .await?;
        are_served(topology.cluster("a")?).await?;
        Ok(topology)
    };
    TOPOLOGY.get_or_try_init(start).await?.cluster("a")
}

/// Waits until the API server tells of all kinds, which it does a moment after they are established.
async fn are_served(cluster: &Cluster) -> Result<()> {
    for definition in ferro_api::crds() {
        let kind = format!("{}.{}", definition.spec.names.plural, definition.spec.group);
        eventually(&format!("{kind} is served"), || async {
            cluster.kubectl(&["get", &kind, "--all-namespaces"]).await.map(drop)
        })
        .await?;
    }
    Ok(())
}

async fn kubectl(cluster: &Cluster, arguments: &[&str], input: &[u8]) -> Result<Output> {
    let mut command = cluster.kubectl_command();
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn()?;
    child.stdin.take().context("kubectl reads")?.write_all(input).await?;
    Ok(child.wait_with_output().await?)
}

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

async fn create(cluster: &Cluster, manifest: &Value) -> Result<Output> {
    kubectl(
        cluster,
        &["create", "--validate=strict", "--dry-run=server", "-f", "-"],
        manifest.to_string().as_bytes(),
    )
    .await
}

#[test]
fn all_kinds_are_listed_together_and_explained_to_the_last_field() -> Result<()> {
    block_on(async {
        let cluster = cluster().await?;
        eventually("kubectl get liqo", || async {
            let output = kubectl(cluster, &["get", "liqo", "-A"], b"").await?;
            ensure!(output.status.success(), "{}", text(&output));
            Ok(())
        })
        .await?;
        for definition in ferro_api::crds() {
            // Schemas are published later than kinds are served.
            let kind = definition.spec.names.kind.as_str();
            eventually(&format!("{kind} is explained"), || is_explained(cluster, &definition)).await?;
        }
        Ok(())
    })
}

/// Whether kubectl explains a kind, and the API server publishes what every field of it means.
async fn is_explained(cluster: &Cluster, definition: &CustomResourceDefinition) -> Result<()> {
    let (plural, group) = (&definition.spec.names.plural, &definition.spec.group);
    let explained = cluster.kubectl(&["explain", "--recursive", &format!("{plural}.{group}")]).await?;
    ensure!(explained.contains("DESCRIPTION") && !explained.contains("<empty>"), "{explained}");
    let path = format!("/openapi/v3/apis/{group}/v1alpha1");
    let published: Value = serde_json::from_str(&cluster.kubectl(&["get", "--raw", &path]).await?)?;
    let kind = definition.spec.names.kind.as_str();
    let schemas =
        published["components"]["schemas"].as_object().context("the API server publishes schemas")?;
    let (_, schema) =
        schemas.iter().find(|(name, _)| name.ends_with(&format!(".{kind}"))).context("and this kind's")?;
    for part in ["spec", "status"] {
        let bare = undescribed(&schema["properties"][part], &format!("{kind}.{part}"));
        ensure!(bare.is_empty(), "without description: {bare:?}");
    }
    Ok(())
}

/// The fields without a description, below the ones of Kubernetes' own types.
fn undescribed(schema: &Value, path: &str) -> Vec<String> {
    let mut found = Vec::new();
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        let path = format!("{path}.{name}");
        if field["description"].as_str().is_none_or(str::is_empty) {
            found.push(path.clone());
        }
        found.extend(undescribed(field, &path));
    }
    for inner in
        [&schema["items"], &schema["additionalProperties"]].into_iter().filter(|inner| inner.is_object())
    {
        found.extend(undescribed(inner, path));
    }
    found
}

#[test]
fn every_manifest_of_the_seeds_is_accepted_with_strict_validation() -> Result<()> {
    block_on(async {
        let cluster = cluster().await?;
        let mut files = 0;
        for entry in std::fs::read_dir(workspace().join("examples/seeds"))? {
            let path = entry?.path();
            if path.extension().is_none_or(|extension| extension != "yaml") {
                continue;
            }
            let manifest: Value = serde_saphyr::from_str(&std::fs::read_to_string(&path)?)?;
            if let Some(namespace) = manifest["metadata"]["namespace"].as_str() {
                let object =
                    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
                cluster.apply(&object.to_string()).await?;
            }
            eventually("the manifest is accepted", || async {
                let file = path.display().to_string();
                let output =
                    kubectl(cluster, &["create", "--validate=strict", "--dry-run=server", "-f", &file], b"")
                        .await?;
                // A pod needs its namespace's ServiceAccount, which the controller-manager makes in a moment.
                ensure!(output.status.success() && output.stderr.is_empty(), "{file}: {}", text(&output));
                Ok(())
            })
            .await?;
            files += 1;
        }
        ensure!(files >= 40, "only {files} manifests");
        Ok(())
    })
}

#[test]
fn what_is_wrong_is_refused_by_the_name_of_its_field() -> Result<()> {
    block_on(async {
        let cluster = cluster().await?;
        let offloading = |spec: Value| {
            json!({"apiVersion": "offloading.liqo.io/v1alpha1", "kind": "NamespaceOffloading",
                "metadata": {"name": "offloading", "namespace": "default"}, "spec": spec})
        };
        let network = |change: (&str, &str)| {
            let mut spec = json!({"clusterID": "cluster-1", "podCIDR": "10.0.0.0/24", "externalCIDR": "10.1.0.0/24",
                "endpointIP": "192.0.2.1", "backendType": "wireguard"});
            spec[change.0] = change.1.into();
            json!({"apiVersion": "net.liqo.io/v1alpha1", "kind": "NetworkConfig",
                "metadata": {"name": "n", "namespace": "default"}, "spec": spec})
        };
        let named = |name: &str| {
            json!({"apiVersion": "offloading.liqo.io/v1alpha1", "kind": "LiqoDeployment",
                "metadata": {"name": name, "namespace": "default"},
                "spec": {"template": {"spec": {"selector": {"matchLabels": {"a": "b"}}, "template": {
                    "metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}}}}})
        };
        ensure!(create(cluster, &named("short")).await?.status.success(), "the short name is fine");
        let mut another = offloading(json!({}));
        another["metadata"]["name"] = "another".into();
        for (manifest, field) in [
            (offloading(json!({"podOffloadingStrategy": "Sometimes"})), "spec.podOffloadingStrategy"),
            (offloading(json!({"podOffloadingPolicy": "Local"})), "spec.podOffloadingPolicy"),
            (network(("podCIDR", "10.0.0.0/40")), "spec.podCIDR"),
            (network(("externalCIDR", "here")), "spec.externalCIDR"),
            (network(("endpointIP", "300.1.1.1")), "spec.endpointIP"),
            (named(&"x".repeat(60)), "metadata.name"),
            (another, "metadata.name must be offloading"),
        ] {
            let output = create(cluster, &manifest).await?;
            ensure!(!output.status.success() && text(&output).contains(field), "{field}: {}", text(&output));
        }
        // Under another name, what is on other clusters already would have to move.
        cluster.apply(&offloading(json!({})).to_string()).await?;
        let strategy = json!({"spec": {"namespaceMappingStrategy": "EnforceSameName"}}).to_string();
        let change = ["patch", "namespaceoffloading", "offloading", "--type=merge", "-p", &strategy];
        let output = kubectl(cluster, &change, b"").await?;
        let is_refused =
            !output.status.success() && text(&output).contains("namespaceMappingStrategy cannot be changed");
        ensure!(is_refused, "{}", text(&output));
        cluster.kubectl(&["delete", "namespaceoffloading", "offloading"]).await.map(drop)
    })
}
