//! Events come home: what is told over there about a pod of ours is told here about the pod that it stands for.
//!
//! Each Event over there has one here, whose name follows from its own and from the pod, so that a restart tells nothing twice
//! and what has that name is ours. They are for people: what cannot be written is left out. None is kept: there are several
//! for each pod, and they outlive it.

use std::time::Duration;

use anyhow::Result;
use ferro_core::pods::events::{Shares, at_home};
use ferro_runtime::watch::Watched;
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::{Event, Pod};
use k8s_openapi::jiff::Timestamp;
use kube::api::{Patch, PatchParams, PostParams};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client, ResourceExt as _};
use serde_json::{Value, json};
use tracing::debug;

/// What was told longer ago was told before, by whoever led then.
const OLD: Duration = Duration::from_mins(1);
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
    let (mut events, mut told, mut shares) = (std::pin::pin!(events), 0_usize, Shares::default());
    while let Some(event) = events.next().await {
        let event = match event {
            Ok(watcher::Event::Apply(event)) => event,
            // Clocks of clusters differ, so that only what was there before is asked for its age.
            Ok(watcher::Event::InitApply(event)) if is_recent(&event) => event,
            Ok(_) => continue,
            Err(error) => {
                debug!(namespace = there, %error, "the watch of Events broke and is taken up again");
                continue;
            }
        };
        let name = event.involved_object.name.as_deref().unwrap_or_default();
        let Some(pod) = pods.get(Some(&here), name) else { continue };
        if !shares.may_tell(pod.metadata.uid.as_deref().unwrap_or_default(), Timestamp::now()) {
            continue;
        }
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
    let last = last.or_else(|| event.series.as_ref()?.last_observed_time.as_ref().map(|at| at.0));
    let last = last.or_else(|| event.event_time.as_ref().map(|at| at.0));
    let last = last.or_else(|| event.metadata.creation_timestamp.as_ref().map(|at| at.0));
    last.is_some_and(|last| Timestamp::now().duration_since(last).unsigned_abs() < OLD)
}

async fn write(api: &Api<Event>, event: &Event) {
    let name = event.name_any();
    let written = match api.create(&PostParams::default(), event).await {
        Err(kube::Error::Api(status)) if status.code == 409 => {
            api.patch(&name, &PatchParams::default(), &Patch::Merge(again(event))).await
        }
        created => created,
    };
    if let Err(error) = written {
        debug!(name, %error, "an Event from over there is not told here");
    }
}

/// What is new of an Event that was told before. What it does not say stays as it was.
fn again(event: &Event) -> Value {
    let mut again =
        json!({"count": event.count, "lastTimestamp": event.last_timestamp, "message": event.message});
    if let Some(fields) = again.as_object_mut() {
        fields.retain(|_, value| !value.is_null());
    }
    again
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Event;
    use serde_json::json;

    use super::again;

    #[test]
    fn what_an_event_does_not_say_is_not_taken_away() {
        let event = Event { message: Some("a".into()), ..Event::default() };
        assert_eq!(again(&event), json!({"message": "a"}));
        let event = Event { count: Some(2), ..event };
        assert_eq!(again(&event), json!({"count": 2, "message": "a"}));
    }
}
