//! Every parser of what comes from outside, as a function of bytes: for a fuzzer, and for `make test`.
//!
//! A target reads the bytes as the product does, and then asserts what must hold of all that can be read: it is printed
//! back as the same, checksums stay right, lengths stay bounded, nothing forged is taken. A panic is a finding. It
//! returns whether the bytes were read to the end, so that tests can tell a corpus that has become useless.
//!
//! What only the kernel or this cluster's own administrator says is not here: netlink, control messages of sockets,
//! values of the chart, arguments of commands. Nor is what libraries parse before we see it: TLS, HTTP, DNS messages.

#![allow(clippy::missing_panics_doc, reason = "to panic is what a target is for")]

mod admission;
mod auth;
mod discovery;
mod kubelet;
mod names;
mod network;
mod objects;
mod packets;
mod signer;
mod wireguard;

pub use admission::admission_review;
pub use auth::{
    certificate, challenge, challenge_request, csr, denial, endorsement, generation, identity_grant,
    identity_request, join_token, token_store,
};
pub use discovery::{announcement, cluster_address, lan_report, zone_records};
pub use kubelet::kubelet_question;
pub use names::{
    cluster_id, cluster_name, cluster_selector, https_url, local_name, pin, quantity, user_name,
};
pub use network::{gateway_notice, ipam_message, ipam_storage, network_answer, network_config, tunnels};
pub use objects::{resource_offer, usage};
pub use packets::{coalesce, echo, flows, mss, packet_header, segment, translate};
pub use signer::{NOW, own_id, private_key, signer};
pub use wireguard::{wireguard_handshake, wireguard_message, wireguard_session};

/// Hands the names of all targets to a macro: this is the one list of them.
#[macro_export]
macro_rules! with_targets {
    ($with:ident) => {
        $with! {
            admission_review announcement certificate challenge challenge_request cluster_address cluster_id cluster_name cluster_selector coalesce csr
            denial echo endorsement flows gateway_notice generation https_url identity_grant identity_request
            ipam_message ipam_storage join_token kubelet_question lan_report local_name mss network_answer network_config packet_header
            pin quantity resource_offer segment token_store translate tunnels usage user_name wireguard_handshake
            wireguard_message wireguard_session zone_records
        }
    };
}

/// Whether the bytes were read to the end.
pub type Read = Option<()>;

/// A target: its name, and what it does.
pub type Target = (&'static str, fn(&[u8]) -> Read);

macro_rules! list {
    ($($name:ident)*) => {
        /// All targets, in the order of their names.
        pub const TARGETS: &[Target] = &[$((stringify!($name), $name)),*];
    };
}
with_targets!(list);

/// The target of this name.
pub fn target(name: &str) -> Option<fn(&[u8]) -> Read> {
    TARGETS.iter().find(|(known, _)| *known == name).map(|(_, target)| *target)
}

/// The first byte, which a target uses to choose, and the others.
pub(crate) fn choice(data: &[u8]) -> Option<(u8, &[u8])> {
    data.split_first().map(|(first, rest)| (*first, rest))
}

/// The bytes as text.
pub(crate) fn text(data: &[u8]) -> Option<&str> {
    std::str::from_utf8(data).ok()
}
