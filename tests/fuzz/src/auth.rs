//! What strangers send to the auth service, and what an auth service answers; tokens, certificates, and what is kept of
//! them.

use std::collections::BTreeMap;
use std::fmt::Debug;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use ferro_core::auth::{
    Bearer, Challenge, ChallengeRequest, Csr, Denial, Doorstep, Endorsement, Generations, IdentityGrant,
    IdentityRequest, Issued, JoinToken, Pin, Redemption, SignedRequest, TokenSecret, TokenStore, UserName,
    screen,
};
use k8s_openapi::jiff::Timestamp;
use ring::digest::{SHA256, digest};
use serde::Serialize;

use crate::{NOW, Read, own_id, text};

fn now() -> Option<Timestamp> {
    Timestamp::from_second(NOW).ok()
}

/// What was read is written so that the same is read again.
fn written_back<T: Serialize + PartialEq + Debug, E: Debug>(
    value: &T,
    parse: impl Fn(&[u8]) -> Result<T, E>,
) {
    let json = serde_json::to_vec(value).unwrap_or_default();
    assert_eq!(parse(&json).ok().as_ref(), Some(value));
}

/// The string that a person carries. Few bytes have the right checksum: others are taken for the content of one.
pub fn join_token(data: &[u8]) -> Read {
    let read = text(data).and_then(|text| text.parse().ok());
    let token: JoinToken = match read {
        Some(token) => token,
        None => sealed(data).parse().ok()?,
    };
    assert_eq!(token.reveal().parse().as_ref(), Ok(&token));
    assert!(!format!("{token:?}").contains(&token.reveal()));
    Some(())
}

fn sealed(content: &[u8]) -> String {
    let sum = digest(&SHA256, content);
    format!("ferro_{}", URL_SAFE_NO_PAD.encode([content, &sum.as_ref()[..4]].concat()))
}

/// Somebody asks for a challenge.
pub fn challenge_request(data: &[u8]) -> Read {
    written_back(&ChallengeRequest::parse(data).ok()?, ChallengeRequest::parse);
    Some(())
}

/// A challenge that was asked for.
pub fn challenge(data: &[u8]) -> Read {
    let challenge = Challenge::parse(data).ok()?;
    written_back(&challenge, Challenge::parse);
    _ = challenge.nonce.check_time(now()?);
    Some(())
}

/// Somebody asks for a certificate.
pub fn identity_request(data: &[u8]) -> Read {
    let request = IdentityRequest::receive(data).ok()?;
    let filed = request.to_json().to_string();
    assert_eq!(SignedRequest::parse(filed.as_bytes()).as_ref(), Ok(&request));
    let doorstep = Doorstep { own: own_id()?, generation: 0, challenges: None, now: now()? };
    let screened = screen(&request, &doorstep).ok()?;
    assert_eq!(&screened.identity.id(), request.claimed_cluster());
    assert_eq!(screened.user, UserName { cluster: screened.identity.id(), generation: 0 });
    assert_eq!(screened.csr.common_name, screened.user.to_string());
    Some(())
}

/// A request that is granted.
pub fn identity_grant(data: &[u8]) -> Read {
    let grant = IdentityGrant::parse(data).ok()?;
    written_back(&grant, IdentityGrant::parse);
    let user = UserName { cluster: own_id()?, generation: 0 };
    if let Ok(Some(issued)) = grant.issued(&user, &Pin([1; 32])) {
        assert_eq!((issued.common_name, issued.key), (user.to_string(), Pin([1; 32])));
    }
    Some(())
}

/// A request that is not granted.
pub fn denial(data: &[u8]) -> Read {
    let denial = Denial::parse(data).ok()?;
    written_back(&denial, Denial::parse);
    // No text of the peer is shown.
    assert_eq!(denial.status().message.as_deref(), Some(denial.reason.advice()));
    Some(())
}

/// Who a cluster says that it is.
pub fn endorsement(data: &[u8]) -> Read {
    let endorsement = Endorsement::parse(data).ok()?;
    written_back(&endorsement, Endorsement::parse);
    let (key, another) = (Pin([1; 32]), Pin([2; 32]));
    let proved = endorsement.verify(&key, None, now()?);
    assert!(proved.is_err() || endorsement.verify(&another, None, now()?).is_err());
    Some(())
}

/// What somebody wants to have signed: PEM, or else the content of a PEM block.
pub fn csr(data: &[u8]) -> Read {
    let pem = in_pem(data, "CERTIFICATE REQUEST");
    let csr = Csr::from_pem(&pem).ok()?;
    assert!(pem.len() <= 8 * 1024 && csr.common_name.len() <= pem.len());
    Some(())
}

/// A certificate that a provider gave, or that somebody shows: PEM, or else the content of a PEM block.
pub fn certificate(data: &[u8]) -> Read {
    if let (Ok(issued), pin) = (Issued::from_der(data), Pin::of_certificate(data)) {
        assert_eq!(pin, Ok(issued.key));
    }
    Issued::from_pem(&in_pem(data, "CERTIFICATE")).ok()?;
    Some(())
}

fn in_pem(data: &[u8], label: &str) -> String {
    match text(data).filter(|text| text.starts_with("-----BEGIN")) {
        Some(text) => text.to_owned(),
        None => format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", STANDARD.encode(data)),
    }
}

/// The tokens that were given out, as they are kept.
pub fn token_store(data: &[u8]) -> Read {
    let (mut store, now) = (TokenStore::parse(data).ok()?, now()?);
    let written = store.to_json().to_string();
    assert_eq!(TokenStore::parse(written.as_bytes()).as_ref(), Ok(&store));
    let token = TokenSecret::new([3; 32]).hash();
    let bearer = Bearer { user: UserName { cluster: own_id()?, generation: 0 }, key: Pin([1; 32]) };
    let redemption = Redemption { token, bearer };
    assert_eq!(store.check(&redemption, now), store.redeem(&redemption, now));
    store.sweep(now);
    assert!(!store.sweep(now));
    Some(())
}

/// How often the certificates of a peer were revoked, as it is kept.
pub fn generation(data: &[u8]) -> Read {
    let peer = own_id()?;
    let data = BTreeMap::from([(peer.to_string(), text(data)?.to_owned())]);
    let mut generations = Generations::stored(data);
    let before = generations.of(&peer).ok()?;
    // The last one cannot be raised, and stays as it is.
    let after = generations.raise(&peer, now()?).unwrap_or(before);
    assert!(after > before || before == u32::MAX);
    assert_eq!(generations.of(&peer), Ok(after));
    generations.prune(|_| true, now()?);
    assert_eq!(generations.of(&peer), Ok(after));
    Some(())
}
