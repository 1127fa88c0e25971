//! What was written of late, as long as the watches may not show it yet: nothing is decided from before a write.

use std::collections::HashMap;
use std::time::Duration;

use ferro_core::reflection::Wish;
use kube::ResourceExt as _;
use kube::api::DynamicObject;
use tokio::time::Instant;

use super::Key;

/// How long a watch may take to show what was written; after that it is looked at anyway.
const SEEN: Duration = Duration::from_secs(15);

/// Writes, by object.
#[derive(Default)]
pub(super) struct Recent {
    written: HashMap<Key, (Written, Instant)>,
    /// What the API server over there makes of a wish, where that is something else.
    made: HashMap<Key, (String, String)>,
}

enum Written {
    /// With this version.
    Put(u64),
    /// The one of this UID is gone, or goes.
    Deleted(String),
}

impl Written {
    fn is_seen(&self, copy: Option<&DynamicObject>) -> bool {
        match self {
            Self::Put(version) => copy.is_some_and(|copy| number(copy) >= *version),
            Self::Deleted(uid) => copy.is_none_or(|copy| {
                copy.uid().as_ref() != Some(uid) || copy.metadata.deletion_timestamp.is_some()
            }),
        }
    }
}

impl Recent {
    /// How long to wait for the watch to show what was written last.
    pub(super) fn pending(&mut self, key: &Key, copy: Option<&DynamicObject>) -> Option<Duration> {
        let (written, at) = self.written.get(key)?;
        let left = SEEN.saturating_sub(at.elapsed());
        if written.is_seen(copy) || left.is_zero() {
            self.written.remove(key);
            return None;
        }
        Some(left)
    }

    /// A copy was written, and answered as this.
    pub(super) fn put(&mut self, key: &Key, wish: &Wish, answered: DynamicObject) {
        self.written.insert(key.clone(), (Written::Put(number(&answered)), Instant::now()));
        match wish.otherwise(&key.1, answered) {
            Some(made) => _ = self.made.insert(key.clone(), (wish.signature().to_owned(), made)),
            None => _ = self.made.remove(key),
        }
    }

    /// A copy was deleted.
    pub(super) fn deleted(&mut self, key: &Key, uid: &str) {
        self.written.insert(key.clone(), (Written::Deleted(uid.to_owned()), Instant::now()));
        self.made.remove(key);
    }

    /// What is known to become of a wish over there.
    pub(super) fn made_of(&self, key: &Key, signature: &str) -> Option<String> {
        let (of, made) = self.made.get(key)?;
        (of == signature).then(|| made.clone())
    }

    /// Forgets all objects of a namespace.
    pub(super) fn forget(&mut self, namespace: &str) {
        self.written.retain(|key, _| key.0 != namespace);
        self.made.retain(|key, _| key.0 != namespace);
    }
}

/// Versions are numbers that grow, which Kubernetes has come to promise.
fn number(object: &DynamicObject) -> u64 {
    object.resource_version().and_then(|version| version.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use ferro_core::reflection::Kind;
    use serde_json::json;

    use super::*;

    fn copy(version: &str, uid: &str) -> DynamicObject {
        let object =
            json!({"metadata": {"name": "a", "resourceVersion": version, "uid": uid}, "data": {"a": "b"}});
        serde_json::from_value(object).unwrap()
    }

    fn wish() -> Wish {
        let mut original = copy("1", "o");
        Kind::ConfigMap.keep_original()(&mut original);
        Wish::of(&Kind::ConfigMap, &original, "rome")
    }

    #[tokio::test(start_paused = true)]
    async fn a_write_is_waited_for_until_it_shows_and_not_for_ever() {
        let (mut recent, key) = (Recent::default(), ("shop".into(), Kind::ConfigMap, "a".into()));
        assert_eq!(recent.pending(&key, None), None);
        recent.put(&key, &wish(), copy("7", "u"));
        assert!(
            recent.pending(&key, None).is_some() && recent.pending(&key, Some(&copy("6", "u"))).is_some()
        );
        assert_eq!(recent.pending(&key, Some(&copy("7", "u"))), None);
        recent.deleted(&key, "u");
        assert!(recent.pending(&key, Some(&copy("7", "u"))).is_some());
        assert_eq!(recent.pending(&key, Some(&copy("8", "other"))), None);
        recent.put(&key, &wish(), copy("9", "u"));
        tokio::time::advance(SEEN).await;
        assert_eq!(recent.pending(&key, None), None, "it was made and deleted unseen");
        assert_eq!(recent.made_of(&key, wish().signature()), None, "it is as it was wished for");
        let mut other = copy("9", "u");
        other.data = json!({"data": {}});
        recent.put(&key, &wish(), other);
        assert!(recent.made_of(&key, wish().signature()).is_some() && recent.made_of(&key, "t").is_none());
    }
}
