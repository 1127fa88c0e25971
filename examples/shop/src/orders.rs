//! From a cart to an order: what it costs, what is charged, and what is sent.

use serde::{Deserialize, Serialize};

use crate::goods::{Catalog, Cents, Lines};

/// A line of a bill.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct BillLine {
    pub(crate) product: String,
    pub(crate) name: String,
    pub(crate) quantity: u32,
    /// What one costs.
    pub(crate) each: Cents,
    /// What the line costs.
    pub(crate) sum: Cents,
}

/// What a cart costs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Bill {
    pub(crate) lines: Vec<BillLine>,
    pub(crate) total: Cents,
}

/// That a card was charged; the same key and amount always give the same number.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Receipt {
    pub(crate) key: String,
    pub(crate) amount: Cents,
    /// The last digits of the card.
    pub(crate) card: String,
    pub(crate) number: String,
}

/// What is sent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Parcel {
    pub(crate) lines: Lines,
    pub(crate) grams: u64,
}

/// All that belongs to an order before it has a number.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Purchase {
    pub(crate) bill: Bill,
    pub(crate) receipt: Receipt,
    pub(crate) parcel: Parcel,
}

/// An order that was taken.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Order {
    pub(crate) number: u64,
    /// Chosen by the customer; an order is taken once for each.
    pub(crate) key: String,
    pub(crate) customer: String,
    #[serde(flatten)]
    pub(crate) purchase: Purchase,
}

/// What a customer says when ordering.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Agreement {
    /// Number of the card to charge.
    pub(crate) card: String,
    /// The total that the customer was shown.
    pub(crate) total: Cents,
}

/// Why no order comes of a cart.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Refusal {
    #[error("the cart is empty; put something into it first")]
    Empty,
    #[error("{0} is not sold any more; take it out of the cart")]
    NotSold(String),
    #[error("prices have changed: it is {now} cents now, not {agreed}; look at the cart and order again")]
    PriceChanged { agreed: Cents, now: Cents },
}

/// What a cart costs.
pub(crate) fn bill(lines: &Lines, catalog: &Catalog) -> Result<Bill, Refusal> {
    let mut bill = Bill::default();
    for (product, quantity) in lines {
        let sold = catalog.get(product).ok_or_else(|| Refusal::NotSold(product.clone()))?;
        let sum = sold.price * u64::from(*quantity);
        bill.total += sum;
        let (product, name) = (product.clone(), sold.name.clone());
        bill.lines.push(BillLine { product, name, quantity: *quantity, each: sold.price, sum });
    }
    Ok(bill)
}

/// The bill that the customer has agreed to.
pub(crate) fn agreed(lines: &Lines, catalog: &Catalog, total: Cents) -> Result<Bill, Refusal> {
    let bill = bill(lines, catalog)?;
    if bill.lines.is_empty() {
        Err(Refusal::Empty)
    } else if bill.total != total {
        Err(Refusal::PriceChanged { agreed: total, now: bill.total })
    } else {
        Ok(bill)
    }
}

/// The parcel for a cart whose products are all sold.
pub(crate) fn parcel(lines: &Lines, catalog: &Catalog) -> Parcel {
    let weight = |(product, quantity): (&String, &u32)| {
        catalog.get(product).map_or(0, |product| u64::from(product.grams)) * u64::from(*quantity)
    };
    Parcel { lines: lines.clone(), grams: lines.iter().map(weight).sum() }
}

impl Bill {
    /// The same as a cart.
    pub(crate) fn as_lines(&self) -> Lines {
        self.lines.iter().map(|line| (line.product.clone(), line.quantity)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::goods::tests::catalog;

    fn lines(wanted: &[(&str, u32)]) -> Lines {
        wanted.iter().map(|(product, quantity)| ((*product).into(), *quantity)).collect()
    }

    #[test]
    fn a_bill_is_right_to_the_cent() {
        let cart = lines(&[("rain-gauge", 3), ("wind-vane", 1)]);
        let bill = bill(&cart, &catalog()).unwrap();
        assert_eq!(bill.lines.iter().map(|line| line.sum).collect::<Vec<_>>(), [5670, 4205]);
        assert_eq!((bill.total, bill.as_lines()), (9875, cart.clone()));
        assert_eq!(parcel(&cart, &catalog()).grams, 400);
    }

    #[test]
    fn nobody_pays_another_sum_than_the_one_agreed_to() {
        let cart = lines(&[("barometer", 2)]);
        assert!(agreed(&cart, &catalog(), 12900).is_ok());
        assert_eq!(
            agreed(&cart, &catalog(), 12899),
            Err(Refusal::PriceChanged { agreed: 12899, now: 12900 })
        );
    }

    #[test]
    fn no_order_comes_of_nothing_or_of_what_is_not_sold() {
        assert_eq!(agreed(&Lines::new(), &catalog(), 0), Err(Refusal::Empty));
        let gone = lines(&[("sextant", 1)]);
        assert_eq!(agreed(&gone, &catalog(), 100), Err(Refusal::NotSold("sextant".into())));
    }
}
