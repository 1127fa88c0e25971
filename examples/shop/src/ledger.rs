//! Carts and orders: the only state of the shop. A wish is decided here, in one place, so that an order is taken once.
//!
//! Pure: [`Ledger::order`] and [`Ledger::put`] say what would happen, [`Ledger::apply`] lets it happen, and the journal
//! in between makes it last.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::goods::{Lines, is_word};
use crate::orders::{Order, Purchase};

/// Different products in a cart.
const MOST_LINES: usize = 50;
/// Of one product.
const MOST_OF_ONE: u32 = 99;

/// What has happened, as it is written down.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Event {
    /// So many of a product are in a cart now.
    Put { customer: String, product: String, quantity: u32 },
    /// An order was taken, and the cart is empty.
    Ordered(Box<Order>),
}

/// How far an order is. Order and cart are read at once: an order that is taken in between would leave neither.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Standing {
    /// The order, if it was taken.
    pub(crate) order: Option<Order>,
    /// What is in the cart.
    pub(crate) cart: Lines,
}

/// What is to be done about an order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    /// It was taken before.
    Before(Box<Order>),
    /// It is new.
    Now(Event),
}

/// Why not.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Refusal {
    #[error("\"{0}\" is no name: use 1 to 64 lower-case letters, digits and dashes")]
    Name(String),
    #[error("a cart takes {MOST_LINES} products, and {MOST_OF_ONE} of each; order these first")]
    Full,
    #[error("the key {0} is that of another order; choose another")]
    KeyTaken(String),
    #[error("the cart has changed since; look at it and order again")]
    CartChanged,
    #[error("what was charged, what is sent and what is ordered differ")]
    Unequal,
}

/// All carts and orders.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ledger {
    carts: BTreeMap<String, Lines>,
    /// By key.
    orders: BTreeMap<String, Order>,
    /// Keys of the orders of each customer, as they were taken.
    customers: BTreeMap<String, Vec<String>>,
}

impl Ledger {
    /// What is in a customer's cart.
    pub(crate) fn cart(&self, customer: &str) -> Lines {
        self.carts.get(customer).cloned().unwrap_or_default()
    }

    /// All orders of a customer, in the order in which they were taken.
    pub(crate) fn orders_of(&self, customer: &str) -> Vec<&Order> {
        let keys = self.customers.get(customer).into_iter().flatten();
        keys.filter_map(|key| self.orders.get(key)).collect()
    }

    /// The order with that key.
    pub(crate) fn find(&self, key: &str) -> Option<&Order> {
        self.orders.get(key)
    }

    /// How far a customer's order is.
    pub(crate) fn standing(&self, customer: &str, key: &str) -> Standing {
        let order = self.find(key).filter(|order| order.customer == customer).cloned();
        Standing { order, cart: self.cart(customer) }
    }

    /// Sets how many of a product are in a cart; none takes it out.
    pub(crate) fn put(&self, customer: &str, product: &str, quantity: u32) -> Result<Event, Refusal> {
        for name in [customer, product] {
            check_name(name)?;
        }
        let cart = self.carts.get(customer);
        let is_new = !cart.is_some_and(|cart| cart.contains_key(product));
        if quantity > MOST_OF_ONE || (is_new && cart.is_some_and(|cart| cart.len() >= MOST_LINES)) {
            return Err(Refusal::Full);
        }
        Ok(Event::Put { customer: customer.into(), product: product.into(), quantity })
    }

    /// Takes an order, unless it was taken before.
    pub(crate) fn order(&self, customer: &str, key: &str, purchase: Purchase) -> Result<Taken, Refusal> {
        for name in [customer, key] {
            check_name(name)?;
        }
        if let Some(order) = self.orders.get(key) {
            let same = order.customer == customer;
            return if same {
                Ok(Taken::Before(order.clone().into()))
            } else {
                Err(Refusal::KeyTaken(key.into()))
            };
        }
        let (bill, receipt) = (&purchase.bill, &purchase.receipt);
        if receipt.amount != bill.total || receipt.key != key || purchase.parcel.lines != bill.as_lines() {
            return Err(Refusal::Unequal);
        }
        if bill.lines.is_empty() || self.cart(customer) != bill.as_lines() {
            return Err(Refusal::CartChanged);
        }
        let number = self.orders.len() as u64 + 1;
        let order = Order { number, key: key.into(), customer: customer.into(), purchase };
        Ok(Taken::Now(Event::Ordered(order.into())))
    }

    /// Lets it have happened.
    pub(crate) fn apply(&mut self, event: Event) {
        match event {
            Event::Put { customer, product, quantity: 0 } => {
                let left = self.carts.get_mut(&customer).map(|cart| {
                    cart.remove(&product);
                    cart.len()
                });
                if left == Some(0) {
                    self.carts.remove(&customer);
                }
            }
            Event::Put { customer, product, quantity } => {
                self.carts.entry(customer).or_default().insert(product, quantity);
            }
            Event::Ordered(order) => {
                self.carts.remove(&order.customer);
                self.customers.entry(order.customer.clone()).or_default().push(order.key.clone());
                self.orders.insert(order.key.clone(), *order);
            }
        }
    }
}

fn check_name(name: &str) -> Result<(), Refusal> {
    if is_word(name) { Ok(()) } else { Err(Refusal::Name(name.chars().take(64).collect())) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::goods::tests::catalog;
    use crate::orders::{Receipt, bill, parcel};

    fn purchase(key: &str, cart: &Lines) -> Purchase {
        let bill = bill(cart, &catalog()).unwrap();
        let (amount, number) = (bill.total, "1".to_owned());
        let receipt = Receipt { key: key.into(), amount, card: "0002".into(), number };
        Purchase { bill, receipt, parcel: parcel(cart, &catalog()) }
    }

    fn with_cart(customer: &str) -> Ledger {
        let mut ledger = Ledger::default();
        for (product, quantity) in [("barometer", 2), ("rain-gauge", 1)] {
            let event = ledger.put(customer, product, quantity).unwrap();
            ledger.apply(event);
        }
        ledger
    }

    fn take(ledger: &mut Ledger, customer: &str, key: &str, purchase: Purchase) -> Order {
        match ledger.order(customer, key, purchase).unwrap() {
            Taken::Before(order) => *order,
            Taken::Now(event) => {
                ledger.apply(event);
                ledger.find(key).unwrap().clone()
            }
        }
    }

    #[test]
    fn an_order_is_taken_once_however_often_it_is_sent() {
        let mut ledger = with_cart("ada");
        let purchase = purchase("k", &ledger.cart("ada"));
        let first = take(&mut ledger, "ada", "k", purchase.clone());
        assert!(ledger.cart("ada").is_empty());
        assert_eq!(take(&mut ledger, "ada", "k", purchase.clone()), first);
        assert_eq!(ledger.orders_of("ada"), [&first]);
        assert_eq!(ledger.order("bob", "k", purchase), Err(Refusal::KeyTaken("k".into())));
    }

    #[test]
    fn what_is_not_in_the_cart_is_not_ordered() {
        let mut ledger = with_cart("ada");
        let purchase = purchase("k", &ledger.cart("ada"));
        let event = ledger.put("ada", "barometer", 1).unwrap();
        ledger.apply(event);
        assert_eq!(ledger.order("ada", "k", purchase), Err(Refusal::CartChanged));
    }

    #[test]
    fn what_is_charged_and_sent_is_what_is_ordered() {
        let ledger = with_cart("ada");
        let right = purchase("k", &ledger.cart("ada"));
        let mut dearer = right.clone();
        dearer.receipt.amount += 1;
        let mut lighter = right.clone();
        lighter.parcel.lines.pop_first();
        let mut foreign = right;
        foreign.receipt.key = "other".into();
        for wrong in [dearer, lighter, foreign] {
            assert_eq!(ledger.order("ada", "k", wrong), Err(Refusal::Unequal));
        }
    }

    #[test]
    fn orders_are_numbered_as_they_come_and_carts_have_an_end() {
        let mut ledger = with_cart("ada");
        for number in 1..=3 {
            let event = ledger.put("ada", "barometer", 1).unwrap();
            ledger.apply(event);
            let purchase = purchase(&format!("k{number}"), &ledger.cart("ada"));
            assert_eq!(take(&mut ledger, "ada", &format!("k{number}"), purchase).number, number);
        }
        assert_eq!(ledger.put("ada", "barometer", 100), Err(Refusal::Full));
        for line in 0..MOST_LINES {
            let event = ledger.put("ada", &format!("p{line}"), 1).unwrap();
            ledger.apply(event);
        }
        assert_eq!(ledger.put("ada", "one-more", 1), Err(Refusal::Full));
        assert_eq!(ledger.put("Ada", "barometer", 1), Err(Refusal::Name("Ada".into())));
    }

    #[test]
    fn none_of_a_product_is_no_line_of_the_cart() {
        let mut ledger = with_cart("ada");
        for product in ["barometer", "rain-gauge", "never-there"] {
            let event = ledger.put("ada", product, 0).unwrap();
            ledger.apply(event);
        }
        assert_eq!(ledger, Ledger::default());
    }
}
