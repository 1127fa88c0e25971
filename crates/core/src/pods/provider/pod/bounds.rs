//! How large a ShadowPod may be: enough for any honest pod, and little enough that nobody is disturbed.

use std::collections::BTreeMap;

use ferro_api::virtualkubelet::ShadowPod;

use crate::pods::Refusal;

/// The most labels, and the most annotations.
pub const MOST_KEYS: usize = 128;
/// The most containers of all kinds together.
pub const MOST_CONTAINERS: usize = 64;
/// The most volumes.
pub const MOST_VOLUMES: usize = 64;
/// The most bytes of the spec, as JSON.
pub const MOST_BYTES: usize = 256 * 1024;

/// Refuses what is too large.
pub fn check(shadow: &ShadowPod) -> Result<(), Refusal> {
    let (meta, spec) = (&shadow.metadata, &shadow.spec.pod);
    let containers = spec.containers.len()
        + spec.init_containers.as_ref().map_or(0, Vec::len)
        + spec.ephemeral_containers.as_ref().map_or(0, Vec::len);
    at_most(MOST_KEYS, meta.labels.as_ref().map_or(0, BTreeMap::len), "labels")?;
    at_most(MOST_KEYS, meta.annotations.as_ref().map_or(0, BTreeMap::len), "annotations")?;
    at_most(MOST_CONTAINERS, containers, "containers of all kinds")?;
    at_most(MOST_VOLUMES, spec.volumes.as_ref().map_or(0, Vec::len), "volumes")?;
    // What cannot be written has no size that could be allowed.
    let bytes = serde_json::to_vec(spec).map_or(usize::MAX, |json| json.len());
    at_most(MOST_BYTES, bytes, "bytes of its spec")
}

fn at_most(most: usize, count: usize, what: &str) -> Result<(), Refusal> {
    if count <= most {
        return Ok(());
    }
    let message =
        format!("the pod has {count} {what}, and this cluster takes at most {most}; make it smaller");
    Err(Refusal::new("TooLarge", message))
}
