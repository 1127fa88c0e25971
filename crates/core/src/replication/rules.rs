//! Which kinds are copied to peers, and what holds for each.

use ferro_api::config::ReplicatedResource;
use ferro_api::discovery::ResourceRequest;
use ferro_api::net::NetworkConfig;
use ferro_api::sharing::ResourceOffer;
use ferro_api::virtualkubelet::NamespaceMap;
use kube::Resource;

/// A kind that is copied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// The kind.
    pub resource: ReplicatedResource,
    /// Fields of the copy's spec that somebody else keeps up to date.
    pub kept_by_others: &'static [&'static str],
    /// What is taken over of the status.
    pub status: StatusFields,
    /// How large a status may be, in bytes.
    pub status_bytes: usize,
    /// How many objects of the kind one peer may have here.
    pub most: usize,
}

/// Which fields of a status are taken over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatusFields {
    /// All.
    All,
    /// Those named.
    Only(&'static [&'static str]),
}

impl StatusFields {
    pub(super) fn allow(self, field: &str) -> bool {
        match self {
            Self::All => true,
            Self::Only(fields) => fields.contains(&field),
        }
    }
}

const KIB: usize = 1024;

/// The kinds that a peering itself needs, then those that the configuration adds.
pub fn rules(configured: &[ReplicatedResource]) -> Vec<Rule> {
    let mut rules = vec![
        rule::<ResourceRequest>(&[], &["offerState", "conditions"], 16 * KIB, 1),
        rule::<ResourceOffer>(&["renewTime"], &["phase", "virtualKubeletStatus", "conditions"], 16 * KIB, 1),
        rule::<NetworkConfig>(
            &[],
            &["processed", "podCIDRNAT", "externalCIDRNAT", "transitCIDRNATs", "conditions"],
            64 * KIB,
            256,
        ),
        rule::<NamespaceMap>(&[], &["currentMapping", "conditions"], 1024 * KIB, 1),
    ];
    for resource in configured {
        if rules.iter().all(|rule| rule.resource != *resource) {
            rules.push(Rule {
                resource: resource.clone(),
                kept_by_others: &[],
                status: StatusFields::All,
                status_bytes: 64 * KIB,
                most: 256,
            });
        }
    }
    rules
}

fn rule<K: Resource<DynamicType = ()>>(
    kept_by_others: &'static [&'static str],
    status: &'static [&'static str],
    status_bytes: usize,
    most: usize,
) -> Rule {
    let resource = ReplicatedResource {
        group: K::group(&()).into_owned(),
        version: K::version(&()).into_owned(),
        resource: K::plural(&()).into_owned(),
    };
    Rule { resource, kept_by_others, status: StatusFields::Only(status), status_bytes, most }
}

#[cfg(test)]
mod tests {
    use ferro_api::config::ReplicatedResource;

    use super::{StatusFields, rules};

    #[test]
    fn what_a_peering_needs_is_copied_in_any_case_and_only_once() {
        let resource = |group: &str, resource: &str| ReplicatedResource {
            group: group.into(),
            version: "v1alpha1".into(),
            resource: resource.into(),
        };
        let printed = resource("net.liqo.io", "networkconfigs");
        let rules = rules(&[printed.clone(), resource("example.org", "things")]);
        assert_eq!(rules.len(), 5);
        assert_eq!(rules.iter().filter(|rule| rule.resource == printed).count(), 1);
        assert_eq!(rules[4].status, StatusFields::All);
    }
}
