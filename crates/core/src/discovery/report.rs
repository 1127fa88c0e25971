//! What one node hears on its LAN, as it tells the controller: a list that counts as long as it is renewed.
//!
//! The node expires what it hears by itself. So its list changes only when somebody comes, moves or goes, and
//! is otherwise renewed only now and then, to show that the node still listens. A node may be in wrong hands:
//! the controller reads a list as strictly as if it came over the network.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{Announcement, NotAnAnnouncement};
use crate::auth::{HttpsUrl, Malformed, Pin, later, read_json};
use crate::identity::ClusterId;
use crate::names::ClusterName;

const MAX_BYTES: usize = 512 * 1024;
const MAX_INSTANCE: usize = 128;

/// The service instances that one node hears.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// Until when it counts.
    pub expires_at: Timestamp,
    /// What is heard, by instance.
    pub heard: BTreeMap<String, Announcement>,
}

/// As it is written.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Written {
    expires_at: Timestamp,
    sightings: Vec<Line>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Line {
    instance: String,
    id: ClusterId,
    name: ClusterName,
    url: HttpsUrl,
    pin: Pin,
}

impl Report {
    /// The most instances that a node remembers.
    pub const MOST: usize = 512;
    /// How long a report counts.
    pub const LEASE: Duration = Duration::from_mins(10);
    /// How often it is renewed, though nothing has changed.
    pub const RENEWAL: Duration = Duration::from_mins(5);

    /// What is heard now.
    pub fn new(heard: BTreeMap<String, Announcement>, now: Timestamp) -> Self {
        Self { expires_at: later(now, Self::LEASE), heard }
    }

    /// Whether the instance has a name that may stand in a report: one that takes no more room there.
    pub(super) fn takes(instance: &str) -> bool {
        let plain = |byte: u8| (b' '..=b'~').contains(&byte) && byte != b'"' && byte != b'\\';
        (1..=MAX_INSTANCE).contains(&instance.len()) && instance.bytes().all(plain)
    }

    /// The report as JSON.
    pub fn to_json(&self) -> Result<String, serde_json::Error> {
        let sightings = self.heard.iter().map(|(instance, announcement)| {
            let Announcement { id, name, auth_url, pin } = announcement.clone();
            Line { instance: instance.clone(), id, name, url: auth_url, pin }
        });
        serde_json::to_string(&Written { expires_at: self.expires_at, sightings: sightings.collect() })
    }

    /// Reads a report. It never counts for longer than a new one would.
    pub fn parse(json: &[u8], now: Timestamp) -> Result<Self, BadReport> {
        let Written { expires_at, sightings } = read_json(json, MAX_BYTES)?;
        if sightings.len() > Self::MOST {
            return Err(BadReport::TooMany);
        }
        let heard = sightings.into_iter().map(Line::check).collect::<Result<_, _>>()?;
        Ok(Self { expires_at: expires_at.min(later(now, Self::LEASE)), heard })
    }
}

impl Line {
    fn check(self) -> Result<(String, Announcement), BadReport> {
        let Self { instance, id, name, url, pin } = self;
        if !Report::takes(&instance) {
            return Err(BadReport::Instance);
        }
        Ok((instance, Announcement { id, name, auth_url: url, pin }.checked()?))
    }
}

/// The report is not one that a node of ours would write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadReport {
    /// It is not in the right form.
    #[error(transparent)]
    Malformed(#[from] Malformed),
    /// It names more than a node remembers.
    #[error("more than {} instances", Report::MOST)]
    TooMany,
    /// The name of an instance is none.
    #[error("an instance has no proper name")]
    Instance,
    /// What an instance says is not right.
    #[error(transparent)]
    Announcement(#[from] NotAnAnnouncement),
}

#[cfg(test)]
mod tests {
    use super::{BadReport, Report};
    use crate::auth::tests::at;
    use crate::auth::{Malformed, later};
    use crate::discovery::NotAnAnnouncement;
    use crate::discovery::announcement::tests::announcement;
    use std::collections::BTreeMap;

    fn report() -> Report {
        let heard = [1, 2].map(|number| {
            (format!("c{number}"), announcement(number, &format!("https://192.0.2.{number}:30443")))
        });
        Report::new(heard.into(), at(0))
    }

    #[test]
    fn what_a_node_writes_the_controller_reads() {
        let json = report().to_json().unwrap();
        assert_eq!(Report::parse(json.as_bytes(), at(10)), Ok(report()));
    }

    #[test]
    fn the_largest_report_fits() {
        let mut announced = announcement(1, &format!("https://192.0.2.7/{}", "x".repeat(232)));
        announced.name = "n".repeat(63).parse().unwrap();
        let heard: BTreeMap<_, _> =
            (0..Report::MOST).map(|number| (format!("{number:0128}"), announced.clone())).collect();
        let largest = Report::new(heard, at(0));
        let json = largest.to_json().unwrap();
        assert_eq!(Report::parse(json.as_bytes(), at(0)), Ok(largest));
    }

    #[test]
    fn no_report_counts_for_longer_than_a_new_one() {
        let json = Report { expires_at: at(1_000_000), ..report() }.to_json().unwrap();
        let read = Report::parse(json.as_bytes(), at(0)).unwrap();
        assert_eq!(read.expires_at, later(at(0), Report::LEASE));
    }

    #[test]
    fn a_report_in_wrong_hands_does_no_harm() {
        let json = report().to_json().unwrap();
        let with = |from: &str, to: &str| {
            let changed = json.replacen(from, to, 1);
            assert_ne!(changed, json, "{from}");
            Report::parse(changed.as_bytes(), at(0))
        };
        let id = report().heard["c1"].id.to_string();
        assert_eq!(with("\"c1\"", "\"\""), Err(BadReport::Instance));
        for odd in ["a\\nb", "a\\\"b", "a\\\\b", "ä"] {
            assert_eq!(with("\"c1\"", &format!("\"{odd}\"")), Err(BadReport::Instance));
        }
        assert_eq!(with("\"c1\"", &format!("\"{}\"", "x".repeat(300))), Err(BadReport::Instance));
        assert_eq!(
            with(&id, "d14e610e-4c1b-402c-a5f1-5ef6f39c0490"),
            Err(BadReport::Announcement(NotAnAnnouncement::Invalid { key: "id" }))
        );
        assert_eq!(
            with("https://192.0.2.1:30443", "https://127.0.0.1"),
            Err(BadReport::Announcement(NotAnAnnouncement::Invalid { key: "url" }))
        );
        for (from, to) in [("https:", "http:"), ("\"pin\"", "\"key\""), ("cluster-1", "a b")] {
            assert!(matches!(with(from, to), Err(BadReport::Malformed(_))), "{to}");
        }
        let huge = " ".repeat(600_000);
        let limit = super::MAX_BYTES;
        assert_eq!(
            Report::parse(huge.as_bytes(), at(0)),
            Err(BadReport::Malformed(Malformed::TooLong { limit }))
        );
    }

    #[test]
    fn a_report_of_too_many_is_refused() {
        let announced = announcement(1, "https://192.0.2.1");
        let heard = (0..=Report::MOST).map(|number| (number.to_string(), announced.clone())).collect();
        let json = Report::new(heard, at(0)).to_json().unwrap();
        assert_eq!(Report::parse(json.as_bytes(), at(0)), Err(BadReport::TooMany));
    }
}
