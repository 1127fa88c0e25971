//! What a pod is told about itself: over there as at home, so that an application does not notice where it runs.
//!
//! Variables get the values of home. Files cannot hold plain values, so they get those of the annotations that say where
//! the pod comes from. Addresses are those over there: home does not know them when it sends the pod.

use ferro_api::names::annotations::{ORIGIN_NAMESPACE, ORIGIN_UID};
use k8s_openapi::api::core::v1::{DownwardAPIVolumeFile, EnvVar, Pod, PodSpec};

use super::keys;

/// Puts what home knows in the place of what would be asked of the pod over there.
pub fn translate(spec: &mut PodSpec, pod: &Pod) {
    let containers = spec.containers.iter_mut().chain(spec.init_containers.iter_mut().flatten());
    let own = containers.filter_map(|container| container.env.as_mut());
    let ephemeral = spec.ephemeral_containers.iter_mut().flatten();
    let variables = own.chain(ephemeral.filter_map(|container| container.env.as_mut())).flatten();
    variables.for_each(|variable| translate_variable(variable, pod));

    for volume in spec.volumes.iter_mut().flatten() {
        let own = volume.downward_api.iter_mut().filter_map(|source| source.items.as_mut());
        let sources =
            volume.projected.iter_mut().filter_map(|projected| projected.sources.as_mut()).flatten();
        let projected = sources.filter_map(|source| source.downward_api.as_mut()?.items.as_mut());
        own.chain(projected).flatten().for_each(translate_file);
    }
}

fn translate_variable(variable: &mut EnvVar, pod: &Pod) {
    let field = variable.value_from.as_ref().and_then(|from| from.field_ref.as_ref());
    let Some(value) = field.and_then(|field| at_home(&field.field_path, pod)) else { return };
    // A dollar would begin the name of another variable.
    variable.value = Some(value.replace('$', "$$"));
    variable.value_from = None;
}

/// The value of a field, if it would be another one over there and home knows it.
fn at_home(path: &str, pod: &Pod) -> Option<String> {
    let (meta, spec) = (&pod.metadata, pod.spec.as_ref());
    let value = match path {
        "metadata.namespace" => meta.namespace.clone(),
        "metadata.uid" => meta.uid.clone(),
        "spec.nodeName" => spec.and_then(|spec| spec.node_name.clone()),
        "spec.serviceAccountName" => spec.and_then(|spec| spec.service_account_name.clone()),
        _ => {
            let (kind, key) = path.strip_suffix("']")?.split_once("['")?;
            let values = match kind {
                "metadata.labels" => meta.labels.as_ref(),
                "metadata.annotations" => meta.annotations.as_ref(),
                _ => return None,
            };
            let value = values.and_then(|values| values.get(key)).cloned().unwrap_or_default();
            let arrives = match kind {
                "metadata.labels" => keys::label_is_kept(key, &value),
                _ => keys::annotation_travels(key) && keys::annotation_is_kept(key, &value),
            };
            if arrives {
                return None;
            }
            Some(value)
        }
    };
    Some(value.unwrap_or_default())
}

fn translate_file(file: &mut DownwardAPIVolumeFile) {
    let Some(field) = &mut file.field_ref else { return };
    let annotation = match field.field_path.as_str() {
        "metadata.namespace" => ORIGIN_NAMESPACE,
        "metadata.uid" => ORIGIN_UID,
        _ => return,
    };
    field.field_path = format!("metadata.annotations['{}']", annotation.key());
}
