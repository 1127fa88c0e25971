//! Packets as bytes: what a gateway reads and changes in them, in place and without looking at anything else.

mod checksum;
mod coalesce;
mod echo;
mod flow;
mod header;
mod mss;
#[cfg(test)]
mod sample;
mod segment;
mod translate;

pub use coalesce::{Coalesce, Train};
pub use echo::{Echo, Numbers};
pub use flow::{Flow, Stage};
pub use header::{Header, Malformed};
pub use mss::clamp;
pub use segment::{Offload, Segments, complete};
pub use translate::{Checksum, Dropped, translate, translate_with_router};
