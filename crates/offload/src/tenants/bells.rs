//! Whom a change concerns: each Tenant has a bell, and what rings for nobody is heard by who starts the tasks.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// The bells of all Tenants. One that rings before somebody listens is heard then.
#[derive(Clone, Default)]
pub(super) struct Bells(Arc<Switchboard>);

#[derive(Default)]
struct Switchboard {
    bells: Mutex<HashMap<String, Arc<Notify>>>,
    unheard: Notify,
}

impl Bells {
    /// Rings for one Tenant.
    pub(super) fn ring(&self, tenant: &str) {
        match self.lock().get(tenant) {
            Some(bell) => bell.notify_one(),
            None => self.0.unheard.notify_one(),
        }
    }

    /// Rings for all.
    pub(super) fn ring_all(&self) {
        self.lock().values().for_each(|bell| bell.notify_one());
    }

    /// The bell of a Tenant, for who answers it.
    pub(super) fn answer(&self, tenant: &str) -> Arc<Notify> {
        self.lock().entry(tenant.to_owned()).or_default().clone()
    }

    /// Nobody answers it any more.
    pub(super) fn forget(&self, tenant: &str) {
        self.lock().remove(tenant);
    }

    /// Waits until a bell has rung for a Tenant that nobody answers for.
    pub(super) async fn unheard(&self) {
        self.0.unheard.notified().await;
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Arc<Notify>>> {
        self.0.bells.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_bell_is_heard_by_its_tenant_or_by_who_starts_tasks() {
        let bells = Bells::default();
        let bell = bells.answer("a");
        bells.ring("a");
        bell.notified().await;
        bells.ring("b");
        bells.unheard().await;
        bells.ring_all();
        bell.notified().await;
        bells.forget("a");
        bells.ring("a");
        bells.unheard().await;
    }
}
