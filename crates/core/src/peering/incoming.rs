//! The machine of the provider: from a peer's request to the offer that it uses, and back.

use ferro_api::discovery::{OfferState, PeeringState, ResourceRequestStatus};
use ferro_api::names::finalizers::REPLICATION;
use ferro_api::sharing::{OfferPhase, ResourceOffer};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use serde_json::json;

use super::facts::{self, ACCEPTED, is_going, is_held};
use super::report::condition;
use super::snapshot::{Snapshot, Standing};
use super::{Step, Write, when};
use crate::keepalive::{Signal, Timing};
use crate::offer::{Pace, Publish, Terms, should_publish};
use crate::policy::{Case, Reason, Verdict, judge_request};
use crate::replication::difference;

const PROPERTY_MISSING: &str = "PropertyMissing";

/// How far a peer's use of our resources has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Not asked for, and nothing is left of it.
    Idle,
    /// Asked for, and a person has to decide.
    Undecided,
    /// Asked for, and refused.
    Refused,
    /// Accepted, but the peer has not let this cluster in, so that an offer could not be delivered.
    LockedOut,
    /// Accepted, but it is not known yet what is free.
    Unmeasured,
    /// Accepted; the offer comes next.
    Unanswered,
    /// There is an offer, and the peer has not decided yet.
    Offered,
    /// There is an offer, and the peer does not want it.
    Declined,
    /// The peer uses the offer.
    InUse,
    /// The peer uses the offer and cannot be reached.
    Silent,
    /// It is over: the offer is to be taken back, and the peer has a node for it.
    Ending,
    /// It is over: the offer is taken back, and the peer drains its node.
    PeerDrains,
    /// It is over: the peer has no node, and the offer is to be deleted.
    LetGo,
    /// It is over: the offer goes when its copy is gone.
    Leaving,
}

/// The snapshot as this machine sees it.
pub(super) struct View<'a> {
    snapshot: &'a Snapshot<'a>,
    verdict: Verdict,
    signal: Signal,
    publish: Publish,
}

impl<'a> View<'a> {
    pub(super) fn new(snapshot: &'a Snapshot<'a>) -> Self {
        let timing = Timing::new(&snapshot.config.advertisement(), None);
        let delivered = snapshot.incoming.delivered.unwrap_or(snapshot.now);
        Self {
            snapshot,
            verdict: verdict(snapshot),
            signal: Signal::judge(delivered, &timing, snapshot.now),
            publish: publish(snapshot),
        }
    }

    pub(super) fn state(&self) -> State {
        let facts = &self.snapshot.incoming;
        match (facts.offer, facts.request.filter(|request| !is_going(*request))) {
            (Some(offer), _) if is_going(offer) => State::Leaving,
            (Some(offer), request) if request.is_none() || !self.stands(offer) => self.state_of_ending(offer),
            (Some(offer), _) => self.state_of_offer(offer),
            (None, None) => State::Idle,
            (None, Some(_)) => match (&self.verdict, self.snapshot.access.standing, facts.quote) {
                (Verdict::Refuse(_), _, _) => State::Refused,
                (Verdict::Wait(_), _, _) => State::Undecided,
                (Verdict::Accept, Standing::Pending | Standing::Refused | Standing::Rejected, _) => {
                    State::LockedOut
                }
                (Verdict::Accept, Standing::Accepted, None) => State::Unmeasured,
                (Verdict::Accept, Standing::Accepted, Some(_)) => State::Unanswered,
            },
        }
    }

    /// An offer that was taken back is never renewed: the next one is made when this one is gone.
    fn stands(&self, offer: &ResourceOffer) -> bool {
        self.verdict == Verdict::Accept && !facts::is_taken_back(offer)
    }

    fn state_of_offer(&self, offer: &ResourceOffer) -> State {
        match facts::phase(offer).unwrap_or_default() {
            OfferPhase::Pending => State::Offered,
            OfferPhase::Refused => State::Declined,
            OfferPhase::Accepted if self.signal.lost_since().is_some() => State::Silent,
            OfferPhase::Accepted => State::InUse,
        }
    }

    fn state_of_ending(&self, offer: &ResourceOffer) -> State {
        if !facts::has_node(offer) || self.snapshot.copies_are_lost() {
            State::LetGo
        } else if facts::is_taken_back(offer) {
            State::PeerDrains
        } else {
            State::Ending
        }
    }

    /// The table: for each state what is shown, why, what the request is answered, and what else is written.
    #[rustfmt::skip]
    pub(super) fn step(&self, state: State) -> Step {
        use OfferState as Answer;
        use PeeringState as Shown;
        let (shown, reason, answer, writes) = match state {
            State::Idle       => (Shown::None,          self.not_asked(),  self.last_word(), vec![]),
            State::Undecided  => (Shown::Pending,       self.judged(),     Answer::Pending,  vec![]),
            State::Refused    => (Shown::Refused,       self.judged(),     Answer::Refused,  vec![]),
            State::LockedOut  => (Shown::Pending,       self.locked_out(), Answer::Pending,  vec![]),
            State::Unmeasured => (Shown::Pending,       unmeasured(),      Answer::Pending,  vec![]),
            State::Unanswered => (Shown::Pending,       self.unanswered(), Answer::Created,  self.create()),
            State::Offered    => (Shown::Pending,       self.unanswered(), Answer::Created,  self.update()),
            State::Declined   => (Shown::Refused,       self.declined(),   Answer::Created,  self.update()),
            State::InUse      => (Shown::Established,   self.in_use(),     Answer::Created,  self.update()),
            State::Silent     => (Shown::Unreachable,   self.silent(),     Answer::Created,  vec![]),
            State::Ending     => (Shown::Disconnecting, self.ending(),     self.last_word(), self.withdraw()),
            State::PeerDrains => (Shown::Disconnecting, self.ending(),     self.last_word(), vec![]),
            State::LetGo      => (Shown::Disconnecting, self.ending(),     self.last_word(), self.delete()),
            State::Leaving    => (Shown::Disconnecting, self.ending(),     self.last_word(), self.give_up()),
        };
        Step { shown, reason, writes: [writes, self.answer(answer)].concat(), wake: self.wake(state) }
    }

    fn wake(&self, state: State) -> Option<Timestamp> {
        let silence = matches!(state, State::InUse).then(|| self.signal.changes_at()).flatten();
        let change = match self.publish {
            Publish::After(wait) => self.snapshot.now.saturating_add(wait).ok(),
            Publish::Now | Publish::No => None,
        };
        silence.into_iter().chain(change).min()
    }

    // ---- writes, each only when it changes something ----

    fn create(&self) -> Vec<Write> {
        let quote = self.snapshot.incoming.quote;
        quote.map(|quote| Write::CreateOffer(Box::new(quote.clone()))).into_iter().collect()
    }

    fn update(&self) -> Vec<Write> {
        let (Some(offer), Some(quote)) = (self.snapshot.incoming.offer, self.snapshot.incoming.quote) else {
            return Vec::new();
        };
        let patch = difference(&json!({"spec": offer.spec}), &json!({"spec": quote}));
        patch.filter(|_| self.publish == Publish::Now).map(Write::PatchOffer).into_iter().collect()
    }

    fn withdraw(&self) -> Vec<Write> {
        when(self.snapshot.incoming.offer.is_some(), Write::WithdrawOffer)
    }

    fn delete(&self) -> Vec<Write> {
        when(self.snapshot.incoming.offer.is_some(), Write::DeleteOffer)
    }

    fn give_up(&self) -> Vec<Write> {
        let held = self.snapshot.incoming.offer.is_some_and(|offer| is_held(offer, REPLICATION));
        when(held && self.snapshot.copies_are_lost(), Write::ReleaseOffer)
    }

    /// What the peer's request is answered while an offer ends: no, or that the next one has to wait.
    fn last_word(&self) -> OfferState {
        match self.verdict {
            Verdict::Refuse(_) => OfferState::Refused,
            Verdict::Accept | Verdict::Wait(_) => OfferState::Pending,
        }
    }

    /// Nothing is answered that is no longer asked.
    fn answer(&self, state: OfferState) -> Vec<Write> {
        let request = self.snapshot.incoming.request.filter(|request| !is_going(*request));
        let Some(request) = request else { return Vec::new() };
        let present = request.status.clone().unwrap_or_default();
        let (accepted, told) = (state == OfferState::Created, self.told(state));
        let next = ResourceRequestStatus {
            offer_state: Some(state),
            observed_generation: request.metadata.generation,
            conditions: condition(&present.conditions, ACCEPTED, accepted, &told, self.snapshot.now),
        };
        when(next != present, Write::AnswerRequest(Box::new(next)))
    }

    /// What the peer is told. How this cluster could be made to decide otherwise is none of its business.
    fn told(&self, state: OfferState) -> Reason {
        if state == OfferState::Created {
            return Reason::new("OfferMade", "an offer was made");
        }
        match &self.verdict {
            Verdict::Refuse(why) if why.word == PROPERTY_MISSING => why.clone(),
            Verdict::Refuse(why) => Reason::new(why.word, "the request is refused"),
            Verdict::Wait(why) => Reason::new(why.word, "a person has to decide"),
            Verdict::Accept => Reason::new("OfferFollows", "an offer follows as soon as it can be delivered"),
        }
    }

    // ---- reasons ----

    fn not_asked(&self) -> Reason {
        Reason::new("NotRequested", format!("{} asks for no resources of this cluster", self.snapshot.name()))
    }

    fn judged(&self) -> Reason {
        match &self.verdict {
            Verdict::Refuse(reason) | Verdict::Wait(reason) => reason.clone(),
            Verdict::Accept => self.unanswered(),
        }
    }

    fn locked_out(&self) -> Reason {
        let text = format!(
            "{} has not let this cluster in, so that an offer cannot be delivered; see the condition \
             Authenticated",
            self.snapshot.name()
        );
        Reason::new("NotAuthenticated", text)
    }

    fn unanswered(&self) -> Reason {
        let peer = self.snapshot.name();
        let words = self.snapshot.incoming.offer.and_then(facts::words_on_offer);
        let text = words.map_or_else(
            || format!("an offer is made, and {peer} has not answered yet"),
            |words| format!("an offer is made, and {peer} has not decided yet; it says: {words}"),
        );
        Reason::new("WaitsForPeer", text)
    }

    fn declined(&self) -> Reason {
        let words = self.snapshot.incoming.offer.and_then(facts::words_on_offer);
        let words = words.unwrap_or_else(|| "no reason is given".to_owned());
        Reason::new("RefusedByPeer", format!("{} declines the offer; it says: {words}", self.snapshot.name()))
    }

    fn in_use(&self) -> Reason {
        Reason::new("Established", format!("{} uses resources of this cluster", self.snapshot.name()))
    }

    fn silent(&self) -> Reason {
        let peer = self.snapshot.name();
        let since = self.signal.lost_since().unwrap_or(self.snapshot.now);
        let text = format!(
            "{peer} cannot be reached since {since:.0}; is it running, and can this cluster reach its API \
             server?"
        );
        Reason::new("PeerSilent", text)
    }

    fn ending(&self) -> Reason {
        let peer = self.snapshot.name();
        let text = format!(
            "the offer is taken back; waits until {peer} has moved its pods; if it is gone for good: ferro \
             unpeer {peer} --force"
        );
        Reason::new("WaitsForPeer", text)
    }
}

fn unmeasured() -> Reason {
    Reason::new("ResourcesUnknown", "it is not known yet which resources are free; this takes a moment")
}

/// No to everything once the `ForeignCluster` is deleted; else by policy, and by what the request insists on.
fn verdict(snapshot: &Snapshot<'_>) -> Verdict {
    let (spec, facts) = (&snapshot.peer.spec, &snapshot.incoming);
    let Some(request) = facts.request else {
        return Verdict::Refuse(Reason::new("NotRequested", "nothing is asked for any more"));
    };
    if snapshot.is_going() {
        return Verdict::Refuse(Reason::new("PeerRemoved", "the cluster that asks was removed here"));
    }
    let terms = Terms::for_peer(snapshot.config, spec.policy.as_ref());
    if let Some((name, value)) = terms.missing_property(&request.spec) {
        let text = format!("the request insists on {name}={value}, which this cluster does not offer");
        return Verdict::Refuse(Reason::new(PROPERTY_MISSING, text));
    }
    let case = Case {
        peer: snapshot.name(),
        accepted: facts.offer.is_some_and(|offer| !facts::is_taken_back(offer)),
        others: facts.accepted_elsewhere,
    };
    judge_request(case, spec, &snapshot.config.advertisement().requests())
}

/// Whether our offer is to be brought up to date.
fn publish(snapshot: &Snapshot<'_>) -> Publish {
    let (Some(offer), Some(quote)) = (snapshot.incoming.offer, snapshot.incoming.quote) else {
        return Publish::No;
    };
    let since =
        snapshot.incoming.published.map_or(SignedDuration::MAX, |last| snapshot.now.duration_since(last));
    should_publish(&offer.spec, quote, since.try_into().unwrap_or_default(), &Pace::default())
}
