//! The quota of a whole Tenant, as an account: what is charged to it, and whether more fits.
//!
//! Kubernetes has no quota over several namespaces. Whoever turns a consumer's wish into an object asks the account
//! first. It is a plain value with one owner, so that requests come one after the other: of two for the last unit one is
//! admitted, whichever comes first. It is never stored: after a restart it is opened with what exists.

use std::collections::BTreeMap;
use std::fmt;

use crate::resources::{Amount, ResourceMap};

/// What is charged to a Tenant, by whatever tells the charges apart, such as the UID of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Account {
    limits: ResourceMap,
    charges: BTreeMap<String, ResourceMap>,
    used: ResourceMap,
}

/// Why a charge is refused: each resource of which there is not enough.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exceeded(pub Vec<Shortage>);

/// A resource of which there is not enough.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shortage {
    /// Its name.
    pub resource: String,
    /// How much more was asked for.
    pub asked: Amount,
    /// How much is charged already.
    pub used: Amount,
    /// How much there is.
    pub limit: Amount,
}

impl Account {
    /// An account that has these limits and is charged with what exists, even if that is more than they allow. What no
    /// limit names is not limited.
    pub fn open(limits: ResourceMap, existing: impl IntoIterator<Item = (String, ResourceMap)>) -> Self {
        let mut account = Self { limits, ..Self::default() };
        for (key, charge) in existing {
            account.replace(key, charge);
        }
        account
    }

    /// Charges what an object takes, in place of what it took before; or changes nothing, and says what is missing. To
    /// take no more than before is always possible.
    pub fn admit(&mut self, key: &str, charge: ResourceMap) -> Result<(), Exceeded> {
        let nothing = ResourceMap::default();
        let before = self.charges.get(key).unwrap_or(&nothing);
        let shortage = |resource: &str| {
            let (limit, used) = (self.limits.get(resource), self.used.get(resource));
            let asked = charge.get(resource).saturating_sub(before.get(resource));
            let fits = asked.is_zero() || used.saturating_add(asked) <= limit;
            (!fits).then(|| Shortage { resource: resource.to_owned(), asked, used, limit })
        };
        let shortages: Vec<Shortage> = self.limits.names().filter_map(shortage).collect();
        if !shortages.is_empty() {
            return Err(Exceeded(shortages));
        }
        self.replace(key.to_owned(), charge);
        Ok(())
    }

    /// Gives back what was charged for an object; says whether anything was.
    pub fn release(&mut self, key: &str) -> bool {
        let Some(charge) = self.charges.remove(key) else { return false };
        self.used.subtract(&charge);
        true
    }

    /// Other limits. What is charged stays, even if it is more than they allow.
    pub fn set_limits(&mut self, limits: ResourceMap) {
        self.limits = limits;
    }

    /// What is charged altogether.
    pub fn used(&self) -> &ResourceMap {
        &self.used
    }

    fn replace(&mut self, key: String, charge: ResourceMap) {
        self.release(&key);
        self.used.add(&charge);
        self.charges.insert(key, charge);
    }
}

impl fmt::Display for Exceeded {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str("the quota of the Tenant is exceeded: ")?;
        for (index, shortage) in self.0.iter().enumerate() {
            let Shortage { resource, asked, used, limit } = shortage;
            let between = if index == 0 { "" } else { "; " };
            write!(to, "{between}{asked} of {resource} were asked for, {used} of {limit} are in use")?;
        }
        Ok(())
    }
}

impl std::error::Error for Exceeded {}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::resources::tests::resources;

    fn pod(cpu: &str) -> ResourceMap {
        resources([("cpu", cpu), ("pods", "1")])
    }

    #[test]
    fn what_does_not_fit_is_refused_with_the_numbers_and_changes_nothing() {
        let mut account = Account::open(resources([("cpu", "4"), ("pods", "9")]), []);
        assert_eq!(account.admit("a", pod("3500m")), Ok(()));
        let before = account.clone();
        let refused = account.admit("b", pod("1")).unwrap_err();
        assert_eq!(
            refused.to_string(),
            "the quota of the Tenant is exceeded: 1 of cpu were asked for, 3500m of 4 are in use"
        );
        assert_eq!(account, before);
        assert!(account.release("a") && !account.release("a"));
        assert_eq!(account.admit("b", pod("1")), Ok(()));
    }

    #[test]
    fn one_that_takes_another_amount_is_charged_the_difference() {
        let mut account = Account::open(resources([("cpu", "2")]), []);
        assert_eq!(account.admit("a", pod("1")), Ok(()));
        assert_eq!(account.admit("a", pod("2")), Ok(()));
        assert!(account.admit("a", pod("3")).is_err());
        assert_eq!(account.admit("a", pod("500m")), Ok(()));
        assert_eq!(account.used().get("cpu"), resources([("cpu", "500m")]).get("cpu"));
    }

    #[test]
    fn what_exists_is_charged_whatever_the_limits_say_and_nothing_is_added_to_it() {
        let existing = [("a".to_owned(), pod("3")), ("b".to_owned(), pod("3"))];
        let mut account = Account::open(resources([("cpu", "4")]), existing);
        assert!(account.admit("c", pod("1m")).is_err());
        assert_eq!(account.admit("a", pod("2")), Ok(()), "less is always possible");
        assert_eq!(account.admit("d", resources([("memory", "1Gi")])), Ok(()), "memory has no limit");
    }

    #[derive(Clone, Debug)]
    enum Deed {
        Admit(u8, u64),
        Release(u8),
    }

    fn deeds() -> impl Strategy<Value = Vec<Deed>> {
        let deed = prop_oneof![
            (0..6_u8, 0..5_u64).prop_map(|(key, units)| Deed::Admit(key, units)),
            (0..6_u8).prop_map(Deed::Release),
        ];
        proptest::collection::vec(deed, 0..40)
    }

    fn units(count: u64) -> ResourceMap {
        [("cpu", Amount::units(count))].into_iter().collect()
    }

    proptest! {
        #[test]
        fn in_whatever_order_requests_come_exactly_as_many_win_as_there_are_units(
            limit in 0..8_u64, order in Just((0..12_u8).collect::<Vec<_>>()).prop_shuffle(),
        ) {
            let mut account = Account::open(units(limit), []);
            let won = order.iter().filter(|key| account.admit(&key.to_string(), units(1)).is_ok()).count();
            prop_assert_eq!(won as u64, limit);
            let first: Vec<_> = order.iter().take(won).map(ToString::to_string).collect();
            prop_assert!(first.iter().all(|key| account.charges.contains_key(key)), "the first ones win");
        }

        #[test]
        fn no_interleaving_of_requests_goes_beyond_the_limit_or_loses_a_unit(limit in 0..12_u64, deeds in deeds()) {
            let mut account = Account::open(units(limit), []);
            let mut held: BTreeMap<u8, u64> = BTreeMap::new();
            for deed in deeds {
                match deed {
                    Deed::Admit(key, count) => {
                        let others: u64 = held.iter().filter(|(other, _)| **other != key).map(|(_, units)| units).sum();
                        let fits = others + count <= limit;
                        prop_assert_eq!(account.admit(&key.to_string(), units(count)).is_ok(), fits);
                        if fits {
                            held.insert(key, count);
                        }
                    }
                    Deed::Release(key) => {
                        prop_assert_eq!(account.release(&key.to_string()), held.remove(&key).is_some());
                    }
                }
                let sum: u64 = held.values().sum();
                prop_assert_eq!(account.used().get("cpu"), Amount::units(sum));
                let replayed = held.iter().map(|(key, count)| (key.to_string(), units(*count)));
                let replayed = Account::open(units(limit), replayed);
                prop_assert_eq!(replayed.used().get("cpu"), account.used().get("cpu"), "as after a restart");
            }
        }
    }
}
