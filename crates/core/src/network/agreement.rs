//! What two clusters have agreed on: under which names each sees the networks of the other.

use std::fmt;
use std::str::FromStr;

use ipnet::{AddrParseError, IpNet};

use super::{Translation, Unlike};

/// How a network is named by somebody else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Naming {
    /// It keeps its name. Written as `None`.
    Kept,
    /// This one stands for it.
    Replaced(IpNet),
}

impl Naming {
    /// The translation from a network of ours to what it is named there.
    pub fn of(self, ours: IpNet) -> Result<Translation, Unlike> {
        match self {
            Self::Kept => Ok(Translation::identity(ours)),
            Self::Replaced(theirs) => Translation::new(ours, theirs),
        }
    }

    /// How a network of ours is named there.
    pub fn there(translation: &Translation) -> Self {
        if translation.is_identity() { Self::Kept } else { Self::Replaced(translation.there()) }
    }

    /// How the network is named that another one stands for, or that keeps its name.
    pub fn from_translation(translation: &Translation) -> Self {
        if translation.is_identity() { Self::Kept } else { Self::Replaced(translation.here()) }
    }
}

impl fmt::Display for Naming {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kept => to.write_str("None"),
            Self::Replaced(network) => network.fmt(to),
        }
    }
}

impl FromStr for Naming {
    type Err = AddrParseError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "None" { Ok(Self::Kept) } else { text.parse().map(Self::Replaced) }
    }
}

/// The networks that a peer tells of, under its own names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offered {
    /// Of its pods.
    pub pod: IpNet,
    /// Of its other endpoints, if it lets them be reached.
    pub external: Option<IpNet>,
}

/// How somebody names the networks that were offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Of the pods.
    pub pod: Naming,
    /// Of the other endpoints, if they were offered.
    pub external: Option<Naming>,
}

/// What was agreed with one peer, as far as it has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Agreement {
    /// The peer's pods: here under our name, there under its own.
    pub their_pods: Translation,
    /// The peer's other endpoints, likewise.
    pub their_external: Option<Translation>,
    /// Our networks under the peer's names, once it has said so.
    pub ours: Option<Ours>,
}

/// Our networks under the names of a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ours {
    /// Our pods: here under our name, there under the peer's.
    pub pods: Translation,
    /// Our external network, likewise.
    pub external: Option<Translation>,
}

impl Agreement {
    /// What the peer offered.
    pub fn offered(&self) -> Offered {
        Offered {
            pod: self.their_pods.there(),
            external: self.their_external.map(|external| external.there()),
        }
    }

    /// What we answered.
    pub fn answer(&self) -> Answer {
        Answer {
            pod: Naming::from_translation(&self.their_pods),
            external: self.their_external.as_ref().map(Naming::from_translation),
        }
    }

    /// The peer's networks: here under our names, there under its own.
    pub fn theirs(&self) -> impl Iterator<Item = Translation> + use<> {
        [Some(self.their_pods), self.their_external].into_iter().flatten()
    }

    /// The networks that are in use here for the peer.
    pub fn networks(&self) -> impl Iterator<Item = IpNet> + use<> {
        self.theirs().map(|network| network.here())
    }
}
