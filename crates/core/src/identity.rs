//! Who a cluster is: an Ed25519 key, the clusterID that follows from it, and statements signed with it.
//!
//! A name that anybody can claim protects nobody. Therefore a clusterID is derived from the public key, and a
//! claim to it counts only with a signature by that key.

use std::fmt;
use std::str::FromStr;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::rand::SecureRandom;
use ring::signature::{ED25519, Ed25519KeyPair, KeyPair, UnparsedPublicKey};
use serde::{Deserialize, Serialize};
use uuid::{Builder, Uuid, Variant};

use crate::names::ClusterName;

/// The version of a UUID whose content is made by a rule of our own (RFC 9562).
const DERIVED: usize = 8;

/// Lets serde write a type as the text of its `Display`, and read it with its `FromStr`.
macro_rules! serde_as_text {
    ($type:ty $(, $size:ident)?) => {
        impl $(<const $size: usize>)? serde::Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                to.collect_str(self)
            }
        }

        impl<'de $(, const $size: usize)?> serde::Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                let text = <std::borrow::Cow<'_, str>>::deserialize(from)?;
                text.parse().map_err(serde::de::Error::custom)
            }
        }
    };
}
pub(crate) use serde_as_text;

/// The identifier of a cluster, as a UUID.
///
/// Reading one accepts a UUID of any version, since objects written by hand carry such; what comes from a
/// peer over the network is read with [`ClusterId::derived`]. Only the canonical form in lower case counts,
/// so that two texts are equal when the clusters are.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClusterId(Uuid);

impl ClusterId {
    /// The identifier that follows from a key: version 8, from the first 16 bytes of the key's SHA-256.
    pub fn of(key: &PublicKey) -> Self {
        Self(Builder::from_custom_bytes(head(&sha256(key.as_bytes()))).into_uuid())
    }

    /// Reads an identifier that was derived from a key, as every cluster with an identity of its own has.
    pub fn derived(text: &str) -> Result<Self, NotAClusterId> {
        text.parse().ok().filter(Self::is_derived).ok_or(NotAClusterId)
    }

    pub(crate) fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(Uuid::from_bytes(bytes))
    }

    pub(crate) fn to_bytes(self) -> [u8; 16] {
        self.0.into_bytes()
    }

    fn is_derived(&self) -> bool {
        self.0.get_version_num() == DERIVED && self.0.get_variant() == Variant::RFC4122
    }
}

impl FromStr for ClusterId {
    type Err = NotAClusterId;

    fn from_str(text: &str) -> Result<Self, NotAClusterId> {
        let id = Uuid::try_parse(text).map(Self).map_err(|_| NotAClusterId)?;
        if id.to_string() == text { Ok(id) } else { Err(NotAClusterId) }
    }
}

impl fmt::Display for ClusterId {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.hyphenated().fmt(to)
    }
}

impl fmt::Debug for ClusterId {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "ClusterId({self})")
    }
}

serde_as_text!(ClusterId);

/// The text is not the identifier of a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a clusterID is a UUID in lower case, such as 3f2b6a0e-1c4d-8e5f-9a7b-0c1d2e3f4a5b")]
pub struct NotAClusterId;

/// A fixed number of bytes, written in base64url without padding.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bytes<const N: usize>(pub [u8; N]);

impl<const N: usize> FromStr for Bytes<N> {
    type Err = NotBytes<N>;

    fn from_str(text: &str) -> Result<Self, NotBytes<N>> {
        if text.len() != N.div_ceil(3) * 4 - (3 - N % 3) % 3 {
            return Err(NotBytes);
        }
        let bytes = URL_SAFE_NO_PAD.decode(text).map_err(|_| NotBytes)?;
        bytes.try_into().map(Self).map_err(|_| NotBytes)
    }
}

impl<const N: usize> fmt::Display for Bytes<N> {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(&URL_SAFE_NO_PAD.encode(self.0))
    }
}

impl<const N: usize> fmt::Debug for Bytes<N> {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, to)
    }
}

serde_as_text!(Bytes<N>, N);

/// The text is not base64url, or not of the right length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected {N} bytes in base64url without padding")]
pub struct NotBytes<const N: usize>;

/// The public half of a cluster's identity key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PublicKey(pub Bytes<32>);

impl PublicKey {
    /// The raw key.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0.0
    }
}

/// A signature by an identity key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Signature(pub Bytes<64>);

/// Who a cluster is. The identifier always follows from the key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    id: ClusterId,
    name: ClusterName,
    public_key: PublicKey,
}

impl Identity {
    /// The cluster with this key, under the name it gives itself.
    pub fn new(name: ClusterName, public_key: PublicKey) -> Self {
        Self { id: ClusterId::of(&public_key), name, public_key }
    }

    /// The identifier.
    pub fn id(&self) -> ClusterId {
        self.id
    }

    /// The name that the cluster gives itself.
    pub fn name(&self) -> &ClusterName {
        &self.name
    }

    /// The public half of the identity key.
    pub fn public_key(&self) -> &PublicKey {
        &self.public_key
    }
}

/// The identity of this cluster, with the key that proves it.
pub struct SigningIdentity {
    identity: Identity,
    key: Ed25519KeyPair,
}

impl SigningIdentity {
    /// The identity whose key was made by [`new_private_key`].
    pub fn from_pkcs8(name: ClusterName, pkcs8: &[u8]) -> Result<Self, KeyProblem> {
        let key = Ed25519KeyPair::from_pkcs8(pkcs8).map_err(|_| KeyProblem::Unreadable)?;
        let public_key = PublicKey(Bytes(head(key.public_key().as_ref())));
        Ok(Self { identity: Identity::new(name, public_key), key })
    }

    /// Who this cluster is, for everybody to know.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Signs a statement.
    pub fn sign(&self, statement: &Statement) -> Signature {
        Signature(Bytes(head(self.key.sign(&statement.0).as_ref())))
    }
}

impl fmt::Debug for SigningIdentity {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.debug_struct("SigningIdentity").field("identity", &self.identity).finish_non_exhaustive()
    }
}

/// Makes the key of a new cluster, as PKCS#8. This happens once in the life of a cluster.
pub fn new_private_key(random: &dyn SecureRandom) -> Result<impl AsRef<[u8]> + use<>, KeyProblem> {
    Ed25519KeyPair::generate_pkcs8(random).map_err(|_| KeyProblem::NoRandomness)
}

/// There is no usable identity key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyProblem {
    /// The system gave no random bytes.
    #[error("cannot make an identity key: the system gives no random bytes")]
    NoRandomness,
    /// What was stored is not such a key.
    #[error("the stored identity key is not an Ed25519 key in PKCS#8; restore it from a backup")]
    Unreadable,
}

/// What is signed: a purpose, so that a signature for one thing never passes for another, then the fields.
///
/// The layout is the same for all: each part, the purpose first, is its length as 8 bytes in network order
/// followed by its bytes. A field that is absent has the length 0; none has an empty value of its own.
pub struct Statement(Vec<u8>);

impl Statement {
    /// A statement of this purpose, which no other use shares.
    pub fn new(purpose: &'static str) -> Self {
        Self(Vec::new()).field(purpose)
    }

    /// Adds a field. Which one it is follows from the order.
    #[must_use]
    pub fn field(mut self, bytes: impl AsRef<[u8]>) -> Self {
        self.0.extend((bytes.as_ref().len() as u64).to_be_bytes());
        self.0.extend(bytes.as_ref());
        self
    }

    /// The bytes of the whole.
    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// Verifies that the cluster of this identifier made the statement.
pub fn verify(
    id: &ClusterId,
    key: &PublicKey,
    statement: &Statement,
    signature: &Signature,
) -> Result<(), Unproven> {
    if ClusterId::of(key) != *id {
        return Err(Unproven::IdentityMismatch);
    }
    let key = UnparsedPublicKey::new(&ED25519, key.as_bytes());
    key.verify(&statement.0, &signature.0.0).map_err(|_| Unproven::InvalidSignature)
}

/// The statement is not proved to be by that cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unproven {
    /// The key belongs to another identifier.
    #[error("the clusterID does not belong to the key")]
    IdentityMismatch,
    /// The signature was not made with the key, or not over this statement.
    #[error("the signature is not valid")]
    InvalidSignature,
}

/// The SHA-256 of some bytes.
pub(crate) fn sha256(bytes: &[u8]) -> [u8; 32] {
    head(ring::digest::digest(&ring::digest::SHA256, bytes).as_ref())
}

/// The first bytes of a slice that is known to have as many.
pub(crate) fn head<const N: usize>(bytes: &[u8]) -> [u8; N] {
    let mut head = [0; N];
    head.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
    head
}

#[cfg(test)]
pub(crate) mod tests {
    use super::{Bytes, ClusterId, Identity, SigningIdentity, Statement, Unproven, new_private_key, verify};
    use proptest::prelude::*;
    use ring::rand::SystemRandom;
    use ring::signature::Ed25519KeyPair;
    use ring::signature::KeyPair;

    /// A cluster whose key follows from a number.
    pub(crate) fn cluster(number: u8) -> SigningIdentity {
        let key = Ed25519KeyPair::from_seed_unchecked(&[number; 32]).unwrap();
        let public_key = super::PublicKey(Bytes(key.public_key().as_ref().try_into().unwrap()));
        let name = format!("cluster-{number}").parse().unwrap();
        SigningIdentity { identity: Identity::new(name, public_key), key }
    }

    #[test]
    fn the_identifier_is_a_uuid_of_version_8_and_follows_from_the_key() {
        let id = cluster(1).identity().id();
        assert_eq!(id, cluster(1).identity().id());
        assert_ne!(id, cluster(2).identity().id());
        assert_eq!(ClusterId::derived(&id.to_string()), Ok(id));
        assert_eq!(id.to_string(), "34750f98-bd59-8cfc-946d-a45aaabe933b");
    }

    #[test]
    fn a_key_that_was_stored_gives_the_same_cluster_again() {
        let key = new_private_key(&SystemRandom::new()).unwrap();
        let read = || SigningIdentity::from_pkcs8("home".parse().unwrap(), key.as_ref()).unwrap();
        assert_eq!(read().identity(), read().identity());
        assert!(SigningIdentity::from_pkcs8("home".parse().unwrap(), b"rubbish").is_err());
    }

    #[test]
    fn objects_written_by_hand_may_have_any_uuid_but_peers_only_derived_ones() {
        let random = "d14e610e-4c1b-402c-a5f1-5ef6f39c0490";
        assert!(random.parse::<ClusterId>().is_ok());
        assert!(ClusterId::derived(random).is_err());
    }

    #[test]
    fn only_the_canonical_form_of_an_identifier_counts() {
        for text in [
            "",
            "cluster-1",
            "D14E610E-4C1B-402C-A5F1-5EF6F39C0490",
            "d14e610e4c1b402ca5f15ef6f39c0490",
            "{d14e610e-4c1b-402c-a5f1-5ef6f39c0490}",
            "urn:uuid:d14e610e-4c1b-402c-a5f1-5ef6f39c0490",
            " d14e610e-4c1b-402c-a5f1-5ef6f39c0490",
        ] {
            assert!(text.parse::<ClusterId>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn a_statement_is_proved_by_the_right_key_and_no_other() {
        let (one, two) = (cluster(1), cluster(2));
        let statement = || Statement::new("test").field("a").field("b");
        let signature = one.sign(&statement());
        let (id, key) = (one.identity().id(), *one.identity().public_key());

        assert_eq!(verify(&id, &key, &statement(), &signature), Ok(()));
        let claimed = verify(&id, two.identity().public_key(), &statement(), &two.sign(&statement()));
        assert_eq!(claimed, Err(Unproven::IdentityMismatch));
        assert_eq!(verify(&id, &key, &statement(), &two.sign(&statement())), Err(Unproven::InvalidSignature));
        let moved = Statement::new("test").field("ab").field("");
        assert_eq!(verify(&id, &key, &moved, &signature), Err(Unproven::InvalidSignature));
        let other_purpose = Statement::new("other").field("a").field("b");
        assert_eq!(verify(&id, &key, &other_purpose, &signature), Err(Unproven::InvalidSignature));
    }

    #[test]
    fn the_secret_key_is_not_printed() {
        let shown = format!("{:?}", cluster(7));
        assert!(shown.contains("cluster-7") && shown.ends_with(".. }"), "{shown}");
    }

    proptest! {
        #[test]
        fn an_identifier_is_read_as_it_was_written(text in ".{0,48}", key: [u8; 32]) {
            if let Ok(id) = text.parse::<ClusterId>() {
                prop_assert_eq!(id.to_string(), text);
            }
            let id = ClusterId::of(&super::PublicKey(Bytes(key)));
            prop_assert_eq!(ClusterId::derived(&id.to_string()), Ok(id));
        }

        #[test]
        fn bytes_are_read_as_they_were_written(bytes: [u8; 20], text in "[A-Za-z0-9_=-]{0,30}") {
            prop_assert_eq!(Bytes(bytes).to_string().parse(), Ok(Bytes(bytes)));
            if let Ok(read) = text.parse::<Bytes<20>>() {
                prop_assert_eq!(read.to_string(), text);
            }
        }
    }
}
