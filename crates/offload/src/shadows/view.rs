//! All about one name at one moment: what the watches say, or what was answered since.

use std::sync::Arc;

use ferro_api::tenancy::{Tenant, TenantSpec};
use ferro_api::virtualkubelet::ShadowPod;
use ferro_core::pods::provider::{self, Snapshot};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;

use super::office::Office;
use super::{Key, owner};

/// All about one name at one moment.
pub(super) struct View {
    pub(super) shadow: Option<Arc<ShadowPod>>,
    pub(super) pod: Option<Arc<Pod>>,
    tenant: Option<(String, TenantSpec)>,
    is_open: bool,
}

impl View {
    pub(super) fn of(office: &Office, key: &Key) -> Self {
        let (shop, (namespace, name)) = (&office.shop, key);
        let room = shop.home.namespaces.get(None, namespace);
        let is_open = room.as_deref().is_some_and(|room| {
            room.metadata.deletion_timestamp.is_none()
                && owner(room).as_deref() == Some(office.tenant.as_str())
        });
        let (shadow, pod) = office.recent.merge(
            key,
            shop.shadows.get(Some(namespace), name),
            shop.pods.get(Some(namespace), name),
        );
        Self { shadow, pod, tenant: office.usable().map(|tenant| terms(office, &tenant)), is_open }
    }

    pub(super) fn snapshot(&self) -> Snapshot<'_> {
        Snapshot {
            shadow: self.shadow.as_deref(),
            pod: self.pod.as_deref(),
            tenant: self.tenant.as_ref().map(|(name, terms)| (name.as_str(), terms)),
            is_open: self.is_open,
            now: Timestamp::now(),
        }
    }
}

impl Office {
    /// The Tenant, if pods may be made for it.
    pub(super) fn usable(&self) -> Option<Arc<Tenant>> {
        let tenant = self.shop.home.tenants.get(None, &self.tenant)?;
        let is_usable = tenant.metadata.deletion_timestamp.is_none() && provider::limits(&tenant).is_some();
        is_usable.then_some(tenant)
    }
}

/// What holds for the Tenant's pods now.
fn terms(office: &Office, tenant: &Tenant) -> (String, TenantSpec) {
    let mut terms = tenant.spec.clone();
    if terms.pod_security.is_none() {
        terms.pod_security = Some(office.shop.home.settings().tenancy().pod_security());
    }
    (office.tenant.clone(), terms)
}
