//! What people are told about an object that does not get to another cluster.

use std::collections::HashMap;

use ferro_core::reflection::Kind;

use super::Key;

/// A word, and a sentence that says what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Notice {
    pub(super) reason: &'static str,
    pub(super) note: String,
}

impl Notice {
    /// Somebody has an object of that name in our namespace over there.
    pub(super) fn taken(kind: &Kind, name: &str, node: &str, there: &str) -> Self {
        let kind = match kind {
            Kind::Custom(listed) => listed.resource.clone(),
            built_in => built_in.resource().kind,
        };
        let told = format!(
            "the cluster of {node} has a {kind} {there}/{name} that was not made from this one, and it is left alone; \
             delete it there, or give this one another name"
        );
        Self { reason: "NameTaken", note: told }
    }

    /// The other cluster does not allow it.
    pub(super) fn refused(node: &str, refusal: &str) -> Self {
        Self { reason: "NotAllowed", note: format!("the cluster of {node} refuses a copy of it: {refusal}") }
    }

    /// Nobody knows which clusters are meant.
    pub(super) fn unreadable(why: String) -> Self {
        Self { reason: "BadSelector", note: why }
    }
}

/// What was told about each object last.
#[derive(Default)]
pub(super) struct Told(HashMap<Key, Notice>);

impl Told {
    /// What is to be told now: nothing that was told before, as long as it lasts.
    pub(super) fn news(&mut self, key: &Key, notice: Option<Notice>) -> Option<Notice> {
        let Some(notice) = notice else {
            self.0.remove(key);
            return None;
        };
        let before = self.0.insert(key.clone(), notice.clone());
        (before.as_ref() != Some(&notice)).then_some(notice)
    }

    /// Forgets all objects of a namespace.
    pub(super) fn forget(&mut self, namespace: &str) {
        self.0.retain(|key, _| key.0 != namespace);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_is_told_once_and_again_when_it_comes_back() {
        let (mut told, key) = (Told::default(), ("shop".into(), Kind::Service, "web".into()));
        let taken = Notice::taken(&Kind::Service, "web", "liqo-turin", "shop-rome");
        assert!(taken.note.contains("a Service shop-rome/web"), "{}", taken.note);
        assert_eq!(told.news(&key, Some(taken.clone())), Some(taken.clone()));
        assert_eq!(told.news(&key, Some(taken.clone())), None);
        assert_eq!(told.news(&key, None), None);
        assert_eq!(told.news(&key, Some(taken.clone())), Some(taken));
    }
}
