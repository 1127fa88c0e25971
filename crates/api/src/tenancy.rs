//! Group `tenancy.liqo.io`: what a peer may use here, and whom it lets in there.

mod delegation;
mod subject;
mod tenant;

pub use delegation::{DelegationLevel, TenantDelegation, TenantDelegationSpec, TenantDelegationStatus};
pub use subject::{Subject, SubjectKind};
pub use tenant::{Tenant, TenantNamespace, TenantNamespacePhase, TenantSpec, TenantStatus};

/// The types of condition on kinds of this group.
pub mod condition {
    /// Everything that the object asks for is in place.
    pub const READY: &str = "Ready";
}
