//! Which rights within a container a Tenant's pods do not get.
//!
//! Pod Security of the namespace says the same and more. What is refused here is what a consumer asks for on purpose, so
//! that the reason is clear and no request is spent on it.

use ferro_api::config::PodSecurity;
use ferro_api::tenancy::TenantSpec;
use k8s_openapi::api::core::v1::{PodSpec, SecurityContext};

use super::NOT_ALLOWED;
use crate::pods::Refusal;
use crate::pods::outward::barred;

/// What the level baseline lets a container add: what runtimes give to every container anyway.
const CAPABILITIES: [&str; 13] = [
    "AUDIT_WRITE",
    "CHOWN",
    "DAC_OVERRIDE",
    "FOWNER",
    "FSETID",
    "KILL",
    "MKNOD",
    "NET_BIND_SERVICE",
    "SETFCAP",
    "SETGID",
    "SETPCAP",
    "SETUID",
    "SYS_CHROOT",
];

/// Refuses rights that the level of the Tenant does not give.
pub fn check(spec: &PodSpec, terms: &TenantSpec) -> Result<(), Refusal> {
    let level = match terms.pod_security.unwrap_or_default() {
        PodSecurity::Privileged => return Ok(()),
        level @ (PodSecurity::Baseline | PodSecurity::Restricted) => level.as_str(),
    };
    let asked = barred::parts(spec).find_map(|part| Some((excess(part.security?)?, part.name)));
    let Some((right, name)) = asked else { return Ok(()) };
    let message = format!(
        "container {name} asks for {right}, which pods on this cluster do not get with the Pod Security level {level}; \
         take it out, or ask the administrators of this cluster for another level"
    );
    Err(Refusal::new(NOT_ALLOWED, message))
}

/// What goes beyond the level baseline.
fn excess(context: &SecurityContext) -> Option<&'static str> {
    if context.privileged == Some(true) {
        return Some("privileged");
    }
    if context.proc_mount.as_deref().is_some_and(|mount| !matches!(mount, "" | "Default")) {
        return Some("another procMount than Default");
    }
    let added = context.capabilities.as_ref().and_then(|capabilities| capabilities.add.as_ref());
    let mut added = added.into_iter().flatten();
    added
        .any(|name| !CAPABILITIES.contains(&name.as_str()))
        .then_some("capabilities that containers do not have")
}
