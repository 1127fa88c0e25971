//! What holds for a Tenant now: what its administrator set, else what the configuration and the offer say.

use std::collections::BTreeMap;

use ferro_api::common::ResourceQuota;
use ferro_api::config::{PodSecurity, TenancyConfig};
use ferro_api::tenancy::TenantSpec;
use k8s_openapi::api::core::v1::LimitRangeSpec;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use crate::resources::ResourceMap;

/// The prefix under which a `ResourceQuota` counts objects of a kind.
const COUNT: &str = "count/";
/// The prefix under which it counts resources that are not Kubernetes' own.
const REQUESTS: &str = "requests.";
/// The prefix under which nodes count the volumes that can be attached to them.
const VOLUMES: &str = "attachable-volumes-";

/// What holds for a Tenant now.
#[derive(Clone, Debug, PartialEq)]
pub struct Terms {
    /// How many namespaces it may have.
    pub namespaces: u32,
    /// The most that all its namespaces use together.
    pub quota: Option<ResourceQuota>,
    /// The Pod Security level of its namespaces.
    pub pod_security: PodSecurity,
    pub(super) ceiling: Ceiling,
    pub(super) limit_range: Option<LimitRangeSpec>,
    pub(super) isolation: bool,
}

/// The most that one namespace uses, in the words of a `ResourceQuota`.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Ceiling {
    pub(super) hard: BTreeMap<String, Quantity>,
    /// Whether it follows the offer, whose figures change all the time.
    pub(super) follows_offer: bool,
}

impl Terms {
    /// What the Tenant says, else the configuration, else the offer.
    pub fn of(spec: &TenantSpec, config: &TenancyConfig, offered: Option<&ResourceQuota>) -> Self {
        let quota = spec.resource_quota.as_ref().or(offered);
        let follows_offer = spec.namespace_ceiling.is_none() && spec.resource_quota.is_none();
        let most = spec.namespace_ceiling.as_ref().or(quota);
        let mut hard: BTreeMap<String, Quantity> = match most {
            Some(offer) if follows_offer => {
                let mut known = ResourceMap::read(&offer.hard);
                known.retain(can_be_limited);
                known.quantities()
            }
            Some(set) => {
                let mut hard = set.hard.clone();
                hard.retain(|name, _| can_be_limited(name) || !is_of_nodes(name, offered));
                hard
            }
            None => BTreeMap::new(),
        };
        hard = hard.into_iter().map(|(name, amount)| (as_counted(&name), amount)).collect();
        let counts = spec.counts.iter().map(|(kind, count)| (counted(kind), Quantity(count.to_string())));
        hard.extend(counts);
        Self {
            namespaces: spec.namespace_quota.unwrap_or_else(|| config.namespace_quota()),
            quota: quota.cloned(),
            pod_security: spec.pod_security.unwrap_or_else(|| config.pod_security()),
            ceiling: Ceiling { hard, follows_offer },
            limit_range: spec.limit_range.clone().or_else(|| config.limit_range.clone()),
            isolation: spec.isolation(),
        }
    }
}

/// The name under which objects of a kind are counted.
pub fn counted(kind: &str) -> String {
    format!("{COUNT}{kind}")
}

/// The name of a resource as a `ResourceQuota` counts it.
fn as_counted(name: &str) -> String {
    let is_foreign = name.contains('/') && !name.starts_with(COUNT) && !name.starts_with(REQUESTS);
    if is_foreign { format!("{REQUESTS}{name}") } else { name.to_owned() }
}

/// The name of a resource as offers and Tenants have it.
pub(super) fn as_offered(name: &str) -> &str {
    name.strip_prefix(REQUESTS).filter(|rest| rest.contains('/')).unwrap_or(name)
}

/// Whether a `ResourceQuota` can limit a resource of an offer: one that cannot must not keep all others from it.
fn can_be_limited(name: &str) -> bool {
    matches!(name, "cpu" | "memory" | "pods" | "ephemeral-storage")
        || name.starts_with("hugepages-")
        || name.contains('/')
}

/// Whether a resource is one that nodes have. A quota that is set begins with the whole offer, and also with what a
/// `ResourceQuota` cannot limit. A name that neither it nor the offer has is a mistake, which its administrator is to hear of.
fn is_of_nodes(name: &str, offered: Option<&ResourceQuota>) -> bool {
    name.starts_with(VOLUMES) || offered.is_some_and(|offer| offer.hard.contains_key(name))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::resources::tests::quantities;

    fn quota<const N: usize>(hard: [(&str, &str); N]) -> ResourceQuota {
        ResourceQuota { hard: quantities(hard) }
    }

    #[test]
    fn what_is_not_set_follows_the_offer_in_the_words_of_a_resource_quota() {
        let offered = quota([("cpu", "4"), ("example.org/gpu", "1"), ("redis", "1"), ("memory", "?")]);
        let terms = Terms::of(&TenantSpec::default(), &TenancyConfig::default(), Some(&offered));
        assert_eq!(terms.ceiling.hard, quantities([("cpu", "4"), ("requests.example.org/gpu", "1")]));
        assert!(terms.ceiling.follows_offer);
        assert_eq!((terms.namespaces, terms.pod_security), (100, PodSecurity::Baseline));
        assert_eq!(as_offered("requests.example.org/gpu"), "example.org/gpu");
        assert_eq!(as_offered("requests.cpu"), "requests.cpu");
    }

    #[test]
    fn what_an_administrator_set_holds_instead() {
        let spec: TenantSpec = serde_json::from_value(json!({
            "cluster": {"clusterID": "c1"}, "namespaceQuota": 3, "podSecurity": "restricted",
            "resourceQuota": {"hard": {"cpu": "2"}}, "counts": {"widgets.example.org": 5}, "isolation": false,
        }))
        .unwrap();
        let terms = Terms::of(&spec, &TenancyConfig::default(), Some(&quota([("cpu", "4"), ("pods", "9")])));
        let hard = quantities([("cpu", "2"), ("count/widgets.example.org", "5")]);
        assert_eq!(terms.ceiling, Ceiling { hard, follows_offer: false });
        assert_eq!((terms.namespaces, terms.pod_security), (3, PodSecurity::Restricted));
        assert!(!terms.isolation);
    }

    #[test]
    fn what_cannot_be_limited_does_not_keep_a_quota_that_was_set_from_the_rest() {
        let hard =
            json!({"cpu": "2", "attachable-volumes-csi": "39", "redis": "1", "limits.cpu": "3", "cpus": "1"});
        let offered = quota([("cpu", "4"), ("redis", "1")]);
        for field in ["resourceQuota", "namespaceCeiling"] {
            let spec = json!({"cluster": {"clusterID": "c1"}, field: {"hard": hard}});
            let spec: TenantSpec = serde_json::from_value(spec).unwrap();
            let terms = Terms::of(&spec, &TenancyConfig::default(), Some(&offered));
            let left = quantities([("cpu", "2"), ("limits.cpu", "3"), ("cpus", "1")]);
            assert_eq!(terms.ceiling.hard, left, "a name that nobody knows is to be seen");
        }
    }

    #[test]
    fn a_ceiling_for_one_namespace_need_not_be_that_of_all() {
        let spec: TenantSpec = serde_json::from_value(json!({
            "cluster": {"clusterID": "c1"}, "namespaceCeiling": {"hard": {"cpu": "1"}},
        }))
        .unwrap();
        let terms = Terms::of(&spec, &TenancyConfig::default(), Some(&quota([("cpu", "4")])));
        assert_eq!(terms.ceiling, Ceiling { hard: quantities([("cpu", "1")]), follows_offer: false });
    }
}
