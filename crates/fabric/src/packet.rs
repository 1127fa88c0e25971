//! Packets as bytes: what a gateway reads and changes in them, in place and without looking at anything else.

mod checksum;
mod header;
#[cfg(test)]
mod sample;
mod segment;
mod translate;

pub use header::{Header, Malformed};
pub use segment::{Offload, Segments, complete};
pub use translate::{Checksum, Dropped, translate};
