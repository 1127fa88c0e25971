//! What each consumer is offered, as the provider's nodes, pods and configuration change; figures computed by hand.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use ferro_api::discovery::PeeringState::{Established, None as Unpeered};
use ferro_api::names::labels;
use ferro_api::sharing::ResourceOffer;
use futures::future::try_join_all;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::storage::v1::StorageClass;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt as _};
use rig::site::Site;
use rig::wait::{block_on, eventually};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::{Stage, ask, configure, id_of, node_of, offer_of};

const NODE: &str = "turin-1";
/// Offers are confirmed every 20 s; what comes sooner did not wait for that.
const SOON: Duration = Duration::from_secs(20);

/// Amounts of cpu, memory and pods, as an API server writes them.
type Figures = [&'static str; 3];

#[test]
fn each_consumer_is_offered_what_is_free_for_it() -> Result<()> {
    block_on(async {
        let clusters: [(&str, &[&str]); 3] = [("turin", &[]), ("rome", &[]), ("milan", &[])];
        let mut stage = Stage::set("offers", &clusters).await?;
        let [turin, rome, milan] = stage.three()?;
        let _kubelet = start_node(turin, ["10", "20Gi", "100"]).await?;
        for consumer in [&*rome, &*milan] {
            ask(consumer, turin).await?;
            consumer.reaches(turin, Established, Unpeered).await?;
        }
        // 80 % of 10 CPUs, 20 Gi and 100 pods.
        both_see(rome, ["8", "16Gi", "80"], milan, ["8", "16Gi", "80"], turin).await?;

        let begin = Instant::now();
        start_pod(turin, "web", "2", "5Gi", None).await?;
        // 80 % of 8 CPUs, 15 Gi and 99 pods.
        both_see(rome, ["6400m", "12Gi", "79"], milan, ["6400m", "12Gi", "79"], turin).await?;
        let taken = begin.elapsed();
        println!("a pod on the provider is seen by both consumers after {taken:.1?}");
        ensure!(taken < SOON, "the consumers saw it only after {taken:?}");

        let of_rome = id_of(turin, rome).await?;
        start_pod(turin, "of-rome", "1", "2560Mi", Some(&of_rome)).await?;
        // For rome, its own pod takes nothing away. For milan, 80 % of 7 CPUs, 12.5 Gi and 98 pods are left.
        both_see(rome, ["6400m", "12Gi", "79"], milan, ["5600m", "10Gi", "78"], turin).await?;

        configure(turin, &outgoing(&json!({"resourceSharingPercentage": 50}))).await?;
        // 50 % of 8 CPUs, 15 Gi, 99 pods, and of 7 CPUs, 12.5 Gi, 98 pods.
        both_see(rome, ["4", "7680Mi", "49"], milan, ["3500m", "6400Mi", "49"], turin).await?;

        stop_pod(turin, "web").await?;
        // 50 % of 10 CPUs, 20 Gi, 100 pods, and of 9 CPUs, 17.5 Gi, 99 pods.
        both_see(rome, ["5", "10Gi", "50"], milan, ["4500m", "8960Mi", "49"], turin).await?;

        configure(turin, &outgoing(&json!({"prices": {"cpu": "30m", "memory": "2m"}}))).await?;
        add_storage_class(turin, "fast").await?;
        eventually("prices and storage classes arrive", || async {
            for consumer in [&*rome, &*milan] {
                let offer = offer_of(consumer, turin).await?.spec;
                ensure!(offer.prices == quantities([("cpu", "30m"), ("memory", "2m")]), "{:?}", offer.prices);
                let mut classes = offer.storage_classes.iter().map(|class| class.storage_class_name.as_str());
                ensure!(classes.any(|name| name == "fast"), "{:?}", offer.storage_classes);
            }
            Ok(())
        })
        .await?;
        // They came beside the figures, not in place of them.
        both_see(rome, ["5", "10Gi", "50"], milan, ["4500m", "8960Mi", "49"], turin).await
    })
}

#[test]
fn many_pods_at_once_cost_few_writes() -> Result<()> {
    block_on(async {
        let mut stage = Stage::set("chatter", &[("turin", &[]), ("rome", &[])]).await?;
        let [turin, rome] = stage.two()?;
        let _kubelet = start_node(turin, ["10", "20Gi", "100"]).await?;
        ask(rome, turin).await?;
        sees(rome, turin, ["8", "16Gi", "80"]).await?;
        let before = generation(turin).await?;

        let names: Vec<String> = (0..30).map(|number| format!("web-{number}")).collect();
        try_join_all(names.iter().map(|name| start_pod(turin, name, "200m", "100Mi", None))).await?;
        // 80 % of 10 - 30 * 0.2 CPUs, of 20480 - 30 * 100 Mi, and of 70 pods.
        sees(rome, turin, ["3200m", "13984Mi", "56"]).await?;
        let started = generation(turin).await?;
        try_join_all(names.iter().map(|name| stop_pod(turin, name))).await?;
        sees(rome, turin, ["8", "16Gi", "80"]).await?;
        let stopped = generation(turin).await?;
        for (what, writes) in [("started", started - before), ("stopped", stopped - started)] {
            println!("30 pods {what} at once: {writes} writes of the offer");
            ensure!((1..10).contains(&writes), "30 pods {what} led to {writes} writes of the offer");
        }
        Ok(())
    })
}

/// A real node, as far as an API server can tell; its kubelet is a task that renews its Lease.
async fn start_node(site: &Site, allocatable: Figures) -> Result<JoinSet<Result<()>>> {
    let amounts = quantities(named(allocatable));
    let ready = json!({"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "",
        "lastHeartbeatTime": Timestamp::now(), "lastTransitionTime": Timestamp::now()});
    let status = json!({"allocatable": amounts, "capacity": amounts, "conditions": [ready]});
    let node: Node = serde_json::from_value(json!({"metadata": {"name": NODE}, "status": status}))?;
    let leases: Api<Lease> = Api::namespaced(site.admin.clone(), "kube-node-lease");
    let lease = json!({
        "metadata": {"name": NODE},
        "spec": {"holderIdentity": NODE, "leaseDurationSeconds": 40, "renewTime": MicroTime(Timestamp::now())},
    });
    leases.create(&PostParams::default(), &serde_json::from_value(lease)?).await?;
    Api::<Node>::all(site.admin.clone()).create(&PostParams::default(), &node).await?;
    let mut kubelet = JoinSet::new();
    kubelet.spawn(async move {
        loop {
            tokio::time::sleep(Duration::from_secs(10)).await;
            let renewed = Patch::Merge(json!({"spec": {"renewTime": MicroTime(Timestamp::now())}}));
            // One that fails is made up for by the next.
            _ = leases.patch(NODE, &PatchParams::default(), &renewed).await;
        }
    });
    Ok(kubelet)
}

/// A pod on that node, of this cluster or of a consumer.
async fn start_pod(site: &Site, name: &str, cpu: &str, memory: &str, origin: Option<&str>) -> Result<()> {
    let labels: BTreeMap<_, _> = origin.map(|origin| (labels::ORIGIN_ID.key(), origin)).into_iter().collect();
    let container =
        json!({"name": "main", "image": "none", "resources": {"requests": {"cpu": cpu, "memory": memory}}});
    let spec = json!({"nodeName": NODE, "containers": [container]});
    let pod: Pod =
        serde_json::from_value(json!({"metadata": {"name": name, "labels": labels}, "spec": spec}))?;
    let pods: Api<Pod> = Api::namespaced(site.admin.clone(), "default");
    // The controller-manager may not have made the namespace's service account yet.
    eventually("the pod can be created", || async {
        match pods.create(&PostParams::default(), &pod).await {
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
            created => Ok(created.map(drop)?),
        }
    })
    .await
}

/// Without a kubelet nobody could confirm that it has stopped.
async fn stop_pod(site: &Site, name: &str) -> Result<()> {
    let pods: Api<Pod> = Api::namespaced(site.admin.clone(), "default");
    pods.delete(name, &DeleteParams::default().grace_period(0)).await?;
    Ok(())
}

async fn add_storage_class(site: &Site, name: &str) -> Result<()> {
    let class: StorageClass =
        serde_json::from_value(json!({"metadata": {"name": name}, "provisioner": "example.org/disks"}))?;
    Api::all(site.admin.clone()).create(&PostParams::default(), &class).await?;
    Ok(())
}

/// How often what the only offer of a provider says was written.
async fn generation(provider: &Site) -> Result<i64> {
    let offers: Api<ResourceOffer> = Api::all(provider.admin.clone());
    let offers = offers.list(&ListParams::default().labels(&labels::REPLICATION.selector())).await?.items;
    let [offer] = &offers[..] else { anyhow::bail!("{} offers", offers.len()) };
    offer.metadata.generation.with_context(|| format!("{} has no generation", offer.name_any()))
}

/// Waits until a consumer sees exactly these figures: in the offer, on the node, and beside the peer.
async fn sees(consumer: &Site, provider: &Site, figures: Figures) -> Result<()> {
    let expected = quantities(named(figures));
    eventually(&format!("{} sees {figures:?}", consumer.name), || async {
        let offer = offer_of(consumer, provider).await?.spec.resource_quota;
        let node = node_of(consumer, provider).await?.status.and_then(|status| status.allocatable);
        let outgoing = consumer.peer(provider).await?.status.and_then(|status| status.outgoing);
        let shown = outgoing.and_then(|outgoing| outgoing.resource_quota);
        for (place, quantities) in [
            ("offer", offer.map(|quota| quota.hard)),
            ("node", node),
            ("ForeignCluster", shown.map(|quota| quota.hard)),
        ] {
            ensure!(quantities.as_ref() == Some(&expected), "{place} of {}: {quantities:?}", consumer.name);
        }
        Ok(())
    })
    .await
}

async fn both_see(a: &Site, of_a: Figures, b: &Site, of_b: Figures, provider: &Site) -> Result<()> {
    sees(a, provider, of_a).await?;
    sees(b, provider, of_b).await?;
    // What the second one was given is not taken from the first.
    sees(a, provider, of_a).await
}

fn named([cpu, memory, pods]: Figures) -> [(&'static str, &'static str); 3] {
    [("cpu", cpu), ("memory", memory), ("pods", pods)]
}

fn quantities<const N: usize>(amounts: [(&str, &str); N]) -> BTreeMap<String, Quantity> {
    amounts.map(|(name, amount)| (name.to_owned(), Quantity(amount.to_owned()))).into()
}

fn outgoing(config: &Value) -> Value {
    json!({"advertisementConfig": {"outgoingConfig": config}})
}
