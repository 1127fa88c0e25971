//! Three clusters of two nodes with the same networks and different CNI plugins: everything a user of real Kubernetes takes for granted works.

use std::collections::BTreeSet;
use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use futures::future::try_join_all;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::Api;
use kube::api::ListParams;
use rig::plan::{ClusterSpec, Cni};
use rig::topology::{Cluster, Topology};
use rig::wait::{block_on, eventually};
use serde_json::Value;
use tokio::sync::OnceCell;

static TOPOLOGY: OnceCell<Topology> = OnceCell::const_new();

async fn topology() -> Result<&'static Topology> {
    let spec = |name, cni| ClusterSpec { nodes: 2, cni, ..ClusterSpec::named(name).with_same_cidrs() };
    let specs = || vec![spec("a", Cni::Bridge), spec("b", Cni::Ptp), spec("c", Cni::Bridge)];
    TOPOLOGY.get_or_try_init(|| Topology::up("clusters", specs())).await
}

const NAMES: [&str; 3] = ["a", "b", "c"];

#[test]
fn six_nodes_are_ready_and_no_two_of_a_cluster_offer_the_same() -> Result<()> {
    block_on(async {
        for name in NAMES {
            let cluster = topology().await?.cluster(name)?;
            eventually("both nodes are as they should be", || nodes_are_right(cluster)).await?;
        }
        Ok(())
    })
}

async fn nodes_are_right(cluster: &Cluster) -> Result<()> {
    let name = &cluster.plan.name;
    let nodes = Api::<Node>::all(cluster.client.clone()).list(&ListParams::default()).await?.items;
    ensure!(nodes.len() == 2, "{name} has {} nodes", nodes.len());
    let memory: BTreeSet<_> = nodes.iter().filter_map(|node| allocatable(node, "memory")).collect();
    ensure!(memory.len() == 2, "all nodes of {name} offer {memory:?}");
    for node in &nodes {
        ensure!(allocatable(node, "pods").as_deref() == Some("250"), "maxPods of {name}");
        let slice = node.spec.as_ref().and_then(|spec| spec.pod_cidr.clone()).unwrap_or_default();
        ensure!(slice.ends_with("/23"), "a node of {name} owns {slice}");
        let info = node.status.as_ref().and_then(|status| status.node_info.as_ref());
        let version = info.map(|info| &info.kubelet_version);
        ensure!(version.is_some_and(|version| version.starts_with("v1.34.")), "{version:?}");
    }
    Ok(())
}

fn allocatable(node: &Node, resource: &str) -> Option<String> {
    Some(node.status.as_ref()?.allocatable.as_ref()?.get(resource)?.0.clone())
}

/// Four echo servers, two on each node, behind a Service.
fn echo(cluster: &str) -> String {
    format!(
        r"
apiVersion: apps/v1
kind: Deployment
metadata: {{name: echo, namespace: default}}
spec:
  replicas: 4
  selector: {{matchLabels: {{app: echo}}}}
  template:
    metadata: {{labels: {{app: echo}}}}
    spec:
      topologySpreadConstraints:
      - {{maxSkew: 1, topologyKey: kubernetes.io/hostname, whenUnsatisfiable: DoNotSchedule, labelSelector: {{matchLabels: {{app: echo}}}}}}
      containers:
      - name: echo
        image: rig/testbox:1
        args: [serve]
        env:
        - {{name: CLUSTER, value: {cluster}}}
        - {{name: NODE, valueFrom: {{fieldRef: {{fieldPath: spec.nodeName}}}}}}
        readinessProbe: {{httpGet: {{path: /healthz, port: 8080}}, periodSeconds: 1}}
---
apiVersion: v1
kind: Service
metadata: {{name: echo, namespace: default}}
spec: {{selector: {{app: echo}}, ports: [{{port: 80, targetPort: 8080}}]}}
"
    )
}

/// A pod with a shell, on the node of that number.
fn shell_pod(cluster: &Cluster, name: &str, number: usize) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}, namespace: default}}\nspec:\n  nodeName: {}\n  \
         terminationGracePeriodSeconds: 0\n  containers:\n  - {{name: shell, image: 'rig/busybox:1', args: [-c, 'echo started; sleep 1000000']}}\n",
        cluster.plan.nodes[number - 1].name
    )
}

async fn with_echo(name: &str) -> Result<&'static Cluster> {
    let cluster = topology().await?.cluster(name)?;
    cluster.apply(&echo(name)).await?;
    cluster.kubectl(&["rollout", "status", "deployment/echo", "--timeout=300s"]).await?;
    Ok(cluster)
}

async fn with_shell(cluster: &Cluster, name: &str, number: usize) -> Result<()> {
    cluster.apply(&shell_pod(cluster, name, number)).await?;
    cluster
        .kubectl(&["wait", "--for=condition=Ready", &format!("pod/{name}"), "--timeout=300s"])
        .await
        .map(drop)
}

#[test]
fn a_service_answers_by_name_from_either_node_and_sees_the_callers_own_address() -> Result<()> {
    block_on(try_join_all(NAMES.map(a_service_answers))).map(drop)
}

async fn a_service_answers(name: &str) -> Result<()> {
    let cluster = with_echo(name).await?;
    for number in [1, 2] {
        is_answered(cluster, number).await?;
    }
    let pods = Api::<Pod>::default_namespaced(cluster.client.clone())
        .list(&ListParams::default().labels("app=echo"))
        .await?;
    let used: Vec<_> = pods.items.iter().filter_map(|pod| pod.spec.as_ref()?.node_name.clone()).collect();
    for node in &cluster.plan.nodes {
        ensure!(used.iter().filter(|name| **name == node.name).count() == 2, "{name}: {used:?}");
    }
    Ok(())
}

/// A pod on the node of that number gets an answer from the other node, to its own address.
async fn is_answered(cluster: &Cluster, number: usize) -> Result<()> {
    let caller = format!("caller-{number}");
    with_shell(cluster, &caller, number).await?;
    let pod: Pod = Api::default_namespaced(cluster.client.clone()).get(&caller).await?;
    let address = pod.status.and_then(|status| status.pod_ip).context("the pod has an address")?;
    let other = cluster.plan.nodes[2 - number].name.as_str();
    let get = ["exec", &caller, "--", "wget", "-q", "-O-", "http://echo.default.svc.cluster.local"];
    eventually("an answer from the other node", || async {
        let answer: Value = serde_json::from_str(&cluster.kubectl(&get).await?)?;
        let name = cluster.plan.name.as_str();
        ensure!(answer["cluster"] == name && answer["caller"] == address.as_str(), "{answer}");
        ensure!(answer["node"] == other, "so far only {answer}");
        Ok(())
    })
    .await
}

#[test]
fn logs_exec_port_forward_and_top_work_on_both_nodes() -> Result<()> {
    block_on(async {
        let cluster = with_echo("a").await?;
        for number in [1, 2] {
            let pod = format!("shell-{number}");
            with_shell(cluster, &pod, number).await?;
            // It is ready as soon as it is started, before it has said anything.
            eventually("its log is there", || async {
                let said = cluster.kubectl(&["logs", &pod]).await?;
                ensure!(said.trim() == "started", "{said}");
                Ok(())
            })
            .await?;
            let host = cluster.kubectl(&["exec", &pod, "--", "hostname"]).await?;
            ensure!(host.trim() == pod, "{host}");
            eventually("kubectl top", || async {
                let top = cluster.kubectl(&["top", "pod", &pod, "--no-headers"]).await?;
                ensure!(top.contains("Mi"), "{top}");
                Ok(())
            })
            .await?;
        }
        eventually("kubectl top shows the nodes", || async {
            let nodes = cluster.kubectl(&["top", "node", "--no-headers"]).await?;
            ensure!(nodes.lines().count() == 2 && nodes.contains('%'), "{nodes}");
            Ok(())
        })
        .await?;
        port_forward(cluster).await
    })
}

async fn port_forward(cluster: &Cluster) -> Result<()> {
    use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
    let mut command = cluster.kubectl_command();
    let mut forward = command.args(["port-forward", "service/echo", ":80"]).stdout(Stdio::piped()).spawn()?;
    let mut line = String::new();
    // Kept open to the end: kubectl says more, and must not die of a closed pipe.
    let mut said = BufReader::new(forward.stdout.take().context("kubectl has an output")?);
    said.read_line(&mut line).await?;
    let port = line
        .split("127.0.0.1:")
        .nth(1)
        .and_then(|rest| rest.split(' ').next())
        .with_context(|| format!("no port in {line:?}"))?;
    let mut stream = tokio::net::TcpStream::connect(format!("127.0.0.1:{port}")).await?;
    stream.write_all(b"GET / HTTP/1.0\r\nHost: echo\r\n\r\n").await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    forward.kill().await?;
    ensure!(answer.contains("\"cluster\":\"a\""), "{answer}");
    Ok(())
}

#[test]
fn a_claim_binds_and_its_data_is_there_on_the_other_node() -> Result<()> {
    block_on(async {
        let cluster = topology().await?.cluster("b")?;
        let pod = |name: &str, number: usize, script: &str| {
            format!(
                "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}, namespace: default}}\nspec:\n  nodeName: {}\n  restartPolicy: Never\n  \
                 containers:\n  - {{name: shell, image: 'rig/busybox:1', args: [-c, '{script}'], volumeMounts: [{{name: data, mountPath: /data}}]}}\n  \
                 volumes: [{{name: data, persistentVolumeClaim: {{claimName: data}}}}]\n",
                cluster.plan.nodes[number - 1].name
            )
        };
        cluster
            .apply("apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: data, namespace: default}\nspec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 10Mi}}}\n")
            .await?;
        cluster
            .kubectl(&["wait", "--for=jsonpath={.status.phase}=Bound", "pvc/data", "--timeout=300s"])
            .await?;
        for (name, number, script) in
            [("writer", 1, "echo kept > /data/file"), ("reader", 2, "cat /data/file")]
        {
            cluster.apply(&pod(name, number, script)).await?;
            cluster
                .kubectl(&[
                    "wait",
                    "--for=jsonpath={.status.phase}=Succeeded",
                    &format!("pod/{name}"),
                    "--timeout=300s",
                ])
                .await?;
        }
        let read = cluster.kubectl(&["logs", "reader"]).await?;
        ensure!(read.trim() == "kept", "{read}");
        Ok(())
    })
}

#[test]
fn a_webhook_on_the_second_node_is_called() -> Result<()> {
    block_on(async {
        let cluster = topology().await?.cluster("c")?;
        let node = &cluster.plan.nodes[1].name;
        let key = rcgen::KeyPair::generate()?;
        let mut params = rcgen::CertificateParams::new(vec!["marker.default.svc".to_owned()])?;
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let certificate = params.self_signed(&key)?.pem();
        let encode = |text: &str| {
            use base64::Engine as _;
            base64::engine::general_purpose::STANDARD.encode(text)
        };
        cluster
            .apply(&format!(
                r#"
apiVersion: v1
kind: Secret
metadata: {{name: marker, namespace: default}}
data: {{tls.crt: {certificate}, tls.key: {key}}}
---
apiVersion: v1
kind: Pod
metadata: {{name: marker, namespace: default, labels: {{app: marker}}}}
spec:
  nodeName: {node}
  containers:
  - name: marker
    image: rig/testbox:1
    args: [webhook]
    env: [{{name: NODE, valueFrom: {{fieldRef: {{fieldPath: spec.nodeName}}}}}}]
    readinessProbe: {{tcpSocket: {{port: 8443}}, periodSeconds: 1}}
    volumeMounts: [{{name: tls, mountPath: /tls}}]
  volumes: [{{name: tls, secret: {{secretName: marker}}}}]
---
apiVersion: v1
kind: Service
metadata: {{name: marker, namespace: default}}
spec: {{selector: {{app: marker}}, ports: [{{port: 443, targetPort: 8443}}]}}
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingWebhookConfiguration
metadata: {{name: marker}}
webhooks:
- name: marker.rig.example
  admissionReviewVersions: [v1]
  sideEffects: None
  failurePolicy: Ignore
  clientConfig: {{caBundle: {certificate}, service: {{name: marker, namespace: default}}}}
  objectSelector: {{matchLabels: {{mark: me}}}}
  rules: [{{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [configmaps]}}]
"#,
                certificate = encode(&certificate),
                key = encode(&key.serialize_pem()),
            ))
            .await?;
        eventually("the webhook is called", || async {
            let _ = cluster.kubectl(&["delete", "configmap", "marked", "--ignore-not-found"]).await?;
            cluster.apply("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: marked, namespace: default, labels: {mark: me}}\n").await?;
            let mark = cluster.kubectl(&["get", "configmap", "marked", "-o", "jsonpath={.metadata.labels.rig/admitted-by}"]).await?;
            ensure!(mark == *node, "marked by {mark:?}");
            Ok(())
        })
        .await
    })
}

/// The rig of this process, from the command line.
async fn rig(arguments: &[&str]) -> Result<String> {
    let name = format!("clusters-{}", std::process::id());
    let output = tokio::process::Command::new(env!("CARGO_BIN_EXE_rig"))
        .args(["--rig", &name])
        .args(arguments)
        .output()
        .await?;
    ensure!(
        output.status.success(),
        "rig {}: {}",
        arguments.join(" "),
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[test]
fn shell_kill_restart_and_cut_reach_the_second_node() -> Result<()> {
    block_on(async {
        let topology = topology().await?;
        let (b, c) = (topology.cluster("b")?, topology.cluster("c")?);
        ensure!(rig(&["shell", "c/2", "--", "hostname"]).await?.trim() == "c-2", "another node");

        let kubelet = || async {
            let status: Value = serde_json::from_str(&rig(&["status", "--json"]).await?)?;
            let clusters = status.as_array().cloned().unwrap_or_default();
            let of_c =
                clusters.into_iter().find(|cluster| cluster["plan"]["name"] == "c").context("c runs")?;
            let processes = of_c["processes"].as_array().cloned().unwrap_or_default();
            let kubelet =
                processes.into_iter().find(|process| process["name"] == "kubelet" && process["node"] == 2);
            Ok::<_, anyhow::Error>(kubelet.context("c has a second kubelet")?["resident_kib"].is_number())
        };
        rig(&["kill", "c/2/kubelet"]).await?;
        ensure!(!kubelet().await?, "it is not dead");
        rig(&["restart", "c/2/kubelet"]).await?;
        ensure!(kubelet().await?, "it does not run");

        let target = b.plan.nodes[0].address.to_string();
        let ping = ["busybox", "ping", "-c", "2", "-W", "1", &target];
        rig(&["cut", "c/2", "b"]).await?;
        ensure!(c.on_node(2, &ping).await.is_err(), "the second node reaches b");
        // Two pings of a second each may be lost where everybody wants the processor.
        eventually("the first node reaches b", || c.on_node(1, &ping)).await?;
        rig(&["heal", "b", "c"]).await?;
        eventually("healed", || async { c.on_node(2, &ping).await.map(drop) }).await
    })
}

#[test]
fn a_docker_archive_from_anywhere_is_loaded_into_every_node() -> Result<()> {
    block_on(async {
        let cluster = topology().await?.cluster("a")?;
        let archive = std::env::temp_dir().join(format!("loaded-{}.tar", std::process::id()));
        std::fs::write(&archive, docker_archive("loaded:1")?)?;
        let loaded = rig(&["load", &archive.display().to_string()]).await;
        std::fs::remove_file(&archive)?;
        loaded?;
        for node in &cluster.plan.nodes {
            let name = format!("loaded-{}", node.number);
            cluster
                .apply(&format!(
                    "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}, namespace: default}}\nspec:\n  nodeName: {}\n  \
                     restartPolicy: Never\n  containers:\n  - {{name: c, image: 'loaded:1', imagePullPolicy: Never, command: [/busybox, echo, loaded]}}\n",
                    node.name
                ))
                .await?;
            let done = "--for=jsonpath={.status.phase}=Succeeded";
            cluster.kubectl(&["wait", done, &format!("pod/{name}"), "--timeout=300s"]).await?;
        }
        Ok(())
    })
}

/// An image in the older form, as `docker save` writes it.
fn docker_archive(tag: &str) -> Result<Vec<u8>> {
    let mut layer = tar::Builder::new(Vec::new());
    layer.append_path_with_name("/bin/busybox", "busybox")?;
    let layer = layer.into_inner()?;
    let digest = rig::images::digest(&layer);
    let config = serde_json::json!({"architecture": "amd64", "os": "linux", "config": {},
        "rootfs": {"type": "layers", "diff_ids": [format!("sha256:{digest}")]}});
    let manifest = serde_json::json!([{"Config": "config.json", "RepoTags": [tag], "Layers": ["layer.tar"]}]);
    let mut archive = tar::Builder::new(Vec::new());
    for (name, content) in [
        ("layer.tar", layer),
        ("config.json", config.to_string().into()),
        ("manifest.json", manifest.to_string().into()),
    ] {
        let mut header = tar::Header::new_gnu();
        header.set_size(content.len() as u64);
        header.set_mode(0o644);
        archive.append_data(&mut header, name, content.as_slice())?;
    }
    Ok(archive.into_inner()?)
}
