//! Sends packets from inside a pod: for seconds, a container of ours is beside its own ones, in its network.
//!
//! It has no rights at all, and is the image that the node has anyway. Kubernetes keeps such a container in the list of the
//! pod once it has ended, as with `kubectl debug`.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use k8s_openapi::jiff::Timestamp;
use kube::Client;
use kube::api::{Api, LogParams, Patch, PatchParams};
use serde_json::{Value, json};

use crate::commands::probe::{Answers, MOST};
use crate::kube_errors::Explain as _;
use crate::wait::Deadline;

/// So long it may take until it has started and ended.
const PATIENCE: Duration = Duration::from_secs(30);
/// What it has to say is shorter.
const LONGEST: i64 = 64 * 1024;
/// Who it is inside: nobody that a pod's own containers would know.
const USER: i64 = 65_532;

/// Sends to these addresses from a pod of this namespace, and gives what came back.
pub(super) async fn send(
    client: &Client,
    (namespace, pod): (&str, &str),
    image: &str,
    to: &[Ipv4Addr],
) -> anyhow::Result<Answers> {
    let pods = Api::<Pod>::namespaced(client.clone(), namespace);
    let name = format!("ferro-trace-{}", Timestamp::now().as_millisecond());
    let container = Patch::Strategic(container(&name, image, to));
    let added = pods.patch_ephemeral_containers(pod, &PatchParams::default(), &container).await;
    added.explain(|| format!("start a container in the pod {namespace}/{pod}"))?;
    let ended = Deadline::after(PATIENCE).until(async || {
        let pod_now = pods.get(pod).await.explain(|| format!("read the pod {namespace}/{pod}"))?;
        Ok(status(&pod_now, &name).filter(|status| has_ended(status)).cloned())
    });
    let Some(ended) = ended.await? else {
        anyhow::bail!(
            "the container {name} of the pod {namespace}/{pod} has not ended; see 'kubectl describe pod'"
        );
    };
    let log = LogParams { container: Some(name.clone()), limit_bytes: Some(LONGEST), ..LogParams::default() };
    let said =
        pods.logs(pod, &log).await.explain(|| format!("read the log of {name} in {namespace}/{pod}"))?;
    read(&ended, &said)
}

/// The container: nothing but a process in the network of the pod.
fn container(name: &str, image: &str, to: &[Ipv4Addr]) -> Value {
    let to = to.iter().take(MOST).map(ToString::to_string);
    let arguments: Vec<String> = std::iter::once("probe".to_owned()).chain(to).collect();
    json!({"spec": {"ephemeralContainers": [{
        "name": name,
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "args": arguments,
        "securityContext": {
            "allowPrivilegeEscalation": false,
            "capabilities": {"drop": ["ALL"]},
            "privileged": false,
            "readOnlyRootFilesystem": true,
            "runAsNonRoot": true,
            "runAsUser": USER,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
    }]}})
}

fn status<'a>(pod: &'a Pod, name: &str) -> Option<&'a ContainerStatus> {
    let statuses = pod.status.as_ref()?.ephemeral_container_statuses.as_ref()?;
    statuses.iter().find(|status| status.name == name)
}

fn has_ended(status: &ContainerStatus) -> bool {
    status.state.as_ref().is_some_and(|state| state.terminated.is_some())
}

fn read(ended: &ContainerStatus, said: &str) -> anyhow::Result<Answers> {
    let code = ended.state.as_ref().and_then(|state| Some(state.terminated.as_ref()?.exit_code));
    let said = said.trim();
    anyhow::ensure!(code == Some(0), "the container {} failed: {said}", ended.name);
    serde_json::from_str(said)
        .map_err(|error| anyhow::anyhow!("the container {} said what it should not: {error}", ended.name))
}

/// The addresses to which packets can be sent.
pub(super) fn targets(to: impl IntoIterator<Item = IpAddr>) -> Vec<Ipv4Addr> {
    let v4 = to.into_iter().filter_map(|ip| match ip {
        IpAddr::V4(ip) => Some(ip),
        IpAddr::V6(_) => None,
    });
    v4.take(MOST).collect()
}

#[cfg(test)]
mod tests {
    use super::{container, read, status, targets};
    use crate::commands::probe::MOST;
    use k8s_openapi::api::core::v1::Pod;
    use serde_json::{from_value, json};

    #[test]
    fn the_container_has_no_rights_and_few_targets() {
        let many = vec!["10.0.0.5".parse().unwrap(); 100];
        let patch = container("ferro-trace-1", "ferro:1", &many);
        let container = &patch["spec"]["ephemeralContainers"][0];
        assert_eq!(container["args"].as_array().unwrap().len(), MOST + 1);
        assert_eq!(container["args"][0], "probe");
        assert_eq!(container["securityContext"]["capabilities"]["drop"], json!(["ALL"]));
        assert_eq!(container["securityContext"]["runAsNonRoot"], true);
        assert_eq!(targets(many.into_iter().map(Into::into)).len(), MOST);
        assert!(targets(["fd00::5".parse().unwrap()]).is_empty());
    }

    #[test]
    fn what_it_says_counts_if_it_ended_well() {
        let ended = |code: i32| -> Pod {
            from_value(json!({"metadata": {}, "status": {"ephemeralContainerStatuses": [
                {"name": "other", "image": "x", "imageID": "", "ready": false, "restartCount": 0},
                {"name": "ferro-trace-1", "image": "x", "imageID": "", "ready": false, "restartCount": 0,
                 "state": {"terminated": {"exitCode": code}}},
            ]}}))
            .unwrap()
        };
        let said = r#"{"10.0.0.5": [{"hops": 1, "from": "10.244.0.1", "what": "expired"}]}"#;
        let good = ended(0);
        let answers = read(status(&good, "ferro-trace-1").unwrap(), said).unwrap();
        assert_eq!(answers[&"10.0.0.5".parse().unwrap()].len(), 1);
        assert!(read(status(&good, "ferro-trace-1").unwrap(), "?").is_err());
        let bad = ended(1);
        let error = read(status(&bad, "ferro-trace-1").unwrap(), "cannot send").unwrap_err().to_string();
        assert_eq!(error, "the container ferro-trace-1 failed: cannot send");
    }
}
