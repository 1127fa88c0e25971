//! Annotations.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

/// The identifier of the cluster that an object comes from; also a label.
pub const ORIGIN_ID: Annotation = Annotation { key: super::labels::ORIGIN_ID.key() };

/// On a copied object: which version of its original it shows, as the UID and the generation of that.
pub const ORIGIN_VERSION: Annotation = Annotation { key: "liqo.io/origin-version" };
/// On a ForeignCluster: its peerings end without waiting for the other cluster. On a NamespaceOffloading: it is released
/// without waiting for the namespaces on other clusters.
pub const FORCE: Annotation = Annotation { key: "liqo.io/force" };
/// On a ForeignCluster: it was joined once because the configuration said so, and is not joined so again.
pub const AUTO_JOINED: Annotation = Annotation { key: "liqo.io/auto-joined" };
/// On a NamespaceOffloading: it was made because its namespace has the label liqo.io/enabled, and goes with that label.
pub const CREATED_BY_LABEL: Annotation = Annotation { key: "offloading.liqo.io/created-by-label" };
/// On a namespace of a Tenant: the namespace of the consumer that it stands for.
pub const ORIGIN_NAMESPACE: Annotation = Annotation { key: "tenancy.liqo.io/origin-namespace" };
/// On what our controller puts into a namespace of a Tenant: which content it was made with, as a hash.
pub const CONTENT: Annotation = Annotation { key: "tenancy.liqo.io/content" };
/// On a virtual node: the keys of its labels that the peer claims for itself.
pub const CLAIMED_LABELS: Annotation = Annotation { key: "liqo.io/claimed-labels" };
/// On a virtual node: the keys of its labels that were set on the ForeignCluster.
pub const SET_LABELS: Annotation = Annotation { key: "liqo.io/set-labels" };

/// On a Deployment: the cluster to which its pods were moved, by its identifier, or home.
pub const MOVED_TO: Annotation = Annotation { key: "offloading.liqo.io/moved-to" };

/// On a ShadowPod or a claim: the UID of the pod or claim that it is made for, in the cluster that that one is in.
pub const ORIGIN_UID: Annotation = Annotation { key: "virtualkubelet.liqo.io/origin-uid" };
/// On a Secret with the tokens of a pod that runs elsewhere: the name of the pod.
pub const ORIGIN_POD: Annotation = Annotation { key: "virtualkubelet.liqo.io/origin-pod" };
/// On a pod that was made from a ShadowPod: the UID of that.
pub const SHADOW_UID: Annotation = Annotation { key: "virtualkubelet.liqo.io/shadow-uid" };
/// On a ShadowPod, and on the pod made from it: which wish it shows, as a hash. Who compares need not keep the whole.
pub const POD_CONTENT: Annotation = Annotation { key: "virtualkubelet.liqo.io/content" };
/// On a ShadowPod: its consumer ends the pod itself and then deletes the ShadowPod. No other pod is made in between.
pub const ENDING: Annotation = Annotation { key: "virtualkubelet.liqo.io/ending" };

/// On a Secret with the tokens of a pod that runs elsewhere: when to renew them.
pub const RENEW_AT: Annotation = Annotation { key: "virtualkubelet.liqo.io/renew-at" };
/// On a claim that waits for its volume: the identifier of the cluster on which one is being made for it.
pub const HELD_FOR: Annotation = Annotation { key: "storage.liqo.io/held-for" };
/// On a claim that stands in for another one: the name of that.
pub const STANDS_FOR: Annotation = Annotation { key: "storage.liqo.io/stands-for" };
/// On an object of an offloaded namespace: true has it copied to other clusters though nothing there needs it, false keeps it
/// at home.
pub const REFLECT: Annotation = Annotation { key: "liqo.io/reflect" };
/// On an object of an offloaded namespace: to which of the clusters it is copied, as a selector of their nodes, such as
/// `liqo.io/region=eu,!edge`.
pub const REFLECT_TO: Annotation = Annotation { key: "liqo.io/reflect-to" };
/// On a reflected object: which content it was made with, as a hash.
pub const REFLECTED_CONTENT: Annotation = Annotation { key: "reflection.liqo.io/content" };
/// On a reflected object: the UID of its original.
pub const REFLECTED_UID: Annotation = Annotation { key: "reflection.liqo.io/origin-uid" };
/// On a reflected EndpointSlice: its endpoints are taken out of use here, as long as nothing is heard from their cluster.
pub const SILENCED: Annotation = Annotation { key: "reflection.liqo.io/silenced" };
/// On a namespace of a Tenant: the networks of the consumer, by the names that they have here. Endpoints of the consumer
/// lie in them.
pub const NETWORKS: Annotation = Annotation { key: "tenancy.liqo.io/networks" };

/// On a CertificateSigningRequest: the signed request of the cluster that asks, on which the controller decides.
pub const REQUEST: Annotation = Annotation { key: "liqo.io/request" };

/// On the certificate of the auth service: the Secret that it was copied from.
pub const COPIED_FROM: Annotation = Annotation { key: "liqo.io/copied-from" };

/// On an IpamStorage: who writes it now. Put on anew by everybody who begins to, so that what a former writer has still
/// under way comes too late.
pub const WRITER: Annotation = Annotation { key: "liqo.io/writer" };

/// On the Lease of the gateway: until when it may have begun handshakes. Peers take none that is not later.
pub const HANDSHAKES: Annotation = Annotation { key: "liqo.io/handshakes-until" };

/// An annotation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Annotation {
    pub(super) key: &'static str,
}

impl Annotation {
    /// The key.
    pub const fn key(&self) -> &'static str {
        self.key
    }

    /// The value on this object.
    pub fn of<'a>(&self, meta: &'a ObjectMeta) -> Option<&'a str> {
        meta.annotations.as_ref()?.get(self.key).map(String::as_str)
    }

    /// Puts the annotation on this object, in place of an earlier value.
    pub fn put_on(&self, meta: &mut ObjectMeta, value: impl Into<String>) {
        meta.annotations.get_or_insert_default().insert(self.key.into(), value.into());
    }

    /// Takes the annotation off this object.
    pub fn take_off(&self, meta: &mut ObjectMeta) {
        if let Some(annotations) = &mut meta.annotations {
            annotations.remove(self.key);
        }
    }
}
