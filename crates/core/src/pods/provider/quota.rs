//! Whether there is room for a pod: the account of a whole Tenant, charged before a pod is made.
//!
//! Charges are filed by namespace and name, of which there is one pod at a time.

use std::collections::BTreeSet;
use std::time::Duration;

use ferro_api::tenancy::Tenant;
use ferro_api::virtualkubelet::ShadowPod;
use k8s_openapi::api::core::v1::{Container, Pod, PodSpec};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::ResourceExt as _;

use super::plan::is_gated;
use super::shown::since;
use crate::offer::request_of;
use crate::pods::Refusal;
use crate::pods::inward::NO_ROOM;
use crate::resources::{Amount, PODS, ResourceMap};
use crate::tenancy::account::Account;
use crate::tenancy::counted;

/// So many pods a Tenant has at most, whatever its quota says: what is kept of each takes memory here.
const MOST_PODS: u64 = 10_000;

/// What is offered shrinks when a node is silent for a moment, and what it has grown to is known to the consumer before the
/// limits here and those of its namespaces have followed: for so long there may still be room for a pod that has none.
const FOLLOWS: SignedDuration = SignedDuration::from_secs(20);
/// How long to wait before it is looked again whether there is.
const AGAIN: Duration = Duration::from_secs(1);

/// After which pause a pod for which there is no room is weighed again; nothing where that is sure. By a clock that has been
/// set, it is sure at once.
pub fn weighed_again(
    tenant: &Tenant,
    shadow: &ShadowPod,
    refusal: &Refusal,
    now: Timestamp,
) -> Option<Duration> {
    let waits = now.duration_since(since(shadow).unwrap_or(now)).abs();
    let follows_offer = tenant.spec.resource_quota.is_none();
    (refusal.word == NO_ROOM && follows_offer && waits < FOLLOWS).then_some(AGAIN)
}

/// What a Tenant uses, and whether more fits. A plain value with one owner: of two for the last unit one has it.
#[derive(Clone, Debug, Default)]
pub struct Quota {
    account: Account,
    charged: BTreeSet<(String, String)>,
}

/// The limits of a whole Tenant; none before it is known what it is offered. Counts are for each of its namespaces, where
/// a `ResourceQuota` holds them.
pub fn limits(tenant: &Tenant) -> Option<ResourceMap> {
    let set = tenant.spec.resource_quota.as_ref();
    let shown = tenant.status.as_ref().map(|status| status.resource_quota.as_ref());
    let quota = set.map_or(shown, |set| Some(Some(set)))?;
    let mut limits = quota.map(|quota| ResourceMap::read(&quota.hard)).unwrap_or_default();
    let most = Amount::units(MOST_PODS);
    let is_limited = limits.names().any(|name| name == PODS);
    limits.set(PODS, if is_limited { limits.get(PODS).min(most) } else { most });
    Some(limits)
}

impl Quota {
    /// An account with the pods that there are. One that has ended, or may not run yet, takes nothing.
    pub fn open<'a>(limits: ResourceMap, pods: impl IntoIterator<Item = &'a Pod>) -> Self {
        let has_ended = |pod: &Pod| {
            let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
            matches!(phase, Some("Succeeded" | "Failed"))
        };
        // Who still waits for us is weighed before it is let in.
        let running: Vec<&Pod> = pods.into_iter().filter(|pod| !has_ended(pod) && !is_gated(pod)).collect();
        let key = |pod: &Pod| (pod.namespace().unwrap_or_default(), pod.name_any());
        let charges = running.iter().map(|pod| {
            let (namespace, name) = key(pod);
            (file(&namespace, &name), charge(pod))
        });
        Self {
            account: Account::open(limits, charges),
            charged: running.iter().map(|pod| key(pod)).collect(),
        }
    }

    /// Charges what a pod takes, in place of what one of its name took before; or says what is missing.
    pub fn admit(&mut self, namespace: &str, name: &str, pod: &Pod) -> Result<(), Refusal> {
        let admitted = self.account.admit(&file(namespace, name), charge(pod));
        admitted.map_err(|exceeded| Refusal::new(NO_ROOM, exceeded.to_string()))?;
        self.charged.insert((namespace.to_owned(), name.to_owned()));
        Ok(())
    }

    /// Gives back what was charged for a name.
    pub fn release(&mut self, namespace: &str, name: &str) {
        if self.account.release(&file(namespace, name)) {
            self.charged.remove(&(namespace.to_owned(), name.to_owned()));
        }
    }

    /// Gives back what was charged for a namespace that is gone, with all in it.
    pub fn release_namespace(&mut self, namespace: &str) {
        let from = (namespace.to_owned(), String::new());
        let within = self.charged.range(from..).take_while(|(place, _)| place == namespace);
        for (namespace, name) in within.cloned().collect::<Vec<_>>() {
            self.release(&namespace, &name);
        }
    }

    /// Other limits. What is charged stays.
    pub fn set_limits(&mut self, limits: ResourceMap) {
        self.account.set_limits(limits);
    }

    /// What is charged altogether.
    pub fn used(&self) -> &ResourceMap {
        self.account.used()
    }
}

fn file(namespace: &str, name: &str) -> String {
    format!("{namespace}/{name}")
}

/// A pod after a resize, as far as it is charged: what its `RuntimeClass` or a `LimitRange` has added stays.
pub fn resized(present: &Pod, wanted: &Pod) -> Pod {
    let mut sized = present.clone();
    let (Some(spec), Some(wanted)) = (&mut sized.spec, &wanted.spec) else { return sized };
    resize(&mut spec.containers, &wanted.containers);
    resize(
        spec.init_containers.as_deref_mut().unwrap_or_default(),
        wanted.init_containers.as_deref().unwrap_or_default(),
    );
    sized
}

/// Of amounts that are not wished for, those stay that are there.
fn resize(present: &mut [Container], wanted: &[Container]) {
    for container in present {
        let wish = wanted.iter().find(|wanted| wanted.name == container.name);
        let Some(wish) = wish.and_then(|wanted| wanted.resources.as_ref()) else { continue };
        let resources = container.resources.get_or_insert_default();
        let kinds = [(&mut resources.requests, &wish.requests), (&mut resources.limits, &wish.limits)];
        for (amounts, wished) in kinds {
            amounts.get_or_insert_default().extend(wished.clone().unwrap_or_default());
        }
    }
}

/// What a pod takes, under all the names that a quota has for it.
fn charge(pod: &Pod) -> ResourceMap {
    let (requests, limits) = (request_of(pod), request_of(&with_limits_as_requests(pod)));
    let mut charge = requests.clone();
    for name in requests.names().filter(|name| *name != PODS) {
        charge.set(format!("requests.{name}"), requests.get(name));
    }
    for name in limits.names().filter(|name| *name != PODS) {
        charge.set(format!("limits.{name}"), limits.get(name));
    }
    charge.set(counted(PODS), Amount::units(1));
    charge
}

fn with_limits_as_requests(pod: &Pod) -> Pod {
    let turned = |container: &Container| {
        let mut resources = container.resources.clone().unwrap_or_default();
        resources.requests = resources.limits.take();
        Container {
            resources: Some(resources),
            restart_policy: container.restart_policy.clone(),
            ..Container::default()
        }
    };
    let spec = pod.spec.as_ref().map(|spec| {
        let mut whole = spec.resources.clone().unwrap_or_default();
        whole.requests = whole.limits.take();
        PodSpec {
            containers: spec.containers.iter().map(turned).collect(),
            init_containers: spec.init_containers.as_ref().map(|all| all.iter().map(turned).collect()),
            resources: Some(whole),
            overhead: spec.overhead.clone(),
            ..PodSpec::default()
        }
    });
    Pod { spec, ..Pod::default() }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::PodSchedulingGate;
    use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
    use proptest::prelude::*;
    use serde_json::json;

    use super::super::plan::GATE;
    use super::super::shown::delayed;
    use super::*;
    use crate::resources::tests::resources;

    fn pod(namespace: &str, name: &str, cpu: &str, phase: &str) -> Pod {
        serde_json::from_value(json!({
            "metadata": {"namespace": namespace, "name": name},
            "spec": {"containers": [{"name": "c",
                "resources": {"requests": {"cpu": cpu}, "limits": {"cpu": "2"}}}]},
            "status": {"phase": phase},
        }))
        .unwrap()
    }

    fn tenant(value: &serde_json::Value) -> Tenant {
        let mut tenant = json!({"metadata": {"name": "c1"}, "spec": {"cluster": {"clusterID": "c1"}}});
        crate::replication::apply(&mut tenant, value);
        serde_json::from_value(tenant).unwrap()
    }

    #[test]
    fn before_a_tenant_shows_what_it_is_offered_nothing_is_made_for_it() {
        assert_eq!(limits(&tenant(&json!({}))), None);
        let offered = limits(&tenant(&json!({"status": {"resourceQuota": {"hard": {"cpu": "2"}}}})));
        assert_eq!(offered, Some(resources([("cpu", "2"), ("pods", "10k")])));
        assert_eq!(limits(&tenant(&json!({"status": {}}))), Some(resources([("pods", "10k")])));
    }

    #[test]
    fn what_an_administrator_sets_counts_at_once() {
        let set = json!({"spec": {"resourceQuota": {"hard": {"cpu": "1", "pods": "3"}}, "counts": {"pods": 2}},
            "status": {"resourceQuota": {"hard": {"cpu": "9"}}}});
        let expected = resources([("cpu", "1"), ("pods", "3")]);
        assert_eq!(limits(&tenant(&set)), Some(expected));
    }

    #[test]
    fn a_pod_without_room_is_weighed_again_until_the_limits_must_have_followed_the_offer() {
        let at = |second: i64| Timestamp::from_second(1_700_000_000 + second).unwrap();
        let (offered, set) = (json!({}), json!({"spec": {"resourceQuota": {"hard": {"cpu": "1"}}}}));
        let no_room = Refusal::new(NO_ROOM, "");
        let mut shadow: ShadowPod =
            serde_json::from_value(json!({"metadata": {"name": "a"}, "spec": {"pod": {}}})).unwrap();
        assert!(weighed_again(&tenant(&offered), &shadow, &no_room, at(0)).is_some(), "it was just made");
        shadow.status = Some(delayed(&shadow, &no_room, at(0)));
        let pause = |of, why: &Refusal, second| weighed_again(&tenant(of), &shadow, why, at(second));
        assert!(pause(&offered, &no_room, 19).is_some());
        assert_eq!(pause(&offered, &no_room, 20), None, "by then that is sure");
        assert_eq!(pause(&offered, &no_room, -3600), None, "somebody has set the clock");
        assert_eq!(pause(&set, &no_room, 0), None, "an administrator's limits follow nothing");
        assert_eq!(pause(&offered, &Refusal::new("Forbidden", ""), 0), None);
    }

    #[test]
    fn a_quota_binds_under_each_of_its_names() {
        for name in ["cpu", "requests.cpu", "limits.cpu", "pods", "count/pods"] {
            let mut quota = Quota::open(resources([(name, "2")]), []);
            let admitted =
                ["a", "b", "c"].map(|name| quota.admit("n", name, &pod("n", name, "1", "")).is_ok());
            let expected = if name == "limits.cpu" { [true, false, false] } else { [true, true, false] };
            assert_eq!(admitted, expected, "{name}");
        }
    }

    #[test]
    fn a_resize_leaves_what_a_runtime_class_has_added() {
        let mut present = pod("n", "a", "1", "Running");
        present.spec.as_mut().unwrap().overhead =
            Some([("cpu".to_owned(), Quantity("500m".to_owned()))].into());
        let larger = resized(&present, &pod("n", "a", "2", ""));
        assert_eq!(charge(&larger).get("cpu"), resources([("cpu", "2500m")]).get("cpu"));
    }

    #[test]
    fn a_resize_leaves_what_a_limit_range_has_added() {
        let mut wish = pod("n", "a", "2", "");
        wish.spec.as_mut().unwrap().containers[0].resources.as_mut().unwrap().limits = None;
        let larger = charge(&resized(&pod("n", "a", "1", "Running"), &wish));
        let expected = resources([("cpu", "2"), ("limits.cpu", "2")]);
        assert_eq!(
            ["cpu", "limits.cpu"].map(|name| larger.get(name)),
            ["cpu", "limits.cpu"].map(|name| expected.get(name))
        );
    }

    #[test]
    fn after_a_restart_what_runs_is_charged_and_what_has_ended_or_waits_for_us_is_not() {
        let mut gated = pod("m", "b", "1", "Pending");
        gated.spec.as_mut().unwrap().scheduling_gates =
            Some(vec![PodSchedulingGate { name: GATE.to_owned() }]);
        let (running, failed) = (pod("n", "a", "1", "Running"), pod("n", "b", "1", "Failed"));
        let pods = [running, failed, pod("m", "a", "1", "Pending"), gated];
        let mut quota = Quota::open(resources([("cpu", "2")]), &pods);
        let refused = quota.admit("n", "c", &pod("n", "c", "1", "")).unwrap_err();
        assert_eq!(refused.word, "QuotaExceeded");
        assert!(refused.message.contains("2 of 2 are in use"), "{}", refused.message);
        quota.release_namespace("n");
        assert_eq!(quota.used().get("cpu"), resources([("cpu", "1")]).get("cpu"));
        assert_eq!(quota.admit("n", "c", &pod("n", "c", "1", "")), Ok(()));
    }

    #[test]
    fn of_a_hundred_at_once_for_the_last_unit_one_wins() {
        let quota =
            std::sync::Mutex::new(Quota::open(resources([("cpu", "3")]), &[pod("n", "x", "2", "Running")]));
        let start = std::sync::Barrier::new(100);
        let won: usize = std::thread::scope(|scope| {
            let ask = |index: usize| {
                let (quota, start) = (&quota, &start);
                scope.spawn(move || {
                    let name = format!("p{index}");
                    let wanted = pod("n", &name, "1", "");
                    start.wait();
                    quota.lock().unwrap().admit("n", &name, &wanted).is_ok()
                })
            };
            let all: Vec<_> = (0..100).map(ask).collect();
            all.into_iter().map(|one| usize::from(one.join().unwrap())).sum()
        });
        assert_eq!(won, 1);
        assert_eq!(quota.into_inner().unwrap().used().get("cpu"), resources([("cpu", "3")]).get("cpu"));
    }

    proptest! {
        #[test]
        fn whoever_comes_and_goes_in_whatever_order_no_more_runs_than_the_quota_says(
            deeds in proptest::collection::vec((0..3_u8, 0..8_u8, any::<bool>()), 0..60),
        ) {
            let mut quota = Quota::open(resources([("pods", "3")]), []);
            let mut running = BTreeSet::new();
            for (namespace, name, comes) in deeds {
                let (namespace, name) = (format!("n{namespace}"), format!("p{name}"));
                let key = (namespace.clone(), name.clone());
                if comes {
                    let fits = running.contains(&key) || running.len() < 3;
                    let admitted = quota.admit(&namespace, &name, &pod(&namespace, &name, "1", "")).is_ok();
                    prop_assert_eq!(admitted, fits);
                    if admitted { running.insert(key); }
                } else if name == "p0" {
                    quota.release_namespace(&namespace);
                    running.retain(|(place, _)| *place != namespace);
                } else {
                    quota.release(&namespace, &name);
                    running.remove(&key);
                }
                prop_assert_eq!(quota.used().get("pods"), Amount::units(running.len() as u64));
                prop_assert_eq!(&quota.charged, &running);
            }
        }
    }
}
