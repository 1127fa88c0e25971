//! What is told over there about a pod, as it is told at home about the pod that it stands for.
//!
//! The peer may be hostile: its Event gets a name here that the peer cannot choose, so that no Event of anybody else is ever
//! written over, and of its texts as much as an Event of Kubernetes itself would have. Of Events about one pod it has as many
//! as those who run pods tell, so that it cannot fill our API server.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Event, EventSource, ObjectReference, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta, Time};
use k8s_openapi::jiff::Timestamp;

use super::inward::{cut, word};
use crate::auth::{Meter, Pace};
use crate::identity::sha256;

const AGENT: &str = "ferro-agent";
/// The longest message that an API server takes.
const LONGEST_MESSAGE: usize = 1024;
const LONGEST_COMPONENT: usize = 63;
const LONGEST_PATH: usize = 253;
const LONGEST_NAME: usize = 253;
/// Longer in digits than what clients put behind the name of a pod, which is a time: none of those is ever met.
const HASH_BYTES: usize = 10;

/// Kubelets and schedulers keep half of this, each for itself.
const EACH: Pace = Pace { burst: 50, every: Duration::from_mins(2) };
/// So many pods are remembered before those are forgotten about which nothing was told for long.
const MANY: usize = 1024;

/// How much was told about each pod.
#[derive(Clone, Debug, Default)]
pub struct Shares(HashMap<String, Meter>);

impl Shares {
    /// Whether one more Event may be told about the pod with this UID, which then counts.
    pub fn may_tell(&mut self, uid: &str, now: Timestamp) -> bool {
        if self.0.len() >= MANY && !self.0.contains_key(uid) {
            self.0.retain(|_, told| !told.is_full(now));
        }
        let told = self.0.entry(uid.to_owned()).or_default();
        let may = told.wait(&EACH, now).is_zero();
        if may {
            told.count(&EACH, now);
        }
        may
    }
}

/// The Event as it is told at home about a pod, which has that namespace over there.
pub fn at_home(event: &Event, pod: &Pod, there: &str) -> Event {
    let namespace = pod.metadata.namespace.clone();
    let here = namespace.as_deref().unwrap_or_default();
    let message = event.message.as_deref().unwrap_or_default();
    let message = message.replace(&format!("{there}/"), &format!("{here}/"));
    let (first, last) = times(event);
    let field_path = event.involved_object.field_path.as_deref();
    Event {
        metadata: ObjectMeta {
            name: Some(name(event, pod)),
            namespace: namespace.clone(),
            ..ObjectMeta::default()
        },
        involved_object: ObjectReference {
            api_version: Some("v1".into()),
            kind: Some("Pod".into()),
            name: pod.metadata.name.clone(),
            namespace,
            uid: pod.metadata.uid.clone(),
            field_path: field_path.map(|path| cut(path, LONGEST_PATH)),
            ..ObjectReference::default()
        },
        reason: event.reason.as_deref().map(word),
        message: Some(cut(&message, LONGEST_MESSAGE)),
        type_: event.type_.as_deref().map(word),
        count: event.count.or_else(|| event.series.as_ref()?.count),
        first_timestamp: first,
        last_timestamp: last,
        source: Some(EventSource {
            component: component(event).map(|component| cut(component, LONGEST_COMPONENT)),
            host: pod.spec.as_ref().and_then(|spec| spec.node_name.clone()),
        }),
        reporting_component: Some(AGENT.into()),
        reporting_instance: Some(AGENT.into()),
        ..Event::default()
    }
}

/// When it was told first, and last. Schedulers tell Events of a newer kind, in which these are other fields.
fn times(event: &Event) -> (Option<Time>, Option<Time>) {
    let time = |at: &MicroTime| Time(at.0);
    let first = event.first_timestamp.clone().or_else(|| event.event_time.as_ref().map(time));
    let first = first.or_else(|| event.metadata.creation_timestamp.clone());
    let seen = || event.series.as_ref()?.last_observed_time.as_ref().map(time);
    let last = event.last_timestamp.clone().or_else(seen).or_else(|| first.clone());
    (first, last)
}

/// Who has told it, in the field of either kind.
fn component(event: &Event) -> Option<&str> {
    let source = event.source.as_ref().and_then(|source| source.component.as_deref());
    source.filter(|source| !source.is_empty()).or(event.reporting_component.as_deref())
}

/// The name follows from that over there, so that nothing is told twice, and from the pod, which runs on one peer all its
/// life: nobody else comes to the same.
fn name(event: &Event, pod: &Pod) -> String {
    let uid = pod.metadata.uid.as_deref().unwrap_or_default();
    let there = event.metadata.name.as_deref().unwrap_or_default();
    let pod = cut(pod.metadata.name.as_deref().unwrap_or_default(), LONGEST_NAME - 1 - 2 * HASH_BYTES);
    let mut name = format!("{}.", pod.trim_end_matches(['-', '.']));
    for byte in sha256(format!("{uid}/{there}").as_bytes()).iter().take(HASH_BYTES) {
        // Writing to a string cannot fail.
        _ = write!(name, "{byte:02x}");
    }
    name
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::names::is_dns_subdomain;

    fn event(message: &str) -> Event {
        serde_json::from_value(json!({
            "metadata": {"name": "web-1.17", "namespace": "shop-home"},
            "involvedObject": {"kind": "Pod", "namespace": "shop-home", "name": "web-1", "uid": "far", "fieldPath": "spec.containers{a}"},
            "reason": "Pulled", "message": message, "type": "Normal", "count": 2,
            "source": {"component": "kubelet", "host": "far-1"},
        }))
        .unwrap()
    }

    fn pod(name: &str, uid: &str) -> Pod {
        let pod = json!({"metadata": {"name": name, "namespace": "shop", "uid": uid}, "spec": {"nodeName": "liqo-far", "containers": []}});
        serde_json::from_value(pod).unwrap()
    }

    fn name_of(event: &Event, pod: &Pod) -> String {
        at_home(event, pod, "shop-home").metadata.name.unwrap()
    }

    #[test]
    fn an_event_is_told_about_the_pod_at_home() {
        let told = at_home(
            &event("Successfully assigned shop-home/web-1 to far-1"),
            &pod("web-1", "near"),
            "shop-home",
        );
        assert_eq!(told.involved_object.uid.as_deref(), Some("near"));
        assert_eq!(told.involved_object.field_path.as_deref(), Some("spec.containers{a}"));
        assert_eq!(told.metadata.namespace.as_deref(), Some("shop"));
        assert_eq!(told.message.as_deref(), Some("Successfully assigned shop/web-1 to far-1"));
        let source = told.source.unwrap();
        assert_eq!(
            (source.component.as_deref(), source.host.as_deref()),
            (Some("kubelet"), Some("liqo-far"))
        );
        assert_eq!((told.reason.as_deref(), told.count), (Some("Pulled"), Some(2)));
    }

    #[test]
    fn an_event_of_a_scheduler_is_told_with_its_age_and_who_told_it() {
        let mut event: Event = serde_json::from_value(json!({
            "metadata": {"name": "web-1.18", "namespace": "shop-home", "creationTimestamp": "2026-01-01T00:00:07Z"},
            "involvedObject": {"kind": "Pod", "namespace": "shop-home", "name": "web-1"},
            "reason": "FailedScheduling", "type": "Warning", "message": "0/3 nodes are available", "source": {},
            "eventTime": "2026-01-01T00:00:05.250000Z", "reportingComponent": "default-scheduler",
        }))
        .unwrap();
        let told = |event: &Event| at_home(event, &pod("web-1", "near"), "shop-home");
        let time = |text: &str| Some(Time(text.parse().unwrap()));
        let once = told(&event);
        let at = time("2026-01-01T00:00:05.25Z");
        assert_eq!((once.first_timestamp, once.last_timestamp, once.count), (at.clone(), at.clone(), None));
        assert_eq!(once.source.unwrap().component.as_deref(), Some("default-scheduler"));
        event.series =
            serde_json::from_value(json!({"count": 3, "lastObservedTime": "2026-01-01T00:09:00.000000Z"}))
                .unwrap();
        let again = told(&event);
        let last = time("2026-01-01T00:09:00Z");
        assert_eq!((again.first_timestamp, again.last_timestamp, again.count), (at, last, Some(3)));
        (event.event_time, event.series) = (None, None);
        let untimed = told(&event);
        let created = time("2026-01-01T00:00:07Z");
        assert_eq!((untimed.first_timestamp, untimed.last_timestamp), (created.clone(), created));
    }

    #[test]
    fn the_name_is_not_the_peers_to_choose_and_stays_the_same() {
        let (near, mut event) = (pod("web-1", "near"), event("a"));
        let name = name_of(&event, &near);
        assert!(name.starts_with("web-1.") && name.len() == "web-1.".len() + 20, "{name}");
        event.message = Some("b".into());
        assert_eq!(name_of(&event, &near), name, "nothing is told twice");
        assert_ne!(
            name_of(&event, &pod("web-1", "next")),
            name,
            "nor is what was told of a former pod changed"
        );
        event.metadata.name = Some("other.17".into());
        let other = name_of(&event, &near);
        assert!(other != name && other.starts_with("web-1."), "{other}");
    }

    #[test]
    fn the_name_is_one_that_an_api_server_takes() {
        for long in ["a".repeat(253), format!("{}-.b", "a".repeat(231))] {
            let name = name_of(&event("a"), &pod(&long, "near"));
            assert!(name.len() <= 253 && is_dns_subdomain(&name), "{name}");
        }
    }

    #[test]
    fn of_many_events_about_a_pod_some_are_told_and_of_those_about_others_all() {
        let (mut shares, start) = (Shares::default(), Timestamp::UNIX_EPOCH);
        let told = (0..1000).filter(|_| shares.may_tell("near", start)).count();
        assert_eq!(told, 50);
        assert!(shares.may_tell("next", start));
        let hour = start + Duration::from_hours(1);
        let told = (0..1000).filter(|_| shares.may_tell("near", hour)).count();
        assert_eq!(told, 30);
    }

    #[test]
    fn pods_of_which_little_was_told_are_forgotten_and_no_others() {
        let (mut shares, start) = (Shares::default(), Timestamp::UNIX_EPOCH);
        while shares.may_tell("loud", start) {}
        for index in 0..MANY {
            shares.may_tell(&index.to_string(), start);
        }
        let later = start + Duration::from_mins(3);
        assert!(shares.may_tell("loud", later) && !shares.may_tell("loud", later));
        assert!(shares.may_tell("new", later) && shares.0.len() == 2, "{}", shares.0.len());
    }

    #[test]
    fn texts_of_a_peer_are_cut() {
        let mut event = event(&"ä".repeat(2000));
        let long = || Some("ä".repeat(500));
        (event.reason, event.type_, event.involved_object.field_path) = (long(), long(), long());
        event.source.as_mut().unwrap().component = long();
        let told = at_home(&event, &pod("web-1", "near"), "shop-home");
        let length = |text: Option<String>| text.unwrap().len();
        assert_eq!((length(told.message), length(told.reason), length(told.type_)), (1024, 128, 128));
        assert_eq!(
            (length(told.source.unwrap().component), length(told.involved_object.field_path)),
            (62, 252)
        );
    }
}
