//! What becomes of a ShadowPod on the provider.

mod pod;

pub use pod::pod;
