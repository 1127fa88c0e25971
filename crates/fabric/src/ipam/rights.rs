//! Who may do what, by the name in the certificate that was shown.

use tonic::Status;

/// Who asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Caller {
    /// A controller of this cluster, which acts for all peers.
    Controller,
    /// The gateway, which only follows.
    Gateway,
    /// Whoever acts for one peer.
    Peer(String),
}

impl Caller {
    /// From the common name of a certificate that our own authority has signed.
    pub(super) fn named(name: &str) -> Self {
        match name {
            "controller" => Self::Controller,
            "gateway" => Self::Gateway,
            peer => Self::Peer(peer.to_owned()),
        }
    }

    /// Whether it may ask for this peer.
    pub(super) fn may_ask_for(&self, peer: &str) -> Result<(), Status> {
        match self {
            Self::Controller => Ok(()),
            Self::Peer(name) if name == peer => Ok(()),
            Self::Peer(name) => {
                let why = format!("the certificate of {name} is good for {name} only, not for {peer}");
                Err(Status::permission_denied(why))
            }
            Self::Gateway => Err(Status::permission_denied("a gateway may only follow")),
        }
    }

    /// Whether it may ask about this cluster.
    pub(super) fn may_ask(&self) -> Result<(), Status> {
        match self {
            Self::Controller | Self::Peer(_) => Ok(()),
            Self::Gateway => Err(Status::permission_denied("a gateway may only follow")),
        }
    }

    /// Whether it may follow.
    pub(super) fn may_follow(&self) -> Result<(), Status> {
        match self {
            Self::Gateway => Ok(()),
            Self::Controller | Self::Peer(_) => Err(Status::permission_denied("only a gateway may follow")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tonic::Code;

    #[test]
    fn a_certificate_is_good_for_what_its_name_says() {
        for (name, own, other, follow) in [
            ("controller", true, true, false),
            ("gateway", false, false, true),
            ("rome", true, false, false),
            ("", false, false, false),
        ] {
            let caller = Caller::named(name);
            assert_eq!(caller.may_ask_for("rome").is_ok(), own, "{name}");
            assert_eq!(caller.may_ask_for("turin").is_ok(), other, "{name}");
            assert_eq!(caller.may_follow().is_ok(), follow, "{name}");
            assert_eq!(caller.may_ask().is_ok(), name != "gateway", "{name}");
        }
        let refused = Caller::named("rome").may_ask_for("turin").unwrap_err();
        assert_eq!(refused.code(), Code::PermissionDenied);
    }
}
