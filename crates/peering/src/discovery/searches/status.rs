//! The status of a `SearchDomain`: what was found, and if nothing was, why and what to do about it.

use std::collections::BTreeSet;
use std::time::Duration;

use ferro_api::common::ObjectRef;
use ferro_api::discovery::{SearchDomain, SearchDomainStatus};
use ferro_core::discovery::Known;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

use super::super::wan::{Found, Problem, Question};

const SEARCHED: &str = "Searched";
/// How old the time of the last search may become if it is all that changes.
const REFRESH: Duration = Duration::from_mins(5);

/// How a search went.
pub(super) enum Outcome<'a> {
    /// There is none, as configured.
    Off,
    Searched {
        at: Timestamp,
        question: &'a Question,
        result: &'a Result<Found, Problem>,
        /// The clusters that count as found.
        clusters: BTreeSet<String>,
    },
}

/// What is to be written, if anything.
pub(super) fn patch(
    domain: &SearchDomain,
    outcome: &Outcome<'_>,
    known: &[Known],
    now: Timestamp,
) -> Option<Value> {
    let before = domain.status.clone().unwrap_or_default();
    let after = status(domain, &before, outcome, known, now);
    let is_same =
        SearchDomainStatus { last_search_time: before.last_search_time.clone(), ..after.clone() } == before;
    let is_old = match (&before.last_search_time, &after.last_search_time) {
        (Some(before), Some(after)) => {
            after.0.duration_since(before.0) >= REFRESH.try_into().unwrap_or_default()
        }
        (None, Some(_)) => true,
        (_, None) => false,
    };
    (!is_same || is_old).then(|| {
        // Spelled out, since a list that is left out would not be emptied.
        json!({"status": {
            "foreignClusters": after.foreign_clusters, "found": after.found,
            "lastSearchTime": after.last_search_time, "observedGeneration": after.observed_generation,
            "conditions": after.conditions,
        }})
    })
}

fn status(
    domain: &SearchDomain,
    before: &SearchDomainStatus,
    outcome: &Outcome<'_>,
    known: &[Known],
    now: Timestamp,
) -> SearchDomainStatus {
    let (searched_at, clusters) = match outcome {
        Outcome::Off => (before.last_search_time.clone(), BTreeSet::new()),
        Outcome::Searched { at, clusters, .. } => (Some(Time(*at)), clusters.clone()),
    };
    let is_found = |one: &&Known| one.cluster_id.as_ref().is_some_and(|id| clusters.contains(id));
    let names: BTreeSet<_> = known.iter().filter(is_found).map(|one| one.object.clone()).collect();
    let condition = condition(domain, before, explain(outcome), now);
    let others = before.conditions.iter().filter(|condition| condition.type_ != SEARCHED).cloned();
    SearchDomainStatus {
        foreign_clusters: names.into_iter().map(|name| ObjectRef { namespace: None, name }).collect(),
        found: Some(u32::try_from(clusters.len()).unwrap_or(u32::MAX)),
        last_search_time: searched_at,
        observed_generation: domain.metadata.generation,
        conditions: others.chain([condition]).collect(),
    }
}

fn condition(
    domain: &SearchDomain,
    before: &SearchDomainStatus,
    (is_true, reason, message): (bool, &str, String),
    now: Timestamp,
) -> Condition {
    let status = if is_true { "True" } else { "False" };
    let before = before.conditions.iter().find(|condition| condition.type_ == SEARCHED);
    let since =
        before.filter(|before| before.status == status).map(|before| before.last_transition_time.clone());
    Condition {
        type_: SEARCHED.into(),
        status: status.into(),
        reason: reason.into(),
        message,
        observed_generation: domain.metadata.generation,
        last_transition_time: since.unwrap_or(Time(now)),
    }
}

/// Whether the search went well, one word on it, and a sentence that says what to do.
fn explain(outcome: &Outcome<'_>) -> (bool, &'static str, String) {
    let (question, result) = match outcome {
        Outcome::Off => {
            let message = "this cluster does not look for others; set discoveryConfig.search to change that";
            return (false, "SearchIsOff", message.into());
        }
        Outcome::Searched { question, result, .. } => (question, result),
    };
    let Question { domain, service, server } = question;
    let server = server.as_deref().unwrap_or("the DNS server of this cluster");
    match result {
        Ok(Found { rubbish: 0, .. }) => (true, "Succeeded", format!("{domain} was looked up")),
        Ok(Found { rubbish, .. }) => (
            true,
            "SomeNotUnderstood",
            format!(
                "{domain} was looked up; {rubbish} of the instances of {service} are not understood: print their \
                 records anew with 'ferro discovery records' in those clusters"
            ),
        ),
        Err(Problem::Nothing) => (
            false,
            "NothingRegistered",
            format!(
                "no cluster is registered at {service}.{domain}; add the records that 'ferro discovery records \
                 --domain {domain}' prints in each of them"
            ),
        ),
        Err(Problem::TimedOut) => {
            (false, "TimedOut", format!("{server} does not answer in time; check dnsServer and the network"))
        }
        Err(Problem::Refused(code)) => (
            false,
            "Refused",
            format!("{server} answers '{code}'; check that it serves {domain}, or set another dnsServer"),
        ),
        Err(Problem::Failed(cause)) => (
            false,
            "Failed",
            format!("{server} cannot be asked: {}; check dnsServer and the network", short(cause)),
        ),
        Err(Problem::Server) => (
            false,
            "BadDnsServer",
            format!(
                "'{}' is not a DNS server; give its address, such as 192.0.2.53 or 192.0.2.53:5353",
                short(server)
            ),
        ),
        Err(Problem::Name) => {
            (false, "BadDomain", format!("{service}.{domain} is not a DNS name; correct the domain"))
        }
    }
}

/// As much of a text of others as a message may hold.
fn short(text: &str) -> String {
    text.chars().filter(|letter| !letter.is_control()).take(200).collect()
}

#[cfg(test)]
mod tests {
    use super::{Found, Outcome, Problem, Question, patch};
    use ferro_api::discovery::{DiscoveryType, SearchDomain, SearchDomainSpec};
    use ferro_core::discovery::Known;
    use k8s_openapi::jiff::{SignedDuration, Timestamp};
    use serde_json::Value;
    use std::collections::BTreeSet;

    const ID: &str = "34750f98-bd59-8cfc-946d-a45aaabe933b";

    fn domain() -> SearchDomain {
        let spec = SearchDomainSpec { domain: "example.org".into(), ..SearchDomainSpec::default() };
        SearchDomain::new("lab", spec)
    }

    fn known() -> Known {
        Known {
            object: "milan-8077748d43".into(),
            cluster_id: Some(ID.into()),
            discovery_type: DiscoveryType::Wan,
            auth_url: None,
            pin: None,
            in_use: false,
            lost: false,
        }
    }

    fn searched(
        domain: &SearchDomain,
        result: &Result<Found, Problem>,
        known: &[Known],
        at: Timestamp,
    ) -> Option<Value> {
        let question = Question {
            domain: "example.org".into(),
            service: "_liqo_api._tcp".into(),
            server: Some("ns".into()),
        };
        let clusters = match result {
            Ok(_) => BTreeSet::from([ID.to_owned()]),
            Err(_) => BTreeSet::new(),
        };
        patch(domain, &Outcome::Searched { at, question: &question, result, clusters }, known, at)
    }

    fn with(domain: &SearchDomain, patch: &Value) -> SearchDomain {
        let status = serde_json::from_value(patch["status"].clone()).unwrap();
        SearchDomain { status: Some(status), ..domain.clone() }
    }

    #[test]
    fn what_was_found_is_shown_and_nothing_is_written_again_for_five_minutes() {
        let (now, found) = (Timestamp::now(), Ok(Found::default()));
        let first = searched(&domain(), &found, &[], now).unwrap();
        assert_eq!(
            (&first["status"]["found"], &first["status"]["conditions"][0]["status"]),
            (&1.into(), &"True".into())
        );
        let shown = with(&domain(), &first);
        let later = |minutes| now + SignedDuration::from_mins(minutes);
        assert_eq!(searched(&shown, &found, &[], later(4)), None);
        assert!(searched(&shown, &found, &[], later(5)).is_some());
        let made = searched(&shown, &found, &[known()], later(1)).unwrap();
        assert_eq!(made["status"]["foreignClusters"][0]["name"], "milan-8077748d43");
        assert_eq!(
            made["status"]["conditions"][0]["lastTransitionTime"],
            first["status"]["conditions"][0]["lastTransitionTime"]
        );
        let gone = searched(&with(&domain(), &made), &Err(Problem::Nothing), &[known()], later(2)).unwrap();
        assert_eq!(gone["status"]["foreignClusters"], serde_json::json!([]));
    }

    #[test]
    fn every_failure_has_a_reason_and_says_what_to_do() {
        for (problem, reason, hint) in [
            (Problem::Nothing, "NothingRegistered", "ferro discovery records --domain example.org"),
            (Problem::TimedOut, "TimedOut", "check dnsServer"),
            (Problem::Refused("Refused".into()), "Refused", "set another dnsServer"),
            (Problem::Failed("x".repeat(5000)), "Failed", "check dnsServer"),
            (Problem::Server, "BadDnsServer", "give its address"),
            (Problem::Name, "BadDomain", "correct the domain"),
        ] {
            let patch = searched(&domain(), &Err(problem), &[], Timestamp::now()).unwrap();
            let condition = &patch["status"]["conditions"][0];
            assert_eq!((&condition["status"], &condition["reason"]), (&"False".into(), &reason.into()));
            let message = condition["message"].as_str().unwrap();
            assert!(message.contains(hint) && message.len() < 1000, "{message}");
        }
        let off = patch(&domain(), &Outcome::Off, &[], Timestamp::now()).unwrap();
        assert_eq!(off["status"]["conditions"][0]["reason"], "SearchIsOff");
    }
}
