//! Real Kubernetes clusters on one machine, for tests and for the demo.
//!
//! Every node is a set of namespaces with its own kubelet and containerd; all clusters hang on one LAN. A supervisor
//! owns them all, so that ending it ends everything: see `docs/ARCHITECTURE.md`, "The rig".

mod addons;
pub mod addresses;
pub mod audit;
pub mod census;
pub mod cgroups;
pub mod client;
mod components;
pub mod crashes;
pub mod fuse;
pub mod housed;
pub mod images;
pub mod installation;
pub mod lan;
pub mod node;
pub mod objects;
pub mod opening;
mod pki;
pub mod plan;
pub mod pods;
pub mod protocol;
pub mod relay;
pub mod room;
mod run;
pub mod site;
pub mod supervisor;
pub mod tools;
pub mod topology;
pub mod traces;
pub mod tunnels;
pub mod wait;
pub mod wire;
pub mod wireguard;
