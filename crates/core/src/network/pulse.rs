//! Whether the gateway of this cluster is alive: it renews a Lease, and what it said last counts no longer than that.
//!
//! Only whether there is another renewal at each look is counted, never the time that it carries, nor the time between
//! looks: clocks of nodes may differ, and whoever reaches no API learns nothing of the gateway, which goes on forwarding.

use std::time::Duration;

use k8s_openapi::jiff::Timestamp;

/// The Lease that the gateway renews, in the namespace of the installation.
pub const LEASE: &str = "ferro-gateway";
/// How often it does.
pub const RENEWAL: Duration = Duration::from_secs(10);
/// How often it is looked at.
pub const LOOK: Duration = Duration::from_secs(5);
/// So many looks in a row that find nothing new mean that the gateway is silent.
const QUIET: u32 = 8;
/// How long that takes: as long as Kubernetes gives a node.
pub const SILENCE: Duration = LOOK.saturating_mul(QUIET);

/// What was heard of the gateway.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pulse {
    renewal: Option<Timestamp>,
    quiet: u32,
}

impl Pulse {
    /// Takes in the renewal that the Lease shows; none if there is none.
    pub fn hear(&mut self, renewal: Option<Timestamp>) {
        if renewal.is_some() && renewal != self.renewal {
            *self = Self { renewal, quiet: 0 };
        } else {
            self.quiet = self.quiet.saturating_add(1);
        }
    }

    /// The API did not answer, and may not have answered the gateway: it has all the time again to be heard.
    pub fn miss(&mut self) {
        if !self.is_silent() {
            self.quiet = 0;
        }
    }

    /// Whether the gateway is silent.
    pub fn is_silent(&self) -> bool {
        self.quiet >= QUIET
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn renewal(second: i64) -> Option<Timestamp> {
        Timestamp::from_second(second).ok()
    }

    /// How many looks it takes until the gateway is silent.
    fn looks(pulse: &mut Pulse, renewal: Option<Timestamp>) -> u32 {
        let mut looks = 0;
        while !pulse.is_silent() {
            pulse.hear(renewal);
            looks += 1;
        }
        looks
    }

    #[test]
    fn a_gateway_is_silent_when_nothing_new_arrives() {
        let mut pulse = Pulse::default();
        assert_eq!(looks(&mut pulse, None), QUIET, "also one that is never heard");
        // Its clock may be anything.
        pulse.hear(renewal(-7));
        assert!(!pulse.is_silent());
        assert_eq!(looks(&mut pulse, renewal(-7)), QUIET, "the same again is nothing new");
        pulse.hear(renewal(-9));
        pulse.hear(None);
        assert!(!pulse.is_silent(), "that the Lease is gone says nothing of the gateway");
        assert_eq!(looks(&mut pulse, None), QUIET - 1);
    }

    #[test]
    fn an_api_that_does_not_answer_says_nothing_of_the_gateway() {
        let mut pulse = Pulse::default();
        pulse.hear(renewal(1));
        for _ in 1..QUIET {
            pulse.hear(renewal(1));
        }
        for _ in 0..1000 {
            pulse.miss();
        }
        assert!(!pulse.is_silent());
        assert_eq!(looks(&mut pulse, renewal(1)), QUIET, "it is waited for as long as ever");
        pulse.miss();
        assert!(pulse.is_silent(), "nor that it is there again");
        pulse.hear(renewal(2));
        assert!(!pulse.is_silent());
    }

    #[test]
    fn several_renewals_may_fail() {
        assert!(SILENCE >= RENEWAL * 4);
    }
}
