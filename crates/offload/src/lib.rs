//! Namespaces and pods that run elsewhere: which clusters a namespace uses, what a pod may do there, what a peer may
//! have here.

pub mod claims;
pub mod kubelet;
pub mod namespaces;
pub mod occupancy;
pub mod pods;
pub mod reflection;
pub mod shadows;
pub mod tenants;
pub mod tokens;
pub mod webhook;
