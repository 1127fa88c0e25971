//! The figures of a gateway for Prometheus: traffic and probes of each tunnel, and what was dropped and why.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, PoisonError};

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};

use super::status::observed;
use crate::dataplane::Statistics;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Peer {
    cluster_id: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Reason {
    reason: String,
}

type Seconds = Gauge<f64, AtomicU64>;

/// What the engine had counted of a peer at the last look.
#[derive(Clone, Copy, Debug, Default)]
struct Counted {
    sent: u64,
    received: u64,
}

/// The figures.
#[derive(Clone, Default)]
pub struct Figures {
    sent: Family<Peer, Counter>,
    received: Family<Peer, Counter>,
    round_trip: Family<Peer, Seconds>,
    jitter: Family<Peer, Seconds>,
    lost: Family<Peer, Seconds>,
    up: Family<Peer, Gauge>,
    dropped: Family<Reason, Counter>,
    counted: Arc<Mutex<BTreeMap<String, Counted>>>,
}

impl Figures {
    /// Shows the figures.
    pub fn register(registry: &mut Registry) -> Self {
        let figures = Self::default();
        let (sent, received) = (figures.sent.clone(), figures.received.clone());
        registry.register_with_unit("tunnel_sent", "Bytes of packets sent to a peer", Unit::Bytes, sent);
        registry.register_with_unit(
            "tunnel_received",
            "Bytes of packets received from a peer",
            Unit::Bytes,
            received,
        );
        registry.register_with_unit(
            "tunnel_round_trip",
            "From a probe through the tunnel to its answer",
            Unit::Seconds,
            figures.round_trip.clone(),
        );
        registry.register_with_unit(
            "tunnel_jitter",
            "How much the round trip varies",
            Unit::Seconds,
            figures.jitter.clone(),
        );
        registry.register_with_unit(
            "tunnel_lost",
            "The share of the last probes without an answer",
            Unit::Ratios,
            figures.lost.clone(),
        );
        registry.register("tunnel_up", "Whether packets get through to a peer", figures.up.clone());
        registry.register("gateway_dropped", "Packets that were dropped", figures.dropped.clone());
        figures
    }

    /// Takes over what the engine counts; a tunnel that is gone is shown no longer.
    pub(super) fn set(
        &self,
        statistics: &BTreeMap<String, Statistics>,
        probed: &BTreeSet<String>,
        drops: BTreeMap<String, u64>,
    ) {
        let mut counted = self.counted.lock().unwrap_or_else(PoisonError::into_inner);
        counted.retain(|peer, _| {
            let stays = statistics.contains_key(peer);
            if !stays {
                self.forget(&Peer { cluster_id: peer.clone() });
            }
            stays
        });
        for (name, seen) in statistics {
            let peer = Peer { cluster_id: name.clone() };
            let now = Counted { sent: seen.sent.bytes, received: seen.received.bytes };
            let before = counted.insert(name.clone(), now).unwrap_or_default();
            self.sent.get_or_create(&peer).inc_by(since(before.sent, now.sent));
            self.received.get_or_create(&peer).inc_by(since(before.received, now.received));
            self.judge(&peer, seen, probed.contains(name));
        }
        for (reason, count) in drops {
            raise(&self.dropped.get_or_create(&Reason { reason }), count);
        }
    }

    /// Shows how good a tunnel is. What is not known is not shown; that nobody answers is known.
    fn judge(&self, peer: &Peer, seen: &Statistics, is_probed: bool) {
        let is_up = observed(seen, is_probed, None).is_up();
        self.up.get_or_create(peer).set(is_up.into());
        let probe = seen.probe;
        if is_probed {
            self.lost.get_or_create(peer).set(f64::from(probe.lost_per_thousand) / 1000.0);
        } else {
            self.lost.remove(peer);
        }
        // A round trip of before the silence would look as if all were well.
        if let Some(round_trip) = probe.round_trip.filter(|_| is_up) {
            self.round_trip.get_or_create(peer).set(round_trip.as_secs_f64());
            self.jitter.get_or_create(peer).set(probe.jitter.as_secs_f64());
        } else {
            self.round_trip.remove(peer);
            self.jitter.remove(peer);
        }
    }

    fn forget(&self, peer: &Peer) {
        for counters in [&self.sent, &self.received] {
            counters.remove(peer);
        }
        for gauges in [&self.round_trip, &self.jitter, &self.lost] {
            gauges.remove(peer);
        }
        self.up.remove(peer);
    }
}

/// What came in addition. Where there is less than before, the engine has begun anew with the peer.
fn since(before: u64, now: u64) -> u64 {
    now.checked_sub(before).unwrap_or(now)
}

/// Brings a counter to this value, which only grows.
fn raise(counter: &Counter, to: u64) {
    counter.inc_by(to.saturating_sub(counter.get()));
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use ferro_core::network::report::{MISSED, Measured};

    use super::*;
    use crate::dataplane::Traffic;

    fn peer() -> Peer {
        Peer { cluster_id: "b".into() }
    }

    /// Looks at a peer that has sent so much, and answered some probes and missed others.
    fn look(figures: &Figures, sent: u64, missed: u32) {
        let probe = Measured {
            round_trip: Some(Duration::from_millis(2)),
            lost_per_thousand: 500,
            missed,
            ..Measured::default()
        };
        let seen = Statistics {
            sent: Traffic { packets: 1, bytes: sent },
            last_handshake: Some(Instant::now()),
            probe,
            ..Statistics::default()
        };
        figures.set(&[("b".to_owned(), seen)].into(), &["b".to_owned()].into(), BTreeMap::new());
    }

    #[test]
    fn a_tunnel_without_answers_is_down_and_its_loss_is_shown() {
        let figures = Figures::default();
        look(&figures, 1, 0);
        assert_eq!(figures.up.get(&peer()).unwrap().get(), 1);
        assert!(figures.round_trip.get(&peer()).is_some());
        look(&figures, 1, MISSED);
        assert_eq!(figures.up.get(&peer()).unwrap().get(), 0);
        assert!(figures.round_trip.get(&peer()).is_none() && figures.lost.get(&peer()).is_some());
    }

    #[test]
    fn counters_go_on_with_another_key_and_go_with_the_peer() {
        let figures = Figures::default();
        let count = || figures.sent.get(&peer()).map(|counter| counter.get());
        look(&figures, 100, 0);
        look(&figures, 150, 0);
        assert_eq!(count(), Some(150));
        look(&figures, 7, 0);
        assert_eq!(count(), Some(157));
        figures.set(&BTreeMap::new(), &BTreeSet::new(), BTreeMap::new());
        assert_eq!(count(), None);
        assert!(figures.up.get(&peer()).is_none() && figures.lost.get(&peer()).is_none());
        look(&figures, 5, 0);
        assert_eq!(count(), Some(5));
    }
}
