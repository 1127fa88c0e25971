//! Names of local objects that stand for a peer: made from what the peer says, but never decided by it.
//!
//! A peer's name is cut down to what Kubernetes allows and to 40 characters, and a hash of its clusterID is
//! added, so that two peers of one name have two objects. The hash is short enough that somebody could search
//! for a key that gives the same one; therefore whoever finds an object of that name asks [`adopt`] whose
//! it is.

use std::fmt;
use std::fmt::Write;
use std::str::FromStr;

use crate::identity::{ClusterId, serde_as_text, sha256};

const MAX_NAME: usize = 63;
const MAX_SUBDOMAIN: usize = 253;
const MAX_PEER_NAME: usize = 40;
/// As the contract prints the name of a tenant namespace.
const TENANT_HASH: usize = 6;
/// Long enough that another key with the same hash is costly to find.
const HASH: usize = 10;
const UNNAMED: &str = "cluster";

/// The name that a cluster gives itself: what may stand in a label's value, and is not empty.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClusterName(String);

impl ClusterName {
    /// The name of a cluster that was given none.
    pub fn of(id: &ClusterId) -> Self {
        let id = id.to_string();
        Self(format!("{UNNAMED}-{}", id.split('-').next().unwrap_or(&id)))
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for ClusterName {
    type Err = NotAClusterName;

    fn from_str(text: &str) -> Result<Self, NotAClusterName> {
        let alphanumeric = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
        let bytes = text.as_bytes();
        let inner = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.".contains(byte);
        if bytes.len() <= MAX_NAME
            && alphanumeric(bytes.first())
            && alphanumeric(bytes.last())
            && bytes.iter().all(inner)
        {
            Ok(Self(text.to_owned()))
        } else {
            Err(NotAClusterName)
        }
    }
}

impl fmt::Display for ClusterName {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(&self.0)
    }
}

serde_as_text!(ClusterName);

/// The text cannot be the name of a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the name of a cluster has 1 to 63 letters, digits, '-', '_' and '.', and starts and ends with a letter \
     or digit"
)]
pub struct NotAClusterName;

/// The namespace that this cluster keeps for a peer.
pub fn tenant_namespace(name: &str, cluster_id: &str) -> String {
    format!("liqo-tenant-{}", local_name(name, cluster_id, TENANT_HASH))
}

/// The node that stands for a peer.
pub fn virtual_node(name: &str, cluster_id: &str) -> String {
    format!("liqo-{}", local_name(name, cluster_id, HASH))
}

/// The `ForeignCluster` of a peer that was found; also the name under which a cluster announces itself.
pub fn foreign_cluster(name: &str, cluster_id: &str) -> String {
    local_name(name, cluster_id, HASH)
}

fn local_name(name: &str, cluster_id: &str, hash_length: usize) -> String {
    let mut local = sanitised(name);
    local.push('-');
    for byte in sha256(cluster_id.as_bytes()).iter().take(hash_length / 2) {
        // Writing to a string cannot fail.
        _ = write!(local, "{byte:02x}");
    }
    local
}

/// The name in lower case, with one dash for every run of other characters, cut.
fn sanitised(name: &str) -> String {
    let mut label = String::new();
    for character in name.chars() {
        if label.len() == MAX_PEER_NAME {
            break;
        } else if character.is_ascii_alphanumeric() {
            label.push(character.to_ascii_lowercase());
        } else if !label.is_empty() && !label.ends_with('-') {
            label.push('-');
        }
    }
    let label = label.trim_end_matches('-');
    if label.is_empty() { UNNAMED.to_owned() } else { label.to_owned() }
}

/// Whether the text is what Kubernetes calls a DNS label, as the name of a namespace is.
pub fn is_dns_label(text: &str) -> bool {
    let alphanumeric = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    (1..=MAX_NAME).contains(&text.len())
        && text.bytes().all(|byte| alphanumeric(byte) || byte == b'-')
        && !text.starts_with('-')
        && !text.ends_with('-')
}

/// Whether a namespace of this name is one that every cluster needs for itself, so that no peer may ask for it. The chart's
/// policy for offloadings says the same in its own language.
pub fn is_reserved_namespace(name: &str) -> bool {
    name == "default" || name.starts_with("kube-") || name == "liqo" || name.starts_with("liqo-")
}

/// Whether a namespace is one of an installation: the one that it is in, or that of its keys.
pub fn is_installation(name: &str, installation: &str) -> bool {
    name.strip_prefix(installation).is_some_and(|rest| rest.is_empty() || rest == "-keys")
}

/// Whether pods of a namespace are never shown to the webhook, since its answer depends on them: those of Kubernetes
/// itself, and ours.
pub fn is_beyond_the_webhook(name: &str, installation: &str) -> bool {
    name == "kube-system" || name == installation
}

/// Whether the text can be the key of a label, or the name of a resource: a name, and a domain before it or none.
pub fn is_label_key(text: &str) -> bool {
    let (domain, name) = text.split_once('/').map_or((None, text), |(domain, name)| (Some(domain), name));
    !name.is_empty() && is_label_value(name) && domain.is_none_or(is_dns_subdomain)
}

/// Whether the text can be the value of a label.
pub fn is_label_value(text: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    text.len() <= MAX_NAME && text.bytes().all(inner) && has_sound_ends(text)
}

/// Whether the text is what Kubernetes calls a DNS subdomain, as the names of most objects are.
pub fn is_dns_subdomain(text: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let is_part = |part: &str| !part.is_empty() && part.bytes().all(inner) && has_sound_ends(part);
    text.len() <= MAX_SUBDOMAIN && text.split('.').all(is_part)
}

fn has_sound_ends(text: &str) -> bool {
    let ends = text.bytes().next().into_iter().chain(text.bytes().last());
    ends.into_iter().all(|byte| byte.is_ascii_alphanumeric())
}

/// Whether an object that already has the wanted name is the one of this peer.
///
/// `recorded` is the clusterID that we wrote on the object when we made it; an object without one is not
/// ours, and is left alone.
pub fn adopt(object: &str, recorded: Option<&str>, cluster_id: &str) -> Result<(), NameTaken> {
    match recorded {
        Some(recorded) if recorded == cluster_id => Ok(()),
        Some(_) => Err(NameTaken::ByAnotherPeer { object: object.to_owned() }),
        None => Err(NameTaken::ByAStranger { object: object.to_owned() }),
    }
}

/// The name of a local object is in use for something else.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameTaken {
    /// By an object for another peer.
    #[error("{object} belongs to another peer; ask one of the two to change its cluster name")]
    ByAnotherPeer {
        /// The name.
        object: String,
    },
    /// By an object that we did not make.
    #[error("{object} was not made for a peer, and is left alone; rename or remove it")]
    ByAStranger {
        /// The name.
        object: String,
    },
}

#[cfg(test)]
mod tests {
    use super::{
        ClusterName, NameTaken, adopt, foreign_cluster, is_dns_label, is_label_key, is_label_value,
        tenant_namespace, virtual_node,
    };
    use crate::identity::tests::cluster;
    use proptest::prelude::*;

    const ID: &str = "d14e610e-4c1b-402c-a5f1-5ef6f39c0490";

    #[test]
    fn keys_and_values_of_labels_are_told_from_what_no_api_server_would_take() {
        let long = "a".repeat(63);
        for key in ["a", "liqo.io/region", "A_1.b-c", &long, &format!("{long}a.b/{long}")] {
            assert!(is_label_key(key), "{key}");
        }
        for key in ["", "a/", "/a", "a/b/c", "a b", "-a", "Liqo.io/a", "a..b/c", &format!("{long}a")] {
            assert!(!is_label_key(key), "{key}");
        }
        assert!(is_label_value("") && is_label_value(&long) && is_label_value("a_B.1"));
        assert!(!is_label_value("a/b") && !is_label_value("-5") && !is_label_value("a."));
    }

    fn all(name: &str, id: &str) -> [String; 3] {
        [tenant_namespace(name, id), virtual_node(name, id), foreign_cluster(name, id)]
    }

    #[test]
    fn names_read_as_the_contract_prints_them() {
        assert_eq!(
            all("Milan_Edge.1", ID),
            ["liqo-tenant-milan-edge-1-9b173a", "liqo-milan-edge-1-9b173a94ba", "milan-edge-1-9b173a94ba"]
        );
    }

    #[test]
    fn a_name_of_nothing_but_rubbish_still_gives_a_name() {
        assert_eq!(foreign_cluster("///", ID), "cluster-9b173a94ba");
        assert_eq!(foreign_cluster("", ID), "cluster-9b173a94ba");
        assert_eq!(foreign_cluster("-żółw-", ID), "w-9b173a94ba");
    }

    #[test]
    fn two_peers_of_one_name_have_two_objects() {
        for (one, two) in all("home", "a").iter().zip(all("home", "b")) {
            assert_ne!(*one, two);
        }
    }

    #[test]
    fn only_what_we_made_for_this_peer_is_adopted() {
        assert_eq!(adopt("x", Some(ID), ID), Ok(()));
        assert_eq!(adopt("x", Some("other"), ID), Err(NameTaken::ByAnotherPeer { object: "x".into() }));
        assert_eq!(adopt("x", None, ID), Err(NameTaken::ByAStranger { object: "x".into() }));
    }

    #[test]
    fn a_cluster_without_a_name_gets_one_from_its_identifier() {
        let id = cluster(1).identity().id();
        let name = ClusterName::of(&id);
        assert_eq!(name.as_str(), "cluster-34750f98");
        assert_eq!(name.as_str().parse(), Ok(name));
    }

    #[test]
    fn what_cannot_be_a_label_value_is_no_cluster_name() {
        for text in ["", "-a", "a.", "a b", "ä", "a\n", &"a".repeat(64)] {
            assert!(text.parse::<ClusterName>().is_err(), "{text:?}");
        }
        for text in ["a", "Milan_Edge.1", &"a".repeat(63)] {
            assert!(text.parse::<ClusterName>().is_ok(), "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn whatever_a_peer_says_the_names_are_dns_labels(name in ".{0,200}", id in ".{0,100}") {
            for made in all(&name, &id) {
                prop_assert!(is_dns_label(&made), "{}", made);
            }
            prop_assert_eq!(all(&name, &id), all(&name, &id));
        }

        #[test]
        fn other_identifiers_give_other_names(name in "[ -~]{0,80}", one: u128, two: u128) {
            prop_assume!(one != two);
            let (one, two) = (format!("{one:032x}"), format!("{two:032x}"));
            prop_assert_ne!(virtual_node(&name, &one), virtual_node(&name, &two));
            prop_assert_ne!(foreign_cluster(&name, &one), foreign_cluster(&name, &two));
        }
    }
}
