//! The handshake: `Noise_IKpsk2` as WireGuard uses it, from two keys and a timestamp to the keys of a session.
//!
//! The Noise protocol is that of `snow`. What is added here: ephemeral keys come from bytes that the caller has drawn,
//! private keys are wiped, and a key of the other side that would make the secret known to everybody is refused.

use ring::aead::{CHACHA20_POLY1305, LessSafeKey, UnboundKey};
use snow::params::{CipherChoice, DHChoice, HashChoice};
use snow::resolvers::{CryptoResolver, DefaultResolver};
use snow::types::{Cipher, Dh, Hash};
use snow::{Builder, HandshakeState};
use x25519_dalek::StaticSecret;
use zeroize::Zeroizing;

use super::message::{InitiationNoise, ResponseNoise};
use super::{PresharedKey, PrivateKey, PublicKey, Timestamp};

const PROTOCOL: &str = "Noise_IKpsk2_25519_ChaChaPoly_BLAKE2s";
const IDENTIFIER: &[u8] = b"WireGuard v1 zx2c4 Jason@zx2c4.com";
/// Where the pattern takes the preshared key.
const PRESHARED: u8 = 2;

/// The message is not from who it claims, or not for us.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the handshake message is not genuine")]
pub struct NotGenuine;

impl From<snow::Error> for NotGenuine {
    fn from(_: snow::Error) -> Self {
        Self
    }
}

/// Random bytes for one ephemeral key.
pub(super) type Ephemeral = Zeroizing<[u8; 32]>;

/// The two keys of a session.
pub(super) struct TransportKeys {
    pub(super) sealing: LessSafeKey,
    pub(super) opening: LessSafeKey,
}

impl TransportKeys {
    /// From a handshake that is done. The first key is that of the initiator.
    fn of(mut noise: HandshakeState) -> Result<Self, NotGenuine> {
        let (first, second) = noise.dangerously_get_raw_split();
        let (first, second) = (Zeroizing::new(first), Zeroizing::new(second));
        let key = |bytes: &[u8; 32]| {
            UnboundKey::new(&CHACHA20_POLY1305, bytes).map(LessSafeKey::new).map_err(|_| NotGenuine)
        };
        let (sealing, opening) = if noise.is_initiator() { (first, second) } else { (second, first) };
        Ok(Self { sealing: key(&sealing)?, opening: key(&opening)? })
    }
}

/// A handshake that was begun here, and waits for the response.
pub(super) struct Initiator {
    noise: HandshakeState,
}

impl Initiator {
    /// Begins one, with what is to be sent.
    pub(super) fn begin(
        own: &PrivateKey,
        peer: &PublicKey,
        preshared: &PresharedKey,
        ephemeral: Ephemeral,
        timestamp: Timestamp,
    ) -> Result<(Self, InitiationNoise), NotGenuine> {
        let mut noise = builder(ephemeral)?
            .local_private_key(own.0.as_bytes())?
            .remote_public_key(&peer.0)?
            .psk(PRESHARED, &preshared.0)?
            .build_initiator()?;
        let mut message = [0; size_of::<InitiationNoise>()];
        noise.write_message(&timestamp.to_bytes(), &mut message)?;
        Ok((Self { noise }, message))
    }

    /// Reads a response. One that is not genuine changes nothing: the genuine one may still come.
    pub(super) fn read(&mut self, response: &ResponseNoise) -> Result<(), NotGenuine> {
        self.noise.read_message(response, &mut [])?;
        Ok(())
    }

    /// The keys, once a response was read.
    pub(super) fn keys(self) -> Result<TransportKeys, NotGenuine> {
        TransportKeys::of(self.noise)
    }
}

/// A handshake that a peer has begun. Whether its timestamp is new is for the caller to say.
pub(super) struct Responder {
    noise: HandshakeState,
    pub(super) peer: PublicKey,
    pub(super) timestamp: Timestamp,
}

impl Responder {
    /// Reads an initiation.
    pub(super) fn read(
        own: &PrivateKey,
        ephemeral: Ephemeral,
        initiation: &InitiationNoise,
    ) -> Result<Self, NotGenuine> {
        let mut noise = builder(ephemeral)?.local_private_key(own.0.as_bytes())?.build_responder()?;
        let mut timestamp = [0; 12];
        noise.read_message(initiation, &mut timestamp)?;
        let peer = noise.get_remote_static().and_then(|key| key.try_into().ok()).ok_or(NotGenuine)?;
        Ok(Self { noise, peer: PublicKey(peer), timestamp: Timestamp::from_bytes(timestamp) })
    }

    /// Answers it: what is to be sent, and the keys.
    pub(super) fn answer(
        mut self,
        preshared: &PresharedKey,
    ) -> Result<(ResponseNoise, TransportKeys), NotGenuine> {
        self.noise.set_psk(PRESHARED.into(), preshared.0.as_slice())?;
        let mut message = [0; size_of::<ResponseNoise>()];
        self.noise.write_message(&[], &mut message)?;
        Ok((message, TransportKeys::of(self.noise)?))
    }
}

fn builder<'a>(ephemeral: Ephemeral) -> Result<Builder<'a>, snow::Error> {
    Builder::with_resolver(PROTOCOL.parse()?, Box::new(Primitives { ephemeral })).prologue(IDENTIFIER)
}

/// The cryptography under the Noise protocol.
struct Primitives {
    ephemeral: Ephemeral,
}

impl CryptoResolver for Primitives {
    fn resolve_rng(&self) -> Option<Box<dyn snow::types::Random>> {
        Some(Box::new(Drawn(self.ephemeral.clone())))
    }

    fn resolve_dh(&self, choice: &DHChoice) -> Option<Box<dyn Dh>> {
        match choice {
            DHChoice::Curve25519 => Some(Box::new(X25519::blank())),
            DHChoice::Curve448 => None,
        }
    }

    fn resolve_hash(&self, choice: &HashChoice) -> Option<Box<dyn Hash>> {
        DefaultResolver.resolve_hash(choice)
    }

    fn resolve_cipher(&self, choice: &CipherChoice) -> Option<Box<dyn Cipher>> {
        DefaultResolver.resolve_cipher(choice)
    }
}

/// The bytes that were drawn for the one ephemeral key of a handshake.
struct Drawn(Ephemeral);

impl snow::types::Random for Drawn {
    fn try_fill_bytes(&mut self, bytes: &mut [u8]) -> Result<(), snow::Error> {
        let bytes: &mut [u8; 32] = bytes.try_into().map_err(|_| snow::Error::Rng)?;
        *bytes = *self.0;
        Ok(())
    }
}

struct X25519 {
    private: StaticSecret,
    public: [u8; 32],
}

impl X25519 {
    /// Before a key is set.
    fn blank() -> Self {
        Self { private: StaticSecret::from([0; 32]), public: [0; 32] }
    }

    fn of(private: [u8; 32]) -> Self {
        let private = StaticSecret::from(private);
        let public = x25519_dalek::PublicKey::from(&private).to_bytes();
        Self { private, public }
    }
}

impl Dh for X25519 {
    fn name(&self) -> &'static str {
        "25519"
    }

    fn pub_len(&self) -> usize {
        32
    }

    fn priv_len(&self) -> usize {
        32
    }

    fn set(&mut self, private: &[u8]) {
        if let Ok(private) = private.try_into() {
            *self = Self::of(private);
        }
    }

    fn generate(&mut self, random: &mut dyn snow::types::Random) -> Result<(), snow::Error> {
        let mut private = Zeroizing::new([0; 32]);
        random.try_fill_bytes(private.as_mut_slice())?;
        *self = Self::of(*private);
        Ok(())
    }

    fn pubkey(&self) -> &[u8] {
        &self.public
    }

    fn privkey(&self) -> &[u8] {
        self.private.as_bytes()
    }

    fn dh(&self, public: &[u8], out: &mut [u8]) -> Result<(), snow::Error> {
        let public: [u8; 32] = *public.first_chunk().ok_or(snow::Error::Dh)?;
        let shared = self.private.diffie_hellman(&public.into());
        match out.first_chunk_mut() {
            Some(out) if shared.was_contributory() => {
                *out = shared.to_bytes();
                Ok(())
            }
            Some(_) | None => Err(snow::Error::Dh),
        }
    }
}

#[cfg(test)]
mod tests;
