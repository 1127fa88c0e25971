//! Whether a request or an offer of a peer is accepted: by a person's word, else by the policy.
//!
//! The word on the `ForeignCluster` comes first, then the policy of that peer, then the general one. What was
//! accepted under `AutoAcceptMax` stays so when the maximum is lowered: a policy decides about newcomers, a
//! person ends a peering. Whoever counts the accepted ones decides on one peer at a time; two decisions from
//! the same count could both take the last place.

use ferro_api::config::{AcceptPolicy, AutoJoin, IngoingConfig, RequestConfig};
use ferro_api::discovery::{Decision, ForeignClusterSpec, PeerPolicy};

/// The word of a condition for what a person has to decide.
pub const WAITS_FOR_DECISION: &str = "WaitsForDecision";

/// The answer to a peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Yes.
    Accept,
    /// No, and why.
    Refuse(Reason),
    /// Not yet, and what it waits for.
    Wait(Reason),
}

/// Why something is as it is: one word for programs, a sentence for people that says what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reason {
    /// One word, as in a condition.
    pub word: &'static str,
    /// What it means, and what to do about it.
    pub text: String,
}

impl Reason {
    /// A reason.
    pub fn new(word: &'static str, text: impl Into<String>) -> Self {
        Self { word, text: text.into() }
    }
}

/// What is to be decided, and what was accepted so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Case<'a> {
    /// The peer, as a person calls it.
    pub peer: &'a str,
    /// Whether this one has been accepted before.
    pub accepted: bool,
    /// How many of other peers are accepted.
    pub others: u32,
}

/// Whether to give resources to a peer that asks for them.
pub fn judge_request(case: Case<'_>, spec: &ForeignClusterSpec, config: &RequestConfig) -> Verdict {
    let own = spec.policy.as_ref().and_then(|policy: &PeerPolicy| policy.requests);
    Rule {
        what: "request",
        field: "spec.incoming",
        setting: "advertisementConfig.requestConfig.maxAcceptableRequests",
        word: spec.incoming(),
        policy: own.unwrap_or_else(|| config.accept_policy()),
        most: config.max_acceptable_requests(),
    }
    .judge(case)
}

/// Whether to use the resources that a peer offers.
pub fn judge_offer(case: Case<'_>, spec: &ForeignClusterSpec, config: &IngoingConfig) -> Verdict {
    let own = spec.policy.as_ref().and_then(|policy: &PeerPolicy| policy.offers);
    Rule {
        what: "offer",
        field: "spec.offer",
        setting: "advertisementConfig.ingoingConfig.maxAcceptableAdvertisement",
        word: spec.offer(),
        policy: own.unwrap_or_else(|| config.accept_policy()),
        most: config.max_acceptable_advertisement(),
    }
    .judge(case)
}

/// Whether a cluster is asked for resources without anybody saying so, once it has let this one in.
pub fn joins_by_itself(spec: &ForeignClusterSpec, rule: &AutoJoin) -> bool {
    rule.discovery_types.contains(&spec.discovery_type()) && rule.trust_modes.contains(&spec.trust_mode())
}

struct Rule {
    what: &'static str,
    field: &'static str,
    setting: &'static str,
    word: Decision,
    policy: AcceptPolicy,
    most: u32,
}

impl Rule {
    fn judge(&self, case: Case<'_>) -> Verdict {
        match (self.word, self.policy) {
            (Decision::Accept, _) => Verdict::Accept,
            (Decision::Refuse, _) => Verdict::Refuse(self.refused(case.peer)),
            (Decision::Auto, _) if case.accepted => Verdict::Accept,
            (Decision::Auto, AcceptPolicy::AutoAcceptMax) if case.others < self.most => Verdict::Accept,
            (Decision::Auto, AcceptPolicy::AutoAcceptMax) => Verdict::Refuse(self.too_many(case.peer)),
            (Decision::Auto, AcceptPolicy::Manual) => Verdict::Wait(self.asks_a_person(case.peer)),
        }
    }

    fn refused(&self, peer: &str) -> Reason {
        let Self { what, field, .. } = self;
        let text = format!("{field} refuses every {what} of {peer}; to allow it, run: ferro accept {peer}");
        Reason::new("RefusedByHand", text)
    }

    fn too_many(&self, peer: &str) -> Reason {
        let Self { what, setting, most, .. } = self;
        let text = format!(
            "{most} are accepted, which is the maximum; raise {setting} in the ClusterConfig, end another \
             peering, or accept this {what} all the same: ferro accept {peer}"
        );
        Reason::new("MaximumReached", text)
    }

    fn asks_a_person(&self, peer: &str) -> Reason {
        let what = self.what;
        let text = format!("the {what} of {peer} waits for you: ferro accept {peer}, or ferro refuse {peer}");
        Reason::new(WAITS_FOR_DECISION, text)
    }
}

#[cfg(test)]
mod tests {
    use ferro_api::config::{AutoJoin, IngoingConfig, RequestConfig};
    use ferro_api::discovery::ForeignClusterSpec;
    use serde_json::{Value, json};

    use super::{Case, Verdict, joins_by_itself, judge_offer, judge_request};

    fn peer(spec: Value) -> ForeignClusterSpec {
        serde_json::from_value(spec).unwrap()
    }

    fn requests(config: Value) -> RequestConfig {
        serde_json::from_value(config).unwrap()
    }

    fn case(accepted: bool, others: u32) -> Case<'static> {
        Case { peer: "milan", accepted, others }
    }

    fn word(verdict: Verdict) -> &'static str {
        match verdict {
            Verdict::Accept => "Accept",
            Verdict::Refuse(reason) | Verdict::Wait(reason) => {
                assert!(reason.text.contains("ferro accept milan"), "{}", reason.text);
                reason.word
            }
        }
    }

    #[test]
    fn newcomers_are_accepted_up_to_the_maximum_and_then_refused() {
        let config = requests(json!({"maxAcceptableRequests": 2}));
        assert_eq!(word(judge_request(case(false, 1), &peer(json!({})), &config)), "Accept");
        assert_eq!(word(judge_request(case(false, 2), &peer(json!({})), &config)), "MaximumReached");
    }

    #[test]
    fn what_was_accepted_stays_so_when_the_maximum_is_lowered() {
        let config = requests(json!({"maxAcceptableRequests": 0}));
        assert_eq!(word(judge_request(case(true, 9), &peer(json!({})), &config)), "Accept");
    }

    #[test]
    fn by_hand_means_that_somebody_has_to_say_so() {
        let config = requests(json!({"acceptPolicy": "Manual"}));
        assert_eq!(word(judge_request(case(false, 0), &peer(json!({})), &config)), "WaitsForDecision");
    }

    #[test]
    fn the_word_of_a_person_comes_first() {
        let none = requests(json!({"maxAcceptableRequests": 0}));
        assert_eq!(
            word(judge_request(case(false, 9), &peer(json!({"incoming": "Accept"})), &none)),
            "Accept"
        );
        let refuse = peer(json!({"incoming": "Refuse", "policy": {"requests": "AutoAcceptMax"}}));
        assert_eq!(word(judge_request(case(true, 0), &refuse, &requests(json!({})))), "RefusedByHand");
    }

    #[test]
    fn the_policy_of_a_peer_comes_before_the_general_one() {
        let manual = peer(json!({"policy": {"requests": "Manual", "offers": "AutoAcceptMax"}}));
        assert_eq!(word(judge_request(case(false, 0), &manual, &requests(json!({})))), "WaitsForDecision");
        let config: IngoingConfig = serde_json::from_value(json!({"acceptPolicy": "Manual"})).unwrap();
        assert_eq!(word(judge_offer(case(false, 0), &manual, &config)), "Accept");
        assert_eq!(word(judge_offer(case(false, 0), &peer(json!({})), &config)), "WaitsForDecision");
    }

    #[test]
    fn a_cluster_joins_by_itself_only_when_both_its_kind_and_its_trust_are_listed() {
        let rule: AutoJoin =
            serde_json::from_value(json!({"discoveryTypes": ["LAN"], "trustModes": ["Trusted"]})).unwrap();
        assert!(joins_by_itself(&peer(json!({"discoveryType": "LAN", "trustMode": "Trusted"})), &rule));
        assert!(!joins_by_itself(&peer(json!({"discoveryType": "LAN"})), &rule));
        assert!(!joins_by_itself(&peer(json!({"discoveryType": "WAN", "trustMode": "Trusted"})), &rule));
        let lan = peer(json!({"discoveryType": "LAN"}));
        assert!(!joins_by_itself(&lan, &AutoJoin::default()));
    }
}
