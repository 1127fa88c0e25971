//! Amounts of resources, exact as Kubernetes counts them: read, added, shared out and written back.
//!
//! A quantity is a number with a suffix, and two that look different may be equal (`1`, `1000m`). An
//! [`Amount`] is the number in billionths, the finest that Kubernetes knows, together with the suffix family
//! it was written in; it is never negative, and prints in the same canonical form that an API server uses. No
//! crate was found that prints that form (`1.5Gi` is `1536Mi`) and follows the versions of `k8s-openapi`.

mod amount;

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

pub use amount::{Amount, ParseAmountError};

/// The resource that is divided into thousandths; all others are counted in whole units.
pub const CPU: &str = "cpu";
/// The number of pods.
pub const PODS: &str = "pods";

/// An amount of each of several resources.
///
/// A resource that is not named is one of which there is nothing, except in [`ResourceMap::limit_to`], where
/// it is one that has no limit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResourceMap(BTreeMap<String, Amount>);

impl ResourceMap {
    /// The entries that are amounts. Others, such as the `true` of a service that is merely there, are left
    /// out: they cannot be counted.
    pub fn read(quantities: &BTreeMap<String, Quantity>) -> Self {
        let amount = |(name, quantity): (&String, &Quantity)| Some((name.clone(), quantity.0.parse().ok()?));
        Self(quantities.iter().filter_map(amount).collect())
    }

    /// The amounts as an API server writes them.
    pub fn quantities(&self) -> BTreeMap<String, Quantity> {
        self.0.iter().map(|(name, amount)| (name.clone(), Quantity(amount.to_string()))).collect()
    }

    /// How much there is of a resource.
    pub fn get(&self, name: &str) -> Amount {
        self.0.get(name).copied().unwrap_or_default()
    }

    /// Sets how much there is of a resource.
    pub fn set(&mut self, name: impl Into<String>, amount: Amount) {
        self.0.insert(name.into(), amount);
    }

    /// Sets a limit of a resource, unless there is a lower one.
    pub fn tighten(&mut self, name: &str, limit: Amount) {
        let present = self.0.entry(name.to_owned()).or_insert(limit);
        *present = (*present).min(limit);
    }

    /// The names of the resources.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// Keeps only the resources whose name passes.
    pub fn retain(&mut self, mut keep: impl FnMut(&str) -> bool) {
        self.0.retain(|name, _| keep(name));
    }

    /// Puts the other amounts on top of these.
    pub fn add(&mut self, other: &Self) {
        self.combine(other, Amount::saturating_add);
    }

    /// Raises each amount to the other one where that is larger.
    pub fn raise_to(&mut self, other: &Self) {
        self.combine(other, Ord::max);
    }

    /// Takes the other amounts away from these, down to nothing.
    pub fn subtract(&mut self, other: &Self) {
        for (name, amount) in &mut self.0 {
            *amount = amount.saturating_sub(other.get(name));
        }
    }

    /// Lowers each amount to its limit, where there is one.
    pub fn limit_to(&mut self, limits: &Self) {
        for (name, amount) in &mut self.0 {
            if let Some(limit) = limits.0.get(name) {
                *amount = (*amount).min(*limit);
            }
        }
    }

    /// Keeps so many hundredths of each amount, rounded down to what can be used: thousandths of a CPU, whole
    /// units of anything else.
    pub fn keep_percent(&mut self, percent: u8) {
        for (name, amount) in &mut self.0 {
            let share = amount.percent(percent);
            *amount = if name == CPU { share.whole_thousandths() } else { share.whole_units() };
        }
    }

    /// The largest change of any resource, in thousandths of the larger of the two amounts.
    pub fn change_from(&self, previous: &Self) -> u32 {
        let change = |name| self.get(name).change_from(previous.get(name));
        self.names().chain(previous.names()).map(change).max().unwrap_or_default()
    }

    fn combine(&mut self, other: &Self, with: impl Fn(Amount, Amount) -> Amount) {
        for (name, amount) in &other.0 {
            match self.0.get_mut(name) {
                Some(present) => *present = with(*present, *amount),
                None => self.set(name.clone(), *amount),
            }
        }
    }
}

impl<N: Into<String>> FromIterator<(N, Amount)> for ResourceMap {
    fn from_iter<I: IntoIterator<Item = (N, Amount)>>(entries: I) -> Self {
        Self(entries.into_iter().map(|(name, amount)| (name.into(), amount)).collect())
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::collections::BTreeMap;

    use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

    use super::ResourceMap;

    /// Quantities, as a manifest has them.
    pub(crate) fn quantities<const N: usize>(entries: [(&str, &str); N]) -> BTreeMap<String, Quantity> {
        entries.map(|(name, quantity)| (name.to_owned(), Quantity(quantity.to_owned()))).into()
    }

    /// Amounts, from quantities.
    pub(crate) fn resources<const N: usize>(entries: [(&str, &str); N]) -> ResourceMap {
        ResourceMap::read(&quantities(entries))
    }

    #[test]
    fn what_is_not_a_quantity_is_left_out() {
        let read = resources([("cpu", "2"), ("brokering.liqo.io/redis", "true"), ("memory", "-1")]);
        assert_eq!(read, resources([("cpu", "2")]));
    }

    #[test]
    fn sums_have_the_resources_of_both() {
        let mut sum = resources([("cpu", "1"), ("memory", "1Gi")]);
        sum.add(&resources([("cpu", "500m"), ("pods", "3")]));
        assert_eq!(sum.quantities(), quantities([("cpu", "1500m"), ("memory", "1Gi"), ("pods", "3")]));
    }

    #[test]
    fn what_is_taken_away_leaves_no_less_than_nothing() {
        let mut left = resources([("cpu", "1"), ("memory", "1Gi")]);
        left.subtract(&resources([("cpu", "2"), ("memory", "1Mi"), ("pods", "1")]));
        assert_eq!(left.quantities(), quantities([("cpu", "0"), ("memory", "1023Mi")]));
    }

    #[test]
    fn a_limit_binds_only_what_it_names() {
        let mut limited = resources([("cpu", "8"), ("memory", "1Gi"), ("pods", "5")]);
        limited.limit_to(&resources([("cpu", "4"), ("memory", "2Gi"), ("example.org/gpu", "1")]));
        assert_eq!(limited, resources([("cpu", "4"), ("memory", "1Gi"), ("pods", "5")]));
    }

    #[test]
    fn a_share_is_rounded_down_to_what_can_be_used() {
        let mut share = resources([("cpu", "1001m"), ("pods", "99"), ("memory", "1001"), ("gpu", "1")]);
        share.keep_percent(80);
        let expected = [("cpu", "800m"), ("gpu", "0"), ("memory", "800"), ("pods", "79")];
        assert_eq!(share.quantities(), quantities(expected));
    }

    #[test]
    fn the_largest_change_counts_also_for_what_is_new_or_gone() {
        let before = resources([("cpu", "100"), ("memory", "100")]);
        assert_eq!(before.change_from(&before), 0);
        assert_eq!(resources([("cpu", "99"), ("memory", "95")]).change_from(&before), 50);
        assert_eq!(resources([("cpu", "100")]).change_from(&before), 1000);
        assert_eq!(before.change_from(&resources([("cpu", "100")])), 1000);
    }
}
