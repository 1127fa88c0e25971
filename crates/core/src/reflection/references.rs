//! Which configuration is needed over there: what pods there, and Ingresses, refer to by name.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{Container, Pod, PodSpec, Volume};
use kube::core::DynamicObject;

use super::Kind;
use super::kind::kept_content;

/// A ConfigMap or a Secret, by its name.
pub type Reference = (Kind, String);

/// What a pod cannot start without, or looks for.
pub fn of_pod(pod: &Pod) -> BTreeSet<Reference> {
    let Some(spec) = &pod.spec else { return BTreeSet::new() };
    let pulls = spec.image_pull_secrets.iter().flatten().map(|secret| (Kind::Secret, secret.name.clone()));
    let volumes = spec.volumes.iter().flatten().flat_map(of_volume);
    let containers = containers(spec).iter().flat_map(of_container).collect::<Vec<_>>();
    pulls.chain(volumes).chain(containers).filter(|(_, name)| !name.is_empty()).collect()
}

/// What an Ingress proves itself with.
pub fn of_ingress(ingress: &DynamicObject) -> BTreeSet<Reference> {
    let content = kept_content(ingress).unwrap_or_default();
    let proofs = content["spec"]["tls"].as_array().into_iter().flatten();
    let names = proofs.filter_map(|proof| proof["secretName"].as_str());
    names.map(|name| (Kind::Secret, name.to_owned())).collect()
}

/// Containers of all sorts, by what they read.
fn containers(spec: &PodSpec) -> Vec<Container> {
    let brief = spec.ephemeral_containers.iter().flatten();
    let brief = brief.map(|one| Container {
        env: one.env.clone(),
        env_from: one.env_from.clone(),
        ..Container::default()
    });
    spec.containers.iter().chain(spec.init_containers.iter().flatten()).cloned().chain(brief).collect()
}

fn of_container(container: &Container) -> Vec<Reference> {
    let whole = container.env_from.iter().flatten().flat_map(|from| {
        let map = from.config_map_ref.as_ref().map(|map| (Kind::ConfigMap, map.name.clone()));
        map.into_iter().chain(from.secret_ref.as_ref().map(|secret| (Kind::Secret, secret.name.clone())))
    });
    let sources = container.env.iter().flatten().filter_map(|variable| variable.value_from.as_ref());
    let single = sources.flat_map(|from| {
        let map = from.config_map_key_ref.as_ref().map(|map| (Kind::ConfigMap, map.name.clone()));
        let secret = from.secret_key_ref.as_ref().map(|secret| (Kind::Secret, secret.name.clone()));
        map.into_iter().chain(secret)
    });
    whole.chain(single).collect()
}

fn of_volume(volume: &Volume) -> Vec<Reference> {
    let map = volume.config_map.as_ref().map(|map| (Kind::ConfigMap, map.name.clone()));
    let secret = volume.secret.as_ref().and_then(|secret| secret.secret_name.clone());
    let projected = volume.projected.iter().flat_map(|projected| projected.sources.iter().flatten());
    let parts = projected.flat_map(|part| {
        let map = part.config_map.as_ref().map(|map| (Kind::ConfigMap, map.name.clone()));
        map.into_iter().chain(part.secret.as_ref().map(|secret| (Kind::Secret, secret.name.clone())))
    });
    map.into_iter().chain(secret.map(|name| (Kind::Secret, name))).chain(parts).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_way_to_refer_to_configuration_counts() {
        let env = json!([{"name": "a", "valueFrom": {"configMapKeyRef": {"name": "m1", "key": "k"}}},
            {"name": "b", "valueFrom": {"secretKeyRef": {"name": "s1", "key": "k"}}}, {"name": "c", "value": "plain"}]);
        let pod = serde_json::from_value(json!({"spec": {
            "containers": [{"name": "a", "env": env}],
            "initContainers": [{"name": "b", "envFrom": [{"configMapRef": {"name": "m2"}}, {"secretRef": {"name": "s2"}}]}],
            "ephemeralContainers": [{"name": "c", "envFrom": [{"secretRef": {"name": "s3"}}]}],
            "imagePullSecrets": [{"name": "s4"}, {}],
            "volumes": [
                {"name": "a", "configMap": {"name": "m3"}},
                {"name": "b", "secret": {"secretName": "s5"}},
                {"name": "c", "projected": {"sources": [{"configMap": {"name": "m4"}}, {"secret": {"name": "s6"}}]}},
                {"name": "d", "emptyDir": {}},
            ],
        }}))
        .unwrap();
        let names = |kind: Kind, names: &[&str]| {
            names.iter().map(|name| (kind.clone(), (*name).to_owned())).collect::<Vec<_>>()
        };
        let maps = names(Kind::ConfigMap, &["m1", "m2", "m3", "m4"]);
        let secrets = names(Kind::Secret, &["s1", "s2", "s3", "s4", "s5", "s6"]);
        assert_eq!(of_pod(&pod), maps.into_iter().chain(secrets).collect());
    }

    #[test]
    fn an_ingress_needs_its_certificates() {
        let mut ingress: DynamicObject = serde_json::from_value(json!({"metadata": {"name": "a"},
            "spec": {"tls": [{"hosts": ["a"], "secretName": "s1"}, {"hosts": ["b"]}], "rules": []}}))
        .unwrap();
        Kind::Ingress.keep_original()(&mut ingress);
        assert_eq!(of_ingress(&ingress), [(Kind::Secret, "s1".to_owned())].into());
    }
}
