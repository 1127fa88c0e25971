//! The figures of a gateway for Prometheus: traffic and probes of each tunnel, and what was dropped and why.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};

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

/// The figures.
#[derive(Clone, Default)]
pub struct Figures {
    sent: Family<Peer, Counter>,
    received: Family<Peer, Counter>,
    round_trip: Family<Peer, Seconds>,
    jitter: Family<Peer, Seconds>,
    lost: Family<Peer, Seconds>,
    dropped: Family<Reason, Counter>,
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
        registry.register("gateway_dropped", "Packets that were dropped", figures.dropped.clone());
        figures
    }

    /// Takes over what the engine counts; a tunnel that is gone is shown no longer.
    pub(super) fn set(&self, statistics: &BTreeMap<String, Statistics>, drops: BTreeMap<String, u64>) {
        self.round_trip.clear();
        self.jitter.clear();
        self.lost.clear();
        for (peer, seen) in statistics {
            let peer = Peer { cluster_id: peer.clone() };
            raise(&self.sent.get_or_create(&peer), seen.sent.bytes);
            raise(&self.received.get_or_create(&peer), seen.received.bytes);
            let probe = seen.quality;
            let Some(round_trip) = probe.round_trip else { continue };
            self.round_trip.get_or_create(&peer).set(round_trip.as_secs_f64());
            self.jitter.get_or_create(&peer).set(probe.jitter.as_secs_f64());
            self.lost.get_or_create(&peer).set(f64::from(probe.lost_per_thousand) / 1000.0);
        }
        for (reason, count) in drops {
            raise(&self.dropped.get_or_create(&Reason { reason }), count);
        }
    }
}

/// Brings a counter to this value. A peer that comes back counts from the beginning, and its counter stays until then.
fn raise(counter: &Counter, to: u64) {
    counter.inc_by(to.saturating_sub(counter.get()));
}
