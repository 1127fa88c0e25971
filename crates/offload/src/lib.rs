//! Namespaces and pods that run elsewhere: which clusters a namespace uses, what a pod may do there, what a peer may
//! have here.

pub mod kubelet;
pub mod namespaces;
pub mod pods;
pub mod shadows;
pub mod tenants;
pub mod webhook;
