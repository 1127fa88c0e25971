//! What goes with a cart. See [`crate::suggestions`].

use std::sync::Arc;

use axum::extract::State;
use axum::routing::put;
use axum::{Json, Router};

use super::{Desk, Reply, sold};
use crate::goods::Lines;
use crate::suggestions::suggest;

/// The service.
pub(crate) fn router(desk: Desk) -> Router {
    Router::new().route("/suggestions", put(suggestions)).with_state(Arc::new(desk))
}

async fn suggestions(State(desk): State<Arc<Desk>>, Json(cart): Json<Lines>) -> Reply<Vec<String>> {
    let mut errand = desk.caller.errand();
    let catalog = sold(&mut errand).await?;
    Ok(desk.reply(errand, suggest(&cart, &catalog)))
}
