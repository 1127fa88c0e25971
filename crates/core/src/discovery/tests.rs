//! Whatever is said and done on the network, discovery keeps its promises.

use std::collections::BTreeSet;

use ferro_api::discovery::DiscoveryType;
use k8s_openapi::jiff::Timestamp;
use proptest::prelude::*;

use super::neighbourhood::tests::{id, known, lan, listening};
use super::{Address, Change, Known, Neighbourhood, Sighting, Way};
use crate::auth::tests::at;

/// Something that happens.
#[derive(Clone, Debug)]
enum Event {
    Heard(Sighting),
    Goodbye(Way),
    Unproved(u8, Address),
    Passed(u64),
}

fn sighting() -> impl Strategy<Value = Sighting> {
    (0_u8..4, 1_u8..4, 0_u8..4, any::<bool>()).prop_map(|(number, host, way, reachable)| {
        let news = lan(number, host, 0);
        let address = news.address.clone().filter(|_| reachable || way < 2);
        let way = match way {
            0 => news.way.clone(),
            1 => Way::Wan { domain: "example.org".into() },
            2 => Way::Manual,
            _ => Way::Incoming,
        };
        Sighting { address, way, ..news }
    })
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        4 => sighting().prop_map(Event::Heard),
        1 => sighting().prop_map(|news| Event::Goodbye(news.way)),
        1 => (0_u8..4, 1_u8..4).prop_map(|(number, host)| {
            Event::Unproved(number, lan(number, host, 0).address.unwrap())
        }),
        2 => (1_u64..60).prop_map(Event::Passed),
    ]
}

fn object() -> impl Strategy<Value = Known> {
    let found_as = prop_oneof![
        Just(DiscoveryType::Lan),
        Just(DiscoveryType::Wan),
        Just(DiscoveryType::Manual),
        Just(DiscoveryType::IncomingPeering),
    ];
    (1_u8..4, found_as, 1_u8..4, any::<[bool; 3]>()).prop_map(|(number, found_as, host, flags)| {
        let [in_use, lost, nameless] = flags;
        let object = known(number, found_as, host);
        let object = Known { object: format!("{}-{found_as:?}", object.object), in_use, lost, ..object };
        if nameless { Known { cluster_id: None, ..object } } else { object }
    })
}

fn listen(events: Vec<Event>, known: &[Known]) -> (Neighbourhood, Timestamp) {
    let (mut neighbourhood, mut second) = (listening(), 0);
    for event in events {
        match event {
            Event::Heard(news) => {
                let news = Sighting { expires_at: at(second + 90), ..news };
                _ = neighbourhood.hear(news, known, at(second));
            }
            Event::Goodbye(way) => neighbourhood.goodbye(&way),
            Event::Unproved(number, address) => neighbourhood.unproved(&id(number), &address, at(second)),
            Event::Passed(seconds) => second += seconds,
        }
    }
    (neighbourhood, at(second))
}

/// Carries out a change, as if the first address had proved to be right.
fn perform(change: Change, known: &mut Vec<Known>) {
    match change {
        Change::Create { object, cluster_id, name: _, discovery_type, addresses } => {
            let address = addresses.into_iter().next();
            known.push(Known {
                object,
                cluster_id: Some(cluster_id.to_string()),
                discovery_type,
                auth_url: address.as_ref().map(|address| address.auth_url.to_string()),
                pin: address.and_then(|address| address.pin),
                in_use: false,
                lost: false,
            });
        }
        Change::Update { object, cluster_id: _, discovery_type, addresses } => {
            let one = known.iter_mut().find(|known| known.object == object).unwrap();
            let Address { auth_url, pin } = addresses.into_iter().next().unwrap();
            let auth_url = Some(auth_url.to_string());
            *one = Known { discovery_type, auth_url, pin, lost: false, ..one.clone() };
        }
        Change::Remove { object } => known.retain(|known| known.object != object),
    }
}

proptest! {
    #[test]
    fn nothing_that_matters_is_touched(
        events in proptest::collection::vec(event(), 0..30),
        objects in proptest::collection::vec(object(), 0..4),
    ) {
        let (neighbourhood, now) = listen(events, &objects);
        let named: BTreeSet<_> = objects.iter().filter_map(|known| known.cluster_id.clone()).collect();
        for change in neighbourhood.plan(&objects, now) {
            match change {
                Change::Create { cluster_id, discovery_type, addresses, .. } => {
                    prop_assert!(cluster_id != id(0) && !named.contains(&cluster_id.to_string()));
                    let announced = matches!(discovery_type, DiscoveryType::Lan | DiscoveryType::Wan);
                    prop_assert!(!announced || !addresses.is_empty());
                }
                Change::Update { object, addresses, .. } => {
                    let one = objects.iter().find(|known| known.object == object).unwrap();
                    prop_assert!(one.discovery_type != DiscoveryType::Manual || one.auth_url.is_none());
                    prop_assert!(!addresses.is_empty());
                }
                Change::Remove { object } => {
                    let mut those = objects.iter().filter(|known| known.object == object);
                    prop_assert!(those.any(|one| !one.in_use && one.discovery_type == DiscoveryType::Lan));
                }
            }
        }
    }

    #[test]
    fn plans_that_are_carried_out_come_to_rest(
        events in proptest::collection::vec(event(), 0..30),
        objects in proptest::collection::vec(object(), 0..3),
    ) {
        let mut known: Vec<Known> = Vec::new();
        for object in objects {
            if known.iter().all(|other| other.object != object.object) {
                known.push(object);
            }
        }
        let (neighbourhood, now) = listen(events, &known);
        for _ in 0..4 {
            for change in neighbourhood.plan(&known, now) {
                perform(change, &mut known);
            }
        }
        prop_assert_eq!(neighbourhood.plan(&known, now), []);
        let names: BTreeSet<_> = known.iter().map(|known| &known.object).collect();
        prop_assert_eq!(names.len(), known.len(), "no object is made twice");
    }
}
