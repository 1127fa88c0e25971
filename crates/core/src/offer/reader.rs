//! The seam between those who know of resources and those who offer them: readers that can be chained.
//!
//! A reader answers at once, from what it knows; one that must ask somebody keeps the last answer. The
//! originator is named so that a cluster never gets its own resources back.

use std::collections::BTreeMap;

use crate::resources::ResourceMap;

/// A source of resources to offer.
pub trait ResourceReader {
    /// The resources that may be offered to a cluster.
    fn read(&self, originator: &str) -> ResourceMap;
}

impl<R: ResourceReader + ?Sized> ResourceReader for &R {
    fn read(&self, originator: &str) -> ResourceMap {
        (**self).read(originator)
    }
}

impl<R: ResourceReader + ?Sized> ResourceReader for Box<R> {
    fn read(&self, originator: &str) -> ResourceMap {
        (**self).read(originator)
    }
}

/// The same to everybody.
impl ResourceReader for ResourceMap {
    fn read(&self, _originator: &str) -> ResourceMap {
        self.clone()
    }
}

/// Passes on so many hundredths: to keep 20 % for oneself, the share is 80.
#[derive(Clone, Debug)]
pub struct Share<R> {
    /// Where the resources come from.
    pub of: R,
    /// How much of them is passed on.
    pub percent: u8,
}

impl<R: ResourceReader> ResourceReader for Share<R> {
    fn read(&self, originator: &str) -> ResourceMap {
        let mut resources = self.of.read(originator);
        resources.keep_percent(self.percent);
        resources
    }
}

/// Passes on to each cluster only the resources that it may have.
#[derive(Clone, Debug)]
pub struct Filter<R, F> {
    /// Where the resources come from.
    pub of: R,
    /// Whether a cluster may have a resource.
    pub allows: F,
}

impl<R: ResourceReader, F: Fn(&str, &str) -> bool> ResourceReader for Filter<R, F> {
    fn read(&self, originator: &str) -> ResourceMap {
        let mut resources = self.of.read(originator);
        resources.retain(|name| (self.allows)(originator, name));
        resources
    }
}

/// The sum over several clusters, without the one that will get the offer.
#[derive(Clone, Debug, Default)]
pub struct Aggregate<R> {
    /// The source of each cluster, by its identifier.
    pub members: BTreeMap<String, R>,
}

impl<R: ResourceReader> ResourceReader for Aggregate<R> {
    fn read(&self, originator: &str) -> ResourceMap {
        let others = self.members.iter().filter(|(cluster, _)| *cluster != originator);
        others.fold(ResourceMap::default(), |mut sum, (_, member)| {
            sum.add(&member.read(originator));
            sum
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{Aggregate, Filter, ResourceReader, Share};
    use crate::resources::tests::resources;

    #[test]
    fn a_share_of_eighty_keeps_a_fifth() {
        let share = Share { of: resources([("cpu", "10"), ("pods", "9")]), percent: 80 };
        assert_eq!(share.read("c1"), resources([("cpu", "8"), ("pods", "7")]));
    }

    #[test]
    fn a_filter_decides_for_each_cluster() {
        let of = resources([("cpu", "10"), ("example.org/gpu", "1")]);
        let filter = Filter { of, allows: |cluster: &str, name: &str| cluster == "c1" || name == "cpu" };
        assert_eq!(filter.read("c1"), resources([("cpu", "10"), ("example.org/gpu", "1")]));
        assert_eq!(filter.read("c2"), resources([("cpu", "10")]));
    }

    #[test]
    fn a_cluster_never_gets_its_own_resources_back() {
        let member = |cluster: &str, cpu| (cluster.to_owned(), resources([("cpu", cpu)]));
        let all = Aggregate { members: [member("c1", "1"), member("c2", "2"), member("c3", "4")].into() };
        assert_eq!(all.read("c2"), resources([("cpu", "5")]));
        assert_eq!(all.read("c4"), resources([("cpu", "7")]));
    }

    #[test]
    fn stages_can_be_chained_in_any_order_behind_one_name() {
        let members = [("c1".to_owned(), resources([("cpu", "10"), ("pods", "10")]))].into();
        let filter = Filter { of: Aggregate { members }, allows: |_: &str, name: &str| name != "pods" };
        let chain: Box<dyn ResourceReader> = Box::new(Share { of: filter, percent: 50 });
        assert_eq!(chain.read("c2"), resources([("cpu", "5")]));
    }
}
