//! Two engines in two network namespaces, with real sockets of real kernels on both ends of the tunnel.
//!
//! Both clusters have the same networks, as in vector V1 of the contract: A names B's pods 10.0.0.0/24, and B names A's
//! 10.0.40.0/24. Namespaces and all that is in them go with their last handle, also when a test panics.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by a panic")]

#[path = "tunnel/namespace.rs"]
mod namespace;
#[path = "tunnel/pair.rs"]
mod pair;
#[path = "tunnel/reach.rs"]
mod reach;

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use ferro_core::network::Redirections;
use ferro_fabric::dataplane::Wire;
use ferro_fabric::wireguard::Drop;
use pair::{Outer, PATIENCE, Pair, Side, eventually};

const MEGABYTE: usize = 1 << 20;

/// Bytes that tell their place: 251 is no divisor of anything that is sent at once.
fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|place| u8::try_from(place % 251).unwrap()).collect()
}

/// Sends so many bytes from one pod to the other, and says whom the receiver saw.
fn stream(from: &Side, to: &Side, length: usize) -> IpAddr {
    stream_to(from, to, to.named(), length)
}

/// The same, when the receiver is named so.
fn stream_to(from: &Side, to: &Side, named: IpAddr, length: usize) -> IpAddr {
    let listener = to.namespace.run(|| TcpListener::bind((to.pod, 0)).unwrap());
    let target = SocketAddr::new(named, listener.local_addr().unwrap().port());
    // Who connects first finds out whether anybody can be reached; a connection that was made is there to be accepted.
    let mut sender = from.namespace.run(|| TcpStream::connect_timeout(&target, PATIENCE)).unwrap();
    let (mut accepted, seen) = listener.accept().unwrap();
    accepted.set_read_timeout(Some(PATIENCE)).unwrap();
    thread::scope(|scope| {
        scope.spawn(move || sender.write_all(&pattern(length)).unwrap());
        let mut came = Vec::with_capacity(length);
        accepted.read_to_end(&mut came).unwrap();
        assert!(came == pattern(length), "{} of {length} bytes came, or others", came.len());
        seen.ip()
    })
}

fn socket(at: &Side) -> UdpSocket {
    let socket = at.namespace.run(|| UdpSocket::bind((at.pod, 0)).unwrap());
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket
}

/// Sends a datagram once, and says whom the receiver saw.
fn datagram(from: &Side, to: &Side, bytes: &[u8]) -> IpAddr {
    let (sender, receiver) = (socket(from), socket(to));
    sender.send_to(bytes, (to.named(), receiver.local_addr().unwrap().port())).unwrap();
    let mut buffer = vec![0; 1 << 16];
    let (length, seen) = receiver.recv_from(&mut buffer).expect("the datagram comes");
    assert_eq!(&buffer[..length], bytes);
    seen.ip()
}

#[test]
fn pods_with_the_same_addresses_talk_by_tcp_both_ways() {
    let pair = Pair::new(Outer::V4);
    assert_eq!(stream(&pair.a, &pair.b, 50 * MEGABYTE).to_string(), "10.0.40.7");
    assert_eq!(stream(&pair.b, &pair.a, 50 * MEGABYTE).to_string(), "10.0.0.5");
    let (a, b) = pair.statistics();
    assert!(a.sent.bytes > 50 << 20 && a.received.bytes > 50 << 20, "{a:?}");
    assert_eq!((a.endpoint, b.endpoint), (Some(pair.b.endpoint()), Some(pair.a.endpoint())));
    assert!(a.last_handshake.is_some() && pair.a.engine().failure().is_none());
}

#[test]
fn the_outer_network_may_be_ipv6_and_the_inner_one_too() {
    let pair = Pair::new(Outer::V6);
    stream(&pair.a, &pair.b, 5 * MEGABYTE);
    stream(&pair.b, &pair.a, 5 * MEGABYTE);
    pair.use_inner_v6();
    let (a, b) = (pair.a.with_pod("fd00:1::7"), pair.b.with_pod("fd00:1::5"));
    let named = |text: &str| text.parse().unwrap();
    assert_eq!(stream_to(&a, &b, named("fd00:b::5"), 5 * MEGABYTE), named("fd00:a::7"));
    assert_eq!(stream_to(&b, &a, named("fd00:a::7"), 5 * MEGABYTE), named("fd00:b::5"));
}

#[test]
fn a_gateway_that_starts_again_behind_its_former_clock_is_let_in_if_it_is_told_so() {
    let mut pair = Pair::new(Outer::V4);
    let begin = SystemTime::now();
    let refused = |b: &Side| b.engine().drops().contains_key(&Drop::OldInitiation.to_string());
    for ahead in [Some(Duration::from_hours(1)), Some(Duration::from_hours(1) + Duration::from_secs(1)), None]
    {
        pair.a.stop();
        pair.a.start();
        if let Some(ahead) = ahead {
            pair.a.engine().go_on_after(begin + ahead);
        }
        pair.set();
        if ahead.is_some() {
            stream(&pair.a, &pair.b, MEGABYTE);
            assert!(!refused(&pair.b), "{:?}", pair.b.engine().drops());
        } else {
            eventually("who is not told is refused", || refused(&pair.b));
        }
    }
}

#[test]
fn the_first_datagram_waits_for_the_session_and_long_ones_come_in_pieces() {
    let pair = Pair::new(Outer::V4);
    assert_eq!(datagram(&pair.a, &pair.b, b"the first of all").to_string(), "10.0.40.7");
    for length in [0, 1, 1392, 1393, 9000, 60_000] {
        assert_eq!(datagram(&pair.a, &pair.b, &pattern(length)).to_string(), "10.0.40.7");
        assert_eq!(datagram(&pair.b, &pair.a, &pattern(length)).to_string(), "10.0.0.5");
    }
}

#[test]
fn many_datagrams_of_mixed_sizes_come_as_they_were() {
    let pair = Pair::new(Outer::V4);
    // What waited for the session may be overtaken by what comes right after it; nothing waits any more behind this.
    stream(&pair.a, &pair.b, MEGABYTE);
    let (sender, receiver) = (socket(&pair.a), socket(&pair.b));
    sender.connect((pair.b.named(), receiver.local_addr().unwrap().port())).unwrap();
    let sizes = |round: usize| [1200, 1200, 1200, 300, 40, 1200, 1300, 1300][round % 8];
    let mut buffer = [0; 2000];
    for round in 0..2000 {
        // Some at a time, so that none is lost for want of room.
        let mut sent = pattern(sizes(round));
        sent[..8].copy_from_slice(&round.to_be_bytes());
        sender.send(&sent).unwrap();
        if round % 50 == 49 {
            for expected in round - 49..=round {
                let length = receiver.recv(&mut buffer).unwrap();
                let number = usize::from_be_bytes(buffer[..8].try_into().unwrap());
                assert_eq!((number, length), (expected, sizes(expected)), "in order");
            }
        }
    }
}

#[test]
fn an_interface_that_promises_too_much_is_corrected_by_the_largest_segment() {
    let pair = Pair::new(Outer::V4);
    for side in [&pair.a, &pair.b] {
        side.namespace.ip("link set ferro0 mtu 1500");
    }
    stream(&pair.a, &pair.b, 5 * MEGABYTE);
    stream(&pair.b, &pair.a, 5 * MEGABYTE);
    assert!(!pair.a.engine().drops().contains_key("a packet that is too long for the tunnel"));
}

#[test]
fn a_peer_that_moves_is_found_again_by_its_own_packets() {
    let pair = Pair::new(Outer::V4);
    let listener = pair.a.namespace.run(|| TcpListener::bind((pair.a.pod, 0)).unwrap());
    let target = (pair.a.named(), listener.local_addr().unwrap().port());
    let mut sender = pair.b.namespace.run(|| TcpStream::connect(target).unwrap());
    let (mut receiver, _) = listener.accept().unwrap();
    let mut talk = || {
        sender.write_all(b"hello").unwrap();
        let mut buffer = [0; 5];
        receiver.read_exact(&mut buffer).unwrap();
        receiver.write_all(b"hi").unwrap();
        sender.read_exact(&mut buffer[..2]).unwrap();
    };
    talk();
    pair.b.namespace.ip("address add 192.0.2.9/25 dev outer");
    pair.b.namespace.ip("address del 192.0.2.2/24 dev outer");
    talk();
    eventually("the peer is where it moved to", || {
        let endpoint = pair.statistics().0.endpoint;
        endpoint.is_some_and(|endpoint| endpoint.ip().to_string() == "192.0.2.9")
    });
    talk();
    // The same plan again does not send it back to where it was.
    pair.set();
    talk();
    assert_eq!(pair.statistics().0.endpoint.unwrap().ip().to_string(), "192.0.2.9");
}

#[test]
fn rules_are_swapped_under_traffic_and_sessions_stay() {
    let pair = Pair::new(Outer::V4);
    // At the start both may begin a handshake. Nothing of it is on the way any more behind so many round trips.
    stream(&pair.a, &pair.b, MEGABYTE);
    let sessionless = || {
        let dropped = |side: &Side| side.engine().drops().remove(&Drop::UnknownIndex.to_string());
        [&pair.a, &pair.b].map(dropped)
    };
    let (before, lost) = (pair.statistics().0.sent.bytes, sessionless());
    let swaps = AtomicU32::new(0);
    thread::scope(|scope| {
        let streams = scope.spawn(|| {
            // Until there were enough, on however busy a machine.
            let is_enough = || swaps.load(Ordering::Relaxed) >= 10;
            (0..50).any(|_| {
                stream(&pair.a, &pair.b, 20 * MEGABYTE);
                is_enough()
            })
        });
        while !streams.is_finished() {
            pair.set_with(&BTreeMap::from([(
                "192.0.2.77".parse().unwrap(),
                "192.168.2.77".parse().unwrap(),
            )]));
            pair.set();
            swaps.fetch_add(2, Ordering::Relaxed);
        }
        assert!(streams.join().unwrap(), "{swaps:?} swaps");
    });
    // There may be another handshake when it is time for one, but no message that was sealed for a session that is gone.
    assert_eq!(sessionless(), lost);
    assert!(pair.statistics().0.sent.bytes - before > 20 << 20, "it is counted on");
}

#[test]
fn who_is_no_peer_any_more_gets_nothing_from_the_moment_on() {
    let pair = Pair::new(Outer::V4);
    datagram(&pair.a, &pair.b, b"hello");
    let (sender, receiver) = (socket(&pair.a), socket(&pair.b));
    receiver.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    let target = (pair.b.named(), receiver.local_addr().unwrap().port());
    pair.a.engine().set(BTreeMap::new()).unwrap();
    sender.send_to(b"too late", target).unwrap();
    assert!(receiver.recv(&mut [0; 10]).is_err());
    eventually("it is counted", || pair.a.engine().drops().contains_key("a packet for no peer"));
    assert!(pair.a.engine().statistics().is_empty());
    pair.set();
    datagram(&pair.a, &pair.b, b"hello again");
}

#[test]
fn an_endpoint_that_is_no_pod_is_reached_by_its_redirection() {
    let pair = Pair::new(Outer::V4);
    // A process of B's node, under an address of B's external network as A names it.
    pair.set_with(&BTreeMap::from([("192.0.2.2".parse().unwrap(), "192.168.1.45".parse().unwrap())]));
    let listener = pair.b.namespace.run(|| TcpListener::bind(("192.0.2.2", 0)).unwrap());
    let port = listener.local_addr().unwrap().port();
    let mut stream = pair.a.namespace.run(|| TcpStream::connect(("192.168.1.45", port)).unwrap());
    let (mut accepted, seen) = listener.accept().unwrap();
    accepted.write_all(b"hello").unwrap();
    let mut buffer = [0; 5];
    stream.read_exact(&mut buffer).unwrap();
    assert_eq!((seen.ip().to_string().as_str(), &buffer), ("10.0.40.7", b"hello"));
}

#[test]
fn a_sender_that_is_not_the_peers_is_dropped_and_counted() {
    let pair = Pair::new(Outer::V4);
    datagram(&pair.a, &pair.b, b"hello");
    let (sender, receiver) = (socket(&pair.a), socket(&pair.b));
    receiver.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    let target = (pair.b.named(), receiver.local_addr().unwrap().port());
    // A names its pods as B does not expect it.
    pair.a.set(&pair.b, "10.99.0.0/24", &BTreeMap::new());
    sender.send_to(b"who am I", target).unwrap();
    assert!(receiver.recv(&mut [0; 10]).is_err());
    let reason = "a packet out of a tunnel whose sender is not the peer's";
    eventually("it is counted", || pair.b.engine().drops().contains_key(reason));
    // A process of A's node has no name in B at all.
    let nameless = pair.a.namespace.run(|| UdpSocket::bind(("192.0.2.1", 0)).unwrap());
    nameless.send_to(b"nobody", target).unwrap();
    let reason = "a packet to a peer of somebody who has no name there";
    eventually("it is counted", || pair.a.engine().drops().contains_key(reason));
}

#[test]
fn probes_tell_how_good_the_tunnel_is_and_when_it_is_down() {
    let mut pair = Pair::new(Outer::V4);
    eventually("both have a round trip", || {
        let (a, b) = pair.statistics();
        a.probe.round_trip.is_some() && b.probe.round_trip.is_some()
    });
    assert_eq!(pair.statistics().0.probe.missed, 0);
    pair.b.stop();
    eventually("three are missed", || pair.a.engine().statistics()["b"].probe.missed >= 3);
    pair.b.start();
    pair.set();
    eventually("it is up again", || pair.statistics().0.probe.missed == 0);
    datagram(&pair.a, &pair.b, b"hello");
}

#[test]
fn nothing_is_left_of_an_engine_that_ended() {
    let mut pair = Pair::new(Outer::V4);
    datagram(&pair.a, &pair.b, b"hello");
    let port = pair.a.endpoint().port();
    pair.a.stop();
    pair.a.namespace.run(|| {
        assert!(!std::fs::read_to_string("/proc/thread-self/net/dev").unwrap().contains("ferro0"));
        Wire::open(port).unwrap();
    });
}

#[test]
fn an_interface_that_is_taken_away_is_a_failure_that_is_told() {
    let pair = Pair::new(Outer::V4);
    assert_eq!(pair.a.engine().failure(), None);
    pair.a.namespace.ip("link del ferro0");
    eventually("it is told", || pair.a.engine().failure().is_some());
}

#[test]
fn two_peers_with_one_key_are_refused_and_nothing_changes() {
    let pair = Pair::new(Outer::V4);
    let plan = pair.a.plan(&pair.b, "10.0.40.0/24", &BTreeMap::new());
    let twice = BTreeMap::from([("b".to_owned(), plan.clone()), ("c".to_owned(), plan)]);
    let error = pair.a.engine().set(twice).unwrap_err().to_string();
    assert!(error.contains("the clusters b and c have the same key"), "{error}");
    datagram(&pair.a, &pair.b, b"hello");
}

/// The least time that the engine takes for one more endpoint, beside so many others.
fn time_of_a_change(side: &Side, other: &Side, count: u32) -> Duration {
    let ip = |first: u32, number: u32| IpAddr::V4((first + number).into());
    let mut published = Redirections::default();
    for number in 0..count {
        published.insert(ip(0xc612_0000, number), ip(0xac10_0000, number)).unwrap();
    }
    let changes = (0..50).map(|more| {
        published.insert(ip(0xc61a_0000, more), ip(0xac1a_0000, more)).unwrap();
        let mut plan = side.plan(other, side.views[0], &BTreeMap::new());
        plan.table = plan.table.publishing(published.clone());
        let plans = BTreeMap::from([(other.name.to_owned(), plan)]);
        let begin = Instant::now();
        side.engine().set(plans).unwrap();
        begin.elapsed()
    });
    changes.min().unwrap()
}

#[test]
fn one_more_redirection_takes_no_longer_among_a_hundred_thousand() {
    let pair = Pair::new(Outer::V4);
    let [few, many] = [1_000, 100_000].map(|count| time_of_a_change(&pair.a, &pair.b, count));
    // Where little takes microseconds, one look of another process takes as long.
    let most = few * 10 + Duration::from_millis(1);
    assert!(many < most, "{many:?} among a hundred thousand, {few:?} among a thousand");
    datagram(&pair.a, &pair.b, b"hello");
}
