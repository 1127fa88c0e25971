//! How far a peer reaches: what the address manager says works when the gateway has heard of it, and nothing else does.

use std::net::{IpAddr, SocketAddr};

use ferro_api::config::Reach;
use k8s_openapi::jiff::Timestamp;

use crate::born::born;
use crate::cluster::{Cluster, Talker};
use crate::packets::PORT;
use crate::talk::{datagram, ping};
use crate::world::eventually;
use crate::{FOREIGN, pair};

fn dropped(by: &Cluster) -> u64 {
    by.engine().drops().get(FOREIGN).copied().unwrap_or_default()
}

/// What one sends does not arrive at the other.
fn is_kept_out(from: Talker<'_>, to: Talker<'_>, by: &Cluster) {
    let sender = from.host.udp(&SocketAddr::new(from.ip, 0).to_string());
    let listener = to.host.udp(&SocketAddr::new(to.ip, PORT).to_string());
    let before = dropped(by);
    eventually("it is dropped", || {
        sender.send_to(b"evil", (to.named, PORT)).map_err(|error| error.to_string())?;
        if dropped(by) > before { Ok(()) } else { Err("it is not".to_owned()) }
    });
    listener.set_nonblocking(true).unwrap();
    let heard = listener.recv_from(&mut [0; 64]);
    assert!(heard.is_err(), "{} gets something: {heard:?}", to.ip);
}

/// The first cluster with a tunnel to the second one, which publishes nothing yet.
fn scene(reach: Reach) -> (crate::Lan, Cluster, Cluster) {
    let born = born("10.244.0.0/24", "192.168.0.0/24");
    let (lan, mut a, mut b) = pair(&born, &born);
    let node = b.process("a").ip;
    b.ipam.unmap("a", node, Timestamp::now());
    b.reach(reach, &[]);
    a.start(&[b.line()]);
    b.start(&[a.line()]);
    (lan, a, b)
}

#[test]
fn by_strict_reach_a_pod_is_reached_from_when_its_address_is_told_until_it_is_taken_back() {
    let (_lan, a, mut b) = scene(Reach::Strict);
    is_kept_out(a.pod(0, "b"), b.pod(0, "a"), &b);
    let pod = b.pod(0, "a").ip;
    let told = b.ipam.map("a", pod, Timestamp::now()).unwrap();
    b.tell(&[a.line()]);
    assert_eq!(told, b.pod(0, "a").named);
    // The very next packet arrives: this one is sent once.
    ping(a.pod(0, "b"), b.pod(0, "a"), 64);
    datagram(a.pod(0, "b"), b.pod(0, "a"));
    datagram(a.pod(1, "b"), b.pod(0, "a"));
    is_kept_out(a.pod(0, "b"), b.pod(1, "a"), &b);
    b.ipam.unmap("a", pod, Timestamp::now());
    b.tell(&[a.line()]);
    is_kept_out(a.pod(1, "b"), b.pod(0, "a"), &b);
    // Whom they talk to themselves may answer as ever.
    datagram(b.pod(0, "a"), a.pod(0, "b"));
}

#[test]
fn by_full_reach_nodes_are_reached_until_it_is_another_one() {
    let (_lan, a, mut b) = scene(Reach::Default);
    let node: IpAddr = b.process("a").ip;
    is_kept_out(a.pod(0, "b"), b.process("a"), &b);
    b.reach(Reach::Full, &[node]);
    b.tell(&[a.line()]);
    ping(a.pod(0, "b"), b.process("a"), 64);
    datagram(a.pod(0, "b"), b.process("a"));
    datagram(b.process("a"), a.pod(1, "b"));
    datagram(a.pod(0, "b"), b.pod(1, "a"));
    let open = b.process("a").named;
    b.reach(Reach::Default, &[node]);
    b.tell(&[a.line()]);
    is_kept_out(a.pod(0, "b"), Talker { named: open, ..b.process("a") }, &b);
}
