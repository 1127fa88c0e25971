//! The six services. Each is a router over what it needs; decisions are made in the modules that each names.

pub(crate) mod cart;
pub(crate) mod catalog;
pub(crate) mod checkout;
pub(crate) mod front;
pub(crate) mod payment;
pub(crate) mod recommendation;

use crate::answer::{Answer, Instance, Refused};
use crate::call::{Caller, Errand};
use crate::goods::{Catalog, Product};
use crate::retry::BRIEF;

/// What an answer becomes on the way out.
pub(crate) type Reply<T> = Result<Answer<T>, Refused>;

/// A service that asks others.
pub(crate) struct Desk {
    caller: Caller,
    me: Instance,
}

impl Desk {
    /// A service of that name.
    pub(crate) fn new(service: &str, caller: Caller) -> Self {
        Self { caller, me: Instance::this(service) }
    }

    /// The answer that an errand has led to.
    fn reply<T>(&self, errand: Errand<'_>, said: T) -> Answer<T> {
        let by = std::iter::once(self.me.clone()).chain(errand.by).collect();
        Answer { by, said }
    }
}

/// All that is sold, as the catalog says now.
async fn sold(errand: &mut Errand<'_>) -> Result<Catalog, Refused> {
    let products: Vec<Product> = errand.get("catalog", "/products", BRIEF).await?;
    Catalog::new(products).map_err(|error| Refused::unavailable(&error))
}
