//! Labels, of two sorts: those whose value says something, and those that are either there or not.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

/// On every node that stands for a peer.
pub const TYPE_VIRTUAL_NODE: Mark = Mark { key: "liqo.io/type", value: "virtual-node" };
/// On a namespace that is to be extended over all peers.
pub const ENABLED: Mark = Mark { key: "liqo.io/enabled", value: "true" };
/// On an object that is to be copied to the peer named by [`REMOTE_ID`].
pub const REPLICATION: Mark = Mark { key: "liqo.io/replication", value: "true" };
/// On an object that was copied here from the peer named by [`ORIGIN_ID`].
pub const REPLICATED: Mark = Mark { key: "liqo.io/replicated", value: "true" };
/// On a copy of an object of another cluster, the one named by [`ORIGIN_ID`]: it follows its original, and goes with it.
pub const REFLECTED: Mark = Mark { key: "reflection.liqo.io/reflected", value: "true" };
/// On an EndpointSlice that reflects endpoints of another cluster.
pub const REFLECTED_SLICE: Mark =
    Mark { key: "endpointslice.kubernetes.io/managed-by", value: "reflection.liqo.io" };
/// On a namespace that a NamespaceOffloading extends over peers: its pods are shown to our admission webhook.
/// Only our own controller may set it.
pub const OFFLOADED: Mark = Mark { key: "offloading.liqo.io/admitted", value: "true" };
/// On a pod that was made from a ShadowPod. Only our own controller may set it.
pub const SHADOWED: Mark = Mark { key: "virtualkubelet.liqo.io/shadowed", value: "true" };
/// On a Secret with the tokens of a pod that runs elsewhere.
pub const TOKENS: Mark = Mark { key: "virtualkubelet.liqo.io/tokens", value: "true" };
/// On a claim in the namespace of the installation that gets a volume of this cluster for another claim.
pub const STAND_IN: Mark = Mark { key: "storage.liqo.io/stand-in", value: "true" };
/// On everything that an installation consists of.
pub const PART_OF: Mark = Mark { key: "app.kubernetes.io/part-of", value: "ferrofluid" };

/// The identifier of the cluster that an object is meant for.
pub const REMOTE_ID: Label = Label { key: "liqo.io/remoteID" };
/// The identifier of the cluster that an object comes from.
pub const ORIGIN_ID: Label = Label { key: "liqo.io/originID" };
/// On a namespace here that a peer uses: the identifier of that peer, which is the name of its Tenant. Only our own
/// controller may set it.
pub const TENANT: Label = Label { key: "tenancy.liqo.io/tenant" };
/// The region of a cluster.
pub const REGION: Label = Label { key: "liqo.io/region" };
/// The provider of a cluster.
pub const PROVIDER: Label = Label { key: "liqo.io/provider" };

/// A label whose value says something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Label {
    pub(super) key: &'static str,
}

impl Label {
    /// The key.
    pub const fn key(&self) -> &'static str {
        self.key
    }

    /// The value on this object.
    pub fn of<'a>(&self, meta: &'a ObjectMeta) -> Option<&'a str> {
        meta.labels.as_ref()?.get(self.key).map(String::as_str)
    }

    /// Puts the label on this object, in place of an earlier value.
    pub fn put_on(&self, meta: &mut ObjectMeta, value: impl Into<String>) {
        meta.labels.get_or_insert_default().insert(self.key.into(), value.into());
    }

    /// Takes the label off this object.
    pub fn take_off(&self, meta: &mut ObjectMeta) {
        if let Some(labels) = &mut meta.labels {
            labels.remove(self.key);
        }
    }

    /// Selects the objects that have this value.
    pub fn selector(&self, value: &str) -> String {
        format!("{}={value}", self.key)
    }
}

/// A label that is either there, with its one value, or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    key: &'static str,
    value: &'static str,
}

impl Mark {
    /// The key.
    pub const fn key(&self) -> &'static str {
        self.key
    }

    /// The value.
    pub const fn value(&self) -> &'static str {
        self.value
    }

    /// Whether this object has the mark.
    pub fn is_on(&self, meta: &ObjectMeta) -> bool {
        self.label().of(meta) == Some(self.value)
    }

    /// Puts the mark on this object.
    pub fn put_on(&self, meta: &mut ObjectMeta) {
        self.label().put_on(meta, self.value);
    }

    /// Takes the mark off this object.
    pub fn take_off(&self, meta: &mut ObjectMeta) {
        self.label().take_off(meta);
    }

    /// Selects the objects that have the mark.
    pub fn selector(&self) -> String {
        self.label().selector(self.value)
    }

    const fn label(self) -> Label {
        Label { key: self.key }
    }
}

#[cfg(test)]
mod tests {
    use super::{ENABLED, REMOTE_ID, TYPE_VIRTUAL_NODE};
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

    #[test]
    fn a_mark_counts_only_with_its_own_value() {
        let mut meta = ObjectMeta::default();
        assert!(!ENABLED.is_on(&meta));
        meta.labels.get_or_insert_default().insert("liqo.io/enabled".into(), "false".into());
        assert!(!ENABLED.is_on(&meta));
        ENABLED.put_on(&mut meta);
        assert!(ENABLED.is_on(&meta));
        ENABLED.take_off(&mut meta);
        assert!(!ENABLED.is_on(&meta));
    }

    #[test]
    fn selectors_read_as_kubectl_writes_them() {
        assert_eq!(TYPE_VIRTUAL_NODE.selector(), "liqo.io/type=virtual-node");
        assert_eq!(REMOTE_ID.selector("c1"), "liqo.io/remoteID=c1");
    }

    #[test]
    fn a_label_gives_back_what_was_put_on() {
        let mut meta = ObjectMeta::default();
        REMOTE_ID.put_on(&mut meta, "c1");
        assert_eq!(REMOTE_ID.of(&meta), Some("c1"));
        REMOTE_ID.take_off(&mut meta);
        assert_eq!(REMOTE_ID.of(&meta), None);
    }
}
