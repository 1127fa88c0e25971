//! The links to peers: over each go our objects, the confirmations of our offer, and the question whether we are still
//! let in.
//!
//! One link for each peer that has let this cluster in, made anew when the credentials or the rules change. A peer
//! that is slow, dead or hostile holds up its own link only.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};
use ferro_api::config::{ClusterConfigSpec, ReplicatedResource};
use ferro_api::discovery::{ForeignCluster, ResourceRequest};
use ferro_api::sharing::ResourceOffer;
use ferro_core::auth::IdentityGrant;
use ferro_core::replication::rules;
use ferro_runtime::shutdown::Tasks;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt as _};
use serde_json::json;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use tracing::{info, warn};

use super::facts::{Facts, id_of};
use crate::home::Home;
use crate::identity::Own;
use crate::keepsake::Keepsake;
use crate::remote::{self, Between};
use crate::replicator::{self, Ends, Originals};

/// How often a peer that gets no confirmations is asked whether it still lets us in.
const PROBE: Duration = Duration::from_mins(1);
/// A peer that says no is asked again after this long: rights may be on their way.
const SECOND_OPINION: Duration = Duration::from_secs(2);
/// So long it must go on saying no: an API server that has just started may not know yet who has which rights.
const CERTAIN: Duration = Duration::from_secs(10);
const MANAGER: &str = "ferro-keepalive";

/// All links.
pub(super) struct Links {
    tasks: Tasks,
    originals: Originals,
    between: Option<Between>,
    by_peer: HashMap<String, Link>,
    rejected: watch::Sender<BTreeSet<String>>,
    ring: watch::Sender<u64>,
    bell: watch::Receiver<u64>,
}

struct Link {
    made_of: MadeOf,
    tasks: Tasks,
    line: Arc<Line>,
    beat: watch::Sender<Beat>,
}

/// What a link is made of: when this changes, another link is needed.
#[derive(Clone, PartialEq)]
struct MadeOf {
    keepsake: Keepsake,
    ends: (String, String, String),
    replicated: Vec<ReplicatedResource>,
}

/// What there is to confirm, and how often.
#[derive(Clone, Debug, Default, PartialEq)]
struct Beat {
    offer: Option<String>,
    every: Duration,
}

/// What is known of the other end.
#[derive(Default)]
struct Line {
    state: Mutex<LineState>,
    trouble: Notify,
}

#[derive(Clone, Copy, Default)]
struct LineState {
    /// When our offer was last confirmed, or when that was first to be done.
    delivered: Option<Timestamp>,
    denied_since: Option<Instant>,
    rejected: bool,
}

impl Links {
    pub(super) fn new(tasks: Tasks, home: &Home, rejected: watch::Sender<BTreeSet<String>>) -> Self {
        let (ring, bell) = watch::channel(0);
        let originals = Originals::new(tasks.clone(), home.client.clone());
        let between = home.between.clone();
        Self { tasks, originals, between, by_peer: HashMap::new(), rejected, ring, bell }
    }

    /// Makes, renews or ends the link to a peer, as its facts say.
    pub(super) fn keep(
        &mut self,
        peer: &ForeignCluster,
        own: &Own,
        settings: &ClusterConfigSpec,
        facts: &Facts,
    ) -> Result<()> {
        let name = peer.name_any();
        let Some((made_of, grant)) = parts(peer, own, settings, facts) else {
            self.end(&name);
            return Ok(());
        };
        if self.by_peer.get(&name).is_none_or(|link| link.made_of != made_of || link.tasks.have_ended()) {
            self.end(&name);
            let link = self.start(made_of, &grant)?;
            info!(peer = name, server = %grant.api_server_url, "linked");
            self.by_peer.insert(name.clone(), link);
        }
        if let Some(link) = self.by_peer.get(&name) {
            let offer = facts.offer.as_ref().filter(|offer| offer.metadata.deletion_timestamp.is_none());
            let beat = Beat {
                offer: offer.map(|offer| offer.name_any()),
                every: settings.advertisement().keepalive_retry_time(),
            };
            link.beat.send_if_modified(|present| {
                let changed = *present != beat;
                if beat.offer.is_some() && beat.offer != present.offer {
                    link.line.begin();
                }
                *present = beat;
                changed
            });
        }
        Ok(())
    }

    /// Adds to the facts what the link knows.
    pub(super) fn tell(&self, name: &str, facts: &mut Facts) {
        let state = self.by_peer.get(name).map(|link| link.line.state());
        facts.rejected = state.is_some_and(|state| state.rejected);
        facts.delivered = state.and_then(|state| state.delivered);
        self.rejected.send_if_modified(|names| {
            if facts.rejected { names.insert(name.to_owned()) } else { names.remove(name) }
        });
    }

    /// Ends the links of peers that are gone.
    pub(super) fn retain(&mut self, names: &BTreeSet<String>) {
        let gone: Vec<String> = self.by_peer.keys().filter(|name| !names.contains(*name)).cloned().collect();
        for name in &gone {
            self.end(name);
        }
        self.rejected.send_if_modified(|rejected| {
            let before = rejected.len();
            rejected.retain(|name| names.contains(name));
            rejected.len() < before
        });
    }

    /// Waits until one of the links has learnt something.
    pub(super) async fn changed(&mut self) -> Result<()> {
        self.bell.changed().await.context("the links have gone")
    }

    fn end(&mut self, name: &str) {
        if let Some(link) = self.by_peer.remove(name) {
            link.tasks.dismiss();
        }
    }

    fn start(&self, made_of: MadeOf, grant: &IdentityGrant) -> Result<Link> {
        let (remote, _) =
            remote::client(&made_of.keepsake)?.context("there are no credentials for the peer")?;
        let remote = self.between.as_ref().map_or(remote.clone(), |between| between(remote));
        let tasks = self.tasks.child();
        let line = Arc::new(Line::default());
        let (us, peer, local_namespace) = made_of.ends.clone();
        let ends = Ends { us, peer, local_namespace, remote_namespace: grant.namespace.clone() };
        let rules = rules(&made_of.replicated);
        let trouble = Arc::clone(&line);
        replicator::start(&tasks, &ends, &self.originals, &remote, rules, move || {
            trouble.trouble.notify_one();
        });
        let (beat, beats) = watch::channel(Beat::default());
        let heart = Heart {
            offers: Api::namespaced(remote.clone(), &grant.namespace),
            requests: Api::namespaced(remote, &grant.namespace),
            line: Arc::clone(&line),
            ring: self.ring.clone(),
        };
        tasks.spawn("heart", heart.run(beats));
        Ok(Link { made_of, tasks, line, beat })
    }
}

/// What the link to a peer is made of, if there can be one.
fn parts(
    peer: &ForeignCluster,
    own: &Own,
    settings: &ClusterConfigSpec,
    facts: &Facts,
) -> Option<(MadeOf, IdentityGrant)> {
    let keepsake = facts.keepsake.clone()?;
    let grant = keepsake.grant.clone()?;
    let tenant = facts.tenant.as_ref()?.name_any();
    let us = own.signer.identity().id().to_string();
    let keepsake = Keepsake { token: None, next_key: None, ..keepsake };
    let made_of = MadeOf {
        keepsake,
        ends: (us, id_of(peer)?.to_owned(), tenant),
        replicated: settings.resources_to_replicate().to_vec(),
    };
    Some((made_of, grant))
}

impl Line {
    fn state(&self) -> LineState {
        *self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins to wait for the first delivery; a peer that nothing ever reaches is lost, too.
    fn begin(&self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.delivered = Some(Timestamp::now());
    }

    /// Takes note of an answer; true when it changes something that a decision looks at.
    fn note(&self, answer: &kube::Result<()>, confirmed: bool) -> bool {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let before = state.rejected;
        match answer {
            Ok(()) => {
                let now = Timestamp::now();
                let delivered = if confirmed { Some(now) } else { state.delivered };
                *state = LineState { delivered, denied_since: None, rejected: false };
            }
            Err(error) if is_denial(error) => {
                let since = *state.denied_since.get_or_insert_with(Instant::now);
                state.rejected = state.rejected || since.elapsed() >= CERTAIN;
            }
            Err(_) => state.denied_since = None,
        }
        confirmed || before != state.rejected
    }
}

/// Whether the API server answered, and does not let us do what a peer may do.
fn is_denial(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if matches!(status.code, 401 | 403))
}

/// Confirms our offer at the peer, and asks whether we are still let in.
struct Heart {
    offers: Api<ResourceOffer>,
    requests: Api<ResourceRequest>,
    line: Arc<Line>,
    ring: watch::Sender<u64>,
}

impl Heart {
    async fn run(self, mut beats: watch::Receiver<Beat>) -> Result<()> {
        let mut next = Instant::now() + SECOND_OPINION;
        loop {
            tokio::select! {
                changed = beats.changed() => {
                    changed.context("the link has gone")?;
                    let beat = beats.borrow_and_update().clone();
                    next = next.min(Instant::now() + period(&beat));
                    continue;
                }
                () = tokio::time::sleep_until(next) => {}
                () = self.line.trouble.notified() => {}
            }
            let beat = beats.borrow().clone();
            if self.once(&beat).await {
                self.ring.send_modify(|count| *count += 1);
            }
            next = Instant::now() + self.pause(&beat);
        }
    }

    fn pause(&self, beat: &Beat) -> Duration {
        let state = self.line.state();
        let in_doubt = state.denied_since.is_some() && !state.rejected;
        if in_doubt { SECOND_OPINION } else { period(beat) }
    }

    /// One sign of life; true when it changes something.
    async fn once(&self, beat: &Beat) -> bool {
        let confirmed = match &beat.offer {
            Some(offer) => self.confirm(offer).await,
            None => None,
        };
        if let Some(answer) = confirmed {
            self.line.note(&answer, answer.is_ok())
        } else {
            let listed = self.requests.list_metadata(&ListParams::default().limit(1)).await;
            self.line.note(&listed.map(drop), false)
        }
    }

    /// Nothing when the copy is not there yet.
    async fn confirm(&self, offer: &str) -> Option<kube::Result<()>> {
        let patch = json!({"spec": {"renewTime": MicroTime(Timestamp::now())}});
        let how = PatchParams { field_manager: Some(MANAGER.into()), ..PatchParams::default() };
        match self.offers.patch_metadata(offer, &how, &Patch::Merge(patch)).await {
            Err(kube::Error::Api(status)) if status.code == 404 => None,
            Err(error) => {
                warn!(%error, "the offer could not be confirmed");
                Some(Err(error))
            }
            Ok(_) => Some(Ok(())),
        }
    }
}

fn period(beat: &Beat) -> Duration {
    if beat.offer.is_some() { beat.every } else { PROBE }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silence_counts_from_the_offer_on_even_if_nothing_ever_arrives() {
        let (line, cut) = (Line::default(), Err(kube::Error::LinesCodecMaxLineLengthExceeded));
        line.begin();
        let begun = line.state().delivered;
        assert!(begun.is_some() && !line.note(&cut, false));
        assert_eq!(line.state().delivered, begun);
        assert!(line.note(&Ok(()), true) && line.state().delivered > begun);
    }
}
