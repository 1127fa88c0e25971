//! What a peer put into the namespace that we keep for it: which objects count, and which are ignored.

use std::cmp::Reverse;

use ferro_api::names::labels;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;

/// The objects of one kind from one peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inbound<'a, K> {
    /// Those that count, the oldest first.
    pub taken: Vec<&'a K>,
    /// Those that do not.
    pub ignored: Vec<Ignored>,
}

/// An object that does not count.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{name} is ignored: {why}")]
pub struct Ignored {
    /// The name of the object.
    pub name: String,
    /// Why it does not count.
    pub why: Why,
}

/// Why an object of a peer does not count.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Why {
    /// It claims to come from another cluster than the one whose namespace this is.
    #[error("it claims to come from another cluster than the one that this namespace is for")]
    ForgedOrigin,
    /// It is meant for another cluster.
    #[error("it is meant for another cluster")]
    WrongReceiver,
    /// The peer has as many older ones as it may have.
    #[error("a peer may have {0} of this kind, and there are older ones")]
    TooMany(usize),
}

/// Sorts what a peer sent. Objects without the mark of a copy are not from a peer, and are passed over.
pub fn inbound<'a, K: Resource>(
    us: &str,
    peer: &str,
    most: usize,
    objects: impl IntoIterator<Item = &'a K>,
) -> Inbound<'a, K> {
    let mut copies: Vec<_> =
        objects.into_iter().filter(|object| labels::REPLICATED.is_on(object.meta())).collect();
    copies.sort_by_cached_key(|copy| age(copy.meta()));
    let mut inbound = Inbound { taken: Vec::new(), ignored: Vec::new() };
    for copy in copies {
        match refusal(us, peer, most, inbound.taken.len(), copy.meta()) {
            None => inbound.taken.push(copy),
            Some(why) => inbound.ignored.push(Ignored { name: name(copy.meta()), why }),
        }
    }
    inbound
}

fn refusal(us: &str, peer: &str, most: usize, taken: usize, meta: &ObjectMeta) -> Option<Why> {
    if labels::ORIGIN_ID.of(meta) != Some(peer) {
        Some(Why::ForgedOrigin)
    } else if labels::REMOTE_ID.of(meta) != Some(us) {
        Some(Why::WrongReceiver)
    } else if taken >= most {
        Some(Why::TooMany(most))
    } else {
        None
    }
}

/// The oldest first. One that has no time yet is the newest.
fn age(meta: &ObjectMeta) -> impl Ord + use<> {
    (Reverse(meta.creation_timestamp.is_some()), meta.creation_timestamp.clone(), name(meta))
}

fn name(meta: &ObjectMeta) -> String {
    meta.name.clone().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use ferro_api::discovery::ResourceRequest;
    use serde_json::json;

    use super::{Why, inbound};

    fn request(name: &str, origin: &str, receiver: &str, day: u8) -> ResourceRequest {
        serde_json::from_value(json!({
            "apiVersion": "discovery.liqo.io/v1alpha1",
            "kind": "ResourceRequest",
            "metadata": {
                "name": name,
                "creationTimestamp": format!("2025-01-{day:02}T00:00:00Z"),
                "labels": {
                    "liqo.io/replicated": "true",
                    "liqo.io/originID": origin,
                    "liqo.io/remoteID": receiver,
                },
            },
            "spec": {},
        }))
        .unwrap()
    }

    #[test]
    fn a_flood_is_cut_to_the_oldest() {
        let flood = [request("c", "a", "b", 3), request("a", "a", "b", 2), request("b", "a", "b", 1)];
        let inbound = inbound("b", "a", 2, &flood);
        let taken: Vec<_> =
            inbound.taken.iter().map(|taken| taken.metadata.name.as_deref().unwrap()).collect();
        assert_eq!(taken, ["b", "a"]);
        assert_eq!(inbound.ignored.len(), 1);
        assert_eq!(inbound.ignored[0].why, Why::TooMany(2));
    }

    #[test]
    fn nobody_speaks_for_another_cluster() {
        let forged = [request("x", "victim", "b", 1), request("y", "a", "c", 1)];
        let inbound = inbound("b", "a", 9, &forged);
        assert!(inbound.taken.is_empty());
        let why: Vec<_> = inbound.ignored.into_iter().map(|ignored| ignored.why).collect();
        assert_eq!(why, [Why::ForgedOrigin, Why::WrongReceiver]);
    }

    #[test]
    fn what_is_not_a_copy_is_passed_over() {
        let mut ours = request("x", "b", "a", 1);
        ours.metadata.labels.as_mut().unwrap().remove("liqo.io/replicated");
        let inbound = inbound("b", "a", 9, [&ours]);
        assert!(inbound.taken.is_empty() && inbound.ignored.is_empty());
    }
}
