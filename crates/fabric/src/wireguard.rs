//! The protocol of WireGuard as values: datagrams, times and random bytes in, datagrams and packets out.
//!
//! There is no socket, clock or thread here; whoever has them asks a [`Device`]. All cryptography is that of libraries:
//! the handshake is `snow`'s, packets are sealed by `ring`.

mod cookie;
mod device;
mod drop;
mod handshake;
mod keys;
mod mac;
pub mod message;
mod peer;
mod replay;
mod session;
mod sessions;
mod timers;
mod timestamp;
mod turns;

pub use device::{Device, Incoming, Load, PeerId, Unfit, Work};
pub use drop::Drop;
pub use keys::{NoRandomness, PresharedKey, PrivateKey, PublicKey, Random};
pub use peer::{Datagram, Moment, PeerConfig, Transmit};
pub use session::{Batch, NotSealed, Session, UsedUp};
pub use timers::REJECT_AFTER_TIME;
pub use timestamp::Timestamp;

#[cfg(test)]
mod tests {
    use super::{NoRandomness, Random};

    /// Bytes that are never the same again, and always the same in a test.
    #[derive(Default)]
    pub struct Counting(pub u64);

    impl Random for Counting {
        fn fill(&mut self, bytes: &mut [u8]) -> Result<(), NoRandomness> {
            for chunk in bytes.chunks_mut(8) {
                // Any odd number with bits all over it.
                self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
                chunk.copy_from_slice(&self.0.to_le_bytes()[..chunk.len()]);
            }
            Ok(())
        }
    }
}
