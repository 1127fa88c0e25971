//! Services whose endpoints are in another cluster: made by hand of what the address manager there says.

use std::collections::BTreeSet;
use std::net::IpAddr;

use anyhow::{Result, ensure};
use rig::pods::{Answer, Echo, PORT};
use rig::topology::Cluster;
use rig::wait::eventually;

use crate::addresses::Addresses;
use crate::pair::Side;

/// So often is asked until it would be a wonder if one of two endpoints were never chosen.
const OFTEN: usize = 24;

/// A Service here, for the pods there, is reached by its name from every node, and so are all its endpoints.
pub async fn reached(here: &Side<'_>, there: &Side<'_>) -> Result<()> {
    let echoes = there.echoes().await?;
    let endpoints = endpoints(here, there, &echoes).await?;
    let name = name(there.cluster);
    here.cluster.apply(&manifests(&name, &endpoints)).await?;
    let host = format!("{name}.default.svc.cluster.local");
    for caller in here.callers().await? {
        let known_as = there.name_of(caller.ip)?;
        let is_right =
            |answer: &Answer| answer.is_to(known_as) && echoes.iter().any(|echo| answer.is_of(echo));
        caller.get(&host).await?;
        // A node may know of one endpoint before it knows of the other.
        eventually(&format!("{caller} meets all at {host}"), || async {
            let answers = caller.ask(&host, OFTEN).await?;
            let are_met = echoes.iter().all(|echo| answers.iter().any(|answer| answer.is_of(echo)));
            ensure!(are_met, "so far only {answers:?}");
            Ok(())
        })
        .await?;
        let mut answers = caller.ask(&host, OFTEN).await?;
        let met: BTreeSet<_> = echoes
            .iter()
            .filter(|echo| answers.iter().any(|answer| answer.is_of(echo)))
            .map(|echo| echo.ip)
            .collect();
        ensure!(met.len() == echoes.len(), "{caller} met only {met:?} at {host}");
        answers.push(caller.ask_by_datagram(&host).await?);
        ensure!(answers.iter().all(is_right), "{caller} is not known as {known_as} at {host}: {answers:?}");
        caller.mirror(&host).await?;
    }
    Ok(())
}

/// What the address manager there answers for its pods; that of this side agrees.
async fn endpoints(here: &Side<'_>, there: &Side<'_>, echoes: &[Echo]) -> Result<Vec<IpAddr>> {
    let (theirs, ours) = (Addresses::of(there.cluster).await?, Addresses::of(here.cluster).await?);
    let mut endpoints = Vec::new();
    for ip in echoes.iter().map(|echo| echo.ip) {
        let address = theirs.map(&here.id, ip).await?;
        ensure!(address == here.name_of(ip)?, "{address} is not what {ip} is called here");
        ensure!(theirs.is_pod(ip).await?, "{ip} is a pod of its cluster");
        let home = ours.home_of(&there.id, ip).await?;
        ensure!(home == address, "one says {address}, the other {home}");
        endpoints.push(address);
    }
    Ok(endpoints)
}

/// Takes away the Services for the pods of these clusters.
pub async fn remove(here: &Cluster, there: &[&Cluster]) -> Result<()> {
    for name in there.iter().map(|there| name(there)) {
        here.kubectl(&["delete", "service,endpointslice", &name, "--ignore-not-found"]).await?;
    }
    Ok(())
}

/// What the Service for the pods of that cluster is called.
pub fn name(there: &Cluster) -> String {
    format!("echo-of-{}", there.plan.name)
}

fn manifests(name: &str, endpoints: &[IpAddr]) -> String {
    let endpoints: Vec<_> = endpoints.iter().map(|ip| format!("{{addresses: ['{ip}']}}")).collect();
    let ports =
        format!("[{{name: tcp, port: {PORT}, protocol: TCP}}, {{name: udp, port: {PORT}, protocol: UDP}}]");
    format!(
        r"
apiVersion: v1
kind: Service
metadata: {{name: {name}, namespace: default}}
spec:
  ports: {ports}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata:
  name: {name}
  namespace: default
  labels: {{kubernetes.io/service-name: {name}, endpointslice.kubernetes.io/managed-by: rig}}
addressType: IPv4
ports: {ports}
endpoints: [{endpoints}]
",
        endpoints = endpoints.join(", ")
    )
}
