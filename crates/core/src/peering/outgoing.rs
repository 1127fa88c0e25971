//! The machine of the consumer: from `join` to the node that stands for the peer, and back.

use ferro_api::discovery::{OfferState, PeeringState, ResourceRequestSpec};
use ferro_api::names::finalizers::{REPLICATION, VIRTUAL_NODE};
use ferro_api::sharing::{OfferPhase, ResourceOfferStatus, VirtualKubeletStatus};
use k8s_openapi::jiff::Timestamp;

use super::facts::{self, ACCEPTED, is_going, is_held};
use super::report::condition;
use super::snapshot::{NodeFacts, Snapshot, Standing};
use super::{Step, Write, when};
use crate::keepalive::{Signal, Timing};
use crate::policy::{Case, Reason, Verdict, judge_offer};

/// The reason of the condition [`super::OUTGOING`] when all that is left are the namespaces on the peer: from then on
/// nothing runs in them.
pub const NAMESPACES_END: &str = "NamespacesEnd";

/// How far the use of a peer's resources has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Not wanted, and nothing is left of it.
    Idle,
    /// Wanted, but the peer has not let this cluster in.
    LockedOut,
    /// Wanted, and to be asked for.
    Unasked,
    /// Asked for, and not answered yet.
    Asked,
    /// The peer gives nothing.
    Denied,
    /// There is an offer, and a person has to decide.
    Undecided,
    /// There is an offer, and it is refused.
    Declined,
    /// There is an offer, and it is accepted; the node comes next.
    Accepted,
    /// The node stands for the peer.
    InUse,
    /// The peer is not heard; its node is not ready.
    Silent,
    /// The peer has not been heard for so long that its pods are moved.
    Evacuating,
    /// It is over: pods leave the node.
    Draining,
    /// It is over: no pod is left, and the namespaces on the peer go.
    Unmapping,
    /// It is over: the node is empty and goes.
    Emptied,
    /// It is over: the request and the offer go.
    Leaving,
}

/// The snapshot as this machine sees it.
pub(super) struct View<'a> {
    snapshot: &'a Snapshot<'a>,
    wanted: bool,
    verdict: Verdict,
    signal: Signal,
}

impl<'a> View<'a> {
    pub(super) fn new(snapshot: &'a Snapshot<'a>) -> Self {
        let wanted = snapshot.peer.spec.join() && !snapshot.is_going();
        let offer = snapshot.outgoing.offer.map(|offer| &offer.spec);
        let advertisement = snapshot.config.advertisement();
        let heard = snapshot.outgoing.heard.unwrap_or(snapshot.now);
        let signal = Signal::judge(heard, &Timing::new(&advertisement, offer), snapshot.now);
        let case = Case {
            peer: snapshot.name(),
            accepted: snapshot.outgoing.offer.and_then(facts::phase) == Some(OfferPhase::Accepted),
            others: snapshot.outgoing.accepted_elsewhere,
        };
        let verdict = if wanted {
            judge_offer(case, &snapshot.peer.spec, &advertisement.ingoing())
        } else {
            Verdict::Refuse(Reason::new("PeeringEnds", "this cluster no longer wants the offer"))
        };
        Self { snapshot, wanted, verdict, signal }
    }

    pub(super) fn state(&self) -> State {
        let facts = &self.snapshot.outgoing;
        match (facts.node, facts.request, facts.offer) {
            (Some(node), _, _) if !self.keeps_node() => self.state_of_unwanted(node),
            (Some(_), _, _) => self.state_of_node(),
            (None, None, None) if !self.wanted && !facts.mapped => State::Idle,
            (None, _, _) if self.is_over() => State::Leaving,
            (None, None, _) => self.unless_locked_out(State::Unasked),
            (None, Some(request), None) if facts::offer_state(request) == Some(OfferState::Refused) => {
                State::Denied
            }
            (None, Some(_), None) => self.unless_locked_out(State::Asked),
            (None, Some(_), Some(_)) => match self.verdict {
                Verdict::Wait(_) => State::Undecided,
                Verdict::Refuse(_) => State::Declined,
                Verdict::Accept => State::Accepted,
            },
        }
    }

    fn state_of_node(&self) -> State {
        match self.signal {
            Signal::Alive { .. } | Signal::Late { .. } => State::InUse,
            Signal::Lost { .. } => State::Silent,
            Signal::Drain { .. } => State::Evacuating,
        }
    }

    fn state_of_unwanted(&self, node: NodeFacts<'_>) -> State {
        let empty = node.draining && node.pods == 0;
        if node.going || self.snapshot.is_forced() {
            State::Emptied
        } else if !empty {
            State::Draining
        } else if self.snapshot.outgoing.mapped {
            State::Unmapping
        } else {
            State::Emptied
        }
    }

    fn unless_locked_out(&self, state: State) -> State {
        match self.snapshot.access.standing {
            Standing::Accepted => state,
            Standing::Pending | Standing::Refused | Standing::Rejected => State::LockedOut,
        }
    }

    /// Whether this peering has to end, although another one may follow.
    fn is_over(&self) -> bool {
        let facts = &self.snapshot.outgoing;
        !self.wanted || facts.request.is_some_and(is_going) || facts.offer.is_some_and(facts::is_taken_back)
    }

    fn keeps_node(&self) -> bool {
        !self.is_over() && self.snapshot.outgoing.offer.is_some() && self.verdict == Verdict::Accept
    }

    /// The table: for each state what is shown, why, and what is written.
    #[rustfmt::skip]
    pub(super) fn step(&self, state: State) -> Step {
        use PeeringState as Shown;
        let (shown, reason, writes) = match state {
            State::Idle       => (Shown::None,          self.not_joined(),   vec![]),
            State::LockedOut  => (Shown::Pending,       self.locked_out(),   vec![]),
            State::Unasked    => (Shown::Pending,       self.asking(),       self.ask()),
            State::Asked      => (Shown::Pending,       self.unanswered(),   vec![]),
            State::Denied     => (Shown::Refused,       self.denied(),       vec![]),
            State::Undecided  => (Shown::Pending,       self.judged(),       self.decline()),
            State::Declined   => (Shown::Refused,       self.judged(),       self.decline()),
            State::Accepted   => (Shown::Pending,       self.no_node_yet(),  self.accept()),
            State::InUse      => (Shown::Established,   self.in_use(),       self.keep()),
            State::Silent     => (Shown::Unreachable,   self.silent(),       self.keep()),
            State::Evacuating => (Shown::Unreachable,   self.silent(),       self.drain()),
            State::Draining   => (Shown::Disconnecting, self.draining(),     self.end()),
            State::Unmapping  => (Shown::Disconnecting, self.unmapping(),    self.end()),
            State::Emptied    => (Shown::Disconnecting, self.draining(),     self.delete_node()),
            State::Leaving    => (Shown::Disconnecting, self.leaving(),      self.leave()),
        };
        Step { shown, reason, writes, wake: self.wake(state) }
    }

    /// Time matters only while there is a node.
    fn wake(&self, state: State) -> Option<Timestamp> {
        matches!(state, State::InUse | State::Silent).then(|| self.signal.changes_at()).flatten()
    }

    // ---- what the table writes ----

    /// Namespaces may be left of an earlier peering, the node of which went by force.
    fn decline(&self) -> Vec<Write> {
        if self.waits_for_namespaces() {
            return self.answer(VirtualKubeletStatus::Deleting);
        }
        [self.answer(VirtualKubeletStatus::None), self.let_go()].concat()
    }

    /// The finalizer before the answer, and both before the node: the provider cannot take the offer away
    /// from under it.
    fn accept(&self) -> Vec<Write> {
        [self.hold(), self.answer(VirtualKubeletStatus::None), vec![Write::CreateNode]].concat()
    }

    fn keep(&self) -> Vec<Write> {
        [self.ask(), self.hold(), self.answer(VirtualKubeletStatus::Created), self.restore()].concat()
    }

    fn end(&self) -> Vec<Write> {
        [self.withdraw(), self.answer(VirtualKubeletStatus::Deleting), self.drain()].concat()
    }

    /// The provider keeps what it made for us as long as its offer is held: namespaces that are left come first.
    fn leave(&self) -> Vec<Write> {
        if self.waits_for_namespaces() {
            return [self.withdraw(), self.answer(VirtualKubeletStatus::Deleting)].concat();
        }
        let answer = self.answer(VirtualKubeletStatus::None);
        [self.withdraw(), answer, self.let_go(), self.give_up()].concat()
    }

    /// Whether the peer has namespaces of ours to remove, and can be waited for.
    fn waits_for_namespaces(&self) -> bool {
        self.snapshot.outgoing.mapped && !self.snapshot.copies_are_lost()
    }

    // ---- single writes, each only when it changes something ----

    /// Also while the node is there: a request that somebody deleted is made again before the peer acts.
    fn ask(&self) -> Vec<Write> {
        let auth_url = self.snapshot.auth_url.map(str::to_owned);
        let spec = ResourceRequestSpec { auth_url, ..ResourceRequestSpec::default() };
        let may = self.snapshot.access.standing == Standing::Accepted;
        when(may && self.snapshot.outgoing.request.is_none(), Write::CreateRequest(Box::new(spec)))
    }

    /// Our request goes as soon as it is no longer meant.
    fn withdraw(&self) -> Vec<Write> {
        let request = self.snapshot.outgoing.request;
        when(!self.wanted && request.is_some_and(|request| !is_going(request)), Write::DeleteRequest)
    }

    fn hold(&self) -> Vec<Write> {
        when(
            self.snapshot.outgoing.offer.is_some_and(|offer| !is_held(offer, VIRTUAL_NODE)),
            Write::HoldOffer,
        )
    }

    fn let_go(&self) -> Vec<Write> {
        when(
            self.snapshot.outgoing.offer.is_some_and(|offer| is_held(offer, VIRTUAL_NODE)),
            Write::LetGoOffer,
        )
    }

    /// What to do without the peer, once there is no point in waiting for it.
    fn give_up(&self) -> Vec<Write> {
        let facts = &self.snapshot.outgoing;
        let held = facts.request.is_some_and(|request| is_held(request, REPLICATION));
        let there = facts.offer.is_some_and(|offer| !is_going(offer));
        let release = !self.wanted && held && self.snapshot.copies_are_lost();
        let discard = !self.wanted && there && self.snapshot.peer_is_lost();
        [when(release, Write::ReleaseRequest), when(discard, Write::DiscardOffer)].concat()
    }

    fn drain(&self) -> Vec<Write> {
        when(self.snapshot.outgoing.node.is_some_and(|node| !node.draining), Write::DrainNode)
    }

    fn restore(&self) -> Vec<Write> {
        when(self.snapshot.outgoing.node.is_some_and(|node| node.draining), Write::RestoreNode)
    }

    fn delete_node(&self) -> Vec<Write> {
        when(self.snapshot.outgoing.node.is_some_and(|node| !node.going), Write::DeleteNode)
    }

    /// What the peer is told. How this cluster could be made to decide otherwise is none of its business.
    fn answer(&self, node: VirtualKubeletStatus) -> Vec<Write> {
        let Some(offer) = self.snapshot.outgoing.offer else { return Vec::new() };
        let (phase, told) = match &self.verdict {
            Verdict::Accept => (OfferPhase::Accepted, Reason::new("Accepted", "the offer is accepted")),
            Verdict::Refuse(why) => (OfferPhase::Refused, Reason::new(why.word, "the offer is refused")),
            Verdict::Wait(why) => (OfferPhase::Pending, Reason::new(why.word, "a person has to decide")),
        };
        let present = offer.status.clone().unwrap_or_default();
        let accepted = self.verdict == Verdict::Accept;
        let conditions = condition(&present.conditions, ACCEPTED, accepted, &told, self.snapshot.now);
        let next = ResourceOfferStatus {
            phase: Some(phase),
            virtual_kubelet_status: Some(node),
            observed_generation: present.observed_generation,
            conditions,
        };
        when(next != present, Write::AnswerOffer(Box::new(next)))
    }

    // ---- reasons ----

    fn not_joined(&self) -> Reason {
        let peer = self.snapshot.name();
        Reason::new(
            "NotJoined",
            format!("resources of {peer} are not asked for; to ask, run: ferro peer {peer}"),
        )
    }

    fn locked_out(&self) -> Reason {
        let peer = self.snapshot.name();
        let text = format!("{peer} has not let this cluster in; see the condition Authenticated");
        Reason::new("NotAuthenticated", text)
    }

    fn asking(&self) -> Reason {
        Reason::new("Asking", format!("{} is being asked for resources", self.snapshot.name()))
    }

    fn unanswered(&self) -> Reason {
        let peer = self.snapshot.name();
        let words = self.snapshot.outgoing.request.and_then(facts::words_on_request);
        let text = words.map_or_else(
            || format!("{peer} has not answered yet; if this lasts, is its controller running?"),
            |words| format!("{peer} has not decided yet; it says: {words}"),
        );
        Reason::new("WaitsForPeer", text)
    }

    fn denied(&self) -> Reason {
        let words = self.snapshot.outgoing.request.and_then(facts::words_on_request);
        let words = words.unwrap_or_else(|| "no reason is given".to_owned());
        Reason::new("RefusedByPeer", format!("{} gives nothing; it says: {words}", self.snapshot.name()))
    }

    fn judged(&self) -> Reason {
        match &self.verdict {
            Verdict::Refuse(reason) | Verdict::Wait(reason) => reason.clone(),
            Verdict::Accept => self.no_node_yet(),
        }
    }

    fn no_node_yet(&self) -> Reason {
        let text =
            format!("the offer of {} is accepted, and its node is being registered", self.snapshot.name());
        Reason::new("NodeMissing", text)
    }

    fn in_use(&self) -> Reason {
        let node = self.snapshot.outgoing.node.map_or("", |node| node.name);
        Reason::new("Established", format!("the node {node} stands for {}", self.snapshot.name()))
    }

    fn silent(&self) -> Reason {
        let peer = self.snapshot.name();
        let then = match self.signal {
            Signal::Lost { drain_at, .. } => format!("its pods stay until {drain_at:.0}"),
            Signal::Alive { .. } | Signal::Late { .. } | Signal::Drain { .. } => {
                "its pods are moved elsewhere".to_owned()
            }
        };
        let since = self.signal.lost_since().unwrap_or(self.snapshot.now);
        let text = format!(
            "{peer} is silent since {since:.0}, and {then}; is it running, and can it reach this cluster? If \
             it is gone for good: ferro unpeer {peer} --force"
        );
        Reason::new("PeerSilent", text)
    }

    fn draining(&self) -> Reason {
        let node = self.snapshot.outgoing.node.map_or("", |node| node.name);
        Reason::new("NodeDrains", format!("pods are moved off the node {node}, and then it is removed"))
    }

    fn unmapping(&self) -> Reason {
        let peer = self.snapshot.name();
        let text = format!(
            "waits until {peer} has removed the namespaces of this cluster; if it is gone for good: ferro unpeer {peer} \
             --force, which leaves them behind"
        );
        Reason::new(NAMESPACES_END, text)
    }

    fn leaving(&self) -> Reason {
        if self.snapshot.outgoing.mapped {
            return self.unmapping();
        }
        let peer = self.snapshot.name();
        let awaited = match self.snapshot.outgoing.offer {
            Some(_) => "takes its offer back",
            None => "has learnt that nothing is asked for any more",
        };
        let text =
            format!("waits until {peer} {awaited}; if it is gone for good: ferro unpeer {peer} --force");
        Reason::new("WaitsForPeer", text)
    }
}
