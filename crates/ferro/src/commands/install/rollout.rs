//! Waits until every pod of an installation runs what it should, and tells why one does not.

use anyhow::bail;
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DynamicObject, ListParams};
use kube::{Client, ResourceExt as _};

use crate::inventory::Kind;
use crate::kube_errors::Explain as _;
use crate::output;
use crate::wait::Deadline;

/// How far a workload has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Progress {
    ready: i32,
    wanted: i32,
    is_done: bool,
}

/// Waits for the workloads among these objects.
pub(super) async fn wait(
    client: &Client,
    objects: &[DynamicObject],
    deadline: Deadline,
) -> anyhow::Result<()> {
    for object in objects {
        let kind = Kind::of(object)?;
        let (name, namespace) = (object.name_any(), object.namespace().unwrap_or_default());
        if kind.is::<Deployment>() {
            let api = Api::<Deployment>::namespaced(client.clone(), &namespace);
            let look = async || Ok(of_deployment(&api.get(&name).await.explain(|| format!("read {name}"))?));
            await_done(client, &namespace, &name, deadline, look).await?;
        } else if kind.is::<DaemonSet>() {
            let api = Api::<DaemonSet>::namespaced(client.clone(), &namespace);
            let look = async || Ok(of_daemon_set(&api.get(&name).await.explain(|| format!("read {name}"))?));
            await_done(client, &namespace, &name, deadline, look).await?;
        }
    }
    Ok(())
}

async fn await_done(
    client: &Client,
    namespace: &str,
    name: &str,
    deadline: Deadline,
    look: impl AsyncFn() -> anyhow::Result<Progress>,
) -> anyhow::Result<()> {
    let mut last = None;
    let done = deadline
        .until(async || {
            let now = look().await?;
            if last.replace(now) != Some(now) {
                output::line(&format!("{name}: {} of {} ready", now.ready, now.wanted))?;
            }
            Ok(now.is_done.then_some(()))
        })
        .await?;
    if done.is_none() {
        bail!("{name} does not become ready: {}", obstacles(client, namespace, name).await?);
    }
    Ok(())
}

fn of_deployment(deployment: &Deployment) -> Progress {
    let wanted = deployment.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1);
    let status = deployment.status.clone().unwrap_or_default();
    let is_current = status.observed_generation >= deployment.metadata.generation;
    let updated = status.updated_replicas.unwrap_or(0);
    let is_alone = status.replicas.unwrap_or(0) == updated;
    progress(is_current && is_alone, updated.min(status.available_replicas.unwrap_or(0)), wanted)
}

fn of_daemon_set(daemon_set: &DaemonSet) -> Progress {
    let Some(status) = &daemon_set.status else { return progress(false, 0, 0) };
    let is_current = status.observed_generation >= daemon_set.metadata.generation;
    let updated = status.updated_number_scheduled.unwrap_or(0);
    progress(is_current, updated.min(status.number_available.unwrap_or(0)), status.desired_number_scheduled)
}

fn progress(is_current: bool, ready: i32, wanted: i32) -> Progress {
    Progress { ready, wanted, is_done: is_current && ready >= wanted }
}

/// What keeps the pods of a workload from being ready.
async fn obstacles(client: &Client, namespace: &str, name: &str) -> anyhow::Result<String> {
    let of_workload = ListParams::default().labels(&format!("app.kubernetes.io/name={name}"));
    let pods = Api::<Pod>::namespaced(client.clone(), namespace).list(&of_workload).await;
    let pods = pods.explain(|| format!("list the pods of {name}"))?;
    let reasons: Vec<_> = pods.iter().filter_map(obstacle).collect();
    if reasons.is_empty() {
        return Ok(format!("see 'kubectl --namespace {namespace} describe pods' and their logs"));
    }
    Ok(reasons.join("; "))
}

/// Why a pod does not start, if it says so.
fn obstacle(pod: &Pod) -> Option<String> {
    let status = pod.status.as_ref()?;
    let containers = status.container_statuses.iter().flatten();
    let mut waiting = containers.filter_map(|container| container.state.as_ref()?.waiting.as_ref());
    let waiting = waiting.find_map(|waiting| Some((waiting.reason.clone()?, waiting.message.clone())));
    let conditions = status.conditions.iter().flatten();
    let mut unscheduled =
        conditions.filter(|condition| condition.type_ == "PodScheduled" && condition.status == "False");
    let (reason, message) = waiting
        .or_else(|| unscheduled.find_map(|found| Some((found.reason.clone()?, found.message.clone()))))?;
    let message = message.map_or_else(String::new, |message| format!(" ({message})"));
    Some(format!("pod {}: {reason}{message}", pod.name_any()))
}

#[cfg(test)]
mod tests {
    use super::{Progress, obstacle, of_daemon_set, of_deployment};
    use serde_json::{Value, json};

    fn deployment(status: &Value) -> Progress {
        let object = json!({"metadata": {"generation": 2}, "spec": {"replicas": 2, "selector": {}, "template": {}},
            "status": status});
        of_deployment(&serde_json::from_value(object).unwrap())
    }

    fn daemon_set(status: &Value) -> Progress {
        let object = json!({"metadata": {"generation": 1}, "spec": {"selector": {}, "template": {}}, "status": status});
        of_daemon_set(&serde_json::from_value(object).unwrap())
    }

    #[test]
    fn a_deployment_is_done_when_all_its_pods_are_new_and_available() {
        let new =
            json!({"observedGeneration": 2, "replicas": 2, "updatedReplicas": 2, "availableReplicas": 2});
        assert_eq!(deployment(&new), Progress { ready: 2, wanted: 2, is_done: true });
        let unseen =
            json!({"observedGeneration": 1, "replicas": 2, "updatedReplicas": 2, "availableReplicas": 2});
        assert!(!deployment(&unseen).is_done);
        let with_old =
            json!({"observedGeneration": 2, "replicas": 3, "updatedReplicas": 2, "availableReplicas": 3});
        assert!(!deployment(&with_old).is_done);
        assert_eq!(deployment(&json!({})), Progress { ready: 0, wanted: 2, is_done: false });
    }

    #[test]
    fn a_daemon_set_is_done_when_every_node_has_it_even_if_there_is_none() {
        let none = json!({"observedGeneration": 1, "desiredNumberScheduled": 0, "currentNumberScheduled": 0,
            "numberMisscheduled": 0, "numberReady": 0});
        assert!(daemon_set(&none).is_done);
        assert!(!daemon_set(&Value::Null).is_done);
        let half = json!({"observedGeneration": 1, "desiredNumberScheduled": 2, "currentNumberScheduled": 2,
            "numberMisscheduled": 0, "numberReady": 1, "updatedNumberScheduled": 2, "numberAvailable": 1});
        assert_eq!(daemon_set(&half), Progress { ready: 1, wanted: 2, is_done: false });
    }

    #[test]
    fn a_pod_tells_what_keeps_it() {
        let pod = |status: Value| {
            obstacle(&serde_json::from_value(json!({"metadata": {"name": "p"}, "status": status})).unwrap())
        };
        let waiting = json!({"containerStatuses": [{"name": "c", "image": "i", "imageID": "", "ready": false,
            "restartCount": 0, "state": {"waiting": {"reason": "ErrImagePull", "message": "not found"}}}]});
        assert_eq!(pod(waiting).as_deref(), Some("pod p: ErrImagePull (not found)"));
        let unscheduled =
            json!({"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]});
        assert_eq!(pod(unscheduled).as_deref(), Some("pod p: Unschedulable"));
        assert_eq!(pod(json!({})), None);
    }
}
