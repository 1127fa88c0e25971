//! How sessions age, and are followed by others.

use std::time::Duration;

use super::{A, B, Two, config};
use crate::wireguard::device::Work;
use crate::wireguard::session::{REJECT_AFTER_MESSAGES, REKEY_AFTER_MESSAGES};
use crate::wireguard::{Datagram, Drop, PeerConfig, Transmit};

#[test]
fn three_times_new_keys_without_a_lost_packet() {
    let mut two = Two::joined();
    let mut indices = vec![two.index(A)];
    for second in 0..400 {
        two.both_ways();
        two.work();
        if two.index(A) != indices[indices.len() - 1] {
            indices.push(two.index(A));
            assert_eq!(second % 120, 0, "{second}");
        }
        two.seconds(1);
    }
    assert_eq!(indices.len(), 4);
    assert_eq!(two.devices[A].by_index.len() + two.devices[B].by_index.len(), 4, "only two each are kept");
}

#[test]
fn who_only_receives_sees_to_new_keys_in_time() {
    let mut two = Two::joined();
    let first = two.index(A);
    for _ in 0..200 {
        two.seconds(1);
        two.send(B, b"from b");
        two.work();
    }
    assert_ne!(two.index(A), first);
}

#[test]
fn what_comes_so_late_that_an_answer_would_come_too_late_makes_new_keys_at_once() {
    let mut two = Two::joined();
    two.seconds(164);
    two.send(B, b"in time for a keepalive");
    assert_eq!(two.poll(A), []);
    two.seconds(1);
    two.send(B, b"not any more");
    let work = two.poll(A);
    assert!(matches!(&work[..], [Work::Send(Transmit { datagram: Datagram::Initiation(_), .. })]));
}

#[test]
fn messages_on_their_way_outlive_a_rekey() {
    let mut two = Two::joined();
    let (early, late) = (two.seal(A, b"early").unwrap(), two.seal(A, b"late").unwrap());
    two.seconds(120);
    assert!(two.deliver(B, &early).is_ok());
    two.send(A, b"begins a handshake");
    two.send(A, b"confirms it");
    assert!(two.deliver(B, &late).is_ok(), "by the session before");
    assert_eq!(two.packets[B], [&b"early"[..], b"late"]);
}

#[test]
fn sessions_expire_and_keys_are_wiped() {
    let mut two = Two::joined();
    let late = two.seal(A, b"late").unwrap();
    two.seconds(180);
    assert!(!two.has_session(A) && !two.has_session(B));
    assert_eq!(two.deliver(B, &late), Err(Drop::Expired));
    two.seconds(359);
    assert_eq!(two.poll(B), []);
    two.seconds(1);
    assert_eq!(two.poll(B), [Work::Wiped(two.peers[B])]);
    assert_eq!(two.deliver(B, &late), Err(Drop::UnknownIndex));
    assert!(two.devices[B].by_index.is_empty());
    assert_eq!(two.devices[B].deadline(), None);
    two.handshake(B);
    two.both_ways();
}

#[test]
fn numbers_near_the_limit_make_new_keys() {
    let mut two = Two::joined();
    let first = two.index(B);
    two.seconds(6);
    two.devices[B].session(two.peers[B], two.now).unwrap().use_up(REKEY_AFTER_MESSAGES);
    two.send(B, b"begins a handshake");
    assert_ne!(two.index(B), first);
    two.both_ways();

    two.devices[A].session(two.peers[A], two.now).unwrap().use_up(REJECT_AFTER_MESSAGES);
    assert!(!two.has_session(A));
    assert_eq!(two.seal(A, b"packet"), None);
    two.seconds(6);
    two.handshake(A);
    two.both_ways();
}

#[test]
fn data_is_answered_even_if_there_is_nothing_to_say() {
    let mut two = Two::joined();
    two.send(A, b"packet");
    two.seconds(9);
    assert_eq!(two.work(), 0);
    two.seconds(1);
    assert_eq!(two.work(), 1, "a keepalive from b");
    two.seconds(20);
    assert_eq!(two.work(), 0, "a keepalive is not answered");
}

#[test]
fn data_without_an_answer_begins_a_handshake() {
    let mut two = Two::joined();
    two.seal(A, b"lost").unwrap();
    assert_eq!(two.devices[A].sent(two.peers[A], two.now), None);
    two.seconds(15);
    let work = two.poll(A);
    assert!(matches!(&work[..], [Work::Send(Transmit { datagram: Datagram::Initiation(_), .. })]));
}

#[test]
fn a_persistent_keepalive_begins_and_keeps_a_session() {
    let keepalive = Some(Duration::from_secs(25));
    let mut two = Two::with([PeerConfig { keepalive, ..config(2) }, config(1)]);
    assert_eq!(two.devices[A].deadline(), Some(two.now.instant));
    for _ in 0..1000 {
        two.work();
        assert!(two.has_session(A) && two.has_session(B));
        two.seconds(1);
    }
}
