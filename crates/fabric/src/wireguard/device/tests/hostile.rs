//! What strangers can send, and that it is of no use to them.

use proptest::prelude::*;

use super::{A, B, Two, address, bytes, config, device, reply};
use crate::wireguard::device::{Incoming, Load, Unfit, Work};
use crate::wireguard::session::REJECT_AFTER_MESSAGES;
use crate::wireguard::{Datagram, Drop, NoRandomness, PeerConfig, PublicKey, Random, Transmit};

#[test]
fn copies_are_refused_in_any_order() {
    let mut two = Two::joined();
    let packets: Vec<_> = (0..20).map(|number| two.seal(A, &[number]).unwrap()).collect();
    for place in [3, 1, 2, 19, 0, 18, 7] {
        assert!(two.deliver(B, &packets[place]).is_ok());
        assert_eq!(two.deliver(B, &packets[place]), Err(Drop::Replayed));
    }
    assert_eq!(two.devices[B].drops()[&Drop::Replayed], 7);
}

#[test]
fn an_initiation_counts_once_and_only_if_newer() {
    let mut two = Two::new();
    let old = two.want(A).unwrap();
    two.seconds(6);
    let [Work::Send(new)] = &two.poll(A)[..] else { panic!("nothing to send") };
    let new = new.datagram.bytes().to_vec();
    two.settle(B, &new);
    assert_eq!(two.deliver(B, &old), Err(Drop::OldInitiation));
    assert_eq!(two.deliver(B, &new), Err(Drop::OldInitiation));
    two.both_ways();
}

#[test]
fn a_response_counts_once() {
    let mut two = Two::new();
    let initiation = two.want(A).unwrap();
    let response = reply(two.deliver(B, &initiation).unwrap()).unwrap();
    two.settle(A, &response);
    assert_eq!(two.deliver(A, &response), Err(Drop::UnknownIndex));
    two.both_ways();
}

#[test]
fn forged_bytes_change_nothing() {
    let mut two = Two::new();
    let initiation = two.want(A).unwrap();
    assert!(forgeries(&initiation, 132).all(|forged| two.deliver(B, &forged).is_err()));
    let response = reply(two.deliver(B, &initiation).unwrap()).unwrap();
    assert!(forgeries(&response, 76).all(|forged| two.deliver(A, &forged).is_err()));
    two.settle(A, &response);
    let data = two.seal(A, b"packet").unwrap();
    two.at[A] = address(77);
    assert!(forgeries(&data, data.len()).all(|forged| two.deliver(B, &forged).is_err()));
    assert_eq!(two.devices[B].endpoint(two.peers[B]), Some(address(1)));
    assert!(two.deliver(B, &data).is_ok(), "a forgery with the same number does not take its place");
}

fn forgeries(datagram: &[u8], length: usize) -> impl Iterator<Item = Vec<u8>> {
    (0..length).map(|place| {
        let mut forged = datagram.to_vec();
        forged[place] ^= 1;
        forged
    })
}

#[test]
fn under_load_only_who_shows_a_cookie_is_answered() {
    let mut two = Two::new();
    two.load = Load::High;
    let first = two.want(A).unwrap();
    let incoming = two.deliver(B, &first).unwrap();
    let Incoming::Reply(Transmit { datagram: Datagram::CookieReply(_), to }) = &incoming else {
        panic!("{incoming:?}")
    };
    assert_eq!(*to, address(1));
    let cookie = reply(incoming).unwrap();
    assert_eq!(two.deliver(A, &cookie), Ok(Incoming::Nothing));
    assert_eq!(two.deliver(A, &cookie), Err(Drop::ForgedCookie));

    two.seconds(6);
    let [Work::Send(second)] = &two.poll(A)[..] else { panic!("nothing to send") };
    let incoming = two.deliver(B, second.datagram.bytes()).unwrap();
    assert!(matches!(&incoming, Incoming::Reply(Transmit { datagram: Datagram::Response(_), .. })));
    two.load = Load::Normal;
    two.settle(A, &reply(incoming).unwrap());
    two.both_ways();
}

#[test]
fn under_load_on_both_sides_each_shows_a_cookie() {
    let mut two = Two::new();
    two.load = Load::High;
    two.handshake(A);
    assert!(!two.has_session(A), "b wants a cookie");
    two.seconds(6);
    two.work();
    assert!(!two.has_session(A), "a wants one, too");
    two.seconds(6);
    two.work();
    two.both_ways();
}

#[test]
fn under_load_without_random_bytes_nobody_is_answered() {
    let mut two = Two::new();
    two.load = Load::High;
    let initiation = two.want(A).unwrap();
    two.devices[B].random = Box::new(Exhausted);
    assert_eq!(two.deliver(B, &initiation), Err(Drop::Unanswered));
    two.load = Load::Normal;
    assert_eq!(two.deliver(B, &initiation), Err(Drop::Unanswered));
    assert_eq!(two.want(B), None);
}

struct Exhausted;

impl Random for Exhausted {
    fn fill(&mut self, _: &mut [u8]) -> Result<(), NoRandomness> {
        Err(NoRandomness)
    }
}

#[test]
fn a_message_with_a_number_beyond_the_limit_is_refused_unopened() {
    let mut two = Two::joined();
    let mut datagram = two.seal(A, b"packet").unwrap();
    datagram[8..16].copy_from_slice(&REJECT_AFTER_MESSAGES.to_le_bytes());
    assert_eq!(two.deliver(B, &datagram), Err(Drop::Expired));
}

#[test]
fn strangers_and_ourselves_are_no_peers() {
    let mut two = Two::new();
    let mut stranger = device(3);
    let peer = stranger.add(config(2), two.now).unwrap();
    let initiation = bytes(stranger.want(peer, two.now)).unwrap();
    assert_eq!(two.deliver(B, &initiation), Err(Drop::UnknownPeer));
    assert_eq!(two.deliver(A, &initiation), Err(Drop::NotForUs));
    assert_eq!(two.devices[A].add(config(1), two.now), Err(Unfit::Ourselves));
    assert_eq!(two.devices[A].add(config(2), two.now), Err(Unfit::AlreadyThere));
}

#[test]
fn a_removed_peer_is_a_stranger() {
    let mut two = Two::joined();
    let datagram = two.seal(A, b"packet").unwrap();
    two.devices[B].remove(two.peers[B]);
    assert!(two.devices[B].by_index.is_empty());
    assert_eq!(two.deliver(B, &datagram), Err(Drop::UnknownIndex));
    two.seconds(180);
    let initiation = two.want(A).unwrap();
    assert_eq!(two.deliver(B, &initiation), Err(Drop::UnknownPeer));
    assert_ne!(two.devices[B].add(config(1), two.now), Ok(two.peers[B]));
}

#[test]
fn a_key_that_is_no_key_is_never_spoken_to() {
    let mut two = Two::new();
    let broken = PeerConfig { key: PublicKey([0; 32]), ..config(3) };
    let id = two.devices[A].add(broken, two.now).unwrap();
    assert_eq!(two.devices[A].want(id, two.now), None);
}
proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_datagram_is_handled_without_harm(
        kind in 0_u8..6,
        mut datagram in proptest::collection::vec(any::<u8>(), 0..200),
        length in prop_oneof![Just(148_usize), Just(92), Just(64), 0_usize..200],
        high: bool,
    ) {
        let mut two = Two::joined();
        datagram.resize(length, 0);
        if let Some(start) = datagram.first_chunk_mut() {
            *start = [kind, 0, 0, 0];
        }
        two.load = if high { Load::High } else { Load::Normal };
        prop_assert!(two.deliver(A, &datagram).is_err());
        // Addressed to a session that there is.
        let index = two.index(A).to_le_bytes();
        for place in [4, 8] {
            if let Some(receiver) = datagram.get_mut(place..place + 4) {
                receiver.copy_from_slice(&index);
            }
            prop_assert!(two.deliver(A, &datagram).is_err());
        }
        two.load = Load::Normal;
        two.both_ways();
    }
}
