//! When a requester turns to a peer: what to do next, how long to wait after a setback, and what to show meanwhile.
//!
//! - Flow: a peer is met (who is there, with which key), then asked for a certificate, which is kept until it is to be
//!   renewed. What goes wrong becomes a [`Setback`], and waiting ends early when something that it depends on changes.
//! - Guarantees: the same facts give the same step; a certificate that holds stays in use, whatever happens meanwhile.
//! - Assumptions: a meeting is recorded only once it was proved.

use std::time::Duration;

use ferro_api::discovery::{AuthState, Authentication};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;

use super::rotation::spread;
use super::{Denial, HttpsUrl, Pin, Reason, Retry, Rotation, TokenHash, later, rotation};
use crate::identity::ClusterId;

/// A meeting counts for a request during this time.
const FRESH: Duration = Duration::from_mins(10);
/// So long after a grant its rejection does not count: whoever rejects may still look at the one before.
const GRACE: Duration = Duration::from_secs(30);
/// So many times in a row something is tried again at once.
const AT_ONCE: u32 = 3;
const LONGEST: Duration = Duration::from_mins(1);
/// How often to try without hope, where a certificate exists, and where none does.
const HOPE: Duration = Duration::from_mins(5);
const LITTLE_HOPE: Duration = Duration::from_mins(10);

/// Where a peer is, and whom to expect there, as its `ForeignCluster` says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// The URL or host name.
    pub address: String,
    /// The key that must be shown.
    pub pin: Option<Pin>,
    /// The cluster that must be there.
    pub cluster: Option<ClusterId>,
    /// The version of the configuration, which says how to look for it.
    pub configuration: i64,
}

/// A contact in which the peer proved who it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Meeting {
    /// Where it was looked for.
    pub target: Target,
    /// The key that it showed.
    pub pin: Pin,
    /// Who it is.
    pub cluster: ClusterId,
    /// Where its API server is.
    pub api_server: Option<HttpsUrl>,
    /// When it was.
    pub at: Timestamp,
}

impl Meeting {
    /// Whether the meeting still tells about the target. What it found out may have been written down since.
    pub fn is_about(&self, target: &Target) -> bool {
        let Target { address, pin, cluster, configuration } = target;
        *address == self.target.address
            && *configuration == self.target.configuration
            && pin.is_none_or(|pin| pin == self.pin)
            && cluster.is_none_or(|cluster| cluster == self.cluster)
    }
}

/// A credential that a peer granted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// When it began to be valid.
    pub issued_at: Timestamp,
    /// When it ends to be valid.
    pub expires_at: Timestamp,
    /// The API server that it is for.
    pub api_server: HttpsUrl,
    /// When it was granted, if that is remembered.
    pub granted_at: Option<Timestamp>,
}

impl Held {
    /// Until when nobody can know that it was rejected, rather than the one before.
    fn grace_end(&self) -> Option<Timestamp> {
        self.granted_at.map(|granted| later(granted, GRACE))
    }
}

/// What an attempt depends on besides time: as long as it is the same, the attempt would end the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Premises {
    /// Where the peer is.
    pub target: Target,
    /// The token to show.
    pub token: Option<TokenHash>,
    /// Whether the peer's API server turned the credential away.
    pub rejected: bool,
}

impl Premises {
    /// The same, with what the meeting found out; so writing that down is no change.
    #[must_use]
    pub fn settled(mut self, meeting: Option<&Meeting>) -> Self {
        if let Some(meeting) = meeting.filter(|meeting| meeting.is_about(&self.target)) {
            self.target.pin = Some(meeting.pin);
            self.target.cluster = Some(meeting.cluster);
        }
        self
    }
}

/// What is known when the next step is decided.
#[derive(Clone, Copy, Debug)]
pub struct Facts<'a> {
    /// What an attempt depends on, settled.
    pub premises: &'a Premises,
    /// The last meeting.
    pub meeting: Option<&'a Meeting>,
    /// The credential.
    pub held: Option<&'a Held>,
    /// What went wrong last.
    pub setback: Option<&'a Setback>,
    /// The time.
    pub now: Timestamp,
}

/// What to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Find out who is there.
    Meet,
    /// Ask for a certificate.
    Enrol,
    /// Nothing before that moment, unless something changes.
    Wait {
        /// The moment.
        until: Timestamp,
    },
}

/// What to do next about a peer.
pub fn next_step(facts: &Facts<'_>) -> Step {
    if let Some(setback) = facts.current_setback().filter(|setback| facts.now < setback.again) {
        // What is shown changes when the credential expires.
        let expiry = facts.valid().map_or(Timestamp::MAX, |held| held.expires_at);
        return Step::Wait { until: setback.again.min(expiry) };
    }
    let Some(meeting) = facts.meeting.filter(|meeting| meeting.is_about(&facts.premises.target)) else {
        return Step::Meet;
    };
    if let Some(until) = facts.held.and_then(|held| facts.kept_until(held, meeting)) {
        Step::Wait { until }
    } else if later(meeting.at, FRESH) <= facts.now {
        Step::Meet
    } else {
        Step::Enrol
    }
}

/// What the `ForeignCluster` should show; nothing new while nothing is known.
pub fn shown(facts: &Facts<'_>) -> Option<Authentication> {
    let setback = facts.current_setback().filter(|setback| !setback.is_over(facts));
    let Some(held) = facts.valid() else {
        return match setback {
            Some(setback) => Some(setback.shown.clone()),
            None => facts.held.map(|_| being_replaced()),
        };
    };
    let in_spite = |setback: &Setback| {
        let why = setback.shown.message.as_deref().unwrap_or_default();
        format!("the certificate is good until {}, but: {why}", whole_second(held.expires_at))
    };
    Some(Authentication {
        state: AuthState::Accepted,
        reason: setback.and_then(|setback| setback.shown.reason.clone()),
        message: setback.map(in_spite),
        expiration_time: Some(Time(whole_second(held.expires_at))),
    })
}

fn being_replaced() -> Authentication {
    Authentication {
        state: AuthState::Pending,
        reason: Some("CertificateNotAccepted".into()),
        message: Some(
            "the certificate is expired or no longer accepted; a new one is being asked for".into(),
        ),
        expiration_time: None,
    }
}

/// The moment as the API writes it.
fn whole_second(moment: Timestamp) -> Timestamp {
    Timestamp::from_second(moment.as_second()).unwrap_or(moment)
}

impl<'a> Facts<'a> {
    /// The setback, unless something has changed since.
    fn current_setback(&self) -> Option<&'a Setback> {
        self.setback.filter(|setback| setback.premises == *self.premises)
    }

    /// The credential, if it is of use.
    fn valid(&self) -> Option<&'a Held> {
        self.held.filter(|held| self.now < held.expires_at && !self.is_rejected(held))
    }

    fn is_rejected(&self, held: &Held) -> bool {
        self.premises.rejected && held.grace_end().is_none_or(|end| end <= self.now)
    }

    /// Until when the credential is kept, if it is.
    fn kept_until(&self, held: &Held, meeting: &Meeting) -> Option<Timestamp> {
        let granted_since = held.granted_at.is_some_and(|granted| granted >= meeting.at);
        let moved = meeting.api_server.as_ref().is_some_and(|url| *url != held.api_server) && !granted_since;
        if moved || self.is_rejected(held) {
            return None;
        }
        match rotation(&meeting.cluster, held.issued_at, held.expires_at, self.now) {
            Rotation::Keep { until } => {
                let grace = held.grace_end().filter(|_| self.premises.rejected);
                Some(grace.map_or(until, |end| end.min(until)))
            }
            Rotation::Renew | Rotation::Expired => None,
        }
    }
}

/// Something that went wrong, and when to try again.
#[derive(Clone, Debug, PartialEq)]
pub struct Setback {
    /// What it depended on.
    pub premises: Premises,
    /// What the `ForeignCluster` shows of it.
    pub shown: Authentication,
    /// When to try again.
    pub again: Timestamp,
    /// How many came before it in a row.
    streak: u32,
}

impl Setback {
    /// The setback after those before; `peer` is the name by which peers differ in their patience.
    pub fn new(
        premises: Premises,
        shown: Authentication,
        patience: Patience,
        before: Option<&Self>,
        peer: &str,
        now: Timestamp,
    ) -> Self {
        let streak = match before {
            Some(before) if before.premises == premises => before.streak.saturating_add(1),
            Some(_) | None => 0,
        };
        let wait = match patience {
            Patience::AtOnce if streak < AT_ONCE => Duration::ZERO,
            Patience::AtOnce => back_off(peer, streak - AT_ONCE),
            Patience::BackOff => back_off(peer, streak),
            Patience::After(wait) => wait,
            Patience::UntilChange => Duration::MAX,
        };
        Self { premises, shown, again: later(now, wait), streak }
    }

    /// Whether its time has come, and there turned out to be nothing more to do.
    pub fn is_over(&self, facts: &Facts<'_>) -> bool {
        self.again <= facts.now && matches!(next_step(facts), Step::Wait { .. })
    }
}

/// How long to wait after a setback, unless something changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Patience {
    /// Not at all, the first times.
    AtOnce,
    /// From a second to a minute, longer each time.
    BackOff,
    /// So long.
    After(Duration),
    /// For ever.
    UntilChange,
}

impl Patience {
    /// After a denial.
    pub fn after(denial: Denial, holds_credential: bool) -> Self {
        match denial.reason.retry() {
            Retry::AtOnce => Self::AtOnce,
            Retry::Later => Self::BackOff,
            Retry::WithNewToken if holds_credential => Self::After(HOPE),
            // The other cluster may change its mind on whether it wants a token.
            Retry::WithNewToken if denial.reason == Reason::EmptyTokenNotAllowed => Self::After(LITTLE_HOPE),
            Retry::WithNewToken => Self::UntilChange,
            Retry::Never => Self::After(LITTLE_HOPE),
        }
    }

    /// After something that only a change of the `ForeignCluster` can mend.
    pub fn with_little_hope() -> Self {
        Self::After(LITTLE_HOPE)
    }
}

/// 1, 2, 4 .. 60 seconds, or up to a quarter less, by peer: those that were cut off together do not come together.
fn back_off(peer: &str, streak: u32) -> Duration {
    let full = Duration::from_secs(1 << streak.min(6)).min(LONGEST);
    full.saturating_sub(spread(peer, full / 4))
}

/// That a `ForeignCluster` is for some cluster.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Claim {
    /// Since when.
    pub since: Option<Timestamp>,
    /// The name of the `ForeignCluster`.
    pub name: String,
    /// The cluster.
    pub cluster: String,
}

/// Why a `ForeignCluster` cannot stand for a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Conflict {
    /// It is this cluster.
    Ourselves,
    /// Another `ForeignCluster` stands for it.
    Duplicate(String),
}

impl Conflict {
    /// Whether the `ForeignCluster` of this name may stand for the cluster. Of several, the one that says so since
    /// the earliest moment may.
    pub fn find(name: &str, cluster: &ClusterId, own: &ClusterId, claims: &[Claim]) -> Option<Self> {
        if cluster == own {
            return Some(Self::Ourselves);
        }
        let id = cluster.to_string();
        let mut same: Vec<&Claim> = claims.iter().filter(|claim| claim.cluster == id).collect();
        same.sort();
        let first = same.first()?;
        (first.name != name).then(|| Self::Duplicate(first.name.clone()))
    }

    /// What the `ForeignCluster` shows.
    pub fn shown(&self) -> Authentication {
        let (reason, message) = match self {
            Self::Ourselves => (
                "Ourselves",
                "this cluster itself answers at that address; correct or remove authUrl".to_owned(),
            ),
            Self::Duplicate(other) => (
                "Duplicate",
                format!(
                    "the ForeignCluster {other} is for the same cluster; use that one, and remove this one"
                ),
            ),
        };
        Authentication {
            state: AuthState::Refused,
            reason: Some(reason.into()),
            message: Some(message),
            expiration_time: None,
        }
    }
}

#[cfg(test)]
mod tests;
