//! What becomes of each field of a pod that travels: one table, which tests hold against the fields that there are, against
//! what is done with them, and against `docs/PODS.md`.

#[cfg(test)]
pub(in crate::pods) mod samples;
mod table;
#[cfg(test)]
mod tests;

pub use table::{POD, SECTIONS};

/// The fields of one part of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Section {
    /// What the part is called.
    pub title: &'static str,
    /// Where in a pod's spec it occurs, such as `containers[].ports[]`.
    pub at: &'static [&'static str],
    /// All of its fields.
    pub fields: &'static [Field],
}

/// One field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// As it is written in a manifest.
    pub name: &'static str,
    /// What home does with it.
    pub home: Home,
    /// What the provider does with it when it is in a ShadowPod nevertheless.
    pub provider: Provider,
    /// Why, or what else there is to know; nothing for what simply arrives.
    pub note: &'static str,
}

/// What home does with a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Home {
    /// It is sent as it is.
    Travels,
    /// Something is sent that means the same over there.
    Translated,
    /// It is left out.
    Dropped,
    /// The pod does not travel.
    Refused,
}

/// What the provider does with a field, whoever wrote it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Provider {
    /// It stays as it is.
    Kept,
    /// The provider's own value stands in its place.
    Overruled,
    /// It is left out.
    Dropped,
    /// No pod is made.
    Refused,
}

impl Home {
    /// In a word.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Travels => "travels",
            Self::Translated => "translated",
            Self::Dropped => "left out",
            Self::Refused => "refused",
        }
    }
}

impl Provider {
    /// In a word.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Kept => "kept",
            Self::Overruled => "overruled",
            Self::Dropped => "left out",
            Self::Refused => "refused",
        }
    }
}
