//! The names that go on objects: labels, annotations, taints and finalizers, each written once.
//!
//! A name is a value with the few operations that make sense for it, so that nobody handles keys as strings.

pub mod annotations;
pub mod finalizers;
pub mod labels;
mod root;
pub mod taints;

pub use root::Root;
