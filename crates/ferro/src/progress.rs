//! Waiting for a peering to get somewhere: what is reached, what is in vain, and what a person sees meanwhile.

use std::time::Duration;

use anyhow::bail;
use ferro_api::discovery::{AuthState, Authentication, ForeignCluster, PeeringState, PeeringStatus};
use ferro_core::peering::{AUTHENTICATED, INCOMING, OUTGOING, REMOVED};
use kube::{Client, ResourceExt as _};
use tokio::time::Instant;

use crate::kube_errors::{Explain as _, found, is_passing, root};
use crate::output;
use crate::peers;
use crate::teller::Teller;
use crate::wait::{self, Deadline};

/// How long an answer to an earlier token may still be shown after a new one was given.
const STALE: Duration = Duration::from_secs(15);

/// How long a command waits.
#[derive(clap::Args)]
pub(crate) struct Patience {
    /// Wait until it is done, and show how it goes
    #[arg(long)]
    pub(crate) wait: bool,

    /// How long to wait at most
    #[arg(long, value_name = "DURATION", value_parser = wait::duration, default_value = "2m")]
    pub(crate) timeout: Duration,
}

/// What is waited for. Nothing by default.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Goal {
    /// The peer lets this cluster in.
    pub(crate) let_in: bool,
    /// What becomes of the use of the peer's resources.
    pub(crate) outgoing: Option<Aim>,
    /// What becomes of the peer's use of ours.
    pub(crate) incoming: Option<Aim>,
    /// A refusal that was there before anything was done about it.
    pub(crate) earlier: Option<Authentication>,
}

/// What becomes of one direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Aim {
    /// It is in use.
    Established,
    /// It is in use, or nobody asks for it.
    Answered,
    /// It is over.
    Ended,
}

/// How it looks now.
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    Reached,
    InVain(String),
    NotYet,
}

impl Goal {
    /// As it looks when that much time has passed since the beginning.
    fn judge(&self, peer: &ForeignCluster, passed: Duration) -> Verdict {
        if !is_current(peer) {
            return Verdict::NotYet;
        }
        let refusal = authentication(peer).filter(|shown| shown.state == AuthState::Refused);
        let is_old = |refusal: &&Authentication| self.earlier.as_ref() == Some(refusal) && passed < STALE;
        if let Some(refusal) = refusal.filter(|refusal| self.needs_entry() && !is_old(refusal)) {
            return Verdict::InVain(words(refusal.message.as_ref(), "the other cluster says no"));
        }
        for (aim, direction) in self.directions(peer) {
            if aim != Aim::Ended && state(direction) == PeeringState::Refused {
                let said = direction.and_then(|direction| direction.message.as_ref());
                return Verdict::InVain(words(said, "it is refused"));
            }
        }
        let reached = self.directions(peer).iter().all(|(aim, direction)| aim.is_reached(state(*direction)));
        if reached && (!self.let_in || is_let_in(peer)) { Verdict::Reached } else { Verdict::NotYet }
    }

    fn needs_entry(&self) -> bool {
        let needs = |aim: Option<Aim>| aim == Some(Aim::Established);
        self.let_in || needs(self.outgoing) || needs(self.incoming)
    }

    fn directions<'a>(&self, peer: &'a ForeignCluster) -> Vec<(Aim, Option<&'a PeeringStatus>)> {
        let status = peer.status.as_ref();
        let outgoing = self.outgoing.map(|aim| (aim, status.and_then(|status| status.outgoing.as_ref())));
        let incoming = self.incoming.map(|aim| (aim, status.and_then(|status| status.incoming.as_ref())));
        outgoing.into_iter().chain(incoming).collect()
    }

    /// What the peer says about what is waited for, by condition.
    fn told(&self, peer: &ForeignCluster) -> Vec<(&'static str, String)> {
        let shown = [
            (AUTHENTICATED, self.needs_entry()),
            (OUTGOING, self.outgoing.is_some()),
            (INCOMING, self.incoming.is_some()),
        ];
        let shown = shown.into_iter().filter(|(_, wanted)| *wanted && is_current(peer));
        let said =
            shown.filter_map(|(type_, _)| Some((type_, peers::condition(peer, type_)?.message.clone())));
        said.collect()
    }

    /// What is missing when patience ends.
    fn missing(&self, peer: &ForeignCluster) -> String {
        let is_missing = |type_: &str| match type_ {
            OUTGOING => self.outgoing.is_some_and(|aim| !aim.is_reached(shown_state(peer, true))),
            INCOMING => self.incoming.is_some_and(|aim| !aim.is_reached(shown_state(peer, false))),
            _ => !is_let_in(peer),
        };
        let missing = self.told(peer).into_iter().filter(|(type_, _)| is_missing(type_));
        let missing: Vec<_> = missing.map(|(_, text)| output::plain(&text)).collect();
        if missing.is_empty() {
            return "the controller has not looked at it yet; is it running? See 'ferro status'".into();
        }
        missing.join("; ")
    }
}

impl Aim {
    fn is_reached(self, state: PeeringState) -> bool {
        match state {
            PeeringState::Established => matches!(self, Self::Established | Self::Answered),
            PeeringState::None => matches!(self, Self::Answered | Self::Ended),
            PeeringState::Refused => self == Self::Ended,
            PeeringState::Pending | PeeringState::Unreachable | PeeringState::Disconnecting => false,
        }
    }
}

/// Whether the status is about what was last asked for.
fn is_current(peer: &ForeignCluster) -> bool {
    peer.status.as_ref().and_then(|status| status.observed_generation) >= peer.metadata.generation
}

/// What the peer thinks of this cluster.
pub(crate) fn authentication(peer: &ForeignCluster) -> Option<&Authentication> {
    peer.status.as_ref()?.authentication.as_ref()
}

/// Whether the peer has let this cluster in, and has not turned it away since.
pub(crate) fn is_let_in(peer: &ForeignCluster) -> bool {
    let accepted = authentication(peer).is_some_and(|shown| shown.state == AuthState::Accepted);
    accepted && peers::condition(peer, AUTHENTICATED).is_none_or(|condition| condition.status == "True")
}

/// A refusal, to be told from one that may come later.
pub(crate) fn refusal(peer: &ForeignCluster) -> Option<Authentication> {
    authentication(peer).filter(|shown| shown.state == AuthState::Refused).cloned()
}

fn shown_state(peer: &ForeignCluster, outgoing: bool) -> PeeringState {
    let status = peer.status.as_ref();
    state(status.and_then(|status| if outgoing { &status.outgoing } else { &status.incoming }.as_ref()))
}

fn state(direction: Option<&PeeringStatus>) -> PeeringState {
    direction.map_or(PeeringState::None, |direction| direction.state)
}

fn words(said: Option<&String>, unsaid: &str) -> String {
    output::plain(said.map_or(unsaid, String::as_str))
}

/// A peer that is waited for, in one cluster.
pub(crate) struct Watched<'a> {
    client: &'a Client,
    name: &'a str,
    teller: Teller,
    since: Instant,
}

impl<'a> Watched<'a> {
    /// The peer of that name.
    pub(crate) fn new(client: &'a Client, name: &'a str) -> Self {
        Self { client, name, teller: Teller::default(), since: Instant::now() }
    }

    /// The same, with the name of the cluster before each line.
    pub(crate) fn at(client: &'a Client, name: &'a str, place: &str) -> Self {
        let teller = Teller::at(place);
        Self { teller, ..Self::new(client, name) }
    }

    /// Waits until the goal is reached, and gives back the peer as it is then.
    pub(crate) async fn reach(&mut self, goal: &Goal, deadline: Deadline) -> anyhow::Result<ForeignCluster> {
        let mut missing = "nothing could be seen of it".to_owned();
        let reached = deadline
            .until(async || match self.glance(goal).await? {
                Glance::Reached(peer) => Ok(Some(*peer)),
                Glance::NotYet(why) => {
                    missing = why;
                    Ok(None)
                }
            })
            .await?;
        match reached {
            Some(peer) => Ok(peer),
            None => bail!("{}: not done in time: {missing}", self.name),
        }
    }

    /// Looks once. A server that is away for a moment is one that has not answered yet.
    pub(crate) async fn glance(&mut self, goal: &Goal) -> anyhow::Result<Glance> {
        let seen = match peers::api(self.client).get_opt(self.name).await {
            Err(error) if is_passing(&error) => return Ok(Glance::NotYet(root(&error))),
            seen => seen.explain(|| format!("read the peer {}", self.name))?,
        };
        let Some(peer) = seen else { bail!("the peer {} was removed meanwhile", self.name) };
        self.teller.tell(goal.told(&peer));
        match goal.judge(&peer, self.since.elapsed()) {
            Verdict::Reached => Ok(Glance::Reached(Box::new(peer))),
            Verdict::NotYet => Ok(Glance::NotYet(goal.missing(&peer))),
            Verdict::InVain(why) => bail!("{}: {why}", self.name),
        }
    }

    /// Waits until the object with this identity is gone.
    pub(crate) async fn gone(&mut self, uid: Option<&str>, deadline: Deadline) -> anyhow::Result<()> {
        let mut missing =
            "the controller has not looked at it yet; is it running? See 'ferro status'".to_owned();
        let gone = deadline
            .until(async || {
                let seen = match found(peers::api(self.client).get(self.name).await) {
                    Err(error) if is_passing(&error) => return Ok(None),
                    seen => seen.explain(|| format!("read the peer {}", self.name))?,
                };
                let Some(peer) = seen.filter(|peer| peer.uid().as_deref() == uid) else {
                    return Ok(Some(()));
                };
                if let Some(condition) = peers::condition(&peer, REMOVED) {
                    missing.clone_from(&condition.message);
                    self.teller.tell(vec![(REMOVED, condition.message.clone())]);
                }
                Ok(None)
            })
            .await?;
        match gone {
            Some(()) => Ok(()),
            None => bail!("{} is not gone in time: {}", self.name, output::plain(&missing)),
        }
    }
}

/// What was seen at one look.
pub(crate) enum Glance {
    Reached(Box<ForeignCluster>),
    /// Not yet, and what is missing.
    NotYet(String),
}

#[cfg(test)]
mod tests {
    use super::{Aim, Goal, STALE, Verdict, refusal};
    use crate::peers::tests::peer;
    use ferro_api::discovery::ForeignCluster;
    use serde_json::{Value, json};
    use std::time::Duration;

    const NOW: Duration = Duration::ZERO;

    fn seen(status: &Value) -> ForeignCluster {
        peer("milan", &json!({"authUrl": "milan"}), status)
    }

    fn peered() -> Goal {
        Goal { outgoing: Some(Aim::Established), ..Goal::default() }
    }

    fn condition(type_: &str, status: &str, message: &str) -> Value {
        json!({"type": type_, "status": status, "reason": "R", "message": message,
            "lastTransitionTime": "2030-01-01T00:00:00Z"})
    }

    #[test]
    fn a_peering_is_reached_when_all_that_was_asked_for_is_in_use() {
        let one = json!({"outgoing": {"state": "Established"}, "incoming": {"state": "Pending"}});
        assert_eq!(peered().judge(&seen(&one), NOW), Verdict::Reached);
        let both = Goal { incoming: Some(Aim::Established), ..peered() };
        assert_eq!(both.judge(&seen(&one), NOW), Verdict::NotYet);
        assert_eq!(peered().judge(&seen(&json!({})), NOW), Verdict::NotYet);
    }

    #[test]
    fn a_refusal_ends_the_wait_with_its_reason() {
        let refused = json!({"outgoing": {"state": "Refused", "message": "milan gives nothing"}});
        assert_eq!(peered().judge(&seen(&refused), NOW), Verdict::InVain("milan gives nothing".into()));
        let locked_out = json!({
            "authentication": {"state": "REFUSED", "message": "the token has expired"},
            "outgoing": {"state": "Pending"},
        });
        assert_eq!(peered().judge(&seen(&locked_out), NOW), Verdict::InVain("the token has expired".into()));
    }

    #[test]
    fn a_refusal_of_the_token_before_does_not_count_at_once() {
        let before =
            seen(&json!({"authentication": {"state": "REFUSED", "message": "the token has expired"}}));
        let goal = Goal { let_in: true, earlier: refusal(&before), ..Goal::default() };
        assert_eq!(goal.judge(&before, NOW), Verdict::NotYet);
        assert_eq!(goal.judge(&before, STALE), Verdict::InVain("the token has expired".into()));
        let after =
            seen(&json!({"authentication": {"state": "REFUSED", "message": "the token was used before"}}));
        assert_eq!(goal.judge(&after, NOW), Verdict::InVain("the token was used before".into()));
    }

    #[test]
    fn what_is_shown_about_an_earlier_wish_does_not_count() {
        let mut old = seen(&json!({"observedGeneration": 1, "outgoing": {"state": "Refused"}}));
        old.metadata.generation = Some(2);
        assert_eq!(peered().judge(&old, NOW), Verdict::NotYet);
        assert!(peered().missing(&old).contains("controller"));
        old.metadata.generation = Some(1);
        assert!(matches!(peered().judge(&old, NOW), Verdict::InVain(_)));
    }

    #[test]
    fn an_end_is_reached_when_nothing_is_shared_any_more() {
        let goal = Goal { outgoing: Some(Aim::Ended), incoming: Some(Aim::Ended), ..Goal::default() };
        for (outgoing, incoming, verdict) in [
            ("None", "Refused", Verdict::Reached),
            ("None", "Disconnecting", Verdict::NotYet),
            ("Established", "None", Verdict::NotYet),
            ("Unreachable", "None", Verdict::NotYet),
        ] {
            let status = json!({"outgoing": {"state": outgoing}, "incoming": {"state": incoming}});
            assert_eq!(goal.judge(&seen(&status), NOW), verdict, "{outgoing} {incoming}");
        }
    }

    #[test]
    fn whoever_is_turned_away_later_is_not_let_in() {
        let goal = Goal { let_in: true, ..Goal::default() };
        let status = |word: &str| {
            let conditions = [condition("Authenticated", word, "")];
            json!({"authentication": {"state": "ACCEPTED"}, "conditions": conditions})
        };
        assert_eq!(goal.judge(&seen(&status("True")), NOW), Verdict::Reached);
        assert_eq!(goal.judge(&seen(&status("False")), NOW), Verdict::NotYet);
    }

    #[test]
    fn at_the_end_of_patience_it_is_said_what_is_missing() {
        let status = json!({
            "authentication": {"state": "ACCEPTED"},
            "outgoing": {"state": "Pending"}, "incoming": {"state": "Established"},
            "conditions": [
                condition("Authenticated", "True", "milan has let this cluster in"),
                condition("OutgoingPeering", "False", "milan has not answered yet"),
                condition("IncomingPeering", "True", "milan uses resources"),
            ],
        });
        let both = Goal { incoming: Some(Aim::Established), ..peered() };
        assert_eq!(both.missing(&seen(&status)), "milan has not answered yet");
        let told: Vec<_> = both.told(&seen(&status)).into_iter().map(|(type_, _)| type_).collect();
        assert_eq!(told, ["Authenticated", "OutgoingPeering", "IncomingPeering"]);
    }
}
