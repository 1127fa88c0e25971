//! What an API server asks about a pod. Everybody in the cluster can ask the same.

use std::sync::LazyLock;

use ferro_api::offloading::{NamespaceOffloading, NamespaceOffloadingSpec, PodOffloadingStrategy};
use ferro_core::admission::{Addition, Review, admit};
use ferro_core::names::is_dns_label;
use serde_json::{Value, json};

use crate::Read;

/// Policies of each strategy.
static POLICIES: LazyLock<Vec<NamespaceOffloading>> = LazyLock::new(|| {
    let strategies =
        [PodOffloadingStrategy::LocalAndRemote, PodOffloadingStrategy::Local, PodOffloadingStrategy::Remote];
    let policy = |strategy| {
        let spec = NamespaceOffloadingSpec {
            pod_offloading_strategy: Some(strategy),
            ..NamespaceOffloadingSpec::default()
        };
        NamespaceOffloading::new("offloading", spec)
    };
    strategies.into_iter().map(policy).collect()
});

/// A question about a pod: what is added can be added, and a second look adds nothing.
pub fn admission_review(data: &[u8]) -> Read {
    let review = Review::parse(data).ok()?;
    assert!(is_dns_label(&review.namespace));
    for policy in POLICIES.iter() {
        let Ok(additions) = admit(&review.pod, policy) else { continue };
        let answer = review.allow(&additions);
        assert_eq!(answer["response"]["allowed"], true);
        let patched = patched(json!(review.pod), &additions);
        let again = serde_json::from_value(patched.clone()).map(|pod| admit(&pod, policy));
        assert!(matches!(again, Ok(Ok(ref left)) if left.is_empty()), "{patched}");
    }
    Some(())
}

fn patched(mut pod: Value, additions: &[Addition]) -> Value {
    for Addition { path, value } in additions {
        let (parent, key) = path.rsplit_once('/').unwrap_or_default();
        let is_put = match pod.pointer_mut(parent) {
            Some(Value::Array(list)) if key == "-" => {
                list.push(value.clone());
                true
            }
            Some(Value::Object(fields)) => {
                fields.insert(key.to_owned(), value.clone());
                true
            }
            _ => false,
        };
        assert!(is_put, "{path} leads nowhere in {pod}");
    }
    pod
}
