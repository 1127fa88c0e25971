//! When a peer has a Tenant: as long as its use of our resources lasts, and until what it left is gone.

use ferro_api::discovery::{ForeignCluster, PeeringState};
use ferro_api::names::{finalizers, labels};
use ferro_api::tenancy::{Tenant, TenantSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::{Snapshot, Write};

/// What is to become of a Tenant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    /// The peer uses our resources, and has one.
    Use,
    /// It is not made, and what there is stays: the peering begins, or ends in order.
    Keep,
    /// It goes, with all that the peer left.
    End,
}

/// What is to become of the Tenant of a peer. Only a peering that is said to be over ends one: a `ForeignCluster` whose
/// status is not known, as after a restore, must not cost a consumer its namespaces.
pub fn wish(peer: Option<&ForeignCluster>) -> Wish {
    let Some(peer) = peer else { return Wish::End };
    let incoming = peer.status.as_ref().and_then(|status| status.incoming.as_ref());
    let is_going = peer.metadata.deletion_timestamp.is_some();
    match incoming.map(|incoming| incoming.state) {
        Some(PeeringState::Established | PeeringState::Unreachable) if !is_going => Wish::Use,
        Some(
            PeeringState::Established
            | PeeringState::Unreachable
            | PeeringState::Pending
            | PeeringState::Disconnecting,
        )
        | None => Wish::Keep,
        Some(PeeringState::None | PeeringState::Refused) => Wish::End,
    }
}

impl Snapshot<'_> {
    /// Whether namespaces may be made and kept.
    pub(super) fn is_open(&self) -> bool {
        self.tenant.is_some_and(|tenant| !is_going(&tenant.metadata)) && self.wish != Wish::End
    }

    /// What the Tenant itself needs, and whether the rest can be looked at.
    pub(super) fn keep_tenant(&self) -> (Vec<Write>, bool) {
        match (self.tenant, self.wish) {
            (None, Wish::Use) => (vec![Write::CreateTenant(Box::new(self.new_tenant()))], false),
            (Some(tenant), Wish::Use) if !is_going(&tenant.metadata) && !is_held(&tenant.metadata) => {
                (vec![Write::HoldTenant], false)
            }
            // One that an administrator has made beforehand is for the next time, too.
            (Some(tenant), Wish::End)
                if labels::PART_OF.is_on(&tenant.metadata) && !is_going(&tenant.metadata) =>
            {
                (vec![Write::DeleteTenant], true)
            }
            (Some(_), Wish::Use | Wish::Keep | Wish::End) | (None, Wish::Keep | Wish::End) => {
                (Vec::new(), true)
            }
        }
    }

    /// Lets the Tenant go once nothing is left of it. By force, what is on its way out is not waited for.
    pub(super) fn release_tenant(&self) -> Option<Write> {
        let tenant = self.tenant.filter(|tenant| is_held(&tenant.metadata))?;
        let is_over = is_going(&tenant.metadata) || self.wish == Wish::End;
        let mut left = self.namespaces.of_tenant().into_iter();
        let are_gone = left.all(|namespace| self.forced && is_going(&namespace.metadata));
        let is_beside =
            |meta: &ObjectMeta| meta.namespace.is_none() || meta.namespace.as_deref() == self.control;
        let is_seen = self.furniture.iter().any(|(_, object)| is_beside(&object.metadata));
        (is_over && are_gone && !is_seen).then_some(Write::ReleaseTenant)
    }

    fn new_tenant(&self) -> Tenant {
        let mut metadata = ObjectMeta {
            name: Some(self.consumer.cluster_id.clone()),
            finalizers: Some(vec![finalizers::TENANT.to_owned()]),
            ..ObjectMeta::default()
        };
        labels::PART_OF.put_on(&mut metadata);
        labels::ORIGIN_ID.put_on(&mut metadata, &self.consumer.cluster_id);
        let spec = TenantSpec { cluster: self.consumer.clone(), ..TenantSpec::default() };
        Tenant { metadata, spec, status: None }
    }
}

pub(super) fn is_going(meta: &ObjectMeta) -> bool {
    meta.deletion_timestamp.is_some()
}

pub(super) fn is_held(meta: &ObjectMeta) -> bool {
    meta.finalizers.iter().flatten().any(|name| name == finalizers::TENANT)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn peer(state: Option<&str>, going: bool) -> ForeignCluster {
        let status = state.map(|state| json!({"incoming": {"state": state}}));
        let deleted = going.then_some("2025-01-01T00:00:00Z");
        serde_json::from_value(json!({
            "apiVersion": "discovery.liqo.io/v1alpha1", "kind": "ForeignCluster",
            "metadata": {"name": "rome", "deletionTimestamp": deleted}, "spec": {}, "status": status,
        }))
        .unwrap()
    }

    #[test]
    fn a_tenant_lasts_as_long_as_the_peering_and_goes_only_when_that_is_said_to_be_over() {
        let of = |state, going| wish(Some(&peer(state, going)));
        assert_eq!(of(Some("Established"), false), Wish::Use);
        assert_eq!(of(Some("Unreachable"), false), Wish::Use);
        assert_eq!(of(Some("Established"), true), Wish::Keep);
        assert_eq!(of(Some("Pending"), false), Wish::Keep);
        assert_eq!(of(Some("Disconnecting"), false), Wish::Keep);
        assert_eq!(of(None, false), Wish::Keep);
        assert_eq!(of(Some("None"), false), Wish::End);
        assert_eq!(of(Some("Refused"), true), Wish::End);
        assert_eq!(wish(None), Wish::End);
    }
}
