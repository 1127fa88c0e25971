//! What a peer reaches where little is open: it knocks everywhere, and only what is published hears it.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4, TcpListener, TcpStream, UdpSocket};
use std::ops::{Range, RangeInclusive};
use std::os::fd::OwnedFd;
use std::thread;
use std::time::Duration;

use ferro_core::network::Packet;
use ferro_fabric::packet::{Echo, Header, Numbers};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, ipproto};

use crate::pair::{Outer, Pair, Side, eventually};
use crate::{MEGABYTE, socket, stream};

/// B's pods, by the last part of their addresses, and the ports at which each of them listens.
const PODS: RangeInclusive<u8> = 1..=6;
const PORTS: Range<u16> = 7000..7008;
/// A process of B's node, and its name in A.
const NODE: &str = "192.0.2.2";
const NODE_THERE: &str = "192.168.1.45";
const DROPPED: &str = "a packet out of a tunnel for somebody whom the peer may not reach";
/// By which our echo replies are known.
const IDENTIFIER: u16 = 77;

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn pod(last: u8) -> IpAddr {
    Ipv4Addr::new(10, 244, 0, last).into()
}

fn pod_in_a(last: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 0, 0, last)
}

fn published() -> BTreeMap<IpAddr, IpAddr> {
    BTreeMap::from([(ip(NODE), ip(NODE_THERE))])
}

/// How many packets B did not let in.
fn dropped(pair: &Pair) -> u64 {
    pair.b.engine().drops().get(DROPPED).copied().unwrap_or_default()
}

/// All that listens in B.
struct Doors {
    tcp: Vec<TcpListener>,
    udp: Vec<UdpSocket>,
}

/// Who was heard by whom.
#[derive(Debug, Default, PartialEq, Eq)]
struct Reached {
    tcp: BTreeSet<SocketAddr>,
    udp: BTreeSet<SocketAddr>,
    echo: BTreeSet<u8>,
}

impl Reached {
    /// All doors of these pods.
    fn all_of(pods: impl Iterator<Item = u8> + Clone) -> Self {
        let ports = |last| PORTS.map(move |port| SocketAddr::new(pod(last), port));
        let doors: BTreeSet<_> = pods.clone().flat_map(ports).collect();
        Self { tcp: doors.clone(), udp: doors, echo: pods.collect() }
    }

    fn count(&self) -> usize {
        self.tcp.len() + self.udp.len() + self.echo.len()
    }
}

impl Doors {
    fn open(at: &Side) -> Self {
        for last in PODS.filter(|last| pod(*last) != at.pod) {
            at.namespace.ip(&format!("address add {}/32 dev lo", pod(last)));
        }
        at.namespace.run(|| {
            let addresses = || PODS.flat_map(|last| PORTS.map(move |port| (pod(last), port)));
            let doors = Self {
                tcp: addresses().map(|at| TcpListener::bind(at).unwrap()).collect(),
                udp: addresses().map(|at| UdpSocket::bind(at).unwrap()).collect(),
            };
            for (tcp, udp) in doors.tcp.iter().zip(&doors.udp) {
                tcp.set_nonblocking(true).unwrap();
                udp.set_nonblocking(true).unwrap();
            }
            doors
        })
    }

    /// Adds who has come since the last look.
    fn look(&self, reached: &mut Reached) {
        for door in &self.tcp {
            if let Ok((_, from)) = door.accept() {
                assert_eq!(from.ip(), ip("10.0.40.7"));
                reached.tcp.insert(door.local_addr().unwrap());
            }
        }
        for door in &self.udp {
            if door.recv(&mut [0; 8]).is_ok() {
                reached.udp.insert(door.local_addr().unwrap());
            }
        }
    }
}

/// What is under way from A to all pods of B; it ends when this is dropped.
struct Knocks {
    _connections: Vec<OwnedFd>,
    pings: OwnedFd,
}

impl Knocks {
    fn start(from: &Side) -> Self {
        let targets = || PODS.flat_map(|last| PORTS.map(move |port| SocketAddrV4::new(pod_in_a(last), port)));
        from.namespace.run(|| {
            let connections = targets().map(begin).collect();
            let datagrams = UdpSocket::bind((from.pod, 0)).unwrap();
            for target in targets() {
                datagrams.send_to(b"knock", target).unwrap();
            }
            let pings =
                rustix::net::socket(AddressFamily::INET, SocketType::RAW, Some(ipproto::ICMP)).unwrap();
            for last in PODS {
                ping(&pings, pod_in_a(last), last.into());
            }
            Self { _connections: connections, pings }
        })
    }

    /// Adds those who have answered a ping.
    fn look(&self, reached: &mut Reached) {
        while let Some(last) = pong(&self.pings) {
            reached.echo.insert(u8::try_from(last).unwrap());
        }
    }
}

/// Begins to connect, and does not wait.
fn begin(target: SocketAddrV4) -> OwnedFd {
    let socket =
        rustix::net::socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::NONBLOCK, None)
            .unwrap();
    assert_eq!(rustix::net::connect(&socket, &target), Err(rustix::io::Errno::INPROGRESS));
    socket
}

fn ping(by: &OwnedFd, to: Ipv4Addr, sequence: u16) {
    let mut packet = [0; Echo::LONGEST_REQUEST];
    let addresses = Packet { source: ip("0.0.0.0"), destination: to.into() };
    let length =
        Echo::write_request(&mut packet, addresses, Numbers { identifier: IDENTIFIER, sequence }).unwrap();
    // The kernel writes the header of IP.
    rustix::net::sendto(by, &packet[20..length], SendFlags::empty(), &SocketAddrV4::new(to, 0)).unwrap();
}

/// The number of an answer that is there.
fn pong(by: &OwnedFd) -> Option<u16> {
    let mut packet = [0; 1500];
    loop {
        let (length, _) = rustix::net::recv(by, &mut packet, RecvFlags::DONTWAIT).ok()?;
        let packet = &packet[..length];
        if let Some(Echo::Reply(Numbers { identifier: IDENTIFIER, sequence })) =
            Echo::read(packet, &Header::parse(packet).unwrap())
        {
            return Some(sequence);
        }
    }
}

/// Knocks everywhere, and says who heard it once all is either heard or dropped.
fn scan(pair: &Pair, doors: &Doors, expected: usize) -> Reached {
    let (before, mut reached) = (dropped(pair), Reached::default());
    doors.look(&mut reached);
    assert_eq!(reached, Reached::default(), "nobody came late");
    let knocks = Knocks::start(&pair.a);
    let all = Reached::all_of(PODS).count();
    let begin = std::time::Instant::now();
    loop {
        doors.look(&mut reached);
        knocks.look(&mut reached);
        let turned_away = usize::try_from(dropped(pair) - before).unwrap();
        if reached.count() >= expected && turned_away >= all - expected {
            return reached;
        }
        assert!(begin.elapsed() < Duration::from_mins(2), "{turned_away} dropped, {reached:?}");
        thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_scan_reaches_only_what_is_published_at_this_moment() {
    let pair = Pair::new(Outer::V4);
    let doors = Doors::open(&pair.b);
    let everything = Reached::all_of(PODS);
    assert_eq!(scan(&pair, &doors, everything.count()), everything, "by default all pods are open");
    assert_eq!(dropped(&pair), 0);

    pair.b.set_strict(&pair.a, &published(), []);
    assert_eq!(scan(&pair, &doors, 0), Reached::default());
    node_is_reached(&pair);

    let one = Reached::all_of(std::iter::once(3));
    for _ in 0..3 {
        pair.b.set_strict(&pair.a, &published(), [pod(3)]);
        assert_eq!(scan(&pair, &doors, one.count()), one);
        pair.b.set_strict(&pair.a, &BTreeMap::new(), []);
        assert_eq!(scan(&pair, &doors, 0), Reached::default());
    }
    // What was redirected is not any more.
    let before = dropped(&pair);
    pair.a.namespace.run(|| {
        let socket = UdpSocket::bind((pair.a.pod, 0)).unwrap();
        socket.send_to(b"knock", (NODE_THERE, 7000)).unwrap();
    });
    eventually("it is counted", || dropped(&pair) > before);
}

/// The endpoint that is redirected answers by TCP, UDP and ICMP.
fn node_is_reached(pair: &Pair) {
    let listener = pair.b.namespace.run(|| TcpListener::bind((NODE, 0)).unwrap());
    let port = listener.local_addr().unwrap().port();
    let mut stream = pair.a.namespace.run(|| TcpStream::connect((NODE_THERE, port)).unwrap());
    listener.accept().unwrap().0.write_all(b"hello").unwrap();
    stream.read_exact(&mut [0; 5]).unwrap();
    let node = pair.b.namespace.run(|| UdpSocket::bind((NODE, 0)).unwrap());
    let asker = socket(&pair.a);
    asker.connect((NODE_THERE, node.local_addr().unwrap().port())).unwrap();
    talk(&asker, &node, 9000);
    let pings = pair.a.namespace.run(|| {
        let pings = rustix::net::socket(AddressFamily::INET, SocketType::RAW, Some(ipproto::ICMP)).unwrap();
        ping(&pings, NODE_THERE.parse().unwrap(), 1);
        pings
    });
    eventually("the ping is answered", || pong(&pings) == Some(1));
}

/// A question, and an answer of this length.
fn talk(asker: &UdpSocket, answerer: &UdpSocket, length: usize) {
    answerer.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    asker.send(b"question").unwrap();
    let (_, from) = answerer.recv_from(&mut [0; 8]).expect("the question comes");
    answerer.send_to(&vec![7; length], from).unwrap();
    assert_eq!(asker.recv(&mut vec![0; 1 << 16]).expect("the answer comes"), length);
}

#[test]
fn what_our_own_pods_begin_works_however_little_is_open() {
    let pair = Pair::new(Outer::V4);
    for (side, other) in [(&pair.a, &pair.b), (&pair.b, &pair.a)] {
        side.set_strict(other, &BTreeMap::new(), []);
    }
    // A is open for one pod, as each has to be for somebody.
    pair.a.set_strict(&pair.b, &BTreeMap::new(), [pair.a.pod]);
    assert_eq!(stream(&pair.b, &pair.a, 20 * MEGABYTE).to_string(), "10.0.0.5");
    let (asker, answerer) = (socket(&pair.b), socket(&pair.a));
    let target = (pair.a.named(), answerer.local_addr().unwrap().port());
    asker.connect(target).unwrap();
    // In one packet, and in fragments.
    for length in [10, 9000, 60_000] {
        talk(&asker, &answerer, length);
    }
    let pings = pair.b.namespace.run(|| {
        let pings = rustix::net::socket(AddressFamily::INET, SocketType::RAW, Some(ipproto::ICMP)).unwrap();
        let IpAddr::V4(named) = pair.a.named() else { unreachable!() };
        ping(&pings, named, 9);
        pings
    });
    eventually("the ping is answered", || pong(&pings) == Some(9));
    assert_eq!(dropped(&pair), 0);

    // A port that nobody listens at: the error comes back.
    drop(answerer);
    asker.send(b"anybody there?").unwrap();
    let error = asker.recv(&mut [0; 8]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
}

/// A connection, at the end that began it and at the other one.
fn connection(from: &Side, to: &Side) -> [TcpStream; 2] {
    let listener = to.namespace.run(|| TcpListener::bind((to.pod, 0)).unwrap());
    let target = (to.named(), listener.local_addr().unwrap().port());
    let begun = from.namespace.run(|| TcpStream::connect(target).unwrap());
    [begun, listener.accept().unwrap().0]
}

/// One end says something, and the other one hears it.
fn say(by: &mut TcpStream, to: &mut TcpStream) {
    by.write_all(b"hello").unwrap();
    to.set_read_timeout(Some(Duration::from_mins(1))).unwrap();
    to.read_exact(&mut [0; 5]).unwrap();
}

#[test]
fn once_it_is_known_who_began_a_pod_that_is_closed_keeps_its_own_connections_only() {
    let mut pair = Pair::new(Outer::V4);
    pair.b.stop();
    pair.b.start_as(|engine| engine.with_grace(Duration::ZERO));
    pair.set();
    pair.b.set_strict(&pair.a, &BTreeMap::new(), [pair.b.pod]);
    let [mut peer, mut pod_of_peer] = connection(&pair.a, &pair.b);
    let [mut own, mut answering] = connection(&pair.b, &pair.a);
    say(&mut peer, &mut pod_of_peer);
    say(&mut pod_of_peer, &mut peer);
    say(&mut own, &mut answering);
    assert_eq!(dropped(&pair), 0);

    pair.b.set_strict(&pair.a, &BTreeMap::new(), []);
    // What the pod sends does not make the connection its own.
    say(&mut pod_of_peer, &mut peer);
    peer.write_all(b"hello").unwrap();
    eventually("it is counted", || dropped(&pair) > 1);
    pod_of_peer.set_nonblocking(true).unwrap();
    assert_eq!(pod_of_peer.read(&mut [0; 5]).unwrap_err().kind(), ErrorKind::WouldBlock);
    for _ in 0..3 {
        say(&mut answering, &mut own);
        say(&mut own, &mut answering);
    }
}

#[test]
fn an_answer_of_somebody_else_is_none() {
    let pair = Pair::new(Outer::V4);
    pair.b.set_strict(&pair.a, &BTreeMap::new(), []);
    let (asker, answerer, stranger) = (socket(&pair.b), socket(&pair.a), socket(&pair.a));
    let target = (pair.a.named(), answerer.local_addr().unwrap().port());
    asker.send_to(b"question", target).unwrap();
    let mut buffer = [0; 20];
    let (_, from) = answerer.recv_from(&mut buffer).unwrap();
    stranger.send_to(b"of the stranger", from).unwrap();
    eventually("it is counted", || dropped(&pair) == 1);
    // Nor does who answers begin something else with the same pod.
    answerer.send_to(b"something else", (from.ip(), from.port() ^ 1)).unwrap();
    eventually("it is counted", || dropped(&pair) == 2);
    answerer.send_to(b"answer", from).unwrap();
    let length = asker.recv(&mut buffer).unwrap();
    assert_eq!(&buffer[..length], b"answer");
}
