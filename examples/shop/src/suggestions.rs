//! What else a customer may like: what shares most subjects with what is in the cart.

use crate::goods::{Catalog, Lines, Product};

/// So many are suggested.
const SHOWN: usize = 3;

/// Ids of products that go with a cart, the best first; none of them is in it.
pub(crate) fn suggest(cart: &Lines, catalog: &Catalog) -> Vec<String> {
    let chosen: Vec<&Product> = cart.keys().filter_map(|id| catalog.get(id)).collect();
    let shared = |product: &Product| {
        chosen.iter().map(|other| other.subjects.intersection(&product.subjects).count()).sum::<usize>()
    };
    let mut others: Vec<_> = catalog
        .products()
        .filter(|product| !cart.contains_key(&product.id))
        .map(|product| (shared(product), product))
        .filter(|(shared, _)| *shared > 0 || chosen.is_empty())
        .collect();
    // Stable: those that fit equally well stay in the order of the catalog.
    others.sort_by_key(|(shared, _)| std::cmp::Reverse(*shared));
    others.into_iter().take(SHOWN).map(|(_, product)| product.id.clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::goods::tests::catalog;

    #[test]
    fn what_shares_most_subjects_comes_first_and_nothing_twice() {
        let cart = Lines::from([("barometer".into(), 1), ("wind-vane".into(), 1)]);
        assert_eq!(suggest(&cart, &catalog()), ["storm-glass", "rain-gauge"]);
    }

    #[test]
    fn who_has_chosen_nothing_is_shown_something() {
        assert_eq!(suggest(&Lines::new(), &catalog()), ["barometer", "rain-gauge", "storm-glass"]);
    }

    #[test]
    fn what_has_nothing_in_common_is_not_suggested() {
        let cart = Lines::from([("rain-gauge".into(), 1)]);
        assert_eq!(suggest(&cart, &catalog()), ["wind-vane"]);
    }
}
