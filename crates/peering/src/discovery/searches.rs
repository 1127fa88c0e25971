//! The searches in DNS domains: one task for each `SearchDomain`, what it found last, and its status.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use ferro_api::config::DiscoveryConfig;
use ferro_api::discovery::SearchDomain;
use ferro_core::discovery::{Announcement, Known, Sighting, Way};
use ferro_core::identity::ClusterId;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client, ResourceExt as _};
use tokio::sync::mpsc;
use tokio::task::AbortHandle;

use super::tell;
use super::wan::{self, Found, Problem, Question};

mod status;

/// What was found counts for so many periods.
const PERIODS: u32 = 3;

/// What one search has brought.
pub(super) struct Finding {
    object: String,
    question: Question,
    at: Timestamp,
    result: Result<Found, Problem>,
}

/// All searches.
pub(super) struct Searches {
    client: Client,
    own: ClusterId,
    running: BTreeMap<String, Search>,
    tell: mpsc::Sender<Finding>,
    told: mpsc::Receiver<Finding>,
}

/// One search, over and over.
struct Search {
    question: Question,
    period: Duration,
    auto_join: Option<bool>,
    task: AbortHandle,
    /// The clusters that were found the last time there was an answer, and until when that counts.
    found: Vec<Announcement>,
    expires_at: Timestamp,
    /// When the last search ended, and how.
    last: Option<(Timestamp, Result<Found, Problem>)>,
}

impl Drop for Search {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Searches {
    pub(super) fn new(client: Client, own: ClusterId) -> Self {
        let (tell, told) = mpsc::channel(16);
        Self { client, own, running: BTreeMap::new(), tell, told }
    }

    /// Searches in these domains, as configured now, and in no others.
    pub(super) fn follow(&mut self, domains: &[Arc<SearchDomain>], settings: &DiscoveryConfig) {
        let domains =
            domains.iter().filter(|domain| settings.search() && domain.metadata.deletion_timestamp.is_none());
        let wanted: BTreeMap<_, _> =
            domains.map(|domain| (domain.name_any(), (domain, question(domain, settings)))).collect();
        self.running.retain(|object, search| {
            let wanted = wanted.get(object).map(|(_, wanted)| wanted);
            wanted == Some(&(search.question.clone(), search.period))
        });
        for (object, (domain, (question, period))) in wanted {
            let search = self.running.entry(object.clone()).or_insert_with(|| {
                let task = tokio::spawn(again_and_again(object, question.clone(), period, self.tell.clone()));
                Search {
                    question,
                    period,
                    auto_join: None,
                    task: task.abort_handle(),
                    found: Vec::new(),
                    expires_at: Timestamp::UNIX_EPOCH,
                    last: None,
                }
            });
            search.auto_join = domain.spec.auto_join;
        }
    }

    /// What the next search brings.
    pub(super) async fn next(&mut self) -> Finding {
        match self.told.recv().await {
            Some(finding) => finding,
            // Cannot be: this holds a sender itself.
            None => std::future::pending().await,
        }
    }

    /// Takes in what a search has brought, unless it is no longer wanted.
    pub(super) fn take_in(&mut self, finding: Finding) {
        let Finding { object, question, at, result } = finding;
        let search = self.running.get_mut(&object).filter(|search| search.question == question);
        let Some(search) = search else { return };
        let found = match &result {
            Ok(found) => Some(found.announcements.clone()),
            Err(Problem::Nothing) => Some(Vec::new()),
            // A server that fails now and then is no reason to forget anybody.
            Err(_) => None,
        };
        if let Some(found) = found {
            let lease = search.period.saturating_mul(PERIODS).saturating_add(Duration::from_secs(30));
            (search.found, search.expires_at) = (found, at.saturating_add(lease).unwrap_or(Timestamp::MAX));
        }
        search.last = Some((at, result));
    }

    /// All clusters that are registered somewhere.
    pub(super) fn sightings(&self) -> Vec<Sighting> {
        let found = self.running.values().flat_map(|search| {
            search.found.iter().map(move |announcement| {
                let way = Way::Wan { domain: search.question.domain.clone() };
                Sighting::of(announcement.clone(), way, search.expires_at)
            })
        });
        found.collect()
    }

    /// What the domains in which a cluster is registered say about asking it for resources; yes before no.
    pub(super) fn auto_join(&self, cluster: &ClusterId) -> Option<bool> {
        let registered =
            self.running.values().filter(|search| search.found.iter().any(|one| one.id == *cluster));
        registered.filter_map(|search| search.auto_join).max()
    }

    /// Shows on each object how its search went; whether that went well.
    pub(super) async fn show(
        &self,
        domains: &[Arc<SearchDomain>],
        settings: &DiscoveryConfig,
        known: &[Known],
        now: Timestamp,
    ) -> bool {
        let mut is_done = true;
        for domain in domains.iter().filter(|domain| domain.metadata.deletion_timestamp.is_none()) {
            let search = self.running.get(&domain.name_any());
            let search = search.and_then(|search| search.last.as_ref().map(|last| (search, last)));
            let outcome = match search {
                _ if !settings.search() => status::Outcome::Off,
                Some((search, (at, result))) => status::Outcome::Searched {
                    at: *at,
                    question: &search.question,
                    result,
                    clusters: self.clusters(search, now),
                },
                None => continue,
            };
            if let Some(patch) = status::patch(domain, &outcome, known, now) {
                is_done &= tell(self.write(domain, &patch).await);
            }
        }
        is_done
    }

    /// The others that count as registered.
    fn clusters(&self, search: &Search, now: Timestamp) -> BTreeSet<String> {
        let found = search.found.iter().filter(|_| search.expires_at > now);
        let others = found.filter(|announcement| announcement.id != self.own);
        others.map(|announcement| announcement.id.to_string()).collect()
    }

    async fn write(&self, domain: &SearchDomain, patch: &serde_json::Value) -> anyhow::Result<()> {
        let name = domain.name_any();
        let domains = Api::<SearchDomain>::all(self.client.clone());
        match domains.patch_status(&name, &PatchParams::default(), &Patch::Merge(patch)).await {
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
            written => written
                .map(drop)
                .with_context(|| format!("cannot write the status of the SearchDomain {name}")),
        }
    }
}

/// What to ask about a domain, and how often.
fn question(domain: &SearchDomain, settings: &DiscoveryConfig) -> (Question, Duration) {
    let spec = &domain.spec;
    let question = Question {
        domain: spec.domain.trim_end_matches('.').to_ascii_lowercase(),
        service: settings.service().to_owned(),
        server: spec.dns_server.clone().or_else(|| settings.dns_server.clone()),
    };
    let period = spec.search_period_seconds.map(|seconds| Duration::from_secs(seconds.into()));
    (question, period.unwrap_or(settings.search_period()).max(Duration::from_secs(1)))
}

async fn again_and_again(object: String, question: Question, period: Duration, tell: mpsc::Sender<Finding>) {
    loop {
        let result = wan::search(&question).await;
        let (at, object, question) = (Timestamp::now(), object.clone(), question.clone());
        if tell.send(Finding { object, question, at, result }).await.is_err() {
            return;
        }
        tokio::time::sleep(period).await;
    }
}

#[cfg(test)]
mod tests {
    use super::question;
    use ferro_api::config::DiscoveryConfig;
    use ferro_api::discovery::{SearchDomain, SearchDomainSpec};
    use std::time::Duration;

    #[test]
    fn what_a_domain_leaves_out_is_as_configured() {
        let settings = DiscoveryConfig {
            dns_server: Some("192.0.2.1".into()),
            search_period_seconds: Some(20),
            ..DiscoveryConfig::default()
        };
        let mut domain = SearchDomain::new(
            "lab",
            SearchDomainSpec { domain: "Example.org.".into(), ..SearchDomainSpec::default() },
        );
        let (asked, period) = question(&domain, &settings);
        assert_eq!((asked.domain.as_str(), asked.service.as_str()), ("example.org", "_liqo_api._tcp"));
        assert_eq!((asked.server.as_deref(), period), (Some("192.0.2.1"), Duration::from_secs(20)));
        domain.spec.dns_server = Some("192.0.2.2".into());
        domain.spec.search_period_seconds = Some(5);
        let (asked, period) = question(&domain, &settings);
        assert_eq!((asked.server.as_deref(), period), (Some("192.0.2.2"), Duration::from_secs(5)));
    }
}
