//! A provider with one consumer, in which anything may happen between any two writes: it always comes to rest, and at
//! rest it is as it should be.

mod provider;

use std::collections::BTreeMap;

use ferro_api::virtualkubelet::MappingPhase;
use proptest::prelude::*;
use serde_json::json;

use super::{Map, Wish};
pub(super) use provider::{CONSUMER, CONTROL, Provider};

/// Something that happens.
#[derive(Clone, Debug)]
enum Deed {
    /// The consumer asks for other namespaces.
    Ask(BTreeMap<String, String>),
    /// The map cannot be read, or can be again.
    Spoil(bool),
    /// An administrator sets another quota.
    Quota(u32),
    /// The Tenant's settings change in a way that concerns every namespace.
    Settle(u8),
    /// Somebody makes a namespace of that name.
    Squat(String),
    /// Somebody deletes a namespace of that name.
    Raze(String),
    /// Somebody deletes the n-th thing in the Tenant's namespaces.
    Loot(usize),
    /// Somebody changes it.
    Tamper(usize),
    /// Namespaces that are on their way out are gone.
    Empty,
    /// The peering is as this says.
    Peering(Wish),
    /// The controller performs so many writes, and is killed.
    Work(usize),
}

fn names() -> impl Strategy<Value = String> {
    prop_oneof![
        8 => "[a-d]".prop_map(|name| format!("ns-{name}")),
        1 => Just("kube-system".to_owned()),
        1 => Just("default".to_owned()),
        1 => Just("liqo-tenant-x".to_owned()),
        1 => Just("ferro-home".to_owned()),
        1 => Just("../etc".to_owned()),
        1 => "[A-Z.]{0,70}",
    ]
}

fn deeds() -> impl Strategy<Value = Vec<Deed>> {
    let deed = prop_oneof![
        4 => proptest::collection::btree_map(names(), names(), 0..7).prop_map(Deed::Ask),
        1 => any::<bool>().prop_map(Deed::Spoil),
        2 => (0..5_u32).prop_map(Deed::Quota),
        1 => (0..6_u8).prop_map(Deed::Settle),
        2 => names().prop_map(Deed::Squat),
        1 => names().prop_map(Deed::Raze),
        1 => (0..9_usize).prop_map(Deed::Loot),
        1 => (0..9_usize).prop_map(Deed::Tamper),
        2 => Just(Deed::Empty),
        1 => prop_oneof![Just(Wish::Use), Just(Wish::Keep), Just(Wish::End)].prop_map(Deed::Peering),
        8 => (0..12_usize).prop_map(Deed::Work),
    ];
    proptest::collection::vec(deed, 0..40)
}

impl Provider {
    fn suffer(&mut self, deed: Deed) {
        match deed {
            Deed::Ask(entries) => self.ask(entries),
            Deed::Spoil(is_spoilt) => self.is_spoilt = is_spoilt,
            Deed::Quota(quota) => self.config.namespace_quota = Some(quota),
            Deed::Settle(choice) => self.settle(choice),
            Deed::Squat(name) => self.squat(&name),
            Deed::Raze(name) => self.raze(&name),
            Deed::Loot(index) => self.loot(index),
            Deed::Tamper(index) => self.tamper(index),
            Deed::Empty => self.empty(),
            Deed::Peering(wish) => self.wish = wish,
            Deed::Work(most) => _ = self.work(most),
        }
    }

    fn settle(&mut self, choice: u8) {
        let Some(tenant) = &mut self.tenant else { return };
        match choice {
            0 => tenant.spec.isolation = Some(false),
            1 => tenant.spec.isolation = None,
            2 => tenant.spec.pod_security = Some(ferro_api::config::PodSecurity::Restricted),
            3 => tenant.spec.counts = [("persistentvolumeclaims".to_owned(), 3)].into(),
            4 => {
                let template = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "welcome"},
                    "data": {"from": "us"}});
                self.config.templates = vec![template.as_object().unwrap().clone()];
            }
            _ => self.config.templates = Vec::new(),
        }
    }

    /// What must hold at any moment.
    fn assert_sound(&self, most_before: usize) {
        for name in &self.squatted {
            assert!(self.foreign.contains_key(name), "{name} is not ours, and was touched");
        }
        let most = usize::try_from(self.config.namespace_quota()).unwrap();
        let used = self.mine().len();
        assert!(used <= most.max(most_before), "{used} namespaces, and the quota is {most}");
        for name in self.mine() {
            assert!(!crate::names::is_reserved_namespace(name), "{name} is reserved");
        }
    }

    /// What must hold once nothing is left to do.
    fn assert_at_rest(&self) {
        assert_eq!(self.plan(), super::Plan::default(), "at rest nothing is written");
        if self.wish == Wish::End {
            assert!(self.mine().is_empty() && self.tenant.is_none() && self.furniture.is_empty(), "{self:?}");
            return;
        }
        let Map::Present(map) = self.map() else { return };
        let Some(_) = &self.tenant else { return };
        let current = map.status.clone().unwrap_or_default().current_mapping;
        for (origin, mapping) in &current {
            let name = map.spec.desired_mapping.get(origin).expect("only what is asked for is shown");
            match mapping.phase {
                MappingPhase::Accepted => {
                    assert_eq!(self.origin(name).as_deref(), Some(origin.as_str()));
                    assert!(self.furniture_in(name) >= 2, "{name} has what belongs there");
                }
                MappingPhase::CreationLoopBackOff => {
                    assert_ne!(self.origin(name).as_deref(), Some(origin.as_str()));
                    assert!(mapping.message.as_ref().is_some_and(|text| text.len() > 10), "it is said why");
                }
                MappingPhase::Terminating => panic!("nothing is left to go: {mapping:?}"),
            }
        }
        let readable = map.spec.desired_mapping.keys().filter(|origin| crate::names::is_dns_label(origin));
        assert_eq!(current.len(), readable.count(), "every entry is answered");
        let accepted = current.values().filter(|mapping| mapping.phase == MappingPhase::Accepted).count();
        assert_eq!(accepted, self.mine().len(), "what is there is wanted");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, ..ProptestConfig::default() })]

    #[test]
    fn whatever_happens_in_between_it_comes_to_the_right_end(deeds in deeds()) {
        let mut provider = Provider::new();
        for deed in deeds {
            let before = provider.mine().len();
            provider.suffer(deed);
            provider.assert_sound(before);
        }
        provider.is_spoilt = false;
        provider.rest();
        provider.assert_at_rest();
    }

    #[test]
    fn who_has_a_namespace_keeps_it_whoever_else_asks(quota in 1..4_u32, first in "[a-z]", others in
        proptest::collection::btree_set("[a-z]{1,2}", 1..9))
    {
        let mut provider = Provider::new();
        provider.config.namespace_quota = Some(quota);
        provider.ask([(format!("x-{first}"), format!("y-{first}"))].into());
        provider.rest();
        let mut all: BTreeMap<_, _> = others.iter().map(|name| (format!("a-{name}"), format!("b-{name}"))).collect();
        all.insert(format!("x-{first}"), format!("y-{first}"));
        provider.ask(all.clone());
        provider.rest();
        let name = format!("y-{first}");
        prop_assert!(provider.mine().contains(&name.as_str()));
        let winners: Vec<String> = provider.mine().into_iter().map(str::to_owned).collect();
        prop_assert_eq!(winners.len(), all.len().min(usize::try_from(quota).unwrap()));
        // After a restart with nothing but what is stored the same ones win.
        provider.rest();
        prop_assert_eq!(provider.mine(), winners.iter().map(String::as_str).collect::<Vec<_>>());
    }

    #[test]
    fn a_plan_that_is_cut_after_any_number_of_writes_comes_to_the_same_end(
        asked in proptest::collection::btree_map(names(), names(), 0..6), cut in 0..30_usize,
    ) {
        let (mut whole, mut cut_off) = (Provider::new(), Provider::new());
        whole.ask(asked.clone());
        whole.rest();
        cut_off.ask(asked);
        cut_off.work(cut);
        cut_off.rest();
        prop_assert_eq!(whole.mine(), cut_off.mine());
        prop_assert_eq!(whole.map_status(), cut_off.map_status());
        prop_assert_eq!(whole.tenant.unwrap().status, cut_off.tenant.unwrap().status);
    }
}
