//! Namespaces and pods that run elsewhere: which clusters a namespace uses, what a pod may do there, what a peer may
//! have here.

pub mod namespaces;
pub mod tenants;
pub mod webhook;
