//! How two gateways come together, and where they find each other.

use std::time::{Duration, SystemTime};

use super::{A, B, Two, address, bytes, config, device, key, reply, start};
use crate::wireguard::device::{Device, Incoming, Load, Work};
use crate::wireguard::tests::Counting;
use crate::wireguard::{Drop, PeerConfig};

#[test]
fn a_handshake_from_either_side_joins_both() {
    for side in [A, B] {
        let mut two = Two::new();
        assert!(!two.has_session(A) && !two.has_session(B));
        two.handshake(side);
        two.both_ways();
        assert!(two.devices[A].drops().is_empty() && two.devices[B].drops().is_empty());
    }
}

#[test]
fn the_responder_sends_only_after_the_first_message() {
    let mut two = Two::new();
    let initiation = two.want(A).unwrap();
    let response = reply(two.deliver(B, &initiation).unwrap()).unwrap();
    assert!(!two.has_session(B));
    let established = two.deliver(A, &response).unwrap();
    assert!(matches!(established, Incoming::Established { peer, .. } if peer == two.peers[A]));
    let confirmation = reply(established).unwrap();
    let confirmed = Incoming::Data { peer: two.peers[B], payload: 16..16, established: true };
    assert_eq!(two.deliver(B, &confirmation), Ok(confirmed));
    two.both_ways();
}

#[test]
fn both_sides_at_once_are_joined_without_another_attempt() {
    let mut two = Two::new();
    let (of_a, of_b) = (two.want(A).unwrap(), two.want(B).unwrap());
    let to_a = reply(two.deliver(B, &of_a).unwrap()).unwrap();
    let to_b = reply(two.deliver(A, &of_b).unwrap()).unwrap();
    two.settle(A, &to_a);
    two.settle(B, &to_b);
    two.both_ways();
    two.seconds(10);
    two.both_ways();
    assert_eq!(two.work(), 0);
}

#[test]
fn after_both_began_at_once_a_third_handshake_loses_nothing_that_is_on_its_way() {
    let mut two = Two::new();
    let (of_a, of_b) = (two.want(A).unwrap(), two.want(B).unwrap());
    let to_a = reply(two.deliver(B, &of_a).unwrap()).unwrap();
    let to_b = reply(two.deliver(A, &of_b).unwrap()).unwrap();
    two.settle(A, &to_a);
    two.settle(B, &to_b);
    // Now each sends by the session that it began itself. B begins another one, and sends by its own until A answers.
    two.seconds(121);
    let on_its_way = two.seal(B, b"on its way").unwrap();
    let another = bytes(two.devices[B].sent(two.peers[B], two.now)).unwrap();
    let answer = reply(two.deliver(A, &another).unwrap()).unwrap();
    assert!(two.deliver(A, &on_its_way).is_ok());
    assert_eq!(two.packets[A].pop().as_deref(), Some(&b"on its way"[..]));
    two.settle(B, &answer);
    two.both_ways();
}

#[test]
fn lost_handshake_messages_are_made_up_for() {
    for lost in 0..3 {
        let mut two = Two::new();
        let initiation = two.want(A).unwrap();
        if lost > 0 {
            let response = reply(two.deliver(B, &initiation).unwrap()).unwrap();
            if lost > 1 {
                two.deliver(A, &response).unwrap();
                two.send(A, b"confirms as well as the message that was lost");
            }
        }
        two.seconds(6);
        two.work();
        two.both_ways();
    }
}

#[test]
fn a_peer_that_does_not_answer_is_given_up_and_tried_again_when_wanted() {
    let mut two = Two::new();
    assert!(two.want(A).is_some());
    assert_eq!(two.want(A), None, "not twice in five seconds");
    let mut work = Vec::new();
    for _ in 0..1000 {
        two.pass(Duration::from_millis(100));
        work.extend(two.poll(A));
    }
    let given_up = Work::GaveUp(two.peers[A]);
    assert_eq!(work.last(), Some(&given_up));
    let attempts = work.iter().filter(|work| matches!(work, Work::Send(_))).count();
    assert!((16..=17).contains(&attempts), "{attempts}");
    assert!(two.devices[A].by_index.is_empty(), "a response would come too late");
    two.handshake(A);
    two.both_ways();
}

#[test]
fn a_gateway_that_takes_over_is_believed_although_its_clock_is_behind() {
    let mut two = Two::joined();
    let sent = two.devices[A].sent_timestamp(two.peers[A]);
    assert!(sent.is_some());
    two.now.clock = SystemTime::UNIX_EPOCH;
    for (sent, believed) in [(None, false), (sent, true)] {
        let mut standby = Device::new(key(1), Box::new(Counting(77)));
        two.peers[A] = standby.add(PeerConfig { sent, ..config(2) }, two.now).unwrap();
        two.devices[A] = standby;
        two.at[A] = address(12);
        let initiation = two.want(A).unwrap();
        if believed {
            two.settle(B, &initiation);
        } else {
            assert_eq!(two.deliver(B, &initiation), Err(Drop::OldInitiation));
        }
    }
    two.both_ways();
}

#[test]
fn a_peer_of_which_nobody_knows_where_it_is_is_waited_for() {
    let mut two = Two::with([PeerConfig { endpoint: None, ..config(2) }, config(1)]);
    assert_eq!(two.want(A), None);
    two.handshake(B);
    two.both_ways();

    let mut told = Two::with([PeerConfig { endpoint: None, ..config(2) }, config(1)]);
    told.devices[A].set_endpoint(told.peers[A], address(2));
    told.handshake(A);
    told.both_ways();
}

#[test]
fn a_peer_is_where_its_last_genuine_message_came_from() {
    let mut two = Two::joined();
    assert_eq!(two.devices[B].endpoint(two.peers[B]), Some(address(1)));
    two.at[A] = address(11);
    two.send(A, b"from elsewhere");
    assert_eq!(two.devices[B].endpoint(two.peers[B]), Some(address(11)));
    let old = two.seal(A, b"packet").unwrap();
    two.deliver(B, &old).unwrap();
    two.at[A] = address(66);
    assert_eq!(two.deliver(B, &old), Err(Drop::Replayed));
    assert_eq!(two.devices[B].endpoint(two.peers[B]), Some(address(11)));
}

#[test]
fn many_peers_are_told_apart() {
    let now = start();
    let mut hub = device(1);
    let mut spokes: Vec<_> = (2..=60)
        .map(|number| {
            let mut spoke = device(number);
            let of_hub = spoke.add(config(1), now).unwrap();
            (number, hub.add(config(number), now).unwrap(), spoke, of_hub)
        })
        .collect();
    for (number, id, spoke, of_hub) in &mut spokes {
        let mut initiation = bytes(spoke.want(*of_hub, now)).unwrap();
        let incoming = hub.receive(&mut initiation, address(*number), Load::Normal, now).unwrap();
        let mut response = reply(incoming).unwrap();
        let incoming = spoke.receive(&mut response, address(1), Load::Normal, now).unwrap();
        let mut confirmation = reply(incoming).unwrap();
        let incoming = hub.receive(&mut confirmation, address(*number), Load::Normal, now).unwrap();
        assert_eq!(incoming, Incoming::Data { peer: *id, payload: 16..16, established: true });
    }
    for (number, id, spoke, of_hub) in &mut spokes {
        let mut datagram = [[0; 16], [*number; 16], [0; 16]].concat();
        let session = spoke.session(*of_hub, now).unwrap();
        session.reserve(1, now.instant).unwrap().seal(&mut datagram).unwrap();
        let incoming = hub.receive(&mut datagram, address(*number), Load::Normal, now).unwrap();
        assert_eq!(incoming, Incoming::Data { peer: *id, payload: 16..32, established: false });
        assert_eq!(datagram[16..32], [*number; 16]);
    }
    assert_eq!(hub.by_index.len(), spokes.len());
}
