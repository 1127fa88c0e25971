//! What of a pod may not cross from one cluster to another, for all kinds of containers alike.

use k8s_openapi::api::core::v1::{
    Container, ContainerPort, EphemeralContainer, Lifecycle, PodSpec, Probe, ResourceRequirements,
    SecurityContext, Volume, VolumeProjection,
};

const HOST: &str = "it belongs to a node, and no cluster gives its nodes to pods of others";
const TIED: &str =
    "it belongs to the nodes or the network of one cluster, where a PersistentVolumeClaim does not";
const CLAIMS: &str = "devices are claimed from the nodes of one cluster";
const WINDOWS: &str = "only pods for Linux travel";

/// How much of a name is repeated in a message.
const LONGEST_NAME: usize = 63;

/// Something that may not cross.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Barred {
    /// One word.
    pub word: &'static str,
    /// What, as the beginning of a sentence.
    pub what: String,
    /// Why.
    pub why: &'static str,
}

impl Barred {
    fn new(word: &'static str, what: impl Into<String>, why: &'static str) -> Self {
        Self { word, what: what.into(), why }
    }
}

/// What containers of all kinds have in common, as far as it matters here.
pub struct Part<'a> {
    /// The name, cut to what a message can hold.
    pub name: String,
    /// Its rights.
    pub security: Option<&'a SecurityContext>,
    ports: &'a [ContainerPort],
    resources: Option<&'a ResourceRequirements>,
    probes: [Option<&'a Probe>; 3],
    lifecycle: Option<&'a Lifecycle>,
}

/// The containers of all kinds.
pub fn parts(spec: &PodSpec) -> impl Iterator<Item = Part<'_>> {
    let lasting = spec.containers.iter().chain(spec.init_containers.iter().flatten()).map(Part::from);
    lasting.chain(spec.ephemeral_containers.iter().flatten().map(Part::from))
}

/// The first thing that may not cross.
pub fn find(spec: &PodSpec) -> Option<Barred> {
    of_pod(spec)
        .or_else(|| parts(spec).find_map(|part| part.barred()))
        .or_else(|| spec.volumes.iter().flatten().find_map(of_volume))
}

fn of_pod(spec: &PodSpec) -> Option<Barred> {
    let is_windows = spec.os.as_ref().is_some_and(|os| os.name != "linux")
        || spec.security_context.as_ref().is_some_and(|context| context.windows_options.is_some());
    let is_claiming = spec.resource_claims.as_ref().is_some_and(|claims| !claims.is_empty())
        || spec.resources.as_ref().is_some_and(claims);
    let found = [
        (spec.host_network == Some(true), "HostNetwork", "a pod with hostNetwork", HOST),
        (spec.host_pid == Some(true), "HostPID", "a pod with hostPID", HOST),
        (spec.host_ipc == Some(true), "HostIPC", "a pod with hostIPC", HOST),
        (is_windows, "Windows", "a pod for another system than Linux", WINDOWS),
        (is_claiming, "ResourceClaims", "a pod with resourceClaims", CLAIMS),
    ];
    found.into_iter().find(|(is_so, ..)| *is_so).map(|(_, word, what, why)| Barred::new(word, what, why))
}

fn claims(resources: &ResourceRequirements) -> bool {
    resources.claims.as_ref().is_some_and(|claims| !claims.is_empty())
}

impl Part<'_> {
    fn barred(&self) -> Option<Barred> {
        let name = &self.name;
        let mut ports = self.ports.iter().filter_map(|port| port.host_port);
        if let Some(port) = ports.find(|port| *port != 0) {
            return Some(Barred::new("HostPort", format!("the hostPort {port} of container {name}"), HOST));
        }
        if self.resources.is_some_and(claims) {
            return Some(Barred::new("ResourceClaims", format!("container {name} with claims"), CLAIMS));
        }
        if self.security.is_some_and(|context| context.windows_options.is_some()) {
            return Some(Barred::new("Windows", format!("container {name} with windowsOptions"), WINDOWS));
        }
        self.hosts().find(|host| !host.is_empty()).map(|_| {
            let what = format!("container {name} with a probe or hook that names a host");
            Barred::new(
                "ProbeHost",
                what,
                "a node over there would ask it; without a host, the pod itself is asked",
            )
        })
    }

    /// Whom the node asks for this container.
    fn hosts(&self) -> impl Iterator<Item = &str> {
        let probes = self.probes.into_iter().flatten().map(|probe| (&probe.http_get, &probe.tcp_socket));
        let hooks =
            self.lifecycle.into_iter().flat_map(|hooks| [&hooks.post_start, &hooks.pre_stop]).flatten();
        probes.chain(hooks.map(|hook| (&hook.http_get, &hook.tcp_socket))).flat_map(|(http, tcp)| {
            let http = http.as_ref().and_then(|get| get.host.as_deref());
            http.into_iter().chain(tcp.as_ref().and_then(|socket| socket.host.as_deref()))
        })
    }
}

fn of_volume(volume: &Volume) -> Option<Barred> {
    let name = short(&volume.name);
    if let Some(source) = tied(volume) {
        let (word, why) = match source {
            "hostPath" => ("HostPathVolume", HOST),
            "gitRepo" => ("GitRepoVolume", "a node would run git for it, where an init container can do so"),
            _ => ("VolumeNotPortable", TIED),
        };
        return Some(Barred::new(word, format!("the volume {name} of type {source}"), why));
    }
    let sources = volume.projected.iter().filter_map(|projected| projected.sources.as_ref()).flatten();
    let (word, source, why) = sources.into_iter().find_map(bound)?;
    Some(Barred::new(word, format!("the volume {name} with {source}"), why))
}

/// The source of a volume, if it belongs to one cluster.
///
/// Written out in full, so that a new source is decided on before this compiles.
fn tied(volume: &Volume) -> Option<&'static str> {
    let Volume {
        name: _,
        config_map: _,
        downward_api: _,
        empty_dir: _,
        ephemeral: _,
        image: _,
        persistent_volume_claim: _,
        projected: _,
        secret: _,
        aws_elastic_block_store,
        azure_disk,
        azure_file,
        cephfs,
        cinder,
        csi,
        fc,
        flex_volume,
        flocker,
        gce_persistent_disk,
        git_repo,
        glusterfs,
        host_path,
        iscsi,
        nfs,
        photon_persistent_disk,
        portworx_volume,
        quobyte,
        rbd,
        scale_io,
        storageos,
        vsphere_volume,
    } = volume;
    let tied = [
        ("hostPath", host_path.is_some()),
        ("gitRepo", git_repo.is_some()),
        ("nfs", nfs.is_some()),
        ("csi", csi.is_some()),
        ("iscsi", iscsi.is_some()),
        ("fc", fc.is_some()),
        ("rbd", rbd.is_some()),
        ("cephfs", cephfs.is_some()),
        ("glusterfs", glusterfs.is_some()),
        ("flexVolume", flex_volume.is_some()),
        ("flocker", flocker.is_some()),
        ("quobyte", quobyte.is_some()),
        ("scaleIO", scale_io.is_some()),
        ("storageos", storageos.is_some()),
        ("portworxVolume", portworx_volume.is_some()),
        ("awsElasticBlockStore", aws_elastic_block_store.is_some()),
        ("azureDisk", azure_disk.is_some()),
        ("azureFile", azure_file.is_some()),
        ("cinder", cinder.is_some()),
        ("gcePersistentDisk", gce_persistent_disk.is_some()),
        ("photonPersistentDisk", photon_persistent_disk.is_some()),
        ("vsphereVolume", vsphere_volume.is_some()),
    ];
    tied.into_iter().find(|(_, is_there)| *is_there).map(|(source, _)| source)
}

/// What of a projected volume belongs to one cluster: word, source and why.
fn bound(source: &VolumeProjection) -> Option<(&'static str, &'static str, &'static str)> {
    let VolumeProjection {
        config_map: _,
        downward_api: _,
        secret: _,
        cluster_trust_bundle,
        pod_certificate,
        service_account_token,
    } = source;
    if service_account_token.is_some() {
        let why = "it would be a token of the cluster that the pod runs on";
        return Some(("ServiceAccountToken", "a serviceAccountToken", why));
    }
    if cluster_trust_bundle.is_some() {
        let why = "the bundles of one cluster do not exist on others, where a ConfigMap does";
        return Some(("ClusterTrustBundle", "a clusterTrustBundle", why));
    }
    let why = "the signers of one cluster do not exist on others";
    pod_certificate.is_some().then_some(("PodCertificate", "a podCertificate", why))
}

/// A name that may be of any length, in a message that may not.
fn short(name: &str) -> String {
    name.chars().take(LONGEST_NAME).collect()
}

impl<'a> From<&'a Container> for Part<'a> {
    fn from(container: &'a Container) -> Self {
        Self {
            name: short(&container.name),
            security: container.security_context.as_ref(),
            ports: container.ports.as_deref().unwrap_or_default(),
            resources: container.resources.as_ref(),
            probes: [&container.liveness_probe, &container.readiness_probe, &container.startup_probe]
                .map(Option::as_ref),
            lifecycle: container.lifecycle.as_ref(),
        }
    }
}

impl<'a> From<&'a EphemeralContainer> for Part<'a> {
    fn from(container: &'a EphemeralContainer) -> Self {
        Self {
            name: short(&container.name),
            security: container.security_context.as_ref(),
            ports: container.ports.as_deref().unwrap_or_default(),
            resources: container.resources.as_ref(),
            probes: [&container.liveness_probe, &container.readiness_probe, &container.startup_probe]
                .map(Option::as_ref),
            lifecycle: container.lifecycle.as_ref(),
        }
    }
}
