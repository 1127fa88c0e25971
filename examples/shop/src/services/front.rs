//! The front end: the page that people see, and what it asks for.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::response::Html;
use axum::routing::{get, put};
use axum::{Json, Router};
use serde::{Deserialize, Serialize};

use super::cart::Quantity;
use super::{Desk, Reply, sold};
use crate::answer::Refused;
use crate::goods::{Lines, Product};
use crate::orders::{Agreement, Bill, Order, bill};
use crate::retry::{BRIEF, LONGER};

/// What a customer sees.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct View {
    pub(crate) products: Vec<Product>,
    pub(crate) cart: Bill,
    /// Ids of products.
    pub(crate) suggestions: Vec<String>,
}

/// The service.
pub(crate) fn router(desk: Desk) -> Router {
    Router::new()
        .route("/", get(async || Html(include_str!("page.html"))))
        .route("/api/customers/{customer}", get(view))
        .route("/api/customers/{customer}/cart/{product}", put(fill))
        .route("/api/customers/{customer}/orders", get(orders))
        .route("/api/customers/{customer}/orders/{key}", put(order))
        .with_state(Arc::new(desk))
}

async fn view(State(desk): State<Arc<Desk>>, Path(customer): Path<String>) -> Reply<View> {
    let mut errand = desk.caller.errand();
    let cart: Lines = errand.get("cart", &format!("/customers/{customer}/cart"), BRIEF).await?;
    let catalog = sold(&mut errand).await?;
    // Without suggestions the shop still sells.
    let suggestions = errand.put("recommendation", "/suggestions", &cart, BRIEF).await.unwrap_or_default();
    let cart = bill(&cart, &catalog).map_err(|refusal| Refused::conflict(&refusal))?;
    let products = catalog.products().cloned().collect();
    Ok(desk.reply(errand, View { products, cart, suggestions }))
}

async fn fill(
    State(desk): State<Arc<Desk>>,
    Path((customer, product)): Path<(String, String)>,
    Json(wanted): Json<Quantity>,
) -> Reply<Lines> {
    let mut errand = desk.caller.errand();
    let place = format!("/customers/{customer}/cart/{product}");
    let cart = errand.put("cart", &place, &wanted, BRIEF).await?;
    Ok(desk.reply(errand, cart))
}

async fn orders(State(desk): State<Arc<Desk>>, Path(customer): Path<String>) -> Reply<Vec<Order>> {
    let mut errand = desk.caller.errand();
    let orders = errand.get("cart", &format!("/customers/{customer}/orders"), BRIEF).await?;
    Ok(desk.reply(errand, orders))
}

async fn order(
    State(desk): State<Arc<Desk>>,
    Path((customer, key)): Path<(String, String)>,
    Json(agreement): Json<Agreement>,
) -> Reply<Order> {
    let mut errand = desk.caller.errand();
    let place = format!("/customers/{customer}/orders/{key}");
    let order = errand.put("checkout", &place, &agreement, LONGER).await?;
    Ok(desk.reply(errand, order))
}
