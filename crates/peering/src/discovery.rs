//! Discovery in the controller: from what nodes and search domains tell, to a `ForeignCluster` for each cluster.
//!
//! - Flow: nodes note down whom they hear on their LANs, search domains are looked up, and [`Neighbourhood`] makes a
//!   plan of all that. Addresses are tried beside the loop; the first at which the cluster proves who it is gets
//!   written, the others rest for a while.
//! - Guarantees: nothing is written on an announcement alone. Whatever is announced, only so many addresses are tried
//!   at once, and those of clusters that are known already never wait for strangers. What is planned is looked at
//!   again before it is written, so that nothing is made of what has been taken back.
//! - Assumptions: all of it is in memory. After a restart the notes are read again and the domains looked up again;
//!   until there was time for that, nobody counts as gone.

mod attempts;
mod objects;
mod reports;
mod searches;
mod wan;

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::Result;
use ferro_api::config::BundleRef;
use ferro_api::discovery::{ForeignCluster, SearchDomain};
use ferro_core::discovery::{Bounds, Change, Ignored, Known, Neighbourhood, Sighting, Way};
use ferro_runtime::shutdown::Tasks;
use ferro_runtime::watch::Watched;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::jiff::Timestamp;
use kube::Api;
use kube::runtime::watcher;
use tokio::time::sleep;
use tracing::{debug, warn};

use self::attempts::{Attempts, Outcome};
use self::objects::Objects;
use self::reports::Reports;
use self::searches::Searches;
use crate::contact::Caller;
use crate::home::Home;

/// The reason with which `status.authentication` says that the cluster does not answer.
const UNREACHABLE: &str = "Unreachable";
/// How soon to look again at what could not be done at once.
const SOON: Duration = Duration::from_secs(5);
/// How soon to look again at the latest.
const LATER: Duration = Duration::from_mins(10);

/// Finds other clusters, for ever.
pub async fn run(tasks: Tasks, home: Home) -> Result<()> {
    let ours = watcher::Config::default().labels(&ferro_api::names::labels::PART_OF.selector());
    let maps = Api::<ConfigMap>::namespaced(home.client.clone(), &home.namespace);
    let mut maps = Watched::start(&tasks, "sightings", maps, ours);
    let domains = Api::<SearchDomain>::all(home.client.clone());
    let mut domains = Watched::start(&tasks, "search domains", domains, watcher::Config::default());
    home.ready().await?;
    tokio::try_join!(maps.ready(), domains.ready())?;
    let (mut peers, mut config) = (home.peers.clone(), home.config.clone());
    let mut discovery = Discovery::new(home)?;
    loop {
        let wait = discovery.pass(&maps, &domains).await?;
        tokio::select! {
            changed = maps.changed() => changed?,
            changed = domains.changed() => changed?,
            changed = peers.changed() => changed?,
            changed = config.changed() => changed?,
            finding = discovery.searches.next() => discovery.searches.take_in(finding),
            outcome = discovery.attempts.next() => discovery.conclude(outcome).await,
            () = sleep(wait) => {}
        }
    }
}

struct Discovery {
    home: Home,
    neighbourhood: Neighbourhood,
    reports: Reports,
    searches: Searches,
    attempts: Attempts,
    objects: Objects,
    /// Who said something the last time.
    ways: BTreeSet<Way>,
    /// What the caller trusts beside the authorities of the system, and since when.
    trusted: (Option<BundleRef>, Instant),
    caller: Caller,
}

impl Discovery {
    fn new(home: Home) -> Result<Self> {
        let own = home.own()?.signer.identity().id();
        Ok(Self {
            neighbourhood: Neighbourhood::new(own, Bounds::default(), Timestamp::now()),
            reports: Reports::new(&home),
            searches: Searches::new(home.client.clone(), own),
            attempts: Attempts::default(),
            objects: Objects::new(home.client.clone()),
            ways: BTreeSet::new(),
            trusted: (None, Instant::now()),
            caller: Caller::new(None)?,
            home,
        })
    }

    /// Brings everything up to date, and says when to look again even if nothing changes.
    async fn pass(&mut self, maps: &Watched<ConfigMap>, domains: &Watched<SearchDomain>) -> Result<Duration> {
        self.follow_trust().await?;
        let settings = self.home.settings().discovery();
        let now = Timestamp::now();
        let known = self.known();
        self.searches.follow(&domains.all(), &settings);
        let mut news = self.reports.read(&maps.all(), now);
        news.extend(self.searches.sightings());
        news.retain(|_| settings.search());
        let is_all = self.listen(news, &known, now);
        let mut is_done = self.start(&known, now).await;
        is_done &= self.searches.show(&domains.all(), &settings, &known, now).await;
        is_done &= self.reports.sweep(&maps.all(), now).await;
        let next = self.neighbourhood.next_change(now).map_or(LATER, |next| until(next, now));
        Ok(next.min(if is_all && is_done { LATER } else { SOON }))
    }

    /// Takes in all that is said now; whether all of it could be.
    fn listen(&mut self, news: Vec<Sighting>, known: &[Known], now: Timestamp) -> bool {
        let ways: BTreeSet<_> = news.iter().map(|news| news.way.clone()).collect();
        for silent in self.ways.difference(&ways) {
            self.neighbourhood.goodbye(silent);
        }
        self.ways = ways;
        let mut is_all = true;
        for news in news {
            match self.neighbourhood.hear(news, known, now) {
                Ok(()) | Err(Ignored::Own | Ignored::Rubbish | Ignored::Crowded) => {}
                Err(Ignored::TooFast) => is_all = false,
            }
        }
        self.neighbourhood.expire(now);
        is_all
    }

    /// Begins what is planned; whether there was nothing that has to wait.
    async fn start(&mut self, known: &[Known], now: Timestamp) -> bool {
        let mut is_done = true;
        for change in self.neighbourhood.plan(known, now) {
            is_done &= match &change {
                Change::Remove { object } => match self.home.peers.get(None, object) {
                    Some(object) => tell(self.objects.remove(&object).await),
                    None => true,
                },
                Change::Create { .. } | Change::Update { .. } => self.attempts.start(&self.caller, change),
            };
        }
        is_done
    }

    /// Writes what has proved to be right, if it is still wanted, and puts the rest off.
    async fn conclude(&mut self, outcome: Outcome) {
        let now = Timestamp::now();
        let Outcome { cluster, failed, proved } = outcome;
        for address in &failed {
            self.neighbourhood.unproved(&cluster, address, now);
        }
        let Some((address, met)) = proved else { return };
        let planned = self.neighbourhood.plan(&self.known(), now);
        let written = match planned.iter().find(|change| attempts::is_of(change, &cluster, &address)) {
            Some(Change::Create { discovery_type, .. }) => {
                let join = self.searches.auto_join(&cluster);
                self.objects.create(*discovery_type, &address, &met, join).await
            }
            Some(Change::Update { object, discovery_type, .. }) => match self.home.peers.get(None, object) {
                Some(object) => self.objects.update(&object, *discovery_type, &address, &met).await,
                None => Ok(()),
            },
            Some(Change::Remove { .. }) | None => return debug!(%cluster, "no longer wanted"),
        };
        if tell(written) {
            self.attempts.settle(cluster);
        } else {
            self.neighbourhood.unproved(&cluster, &address, now);
        }
    }

    fn known(&self) -> Vec<Known> {
        self.home.peers.all().iter().map(|object| Known::of(object, is_lost(object))).collect()
    }

    /// Calls with the authorities that are configured now. What they are is looked at again now and then.
    async fn follow_trust(&mut self) -> Result<()> {
        let wanted = self.home.settings().auth().trusted_ca;
        let (trusted, since) = &self.trusted;
        if wanted == *trusted && (wanted.is_none() || since.elapsed() < LATER) {
            return Ok(());
        }
        let bundle = match &wanted {
            Some(reference) => self.bundle(reference).await,
            None => None,
        };
        self.caller = match Caller::new(bundle.as_deref()) {
            Ok(caller) => caller,
            Err(error) => {
                warn!(error = format!("{error:#}"), "authConfig.trustedCA cannot be used; correct it");
                Caller::new(None)?
            }
        };
        self.trusted = (wanted, Instant::now());
        Ok(())
    }

    async fn bundle(&self, reference: &BundleRef) -> Option<Vec<u8>> {
        let BundleRef { namespace, name, .. } = reference;
        let maps: Api<ConfigMap> = Api::namespaced(self.home.client.clone(), namespace);
        match maps.get(name).await {
            Ok(map) => map.data?.get(reference.key()).map(|text| text.as_bytes().to_vec()),
            Err(error) => {
                warn!(namespace, name, %error, "cannot read the authorities to trust; correct authConfig.trustedCA");
                None
            }
        }
    }
}

/// Whether the cluster does not answer at its address.
fn is_lost(object: &ForeignCluster) -> bool {
    let authentication = object.status.as_ref().and_then(|status| status.authentication.as_ref());
    authentication.is_some_and(|authentication| authentication.reason.as_deref() == Some(UNREACHABLE))
}

/// How long it is until then; never nothing, so that a clock that stands still does no harm.
fn until(then: Timestamp, now: Timestamp) -> Duration {
    let wait: Duration = then.duration_since(now).try_into().unwrap_or_default();
    wait.max(Duration::from_millis(10))
}

/// Tells if something went wrong; it is tried again. Whether it went well.
fn tell(result: Result<()>) -> bool {
    match result {
        Ok(()) => true,
        Err(error) => {
            warn!(error = format!("{error:#}"), "discovery could not write; it is tried again");
            false
        }
    }
}

#[cfg(test)]
mod tests {
    use super::is_lost;
    use ferro_api::discovery::{Authentication, ForeignCluster, ForeignClusterStatus};

    #[test]
    fn only_a_cluster_that_does_not_answer_counts_as_lost() {
        for (reason, lost) in [(None, false), (Some("InvalidToken"), false), (Some("Unreachable"), true)] {
            let reason = reason.map(str::to_owned);
            let authentication = Some(Authentication { reason, ..Authentication::default() });
            let status = Some(ForeignClusterStatus { authentication, ..ForeignClusterStatus::default() });
            assert_eq!(is_lost(&ForeignCluster { status, ..ForeignCluster::default() }), lost);
        }
        assert!(!is_lost(&ForeignCluster::default()));
    }
}
