//! How a tunnel fares, as it is shown: its state at once, figures only when they say something new.
//!
//! A gateway measures twice a second, and the API is not the place for that; metrics are. Nor is it for what a peer can
//! change with every packet, which is where it sends from.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ferro_api::net::{Connection, ConnectionStatus, Probe, Throughput};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;

use super::Trouble;
use super::config::PUBLIC_KEY;

/// So many probes in a row without an answer mean that the tunnel is down: five seconds, which a burst of traffic or a
/// handshake that has to be repeated does not take. The first answer means that it is up again.
pub const MISSED: u32 = 10;
/// So many mean that whatever is behind the tunnel is better not sent anything now.
const QUIET: u32 = 3;
/// Figures are written at most this often.
const FIGURES: Duration = Duration::from_mins(1);
/// Round trips that differ by less are the same.
const NOISE: u32 = 200;
/// Losses that differ by less are the same, per thousand.
const LITTLE_LOSS: u16 = 10;
/// Throughputs below this are none, in bytes per second: probes alone make as much.
const TRICKLE: u64 = 1024;

/// Throughput is an average over so long: it is that of now, and does not jump with every packet.
const SPAN: Duration = Duration::from_secs(10);

/// Under this name it is shown where the peer is.
const ENDPOINT: &str = "endpoint";

/// What is said of the tunnels of a silent gateway.
const UNHEARD: &str = "the gateway of this cluster is silent; is the pod of ferro-gateway running, and does it reach the API server?";

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
    /// The key that sessions with it are made by.
    pub public_key: Option<[u8; 32]>,
    /// What the probes tell, where the peer answers any.
    pub probe: Option<Measured>,
    /// What goes through it: see [`Pace`].
    pub throughput: Option<Throughput>,
}

/// How much goes through a tunnel, from how much has gone through it at looks that are far enough apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pace {
    at: Instant,
    sent: u64,
    received: u64,
    throughput: Option<Throughput>,
}

impl Pace {
    /// The first look: so many bytes until now.
    pub fn new(sent: u64, received: u64, now: Instant) -> Self {
        Self { at: now, sent, received, throughput: None }
    }

    /// What goes through, after another look; none as long as that is not known.
    pub fn look(&mut self, sent: u64, received: u64, now: Instant) -> Option<Throughput> {
        let took = now.saturating_duration_since(self.at);
        if took >= SPAN {
            let pace = |after: u64, before: u64| {
                let bytes = u128::from(after.saturating_sub(before));
                u64::try_from(bytes * 1000 / took.as_millis()).ok()
            };
            let throughput = Throughput {
                sent_bytes_per_second: pace(sent, self.sent),
                received_bytes_per_second: pace(received, self.received),
            };
            *self = Self { throughput: Some(throughput), ..Self::new(sent, received, now) };
        }
        self.throughput.clone()
    }
}

impl Observed {
    /// Whether packets get through.
    pub fn is_up(&self) -> bool {
        let answers = self.probe.is_none_or(|probe| probe.round_trip.is_some() && probe.missed < MISSED);
        self.has_session && answers
    }

    /// Whether nothing comes back, of late.
    fn is_silent(&self) -> bool {
        self.probe.is_some_and(|probe| probe.missed >= QUIET)
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
    // It is merged in: what was said of the key stays when the tunnel goes down, and others claim that it is theirs.
    let key = observed.public_key.filter(|_| observed.is_up()).map(|key| STANDARD.encode(key));
    let key = key.map(|key| (PUBLIC_KEY.to_owned(), key));
    let endpoint = endpoint.map(|endpoint| (ENDPOINT.to_owned(), endpoint));
    Connection {
        status: Some(status),
        status_message: Some(message),
        silent: observed.is_silent().then_some(true),
        peer_configuration: endpoint.into_iter().chain(key).collect(),
        probe: observed.probe.and_then(|measured| figures(&measured, now)),
        throughput: observed.throughput.clone(),
    }
}

/// What is shown of a tunnel that the gateway does not run.
pub fn refused(trouble: &Trouble) -> Connection {
    let status = match trouble {
        // It comes by itself.
        Trouble::Unprocessed(_) => ConnectionStatus::Connecting,
        _ => ConnectionStatus::Error,
    };
    Connection { status: Some(status), status_message: Some(trouble.to_string()), ..Connection::default() }
}

/// What is shown of a tunnel whose gateway is silent. Whatever it said last may be long over.
pub fn unheard(last: Connection) -> Connection {
    Connection {
        status: Some(ConnectionStatus::Connecting),
        status_message: Some(UNHEARD.to_owned()),
        silent: None,
        peer_configuration: last.peer_configuration,
        probe: None,
        throughput: None,
    }
}

/// Whether a tunnel is shown as one whose gateway is silent.
pub fn is_unheard(shown: &Connection) -> bool {
    shown.status_message.as_deref() == Some(UNHEARD)
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

/// Whether it is worth a write to show this in place of what is shown, and was written so long ago, if that is known.
pub fn is_news(shown: Option<&Connection>, seen: &Connection, age: Option<Duration>) -> bool {
    let Some(shown) = shown else { return true };
    if state(shown) != state(seen) {
        return true;
    }
    let is_elsewhere = shown.peer_configuration != seen.peer_configuration;
    let has_other_figures = match (&shown.probe, &seen.probe) {
        (_, None) => false,
        (None, Some(_)) => return true,
        (Some(before), Some(after)) => differ(before, after) || is_other_pace(shown, seen),
    };
    age.is_none_or(|age| age >= FIGURES) && (is_elsewhere || has_other_figures)
}

/// Whether packets get to the pods behind a tunnel now, as far as it is shown.
pub fn reaches(shown: Option<&Connection>) -> bool {
    shown.is_some_and(|shown| shown.status == Some(ConnectionStatus::Connected) && shown.silent != Some(true))
}

/// What is shown, but for where the peer is, and for figures.
fn state(of: &Connection) -> (Option<ConnectionStatus>, Option<bool>, String, Option<&String>) {
    let text = of.status_message.clone().unwrap_or_default();
    let text = match of.peer_configuration.get(ENDPOINT) {
        Some(endpoint) => text.replace(endpoint, ""),
        None => text,
    };
    (of.status, of.silent, text, of.peer_configuration.get(PUBLIC_KEY))
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
            public_key: Some([7; 32]),
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
        let slow = Measured { missed: MISSED - 1, ..up.probe.unwrap() };
        assert!(with_probe(&up, Some(slow)).is_up(), "a short silence is not the end");
        let silent = Measured { missed: MISSED, ..up.probe.unwrap() };
        assert!(!with_probe(&up, Some(silent)).is_up());
        assert!(!with_probe(&up, Some(Measured::default())).is_up());
        assert!(with_probe(&up, None).is_up());
        assert!(!Observed { has_session: false, ..up }.is_up());
    }

    #[test]
    fn throughput_is_that_of_the_last_seconds_however_long_all_was_quiet() {
        let (start, mut pace) = (Instant::now(), Pace::new(1_000_000, 0, Instant::now()));
        let mut look = |second, sent, received| {
            let seen = pace.look(sent, received, start + Duration::from_secs(second));
            seen.map(|seen| (seen.sent_bytes_per_second.unwrap(), seen.received_bytes_per_second.unwrap()))
        };
        assert_eq!(look(9, 9_000_000, 0), None, "too soon to tell");
        let night = 8 * 3600;
        for second in (20..=night).step_by(10) {
            look(second, 1_000_000, 0);
        }
        assert_eq!(look(night + 1, 9_000_000, 0), Some((0, 0)));
        assert_eq!(look(night + 10, 21_000_000, 500), Some((2_000_000, 50)));
        assert_eq!(look(night + 15, 21_000_000, 500), Some((2_000_000, 50)));
        assert_eq!(look(night + 20, 21_000_000, 500), Some((0, 0)));
        // A session with another key counts from the beginning.
        assert_eq!(look(night + 30, 100, 0), Some((0, 0)));
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
    fn a_tunnel_that_is_not_run_is_an_error_unless_it_is_not_processed_yet() {
        let own_key = refused(&Trouble::OwnKey);
        assert_eq!(own_key.status, Some(ConnectionStatus::Error));
        assert_eq!(own_key.status_message, Some(Trouble::OwnKey.to_string()));
        let early = refused(&Trouble::Unprocessed("status.localPodCIDR"));
        assert_eq!(early.status, Some(ConnectionStatus::Connecting));
        assert!(early.status_message.is_some_and(|message| message.contains("not processed yet")));
        let up = connection(&measured(1), start());
        assert!(is_news(Some(&up), &own_key, Some(Duration::ZERO)));
    }

    #[test]
    fn states_are_written_at_once_and_figures_when_they_say_something() {
        let (now, soon, later) = (start(), Some(Duration::ZERO), Some(FIGURES));
        let first = connection(&measured(1_000), now);
        let same = connection(&measured(1_100), now);
        assert!(is_news(None, &first, None));
        assert!(!is_news(Some(&first), &same, soon) && !is_news(Some(&first), &same, later));
        let slow = connection(&measured(9_000), now);
        assert!(!is_news(Some(&first), &slow, soon) && is_news(Some(&first), &slow, later));
        assert!(is_news(Some(&first), &slow, None), "nobody knows how old it is");
        let busy = Throughput { sent_bytes_per_second: Some(1 << 20), ..Throughput::default() };
        let busy = connection(&Observed { throughput: Some(busy), ..measured(1_000) }, now);
        assert!(is_news(Some(&first), &busy, later) && !is_news(Some(&first), &busy, soon));
        let down = connection(&Observed { has_session: false, ..measured(1_000) }, now);
        assert!(is_news(Some(&first), &down, soon));
    }

    #[test]
    fn a_key_is_shown_once_packets_get_through_with_it() {
        let key =
            |observed: &Observed| connection(observed, start()).peer_configuration.get("publicKey").cloned();
        let up = measured(1);
        assert_eq!(key(&up), Some(STANDARD.encode([7; 32])));
        assert_eq!(key(&Observed { has_session: false, ..up.clone() }), None);
        assert_eq!(key(&with_probe(&up, Some(Measured::default()))), None, "a session alone is not enough");
        let anew = connection(&Observed { public_key: Some([8; 32]), ..up.clone() }, start());
        assert!(is_news(Some(&connection(&up, start())), &anew, Some(Duration::ZERO)));
    }

    #[test]
    fn where_a_peer_sends_from_is_no_news_by_itself() {
        let (soon, later) = (FIGURES.checked_sub(Duration::from_secs(1)), Some(FIGURES));
        let without_session = Observed { has_session: false, ..measured(1_000) };
        let without_probes = with_probe(&measured(1_000), None);
        for observed in [measured(1_000), without_session, without_probes] {
            let moved = Observed { endpoint: Some("198.51.100.3:9".parse().unwrap()), ..observed.clone() };
            let (before, after) = (connection(&observed, start()), connection(&moved, start()));
            assert_ne!(before, after);
            assert!(!is_news(Some(&before), &after, soon) && is_news(Some(&before), &after, later));
        }
    }
}
