//! Routes of nodes on a real kernel: three nodes on one wire, pods behind a bridge and behind a point-to-point link,
//! both with the masquerade of their CNI, and a gateway that answers for the networks of a peer.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by a panic")]

mod guard;
mod world;

use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::net::{IpAddr, UdpSocket};
use std::os::fd::AsFd as _;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use ferro_api::config::Reach;
use ferro_core::network::routes::{Change, Node, Peer, Wanted};
use ferro_core::network::trace::probe::{Heard, Returned};
use ferro_fabric::netlink::namespace;
use ferro_fabric::probe::probe;
use ferro_fabric::routes::{Facts, Kernel, keep};
use tokio::sync::watch;

use self::world::{GENEROUSLY, Host, SHORTLY, drain, eventually, exchange};

/// An endpoint of the peer, in its pod network and in its external one.
const POD: &str = "10.0.0.5:7000";
const EXTERNAL: &str = "10.50.0.9:7000";

struct Cluster {
    wire: Host,
    nodes: [Host; 3],
    pods: [Host; 3],
    gateway: Host,
    /// A host beside the cluster that knows nothing of peers.
    stranger: Host,
}

impl Cluster {
    fn new() -> Self {
        let wire = Host::new();
        wire.ip("link add lan type bridge mcast_snooping 0\nlink set lan up");
        let cluster = Self {
            wire,
            nodes: [(); 3].map(|()| Host::router()),
            pods: [(); 3].map(|()| Host::new()),
            gateway: Host::router(),
            stranger: Host::new(),
        };
        for (number, node) in (1..).zip(&cluster.nodes) {
            cluster.attach(node, &format!("n{number}"), number);
        }
        cluster.attach(&cluster.stranger, "s", 99);
        for number in 1..=3 {
            cluster.lead_to_other_nodes(number);
        }
        cluster.bridge(1);
        cluster.bridge(2);
        cluster.point_to_point(3);
        // Some CNIs do this, too: what is for a pod and comes from outside is masqueraded.
        cluster.nodes[1].nft(
            "table ip outside { chain post { type nat hook postrouting priority srcnat; \
             ip saddr != 10.244.0.0/16 ip daddr 10.244.0.0/16 masquerade\n }\n }\n",
        );
        cluster
    }

    fn attach(&self, host: &Host, port: &str, number: u8) {
        self.wire.wire(port, host, "eth0");
        self.wire.ip(&format!("link set {port} master lan"));
        host.ip(&format!("addr add 192.168.77.{number}/24 dev eth0"));
    }

    fn lead_to_other_nodes(&self, number: u8) {
        for other in (1..=3).filter(|other| *other != number) {
            let node = &self.nodes[usize::from(number - 1)];
            node.ip(&format!("route add 10.244.{other}.0/24 via 192.168.77.{other}"));
        }
    }

    /// As the bridge plugin does it.
    fn bridge(&self, number: u8) {
        let (node, pod) = self.of(number);
        node.ip("link add cni0 type bridge\nlink set cni0 up");
        node.wire("veth0", pod, "eth0");
        node.ip(&format!(
            "link set veth0 master cni0\naddr add 10.244.{number}.1/24 dev cni0\n\
             addr add fd01:0:0:{number}::1/64 dev cni0 nodad"
        ));
        pod.ip(&format!(
            "addr add 10.244.{number}.7/24 dev eth0\nroute add default via 10.244.{number}.1\n\
             addr add fd01:0:0:{number}::7/64 dev eth0 nodad\nroute add default via fd01:0:0:{number}::1"
        ));
        Self::masquerade(node, number);
    }

    /// As the ptp plugin does it: no network between pod and node.
    fn point_to_point(&self, number: u8) {
        let (node, pod) = self.of(number);
        node.wire("veth0", pod, "eth0");
        node.ip(&format!(
            "addr add 10.244.{number}.1/32 dev veth0\nroute add 10.244.{number}.7/32 dev veth0"
        ));
        pod.ip(&format!(
            "addr add 10.244.{number}.7/32 dev eth0\nroute add 10.244.{number}.1/32 dev eth0\n\
             route add default via 10.244.{number}.1"
        ));
        Self::masquerade(node, number);
    }

    /// As both do it with ipMasq.
    fn masquerade(node: &Host, number: u8) {
        node.nft(&format!(
            "table ip cni {{ chain post {{ type nat hook postrouting priority srcnat; \
             ip saddr 10.244.{number}.7 ip daddr != {{ 10.244.{number}.0/24, 224.0.0.0/4 }} masquerade\n }}\n }}\n"
        ));
    }

    fn of(&self, number: u8) -> (&Host, &Host) {
        let index = usize::from(number - 1);
        (&self.nodes[index], &self.pods[index])
    }

    /// The gateway on the first node: it has the peer's endpoints.
    fn add_gateway(&self) {
        self.nodes[0].wire("ferro.host", &self.gateway, "ferro.gw");
        self.nodes[0]
            .ip("addr add 169.254.77.1/30 dev ferro.host\naddr add fe80::77:1/64 dev ferro.host nodad");
        self.gateway.ip(
            "addr add 169.254.77.2/30 dev ferro.gw\naddr add fe80::77:2/64 dev ferro.gw nodad\n\
             addr replace 10.0.0.5/32 dev lo\naddr replace 10.50.0.9/32 dev lo\naddr replace fd02::5/128 dev lo\n\
             route add default via 169.254.77.1\nroute add default via fe80::77:1 dev ferro.gw",
        );
    }

    fn facts(node: u8) -> Facts {
        let nodes = (1..=3).map(|number: u8| Node {
            name: format!("node-{number}"),
            addresses: vec![IpAddr::from([192, 168, 77, number])],
            pods: [format!("10.244.{number}.0/24"), format!("fd01:0:0:{number}::/64")]
                .map(|text| text.parse().unwrap())
                .to_vec(),
        });
        let views = ["10.0.0.0/16", "10.50.0.0/16", "fd02::/48"].map(|text| text.parse().unwrap());
        let peer = Peer {
            views: views.to_vec(),
            gateway: Some([192, 168, 77, 1].into()),
            own_pods: Some("10.244.0.0/16".parse().unwrap()),
        };
        let (nodes, peers) = (nodes.collect(), vec![peer]);
        Facts { node: format!("node-{node}"), nodes, peers, reach: Reach::Default }
    }

    fn kernel(&self, node: u8) -> Kernel {
        self.of(node).0.inside(|| Kernel::open().map_err(std::io::Error::other)).unwrap()
    }

    /// Follows the facts once.
    fn follow(&self, node: u8, facts: &Facts) -> Vec<Change> {
        let mut kernel = self.kernel(node);
        self.of(node).0.inside(|| kernel.follow(facts).map_err(std::io::Error::other)).unwrap().1
    }

    fn follow_everywhere(&self) {
        for node in 1..=3 {
            self.follow(node, &Self::facts(node));
        }
    }

    fn states(&self) -> Vec<String> {
        self.nodes.iter().map(Host::state).collect()
    }

    /// The states once they no longer change by themselves: a kernel takes its time with new links.
    fn calm(&self) -> Vec<String> {
        let mut last = self.states();
        let (calm, _) = eventually("it becomes calm", || {
            thread::sleep(Duration::from_millis(1500));
            let now = self.states();
            let before = std::mem::replace(&mut last, now.clone());
            if now == before { Ok(now) } else { Err("it still changes".into()) }
        });
        calm
    }

    fn is_as(&self, before: &[String]) -> Duration {
        let ((), took) = eventually("all is as before", || {
            let now = self.states();
            let differing: BTreeSet<_> =
                now.iter().zip(before).filter(|(now, before)| now != before).collect();
            if differing.is_empty() { Ok(()) } else { Err(format!("{differing:#?}")) }
        });
        took
    }
}

fn reaches(from: &UdpSocket, to: &UdpSocket, at: &str, seen_as: &str) {
    let seen_as: IpAddr = seen_as.parse().unwrap();
    let (seen, _) =
        eventually(&format!("{seen_as} reaches {at}"), || exchange(from, to, at.parse().unwrap()));
    assert_eq!(seen, seen_as, "whom {at} sees");
}

#[test]
fn pods_and_nodes_reach_a_peer_and_are_reached_with_their_own_addresses() {
    let cluster = Cluster::new();
    let before = cluster.calm();
    cluster.add_gateway();
    cluster.follow_everywhere();

    for endpoint in [POD, EXTERNAL] {
        let there = cluster.gateway.udp(endpoint);
        for number in 1..=3 {
            let (node, pod) = cluster.of(number);
            // A pod, whatever its CNI; then a process on its node.
            reaches(&pod.udp("0.0.0.0:0"), &there, endpoint, &format!("10.244.{number}.7"));
            reaches(&node.udp("0.0.0.0:0"), &there, endpoint, &format!("192.168.77.{number}"));
            // The same, begun by the peer.
            for (host, address) in
                [(pod, format!("10.244.{number}.7")), (node, format!("192.168.77.{number}"))]
            {
                let here = host.udp("0.0.0.0:8000");
                let peer = endpoint.split(':').next().unwrap();
                reaches(&there, &here, &format!("{address}:8000"), peer);
            }
        }
    }
    let there = cluster.gateway.udp("[fd02::5]:7000");
    for number in 1..=2 {
        let pod = cluster.of(number).1.udp("[::]:0");
        reaches(&pod, &there, "[fd02::5]:7000", &format!("fd01:0:0:{number}::7"));
    }

    // Who knows nothing of peers sees the node of the gateway, and can answer.
    let there = cluster.gateway.udp(POD);
    let stranger = cluster.stranger.udp("0.0.0.0:8000");
    reaches(&there, &stranger, "192.168.77.99:8000", "192.168.77.1");
    // Pods still reach others as they did.
    reaches(&cluster.pods[1].udp("0.0.0.0:0"), &stranger, "192.168.77.99:8000", "192.168.77.2");
    let other = cluster.pods[2].udp("0.0.0.0:8000");
    reaches(&cluster.pods[0].udp("0.0.0.0:0"), &other, "10.244.3.7:8000", "192.168.77.1");

    megabytes(&cluster);
    cluster.nodes[0].ip("link del ferro.host");
    for node in 1..=3 {
        cluster.follow(node, &Facts { peers: Vec::new(), ..Cluster::facts(node) });
    }
    cluster.is_as(&before);
}

#[test]
fn pods_of_all_nodes_hear_what_the_gateway_itself_has_to_say() {
    let cluster = Cluster::new();
    cluster.add_gateway();
    cluster.follow_everywhere();
    // Nobody has this address: the gateway is the last who could pass a packet on.
    let to = "10.0.0.99".parse().unwrap();
    for (number, hops) in [(1, 2), (2, 3), (3, 3)] {
        let said = Heard { hops, from: [169, 254, 77, 2].into(), what: Returned::Expired };
        eventually(&format!("the pod on node {number} hears of it"), || {
            let heard = cluster.of(number).1.inside(|| probe(to)).map_err(|error| error.to_string())?;
            if heard.contains(&said) { Ok(()) } else { Err(format!("{heard:?}")) }
        });
    }
}

/// Many packets of full size, in one connection.
fn megabytes(cluster: &Cluster) {
    let listener = cluster.gateway.listen(POD);
    let sent: Vec<u8> = (0..4_000_000_u32).map(|number| number.to_le_bytes()[number as usize % 3]).collect();
    let echo = thread::spawn(move || {
        let (mut stream, from) = listener.accept().unwrap();
        let mut all = Vec::new();
        stream.read_to_end(&mut all).unwrap();
        (all, from.ip())
    });
    let mut stream = cluster.pods[1].connect(POD.parse().unwrap()).unwrap();
    stream.write_all(&sent).unwrap();
    drop(stream);
    let (all, from) = echo.join().unwrap();
    assert!(all == sent, "{} of {} bytes", all.len(), sent.len());
    assert_eq!(from.to_string(), "10.244.2.7");
}

#[test]
fn nothing_is_written_to_a_node_that_is_as_it_should_be() {
    let cluster = Cluster::new();
    cluster.add_gateway();
    for node in 1..=3 {
        assert!(!cluster.follow(node, &Cluster::facts(node)).is_empty());
        assert_eq!(cluster.follow(node, &Cluster::facts(node)), [], "node {node}");
    }
    let table = cluster.nodes[0].run("nft", "list table ip ferro");
    for line in [
        "type nat hook postrouting priority srcnat - 10",
        "ip daddr @views ip saddr @own snat to ip saddr",
        "ip daddr @inside ip saddr @views snat to ip saddr",
        "ip saddr @views masquerade",
        "elements = { 10.0.0.0/16, 10.50.0.0/16 }",
        "elements = { 10.244.0.0/16 }",
        "type filter hook prerouting priority mangle",
        "ct direction reply accept",
        "ip saddr @views ip daddr @own fib daddr type unicast accept",
        "ip saddr @views ip daddr @own fib daddr type local counter packets 0 bytes 0 drop",
        "iifname \"ferro.*\" ip daddr @own fib daddr type broadcast counter packets 0 bytes 0 drop",
        "type filter hook input priority filter",
        "udp dport 18800 ip saddr != @nodes counter packets 0 bytes 0 drop",
        "udp dport 18800 ip daddr != @nodes counter packets 0 bytes 0 drop",
    ] {
        assert!(table.contains(line), "{line} is not in {table}");
    }
    assert!(
        cluster.nodes[1]
            .run("nft", "list table ip6 ferro")
            .contains("ip6 daddr @views ip6 saddr @own snat to ip6 saddr")
    );
    for (setting, value) in [("rp_filter", "2"), ("forwarding", "1")] {
        let path = format!("/proc/sys/net/ipv4/conf/ferro.vxlan/{setting}");
        let text = cluster.nodes[1].inside(|| std::fs::read_to_string(path)).unwrap();
        assert_eq!(text.trim(), value, "{setting}");
    }
    let link = cluster.nodes[1].run("ip", "-d link show ferro.vxlan");
    for word in [
        "mtu 1450",
        "vxlan id 1880",
        "local 192.168.77.2",
        "dstport 18800",
        "nolearning",
        "02:fe:c0:a8:4d:02",
    ] {
        assert!(link.contains(word), "{word} is not in {link}");
    }
}

#[test]
fn without_our_table_the_masquerade_of_the_cni_has_its_way() {
    let cluster = Cluster::new();
    cluster.add_gateway();
    cluster.follow_everywhere();
    let there = cluster.gateway.udp(POD);
    for number in 2..=3 {
        let (node, pod) = cluster.of(number);
        reaches(&pod.udp("0.0.0.0:0"), &there, POD, &format!("10.244.{number}.7"));
        node.run("nft", "delete table ip ferro");
        let flow = pod.udp("0.0.0.0:0");
        let (seen, _) = eventually("the next connection", || exchange(&flow, &there, POD.parse().unwrap()));
        assert_ne!(seen.to_string(), format!("10.244.{number}.7"));
    }
}

#[test]
fn the_largest_packet_passes_and_a_larger_one_is_refused_with_the_size_that_would() {
    let cluster = Cluster::new();
    cluster.add_gateway();
    cluster.follow_everywhere();
    let there = cluster.gateway.udp(POD);
    let pod = cluster.pods[1].udp("0.0.0.0:0");
    reaches(&pod, &there, POD, "10.244.2.7");
    let headers = 28;
    let arrives_within = |patience: Duration, size: usize| {
        drain(&there);
        there.set_read_timeout(Some(patience)).unwrap();
        pod.send_to(&vec![0; size - headers], POD).unwrap();
        let mut buffer = [0; 2000];
        there.recv_from(&mut buffer).is_ok_and(|(length, _)| length == size - headers)
    };
    // What must come may take its time on a busy machine.
    let arrives = |size| arrives_within(GENEROUSLY, size);
    let known = || cluster.pods[1].run("ip", "route get 10.0.0.5");
    assert!(arrives(1450));
    assert!(!known().contains("mtu"), "{}", known());
    assert!(!arrives_within(SHORTLY, 1451));
    assert!(known().contains("mtu 1450"), "{}", known());
    // From now on the pod cuts it up itself.
    assert!(arrives(1451));
}

/// A node role without its API server.
struct Keeper {
    tell: Option<watch::Sender<Facts>>,
    complaints: watch::Receiver<BTreeSet<String>>,
    thread: Option<JoinHandle<()>>,
}

impl Keeper {
    fn start(cluster: &Cluster, node: u8) -> Self {
        let (tell, facts) = watch::channel(Cluster::facts(node));
        let (complain, complaints) = watch::channel(BTreeSet::new());
        let namespace = cluster.of(node).0.namespace();
        let thread = thread::spawn(move || {
            namespace::enter(namespace.as_fd()).unwrap();
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            let error = runtime.block_on(keep(facts, None, &complain)).unwrap_err();
            assert!(error.to_string().starts_with("nobody tells"), "{error:#}");
        });
        Self { tell: Some(tell), complaints, thread: Some(thread) }
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        drop(self.tell.take());
        let ended = self.thread.take().unwrap().join();
        assert!(ended.is_ok() || thread::panicking());
    }
}

#[test]
fn what_others_delete_comes_back_and_what_they_made_stays() {
    let cluster = Cluster::new();
    cluster.add_gateway();
    for node in &cluster.nodes {
        node.ip(
            "route add 10.98.0.0/16 dev eth0 metric 118\nroute add blackhole 10.97.0.0/16 proto 188\n\
             rule add from 10.96.0.0/16 lookup 1880 priority 1881\nroute add 10.95.0.0/16 dev eth0 table 1880",
        );
    }
    let foreign = |host: &Host| -> Vec<String> {
        let all = [
            host.run("ip", "route show table all"),
            host.run("ip", "rule"),
            host.run("nft", "list table ip cni"),
        ];
        let is_foreign = |line: &&str| !line.contains("proto 118") && !line.contains("ferro");
        all.iter().flat_map(|text| text.lines()).filter(is_foreign).map(str::to_owned).collect()
    };
    let before: Vec<_> = cluster.nodes.iter().map(foreign).collect();
    let _keepers: Vec<_> = (1..=3).map(|node| Keeper::start(&cluster, node)).collect();
    let there = cluster.gateway.udp(POD);
    let pod = cluster.pods[1].udp("0.0.0.0:0");
    reaches(&pod, &there, POD, "10.244.2.7");
    settle(&cluster);

    let at_node = [
        ("ip", "route del 10.0.0.0/16 metric 118"),
        ("ip", "route del blackhole 10.0.0.0/16 metric 11800"),
        ("ip", "route replace 10.0.0.0/16 via 192.168.77.3 dev eth0 metric 118 proto 118"),
        ("ip", "link del ferro.vxlan"),
        ("ip", "link set ferro.vxlan down"),
        ("ip", "link set ferro.vxlan mtu 1400"),
        ("ip", "neigh del 192.168.77.1 dev ferro.vxlan"),
        ("bridge", "fdb del 02:fe:c0:a8:4d:01 dev ferro.vxlan dst 192.168.77.1"),
        ("nft", "delete table ip ferro"),
        ("nft", "flush chain ip ferro postrouting"),
        ("nft", "flush set ip ferro views"),
        ("nft", "insert rule ip ferro postrouting counter"),
        ("nft", "flush chain ip ferro prerouting"),
        ("nft", "insert rule ip ferro input accept"),
        ("nft", "add chain ip ferro another"),
    ];
    let at_gateway = [
        ("ip", "rule del priority 1880"),
        ("ip", "route flush table 1880 proto 118"),
        ("ip", "route del 10.0.0.0/16 metric 118"),
    ];
    let mut slowest = Duration::ZERO;
    let commands =
        at_node.map(|command| (2, command)).into_iter().chain(at_gateway.map(|command| (1, command)));
    for (node, (program, arguments)) in commands {
        let mut kernel = cluster.kernel(node);
        let host = cluster.of(node).0;
        let mut present = || host.inside(|| kernel.present().map_err(std::io::Error::other)).unwrap();
        let good = present();
        host.run(program, arguments);
        let ((), took) = eventually(&format!("{program} {arguments}: heals"), || {
            let now = present();
            if now == good { Ok(()) } else { Err(format!("{now:?} is not {good:?}")) }
        });
        slowest = slowest.max(took);
        reaches(&pod, &there, POD, "10.244.2.7");
    }
    // A test is no benchmark: each had a minute.
    println!("the slowest to heal took {slowest:?}");

    // The gateway goes and comes back with a link of its own; meanwhile nothing leaves by another way.
    cluster.nodes[0].ip("link del ferro.host");
    let get = cluster.nodes[0].try_run("ip", "route get 10.0.0.5", "");
    assert!(get.is_err(), "{get:?}");
    cluster.add_gateway();
    reaches(&pod, &there, POD, "10.244.2.7");
    assert_eq!(cluster.nodes.iter().map(foreign).collect::<Vec<_>>(), before);
}

/// Waits until nobody has anything to do.
fn settle(cluster: &Cluster) {
    for node in 1..=3 {
        eventually("settles", || {
            let changes = cluster.follow(node, &Cluster::facts(node));
            if changes.is_empty() { Ok(()) } else { Err(format!("{changes:?}")) }
        });
    }
}

#[test]
fn the_last_tunnel_takes_everything_along() {
    let cluster = Cluster::new();
    let before = cluster.calm();
    let keepers: Vec<_> = (1..=3).map(|node| Keeper::start(&cluster, node)).collect();
    for node in &cluster.nodes {
        eventually("is set up", || {
            node.try_run("ip", "route show 10.50.0.0/16 metric 118", "").and_then(|text| {
                let links = node.run("ip", "-o link");
                // Without the link of the gateway its node has only the route to nowhere.
                if !text.is_empty() || links.contains("ferro.vxlan") {
                    Ok(())
                } else {
                    Err("no route".into())
                }
            })
        });
    }
    for (node, keeper) in (1..).zip(&keepers) {
        let alone = Facts { peers: Vec::new(), ..Cluster::facts(node) };
        keeper.tell.as_ref().unwrap().send_replace(alone);
    }
    let took = cluster.is_as(&before);
    println!("removed within {took:?}");
}

/// A host on the way out answers for whatever nobody else does, and hears nothing as long as the peer has names.
#[test]
fn while_a_tunnel_goes_nothing_for_the_peer_leaves_by_another_way() {
    let cluster = Cluster::new();
    cluster.add_gateway();
    let way_out = "route add default via 192.168.77.99";
    cluster.nodes.iter().for_each(|node| node.ip(way_out));
    cluster.stranger.ip("addr add 10.0.0.5/32 dev lo");
    let (there, stranger) = (cluster.gateway.udp(POD), cluster.stranger.udp(POD));
    for number in 1..=3 {
        let (node, pod) = cluster.of(number);
        cluster.follow(number, &Cluster::facts(number));
        cluster.follow(1, &Cluster::facts(1));
        let (flow, of_node) = (pod.udp("0.0.0.0:0"), node.udp("0.0.0.0:0"));
        reaches(&flow, &there, POD, &format!("10.244.{number}.7"));
        let mut parted = Cluster::facts(number);
        parted.peers[0].gateway = None;
        cluster.follow(number, &parted);
        assert_eq!(cluster.follow(number, &parted), [], "it stays so");
        // Also what has been going on, and what the node sends itself.
        for from in [&flow, &pod.udp("0.0.0.0:0"), &of_node] {
            let got = exchange(from, &stranger, POD.parse().unwrap());
            assert!(got.is_err(), "{got:?} at the stranger");
        }
        // Only now that the peer has no names any more they are whoever's.
        cluster.follow(number, &Facts { peers: Vec::new(), ..parted });
        eventually("the world is open", || exchange(&of_node, &stranger, POD.parse().unwrap()));
        cluster.follow(number, &Cluster::facts(number));
        reaches(&flow, &there, POD, &format!("10.244.{number}.7"));
    }
}

#[test]
fn what_a_node_refuses_is_complained_about_until_it_is_over() {
    let cluster = Cluster::new();
    let keeper = Keeper::start(&cluster, 2);
    let tell = |facts| drop(keeper.tell.as_ref().unwrap().send_replace(facts));
    let mut refused = Cluster::facts(2);
    refused.peers[0].views.push("192.168.77.0/25".parse().unwrap());
    tell(refused);
    let complains_of =
        |network: &str| keeper.complaints.borrow().iter().any(|complaint| complaint.contains(network));
    eventually(
        "complains",
        || if complains_of("192.168.77.0/25") { Ok(()) } else { Err("it does not".into()) },
    );
    tell(Cluster::facts(2));
    eventually("is over", || if complains_of("192.168.77.0/25") { Err("it does".into()) } else { Ok(()) });
}

#[test]
fn a_node_that_does_not_forward_is_told_what_to_set() {
    let cluster = Cluster::new();
    cluster.nodes[1].set("ipv4/ip_forward", "0");
    let mut kernel = cluster.kernel(2);
    let result = cluster.nodes[1].inside(|| Ok(kernel.follow(&Cluster::facts(2)))).unwrap();
    let error = format!("{:#}", result.unwrap_err());
    assert!(error.contains("net.ipv4.ip_forward=1"), "{error}");
    // What was made before can still be removed.
    let mut kernel = cluster.kernel(2);
    assert_eq!(kernel.become_like(&Wanted::default()).unwrap(), []);
}
