use std::time::{Duration, SystemTime};

use ring::aead::{Aad, Nonce};
use snow::Builder;
use zeroize::Zeroizing;

use super::{IDENTIFIER, Initiator, NotGenuine, PROTOCOL, Responder, TransportKeys};
use crate::wireguard::{PresharedKey, PrivateKey, PublicKey, Timestamp};

fn own(number: u8) -> PrivateKey {
    PrivateKey::new([number; 32])
}

fn at(seconds: u64) -> Timestamp {
    Timestamp::after(None, SystemTime::UNIX_EPOCH + Duration::from_secs(seconds))
}

fn begin(preshared: u8) -> (Initiator, [u8; 108]) {
    let preshared = PresharedKey::new([preshared; 32]);
    Initiator::begin(&own(1), &own(2).public(), &preshared, Zeroizing::new([11; 32]), at(5)).unwrap()
}

fn read(initiation: &[u8; 108]) -> Result<Responder, NotGenuine> {
    Responder::read(&own(2), Zeroizing::new([12; 32]), initiation)
}

fn sealed(keys: &TransportKeys) -> Vec<u8> {
    let mut packet = b"packet".to_vec();
    let nonce = Nonce::assume_unique_for_key([0; 12]);
    keys.sealing.seal_in_place_append_tag(nonce, Aad::empty(), &mut packet).unwrap();
    packet
}

fn opens(keys: &TransportKeys, mut packet: Vec<u8>) -> bool {
    let nonce = Nonce::assume_unique_for_key([0; 12]);
    keys.opening.open_in_place(nonce, Aad::empty(), &mut packet).is_ok()
}

#[test]
fn both_sides_come_to_the_same_keys() {
    let (mut initiator, initiation) = begin(3);
    let responder = read(&initiation).unwrap();
    assert_eq!(responder.peer, own(1).public());
    assert_eq!(responder.timestamp, at(5));
    let (response, theirs) = responder.answer(&PresharedKey::new([3; 32])).unwrap();
    initiator.read(&response).unwrap();
    let ours = initiator.keys().unwrap();
    assert!(opens(&theirs, sealed(&ours)) && opens(&ours, sealed(&theirs)));
    assert!(!opens(&ours, sealed(&ours)));
}

#[test]
fn another_preshared_key_or_another_receiver_is_refused() {
    let (mut initiator, initiation) = begin(3);
    let (response, _) = read(&initiation).unwrap().answer(&PresharedKey::default()).unwrap();
    assert_eq!(initiator.read(&response), Err(NotGenuine));
    assert!(Responder::read(&own(4), Zeroizing::new([12; 32]), &initiation).is_err());
}

#[test]
fn every_byte_counts_and_a_forgery_does_not_end_the_handshake() {
    let (mut initiator, initiation) = begin(0);
    let (response, theirs) = read(&initiation).unwrap().answer(&PresharedKey::default()).unwrap();
    for place in 0..initiation.len() {
        let mut forged = initiation;
        forged[place] ^= 1;
        assert!(read(&forged).is_err(), "{place}");
    }
    for place in 0..response.len() {
        let mut forged = response;
        forged[place] ^= 1;
        assert_eq!(initiator.read(&forged), Err(NotGenuine), "{place}");
    }
    initiator.read(&response).unwrap();
    assert!(opens(&theirs, sealed(&initiator.keys().unwrap())));
}

#[test]
fn keys_that_make_the_secret_known_are_refused() {
    let begun = Initiator::begin(
        &own(1),
        &PublicKey([0; 32]),
        &PresharedKey::default(),
        Zeroizing::new([11; 32]),
        at(0),
    );
    assert!(begun.is_err());
    assert!(read(&[0; 108]).is_err());
}

/// The same protocol with the primitives that `snow` brings along.
fn independent() -> Builder<'static> {
    Builder::with_resolver(PROTOCOL.parse().unwrap(), Box::new(Independent)).prologue(IDENTIFIER).unwrap()
}

struct Independent;

impl snow::resolvers::CryptoResolver for Independent {
    fn resolve_rng(&self) -> Option<Box<dyn snow::types::Random>> {
        Some(Box::new(super::Drawn(Zeroizing::new([13; 32]))))
    }

    fn resolve_dh(&self, choice: &snow::params::DHChoice) -> Option<Box<dyn snow::types::Dh>> {
        snow::resolvers::DefaultResolver.resolve_dh(choice)
    }

    fn resolve_hash(&self, choice: &snow::params::HashChoice) -> Option<Box<dyn snow::types::Hash>> {
        snow::resolvers::DefaultResolver.resolve_hash(choice)
    }

    fn resolve_cipher(&self, choice: &snow::params::CipherChoice) -> Option<Box<dyn snow::types::Cipher>> {
        snow::resolvers::DefaultResolver.resolve_cipher(choice)
    }
}

#[test]
fn an_independent_responder_understands_our_initiation() {
    let (mut initiator, initiation) = begin(3);
    let mut other = independent()
        .local_private_key(&[2; 32])
        .unwrap()
        .psk(2, &[3; 32])
        .unwrap()
        .build_responder()
        .unwrap();
    let (mut payload, mut response) = ([0; 12], [0; 48]);
    assert_eq!(other.read_message(&initiation, &mut payload), Ok(12));
    assert_eq!(Timestamp::from_bytes(payload), at(5));
    assert_eq!(other.get_remote_static(), Some(&own(1).public().0[..]));
    assert_eq!(other.write_message(&[], &mut response), Ok(48));
    initiator.read(&response).unwrap();

    let mut opened = [0; 22];
    let packet = sealed(&initiator.keys().unwrap());
    assert_eq!(other.into_transport_mode().unwrap().read_message(&packet, &mut opened), Ok(6));
    assert_eq!(&opened[..6], b"packet");
}

#[test]
fn we_understand_an_independent_initiator() {
    let key = own(2).public();
    let other = independent().local_private_key(&[1; 32]).unwrap().psk(2, &[3; 32]).unwrap();
    let mut other = other.remote_public_key(&key.0).unwrap().build_initiator().unwrap();
    let mut initiation = [0; 108];
    assert_eq!(other.write_message(&at(9).to_bytes(), &mut initiation), Ok(108));
    let responder = read(&initiation).unwrap();
    assert_eq!((responder.peer, responder.timestamp), (own(1).public(), at(9)));
    let (response, keys) = responder.answer(&PresharedKey::new([3; 32])).unwrap();
    assert_eq!(other.read_message(&response, &mut []), Ok(0));

    let mut packet = [0; 22];
    assert_eq!(other.into_transport_mode().unwrap().write_message(b"packet", &mut packet), Ok(22));
    assert!(opens(&keys, packet.to_vec()));
}
