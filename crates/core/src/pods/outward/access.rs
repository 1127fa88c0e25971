//! How a pod speaks to the API server of its own cluster from elsewhere: with tokens that home puts into a Secret, and at
//! an address by which that API server is reached from there.
//!
//! The certificate of an API server does not know that address. It knows the name `kubernetes.default.svc`: so clients are
//! told that name in the variables by which they find their API server, and the hosts file of the pod has its address.

use std::net::IpAddr;

use k8s_openapi::api::core::v1::{
    Container, EnvVar, EphemeralContainer, HostAlias, KeyToPath, Pod, PodSpec, SecretProjection, Volume,
    VolumeMount, VolumeProjection,
};

use super::portable;
use crate::pods::tokens;

/// A name that every API server's certificate has.
const NAME: &str = "kubernetes.default.svc";
/// All by which it is looked for. There are resolvers that complete a name first and look into the hosts file afterwards,
/// and would find the API server over there.
const NAMES: [&str; 3] = ["kubernetes.default", NAME, "kubernetes.default.svc.cluster.local"];
/// Where every namespace has the authorities of the API server: another one on each cluster.
const ROOT_CA: &str = "kube-root-ca.crt";
/// The variables by which clients find the API server, and which have its port.
const HOST: &str = "KUBERNETES_SERVICE_HOST";
const PORTS: [&str; 2] = ["KUBERNETES_SERVICE_PORT", "KUBERNETES_SERVICE_PORT_HTTPS"];

/// The API server of home, as a peer reaches it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiServer {
    /// Its addresses over there.
    pub addresses: Vec<IpAddr>,
    /// Its port.
    pub port: u16,
}

/// Whether pods on a peer reach the API server of home.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Access {
    /// Not known yet: pods that have a token wait.
    #[default]
    Unknown,
    /// They do not: tokens that Kubernetes adds by itself are left out.
    Closed,
    /// They do.
    Open(ApiServer),
}

impl Access {
    /// Whether it is known what a pod gets.
    pub fn is_known_for(&self, pod: &Pod) -> bool {
        *self != Self::Unknown || tokens::wanted(pod).is_empty()
    }
}

/// Takes tokens from the Secret, in all volumes that are there. `pod` is the whole pod, whose volumes give the keys.
pub fn translate(spec: &mut PodSpec, pod: &Pod) {
    let secret = secret_of(pod);
    let mut index = 0;
    for whole in pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten()) {
        let here = spec.volumes.iter_mut().flatten().find(|volume| volume.name == whole.name);
        if let Some(volume) = here {
            from_secret(volume, &secret, index);
        }
        index += tokens::projections(whole).count();
    }
}

/// Gives back the tokens that Kubernetes adds by itself, which were left out, and says where the API server is.
pub fn grant(spec: &mut PodSpec, pod: &Pod, server: &ApiServer) {
    let Some(whole) = &pod.spec else { return };
    let own: Vec<Volume> =
        whole.volumes.iter().flatten().filter(|volume| portable::is_own_token(volume)).cloned().collect();
    let names: Vec<String> = own.iter().map(|volume| volume.name.clone()).collect();
    if !own.is_empty() {
        spec.volumes.get_or_insert_default().extend(own);
        translate(spec, pod);
    }
    let mounts = |mounts: &Option<Vec<VolumeMount>>| -> Vec<VolumeMount> {
        mounts.iter().flatten().filter(|mount| names.contains(&mount.name)).cloned().collect()
    };
    let containers = spec.containers.iter_mut().zip(&whole.containers);
    let first = spec.init_containers.iter_mut().flatten().zip(whole.init_containers.iter().flatten());
    for (container, given) in containers.chain(first) {
        let Container { volume_mounts, env, .. } = container;
        point(volume_mounts, env, mounts(&given.volume_mounts), server);
    }
    // Of these, not all are there any more.
    for container in spec.ephemeral_containers.iter_mut().flatten() {
        let EphemeralContainer { name, volume_mounts, env, .. } = container;
        let given = whole.ephemeral_containers.iter().flatten().find(|given| given.name == *name);
        let own = given.map(|given| mounts(&given.volume_mounts)).unwrap_or_default();
        point(volume_mounts, env, own, server);
    }
    let aliases = server.addresses.iter().map(|address| HostAlias {
        ip: address.to_string(),
        hostnames: Some(NAMES.map(str::to_owned).into()),
    });
    spec.host_aliases.get_or_insert_default().extend(aliases);
}

fn secret_of(pod: &Pod) -> String {
    tokens::secret_name(pod.metadata.uid.as_deref().unwrap_or_default())
}

/// The sources of a volume, with those of tokens taken from the Secret, and the authorities beside them as well.
fn from_secret(volume: &mut Volume, secret: &str, first: usize) {
    let mut index = first;
    let has_token = tokens::projections(volume).next().is_some();
    let sources = volume.projected.iter_mut().flat_map(|projected| projected.sources.iter_mut().flatten());
    for source in sources.filter(|_| has_token) {
        let items = if let Some(token) = source.service_account_token.take() {
            index += 1;
            vec![item(&tokens::key(index - 1), &token.path)]
        } else if let Some(map) = source.config_map.take_if(|map| map.name == ROOT_CA) {
            let all = || vec![item(tokens::AUTHORITIES, tokens::AUTHORITIES)];
            map.items.unwrap_or_else(all)
        } else {
            continue;
        };
        let secret = SecretProjection { name: secret.to_owned(), items: Some(items), optional: None };
        *source = VolumeProjection { secret: Some(secret), ..VolumeProjection::default() };
    }
}

fn item(key: &str, path: &str) -> KeyToPath {
    KeyToPath { key: key.to_owned(), path: path.to_owned(), mode: None }
}

/// Mounts the tokens, and names the API server, unless the pod names one itself.
fn point(
    present: &mut Option<Vec<VolumeMount>>,
    env: &mut Option<Vec<EnvVar>>,
    mounts: Vec<VolumeMount>,
    server: &ApiServer,
) {
    if !mounts.is_empty() {
        present.get_or_insert_default().extend(mounts);
    }
    let variables = env.get_or_insert_default();
    if variables.iter().any(|variable| variable.name == HOST) {
        return;
    }
    let port = server.port.to_string();
    let ours = [(HOST, NAME.to_owned())].into_iter().chain(PORTS.map(|name| (name, port.clone())));
    let ours =
        ours.map(|(name, value)| EnvVar { name: name.to_owned(), value: Some(value), value_from: None });
    // Variables may refer to those before them.
    variables.splice(0..0, ours);
}
