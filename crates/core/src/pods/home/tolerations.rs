//! For how long a pod stays on a virtual node whose peer is silent: as long as the drain delay says, not the five minutes
//! that Kubernetes gives to every pod.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Pod, Toleration};
use serde_json::{Value, json};

/// What a node is tainted with while its peer is not heard.
const SILENT: [&str; 2] = ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"];
const NO_EXECUTE: &str = "NoExecute";

/// The merge patch by which the pod stays for at least so long; none when it does.
///
/// A toleration for every taint is left as it is: it would hold the pod on a node that is being emptied, too.
pub(super) fn raise(pod: &Pod, delay: Duration) -> Option<Value> {
    let delay = i64::try_from(delay.as_secs()).unwrap_or(i64::MAX);
    let present = pod.spec.as_ref().and_then(|spec| spec.tolerations.as_deref()).unwrap_or_default();
    let mut wanted = present.to_vec();
    for key in SILENT {
        for toleration in wanted.iter_mut().filter(|one| one.key.as_deref() == Some(key) && covers(one)) {
            toleration.toleration_seconds = toleration.toleration_seconds.map(|seconds| seconds.max(delay));
        }
        if !wanted
            .iter()
            .any(|one| covers(one) && one.key.as_deref().is_none_or(|own| own.is_empty() || own == key))
        {
            wanted.push(Toleration {
                key: Some(key.to_owned()),
                operator: Some("Exists".to_owned()),
                effect: Some(NO_EXECUTE.to_owned()),
                toleration_seconds: Some(delay),
                value: None,
            });
        }
    }
    (wanted != present).then(|| json!({"spec": {"tolerations": wanted}}))
}

/// Whether it is about being moved away. The taints in question have no value.
fn covers(toleration: &Toleration) -> bool {
    toleration.effect.as_deref().is_none_or(|effect| effect.is_empty() || effect == NO_EXECUTE)
        && toleration.value.as_deref().is_none_or(str::is_empty)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use k8s_openapi::api::core::v1::Pod;
    use serde_json::{Value, json};

    use super::raise;

    const DAY: Duration = Duration::from_hours(24);

    fn raised(tolerations: &Value) -> Option<Value> {
        let pod: Pod =
            serde_json::from_value(json!({"spec": {"containers": [], "tolerations": tolerations}})).unwrap();
        raise(&pod, DAY).map(|patch| patch["spec"]["tolerations"].clone())
    }

    fn silent(name: &str, seconds: i64) -> Value {
        let key = format!("node.kubernetes.io/{name}");
        json!({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": seconds})
    }

    #[test]
    fn the_five_minutes_that_every_pod_gets_become_the_drain_delay() {
        let other = json!({"key": "example.com/own", "operator": "Exists", "tolerationSeconds": 7, "effect": "NoExecute"});
        let raised = raised(&json!([silent("not-ready", 300), other, silent("unreachable", 300)])).unwrap();
        assert_eq!(raised, json!([silent("not-ready", 86400), other, silent("unreachable", 86400)]));
    }

    #[test]
    fn who_stays_for_longer_or_for_ever_keeps_that() {
        let ever =
            json!({"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute"});
        assert_eq!(raised(&json!([ever, silent("unreachable", 100_000)])), None);
        assert_eq!(raised(&json!([{"operator": "Exists"}])), None);
    }

    #[test]
    fn a_toleration_for_everything_is_not_raised_lest_the_node_is_never_emptied() {
        assert_eq!(
            raised(&json!([{"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 60}])),
            None
        );
    }

    #[test]
    fn where_kubernetes_gives_no_pod_five_minutes_the_drain_delay_is_added() {
        let scheduling =
            json!({"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoSchedule"});
        let raised = raised(&json!([scheduling, silent("unreachable", 0)])).unwrap();
        assert_eq!(raised, json!([scheduling, silent("unreachable", 86400), silent("not-ready", 86400)]));
    }
}
