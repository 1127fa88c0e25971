//! Rome, which uses turin and milan: one namespace under the same name everywhere, with an echo server and somebody who
//! asks on each of the three; and beside it those of other [strategies](crate::strategies).

use std::collections::BTreeSet;

use anyhow::{Context, Result, ensure};
use futures::future::try_join_all;
use rig::installation::{SILENT, ferro, install, load};
use rig::plan::ClusterSpec;
use rig::topology::{Cluster, Topology};
use rig::tunnels::connected;
use serde_json::Value;

use crate::strategies::{self, STRATEGIES};

/// Home first.
pub const CLUSTERS: [&str; 3] = ["rome", "turin", "milan"];

/// Whether the long forms are wanted.
pub fn is_soak() -> bool {
    std::env::var_os("SOAK").is_some()
}

/// The clusters.
pub struct Stage {
    topology: Topology,
}

impl Stage {
    pub async fn set_up() -> Result<Self> {
        let specs = CLUSTERS.map(|name| ClusterSpec::named(name).with_same_cidrs());
        let topology = Topology::up("spanning", specs.into()).await?;
        load(&topology).await?;
        let stage = Self { topology };
        let settings = [&SILENT[..], &["--set", "auth.config.allowEmptyToken=true"]].concat();
        let [rome, turin, milan] = [stage.rome()?, stage.turin()?, stage.milan()?];
        tokio::try_join!(install(rome, &settings), install(turin, &settings), install(milan, &settings))?;
        try_join_all([turin, milan].map(|peer| async move {
            let remote = peer.kubeconfig.to_string_lossy().into_owned();
            ferro(rome, &["peer", "--remote-kubeconfig", &remote, "--wait"]).await?;
            connected(rome, peer).await
        }))
        .await?;
        tokio::try_join!(stage.open_shop(), strategies::set_up(&stage))?;
        Ok(stage)
    }

    async fn open_shop(&self) -> Result<()> {
        let rome = self.rome()?;
        rome.kubectl(&["create", "namespace", "shop"]).await?;
        ferro(rome, &["offload", "shop", "--strategy", "same-name", "--pods", "local-and-remote", "--wait"])
            .await?;
        self.furnish().await
    }

    async fn furnish(&self) -> Result<()> {
        let rome = self.rome()?;
        rome.apply(SETTINGS).await?;
        // Before the others: where these are, it would be by then.
        rome.apply(&chosen(&self.node("turin").await?)).await?;
        rome.apply(SERVICES).await?;
        for cluster in CLUSTERS {
            let place = self.place(cluster).await?;
            rome.apply(&server(cluster, &place)).await?;
            rome.apply(&asker(cluster, &place)).await?;
        }
        for cluster in CLUSTERS {
            let server = format!("deployment/web-{cluster}");
            self.kubectl(&["rollout", "status", &server, "--timeout=300s"]).await?;
            let asker = format!("pod/asker-{cluster}");
            self.kubectl(&["wait", "--for=condition=Ready", &asker, "--timeout=300s"]).await?;
        }
        Ok(())
    }

    /// Where pods for a cluster may go.
    pub async fn place(&self, cluster: &str) -> Result<String> {
        if cluster == "rome" {
            return Ok(
                "matchExpressions: [{key: liqo.io/type, operator: NotIn, values: [virtual-node]}]".into()
            );
        }
        let node = self.node(cluster).await?;
        Ok(format!("matchFields: [{{key: metadata.name, operator: In, values: [{node}]}}]"))
    }

    /// The node that stands for a peer.
    async fn node(&self, peer: &str) -> Result<String> {
        let nodes = self.rome()?.kubectl(&["get", "nodes", "-o", "name"]).await?;
        let nodes = nodes.lines().filter_map(|line| line.strip_prefix("node/"));
        let mut nodes = nodes.filter(|node| node.starts_with(&format!("liqo-{peer}")));
        nodes.next().map(str::to_owned).with_context(|| format!("no node stands for {peer}"))
    }

    pub fn rome(&self) -> Result<&Cluster> {
        self.topology.cluster("rome")
    }

    pub fn turin(&self) -> Result<&Cluster> {
        self.topology.cluster("turin")
    }

    pub fn milan(&self) -> Result<&Cluster> {
        self.topology.cluster("milan")
    }

    pub fn topology(&self) -> &Topology {
        &self.topology
    }

    /// What kubectl says about the namespace at home.
    pub async fn kubectl(&self, words: &[&str]) -> Result<String> {
        self.rome()?.kubectl(&[&["-n", "shop"], words].concat()).await
    }

    /// Runs a command in whoever asks on a cluster.
    pub async fn exec(&self, cluster: &str, command: &[&str]) -> Result<String> {
        let asker = format!("asker-{cluster}");
        self.kubectl(&[&["exec", &asker, "--"], command].concat()).await
    }

    /// The clusters of those who answer, asked so many times.
    pub async fn ask(&self, asker: &str, url: &str, times: usize) -> Result<BTreeSet<String>> {
        self.ask_for("cluster", asker, url, times).await
    }

    /// What those who answer say of themselves, asked so many times.
    pub async fn ask_for(
        &self,
        field: &str,
        asker: &str,
        url: &str,
        times: usize,
    ) -> Result<BTreeSet<String>> {
        let often = format!("for n in $(seq {times}); do wget -T 10 {url} || exit 1; echo; done");
        let answers = self.exec(asker, &["sh", "-c", &often]).await?;
        let answers = answers.lines().filter(|line| !line.trim().is_empty());
        let told = |answer: &str| {
            let answer: Value = serde_json::from_str(answer).with_context(|| format!("{url}: {answer}"))?;
            Ok(answer[field].as_str().unwrap_or_default().to_owned())
        };
        answers.map(told).collect()
    }

    /// Ends it: nothing of the applications is left on the peers.
    pub async fn part(self) -> Result<()> {
        let namespaces = [&["shop"][..], &STRATEGIES.map(|strategy| strategy.namespace)].concat();
        try_join_all(namespaces.iter().map(|namespace| self.close(namespace))).await?;
        for cluster in [self.turin()?, self.milan()?] {
            let left = cluster.kubectl(&["get", "namespaces", "-o", "name"]).await?;
            let is_left = |namespace: &&str| left.contains(&format!("namespace/{namespace}"));
            ensure!(!namespaces.iter().any(is_left), "{}: {left}", cluster.plan.name);
        }
        Ok(())
    }

    async fn close(&self, namespace: &str) -> Result<()> {
        let rome = self.rome()?;
        rome.kubectl(&["-n", namespace, "delete", "deployments,pods", "--all", "--timeout=300s"]).await?;
        ferro(rome, &["unoffload", namespace, "--wait"]).await.map(drop)
    }
}

fn affinity(place: &str) -> String {
    format!(
        "affinity: {{nodeAffinity: {{requiredDuringSchedulingIgnoredDuringExecution: {{nodeSelectorTerms: [{{{place}}}]}}}}}}"
    )
}

fn server(cluster: &str, place: &str) -> String {
    let affinity = affinity(place);
    format!(
        r"
apiVersion: apps/v1
kind: Deployment
metadata: {{name: web-{cluster}, namespace: shop}}
spec:
  replicas: 1
  selector: {{matchLabels: {{app: web, at: {cluster}}}}}
  template:
    metadata: {{labels: {{app: web, at: {cluster}}}}}
    spec:
      {affinity}
      hostname: {cluster}
      subdomain: web-headless
      terminationGracePeriodSeconds: 1
      containers:
      - name: echo
        image: rig/testbox:1
        args: [serve]
        ports: [{{name: http, containerPort: 8080}}]
        env: [{{name: CLUSTER, value: {cluster}}}]
        readinessProbe: {{httpGet: {{path: /healthz, port: 8080}}, periodSeconds: 1}}
"
    )
}

fn asker(cluster: &str, place: &str) -> String {
    let affinity = affinity(place);
    format!(
        r"
apiVersion: v1
kind: Pod
metadata: {{name: asker-{cluster}, namespace: shop, labels: {{app: asker}}}}
spec:
  {affinity}
  terminationGracePeriodSeconds: 1
  containers:
  - name: shell
    image: rig/busybox:1
    args: [-c, 'trap exit TERM; while :; do sleep 1; done']
    volumeMounts: [{{name: settings, mountPath: /etc/settings}}, {{name: keys, mountPath: /etc/keys}}]
  volumes:
  - {{name: settings, configMap: {{name: settings}}}}
  - {{name: keys, secret: {{secretName: keys}}}}
"
    )
}

/// A Secret, and a pod that is the only one to need it.
pub fn brief(place: &str) -> String {
    let affinity = affinity(place);
    format!(
        r"
apiVersion: v1
kind: Secret
metadata: {{name: brief, namespace: shop}}
stringData: {{word: five}}
---
apiVersion: v1
kind: Pod
metadata: {{name: brief, namespace: shop}}
spec:
  {affinity}
  terminationGracePeriodSeconds: 1
  containers:
  - name: shell
    image: rig/busybox:1
    args: [-c, 'trap exit TERM; while :; do sleep 1; done']
    envFrom: [{{secretRef: {{name: brief}}}}]
"
    )
}

/// A Service for the cluster of one node, and for no other.
fn chosen(node: &str) -> String {
    format!(
        r"
apiVersion: v1
kind: Service
metadata: {{name: web-chosen, namespace: shop, annotations: {{liqo.io/reflect-to: 'metadata.name={node}'}}}}
spec: {{selector: {{app: web}}, ports: [{{port: 80, targetPort: http}}]}}
"
    )
}

/// A Service without a selector, and its endpoints.
pub fn by_hand(name: &str, port: u16, addresses: &[&str]) -> String {
    let endpoints: Vec<String> =
        addresses.iter().map(|address| format!("{{addresses: ['{address}']}}")).collect();
    let endpoints = endpoints.join(", ");
    format!(
        r"
apiVersion: v1
kind: Service
metadata: {{name: {name}, namespace: shop}}
spec: {{ports: [{{port: {port}}}]}}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {{name: {name}, namespace: shop, labels: {{kubernetes.io/service-name: {name}}}}}
addressType: IPv4
ports: [{{port: {port}}}]
endpoints: [{endpoints}]
"
    )
}

const SETTINGS: &str = r"
apiVersion: v1
kind: ConfigMap
metadata: {name: settings, namespace: shop}
data: {word: one}
---
apiVersion: v1
kind: Secret
metadata: {name: keys, namespace: shop}
stringData: {word: two}
---
apiVersion: v1
kind: Secret
metadata: {name: unused, namespace: shop}
stringData: {word: none}
";

const SERVICES: &str = r"
apiVersion: v1
kind: Service
metadata: {name: web, namespace: shop}
spec: {selector: {app: web}, ports: [{name: web, port: 80, targetPort: http}, {name: raw, port: 8080}]}
---
apiVersion: v1
kind: Service
metadata: {name: web-nodes, namespace: shop}
spec: {type: NodePort, selector: {app: web}, ports: [{port: 80, targetPort: http}]}
---
apiVersion: v1
kind: Service
metadata: {name: web-balanced, namespace: shop}
spec: {type: LoadBalancer, selector: {app: web}, ports: [{port: 80, targetPort: http}]}
---
apiVersion: v1
kind: Service
metadata: {name: web-headless, namespace: shop}
spec: {clusterIP: None, selector: {app: web}, ports: [{port: 8080}]}
---
apiVersion: v1
kind: Service
metadata: {name: web-sticky, namespace: shop}
spec: {sessionAffinity: ClientIP, selector: {app: web}, ports: [{port: 80, targetPort: http}]}
---
apiVersion: v1
kind: Service
metadata: {name: web-turin, namespace: shop}
spec: {selector: {app: web, at: turin}, ports: [{port: 8888, targetPort: http}]}
---
apiVersion: v1
kind: Service
metadata: {name: web-rome, namespace: shop}
spec: {selector: {app: web, at: rome}, ports: [{port: 8888, targetPort: http}]}
---
apiVersion: v1
kind: Service
metadata: {name: web-milan, namespace: shop}
spec: {selector: {app: web, at: milan}, ports: [{port: 8888, targetPort: http}]}
---
apiVersion: v1
kind: Service
metadata: {name: alias, namespace: shop}
spec: {type: ExternalName, externalName: web.shop.svc.cluster.local}
";
