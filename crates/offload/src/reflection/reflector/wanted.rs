//! What is wanted of an object on the other cluster, from all that is known now.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use ferro_core::admission::Place;
use ferro_core::reflection::{Choice, Kind, Wish, choose, slices};
use kube::api::DynamicObject;

use super::Reflector;
use crate::pods::outlook::Network;
use crate::reflection::Key;
use crate::reflection::addresses::User;
use crate::reflection::notices::Notice;
use crate::reflection::target::Target;

/// What is wanted of an object over there.
#[derive(Default)]
pub(super) struct Wanted {
    pub(super) wish: Option<Wish>,
    /// The endpoints that it names, or will.
    pub(super) endpoints: BTreeSet<IpAddr>,
    /// Whether more is to come by itself.
    pub(super) is_waiting: bool,
    /// Whether nobody knows now.
    pub(super) is_blind: bool,
    /// Why it, or some of it, is not wanted, for people.
    pub(super) why_not: Option<Notice>,
}

impl Reflector {
    /// What is wanted of an object over there.
    pub(super) async fn wanted(
        &self,
        target: &Target,
        key: &Key,
        original: Option<&DynamicObject>,
    ) -> Wanted {
        let wanted = Wanted::default();
        let Some(original) = original else { return wanted };
        match self.choose(&key.1, original, self.is_needed(target, key)) {
            Choice::Stays => wanted,
            Choice::Unreadable(why) => Wanted { why_not: Some(Notice::unreadable(why)), ..wanted },
            Choice::Goes if key.1 == Kind::EndpointSlice => self.slice(target, key, original).await,
            Choice::Goes => Wanted { wish: Some(Wish::of(&key.1, original, &self.own)), ..wanted },
        }
    }

    fn choose(&self, kind: &Kind, original: &DynamicObject, is_needed: bool) -> Choice {
        let outlook = self.outlook();
        let node = Place { name: &self.node, labels: &outlook.labels };
        choose(kind, original, &self.home.settings().reflection(), is_needed, node)
    }

    /// Whether somebody over there needs it: configuration is needed by pods, and a Secret by an Ingress that goes there.
    fn is_needed(&self, target: &Target, key: &Key) -> bool {
        let is_read = self.needs().is_used(key);
        let goes = |ingress: &Arc<DynamicObject>| self.choose(&Kind::Ingress, ingress, true) == Choice::Goes;
        match key.1 {
            Kind::ConfigMap => is_read,
            Kind::Secret => is_read || target.ingresses(&key.2).iter().any(goes),
            Kind::Service | Kind::EndpointSlice | Kind::Ingress | Kind::Custom(_) => true,
        }
    }

    /// A slice follows its Service, which has to be there, and be ours: endpoints are never added to anybody else's.
    async fn slice(&self, target: &Target, key: &Key, original: &DynamicObject) -> Wanted {
        let service = slices::service(&original.metadata).and_then(|name| {
            let service = target.copy(&Kind::Service, name).and(target.source.get(&Kind::Service, name));
            service.filter(|service| self.choose(&Kind::Service, service, true) == Choice::Goes)
        });
        let Some(service) = service else { return Wanted::default() };
        let finder = slices::finder(&service, &self.node);
        let endpoints = slices::addresses(original, finder);
        let told = |name: &dyn Fn(IpAddr) -> Option<IpAddr>| {
            let told = slices::outward(original, finder, name)?;
            Some(Wish::of_slice(original, &self.own, told))
        };
        if self.outlook().network == Network::External {
            return Wanted { wish: told(&Some), ..Wanted::default() };
        }
        let before = target.copy(&key.1, &key.2).map(|copy| slices::published(&copy)).unwrap_or_default();
        let names = self.addresses.names(&User::Slice(key.clone()), &endpoints, &before).await;
        for peer in &names.called {
            self.gate.open(peer);
        }
        Wanted {
            is_blind: names.is_blind,
            wish: told(&|endpoint| names.get(endpoint)),
            // Also those that it waits for: what it gave back meanwhile would have another address the next time.
            endpoints,
            is_waiting: names.is_waiting,
            why_not: Notice::left_out(&self.node, &names.theirs),
        }
    }
}
