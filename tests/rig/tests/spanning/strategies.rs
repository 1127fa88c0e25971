//! Two namespaces beside the shop, under the same name everywhere: pods of the one run on peers only, those of the other at
//! home only. Whoever asks for their Services, from the shop and on whatever cluster, gets them.

use std::collections::BTreeSet;

use anyhow::{Result, ensure};
use futures::future::try_join_all;
use rig::installation::ferro;
use rig::wait::eventually;

use crate::stage::{CLUSTERS, Stage};

/// A namespace, where its pods may run, and how the nodes begin that have one each.
pub struct Strategy {
    pub namespace: &'static str,
    pods: &'static str,
    nodes: &'static [&'static str],
}

pub const STRATEGIES: [Strategy; 2] = [
    Strategy { namespace: "bank", pods: "remote", nodes: &["liqo-turin", "liqo-milan"] },
    Strategy { namespace: "vault", pods: "local", nodes: &["rome"] },
];

/// Offloads both, and waits until their servers run.
pub async fn set_up(stage: &Stage) -> Result<()> {
    try_join_all(STRATEGIES.iter().map(|strategy| strategy.open(stage))).await.map(drop)
}

/// Asked by pods of another namespace, at home and on both peers.
pub async fn services_answer_across_namespaces(stage: &Stage) -> Result<()> {
    let askers = |strategy: &'static Strategy| CLUSTERS.map(move |asker| strategy.answers(stage, asker));
    try_join_all(STRATEGIES.iter().flat_map(askers)).await.map(drop)
}

impl Strategy {
    async fn open(&self, stage: &Stage) -> Result<()> {
        let (rome, namespace) = (stage.rome()?, self.namespace);
        rome.kubectl(&["create", "namespace", namespace]).await?;
        let offload = ["offload", namespace, "--strategy", "same-name", "--pods", self.pods, "--wait"];
        ferro(rome, &offload).await?;
        rome.apply(&self.web()).await?;
        let status = ["-n", namespace, "rollout", "status", "deployment/web", "--timeout=300s"];
        rome.kubectl(&status).await.map(drop)
    }

    /// Who answers, and Services of several sorts. Nothing but the strategy says on which clusters its pods may run.
    fn web(&self) -> String {
        let (namespace, replicas) = (self.namespace, self.nodes.len());
        format!(
            r"
apiVersion: apps/v1
kind: Deployment
metadata: {{name: web, namespace: {namespace}}}
spec:
  replicas: {replicas}
  selector: {{matchLabels: {{app: web}}}}
  template:
    metadata: {{labels: {{app: web}}}}
    spec:
      terminationGracePeriodSeconds: 1
      topologySpreadConstraints:
      - {{maxSkew: 1, topologyKey: kubernetes.io/hostname, whenUnsatisfiable: DoNotSchedule, labelSelector: {{matchLabels: {{app: web}}}}}}
      containers:
      - name: echo
        image: rig/testbox:1
        args: [serve]
        ports: [{{name: http, containerPort: 8080}}]
        readinessProbe: {{httpGet: {{path: /healthz, port: 8080}}, periodSeconds: 1}}
---
apiVersion: v1
kind: Service
metadata: {{name: web, namespace: {namespace}}}
spec: {{selector: {{app: web}}, ports: [{{name: http, port: 80, targetPort: http}}, {{name: raw, port: 8080}}]}}
---
apiVersion: v1
kind: Service
metadata: {{name: web-headless, namespace: {namespace}}}
spec: {{clusterIP: None, selector: {{app: web}}, ports: [{{port: 8080}}]}}
---
apiVersion: v1
kind: Service
metadata: {{name: web-nodes, namespace: {namespace}}}
spec: {{type: NodePort, selector: {{app: web}}, ports: [{{port: 80, targetPort: http}}]}}
---
apiVersion: v1
kind: Service
metadata: {{name: web-balanced, namespace: {namespace}}}
spec: {{type: LoadBalancer, selector: {{app: web}}, ports: [{{port: 80, targetPort: 8080}}]}}
---
apiVersion: v1
kind: Service
metadata: {{name: alias, namespace: {namespace}}}
spec: {{type: ExternalName, externalName: web.{namespace}.svc.cluster.local}}
"
        )
    }

    /// The names of its pods, one on each of the nodes.
    async fn pods(&self, stage: &Stage) -> Result<BTreeSet<String>> {
        let fields = "jsonpath={range .items[*]}{.spec.nodeName} {.metadata.name}{'\\n'}{end}";
        let pods = ["-n", self.namespace, "get", "pods", "-l", "app=web", "-o", fields];
        let placed = stage.rome()?.kubectl(&pods).await?;
        let placed: Vec<(&str, &str)> = placed.lines().filter_map(|line| line.split_once(' ')).collect();
        let has_one = |node: &&str| placed.iter().filter(|(at, _)| at.starts_with(*node)).count() == 1;
        ensure!(
            placed.len() == self.nodes.len() && self.nodes.iter().all(has_one),
            "{}: {placed:?}",
            self.namespace
        );
        Ok(placed.iter().map(|(_, pod)| (*pod).to_owned()).collect())
    }

    /// Asks for each sort of Service until all of its pods have answered, and nobody else.
    async fn answers(&self, stage: &Stage, asker: &str) -> Result<()> {
        let what = format!("the pods of {} are where they belong", self.namespace);
        let pods = eventually(&what, || self.pods(stage)).await?;
        for (service, port) in [
            ("web", 80),
            ("web", 8080),
            ("web-headless", 8080),
            ("web-nodes", 80),
            ("web-balanced", 80),
            ("alias", 80),
        ] {
            let url = format!("http://{service}.{}:{port}/", self.namespace);
            is_answered(stage, asker, &url, &pods).await?;
        }
        Ok(())
    }
}

/// Asks until all of these have answered, and nobody else.
async fn is_answered(stage: &Stage, asker: &str, url: &str, pods: &BTreeSet<String>) -> Result<()> {
    eventually(&format!("{asker} gets {url} from {pods:?}"), || async {
        let answered = stage.ask_for("pod", asker, url, 20).await?;
        ensure!(answered == *pods, "{answered:?}");
        Ok(())
    })
    .await
}
