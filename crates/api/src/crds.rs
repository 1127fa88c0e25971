//! All custom resource definitions, ready for an API server.
//!
//! The derive gives each kind its schema; what all of them have in common is added here, once.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt;

use crate::config::ClusterConfig;
use crate::discovery::{ForeignCluster, ResourceRequest, SearchDomain};
use crate::names::labels;
use crate::net::{IpamStorage, NatMapping, NetworkConfig, TunnelEndpoint};
use crate::offloading::{LiqoDeployment, NamespaceOffloading};
use crate::schema;
use crate::sharing::ResourceOffer;
use crate::tenancy::{Tenant, TenantDelegation};
use crate::virtualkubelet::{NamespaceMap, ShadowPod};

/// The category of every kind: `kubectl get liqo -A` lists them all.
pub const CATEGORY: &str = "liqo";

/// The definitions of all kinds, always in the same order and with the same content.
pub fn crds() -> Vec<CustomResourceDefinition> {
    [
        ClusterConfig::crd(),
        ForeignCluster::crd(),
        ResourceRequest::crd(),
        SearchDomain::crd(),
        IpamStorage::crd(),
        NatMapping::crd(),
        NetworkConfig::crd(),
        TunnelEndpoint::crd(),
        LiqoDeployment::crd(),
        NamespaceOffloading::crd(),
        ResourceOffer::crd(),
        Tenant::crd(),
        TenantDelegation::crd(),
        NamespaceMap::crd(),
        ShadowPod::crd(),
    ]
    .map(finished)
    .into()
}

fn finished(mut crd: CustomResourceDefinition) -> CustomResourceDefinition {
    labels::PART_OF.put_on(&mut crd.metadata);
    crd.spec.names.categories = Some(vec![CATEGORY.into()]);
    for version in &mut crd.spec.versions {
        if let Some(root) = version.schema.as_mut().and_then(|schema| schema.open_api_v3_schema.as_mut()) {
            schema::finish(root);
        }
    }
    crd
}
