//! Charging cards, with the shop's secret. See [`crate::payments`].

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::routing::put;
use axum::{Json, Router};
use ring::hmac;

use super::Reply;
use crate::answer::{Answer, Instance, Refused};
use crate::orders::Receipt;
use crate::payments::{self, Charge};

struct Till {
    me: Instance,
    secret: hmac::Key,
}

/// The service.
pub(crate) fn router(secret: &str) -> Router {
    let secret = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
    let till = Till { me: Instance::this("payment"), secret };
    Router::new().route("/charges/{key}", put(charge)).with_state(Arc::new(till))
}

async fn charge(
    State(till): State<Arc<Till>>,
    Path(key): Path<String>,
    Json(wanted): Json<Charge>,
) -> Reply<Receipt> {
    let receipt = payments::charge(&till.secret, &key, &wanted);
    let said = receipt.map_err(|declined| Refused::conflict(&declined))?;
    Ok(Answer { by: vec![till.me.clone()], said })
}
