//! All objects of a cluster, to tell whether something was left behind.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Result, ensure};

use crate::topology::Cluster;
use crate::wait::eventually;

/// For so long nothing may come or go until an installation is at rest.
const REST: Duration = Duration::from_secs(3);

/// Every object in a cluster: kind, namespace and name; without Events, Leases and measurements, which come and go.
pub async fn everything(cluster: &Cluster) -> Result<BTreeSet<String>> {
    let resources = cluster.kubectl(&["api-resources", "--verbs=list", "--output=name"]).await?;
    let resources: Vec<_> = resources
        .lines()
        .filter(|name| !name.ends_with(".metrics.k8s.io"))
        .filter(|name| {
            !["events", "leases", "componentstatuses"].contains(&name.split('.').next().unwrap_or(name))
        })
        .collect();
    let columns = "--output=custom-columns=:apiVersion,:kind,:metadata.namespace,:metadata.name";
    let listed = cluster
        .kubectl(&[
            "get",
            &resources.join(","),
            "--all-namespaces",
            "--no-headers",
            "--ignore-not-found",
            columns,
        ])
        .await?;
    Ok(listed.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect())
}

/// The objects of a cluster that has come to rest: every namespace has what the controller-manager puts there.
pub async fn at_rest(cluster: &Cluster) -> Result<BTreeSet<String>> {
    eventually("the cluster comes to rest", || async {
        let objects = everything(cluster).await?;
        for namespace in ["default", "kube-node-lease", "kube-public", "kube-system"] {
            for kind in ["ServiceAccount {} default", "ConfigMap {} kube-root-ca.crt"] {
                let wanted = format!("v1 {}", kind.replace("{}", namespace));
                ensure!(objects.contains(&wanted), "no {wanted}");
            }
        }
        Ok(objects)
    })
    .await
}

/// All objects of a cluster with ferro. What controllers make of an installation comes a moment after it: two looks in a row
/// find the same.
pub async fn settled(cluster: &Cluster) -> Result<BTreeSet<String>> {
    eventually("the installation comes to rest", || async {
        let before = everything(cluster).await?;
        tokio::time::sleep(REST).await;
        let objects = everything(cluster).await?;
        ensure!(objects == before, "more has come or gone: {:?}", objects.symmetric_difference(&before));
        Ok(objects)
    })
    .await
}

/// Waits until a cluster has exactly these objects.
pub async fn await_same(cluster: &Cluster, before: &BTreeSet<String>) -> Result<()> {
    eventually("the cluster is as it was before", || async {
        let now = everything(cluster).await?;
        let (left, lost): (Vec<_>, Vec<_>) =
            (now.difference(before).collect(), before.difference(&now).collect());
        ensure!(left.is_empty() && lost.is_empty(), "left: {left:?}, lost: {lost:?}");
        Ok(())
    })
    .await
}
