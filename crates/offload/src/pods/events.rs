//! Events come home: what is told over there about a pod of ours is told here about the pod that it stands for.
//!
//! Each Event over there has one here, whose name follows from its own, so that a restart tells nothing twice. They
//! are for people: what cannot be written is left out. None is kept: there are several for each pod, and they outlive it.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use ferro_runtime::watch::Watched;
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::{Event, EventSource, ObjectReference, Pod};
use k8s_openapi::jiff::Timestamp;
use kube::api::{ObjectMeta, Patch, PatchParams, PostParams};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client, ResourceExt as _};
use serde_json::json;
use tracing::debug;

const AGENT: &str = "ferro-agent";
/// What was told longer ago was told before, by whoever led then.
const OLD: Duration = Duration::from_mins(1);
/// The longest message that an API server takes.
const LONGEST: usize = 1024;
/// So many are told in one go, so that a cluster that tells much does not keep this one busy.
const AT_ONCE: usize = 100;
const PAUSE: Duration = Duration::from_secs(1);

/// A namespace, and the API server of its cluster.
pub(super) type Place = (Client, String);

/// Tells in one namespace what is told in the other about pods of these names, for ever.
pub(super) async fn copy(from: Place, to: Place, pods: Watched<Pod>) -> Result<()> {
    let ((client, there), (home, here)) = (from, to);
    let of_pods = watcher::Config::default().fields("involvedObject.kind=Pod");
    let events = watcher(Api::<Event>::namespaced(client, &there), of_pods).default_backoff();
    let api: Api<Event> = Api::namespaced(home, &here);
    let (mut events, mut told) = (std::pin::pin!(events), 0_usize);
    while let Some(event) = events.next().await {
        let event = match event {
            Ok(watcher::Event::Apply(event) | watcher::Event::InitApply(event)) => event,
            Ok(watcher::Event::Init | watcher::Event::InitDone | watcher::Event::Delete(_)) => continue,
            Err(error) => {
                debug!(namespace = there, %error, "the watch of Events broke and is taken up again");
                continue;
            }
        };
        let name = event.involved_object.name.as_deref().unwrap_or_default();
        let Some(pod) = pods.get(Some(&here), name).filter(|_| is_recent(&event)) else { continue };
        write(&api, &at_home(&event, &pod, &there)).await;
        told = told.wrapping_add(1);
        if told.is_multiple_of(AT_ONCE) {
            tokio::time::sleep(PAUSE).await;
        }
    }
    Ok(())
}

fn is_recent(event: &Event) -> bool {
    let last = event.last_timestamp.as_ref().map(|at| at.0);
    let last = last.or_else(|| event.event_time.as_ref().map(|at| at.0));
    let last = last.or_else(|| event.metadata.creation_timestamp.as_ref().map(|at| at.0));
    last.is_some_and(|last| Timestamp::now().duration_since(last).unsigned_abs() < OLD)
}

/// The Event as it is told here.
fn at_home(event: &Event, pod: &Arc<Pod>, there: &str) -> Event {
    let namespace = pod.namespace().unwrap_or_default();
    let mut message =
        event.message.clone().unwrap_or_default().replace(&format!("{there}/"), &format!("{namespace}/"));
    while message.len() > LONGEST {
        message.pop();
    }
    Event {
        metadata: ObjectMeta {
            name: Some(event.name_any()),
            namespace: Some(namespace.clone()),
            ..ObjectMeta::default()
        },
        involved_object: ObjectReference {
            api_version: Some("v1".into()),
            kind: Some("Pod".into()),
            name: Some(pod.name_any()),
            namespace: Some(namespace),
            uid: pod.uid(),
            field_path: event.involved_object.field_path.clone(),
            ..ObjectReference::default()
        },
        reason: event.reason.clone(),
        message: Some(message),
        type_: event.type_.clone(),
        count: event.count,
        first_timestamp: event.first_timestamp.clone(),
        last_timestamp: event.last_timestamp.clone(),
        source: Some(EventSource {
            component: event.source.as_ref().and_then(|source| source.component.clone()),
            host: pod.spec.as_ref().and_then(|spec| spec.node_name.clone()),
        }),
        reporting_component: Some(AGENT.into()),
        reporting_instance: Some(AGENT.into()),
        ..Event::default()
    }
}

async fn write(api: &Api<Event>, event: &Event) {
    let name = event.name_any();
    let written = match api.create(&PostParams::default(), event).await {
        Err(kube::Error::Api(status)) if status.code == 409 => {
            let again = json!({"count": event.count, "lastTimestamp": event.last_timestamp, "message": event.message});
            api.patch(&name, &PatchParams::default(), &Patch::Merge(again)).await
        }
        created => created,
    };
    if let Err(error) = written {
        debug!(name, %error, "an Event from over there is not told here");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(message: &str) -> Event {
        serde_json::from_value(json!({
            "metadata": {"name": "web-1.17", "namespace": "shop-home"},
            "involvedObject": {"kind": "Pod", "namespace": "shop-home", "name": "web-1", "uid": "far", "fieldPath": "spec.containers{a}"},
            "reason": "Pulled", "message": message, "type": "Normal", "count": 2,
            "source": {"component": "kubelet", "host": "far-1"},
        }))
        .unwrap()
    }

    fn pod() -> Arc<Pod> {
        let pod = json!({"metadata": {"name": "web-1", "namespace": "shop", "uid": "near"}, "spec": {"nodeName": "liqo-far", "containers": []}});
        Arc::new(serde_json::from_value(pod).unwrap())
    }

    #[test]
    fn an_event_is_told_about_the_pod_at_home() {
        let told = at_home(&event("Successfully assigned shop-home/web-1 to far-1"), &pod(), "shop-home");
        assert_eq!(told.involved_object.uid.as_deref(), Some("near"));
        assert_eq!(told.metadata.namespace.as_deref(), Some("shop"));
        assert_eq!(told.message.as_deref(), Some("Successfully assigned shop/web-1 to far-1"));
        assert_eq!(told.source.unwrap().host.as_deref(), Some("liqo-far"));
        assert_eq!((told.metadata.name.as_deref(), told.count), (Some("web-1.17"), Some(2)));
    }

    #[test]
    fn a_message_is_no_longer_than_an_api_server_takes() {
        let told = at_home(&event(&"ä".repeat(2000)), &pod(), "shop-home");
        assert!(told.message.unwrap().len() <= LONGEST);
    }
}
