//! What is kept in memory of `ShadowPods` and of the pods made from them: no more than is read.
//!
//! A consumer decides how many and how large its `ShadowPods` are. One that is too large is kept as nothing but that.

use std::io;

use ferro_api::names::annotations::Annotation;
use ferro_api::names::{annotations, labels};
use ferro_api::virtualkubelet::{ShadowPod, ShadowPodSpec};
use k8s_openapi::api::core::v1::{Container, Pod, PodSpec, PodStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::plan::is_final;
use crate::pods::Refusal;

/// As many bytes as a ShadowPod may have. Pods have a few thousand.
const MOST_BYTES: usize = 128 * 1024;
/// In place of all other annotations of a ShadowPod that is too large, in memory only. Who sets it is taken at its word.
const TOO_LARGE: &str = "virtualkubelet.liqo.io/too-large";

/// Takes out of a ShadowPod what is not read: all of the wish once it is answered for good.
pub fn keep_of_shadow(shadow: &mut ShadowPod) {
    shadow.metadata.managed_fields = None;
    if is_final(shadow) {
        strip(shadow);
    } else if !fits(shadow) {
        strip(shadow);
        shadow.metadata.annotations = Some([(TOO_LARGE.to_owned(), String::new())].into());
    }
}

/// Whether a ShadowPod is not too large.
pub fn fits(shadow: &ShadowPod) -> bool {
    // A writer that is full ends the work: what is too large is not even measured to its end.
    serde_json::to_writer(Room(MOST_BYTES), shadow).is_ok()
}

/// Takes out of a pod what is not read: all but who it is, what it takes, and how it fares.
pub fn keep_of_pod(pod: &mut Pod) {
    let meta = std::mem::take(&mut pod.metadata);
    pod.metadata = ObjectMeta {
        labels: meta.labels.map(|all| {
            let is_read = |key: &str| key == labels::SHADOWED.key() || key == labels::ORIGIN_ID.key();
            all.into_iter().filter(|(key, _)| is_read(key)).collect()
        }),
        annotations: meta.annotations.map(|all| {
            let read: [Annotation; 2] = [annotations::SHADOW_UID, annotations::POD_CONTENT];
            all.into_iter().filter(|(key, _)| read.iter().any(|read| read.key() == key)).collect()
        }),
        name: meta.name,
        namespace: meta.namespace,
        uid: meta.uid,
        resource_version: meta.resource_version,
        deletion_timestamp: meta.deletion_timestamp,
        ..ObjectMeta::default()
    };
    pod.spec = pod.spec.take().map(|spec| PodSpec {
        containers: spec.containers.into_iter().map(kept_container).collect(),
        init_containers: spec.init_containers.map(|all| all.into_iter().map(kept_container).collect()),
        overhead: spec.overhead,
        scheduling_gates: spec.scheduling_gates,
        resources: spec.resources,
        ..PodSpec::default()
    });
    pod.status = pod.status.take().map(|status| PodStatus {
        phase: status.phase,
        reason: status.reason,
        message: status.message,
        ..PodStatus::default()
    });
}

pub(super) fn is_too_large(shadow: &ShadowPod) -> bool {
    shadow.metadata.annotations.as_ref().is_some_and(|all| all.contains_key(TOO_LARGE))
}

pub(super) fn too_large() -> Refusal {
    let text =
        format!("the pod with its labels and annotations has more than {MOST_BYTES} bytes; shorten it");
    Refusal::new("TooLarge", text)
}

fn strip(shadow: &mut ShadowPod) {
    shadow.spec = ShadowPodSpec::default();
    (shadow.metadata.labels, shadow.metadata.annotations) = (None, None);
}

fn kept_container(container: Container) -> Container {
    let Container { name, resources, restart_policy, .. } = container;
    Container { name, resources, restart_policy, ..Container::default() }
}

/// So many bytes may still be written.
struct Room(usize);

impl io::Write for Room {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 = self.0.checked_sub(bytes.len()).ok_or(io::ErrorKind::StorageFull)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
