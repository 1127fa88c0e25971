//! What the nodes have noted down about their LANs, each in a ConfigMap of its own.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use ferro_core::discovery::{Report, Sighting, Way};
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::jiff::Timestamp;
use kube::api::{DeleteParams, Preconditions};
use kube::{Api, ResourceExt as _};
use tracing::warn;

use super::tell;
use crate::home::Home;
use crate::lan::notes::{KEY, PREFIX};

/// How long the notes of a node that is gone are kept.
const KEEP: Duration = Duration::from_hours(1);

pub(super) struct Reports {
    maps: Api<ConfigMap>,
    /// The last report of each node, with the version of the ConfigMap that it was read from.
    read: BTreeMap<String, (Option<String>, Option<Report>)>,
}

impl Reports {
    pub(super) fn new(home: &Home) -> Self {
        Self { maps: Api::namespaced(home.client.clone(), &home.namespace), read: BTreeMap::new() }
    }

    /// Everything that nodes hear now.
    pub(super) fn read(&mut self, maps: &[Arc<ConfigMap>], now: Timestamp) -> Vec<Sighting> {
        let nodes: BTreeMap<_, _> =
            maps.iter().filter_map(|map| Some((node(map)?.to_owned(), map))).collect();
        self.read.retain(|node, _| nodes.contains_key(node));
        for (node, map) in nodes {
            let version = map.resource_version();
            if self.read.get(&node).is_none_or(|(known, _)| *known != version) {
                self.read.insert(node, (version, parse(map, now)));
            }
        }
        let reports = self.read.iter().filter_map(|(node, (_, report))| Some((node, report.as_ref()?)));
        reports.flat_map(|(node, report)| sightings(node, report, now)).collect()
    }

    /// Removes the notes of nodes that have not written for long, after they were read; whether that went well.
    pub(super) async fn sweep(&self, maps: &[Arc<ConfigMap>], now: Timestamp) -> bool {
        let mut is_done = true;
        for map in maps {
            let read = node(map).and_then(|node| self.read.get(node));
            if read.is_some_and(|(_, report)| is_abandoned(map, report.as_ref(), now)) {
                is_done &= tell(self.remove(map).await);
            }
        }
        is_done
    }

    async fn remove(&self, map: &ConfigMap) -> Result<()> {
        let preconditions = Preconditions { uid: map.uid(), resource_version: map.resource_version() };
        let how = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
        match self.maps.delete(&map.name_any(), &how).await {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) if [404, 409].contains(&status.code) => Ok(()),
            Err(error) => {
                Err(error).with_context(|| format!("cannot remove the ConfigMap {}", map.name_any()))
            }
        }
    }
}

/// The node that has written this ConfigMap, if it is one of these.
fn node(map: &ConfigMap) -> Option<&str> {
    map.metadata.name.as_deref()?.strip_prefix(PREFIX).filter(|node| !node.is_empty())
}

fn parse(map: &ConfigMap, now: Timestamp) -> Option<Report> {
    let json = map.data.as_ref()?.get(KEY)?;
    Report::parse(json.as_bytes(), now)
        .inspect_err(
            |problem| warn!(map = map.name_any(), %problem, "a node notes down rubbish; it is ignored"),
        )
        .ok()
}

fn sightings(node: &str, report: &Report, now: Timestamp) -> Vec<Sighting> {
    let is_fresh = report.expires_at > now;
    let heard = report.heard.iter().filter(|_| is_fresh);
    heard
        .map(|(instance, announcement)| {
            let way = Way::Lan { node: node.to_owned(), instance: instance.clone() };
            Sighting::of(announcement.clone(), way, report.expires_at)
        })
        .collect()
}

/// Whether the notes have expired long ago. Those that cannot be read have no time, and go by their age.
fn is_abandoned(map: &ConfigMap, report: Option<&Report>, now: Timestamp) -> bool {
    let made = || Some(map.metadata.creation_timestamp.as_ref()?.0);
    let ended = report.map(|report| report.expires_at).or_else(made);
    ended.is_some_and(|ended| ended.checked_add(KEEP).is_ok_and(|end| end < now))
}

#[cfg(test)]
mod tests {
    use super::{KEY, is_abandoned, node, parse, sightings};
    use ferro_core::discovery::{Announcement, Report, Way};
    use k8s_openapi::api::core::v1::ConfigMap;
    use k8s_openapi::jiff::{SignedDuration, Timestamp};
    use std::collections::BTreeMap;

    fn map(name: &str, report: &str) -> ConfigMap {
        let mut map = ConfigMap::default();
        map.metadata.name = Some(name.into());
        map.data = Some(BTreeMap::from([(KEY.to_owned(), report.to_owned())]));
        map
    }

    fn report(now: Timestamp) -> Report {
        let announcement = Announcement {
            id: "34750f98-bd59-8cfc-946d-a45aaabe933b".parse().unwrap(),
            name: "milan".parse().unwrap(),
            auth_url: "https://192.0.2.7".parse().unwrap(),
            pin: "sha256/AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=".parse().unwrap(),
        };
        Report::new(BTreeMap::from([("milan-1".into(), announcement)]), now)
    }

    #[test]
    fn what_a_node_hears_counts_while_its_notes_are_fresh() {
        let now = Timestamp::now();
        let map = map("ferro-sightings-n1", &report(now).to_json().unwrap());
        let report = parse(&map, now).unwrap();
        let heard = sightings(node(&map).unwrap(), &report, now);
        assert_eq!(heard[0].way, Way::Lan { node: "n1".into(), instance: "milan-1".into() });
        assert_eq!(sightings("n1", &report, now + SignedDuration::from_mins(11)), []);
    }

    #[test]
    fn notes_that_nobody_renews_are_removed_after_a_while() {
        let now = Timestamp::now();
        let (map, report) = (map("ferro-sightings-n1", ""), report(now));
        let later = |minutes| now + SignedDuration::from_mins(minutes);
        assert!(!is_abandoned(&map, Some(&report), later(60)));
        assert!(is_abandoned(&map, Some(&report), later(71)));
        assert!(!is_abandoned(&map, None, later(71)));
    }

    #[test]
    fn only_what_is_named_after_a_node_is_of_one() {
        assert_eq!(node(&map("ferro-sightings-n1", "")), Some("n1"));
        assert_eq!(node(&map("ferro-sightings-", "")), None);
        assert_eq!(node(&map("ferro-identity", "")), None);
    }
}
