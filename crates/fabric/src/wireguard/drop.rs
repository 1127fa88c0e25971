//! Every reason for which a datagram goes no further; by these words an operator finds out what is wrong.

use super::NoRandomness;
use super::message::Malformed;

/// Why a datagram goes no further.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, thiserror::Error)]
pub enum Drop {
    /// It is not a message.
    #[error("not a message of WireGuard")]
    Malformed,
    /// The sender of a handshake message does not know whom it talks to.
    #[error("a handshake message for somebody else")]
    NotForUs,
    /// The handshake message is not genuine.
    #[error("a handshake message that is not genuine")]
    ForgedHandshake,
    /// The handshake is with somebody who is no peer.
    #[error("a handshake message of a stranger")]
    UnknownPeer,
    /// The initiation is not newer than the last one.
    #[error("an initiation that is not newer than the last one")]
    OldInitiation,
    /// Under load a sender has only so many handshakes.
    #[error("more handshake messages of one sender than it has turns under load")]
    TooMany,
    /// There is no such session or handshake.
    #[error("a message for no session")]
    UnknownIndex,
    /// The cookie is not the answer to anything.
    #[error("a cookie that is not genuine")]
    ForgedCookie,
    /// The session is used up.
    #[error("a message by a session that is used up")]
    Expired,
    /// The message came before, or is too old to tell.
    #[error("a message that came before")]
    Replayed,
    /// The data message is not genuine.
    #[error("a message that is not genuine")]
    ForgedData,
    /// An answer could not be made, for want of random bytes.
    #[error("a message that could not be answered, for want of random bytes")]
    Unanswered,
}

impl From<NoRandomness> for Drop {
    fn from(_: NoRandomness) -> Self {
        Self::Unanswered
    }
}

impl From<Malformed> for Drop {
    fn from(_: Malformed) -> Self {
        Self::Malformed
    }
}
