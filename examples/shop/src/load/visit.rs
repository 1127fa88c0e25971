//! One customer's visit: looks, fills a cart, orders, and compares what came of it.

use std::time::Instant;

use super::check::Wish;
use crate::answer::{Instance, Refused};
use crate::call::{Caller, Errand};
use crate::goods::Lines;
use crate::orders::{Agreement, Order};
use crate::report::{Line, Trouble};
use crate::retry::CUSTOMER;
use crate::services::cart::Quantity;
use crate::services::front::View;

/// A number with a right last digit that belongs to nobody.
const CARD: &str = "4000000000000002";
/// Each so-many-th order is sent twice at once.
const TWICE: u64 = 4;

/// What a customer does.
pub(super) struct Visit {
    customer: String,
    number: u64,
}

/// How it went.
pub(super) struct Visited {
    pub(super) key: String,
    pub(super) customer: String,
    pub(super) began: Instant,
    pub(super) ended: Instant,
    pub(super) outcome: Result<Vec<Instance>, Setback>,
}

/// What went wrong.
pub(super) enum Setback {
    /// The shop was not there for too long; whether the order was taken is not known.
    Failed(String),
    /// The shop did something else than it was asked for.
    Wrong(String),
}

/// A passing refusal is an absence; one that stays contradicts a customer who did everything right.
impl From<Refused> for Setback {
    fn from(refused: Refused) -> Self {
        if refused.is_passing() { Self::Failed(refused.why) } else { Self::Wrong(refused.why) }
    }
}

impl Visit {
    /// A new customer.
    pub(super) fn new(customer: String, number: u64) -> Self {
        Self { customer, number }
    }

    /// Does all of it.
    pub(super) async fn perform(self, caller: &Caller) -> Visited {
        let began = Instant::now();
        let mut errand = caller.errand();
        let outcome = self.order(caller, &mut errand).await;
        let ended = Instant::now();
        let (key, outcome) = (format!("{}-order", self.customer), outcome.map(|()| errand.by));
        Visited { key, customer: self.customer, began, ended, outcome }
    }

    async fn order(&self, caller: &Caller, errand: &mut Errand<'_>) -> Result<(), Setback> {
        let place = format!("/api/customers/{}", self.customer);
        let view: View = errand.get("front", &place, CUSTOMER).await?;
        let wish = Wish::new(&self.customer, &view.products, self.number);
        for (product, quantity) in &wish.lines {
            let quantity = Quantity { quantity: *quantity };
            let _: Lines =
                errand.put("front", &format!("{place}/cart/{product}"), &quantity, CUSTOMER).await?;
        }
        let view: View = errand.get("front", &place, CUSTOMER).await?;
        wish.check_bill(&view.cart).map_err(Setback::Wrong)?;
        let order = self.send(caller, errand, &wish).await?;
        wish.check_order(&order).map_err(Setback::Wrong)?;
        let books: Vec<Order> = errand.get("front", &format!("{place}/orders"), CUSTOMER).await?;
        Wish::check_books(&order, &books).map_err(Setback::Wrong)
    }

    /// Sends the order, now and then twice at once, as somebody does who presses a button twice.
    async fn send(&self, caller: &Caller, errand: &mut Errand<'_>, wish: &Wish) -> Result<Order, Setback> {
        let place = format!("/api/customers/{}/orders/{}", self.customer, wish.key);
        let agreement = Agreement { card: CARD.into(), total: wish.total() };
        if !self.number.is_multiple_of(TWICE) {
            return Ok(errand.put("front", &place, &agreement, CUSTOMER).await?);
        }
        let mut other = caller.errand();
        let (one, two): (Result<Order, _>, Result<Order, _>) = tokio::join!(
            errand.put("front", &place, &agreement, CUSTOMER),
            other.put("front", &place, &agreement, CUSTOMER)
        );
        let (one, two) = (one?, two?);
        if one == two { Ok(one) } else { Err(Setback::Wrong("sent twice, it became two orders".into())) }
    }
}

/// Looks at customers whose orders failed: each may have been taken, but only once.
pub(super) async fn audit(caller: &Caller, customers: &[(String, String)], opened: Instant) -> Vec<Line> {
    let mut lines = Vec::new();
    for (customer, key) in customers {
        let began = opened.elapsed().as_secs_f64();
        let place = format!("/api/customers/{customer}/orders");
        let books: Result<Vec<Order>, _> = caller.errand().get("front", &place, CUSTOMER).await;
        let why = match books {
            Ok(books) if books.len() <= 1 => continue,
            Ok(books) => format!("one was ordered, and the books have {}", books.len()),
            Err(refused) => refused.why,
        };
        let ended = opened.elapsed().as_secs_f64();
        lines.push(Line::Wrong(Trouble { began, ended, key: key.clone(), why }));
    }
    lines
}
