//! Which Secrets the Ingresses of a namespace prove themselves with, as far as it is noted down for one peer.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ferro_core::reflection::{Ledger, references};
use kube::api::DynamicObject;

/// Ingresses, and the Secrets that each refers to. Whether an Ingress goes to the peer is another question.
#[derive(Default)]
pub(super) struct Proofs(Mutex<Ledger<String, String>>);

impl Proofs {
    /// Notes down what an Ingress refers to now. The Secrets that this may matter to: those, and those that it referred to
    /// before.
    pub(super) fn file(
        &self,
        ingress: &str,
        read: impl FnOnce() -> Option<Arc<DynamicObject>>,
    ) -> Vec<String> {
        let mut noted = self.noted();
        // It is read under the lock, so that whoever files last has seen the most.
        let present = read().as_deref().map(references::of_ingress).unwrap_or_default();
        let present: BTreeSet<String> = present.into_iter().map(|(_, secret)| secret).collect();
        let ingress = ingress.to_owned();
        let before: BTreeSet<String> = noted.used_by(&ingress).cloned().collect();
        noted.hold(&ingress, &present);
        noted.keep(&ingress, &present);
        before.union(&present).cloned().collect()
    }

    /// The Ingresses that refer to a Secret.
    pub(super) fn ingresses(&self, secret: &str) -> Vec<String> {
        self.noted().users(&secret.to_owned()).cloned().collect()
    }

    fn noted(&self) -> MutexGuard<'_, Ledger<String, String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use ferro_core::reflection::Kind;
    use serde_json::json;

    use super::*;

    fn ingress(secret: &str) -> Arc<DynamicObject> {
        let spec = json!({"tls": [{"hosts": ["shop.example.org"], "secretName": secret}]});
        let object = json!({"metadata": {"name": "front"}, "spec": spec});
        let mut ingress: DynamicObject = serde_json::from_value(object).unwrap();
        Kind::Ingress.keep_original()(&mut ingress);
        Arc::new(ingress)
    }

    #[test]
    fn a_change_of_an_ingress_matters_to_the_secrets_before_and_after_it() {
        let proofs = Proofs::default();
        assert_eq!(proofs.file("front", || Some(ingress("old"))), ["old"]);
        assert_eq!(proofs.file("back", || Some(ingress("old"))), ["old"]);
        assert_eq!(proofs.ingresses("old"), ["back", "front"]);
        assert_eq!(proofs.file("front", || Some(ingress("new"))), ["new", "old"]);
        assert_eq!(
            proofs.file("front", || Some(ingress("new"))),
            ["new"],
            "whether it goes may have changed"
        );
        assert_eq!(
            (proofs.ingresses("old"), proofs.ingresses("new")),
            (vec!["back".into()], vec!["front".into()])
        );
        assert_eq!(proofs.file("front", || None), ["new"]);
        assert!(proofs.ingresses("new").is_empty());
    }
}
