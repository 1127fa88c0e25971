//! Which namespaces have pods on a cluster: they go from its map after their pods.

use std::collections::BTreeSet;
use std::sync::Arc;

/// Which namespaces of this cluster have pods on another one, as the agent of its node says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Occupants {
    /// None: nobody runs pods elsewhere.
    Nobody,
    /// Nobody has looked yet, so that any may have some.
    #[default]
    Unknown,
    /// These, or what was theirs may be left.
    Of(Arc<BTreeSet<String>>),
}

impl Occupants {
    /// Whether a namespace has pods there, or may have.
    pub fn has(&self, namespace: &str) -> bool {
        match self {
            Self::Nobody => false,
            Self::Unknown => true,
            Self::Of(namespaces) => namespaces.contains(namespace),
        }
    }

    /// Those that either of two knows of, who look at different pods of one cluster.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Unknown, _) | (_, Self::Unknown) => Self::Unknown,
            (Self::Nobody, known) | (known, Self::Nobody) => known,
            (Self::Of(some), Self::Of(others)) => Self::Of(Arc::new(&*some | &*others)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Arc, Occupants};

    #[test]
    fn of_two_that_look_each_is_believed_what_it_has_seen_and_neither_that_there_is_no_more() {
        let of =
            |names: &[&str]| Occupants::Of(Arc::new(names.iter().map(|&name| name.to_owned()).collect()));
        assert_eq!(of(&["a"]).and(of(&["b"])), of(&["a", "b"]));
        assert_eq!(of(&["a"]).and(Occupants::Nobody), of(&["a"]));
        assert_eq!(of(&["a"]).and(Occupants::Unknown), Occupants::Unknown);
    }
}
