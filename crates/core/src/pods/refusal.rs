//! Why a pod does not run over there: one word for programs, and a sentence that says what to do.

/// Why a pod does not run over there. The word stands in the state of its containers, where people look first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// One word in CamelCase, such as `HostPathVolume`.
    pub word: String,
    /// Why, and what to do.
    pub message: String,
}

impl Refusal {
    /// A refusal.
    pub fn new(word: impl Into<String>, message: impl Into<String>) -> Self {
        Self { word: word.into(), message: message.into() }
    }
}

impl From<crate::admission::Refusal> for Refusal {
    fn from(refusal: crate::admission::Refusal) -> Self {
        Self::new(refusal.word(), refusal.to_string())
    }
}
