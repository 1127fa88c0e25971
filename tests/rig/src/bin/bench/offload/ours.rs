//! This project's side: its controllers in this process, as the role starts them, and the peers that they have to see.

use anyhow::{Context, Result, ensure};
use ferro_api::config::ClusterConfig;
use ferro_api::discovery::ForeignCluster;
use ferro_api::names::labels;
use ferro_api::tenancy::Tenant;
use ferro_core::auth::UserName;
use ferro_offload::occupancy::Occupancy;
use ferro_offload::{namespaces, tenants};
use ferro_peering::home::Home;
use ferro_peering::{controller, identity, tenant};
use ferro_runtime::shutdown::Tasks;
use ferro_runtime::watch::Watched;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::runtime::watcher;
use kube::{Api, Client};
use rig::wait::eventually;
use serde_json::{Value, json};

use super::stage::{Map, Stage};

const NAMESPACE: &str = "liqo";
/// Where others would reach the auth service of this cluster, if there were one.
const AUTH: &str = "https://192.0.2.1:30443";

/// Starts what makes the namespaces that consumers ask for, and gives the identifier of this cluster.
pub async fn provide(tasks: &Tasks, stage: &Stage, client: Client) -> Result<String> {
    stage.make_namespace(NAMESPACE).await?;
    configure(&stage.admin).await?;
    let maps: Api<ConfigMap> = Api::namespaced(stage.admin.clone(), NAMESPACE);
    eventually("the namespace has its authorities", || async { Ok(maps.get("kube-root-ca.crt").await?) })
        .await?;
    tasks.spawn("tenants", tenants::run(tasks.clone(), home(tasks, client)));
    eventually("the cluster has an identity", || async {
        let map = maps.get(identity::NAME).await?;
        map.data.and_then(|mut data| data.remove("clusterID")).context("no clusterID")
    })
    .await
}

/// An installation has an auth service. Where none can be found, it is looked for every few seconds, and those requests
/// would be taken for what namespaces cost.
async fn configure(admin: &Client) -> Result<()> {
    let config: ClusterConfig = serde_json::from_value(json!({
        "apiVersion": "config.liqo.io/v1alpha1", "kind": "ClusterConfig",
        "metadata": {"name": "liqo-configuration"}, "spec": {"authConfig": {"url": AUTH}},
    }))?;
    Api::all(admin.clone()).create(&PostParams::default(), &config).await?;
    Ok(())
}

/// Starts what asks other clusters for namespaces.
pub fn consume(tasks: &Tasks, client: Client) {
    tasks.spawn("namespaces", namespaces::run(tasks.clone(), home(tasks, client), Occupancy::default()));
}

fn home(tasks: &Tasks, client: Client) -> Home {
    let config = Watched::start(tasks, "configuration", Api::all(client.clone()), watcher::Config::default());
    controller::home(tasks, client, NAMESPACE.to_owned(), config)
}

/// A cluster that has been let in and is offered something, with a map that asks for nothing yet.
pub async fn make_consumer(stage: &Stage, us: &str, number: usize) -> Result<Map> {
    let id = format!("00000000-0000-8000-8000-{number:012}");
    let quota = json!({"hard": {"cpu": "100", "memory": "100Gi", "pods": "1000"}});
    let incoming = json!({"state": "Established", "resourceQuota": quota});
    let namespace = make_cluster(stage, "consumer", number, &id, json!({"incoming": incoming})).await?;
    let user: UserName = format!("{id}:0").parse()?;
    tenant::admit(&stage.admin, &namespace, &user).await?;
    let map = Map { namespace, name: id.clone() };
    let marks = json!({
        labels::REPLICATED.key(): labels::REPLICATED.value(),
        labels::ORIGIN_ID.key(): id,
        labels::REMOTE_ID.key(): us,
    });
    stage.make_map(&map, &marks).await?;
    Ok(map)
}

/// Waits until consumers have their Tenants.
pub async fn await_tenants(stage: &Stage, consumers: &[Map]) -> Result<()> {
    let tenants: Api<Tenant> = Api::all(stage.admin.clone());
    eventually("all consumers have Tenants", || async {
        let all = tenants.list(&ListParams::default()).await?;
        let ready = all.items.iter().filter(|tenant| tenant.status.is_some()).count();
        ensure!(ready == consumers.len(), "{ready} of {}", consumers.len());
        Ok(())
    })
    .await
}

/// A cluster whose resources are in use, and the map that its node will have.
pub async fn make_peer(stage: &Stage, us: &str, number: usize) -> Result<Map> {
    let id = format!("00000000-0000-8000-9000-{number:012}");
    let outgoing = json!({"outgoing": {"state": "Established"}});
    let namespace = make_cluster(stage, "provider", number, &id, outgoing).await?;
    stage.make_node(&format!("liqo-provider-{number}"), &id).await?;
    Ok(Map { namespace, name: us.to_owned() })
}

/// A `ForeignCluster` with the namespace that is kept for it.
async fn make_cluster(stage: &Stage, kind: &str, number: usize, id: &str, status: Value) -> Result<String> {
    let (name, admin) = (format!("{kind}-{number}"), &stage.admin);
    let namespace = tenant::ensure_namespace(admin, &name, id).await?;
    let clusters: Api<ForeignCluster> = Api::all(admin.clone());
    let cluster: ForeignCluster = serde_json::from_value(json!({
        "apiVersion": "discovery.liqo.io/v1alpha1", "kind": "ForeignCluster", "metadata": {"name": name},
        "spec": {"clusterIdentity": {"clusterID": id, "clusterName": name}},
    }))?;
    clusters.create(&PostParams::default(), &cluster).await?;
    let mut status = status;
    status["tenantNamespaces"] = json!({"local": namespace});
    let patch = Patch::Merge(json!({"status": status}));
    clusters.patch_status(&name, &PatchParams::default(), &patch).await?;
    Ok(namespace)
}
