//! What becomes of a ShadowPod on the provider.
//!
//! # Flow
//! A ShadowPod and the pod made from it have the same name. [`plan`] says the next step for one name, which is performed
//! before the next one is planned. [`pod()`] makes the pod, [`Quota`] says whether there is room for it, [`verdict`] what an
//! API server's answer means for it, and [`changes`] what of a new wish the running pod can follow.
//!
//! # Guarantees
//! - Nothing is remembered but what stands in the objects: a step may be cut off anywhere, and is then taken again.
//! - Of one name there is one pod. One that was made from another ShadowPod goes first, one that is somebody else's stays.
//! - What has ended does not begin again. A pod that is lost is made again only where its restart policy lets it run again.
//! - A pod that must not run twice is made behind a gate, which is opened when its UID is noted down: one that is lost
//!   before that, while nobody looked, has not run.
//! - `ShadowPods` hold no finalizer of ours: a pod whose ShadowPod is gone goes, however long nobody looked.
//!
//! # Assumptions
//! - One name is decided by one at a time. A snapshot may be behind what others wrote, and not behind what was written
//!   for this name here.
//! - Only our own controller puts the mark on pods, and the Tenant's label on namespaces.

mod change;
mod kept;
mod plan;
mod pod;
mod quota;
mod shown;
mod verdict;

pub use change::{Change, Changes, MANAGER, Refused, changes};
pub use kept::{fits, keep_of_pod, keep_of_shadow};
pub use plan::{Snapshot, Step, is_made_from, opening, plan, takes_room};
pub use pod::pod;
pub use quota::{Quota, limits, resized, weighed_again};
pub use shown::{Complaint, after_change, complaint, delayed, rejected};
pub use verdict::{Verdict, verdict};

#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;
