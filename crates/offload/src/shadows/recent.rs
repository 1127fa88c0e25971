//! What the API server answered and the watches have not shown yet, so that nothing is done twice.
//!
//! Versions of one kind grow; what is older than an answer is not looked at. An answer that is never seen, since the
//! object has changed or gone again meanwhile, counts for some seconds.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ferro_api::virtualkubelet::ShadowPod;
use k8s_openapi::api::core::v1::Pod;
use kube::Resource;
use tokio::time::Instant;

use super::Key;

/// For so long an answer counts that no watch has shown.
pub(super) const COUNTS: Duration = Duration::from_secs(5);

/// The answers of the last seconds.
#[derive(Default)]
pub(super) struct Recent(Mutex<HashMap<Key, Answers>>);

#[derive(Default)]
struct Answers {
    shadow: Option<(Arc<ShadowPod>, Instant)>,
    pod: Option<(Answer, Instant)>,
}

#[derive(Clone)]
enum Answer {
    There(Arc<Pod>),
    /// The pod of this UID is gone.
    Gone(String),
}

impl Recent {
    /// A ShadowPod is so now.
    pub(super) fn note_shadow(&self, key: &Key, shadow: ShadowPod) {
        self.lock().entry(key.clone()).or_default().shadow =
            Some((Arc::new(shadow), Instant::now() + COUNTS));
    }

    /// A pod is so now.
    pub(super) fn note_pod(&self, key: &Key, pod: Pod) {
        self.note(key, Answer::There(Arc::new(pod)));
    }

    /// A pod is gone.
    pub(super) fn note_gone(&self, key: &Key, uid: &str) {
        self.note(key, Answer::Gone(uid.to_owned()));
    }

    fn note(&self, key: &Key, answer: Answer) {
        self.lock().entry(key.clone()).or_default().pod = Some((answer, Instant::now() + COUNTS));
    }

    /// Whether something counts that the watches have not shown.
    pub(super) fn has(&self, key: &Key) -> bool {
        self.lock().contains_key(key)
    }

    /// What is so now, given what the watches show. What they have caught up with is forgotten.
    pub(super) fn merge(
        &self,
        key: &Key,
        shadow: Option<Arc<ShadowPod>>,
        pod: Option<Arc<Pod>>,
    ) -> (Option<Arc<ShadowPod>>, Option<Arc<Pod>>) {
        let mut recent = self.lock();
        let Some(answers) = recent.get_mut(key) else { return (shadow, pod) };
        let now = Instant::now();
        // A ShadowPod was seen before it was answered, so that one that is not there is gone.
        let newer = |answer: &Arc<ShadowPod>| {
            shadow.as_ref().is_some_and(|seen| {
                is_same(answer.as_ref(), seen.as_ref()) && is_behind(seen.as_ref(), answer.as_ref())
            })
        };
        answers.shadow.take_if(|(answer, until)| *until <= now || !newer(answer));
        answers.pod.take_if(|(answer, until)| *until <= now || !counts(answer, pod.as_deref()));
        let shadow = answers.shadow.as_ref().map_or(shadow, |(answer, _)| Some(answer.clone()));
        let pod = match &answers.pod {
            None => pod,
            Some((Answer::There(answer), _)) => Some(answer.clone()),
            Some((Answer::Gone(_), _)) => None,
        };
        if answers.shadow.is_none() && answers.pod.is_none() {
            recent.remove(key);
        }
        (shadow, pod)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Key, Answers>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether an answer about a pod is news to who sees this.
fn counts(answer: &Answer, seen: Option<&Pod>) -> bool {
    match (answer, seen) {
        // One that goes and is not seen is gone: who deleted it has seen it.
        (Answer::There(answer), None) => answer.metadata.deletion_timestamp.is_none(),
        (Answer::There(answer), Some(seen)) => is_behind(seen, answer.as_ref()),
        (Answer::Gone(uid), seen) => seen.is_some_and(|seen| seen.metadata.uid.as_ref() == Some(uid)),
    }
}

fn is_same<K: Resource>(one: &K, other: &K) -> bool {
    one.meta().uid == other.meta().uid
}

/// Whether one is older than the other. Versions that cannot be compared are as good as seen.
fn is_behind<K: Resource>(seen: &K, answer: &K) -> bool {
    let version = |object: &K| object.meta().resource_version.as_ref()?.parse::<u64>().ok();
    matches!((version(seen), version(answer)), (Some(seen), Some(answer)) if seen < answer)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use k8s_openapi::jiff::Timestamp;

    use super::*;

    fn key() -> Key {
        ("n".to_owned(), "p".to_owned())
    }

    fn pod(uid: &str, version: &str) -> Pod {
        let mut pod = Pod::default();
        (pod.metadata.uid, pod.metadata.resource_version) = (Some(uid.into()), Some(version.into()));
        pod
    }

    fn shadow(uid: &str, version: &str) -> ShadowPod {
        let mut shadow = ShadowPod::default();
        (shadow.metadata.uid, shadow.metadata.resource_version) = (Some(uid.into()), Some(version.into()));
        shadow
    }

    fn version(recent: &Recent, seen: Option<Pod>) -> Option<String> {
        let (_, pod) = recent.merge(&key(), None, seen.map(Arc::new));
        pod.and_then(|pod| pod.metadata.resource_version.clone())
    }

    #[tokio::test(start_paused = true)]
    async fn a_pod_that_was_made_is_there_before_the_watch_shows_it() {
        let recent = Recent::default();
        recent.note_pod(&key(), pod("u1", "7"));
        assert_eq!(version(&recent, None).as_deref(), Some("7"));
        assert_eq!(version(&recent, Some(pod("u0", "6"))).as_deref(), Some("7"));
        assert_eq!(version(&recent, Some(pod("u1", "8"))).as_deref(), Some("8"));
        assert!(!recent.has(&key()));
        assert_eq!(version(&recent, None), None, "what was seen and is not there is gone");
    }

    #[tokio::test(start_paused = true)]
    async fn a_pod_that_is_gone_is_not_seen_any_more_and_its_successor_is() {
        let recent = Recent::default();
        recent.note_gone(&key(), "u1");
        assert_eq!(version(&recent, Some(pod("u1", "7"))), None);
        assert_eq!(version(&recent, Some(pod("u2", "9"))).as_deref(), Some("9"));
        assert!(!recent.has(&key()));
    }

    #[tokio::test(start_paused = true)]
    async fn a_pod_that_was_to_go_and_went_at_once_is_not_waited_for() {
        let (recent, mut going) = (Recent::default(), pod("u1", "7"));
        going.metadata.deletion_timestamp = Some(Time(Timestamp::UNIX_EPOCH));
        recent.note_pod(&key(), going);
        assert_eq!(version(&recent, Some(pod("u1", "6"))).as_deref(), Some("7"));
        assert_eq!(version(&recent, None), None);
        assert!(!recent.has(&key()));
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_that_is_never_seen_does_not_count_for_ever() {
        let recent = Recent::default();
        recent.note_pod(&key(), pod("u1", "7"));
        tokio::time::advance(COUNTS).await;
        assert_eq!(version(&recent, None), None);
        assert!(!recent.has(&key()));
    }

    #[tokio::test(start_paused = true)]
    async fn a_shadow_that_is_gone_or_another_one_is_not_held_back() {
        let recent = Recent::default();
        let seen = |version: Option<ShadowPod>| {
            let (shadow, _) = recent.merge(&key(), version.map(Arc::new), None);
            shadow.and_then(|shadow| shadow.metadata.resource_version.clone())
        };
        recent.note_shadow(&key(), shadow("s1", "7"));
        assert_eq!(seen(Some(shadow("s1", "6"))).as_deref(), Some("7"));
        assert_eq!(seen(None), None);
        recent.note_shadow(&key(), shadow("s1", "7"));
        assert_eq!(seen(Some(shadow("s2", "5"))).as_deref(), Some("5"));
        recent.note_shadow(&key(), shadow("s1", "7"));
        assert_eq!(seen(Some(shadow("s1", "x"))).as_deref(), Some("x"));
    }
}
