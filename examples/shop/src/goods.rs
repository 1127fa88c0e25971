//! What is sold. Prices are whole cents, so that sums are right to the cent.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};

/// Money.
pub(crate) type Cents = u64;
/// Products and how many of each: what a cart holds, and a parcel.
pub(crate) type Lines = BTreeMap<String, u32>;

/// Most products that a catalog may have.
const MOST_PRODUCTS: usize = 200;
/// The dearest that a product may be; with the limits of carts no sum can overflow.
const DEAREST: Cents = 10_000_000;

/// One product.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Product {
    /// What it is called in addresses.
    pub(crate) id: String,
    /// What people call it.
    pub(crate) name: String,
    /// One sentence.
    pub(crate) about: String,
    /// What one costs.
    pub(crate) price: Cents,
    /// What one weighs.
    pub(crate) grams: u32,
    /// What it is about; products that share a subject go together.
    pub(crate) subjects: BTreeSet<String>,
}

/// All products, by id.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Catalog(BTreeMap<String, Product>);

impl Catalog {
    /// Reads the list of products that the shop's owner wrote.
    pub(crate) fn parse(text: &str) -> Result<Self> {
        Self::new(serde_json::from_str(text).context("the list of products cannot be read")?)
    }

    /// A catalog of these products, if all can be sold.
    pub(crate) fn new(products: Vec<Product>) -> Result<Self> {
        ensure!(!products.is_empty() && products.len() <= MOST_PRODUCTS, "1 to {MOST_PRODUCTS} products");
        let mut catalog = BTreeMap::new();
        for product in products {
            let id = product.id.clone();
            ensure!(is_word(&id), "\"{id}\": an id has 1 to 64 lower-case letters, digits and dashes");
            ensure!((1..=DEAREST).contains(&product.price), "{id}: a price is from 1 to {DEAREST} cents");
            ensure!(catalog.insert(id.clone(), product).is_none(), "{id} is there twice");
        }
        Ok(Self(catalog))
    }

    /// One of them.
    pub(crate) fn get(&self, id: &str) -> Option<&Product> {
        self.0.get(id)
    }

    /// All of them, in the order of their ids.
    pub(crate) fn products(&self) -> impl Iterator<Item = &Product> {
        self.0.values()
    }
}

/// Whether a text may stand in an address: of a product, a customer, an order.
pub(crate) fn is_word(text: &str) -> bool {
    let legal = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    (1..=64).contains(&text.len()) && text.chars().all(legal)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn product(id: &str, price: Cents, subjects: &[&str]) -> Product {
        Product {
            id: id.into(),
            name: id.to_uppercase(),
            about: String::new(),
            price,
            grams: 100,
            subjects: subjects.iter().map(ToString::to_string).collect(),
        }
    }

    pub(crate) fn catalog() -> Catalog {
        let products = [
            product("barometer", 6450, &["pressure", "indoors"]),
            product("rain-gauge", 1890, &["rain", "garden"]),
            product("wind-vane", 4205, &["wind", "garden"]),
            product("storm-glass", 3320, &["pressure", "indoors"]),
        ];
        Catalog::new(products.into()).unwrap()
    }

    #[test]
    fn a_catalog_that_could_not_be_sold_from_is_refused() {
        let twice = vec![product("a", 1, &[]), product("a", 2, &[])];
        for (products, why) in [
            (vec![], "1 to 200 products"),
            (twice, "a is there twice"),
            (vec![product("a", 0, &[])], "a price is from 1"),
            (vec![product("A b", 1, &[])], "an id has"),
        ] {
            let refusal = Catalog::new(products).unwrap_err().to_string();
            assert!(refusal.contains(why), "{refusal}");
        }
        assert!(Catalog::parse(r#"[{"id": "a", "colour": "red"}]"#).is_err());
    }
}
