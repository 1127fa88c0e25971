//! From what is heard, and the `ForeignCluster`s there are, to those that should be.
//!
//! - Flow: whoever performs a `Create` or `Update` tries its addresses in order, takes the first at which the
//!   cluster proves who it is ([`Endorsement`](crate::auth::Endorsement)), writes that one, and
//!   reports the others by [`Neighbourhood::unproved`].
//! - Guarantees: a plan follows from the state alone, and plans that are carried out come to rest. Nothing
//!   that a person wrote is changed, and nothing in use is removed. The name of a cluster that exists comes
//!   from its proof, never from an announcement.
//! - Assumptions: an object whose identity is not known yet will get it at the first contact.
//!
//! | found as | and now heard as | then |
//! | --- | --- | --- |
//! | Manual | anything | stays as it is; only a missing address is filled in |
//! | WAN | LAN, Incoming | stays WAN; the address follows once its own is no longer announced, or lost |
//! | LAN | WAN | becomes WAN, and so is no longer removed when the local network is silent |
//! | `IncomingPeering` | LAN, WAN | becomes that |

use std::collections::BTreeMap;

use ferro_api::discovery::DiscoveryType;
use k8s_openapi::jiff::Timestamp;

use super::neighbourhood::{Neighbour, Said};
use super::sighting::strength;
use super::{Address, Known, Neighbourhood, Way};
use crate::identity::ClusterId;
use crate::names::{ClusterName, foreign_cluster};

/// What is to be done about one `ForeignCluster`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Make it: for LAN and WAN once the cluster has proved to be at one of the addresses, otherwise at once.
    Create {
        /// Its name.
        object: String,
        /// The cluster.
        cluster_id: ClusterId,
        /// The name of the cluster.
        name: ClusterName,
        /// How it was found.
        discovery_type: DiscoveryType,
        /// Where it may be.
        addresses: Vec<Address>,
    },
    /// Change address and type, once the cluster has proved to be at one of the addresses.
    Update {
        /// Its name.
        object: String,
        /// The cluster.
        cluster_id: ClusterId,
        /// How it was found.
        discovery_type: DiscoveryType,
        /// Where it may be.
        addresses: Vec<Address>,
    },
    /// Remove it.
    Remove {
        /// Its name.
        object: String,
    },
}

impl Neighbourhood {
    /// What is to be done now, given all `ForeignCluster`s there are.
    pub fn plan(&self, known: &[Known], now: Timestamp) -> Vec<Change> {
        let by_cluster = by_cluster(known);
        let found = self.neighbours.iter().filter_map(|(id, neighbour)| {
            let heard = Heard::of(neighbour, now)?;
            match by_cluster.get(id.to_string().as_str()) {
                Some(known) => update(id, &heard, known, now),
                None if known.iter().any(|known| heard.is_unnamed(known)) => None,
                None => create(*id, &heard, now),
            }
        });
        let gone = known.iter().filter(|known| self.is_gone(known, &by_cluster, now));
        let gone = gone.map(|known| Change::Remove { object: known.object.clone() });
        found.chain(gone).collect()
    }

    /// Whether an object that discovery has made is of no use: silent, or there is a better one.
    fn is_gone(&self, known: &Known, by_cluster: &BTreeMap<&str, &Known>, now: Timestamp) -> bool {
        let Some(id) = known.cluster_id.as_deref() else { return false };
        let doubled = by_cluster.get(id).is_some_and(|better| better.object != known.object);
        let heard = id.parse().ok().and_then(|id: ClusterId| self.neighbours.get(&id));
        let silent = heard.and_then(|neighbour| Heard::of(neighbour, now)).is_none();
        known.discovery_type == DiscoveryType::Lan
            && !known.in_use
            && (doubled || (silent && now >= self.settled_at))
    }
}

/// The object of each cluster; the strongest where there are several.
fn by_cluster(known: &[Known]) -> BTreeMap<&str, &Known> {
    let rank = |known: &Known| (strength(known.discovery_type), known.in_use);
    let mut all = BTreeMap::new();
    for known in known {
        let Some(id) = known.cluster_id.as_deref() else { continue };
        let best = all.entry(id).or_insert(known);
        if rank(known) > rank(best) {
            *best = known;
        }
    }
    all
}

/// What still counts of what is said about one cluster, the strongest first.
struct Heard<'a>(Vec<(&'a Way, &'a Said)>);

impl<'a> Heard<'a> {
    fn of(neighbour: &'a Neighbour, now: Timestamp) -> Option<Self> {
        let mut said: Vec<_> = neighbour.said.iter().filter(|(_, said)| said.expires_at > now).collect();
        said.sort_by_key(|(way, _)| std::cmp::Reverse(strength(way.discovery_type())));
        (!said.is_empty()).then_some(Self(said))
    }

    /// Whether the object is of this cluster, though it does not say so yet.
    fn is_unnamed(&self, known: &Known) -> bool {
        let addresses = self.0.iter().filter_map(|(_, said)| said.address.as_ref());
        known.cluster_id.is_none() && addresses.into_iter().any(|address| known.is_at(address))
    }

    /// The strongest that says the address of this object.
    fn confirmation(&self, known: &Known) -> Option<(DiscoveryType, Address)> {
        self.0.iter().find_map(|(way, said)| {
            let address = said.address.as_ref().filter(|address| known.is_at(address))?;
            Some((way.discovery_type(), address.clone()))
        })
    }

    /// The addresses to try now, all of the same strength: the strongest that has any.
    fn to_try(
        &self,
        now: Timestamp,
        wanted: impl Fn(&Address) -> bool,
    ) -> Option<(DiscoveryType, Vec<Address>)> {
        let mut found: Option<(DiscoveryType, Vec<Address>)> = None;
        for (way, said) in self.0.iter().filter(|(_, said)| said.due_at <= now) {
            let Some(address) = said.address.as_ref().filter(|address| wanted(address)) else { continue };
            let (discovery_type, addresses) = found.get_or_insert((way.discovery_type(), Vec::new()));
            if *discovery_type == way.discovery_type() && !addresses.contains(address) {
                addresses.push(address.clone());
            }
        }
        found
    }
}

fn create(id: ClusterId, heard: &Heard<'_>, now: Timestamp) -> Option<Change> {
    let sure = heard.0.iter().find(|(way, _)| way.is_sure());
    let (discovery_type, addresses) = match sure {
        Some((way, said)) => (way.discovery_type(), said.address.iter().cloned().collect()),
        None => heard.to_try(now, |_| true)?,
    };
    let said_by = heard.0.iter().find(|(way, _)| way.discovery_type() == discovery_type);
    let name = said_by.map(|(_, said)| said.name.clone())?;
    let object = foreign_cluster(name.as_str(), &id.to_string());
    Some(Change::Create { object, cluster_id: id, name, discovery_type, addresses })
}

fn update(id: &ClusterId, heard: &Heard<'_>, known: &Known, now: Timestamp) -> Option<Change> {
    if known.discovery_type == DiscoveryType::Manual && known.auth_url.is_some() {
        return None;
    }
    let (found_as, addresses) = match heard.confirmation(known) {
        Some((found_as, _)) if !known.lost && !is_stronger(found_as, known) => return None,
        Some((found_as, address)) if !known.lost => (found_as, vec![address]),
        Some(_) | None => heard.to_try(now, |address| !known.is_at(address))?,
    };
    let discovery_type = if is_stronger(found_as, known) { found_as } else { known.discovery_type };
    Some(Change::Update { object: known.object.clone(), cluster_id: *id, discovery_type, addresses })
}

fn is_stronger(found_as: DiscoveryType, known: &Known) -> bool {
    strength(found_as) > strength(known.discovery_type)
}

#[cfg(test)]
mod tests {
    use super::Change;
    use crate::auth::tests::at;
    use crate::discovery::neighbourhood::tests::{id, known, lan, listening};
    use crate::discovery::{Address, Known, Neighbourhood, Sighting, Way};
    use DiscoveryType::{IncomingPeering, Lan, Manual, Wan};
    use ferro_api::discovery::DiscoveryType;

    fn heard(news: impl IntoIterator<Item = Sighting>) -> Neighbourhood {
        let mut neighbourhood = listening();
        for news in news {
            neighbourhood.hear(news, &[], at(0)).unwrap();
        }
        neighbourhood
    }

    fn wan(number: u8, host: u8) -> Sighting {
        Sighting { way: Way::Wan { domain: "example.org".into() }, ..lan(number, host, 0) }
    }

    fn incoming(number: u8, host: u8) -> Sighting {
        Sighting { way: Way::Incoming, ..lan(number, host, 0) }
    }

    fn address(number: u8, host: u8) -> Address {
        lan(number, host, 0).address.unwrap()
    }

    fn create(number: u8, discovery_type: DiscoveryType, hosts: &[u8]) -> Change {
        Change::Create {
            object: known(number, discovery_type, 1).object,
            cluster_id: id(number),
            name: lan(number, 1, 0).name,
            discovery_type,
            addresses: hosts.iter().map(|host| address(number, *host)).collect(),
        }
    }

    fn update(number: u8, discovery_type: DiscoveryType, hosts: &[u8]) -> Change {
        let Change::Create { object, cluster_id, discovery_type, addresses, .. } =
            create(number, discovery_type, hosts)
        else {
            unreachable!()
        };
        Change::Update { object, cluster_id, discovery_type, addresses }
    }

    fn remove(known: &Known) -> Change {
        Change::Remove { object: known.object.clone() }
    }

    #[test]
    fn a_cluster_announced_by_several_nodes_is_one_with_several_addresses() {
        let plan = heard([lan(1, 1, 0), lan(1, 2, 0)]).plan(&[], at(1));
        assert_eq!(plan, [create(1, Lan, &[1, 2])]);
        let done = [known(1, Lan, 2)];
        assert_eq!(heard([lan(1, 1, 0), lan(1, 2, 0)]).plan(&done, at(1)), []);
    }

    #[test]
    fn two_clusters_of_one_name_are_two_objects() {
        let mut namesake = lan(2, 2, 0);
        namesake.name = lan(1, 1, 0).name;
        let plan = heard([lan(1, 1, 0), namesake]).plan(&[], at(1));
        let objects: Vec<_> = plan
            .iter()
            .map(|change| match change {
                Change::Create { object, .. } => object.as_str(),
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(objects.len(), 2);
        assert_ne!(objects[0], objects[1]);
    }

    #[test]
    fn a_cluster_that_moves_is_updated_and_not_doubled() {
        assert_eq!(heard([lan(1, 9, 0)]).plan(&[known(1, Lan, 1)], at(1)), [update(1, Lan, &[9])]);
        let in_use = Known { in_use: true, ..known(1, Lan, 1) };
        assert_eq!(heard([lan(1, 9, 0)]).plan(&[in_use], at(1)), [update(1, Lan, &[9])]);
    }

    #[test]
    fn an_address_that_is_announced_and_answers_is_kept_whatever_else_is_said() {
        let both = [lan(1, 1, 0), lan(1, 66, 0)];
        assert_eq!(heard(both.clone()).plan(&[known(1, Lan, 1)], at(1)), []);
        let lost = Known { lost: true, ..known(1, Lan, 1) };
        assert_eq!(heard(both).plan(&[lost], at(1)), [update(1, Lan, &[66])]);
    }

    #[test]
    fn an_address_that_proved_nothing_rests_for_longer_each_time() {
        let mut neighbourhood = heard([lan(1, 1, 0)]);
        neighbourhood.unproved(&id(1), &address(1, 1), at(1));
        assert_eq!(neighbourhood.plan(&[], at(5)), []);
        assert_eq!(neighbourhood.next_change(at(5)), Some(at(6)));
        assert_eq!(neighbourhood.plan(&[], at(6)), [create(1, Lan, &[1])]);
        neighbourhood.unproved(&id(1), &address(1, 1), at(6));
        neighbourhood.hear(lan(1, 1, 10), &[], at(10)).unwrap();
        assert_eq!(neighbourhood.plan(&[], at(15)), []);
        assert_eq!(neighbourhood.plan(&[], at(16)), [create(1, Lan, &[1])]);
    }

    #[test]
    fn whoever_was_wrong_gains_nothing_by_naming_one_address_after_another() {
        let mut neighbourhood = heard([lan(1, 1, 0)]);
        neighbourhood.unproved(&id(1), &address(1, 1), at(1));
        let moved = Sighting { way: lan(1, 1, 0).way, ..lan(1, 9, 0) };
        neighbourhood.hear(moved, &[], at(1)).unwrap();
        assert_eq!(neighbourhood.plan(&[], at(5)), []);
        assert_eq!(neighbourhood.plan(&[], at(6)), [create(1, Lan, &[9])]);
    }

    #[test]
    fn a_cluster_that_vanishes_from_the_lan_is_removed_unless_it_is_in_use() {
        let object = known(1, Lan, 1);
        let mut neighbourhood = heard([lan(1, 1, 0)]);
        assert_eq!(neighbourhood.plan(std::slice::from_ref(&object), at(89)), []);
        neighbourhood.hear(lan(1, 1, 80), &[], at(80)).unwrap();
        assert_eq!(neighbourhood.plan(std::slice::from_ref(&object), at(169)), []);
        assert_eq!(neighbourhood.plan(std::slice::from_ref(&object), at(170)), [remove(&object)]);
        let in_use = Known { in_use: true, ..object };
        assert_eq!(neighbourhood.plan(&[in_use], at(170)), []);
    }

    #[test]
    fn only_what_was_found_on_the_lan_is_ever_removed() {
        for found_as in [Manual, Wan, IncomingPeering] {
            assert_eq!(listening().plan(&[known(1, found_as, 1)], at(1000)), []);
        }
    }

    #[test]
    fn after_a_restart_nobody_is_removed_before_there_was_time_to_listen() {
        let object = known(1, Lan, 1);
        assert_eq!(listening().plan(std::slice::from_ref(&object), at(119)), []);
        assert_eq!(listening().next_change(at(0)), Some(at(120)));
        assert_eq!(listening().plan(std::slice::from_ref(&object), at(120)), [remove(&object)]);
    }

    #[test]
    fn what_a_person_wrote_stays_as_it_is() {
        for news in [lan(1, 9, 0), wan(1, 9), incoming(1, 9)] {
            let lost = Known { lost: true, ..known(1, Manual, 1) };
            assert_eq!(heard([news]).plan(&[lost], at(1)), []);
        }
        let by_identity = Known { auth_url: None, pin: None, ..known(1, Manual, 1) };
        assert_eq!(heard([lan(1, 9, 0)]).plan(&[by_identity], at(1)), [update(1, Manual, &[9])]);
    }

    #[test]
    fn a_stronger_way_of_being_found_replaces_a_weaker_one() {
        for (found_as, news, becomes) in [
            (IncomingPeering, lan(1, 1, 0), Some(Lan)),
            (IncomingPeering, wan(1, 1), Some(Wan)),
            (Lan, wan(1, 1), Some(Wan)),
            (Wan, lan(1, 1, 0), None),
            (Lan, incoming(1, 1), None),
            (Wan, incoming(1, 1), None),
        ] {
            let expected: Vec<_> = becomes.map(|becomes| update(1, becomes, &[1])).into_iter().collect();
            assert_eq!(heard([news]).plan(&[known(1, found_as, 1)], at(1)), expected, "{found_as:?}");
        }
    }

    #[test]
    fn a_cluster_in_the_wan_moves_to_the_lan_address_but_stays_wan() {
        assert_eq!(heard([lan(1, 9, 0)]).plan(&[known(1, Wan, 1)], at(1)), [update(1, Wan, &[9])]);
    }

    #[test]
    fn whoever_comes_by_itself_is_there_at_once_with_or_without_an_address() {
        assert_eq!(heard([incoming(1, 1)]).plan(&[], at(1)), [create(1, IncomingPeering, &[1])]);
        let unreachable = Sighting { address: None, ..incoming(1, 1) };
        assert_eq!(heard([unreachable, lan(1, 1, 0)]).plan(&[], at(1)), [create(1, IncomingPeering, &[])]);
    }

    #[test]
    fn a_cluster_added_by_its_address_is_not_doubled_before_it_is_contacted() {
        let by_address = Known { cluster_id: None, pin: None, ..known(1, Manual, 1) };
        assert_eq!(heard([lan(1, 1, 0)]).plan(&[by_address], at(1)), []);
    }

    #[test]
    fn of_two_objects_for_one_cluster_the_one_that_discovery_made_goes() {
        let manual =
            Known { object: "mine".into(), auth_url: Some("peer.example.org".into()), ..known(1, Manual, 1) };
        let found = known(1, Lan, 1);
        let plan = heard([lan(1, 1, 0)]).plan(&[manual.clone(), found.clone()], at(1));
        assert_eq!(plan, [remove(&found)]);
        let in_use = Known { in_use: true, ..found };
        assert_eq!(heard([lan(1, 1, 0)]).plan(&[manual, in_use], at(1)), []);
    }
}
