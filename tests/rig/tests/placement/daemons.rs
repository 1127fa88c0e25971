//! A DaemonSet that tolerates everything wants to be on every node, also on those that are none.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use kube::api::ListParams;
use rig::wait::{block_on, eventually};
use serde_json::json;

use super::stage::{PLAIN, Stage, stage};

/// How long nothing may come and go: the controller-manager replaces a pod that failed within a second.
const STILL: Duration = Duration::from_secs(8);

/// The pods of the DaemonSet in a namespace, by UID, with their nodes and phases.
async fn pods(stage: &Stage, namespace: &str) -> Result<BTreeMap<String, (Option<String>, String)>> {
    let ours = ListParams::default().labels("app=everywhere");
    let pods = stage.pods(namespace)?.list(&ours).await?;
    let place = |pod: Pod| {
        let uid = pod.uid().unwrap_or_default();
        let phase = pod.status.and_then(|status| status.phase).unwrap_or_default();
        (uid, (pod.spec.and_then(|spec| spec.node_name), phase))
    };
    Ok(pods.items.into_iter().map(place).collect())
}

/// Waits until the pod on the own node runs, if it may be there; all others wait, bound to a virtual node or to none.
async fn all_wait(stage: &Stage, namespace: &str, at_home: bool, bound: usize) -> Result<()> {
    let home = stage.home()?;
    eventually(&format!("those of {namespace} are where they stay"), || async {
        let pods = pods(stage, namespace).await?;
        let (here, there): (Vec<_>, Vec<_>) =
            pods.values().partition(|(node, _)| node.as_deref() == Some(home));
        ensure!(
            here.len() == usize::from(at_home) && here.iter().all(|(_, phase)| phase == "Running"),
            "{pods:?}"
        );
        ensure!(there.iter().all(|(_, phase)| phase == "Pending"), "{pods:?}");
        ensure!(there.iter().filter(|(node, _)| node.is_some()).count() == bound, "{pods:?}");
        Ok(())
    })
    .await
}

#[test]
fn a_daemon_set_that_tolerates_everything_waits_on_virtual_nodes_and_does_not_loop() -> Result<()> {
    block_on(async {
        let (stage, _turn) = stage().await?;
        let cluster = stage.cluster()?;
        let namespaces = [PLAIN, "localandremote", "local", "remote"];
        for namespace in namespaces {
            let template = json!({
                "metadata": {"labels": {"app": "everywhere"}},
                "spec": {
                    "terminationGracePeriodSeconds": 0,
                    "tolerations": [{"operator": "Exists"}],
                    "containers": [{"name": "main", "image": "rig/testbox:1", "args": ["pause"]}],
                },
            });
            let daemons = json!({
                "apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "everywhere", "namespace": namespace},
                "spec": {"selector": {"matchLabels": {"app": "everywhere"}}, "template": template},
            });
            cluster.apply(&daemons.to_string()).await?;
        }
        let mut first = BTreeMap::new();
        for namespace in namespaces {
            let all = || async {
                let pods = pods(stage, namespace).await?;
                ensure!(pods.len() == 3, "{pods:?}");
                Ok(pods)
            };
            first.insert(namespace, eventually("there is one for each node", all).await?);
        }
        // Where nobody offloads, both virtual nodes have one; elsewhere the selected one, unless pods stay at home.
        for (namespace, at_home, bound) in
            [(PLAIN, true, 2), ("localandremote", true, 1), ("local", true, 0), ("remote", false, 1)]
        {
            all_wait(stage, namespace, at_home, bound).await?;
        }
        let begin = tokio::time::Instant::now();
        while begin.elapsed() < STILL {
            for namespace in namespaces {
                let now = pods(stage, namespace).await?;
                ensure!(
                    now.keys().eq(first[namespace].keys()),
                    "{namespace}: {:?} became {now:?}",
                    first[namespace]
                );
                ensure!(!now.values().any(|(_, phase)| phase == "Failed"), "{namespace}: {now:?}");
            }
            tokio::time::sleep(rig::wait::GLANCE).await;
        }
        for namespace in namespaces {
            cluster.kubectl(&["delete", "daemonset", "everywhere", "--namespace", namespace]).await?;
        }
        Ok(())
    })
}
