//! What of a pod's spec means the same on any cluster.

use k8s_openapi::api::core::v1::{PodSpec, Volume, VolumeMount};

/// How the volume begins by which a pod speaks to the API server of its cluster, when that adds it.
const OWN_TOKEN: &str = "kube-api-access-";

/// The spec without what is about one cluster only.
///
/// Written out in full, so that a new field of Kubernetes is decided on before this compiles.
pub fn spec(given: PodSpec) -> PodSpec {
    PodSpec {
        active_deadline_seconds: given.active_deadline_seconds,
        containers: given.containers,
        dns_config: given.dns_config,
        dns_policy: given.dns_policy,
        enable_service_links: given.enable_service_links,
        ephemeral_containers: given.ephemeral_containers,
        host_aliases: given.host_aliases,
        host_users: given.host_users,
        hostname: given.hostname,
        hostname_override: given.hostname_override,
        image_pull_secrets: given.image_pull_secrets,
        init_containers: given.init_containers,
        os: given.os,
        resources: given.resources,
        restart_policy: given.restart_policy,
        security_context: given.security_context,
        set_hostname_as_fqdn: given.set_hostname_as_fqdn,
        share_process_namespace: given.share_process_namespace,
        subdomain: given.subdomain,
        termination_grace_period_seconds: given.termination_grace_period_seconds,
        volumes: given.volumes,
        // No account goes along; a token of one at home comes in a Secret.
        automount_service_account_token: Some(false),
        service_account: None,
        service_account_name: None,
        // The nodes of one cluster, and who gets them.
        affinity: None,
        node_name: None,
        node_selector: None,
        overhead: None,
        preemption_policy: None,
        priority: None,
        priority_class_name: None,
        readiness_gates: None,
        runtime_class_name: None,
        scheduler_name: None,
        scheduling_gates: None,
        tolerations: None,
        topology_spread_constraints: None,
        // Refused where they are set.
        host_ipc: None,
        host_network: None,
        host_pid: None,
        resource_claims: None,
    }
}

/// Takes away the volume that an API server adds to every pod so that it can speak to it, and its mounts.
pub fn without_own_token(spec: &mut PodSpec) {
    let volumes = spec.volumes.iter().flatten();
    let tokens: Vec<String> =
        volumes.filter(|volume| is_own_token(volume)).map(|own| own.name.clone()).collect();
    if tokens.is_empty() {
        return;
    }
    retain(&mut spec.volumes, |volume| !tokens.contains(&volume.name));
    let stays = |mount: &VolumeMount| !tokens.contains(&mount.name);
    for container in spec.containers.iter_mut().chain(spec.init_containers.iter_mut().flatten()) {
        retain(&mut container.volume_mounts, stays);
    }
    for container in spec.ephemeral_containers.iter_mut().flatten() {
        retain(&mut container.volume_mounts, stays);
    }
}

pub(super) fn is_own_token(volume: &Volume) -> bool {
    let sources = volume.projected.iter().filter_map(|projected| projected.sources.as_ref()).flatten();
    volume.name.starts_with(OWN_TOKEN)
        && sources.into_iter().any(|source| source.service_account_token.is_some())
}

/// A list of which nothing is left is none.
fn retain<T>(list: &mut Option<Vec<T>>, stays: impl Fn(&T) -> bool) {
    if let Some(all) = list {
        all.retain(stays);
        if all.is_empty() {
            *list = None;
        }
    }
}
