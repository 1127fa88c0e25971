//! Whether an order is what its customer meant: the same goods were billed, charged and sent, to the cent, and once.

use std::collections::BTreeMap;

use crate::goods::{Cents, Lines, Product};
use crate::orders::{Bill, Order};

/// What a customer wants to have, at the prices that were shown.
#[derive(Clone, Debug)]
pub(super) struct Wish {
    pub(super) customer: String,
    pub(super) key: String,
    pub(super) lines: Lines,
    prices: BTreeMap<String, Cents>,
}

impl Wish {
    /// Something different for each number, out of what is sold.
    pub(super) fn new(customer: &str, products: &[Product], number: u64) -> Self {
        let mut lines = Lines::new();
        let number = usize::try_from(number).unwrap_or_default();
        for line in 0..=(number % 3) {
            if let Some(product) = products.get((number * 7 + line * 3) % products.len().max(1)) {
                let quantity = u32::try_from((number + line) % 4 + 1).unwrap_or(1);
                lines.insert(product.id.clone(), quantity);
            }
        }
        let prices = products.iter().map(|product| (product.id.clone(), product.price)).collect();
        Self { customer: customer.into(), key: format!("{customer}-order"), lines, prices }
    }

    /// What it costs, added up by the customer and not by the shop.
    pub(super) fn total(&self) -> Cents {
        let sum = |(product, quantity): (&String, &u32)| {
            self.prices.get(product).copied().unwrap_or_default() * Cents::from(*quantity)
        };
        self.lines.iter().map(sum).sum()
    }

    /// Whether a bill is for this, at these prices.
    pub(super) fn check_bill(&self, bill: &Bill) -> Result<(), String> {
        let sums_up = bill.lines.iter().all(|line| {
            Some(&line.each) == self.prices.get(&line.product)
                && line.sum == line.each * Cents::from(line.quantity)
        });
        if bill.as_lines() != self.lines {
            Err(format!("{:?} was put into the cart, and {:?} is billed", self.lines, bill.as_lines()))
        } else if !sums_up || bill.total != self.total() {
            Err(format!("it costs {} cents, and {} are billed", self.total(), bill.total))
        } else {
            Ok(())
        }
    }

    /// Whether an order is this one.
    pub(super) fn check_order(&self, order: &Order) -> Result<(), String> {
        let purchase = &order.purchase;
        self.check_bill(&purchase.bill)?;
        if order.customer != self.customer || order.key != self.key {
            Err(format!("it is the order {} of {}", order.key, order.customer))
        } else if purchase.receipt.amount != self.total() || purchase.receipt.key != self.key {
            Err(format!("it costs {} cents, and {} were charged", self.total(), purchase.receipt.amount))
        } else if purchase.parcel.lines != self.lines {
            Err(format!("{:?} was ordered, and {:?} sent", self.lines, purchase.parcel.lines))
        } else {
            Ok(())
        }
    }

    /// Whether the shop's books have just this one order of the customer, the one that was confirmed.
    pub(super) fn check_books(confirmed: &Order, books: &[Order]) -> Result<(), String> {
        match books {
            [order] if order == confirmed => Ok(()),
            [_] => Err("the books have another order than the confirmed one".into()),
            _ => Err(format!("one was ordered, and the books have {}", books.len())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::goods::tests::{catalog, product};
    use crate::orders::{Purchase, Receipt, bill, parcel};

    fn wish() -> Wish {
        let products: Vec<Product> = catalog().products().cloned().collect();
        Wish::new("ada", &products, 5)
    }

    fn order(wish: &Wish) -> Order {
        let bill = bill(&wish.lines, &catalog()).unwrap();
        let (amount, card, number) = (bill.total, "0002".into(), "1".into());
        let receipt = Receipt { key: wish.key.clone(), amount, card, number };
        let purchase = Purchase { bill, receipt, parcel: parcel(&wish.lines, &catalog()) };
        Order { number: 1, key: wish.key.clone(), customer: "ada".into(), purchase }
    }

    #[test]
    fn the_right_order_is_right() {
        let (wish, order) = (wish(), order(&wish()));
        assert!(wish.lines.len() > 1);
        assert_eq!(wish.check_order(&order), Ok(()));
        assert_eq!(Wish::check_books(&order, std::slice::from_ref(&order)), Ok(()));
    }

    #[test]
    fn every_difference_is_found() {
        let wish = wish();
        let changes: [fn(&mut Order); 8] = [
            |order| order.purchase.bill.total += 1,
            |order| order.purchase.bill.lines[0].sum -= 1,
            |order| order.purchase.bill.lines[0].quantity += 1,
            |order| drop(order.purchase.bill.lines.pop()),
            |order| order.purchase.receipt.amount -= 1,
            |order| order.purchase.receipt.key.push('x'),
            |order| drop(order.purchase.parcel.lines.pop_first()),
            |order| order.customer.push('x'),
        ];
        for (number, change) in changes.iter().enumerate() {
            let mut order = order(&wish);
            change(&mut order);
            assert!(wish.check_order(&order).is_err(), "change {number} was not found");
        }
    }

    #[test]
    fn an_order_that_was_lost_or_taken_twice_is_found() {
        let order = order(&wish());
        let other = Order { number: 2, ..order.clone() };
        assert!(Wish::check_books(&order, &[]).is_err());
        assert!(Wish::check_books(&order, &[order.clone(), other.clone()]).is_err());
        assert!(Wish::check_books(&order, &[other]).is_err());
    }

    #[test]
    fn customers_want_different_things_and_always_something() {
        let products = [product("a", 1, &[]), product("b", 2, &[])];
        let wishes: Vec<_> = (0..12).map(|number| Wish::new("ada", &products, number).lines).collect();
        assert!(wishes.iter().all(|lines| !lines.is_empty()));
        assert!(wishes.windows(2).any(|pair| pair[0] != pair[1]));
    }
}
