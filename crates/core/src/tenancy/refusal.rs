//! Why a namespace that a consumer asks for does not exist, in words for the consumer.
//!
//! They say nothing of others: whether a name is taken by this cluster or by another Tenant is not the consumer's business.

/// Why a namespace is not made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Refusal {
    /// The name cannot be that of a namespace.
    #[error("the name is not one that a namespace can have")]
    BadName,
    /// The name is for the provider itself.
    #[error("the name {0} is reserved for the provider itself; use DefaultName, or another namespace")]
    Reserved(String),
    /// There is a namespace of that name.
    #[error(
        "the provider has a namespace {0} that is not part of this Tenant, and leaves it alone; use DefaultName, or another \
         namespace"
    )]
    Taken(String),
    /// Another entry has that name.
    #[error(
        "the namespaces {winner} and {loser} both ask for {name}, and {winner} has it; let go one of them"
    )]
    Twice {
        /// Who has it.
        winner: String,
        /// Who does not.
        loser: String,
        /// The name.
        name: String,
    },
    /// The quota is used up.
    #[error(
        "the quota of {quota} namespaces is used up: there are {used}{}; release one, or ask the provider for a larger \
         namespaceQuota", removed(*.going)
    )]
    OverQuota {
        /// How many there may be.
        quota: u32,
        /// How many there are.
        used: usize,
        /// How many of those are being removed.
        going: usize,
    },
}

fn removed(going: usize) -> String {
    if going == 0 { String::new() } else { format!(", of which {going} are being removed") }
}

impl Refusal {
    /// One word, where there are too many to say more.
    pub(super) fn word(&self) -> &'static str {
        match self {
            Self::BadName => "BadName",
            Self::Reserved(_) => "NameReserved",
            Self::Taken(_) => "NameTaken",
            Self::Twice { .. } => "AskedForTwice",
            Self::OverQuota { .. } => "QuotaExceeded",
        }
    }
}
