//! `ferro accept` and `ferro refuse`: a person's word on what a peer asks for and on what it offers.

use ferro_api::discovery::{Decision, ForeignCluster};
use ferro_core::peering::{INCOMING, OUTGOING};
use ferro_core::policy::WAITS_FOR_DECISION;
use kube::ResourceExt as _;
use serde_json::{Value, json};

use crate::complete;
use crate::kube_args::KubeArgs;
use crate::output::Show;
use crate::peers;
use crate::progress::{Aim, Goal, Patience, Watched};
use crate::wait::Deadline;

/// Examples of `ferro accept`.
pub(crate) const ACCEPT_EXAMPLES: &str = "Examples:
  Accept whatever of milan waits for a decision:
    ferro accept milan

  Let milan use resources of this cluster, also when it asks later:
    ferro accept milan --request";

/// Examples of `ferro refuse`.
pub(crate) const REFUSE_EXAMPLES: &str = "Examples:
  Refuse whatever of milan waits for a decision:
    ferro refuse milan

  Do not use what milan offers:
    ferro refuse milan --offer";

/// On what to decide.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The peer: its name, the name or ID of its cluster, or the beginning of one
    #[arg(add = complete::peer_names())]
    peer: String,

    /// The resources that the peer offers to this cluster
    #[arg(long)]
    offer: bool,

    /// The request of the peer for resources of this cluster
    #[arg(long)]
    request: bool,

    #[command(flatten)]
    show: Show,

    #[command(flatten)]
    patience: Patience,

    #[command(flatten)]
    kube: KubeArgs,
}

/// Writes the decision down.
pub(crate) fn run(args: &Args, decision: Decision) -> anyhow::Result<()> {
    super::block_on(decide(args, decision))
}

async fn decide(args: &Args, decision: Decision) -> anyhow::Result<()> {
    let client = args.kube.client().await?;
    let peer = peers::meant(&client, Some(&args.peer)).await?;
    let name = peer.name_any();
    let about = About::new(args.offer, args.request, &peer);
    let deadline = Deadline::after(args.patience.timeout);
    let mut peer = peers::change(&client, &name, &about.patch(decision)).await?;
    if args.patience.wait {
        peer = Watched::new(&client, &name).reach(&about.goal(decision), deadline).await?;
    }
    args.show.result(&peer, &about.sentence(&name, decision))
}

/// What a decision is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct About {
    offer: bool,
    request: bool,
}

impl About {
    /// What a person says, else what waits, else both.
    fn new(offer: bool, request: bool, peer: &ForeignCluster) -> Self {
        let waits = |type_| {
            peers::condition(peer, type_).is_some_and(|condition| condition.reason == WAITS_FOR_DECISION)
        };
        let waiting = Self { offer: waits(OUTGOING), request: waits(INCOMING) };
        match (offer || request, waiting.offer || waiting.request) {
            (true, _) => Self { offer, request },
            (false, true) => waiting,
            (false, false) => Self { offer: true, request: true },
        }
    }

    fn patch(self, decision: Decision) -> Value {
        let mut spec = json!({});
        if self.offer {
            spec["offer"] = json!(decision);
        }
        if self.request {
            spec["incoming"] = json!(decision);
        }
        json!({"spec": spec})
    }

    fn goal(self, decision: Decision) -> Goal {
        let aim = match decision {
            Decision::Accept | Decision::Auto => Aim::Answered,
            Decision::Refuse => Aim::Ended,
        };
        let (outgoing, incoming) = (self.offer.then_some(aim), self.request.then_some(aim));
        Goal { outgoing, incoming, ..Goal::default() }
    }

    fn sentence(self, name: &str, decision: Decision) -> String {
        let what = match (self.offer, self.request) {
            (true, false) => "offers",
            (false, true) => "requests",
            (true, true) | (false, false) => "requests and offers",
        };
        let done = match decision {
            Decision::Accept => "accepted",
            Decision::Refuse => "refused",
            Decision::Auto => "decided by the policy",
        };
        format!("{what} of {name} are {done}")
    }
}

#[cfg(test)]
mod tests {
    use super::About;
    use crate::peers::tests::peer;
    use crate::progress::Aim;
    use ferro_api::discovery::{Decision, ForeignCluster};
    use serde_json::json;

    fn waiting(types: &[&str]) -> ForeignCluster {
        let condition = |type_: &&str| {
            json!({"type": type_, "status": "False", "reason": "WaitsForDecision", "message": "",
                "lastTransitionTime": "2030-01-01T00:00:00Z"})
        };
        let conditions: Vec<_> = types.iter().map(condition).collect();
        peer("milan", &json!({"authUrl": "milan"}), &json!({"conditions": conditions}))
    }

    #[test]
    fn it_is_about_what_is_named_or_waits_or_both() {
        let (offer, request) = (About { offer: true, request: false }, About { offer: false, request: true });
        let both = About { offer: true, request: true };
        for (named, types, about) in [
            ((false, false), &["OutgoingPeering"][..], offer),
            ((false, false), &["IncomingPeering"], request),
            ((false, false), &["IncomingPeering", "OutgoingPeering"], both),
            ((false, false), &[], both),
            ((true, false), &["IncomingPeering"], offer),
            ((true, true), &["IncomingPeering"], both),
        ] {
            assert_eq!(About::new(named.0, named.1, &waiting(types)), about, "{named:?} {types:?}");
        }
    }

    #[test]
    fn the_word_goes_into_the_field_that_it_is_about() {
        let both = About { offer: true, request: true };
        assert_eq!(both.patch(Decision::Accept), json!({"spec": {"offer": "Accept", "incoming": "Accept"}}));
        let request = About { offer: false, request: true };
        assert_eq!(request.patch(Decision::Refuse), json!({"spec": {"incoming": "Refuse"}}));
        assert_eq!(request.goal(Decision::Refuse).incoming, Some(Aim::Ended));
        assert_eq!(request.goal(Decision::Accept).outgoing, None);
        assert_eq!(request.sentence("milan", Decision::Refuse), "requests of milan are refused");
    }
}
