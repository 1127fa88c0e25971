//! How clusters find each other: what they announce, what is made of what was heard, and where to look.
//!
//! Three ways lead to a `ForeignCluster`. On the local network a cluster announces itself by multicast DNS;
//! in the Internet it is registered in a DNS domain, under the same records; or a person gives an address.
//! A fourth is that the other cluster comes by itself.
//!
//! An announcement is anybody's word. It is read strictly, counted, and believed only once the cluster at
//! that address has proved to be the one announced.

mod address;
mod announcement;
mod earshot;
mod known;
mod neighbourhood;
mod plan;
mod records;
mod report;
mod sighting;
#[cfg(test)]
mod tests;

pub use address::{AUTH_PORT, BadAddress, Candidates, candidates};
pub use announcement::{Announcement, NotAnAnnouncement};
pub use earshot::{Earshot, Unheard};
pub use known::Known;
pub use neighbourhood::{Bounds, Ignored, Neighbourhood};
pub use plan::Change;
pub use records::{BadZone, Zone, zone_records};
pub use report::{BadReport, Report};
pub use sighting::{Address, Sighting, Way};
