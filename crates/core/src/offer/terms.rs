//! The terms of an offer: how much of what is free a peer gets, at what price, and what goes with it.

use std::collections::BTreeMap;

use ferro_api::common::ResourceQuota;
use ferro_api::config::ClusterConfigSpec;
use ferro_api::discovery::{PeerPolicy, ResourceRequestSpec};
use ferro_api::sharing::{OfferedStorageClass, ResourceOfferSpec};
use k8s_openapi::api::storage::v1::StorageClass;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use crate::resources::{PODS, ResourceMap};

const DEFAULT_CLASS: &str = "storageclass.kubernetes.io/is-default-class";
const ARCHITECTURE: &str = "kubernetes.io/arch";
/// As many as an offer can hold.
const MOST_CLASSES: usize = 64;

/// What holds for offers to one peer.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Terms {
    /// How much of what is free the peer is offered, in percent.
    pub percent: u8,
    /// The most that the peer is offered of each resource.
    pub limits: ResourceMap,
    /// The price of each resource, for a unit of it and an hour.
    pub prices: BTreeMap<String, Quantity>,
    /// Further information that goes with the offer.
    pub properties: BTreeMap<String, String>,
    /// Labels that this cluster claims for itself.
    pub labels: BTreeMap<String, String>,
    /// How often the offer is confirmed, in seconds.
    pub renew_period: u32,
}

impl Terms {
    /// As configured, and where the peer has a policy of its own, as that says. Limits and prices are
    /// replaced one by one.
    pub fn for_peer(config: &ClusterConfigSpec, peer: Option<&PeerPolicy>) -> Self {
        let advertisement = config.advertisement();
        let general = advertisement.outgoing();
        let percent = peer.and_then(|peer| peer.resource_sharing_percentage);
        let quota = peer.and_then(|peer| peer.resource_quota.as_ref());
        let prices = peer.map(|peer| peer.prices.clone()).unwrap_or_default();
        Self {
            percent: percent.unwrap_or_else(|| general.resource_sharing_percentage()),
            limits: limits(general.resource_quota.as_ref(), quota),
            prices: general.prices.into_iter().chain(prices).collect(),
            properties: general.properties,
            labels: config.cluster_labels.clone(),
            renew_period: u32::try_from(advertisement.keepalive_retry_time().as_secs()).unwrap_or(u32::MAX),
        }
    }

    /// Says of which architecture the nodes are, unless the configuration says so itself.
    #[must_use]
    pub fn with_architecture(mut self, architecture: Option<&str>) -> Self {
        if let Some(architecture) = architecture {
            self.labels.entry(ARCHITECTURE.to_owned()).or_insert_with(|| architecture.to_owned());
        }
        self
    }

    /// At most what the Tenant of the peer may use here: more would be promised and refused.
    #[must_use]
    pub fn within(mut self, quota: Option<&ResourceQuota>) -> Self {
        let most = quota.map(|quota| ResourceMap::read(&quota.hard)).unwrap_or_default();
        for name in most.names() {
            self.limits.tighten(as_offered(name), most.get(name));
        }
        self
    }

    /// The first property that is asked for and that this cluster does not have.
    pub fn missing_property<'a>(&self, request: &'a ResourceRequestSpec) -> Option<(&'a str, &'a str)> {
        let missing = |(name, value): &(&String, &String)| self.properties.get(*name) != Some(*value);
        request.properties.iter().find(missing).map(|(name, value)| (name.as_str(), value.as_str()))
    }
}

/// The name of a resource as nodes have it. A quota has several for some of them.
fn as_offered(name: &str) -> &str {
    match name {
        "count/pods" => PODS,
        _ => name.strip_prefix("requests.").unwrap_or(name),
    }
}

fn limits(general: Option<&ResourceQuota>, peer: Option<&ResourceQuota>) -> ResourceMap {
    let hard = [general, peer].into_iter().flatten().flat_map(|quota| &quota.hard);
    hard.filter_map(|(name, quantity)| Some((name, quantity.0.parse().ok()?))).collect()
}

/// The offer that answers a request: what is free, less the part kept back, within the limits of both sides.
pub fn compose(
    cluster_id: &str,
    mut free: ResourceMap,
    terms: &Terms,
    classes: Vec<OfferedStorageClass>,
    request: &ResourceRequestSpec,
) -> ResourceOfferSpec {
    free.keep_percent(terms.percent);
    free.limit_to(&terms.limits);
    free.limit_to(&ResourceMap::read(&request.resources));
    ResourceOfferSpec {
        cluster_id: cluster_id.to_owned(),
        resource_quota: Some(ResourceQuota { hard: free.quantities() }),
        prices: terms.prices.clone(),
        properties: terms.properties.clone(),
        labels: terms.labels.clone(),
        storage_classes: classes,
        renew_period_seconds: Some(terms.renew_period),
        ..ResourceOfferSpec::default()
    }
}

/// The storage classes that pods of a peer may use, in the order of their names.
pub fn storage_classes<'a>(classes: impl IntoIterator<Item = &'a StorageClass>) -> Vec<OfferedStorageClass> {
    let mut offered: Vec<_> = classes.into_iter().filter_map(offered_class).collect();
    offered.sort_by(|a, b| a.storage_class_name.cmp(&b.storage_class_name));
    offered.truncate(MOST_CLASSES);
    offered
}

fn offered_class(class: &StorageClass) -> Option<OfferedStorageClass> {
    let annotations = class.metadata.annotations.as_ref();
    let default = annotations.and_then(|all| all.get(DEFAULT_CLASS)).is_some_and(|value| value == "true");
    let storage_class_name = class.metadata.name.clone()?;
    Some(OfferedStorageClass { storage_class_name, default: default.then_some(true) })
}

#[cfg(test)]
mod tests {
    use ferro_api::common::ResourceQuota;
    use ferro_api::config::ClusterConfigSpec;
    use ferro_api::discovery::{PeerPolicy, ResourceRequestSpec};
    use serde_json::{Value, json};

    use super::{Terms, compose, storage_classes};
    use crate::resources::tests::{quantities, resources};

    fn config() -> ClusterConfigSpec {
        serde_json::from_value(json!({
            "advertisementConfig": {"outgoingConfig": {
                "resourceSharingPercentage": 50,
                "resourceQuota": {"hard": {"cpu": "4", "memory": "8Gi"}},
                "prices": {"cpu": "10m", "memory": "1m"},
                "properties": {"currency": "EUR"},
            }},
            "clusterLabels": {"liqo.io/region": "eu-west"},
        }))
        .unwrap()
    }

    fn request(spec: Value) -> ResourceRequestSpec {
        serde_json::from_value(spec).unwrap()
    }

    #[test]
    fn an_offer_is_within_the_percentage_the_quota_and_what_was_asked_for() {
        let free = resources([("cpu", "10"), ("memory", "4Gi"), ("pods", "100")]);
        let request = request(json!({"resources": {"pods": "20", "cpu": "100"}}));
        let offer = compose("b", free, &Terms::for_peer(&config(), None), vec![], &request);
        let hard = offer.resource_quota.unwrap().hard;
        assert_eq!(hard, quantities([("cpu", "4"), ("memory", "2Gi"), ("pods", "20")]));
        assert_eq!(offer.prices, quantities([("cpu", "10m"), ("memory", "1m")]));
        assert_eq!(offer.labels["liqo.io/region"], "eu-west");
        assert_eq!((offer.cluster_id.as_str(), offer.properties["currency"].as_str()), ("b", "EUR"));
        assert_eq!(offer.renew_period_seconds, Some(20));
    }

    #[test]
    fn the_policy_of_a_peer_replaces_what_it_names_and_nothing_else() {
        let policy: PeerPolicy = serde_json::from_value(json!({
            "resourceSharingPercentage": 100,
            "resourceQuota": {"hard": {"cpu": "8"}},
            "prices": {"cpu": "5m"},
        }))
        .unwrap();
        let terms = Terms::for_peer(&config(), Some(&policy));
        assert_eq!(terms.percent, 100);
        assert_eq!(terms.limits, resources([("cpu", "8"), ("memory", "8Gi")]));
        assert_eq!(terms.prices, quantities([("cpu", "5m"), ("memory", "1m")]));
    }

    #[test]
    fn no_more_is_offered_than_the_tenant_of_the_peer_may_use() {
        let free =
            || resources([("cpu", "10"), ("memory", "40Gi"), ("pods", "100"), ("example.org/gpu", "4")]);
        let offered = |quota: Option<&ResourceQuota>| {
            let terms = Terms::for_peer(&config(), None).within(quota);
            compose("b", free(), &terms, vec![], &ResourceRequestSpec::default()).resource_quota.unwrap().hard
        };
        let quota = |hard| ResourceQuota { hard };
        let whole = [("cpu", "4"), ("memory", "8Gi"), ("pods", "50"), ("example.org/gpu", "2")];
        assert_eq!(offered(None), quantities(whole));
        let wider =
            quota(quantities([("cpu", "6"), ("memory", "?"), ("services", "1"), ("limits.cpu", "1")]));
        assert_eq!(offered(Some(&wider)), quantities(whole));
        let narrower =
            [("cpu", "3"), ("requests.cpu", "1"), ("pods", "2"), ("requests.example.org/gpu", "0")];
        let left = [("cpu", "1"), ("memory", "8Gi"), ("pods", "2"), ("example.org/gpu", "0")];
        assert_eq!(offered(Some(&quota(quantities(narrower)))), quantities(left));
        assert_eq!(offered(Some(&quota(quantities([("count/pods", "3")]))))["pods"].0, "3");
    }

    #[test]
    fn a_property_that_is_asked_for_and_not_there_is_named() {
        let terms = Terms::for_peer(&config(), None);
        assert_eq!(terms.missing_property(&request(json!({"properties": {"currency": "EUR"}}))), None);
        let asked = request(json!({"properties": {"currency": "EUR", "sla": "gold"}}));
        assert_eq!(terms.missing_property(&asked), Some(("sla", "gold")));
    }

    #[test]
    fn the_architecture_of_the_nodes_is_said_unless_the_administrator_says_another() {
        let mut config = config();
        let terms = Terms::for_peer(&config, None).with_architecture(Some("arm64"));
        assert_eq!(terms.labels["kubernetes.io/arch"], "arm64");
        config.cluster_labels.insert("kubernetes.io/arch".into(), "amd64".into());
        let terms = Terms::for_peer(&config, None).with_architecture(Some("arm64"));
        assert_eq!(terms.labels["kubernetes.io/arch"], "amd64");
    }

    #[test]
    fn storage_classes_are_in_order_and_the_default_is_marked() {
        let class = |name: &str, default: &str| {
            let annotations = json!({super::DEFAULT_CLASS: default});
            let class = json!({"metadata": {"name": name, "annotations": annotations}, "provisioner": "p"});
            serde_json::from_value(class).unwrap()
        };
        let offered = storage_classes(&[class("local-path", "true"), class("liqo", "false")]);
        let expected =
            json!([{"storageClassName": "liqo"}, {"storageClassName": "local-path", "default": true}]);
        assert_eq!(json!(offered), expected);
    }
}
