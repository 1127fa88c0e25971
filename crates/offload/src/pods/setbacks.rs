//! How long a pod that was turned away for want of room is held back before it fails: its owner makes another at once,
//! and the scheduler may choose the same node again before that says that it is full.

use std::collections::HashMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use tokio::time::Instant;

const FIRST: Duration = Duration::from_secs(1);
const MOST: Duration = Duration::from_mins(1);
/// After so long without a setback it counts from the beginning.
const FORGOTTEN: Duration = Duration::from_mins(5);

/// Setbacks, by whoever owns the pods.
#[derive(Debug, Default)]
pub(super) struct Setbacks(HashMap<(String, String), (u32, Instant)>);

impl Setbacks {
    /// How long the next one is held back.
    pub(super) fn pause(&self, pod: &Pod) -> Duration {
        let count =
            self.0.get(&owner(pod)).filter(|(_, at)| at.elapsed() < FORGOTTEN).map_or(0, |(count, _)| *count);
        FIRST.saturating_mul(2_u32.saturating_pow(count)).min(MOST)
    }

    /// One more has failed.
    pub(super) fn note(&mut self, pod: &Pod) {
        self.0.retain(|_, (_, at)| at.elapsed() < FORGOTTEN);
        let (count, at) = self.0.entry(owner(pod)).or_insert((0, Instant::now()));
        (*count, *at) = (count.saturating_add(1), Instant::now());
    }
}

/// Who makes the pod anew, else the pod itself.
fn owner(pod: &Pod) -> (String, String) {
    let owners = pod.metadata.owner_references.iter().flatten();
    let owner = owners.filter(|owner| owner.controller == Some(true)).map(|owner| owner.uid.clone()).next();
    (pod.namespace().unwrap_or_default(), owner.or_else(|| pod.uid()).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pod(uid: &str, owner: &str) -> Pod {
        let owners = json!([{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": owner, "controller": true}]);
        serde_json::from_value(json!({"metadata": {"name": uid, "uid": uid, "ownerReferences": owners}}))
            .unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn pods_of_one_owner_are_held_back_longer_and_longer_and_others_are_not() {
        let mut setbacks = Setbacks::default();
        let mut pauses = Vec::new();
        for uid in ["a", "b", "c"] {
            pauses.push(setbacks.pause(&pod(uid, "one")).as_secs());
            setbacks.note(&pod(uid, "one"));
        }
        assert_eq!(pauses, [1, 2, 4]);
        assert_eq!(setbacks.pause(&pod("d", "two")), FIRST);
        (0..20).for_each(|_| setbacks.note(&pod("e", "one")));
        assert_eq!(setbacks.pause(&pod("e", "one")), MOST);
        tokio::time::advance(FORGOTTEN).await;
        assert_eq!(setbacks.pause(&pod("e", "one")), FIRST);
    }
}
