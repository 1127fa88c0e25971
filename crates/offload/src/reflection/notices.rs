//! What people are told about an object that does not get to another cluster, or not all of it.

use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;

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

    /// The other cluster has these endpoints itself, and takes none of its own from us.
    pub(super) fn left_out(node: &str, theirs: &BTreeSet<IpAddr>) -> Option<Self> {
        let first = theirs.first()?;
        let which = match theirs.len() {
            1 => first.to_string(),
            many => format!("{many} endpoints, as {first},"),
        };
        let told = format!(
            "the cluster of {node} has {which} itself, and takes none of its own from others, so they are left out there; \
             give the Service a selector, by which each cluster finds its own pods"
        );
        Some(Self { reason: "EndpointLeftOut", note: told })
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

    /// That it could not be told: it is to be told again.
    pub(super) fn forget(&mut self, key: &Key) {
        self.0.remove(key);
    }

    /// Forgets all objects of a namespace.
    pub(super) fn leave(&mut self, namespace: &str) {
        self.0.retain(|key, _| key.0 != namespace);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_that_are_left_out_are_told_in_one_short_sentence() {
        let theirs = |last: std::ops::Range<u8>| {
            last.map(|last| IpAddr::from([10, 7, 0, last])).collect::<BTreeSet<_>>()
        };
        assert_eq!(Notice::left_out("liqo-turin", &theirs(0..0)), None);
        let one = Notice::left_out("liqo-turin", &theirs(6..7)).unwrap();
        assert!(one.note.starts_with("the cluster of liqo-turin has 10.7.0.6 itself"), "{}", one.note);
        let many = Notice::left_out("liqo-turin", &theirs(6..206)).unwrap();
        assert!(many.note.contains("has 200 endpoints, as 10.7.0.6, itself"), "{}", many.note);
        assert!(many.note.len() <= 1024, "an API server takes no longer Event");
    }

    #[test]
    fn the_same_is_told_once_and_again_when_it_comes_back() {
        let (mut told, key) = (Told::default(), ("shop".into(), Kind::Service, "web".into()));
        let taken = Notice::taken(&Kind::Service, "web", "liqo-turin", "shop-rome");
        assert!(taken.note.contains("a Service shop-rome/web"), "{}", taken.note);
        assert_eq!(told.news(&key, Some(taken.clone())), Some(taken.clone()));
        assert_eq!(told.news(&key, Some(taken.clone())), None);
        assert_eq!(told.news(&key, None), None);
        assert_eq!(told.news(&key, Some(taken.clone())), Some(taken.clone()));
        told.forget(&key);
        assert_eq!(told.news(&key, Some(taken.clone())), Some(taken));
    }
}
