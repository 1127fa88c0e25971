//! Short texts: identifiers, names, addresses and amounts, as they come from peers and from people.

use std::collections::BTreeMap;
use std::fmt::{Debug, Display};
use std::str::FromStr;

use ferro_core::auth::{HttpsUrl, Pin, UserName};
use ferro_core::identity::ClusterId;
use ferro_core::names::{ClusterName, foreign_cluster, is_dns_label, tenant_namespace, virtual_node};
use ferro_core::resources::Amount;
use ferro_core::selector::{self, Selector};

use crate::{Read, text};

/// Reads a text that has only one form: what can be read is printed as the same text.
fn exact<T: FromStr + Display>(data: &[u8]) -> Option<T> {
    let text = text(data)?;
    let value: T = text.parse().ok()?;
    assert_eq!(value.to_string(), text);
    Some(value)
}

/// What is printed means the same.
fn meaning<T: FromStr + Display + PartialEq + Debug>(value: &T) {
    assert_eq!(value.to_string().parse().ok().as_ref(), Some(value));
}

/// The identifier of a cluster.
pub fn cluster_id(data: &[u8]) -> Read {
    let id: ClusterId = exact(data)?;
    if let Ok(derived) = ClusterId::derived(text(data)?) {
        assert_eq!(derived, id);
    }
    Some(())
}

/// The name that a cluster gives itself.
pub fn cluster_name(data: &[u8]) -> Read {
    let name: ClusterName = exact(data)?;
    assert!((1..=63).contains(&name.as_str().len()));
    Some(())
}

/// The user that a certificate makes of a peer.
pub fn user_name(data: &[u8]) -> Read {
    let user: UserName = exact(data)?;
    assert_eq!(UserName::of_account(&user.account()), Some(user));
    Some(())
}

/// The pin of a key.
pub fn pin(data: &[u8]) -> Read {
    exact::<Pin>(data).map(drop)
}

/// The URL of an auth service or API server.
pub fn https_url(data: &[u8]) -> Read {
    let url: HttpsUrl = text(data)?.parse().ok()?;
    meaning(&url);
    // With its key it fits into one string of a TXT record.
    assert!(url.to_string().len() <= 250);
    assert_ne!(url.port(), 0);
    _ = url.is_elsewhere();
    Some(())
}

/// An amount of a resource.
pub fn quantity(data: &[u8]) -> Read {
    let amount: Amount = text(data)?.parse().ok()?;
    meaning(&amount);
    assert_eq!(amount.percent(100), amount);
    assert!(amount.whole_thousandths() <= amount && amount.whole_units() <= amount.whole_thousandths());
    assert!(amount.saturating_add(amount) >= amount && amount.saturating_sub(amount).is_zero());
    Some(())
}

/// The names of local objects that stand for a peer: whatever it calls itself, they are fit for Kubernetes.
pub fn local_name(data: &[u8]) -> Read {
    let (name, id) = text(data)?.split_once('\n')?;
    for local in [tenant_namespace(name, id), virtual_node(name, id), foreign_cluster(name, id)] {
        assert!(is_dns_label(&local), "{local}");
    }
    Some(())
}

/// Which clusters are meant, as users write it into an annotation: what is printed means the same, and who is not meant is
/// told why.
pub fn cluster_selector(data: &[u8]) -> Read {
    let selector = selector::text::parse(text(data)?).ok()?;
    let printed = selector::text::text(&selector);
    assert_eq!(selector::text::parse(&printed).as_ref(), Ok(&selector), "{printed}");
    let understood = Selector::parse(&selector);
    assert!(understood.is_ok(), "{understood:?}");
    let (understood, labels) = (understood.ok()?, BTreeMap::from([("cores".to_owned(), "9".to_owned())]));
    let why_not = understood.explain("liqo-turin-dbdb6870cb", &labels);
    assert_eq!(why_not.is_empty(), understood.matches("liqo-turin-dbdb6870cb", &labels));
    Some(())
}
