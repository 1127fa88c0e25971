//! The processes of a cluster as plain data: which binary, with which arguments and which files, on which node.
//!
//! Pure, so that a reader sees a whole cluster on one page and a test can check it without starting anything.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::pki::Pki;
use crate::plan::{ClusterPlan, Cni, MAX_PODS, NodePlan};
use crate::tools::Programs;

/// Image that holds a pod's namespaces open; the kubelet and containerd must agree on it.
pub const PAUSE_IMAGE: &str = "rig/pause:1";
/// How long an audit log grows before it is begun anew; the one before it is kept.
const AUDIT_MEGABYTES: u32 = 1000;

/// One process of a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Component {
    /// Name that `rig kill` and `rig restart` take.
    pub name: &'static str,
    /// Number of the node it runs on.
    pub node: u8,
    /// Program and arguments.
    pub argv: Vec<String>,
}

/// Where one cluster keeps its state, and what is derived from that.
#[derive(Clone, Debug)]
pub struct Layout<'a> {
    /// The cluster.
    pub plan: &'a ClusterPlan,
    /// Its folder.
    pub state: &'a Path,
    /// The programs.
    pub programs: &'a Programs,
}

/// The parts of a control plane, in the order in which they start.
pub fn control_plane(layout: &Layout<'_>) -> Vec<Component> {
    let mut parts = vec![etcd(layout), api_server(layout), controller_manager(layout)];
    if !layout.plan.bare {
        parts.push(scheduler(layout));
    }
    parts
}

/// The parts of a node, in the order in which they start; a bare cluster has none.
pub fn node(layout: &Layout<'_>, node: &NodePlan) -> Vec<Component> {
    if layout.plan.bare {
        Vec::new()
    } else {
        vec![containerd(layout, node), kubelet(layout, node), kube_proxy(layout, node)]
    }
}

impl Layout<'_> {
    fn component(&self, name: &'static str, node: u8, arguments: Vec<String>) -> Component {
        let program = self.programs.path_on_node(name).display().to_string();
        Component { name, node, argv: std::iter::once(program).chain(arguments).collect() }
    }

    fn file(&self, node: &NodePlan, name: &str) -> String {
        self.state.join(node.number.to_string()).join(name).display().to_string()
    }

    fn pki(&self, file: &str) -> String {
        Pki::of(self.state).path(file)
    }

    fn audit_policy(&self) -> PathBuf {
        self.state.join("audit.json")
    }
}

fn flags<const N: usize>(pairs: [(&str, String); N]) -> Vec<String> {
    pairs.into_iter().map(|(flag, value)| format!("--{flag}={value}")).collect()
}

fn etcd(layout: &Layout<'_>) -> Component {
    let url = "http://127.0.0.1:2379".to_owned();
    let arguments = flags([
        ("data-dir", layout.state.join("etcd").display().to_string()),
        ("listen-client-urls", url.clone()),
        ("advertise-client-urls", url),
        ("listen-peer-urls", "http://127.0.0.1:2380".into()),
        // A killed process loses nothing without fsync, only a crashed machine does; and the machine's disk is shared.
        ("unsafe-no-fsync", "true".into()),
        ("log-level", "warn".into()),
    ]);
    layout.component("etcd", 1, arguments)
}

fn api_server(layout: &Layout<'_>) -> Component {
    let mut arguments = flags([
        ("advertise-address", layout.plan.control_plane().to_string()),
        ("secure-port", "6443".into()),
        ("etcd-servers", "http://127.0.0.1:2379".into()),
        ("service-cluster-ip-range", layout.plan.service_cidr.to_string()),
        ("allow-privileged", "true".into()),
        ("authorization-mode", "Node,RBAC".into()),
        ("enable-admission-plugins", "NodeRestriction".into()),
        ("client-ca-file", layout.pki("ca.crt")),
        ("tls-cert-file", layout.pki("apiserver.crt")),
        ("tls-private-key-file", layout.pki("apiserver.key")),
        ("kubelet-certificate-authority", layout.pki("ca.crt")),
        ("kubelet-client-certificate", layout.pki("apiserver-kubelet-client.crt")),
        ("kubelet-client-key", layout.pki("apiserver-kubelet-client.key")),
        ("kubelet-preferred-address-types", "InternalIP".into()),
        ("service-account-issuer", "https://kubernetes.default.svc.cluster.local".into()),
        ("service-account-key-file", layout.pki("sa.pub")),
        ("service-account-signing-key-file", layout.pki("sa.key")),
        ("requestheader-client-ca-file", layout.pki("front-proxy-ca.crt")),
        ("requestheader-allowed-names", "front-proxy-client".into()),
        ("requestheader-username-headers", "X-Remote-User".into()),
        ("requestheader-group-headers", "X-Remote-Group".into()),
        ("requestheader-extra-headers-prefix", "X-Remote-Extra-".into()),
        ("proxy-client-cert-file", layout.pki("front-proxy-client.crt")),
        ("proxy-client-key-file", layout.pki("front-proxy-client.key")),
    ]);
    if layout.plan.audited {
        arguments.extend(flags([
            ("audit-policy-file", layout.audit_policy().display().to_string()),
            ("audit-log-path", audit_log(layout.state).display().to_string()),
            ("audit-log-maxsize", AUDIT_MEGABYTES.to_string()),
            ("audit-log-maxbackup", "1".into()),
        ]));
    }
    layout.component("kube-apiserver", 1, arguments)
}

fn controller_manager(layout: &Layout<'_>) -> Component {
    let config = layout.pki("controller-manager.conf");
    let controllers = if layout.plan.signs { "*" } else { "*,-certificatesigningrequest-signing-controller" };
    let arguments = flags([
        ("controllers", controllers.into()),
        ("kubeconfig", config.clone()),
        ("authentication-kubeconfig", config.clone()),
        ("authorization-kubeconfig", config),
        ("leader-elect", "false".into()),
        ("cluster-cidr", layout.plan.pod_cidr.to_string()),
        ("service-cluster-ip-range", layout.plan.service_cidr.to_string()),
        ("allocate-node-cidrs", "false".into()),
        ("root-ca-file", layout.pki("ca.crt")),
        ("service-account-private-key-file", layout.pki("sa.key")),
        ("use-service-account-credentials", "true".into()),
        ("cluster-signing-cert-file", layout.pki("ca.crt")),
        ("cluster-signing-key-file", layout.pki("ca.key")),
        ("client-ca-file", layout.pki("ca.crt")),
        ("requestheader-client-ca-file", layout.pki("front-proxy-ca.crt")),
        ("enable-hostpath-provisioner", "true".into()),
        // What takes a minute for users takes seconds here, and of many objects none waits for its turn.
        ("horizontal-pod-autoscaler-sync-period", "3s".into()),
        ("horizontal-pod-autoscaler-initial-readiness-delay", "1s".into()),
        ("kube-api-qps", "200".into()),
        ("kube-api-burst", "400".into()),
    ]);
    layout.component("kube-controller-manager", 1, arguments)
}

fn scheduler(layout: &Layout<'_>) -> Component {
    let config = layout.pki("scheduler.conf");
    let arguments = flags([
        ("kubeconfig", config.clone()),
        ("authentication-kubeconfig", config.clone()),
        ("authorization-kubeconfig", config),
        ("leader-elect", "false".into()),
    ]);
    layout.component("kube-scheduler", 1, arguments)
}

fn containerd(layout: &Layout<'_>, node: &NodePlan) -> Component {
    let argv =
        vec!["/usr/bin/containerd".into(), format!("--config={}", layout.file(node, "containerd.toml"))];
    Component { name: "containerd", node: node.number, argv }
}

fn kubelet(layout: &Layout<'_>, node: &NodePlan) -> Component {
    let arguments = flags([
        ("config", layout.file(node, "kubelet.json")),
        ("kubeconfig", layout.pki(&format!("kubelet-{}.conf", node.number))),
        ("hostname-override", node.name.clone()),
        ("node-ip", node.address.to_string()),
        ("cert-dir", "/var/lib/kubelet/pki".into()),
        ("pod-infra-container-image", PAUSE_IMAGE.into()),
    ]);
    layout.component("kubelet", node.number, arguments)
}

fn kube_proxy(layout: &Layout<'_>, node: &NodePlan) -> Component {
    layout.component("kube-proxy", node.number, flags([("config", layout.file(node, "proxy.json"))]))
}

/// Where the audit log of a cluster is, if it has one.
pub fn audit_log(state: &Path) -> PathBuf {
    state.join("log").join("audit.log")
}

/// The files that the control plane reads, and their content.
pub fn control_plane_files(layout: &Layout<'_>) -> Vec<(PathBuf, String)> {
    if layout.plan.audited { vec![(layout.audit_policy(), audit_policy().to_string())] } else { Vec::new() }
}

/// What of a request is written down: who asked for what, and the answer's code, but no content.
fn audit_policy() -> Value {
    json!({
        "apiVersion": "audit.k8s.io/v1",
        "kind": "Policy",
        "rules": [
            // Heartbeats of Kubernetes itself, and questions that are about no object.
            {"level": "None", "resources": [{"group": "coordination.k8s.io"}], "namespaces": ["kube-node-lease", "kube-system"]},
            {"level": "None", "nonResourceURLs": ["*"]},
            {"level": "Metadata"},
        ],
    })
}

/// The files that a node's processes read: name below the node's folder, and content.
pub fn node_files(layout: &Layout<'_>, node: &NodePlan) -> Vec<(&'static str, String)> {
    vec![
        ("containerd.toml", containerd_config(&layout.file(node, "cni"))),
        ("cni/10-rig.conflist", cni_config(layout.plan.cni, node).to_string()),
        ("kubelet.json", kubelet_config(layout, node).to_string()),
        ("proxy.json", proxy_config(layout, node).to_string()),
        ("resolv.conf", format!("nameserver {}\n", layout.plan.lan.gateway())),
    ]
}

fn containerd_config(cni: &str) -> String {
    format!(
        r#"version = 2
disabled_plugins = [
  "io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.devmapper",
  "io.containerd.snapshotter.v1.zfs", "io.containerd.tracing.processor.v1.otlp", "io.containerd.internal.v1.tracing",
]

[plugins."io.containerd.internal.v1.opt"]
path = "/run/containerd/opt"

[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "{PAUSE_IMAGE}"
# No process here may lower its oom_score_adj; without this runc fails to start anything.
restrict_oom_score_adj = true
disable_apparmor = true

[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "/usr/lib/cni"
conf_dir = "{cni}"

[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
"#
    )
}

fn cni_config(cni: Cni, node: &NodePlan) -> Value {
    let ipam = json!({
        "type": "host-local",
        "ranges": [[{"subnet": node.pod_cidr}]],
        "routes": [{"dst": "0.0.0.0/0"}],
        "dataDir": "/run/cni",
    });
    let main = match cni {
        Cni::Bridge => {
            json!({"type": "bridge", "bridge": "cni0", "isGateway": true, "hairpinMode": true, "ipam": ipam})
        }
        Cni::Ptp => json!({"type": "ptp", "ipam": ipam}),
    };
    let portmap = json!({"type": "portmap", "capabilities": {"portMappings": true}});
    json!({"cniVersion": "1.0.0", "name": "rig", "plugins": [main, portmap]})
}

fn kubelet_config(layout: &Layout<'_>, node: &NodePlan) -> Value {
    let pair = |extension: &str| layout.pki(&format!("kubelet-{}.{extension}", node.number));
    json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "authentication": {
            "anonymous": {"enabled": false},
            "webhook": {"enabled": true},
            "x509": {"clientCAFile": layout.pki("ca.crt")},
        },
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": pair("crt"),
        "tlsPrivateKeyFile": pair("key"),
        "clusterDNS": [layout.plan.dns_service()],
        "clusterDomain": "cluster.local",
        "resolvConf": layout.file(node, "resolv.conf"),
        "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
        "podLogsDir": "/var/log/pods",
        "volumePluginDir": "/var/lib/kubelet/plugins-exec",
        "cgroupDriver": "cgroupfs",
        "cgroupsPerQOS": false,
        "enforceNodeAllocatable": [],
        "failCgroupV1": false,
        "failSwapOn": false,
        "oomScoreAdj": 0,
        "maxPods": MAX_PODS,
        "serializeImagePulls": false,
        "imageGCHighThresholdPercent": 100,
        "evictionHard": {"memory.available": "100Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
        // Nodes that are all alike hide mistakes in arithmetic: each offers a little less than the one before it.
        "systemReserved": {"cpu": format!("{}m", 50 * u32::from(node.number)), "memory": format!("{}Mi", 128 * u32::from(node.number))},
        "featureGates": {"KubeletCrashLoopBackOffMax": true},
        "crashLoopBackOff": {"maxContainerRestartPeriod": "1s"},
        "shutdownGracePeriod": "0s",
        "nodeStatusUpdateFrequency": "10s",
        // As often files of a pod are brought up to date; a minute by default.
        "syncFrequency": "10s",
    })
}

fn proxy_config(layout: &Layout<'_>, node: &NodePlan) -> Value {
    json!({
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "clientConnection": {"kubeconfig": layout.pki("proxy.conf")},
        "hostnameOverride": node.name,
        "clusterCIDR": layout.plan.pod_cidr,
        "mode": "nftables",
        "oomScoreAdj": 0,
        "conntrack": {"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{ClusterSpec, Lan};

    fn names(components: &[Component]) -> Vec<&str> {
        components.iter().map(|component| component.name).collect()
    }

    #[test]
    fn a_bare_cluster_is_a_control_plane_without_scheduler_and_nodes() {
        let spec = ClusterSpec { bare: true, ..ClusterSpec::named("a") };
        let plan = ClusterPlan::new(&spec, 1, Lan { index: 0 }).unwrap();
        let layout = Layout { plan: &plan, state: Path::new("/state"), programs: &Programs::default() };
        assert_eq!(names(&control_plane(&layout)), ["etcd", "kube-apiserver", "kube-controller-manager"]);
        assert!(node(&layout, &plan.nodes[0]).is_empty());
    }

    #[test]
    fn a_cluster_may_be_without_a_signer() {
        let runs = |signs| {
            let plan =
                ClusterPlan::new(&ClusterSpec { signs, ..ClusterSpec::named("a") }, 1, Lan { index: 0 });
            let plan = plan.unwrap();
            let layout = Layout { plan: &plan, state: Path::new("/state"), programs: &Programs::default() };
            controller_manager(&layout).argv[1].clone()
        };
        assert_eq!(runs(true), "--controllers=*");
        assert!(runs(false).contains("-certificatesigningrequest-signing-controller"));
    }

    #[test]
    fn only_a_cluster_that_is_to_be_audited_is() {
        for audited in [false, true] {
            let plan =
                ClusterPlan::new(&ClusterSpec { audited, ..ClusterSpec::named("a") }, 1, Lan { index: 0 });
            let plan = plan.unwrap();
            let layout = Layout { plan: &plan, state: Path::new("/state"), programs: &Programs::default() };
            let told = api_server(&layout).argv.contains(&"--audit-log-path=/state/log/audit.log".to_owned());
            let files = control_plane_files(&layout);
            assert_eq!((told, files.len() == 1), (audited, audited));
        }
    }

    #[test]
    fn nodes_differ_in_what_they_have_left() {
        let spec = ClusterSpec { nodes: 2, ..ClusterSpec::named("a") };
        let plan = ClusterPlan::new(&spec, 1, Lan { index: 0 }).unwrap();
        let layout = Layout { plan: &plan, state: Path::new("/state"), programs: &Programs::default() };
        let reserved = |n: usize| kubelet_config(&layout, &plan.nodes[n])["systemReserved"].clone();
        assert_ne!(reserved(0), reserved(1));
    }

    #[test]
    fn only_the_chosen_cni_plugin_is_configured() {
        let plan = ClusterPlan::new(&ClusterSpec::named("a"), 1, Lan { index: 0 }).unwrap();
        let kind = |cni| cni_config(cni, &plan.nodes[0])["plugins"][0]["type"].as_str().map(str::to_owned);
        assert_eq!(kind(Cni::Bridge).as_deref(), Some("bridge"));
        assert_eq!(kind(Cni::Ptp).as_deref(), Some("ptp"));
    }
}
