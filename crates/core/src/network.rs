//! Addresses between clusters: which network stands for which, who may use an address, and what a gateway changes.
//!
//! Every cluster names the networks of its peers as it likes, so that nobody has to renumber: a peer's network keeps its
//! own name where that is free, and gets another one of the same size where it is not. The part of an address that
//! tells the hosts of a network apart is the same under every name. Endpoints that are not pods of this cluster are
//! published under addresses of its external network, one for each endpoint.

mod acquisition;
mod agreement;
mod board;
mod claims;
pub mod config;
pub mod exchange;
mod external;
pub mod gateway;
mod guests;
mod ipam;
mod own;
pub mod pulse;
mod redirections;
pub mod report;
pub mod routes;
mod rules;
mod storage;
mod table;
pub mod trace;
mod translation;
mod tunnel;
mod turn;
mod view;

pub use acquisition::{Networks, default_pools, replacement};
pub use agreement::{Agreement, Answer, Naming, Offered, Ours};
pub use board::{Board, Delta, Entry};
pub use claims::Claims;
pub use external::{Exhausted, ExternalAddresses, QUARANTINE};
pub use guests::{guests, keep_of_guest};
pub use ipam::{Asker, Ipam, MapError, Mapping, OwnNetworks, Refusal};
pub use own::{UnknownNetwork, hidden, node_addresses, own_networks, stray};
pub use redirections::Redirections;
pub use rules::Rules;
pub use storage::{BadStorage, layout};
pub use table::{Drop, Packet, PeerTable, ReachablePods, Table, chain};
pub use translation::{Translation, Unlike, map_to_network};
pub use tunnel::{
    ProbePair, Problem, Trouble, Tunnel, precedence, tables, tunnels, tunnels_of, tunnels_publishing,
    without_ourselves,
};
pub use turn::Turn;
pub use view::pod_names;
