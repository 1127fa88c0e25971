//! Carts and orders, the one service with state: what is decided in [`crate::ledger`] is on the disk before it is said.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Result;
use axum::extract::{Path as Place, State};
use axum::routing::{get, put};
use axum::{Json, Router};
use serde::{Deserialize, Serialize};

use super::Reply;
use crate::answer::{Answer, Instance, Refused};
use crate::goods::Lines;
use crate::journal::Journal;
use crate::ledger::{Ledger, Standing, Taken};
use crate::orders::{Order, Purchase};

/// How many of a product are wanted.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Quantity {
    pub(crate) quantity: u32,
}

struct Store {
    me: Instance,
    /// Both at once: nobody reads what is not written yet.
    books: Mutex<(Journal, Ledger)>,
}

/// The service, with what is in that folder.
pub(crate) fn router(folder: &Path) -> Result<Router> {
    let store = Store { me: Instance::this("cart"), books: Mutex::new(Journal::open(folder)?) };
    Ok(Router::new()
        .route("/customers/{customer}/cart", get(show))
        .route("/customers/{customer}/cart/{product}", put(fill))
        .route("/customers/{customer}/orders", get(orders))
        .route("/customers/{customer}/orders/{key}", get(standing).put(order))
        .with_state(Arc::new(store)))
}

impl Store {
    /// Does something with the books, off the threads that serve: writing waits for the disk.
    async fn with<T: Send + 'static>(
        self: Arc<Self>,
        work: impl FnOnce(&mut Journal, &mut Ledger) -> Result<T, Refused> + Send + 'static,
    ) -> Reply<T> {
        let me = self.me.clone();
        let done = tokio::task::spawn_blocking(move || {
            let mut books = self.books.lock().unwrap_or_else(PoisonError::into_inner);
            let (journal, ledger) = &mut *books;
            work(journal, ledger)
        });
        let said = done.await.map_err(|error| Refused::unavailable(&error))??;
        Ok(Answer { by: vec![me], said })
    }
}

async fn show(State(store): State<Arc<Store>>, Place(customer): Place<String>) -> Reply<Lines> {
    store.with(move |_, ledger| Ok(ledger.cart(&customer))).await
}

async fn fill(
    State(store): State<Arc<Store>>,
    Place((customer, product)): Place<(String, String)>,
    Json(wanted): Json<Quantity>,
) -> Reply<Lines> {
    store
        .with(move |journal, ledger| {
            let event = ledger.put(&customer, &product, wanted.quantity);
            let event = event.map_err(|refusal| Refused::conflict(&refusal))?;
            journal.write(&event).map_err(|error| Refused::unavailable(&format!("{error:#}")))?;
            ledger.apply(event);
            Ok(ledger.cart(&customer))
        })
        .await
}

async fn orders(State(store): State<Arc<Store>>, Place(customer): Place<String>) -> Reply<Vec<Order>> {
    store.with(move |_, ledger| Ok(ledger.orders_of(&customer).into_iter().cloned().collect())).await
}

async fn standing(
    State(store): State<Arc<Store>>,
    Place((customer, key)): Place<(String, String)>,
) -> Reply<Standing> {
    store.with(move |_, ledger| Ok(ledger.standing(&customer, &key))).await
}

async fn order(
    State(store): State<Arc<Store>>,
    Place((customer, key)): Place<(String, String)>,
    Json(purchase): Json<Purchase>,
) -> Reply<Order> {
    store
        .with(move |journal, ledger| {
            let taken = ledger.order(&customer, &key, purchase);
            let event = match taken.map_err(|refusal| Refused::conflict(&refusal))? {
                Taken::Before(order) => return Ok(*order),
                Taken::Now(event) => event,
            };
            journal.write(&event).map_err(|error| Refused::unavailable(&format!("{error:#}")))?;
            ledger.apply(event);
            ledger.find(&key).cloned().ok_or_else(|| Refused::unavailable(&"the order is not there"))
        })
        .await
}
