//! What a process before has left over: addresses that nobody has asked for since all was looked at.
//!
//! As long as one peer has not shown what there is, nobody knows which pods on it call others, and nothing is given back.

use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use anyhow::Result;
use ferro_core::reflection::Kind;

use super::{Reflector, namespaces};

/// When it is first looked whether all is done.
const SETTLED: Duration = Duration::from_mins(1);
/// How long it has to be so: what was about to be looked at has been by then.
const STILL: Duration = Duration::from_secs(5);

impl Reflector {
    /// Once all is done, for all peers, gives back what is left over.
    pub(super) async fn sweep(self: Arc<Self>) -> Result<()> {
        tokio::time::sleep(SETTLED).await;
        loop {
            let was_at_rest = self.is_at_rest();
            tokio::time::sleep(STILL).await;
            let is_settled = was_at_rest && self.is_at_rest() && self.gate.settle();
            if is_settled && let Some(users) = self.addresses.sweep().await {
                self.bells().ring(users);
                return Ok(());
            }
        }
    }

    /// Whether every slice has been looked at that there is here or there, with somebody to ask for addresses.
    fn is_at_rest(&self) -> bool {
        let outlook = self.outlook();
        let targets = self.targets.read().unwrap_or_else(PoisonError::into_inner);
        let is_known =
            |here: &String| targets.get(here).is_some_and(|target| target.is_ready(&Kind::EndpointSlice));
        let failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        let has_failed = failures.keys().any(|key| key.1 == Kind::EndpointSlice);
        self.addresses.can_be_asked_for()
            && self.knows_pods.load(Ordering::SeqCst)
            && namespaces(&outlook).into_keys().all(is_known)
            && !has_failed
            && self.queue.is_empty()
            && self.gate.queue.is_empty()
    }
}
