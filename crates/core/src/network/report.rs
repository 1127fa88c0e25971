//! How a tunnel fares, as it is shown: its state at once, figures only when they say something new.
//!
//! A gateway measures twice a second, and the API is not the place for that; metrics are.

use std::net::SocketAddr;
use std::time::Duration;

use ferro_api::net::{Connection, ConnectionStatus, Probe, Throughput};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;

/// So many probes in a row without an answer mean that the tunnel is down.
pub const MISSED: u32 = 3;
/// Figures are written at most this often.
const FIGURES: Duration = Duration::from_mins(1);
/// Round trips that differ by less are the same.
const NOISE: u32 = 200;
/// Losses that differ by less are the same, per thousand.
const LITTLE_LOSS: u16 = 10;
/// Throughputs below this are none, in bytes per second: probes alone make as much.
const TRICKLE: u64 = 1024;

/// What the probes through a tunnel tell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Measured {
    /// From a probe to its answer, smoothed; none before the first answer.
    pub round_trip: Option<Duration>,
    /// How much that varies.
    pub jitter: Duration,
    /// Of the last probes, how many in a thousand had no answer.
    pub lost_per_thousand: u16,
    /// How many had none, in a row, until now.
    pub missed: u32,
}

/// What is seen of a tunnel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Observed {
    /// Whether there are keys to send by.
    pub has_session: bool,
    /// Where the peer is.
    pub endpoint: Option<SocketAddr>,
    /// What the probes tell, where the peer answers any.
    pub probe: Option<Measured>,
    /// What went through it since that was last shown.
    pub throughput: Option<Throughput>,
}

impl Observed {
    /// Whether packets get through.
    pub fn is_up(&self) -> bool {
        let answers = self.probe.is_none_or(|probe| probe.round_trip.is_some() && probe.missed < MISSED);
        self.has_session && answers
    }
}

/// What is shown of a tunnel.
pub fn connection(observed: &Observed, now: Timestamp) -> Connection {
    let endpoint = observed.endpoint.map(|endpoint| endpoint.to_string());
    let (status, message) = match (observed.is_up(), observed.has_session, &endpoint) {
        (true, _, _) => (ConnectionStatus::Connected, "packets get through".to_owned()),
        (false, true, _) => (
            ConnectionStatus::Connecting,
            "the peer's gateway is there, but probes through the tunnel have no answer".to_owned(),
        ),
        (false, false, Some(endpoint)) => (
            ConnectionStatus::Connecting,
            format!("no answer from {endpoint}; is that port open for UDP, and the peer's gateway running?"),
        ),
        (false, false, None) => {
            (ConnectionStatus::Connecting, "the peer has not said yet where its gateway is".to_owned())
        }
    };
    Connection {
        status: Some(status),
        status_message: Some(message),
        peer_configuration: endpoint.map(|endpoint| ("endpoint".to_owned(), endpoint)).into_iter().collect(),
        probe: observed.probe.and_then(|measured| figures(&measured, now)),
        throughput: observed.throughput.clone(),
    }
}

fn figures(measured: &Measured, now: Timestamp) -> Option<Probe> {
    let round_trip = measured.round_trip?;
    let microseconds = |time: Duration| u32::try_from(time.as_micros()).unwrap_or(u32::MAX);
    Some(Probe {
        round_trip_microseconds: Some(microseconds(round_trip)),
        jitter_microseconds: Some(microseconds(measured.jitter)),
        lost_per_thousand: Some(measured.lost_per_thousand),
        measured_at: Some(Time(now)),
    })
}

/// Whether it is worth a write to show this in place of what is shown.
pub fn is_news(shown: Option<&Connection>, seen: &Connection, now: Timestamp) -> bool {
    let Some(shown) = shown else { return true };
    let state = |of: &Connection| (of.status, of.status_message.clone(), of.peer_configuration.clone());
    if state(shown) != state(seen) {
        return true;
    }
    match (&shown.probe, &seen.probe) {
        (_, None) => false,
        (None, Some(_)) => true,
        (Some(before), Some(after)) => {
            is_old(before, now) && (differ(before, after) || is_other_pace(shown, seen))
        }
    }
}

fn is_old(probe: &Probe, now: Timestamp) -> bool {
    let written = probe.measured_at.as_ref().map(|Time(at)| now.duration_since(*at));
    written.is_none_or(|age| age >= FIGURES.try_into().unwrap_or_default())
}

fn differ(before: &Probe, after: &Probe) -> bool {
    let trip = |probe: &Probe| probe.round_trip_microseconds.unwrap_or_default();
    let loss = |probe: &Probe| probe.lost_per_thousand.unwrap_or_default();
    let by = trip(before).abs_diff(trip(after));
    by > NOISE && by > trip(before) / 4 || loss(before).abs_diff(loss(after)) >= LITTLE_LOSS
}

/// Whether twice or half as much goes through, in either direction.
fn is_other_pace(shown: &Connection, seen: &Connection) -> bool {
    let pace = |of: &Connection| {
        let throughput = of.throughput.clone().unwrap_or_default();
        [throughput.sent_bytes_per_second, throughput.received_bytes_per_second]
            .map(|pace| pace.unwrap_or_default().max(TRICKLE))
    };
    pace(shown)
        .into_iter()
        .zip(pace(seen))
        .any(|(before, after)| after >= before.saturating_mul(2) || before >= after.saturating_mul(2))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn start() -> Timestamp {
        Timestamp::from_second(1_900_000_000).unwrap()
    }

    fn measured(microseconds: u64) -> Observed {
        let round_trip = Some(Duration::from_micros(microseconds));
        Observed {
            has_session: true,
            endpoint: Some("192.0.2.7:5871".parse().unwrap()),
            probe: Some(Measured { round_trip, ..Measured::default() }),
            throughput: None,
        }
    }

    fn with_probe(observed: &Observed, probe: Option<Measured>) -> Observed {
        Observed { probe, ..observed.clone() }
    }

    #[test]
    fn a_tunnel_is_up_when_probes_come_back() {
        let up = measured(900);
        assert!(up.is_up());
        let silent = Measured { missed: MISSED, ..up.probe.unwrap() };
        assert!(!with_probe(&up, Some(silent)).is_up());
        assert!(!with_probe(&up, Some(Measured::default())).is_up());
        assert!(with_probe(&up, None).is_up());
        assert!(!Observed { has_session: false, ..up }.is_up());
    }

    #[test]
    fn what_is_missing_is_said() {
        let message = |observed: Observed| connection(&observed, start()).status_message.unwrap();
        let gone = Observed { has_session: false, probe: None, ..measured(1) };
        assert!(message(gone).contains("no answer from 192.0.2.7:5871"));
        assert!(message(Observed::default()).contains("not said yet"));
        let deaf = Observed { probe: Some(Measured::default()), ..measured(1) };
        assert!(message(deaf).contains("probes"));
    }

    #[test]
    fn states_are_written_at_once_and_figures_when_they_say_something() {
        let first = connection(&measured(1_000), start());
        assert!(is_news(None, &first, start()));
        assert!(!is_news(Some(&first), &connection(&measured(1_100), start()), start()));
        let later = start() + FIGURES;
        assert!(!is_news(Some(&first), &connection(&measured(1_100), later), later));
        assert!(!is_news(Some(&first), &connection(&measured(9_000), start()), start()));
        assert!(is_news(Some(&first), &connection(&measured(9_000), later), later));
        let busy = Throughput { sent_bytes_per_second: Some(1 << 20), ..Throughput::default() };
        let busy = connection(&Observed { throughput: Some(busy), ..measured(1_000) }, later);
        assert!(is_news(Some(&first), &busy, later) && !is_news(Some(&first), &busy, start()));
        let down = connection(&Observed { has_session: false, ..measured(1_000) }, start());
        assert!(is_news(Some(&first), &down, start()));
    }
}
