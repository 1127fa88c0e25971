//! Pods that call, and servers that answer, some of each on every node.

use std::collections::BTreeSet;
use std::fmt;
use std::net::{IpAddr, SocketAddr};

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use serde::Deserialize;

use crate::topology::Cluster;
use crate::wait::eventually;

/// All servers answer at this port, over TCP and UDP.
pub const PORT: u16 = 8080;
/// What is asked over UDP, and comes back with the answer.
const QUESTION: &str = "who-are-you";
/// So many seconds who asks once waits for the answer: machines are shared, and slowness is no failure.
const PATIENCE: u32 = 60;

/// Starts a caller and an echo server on every node.
pub async fn start(cluster: &Cluster) -> Result<()> {
    let caller = |number: usize, node: &str| {
        format!(
            r"
apiVersion: v1
kind: Pod
metadata: {{name: caller-{number}, namespace: default}}
spec:
  nodeName: {node}
  terminationGracePeriodSeconds: 0
  containers:
  - {{name: shell, image: 'rig/busybox:1', args: [-c, 'sleep 1000000']}}
"
        )
    };
    let echo = |number, node: &str| server(cluster, &format!("echo-{number}"), node, false);
    start_each(cluster, &[("echo", &echo), ("caller", &caller)]).await
}

/// Starts an echo server on every node that is a process of the node itself, as far as the network is concerned.
pub async fn start_processes(cluster: &Cluster) -> Result<()> {
    let process = |number, node: &str| server(cluster, &format!("process-{number}"), node, true);
    start_each(cluster, &[("process", &process)]).await
}

fn server(cluster: &Cluster, name: &str, node: &str, is_process: bool) -> String {
    format!(
        r"
apiVersion: v1
kind: Pod
metadata: {{name: {name}, namespace: default}}
spec:
  nodeName: {node}
  hostNetwork: {is_process}
  terminationGracePeriodSeconds: 0
  containers:
  - name: echo
    image: rig/testbox:1
    args: [serve, '--listen=0.0.0.0:{PORT}']
    env:
    - {{name: CLUSTER, value: {cluster}}}
    - {{name: NODE, value: {node}}}
    readinessProbe: {{httpGet: {{path: /healthz, port: {PORT}}}, periodSeconds: 1}}
",
        cluster = cluster.plan.name
    )
}

/// Makes the manifest of one pod, from the number and the name of its node.
type Manifest<'a> = &'a dyn Fn(usize, &str) -> String;

/// Starts these on every node, each under its name with the number of the node, and waits until all are ready.
async fn start_each(cluster: &Cluster, kinds: &[(&str, Manifest<'_>)]) -> Result<()> {
    let (mut manifests, mut names) = (Vec::new(), Vec::new());
    for (number, node) in (1..).zip(&cluster.plan.nodes) {
        for (kind, manifest) in kinds {
            manifests.push(manifest(number, &node.name));
            names.push(format!("pod/{kind}-{number}"));
        }
    }
    cluster.apply(&manifests.join("---")).await?;
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let wait = ["wait", "--for=condition=Ready", "--timeout=300s"];
    cluster.kubectl(&[&wait[..], &names].concat()).await.map(drop)
}

/// Ends them.
pub async fn stop(cluster: &Cluster) -> Result<()> {
    cluster.kubectl(&["delete", "pods", "--all", "-n", "default", "--wait=true"]).await.map(drop)
}

async fn ip(cluster: &Cluster, name: &str) -> Result<IpAddr> {
    let pod: Pod = Api::default_namespaced(cluster.client.clone()).get(name).await?;
    let ip = pod.status.and_then(|status| status.pod_ip).context("a pod has no address")?;
    Ok(ip.parse()?)
}

/// Whether a pod is ready.
pub fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.into_iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

/// A server that answers with who it is and who asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Echo {
    /// Its address.
    pub ip: IpAddr,
    /// The cluster that it is in.
    pub cluster: String,
    /// The node that it is on.
    pub node: String,
    /// The name of its host: the pod, or the node.
    pub host: String,
}

impl Echo {
    /// The one in a pod on the node of that number.
    pub async fn on(cluster: &Cluster, number: usize) -> Result<Self> {
        let host = format!("echo-{number}");
        Ok(Self { ip: ip(cluster, &host).await?, host, ..Self::process_of(cluster, number) })
    }

    /// The one that is a process of the node of that number.
    pub fn process_of(cluster: &Cluster, number: usize) -> Self {
        let node = &cluster.plan.nodes[number - 1];
        Self {
            ip: node.address.into(),
            cluster: cluster.plan.name.clone(),
            node: node.name.clone(),
            host: node.name.clone(),
        }
    }
}

/// Who answers a scan, and over what.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Found {
    /// A port, over TCP.
    Tcp(SocketAddr),
    /// A port, over UDP.
    Udp(SocketAddr),
    /// A ping.
    Icmp(IpAddr),
}

impl Found {
    fn read(line: &str) -> Option<Self> {
        let mut words = line.split(' ');
        let at: SocketAddr = words.next()?.parse().ok()?;
        match words.next()? {
            "tcp" => Some(Self::Tcp(at)),
            "udp" => Some(Self::Udp(at)),
            "icmp" => Some(Self::Icmp(at.ip())),
            _ => None,
        }
    }

    /// Whose answer it is.
    pub fn ip(&self) -> IpAddr {
        match self {
            Self::Tcp(at) | Self::Udp(at) => at.ip(),
            Self::Icmp(ip) => *ip,
        }
    }
}

/// What a server said.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Answer {
    cluster: String,
    node: String,
    pod: String,
    caller: IpAddr,
    /// What was asked, over UDP.
    payload: Option<String>,
}

impl Answer {
    /// Whether it comes from this server.
    pub fn is_of(&self, echo: &Echo) -> bool {
        (&self.cluster, &self.node, &self.pod) == (&echo.cluster, &echo.node, &echo.host)
    }

    /// Whether the caller is known by this address where the server is.
    pub fn is_to(&self, caller: IpAddr) -> bool {
        self.caller == caller
    }
}

/// A pod from which to call.
#[derive(Debug)]
pub struct Caller<'a> {
    cluster: &'a Cluster,
    name: String,
    /// Its address.
    pub ip: IpAddr,
}

impl fmt::Display for Caller<'_> {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "{} of {}", self.name, self.cluster.plan.name)
    }
}

impl<'a> Caller<'a> {
    /// The one on the node of that number.
    pub async fn on(cluster: &'a Cluster, number: usize) -> Result<Self> {
        let name = format!("caller-{number}");
        Ok(Self { cluster, ip: ip(cluster, &name).await?, name })
    }

    async fn run(&self, command: &[&str]) -> Result<String> {
        self.cluster.kubectl(&[&["exec", &self.name, "--"], command].concat()).await
    }

    /// What the echo server at that address or name says.
    pub async fn get(&self, host: impl fmt::Display) -> Result<String> {
        let url = format!("http://{host}:{PORT}/");
        // Routes come when they come.
        eventually(&format!("{self} gets {url}"), || async {
            self.run(&["wget", "-qO-", "-T", "5", &url]).await
        })
        .await
    }

    /// Asks the server at that address or name over TCP, so many times.
    pub async fn ask(&self, host: impl fmt::Display, times: usize) -> Result<Vec<Answer>> {
        let get = format!("testbox get -T {PATIENCE} http://{host}:{PORT}/");
        let script = format!("for n in $(seq {times}); do {get} || exit; echo; done");
        let said = self.run(&["sh", "-c", &script]).await?;
        said.lines().map(|line| self.read(line)).collect()
    }

    /// Asks it over UDP. It is asked once: who loses a datagram is found out, however long is waited.
    pub async fn ask_by_datagram(&self, host: impl fmt::Display) -> Result<Answer> {
        let (patience, to) = (PATIENCE.to_string(), format!("{host}:{PORT}"));
        let said = self.run(&["testbox", "datagram", "-T", &patience, &to, QUESTION]).await?;
        let answer = self.read(&said)?;
        ensure!(answer.payload.as_deref() == Some(QUESTION), "{self} asked {host} over UDP: {answer:?}");
        Ok(answer)
    }

    /// Sends ten megabytes to it, and gets the same ones back.
    pub async fn mirror(&self, host: impl fmt::Display) -> Result<()> {
        let said =
            self.run(&["testbox", "mirror", "-T", "150", &format!("http://{host}:{PORT}/mirror")]).await?;
        ensure!(said.starts_with("10000000 bytes came back"), "{self} at {host}: {said}");
        Ok(())
    }

    fn read(&self, said: &str) -> Result<Answer> {
        serde_json::from_str(said).with_context(|| format!("{self} was told {said:?}"))
    }

    /// Pings three times with so much payload, and hears every answer. One at a time: of several, busybox gives the last
    /// one a second only.
    pub async fn ping(&self, address: IpAddr, size: usize) -> Result<String> {
        let each = format!("ping -c 1 -W 30 -s {size} {address}");
        self.run(&["sh", "-c", &format!("{each} && {each} && {each}")]).await
    }

    /// Where these addresses answer at these ports over TCP and UDP, be it with a refusal; and which answer a ping.
    pub async fn scan(&self, addresses: &BTreeSet<IpAddr>, ports: &[u16]) -> Result<BTreeSet<Found>> {
        let ports: Vec<_> = ports.iter().map(ToString::to_string).collect();
        let addresses: Vec<_> = addresses.iter().map(ToString::to_string).collect();
        let (ports, addresses) = (ports.join(","), addresses.join(" "));
        let script = format!(
            "for ip in {addresses}; do ping -c 1 -W 3 $ip >/dev/null 2>&1 && echo $ip:0 icmp & done; wait; \
             testbox scan --ports {ports} {addresses}"
        );
        let said = self.run(&["sh", "-c", &script]).await?;
        said.lines()
            .map(|line| Found::read(line).with_context(|| format!("{self} was told {line:?}")))
            .collect()
    }

    /// A program in the pod that passes on what it is given to a TCP port, and the other way round.
    pub fn pipe(&self, to: IpAddr, port: u16) -> tokio::process::Command {
        let mut command = self.cluster.kubectl_command();
        command.args(["exec", "--stdin", &self.name, "--", "nc", &to.to_string(), &port.to_string()]);
        command
    }
}
