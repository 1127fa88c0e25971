//! The task of one peer: looks at its view, decides, does one step, and begins again.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use ferro_api::discovery::ForeignCluster;
use ferro_core::auth::enrolment::{
    Conflict, Facts, Meeting, Premises, Setback, Step, Target, next_step, shown,
};
use ferro_core::auth::{HttpsUrl, TokenSecret};
use ferro_core::identity::ClusterId;
use k8s_openapi::jiff::Timestamp;
use tokio::sync::watch;
use tracing::{info, warn};

use super::exchange::Exchange;
use super::held::Kept;
use super::problem::Problem;
use super::report::Report;
use super::search::{Callers, Found, look};
use super::{View, changed};
use crate::contact::Met;
use crate::home::Home;
use crate::identity::Own;

/// The clock may be set; so no wait is longer.
const LONGEST: Duration = Duration::from_hours(1);
/// How long to wait for the view to show what others wrote.
const ECHO: Duration = Duration::from_secs(1);

/// One peer, and what is remembered of it.
pub(super) struct Peer {
    pub(super) home: Home,
    pub(super) name: String,
    callers: Arc<Callers>,
    pub(super) view: watch::Receiver<View>,
    /// The last meeting, where it was, and who was met.
    pub(super) met: Option<(Meeting, HttpsUrl, Met)>,
    pub(super) setback: Option<Setback>,
    pub(super) kept: Kept,
    /// The token that lets the peer in here, and until when it is shown.
    pub(super) return_token: Option<(TokenSecret, Timestamp)>,
    /// Until when the peer can ask this cluster in its turn, as far as we can do something about it.
    pub(super) invited: Timestamp,
    /// When the peer was heard of, if that is worth a write.
    pub(super) seen: Option<Timestamp>,
}

impl Peer {
    pub(super) fn new(home: Home, name: String, callers: Arc<Callers>, view: watch::Receiver<View>) -> Self {
        let (met, setback, kept, invited) = (None, None, Kept::default(), Timestamp::MIN);
        let (return_token, seen) = (None, None);
        Self { home, name, callers, view, met, setback, kept, return_token, invited, seen }
    }

    /// Cares for the peer until it is aborted.
    pub(super) async fn run(mut self) {
        let mut stumbles = 0;
        loop {
            let view = self.view.borrow_and_update().clone();
            let wait = match self.reconcile(&view).await {
                Ok(until) => {
                    stumbles = 0;
                    until.duration_since(Timestamp::now()).try_into().unwrap_or_default()
                }
                Err(error) => {
                    warn!(peer = self.name, error = format!("{error:#}"), "will be tried again");
                    stumbles = (stumbles + 1).min(6);
                    Duration::from_secs(1 << stumbles)
                }
            };
            tokio::select! {
                () = changed(&mut self.view) => {}
                () = tokio::time::sleep(wait.min(LONGEST)) => {}
            }
        }
    }

    /// Writes down what is known, does one step, and says when to come again if nothing changes.
    async fn reconcile(&mut self, view: &View) -> Result<Timestamp> {
        let own = self.home.own()?;
        let own_id = own.signer.identity().id();
        let target = match target(view) {
            Ok(target) => target,
            Err(problem) => {
                self.report(&view.peer, &Report::showing(problem.shown)).await?;
                return Ok(Timestamp::MAX);
            }
        };
        self.kept.look_at(view.secret.as_deref(), &own_id);
        self.met = self.met.take().filter(|(meeting, ..)| meeting.is_about(&target));
        if let Some(conflict) = self.conflict(&target, &own_id, view) {
            self.report(&view.peer, &Report::showing(conflict.shown())).await?;
            return Ok(Timestamp::MAX);
        }
        let Some(peer) = self.write_down(&view.peer).await? else { return Ok(Timestamp::now() + ECHO) };
        let token = self.kept.keepsake.token.map(|token| token.hash());
        let premises = Premises { target, token, rejected: view.rejected };
        let premises = premises.settled(self.met.as_ref().map(|(meeting, ..)| meeting));
        let (step, report) = self.decide(&premises);
        self.report(&peer, &report).await?;
        match step {
            Step::Wait { until } if !self.must_invite(&peer, &own).await? => Ok(until),
            Step::Meet => self.meet(&peer, premises).await,
            Step::Enrol | Step::Wait { .. } => {
                self.enrol(&peer, premises, &own).await?;
                Ok(Timestamp::now())
            }
        }
    }

    /// What to do, and what to show before that.
    fn decide(&mut self, premises: &Premises) -> (Step, Report) {
        let meeting = self.met.as_ref().map(|(meeting, ..)| meeting);
        let (held, setback) = (self.kept.held.as_ref(), self.setback.take());
        let facts = Facts { premises, meeting, held, setback: setback.as_ref(), now: Timestamp::now() };
        let (step, shown) = (next_step(&facts), shown(&facts));
        let over = setback.as_ref().is_some_and(|setback| setback.is_over(&facts));
        self.setback = setback.filter(|_| !over);
        let Some(authentication) = shown else { return (step, Report::default()) };
        let met_at = meeting.and_then(|meeting| meeting.api_server.as_ref());
        let report = Report {
            authentication: Some(authentication),
            api_server_url: held.map(|held| &held.api_server).or(met_at).map(ToString::to_string),
            remote_namespace: held
                .and(self.kept.keepsake.grant.as_ref())
                .map(|grant| grant.namespace.clone()),
            seen: self.seen,
        };
        (step, report)
    }

    /// Whether the `ForeignCluster` may stand for the cluster, as far as that is known.
    fn conflict(&self, target: &Target, own: &ClusterId, view: &View) -> Option<Conflict> {
        let met = self.met.as_ref().map(|(meeting, ..)| meeting.cluster);
        Conflict::find(&self.name, &target.cluster.or(met)?, own, &view.claims)
    }

    /// Finds out who is there, and says when to go on.
    async fn meet(&mut self, peer: &ForeignCluster, premises: Premises) -> Result<Timestamp> {
        let settings = self.home.settings();
        let caller = self.callers.get(&settings).await?;
        let (url, met) = match look(&caller, &premises.target, &settings).await {
            Ok(Found::Met(url, met)) => (url, *met),
            Ok(Found::NewKey(pin)) => {
                self.follow_key(peer, &pin).await?;
                return Ok(Timestamp::now() + ECHO);
            }
            Err(problem) => {
                self.set_back(premises, problem);
                return Ok(Timestamp::now());
            }
        };
        info!(peer = self.name, %url, cluster = %met.identity.id(), "met");
        let meeting = Meeting {
            target: premises.target,
            pin: met.pin,
            cluster: met.identity.id(),
            api_server: met.api_server_url.clone(),
            at: Timestamp::now(),
        };
        if self.kept.held.is_none() {
            self.seen = Some(meeting.at);
        }
        self.met = Some((meeting, url, met));
        Ok(Timestamp::now())
    }

    /// Asks for a certificate, and keeps it.
    async fn enrol(&mut self, peer: &ForeignCluster, premises: Premises, own: &Own) -> Result<()> {
        let Some((_, url, met)) = self.met.clone() else { return Ok(()) };
        let caller = self.callers.get(&self.home.settings()).await?;
        let key = self.ensure_key(peer).await?;
        let token = self.kept.keepsake.token;
        if self.stored().token != token {
            // Another one came meanwhile, or the first; it is asked with that.
            return Ok(());
        }
        let return_token = self.return_token(peer, &met, own).await;
        let exchange = Exchange {
            caller: &caller,
            own,
            url: &url,
            pin: &met.pin,
            audience: met.identity.id(),
            key: &key,
            token,
            return_token,
            holds_credential: self.kept.held.is_some(),
        };
        match exchange.run().await {
            Ok(grant) => {
                self.keep(peer, &key, token, &grant).await?;
                info!(peer = self.name, %url, until = %grant.expires_at, "let in");
                self.setback = None;
                // What it does not use while it lasts is followed by another one.
                self.invited = self.return_token.take().map_or(self.invited, |(_, end)| end);
                self.seen = Some(Timestamp::now());
            }
            Err(problem) => self.set_back(premises, problem),
        }
        Ok(())
    }

    fn set_back(&mut self, premises: Premises, problem: Problem) {
        let Problem { shown, patience, lost } = problem;
        info!(peer = self.name, reason = shown.reason, why = shown.message, "set back");
        if lost {
            self.met = None;
        }
        let before = self.setback.as_ref();
        self.setback = Some(Setback::new(premises, shown, patience, before, &self.name, Timestamp::now()));
    }
}

/// Where the peer is; what its `ForeignCluster` says must make sense, since leaving it out would mean something else.
fn target(view: &View) -> Result<Target, Problem> {
    let spec = &view.peer.spec;
    let pin = spec.auth_pin.as_deref().map(str::parse).transpose();
    let cluster = spec.cluster_identity.as_ref().map(|identity| identity.cluster_id.parse()).transpose();
    Ok(Target {
        address: spec.auth_url.clone().unwrap_or_default(),
        pin: pin.map_err(|error| Problem::in_spec("authPin", &error))?,
        cluster: cluster.map_err(|error| Problem::in_spec("clusterID", &error))?,
        configuration: view.configuration,
    })
}
