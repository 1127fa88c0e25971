//! From a cart to an order. See [`crate::orders`].
//!
//! May be cut off anywhere and repeated on any replica: the charge is the same for the same key, and the order is taken
//! in one step, by the service that has the cart.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::routing::put;
use axum::{Json, Router};

use super::{Desk, Reply, sold};
use crate::answer::Refused;
use crate::ledger::Standing;
use crate::orders::{Agreement, Order, Purchase, Receipt, agreed, parcel};
use crate::payments::Charge;
use crate::retry::BRIEF;

/// The service.
pub(crate) fn router(desk: Desk) -> Router {
    Router::new().route("/customers/{customer}/orders/{key}", put(order)).with_state(Arc::new(desk))
}

async fn order(
    State(desk): State<Arc<Desk>>,
    Path((customer, key)): Path<(String, String)>,
    Json(agreement): Json<Agreement>,
) -> Reply<Order> {
    let mut errand = desk.caller.errand();
    let place = format!("/customers/{customer}/orders/{key}");
    let Standing { order, cart } = errand.get("cart", &place, BRIEF).await?;
    if let Some(order) = order {
        return Ok(desk.reply(errand, order));
    }
    let catalog = sold(&mut errand).await?;
    let bill = agreed(&cart, &catalog, agreement.total).map_err(|refusal| Refused::conflict(&refusal))?;
    let charge = Charge { card: agreement.card, amount: bill.total };
    let receipt: Receipt = errand.put("payment", &format!("/charges/{key}"), &charge, BRIEF).await?;
    let purchase = Purchase { bill, receipt, parcel: parcel(&cart, &catalog) };
    let order = errand.put("cart", &place, &purchase, BRIEF).await?;
    Ok(desk.reply(errand, order))
}
