//! The shop in its namespace, and its customers beside it.

use std::process::Stdio;
use std::time::Duration;

use ::shop::report::Line;
use anyhow::{Context, Result, bail, ensure};
use rig::installation::ferro;
use rig::tools::workspace;
use rig::topology::Cluster;
use rig::wait::eventually;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_util::task::AbortOnDropHandle;

use crate::clusters::{Clusters, LOST};
use crate::orders::Record;
use crate::story::{News, Story};

/// The namespace that is extended over the other clusters.
pub const NAMESPACE: &str = "shop";
/// The one where the customers are, at home.
const CUSTOMERS: &str = "customers";
/// A pod at home that has nothing to do with the shop.
const VISITOR: &str = "visitor";
/// How long customers may take to come, to be served, or to go.
const PATIENCE: Duration = Duration::from_mins(5);

/// Extends the namespace over the peers.
pub async fn offload(clusters: &Clusters, story: &Story) -> Result<()> {
    story.chapter("offloading");
    let home = clusters.home()?;
    home.kubectl(&["create", "namespace", NAMESPACE]).await?;
    let told = ferro(home, &["offload", NAMESPACE, "--wait"]).await?;
    story.show(
        &format!("ferro offload {NAMESPACE} --wait"),
        told.trim_end().lines().last().unwrap_or_default(),
    );
    story.show("ferro namespaces", &ferro(home, &["namespaces"]).await?);
    story.show(&format!("ferro tenants --context {LOST}"), &ferro(clusters.get(LOST)?, &["tenants"]).await?);
    Ok(())
}

/// Deploys the shop, and shows where its parts have come to run.
pub async fn deploy(clusters: &Clusters, story: &Story) -> Result<()> {
    story.chapter("the shop");
    let home = clusters.home()?;
    let mut objects = manifests("shop.yaml")?;
    data_at_home(&mut objects);
    apply(home, NAMESPACE, objects).await?;
    story.say(format!(
        "$ kubectl -n {NAMESPACE} apply -f examples/shop/shop.yaml    # the cart's data stays at home"
    ));
    settled(clusters).await?;
    let pods = ferro(home, &["pods", "-n", NAMESPACE]).await?;
    ensure!(pods.contains(LOST) && pods.contains("(home)"), "it does not run on several clusters: {pods}");
    story.show(&format!("ferro pods -n {NAMESPACE}"), &pods);
    look_inside(home, story).await
}

/// Waits until all parts of the shop have as many instances as they should.
pub async fn settled(clusters: &Clusters) -> Result<()> {
    let home = clusters.home()?;
    let workloads = ["-n", NAMESPACE, "get", "deployments,statefulsets", "-o", "name"];
    for workload in home.kubectl(&workloads).await?.lines() {
        home.kubectl(&["-n", NAMESPACE, "rollout", "status", workload, "--timeout=300s"]).await?;
    }
    Ok(())
}

/// A pod over there is used like any other: its log, a command in it, the way of packets to it, and packets.
async fn look_inside(home: &Cluster, story: &Story) -> Result<()> {
    let namespace = format!("--namespace={NAMESPACE}");
    let fields = "jsonpath={range .items[*]}{.spec.nodeName} {.metadata.name} {.status.podIP}{'\\n'}{end}";
    let placed = home.kubectl(&[&namespace, "get", "pods", "-o", fields]).await?;
    let away = placed.lines().find_map(|line| line.strip_prefix(&format!("liqo-{LOST}-"))?.split_once(' '));
    let (pod, address) = away.and_then(|(_, pod)| pod.split_once(' ')).context("no pod runs over there")?;
    let logs = home.kubectl(&[&namespace, "logs", pod]).await?;
    story.show(&format!("kubectl -n {NAMESPACE} logs {pod}"), &logs);
    let said = home.kubectl(&[&namespace, "exec", pod, "--", "/shop", "--version"]).await?;
    story.show(&format!("kubectl -n {NAMESPACE} exec {pod} -- /shop --version"), &said);
    let trace = ferro(home, &["trace", "-n", NAMESPACE, "--from", "cart-0", "--to", address]).await?;
    story.show(&format!("ferro trace -n {NAMESPACE} --from cart-0 --to {address}"), &trace);
    visit(home, story, address).await
}

/// Another pod at home reaches it by its address; whether it does or not, that pod is gone afterwards.
async fn visit(home: &Cluster, story: &Story, address: &str) -> Result<()> {
    let visitor = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": VISITOR, "namespace": "default"},
        "spec": {
            "terminationGracePeriodSeconds": 0,
            "containers": [{"name": "shell", "image": "rig/busybox:1", "args": ["-c", "sleep 1000000"]}],
        },
    });
    home.apply(&visitor.to_string()).await?;
    let visited = ping_and_get(home, story, address).await;
    let gone = home.kubectl(&["-n", "default", "delete", "pod", VISITOR, "--timeout=60s"]).await;
    visited.and(gone.map(drop))
}

/// A ping and a page, from the visitor. Every part of the shop says whether it is ready.
async fn ping_and_get(home: &Cluster, story: &Story, address: &str) -> Result<()> {
    let ready = ["-n", "default", "wait", "--for=condition=Ready", "pod", VISITOR, "--timeout=300s"];
    home.kubectl(&ready).await?;
    let exec = ["-n", "default", "exec", VISITOR, "--"];
    let pinged = eventually("a pod at home pings one over there", || async {
        let said = home.kubectl(&[&exec[..], &["ping", "-c", "3", address]].concat()).await?;
        ensure!(said.contains(" 0% packet loss"), "{said}");
        Ok(said)
    });
    story.show(&format!("kubectl exec {VISITOR} -- ping -c 3 {address}"), &pinged.await?);
    let get = format!("busybox wget -qSO /dev/null http://{address}:8080/readyz 2>&1");
    let got = eventually("a pod at home gets a page of one over there", || async {
        let said = home.kubectl(&[&exec[..], &["sh", "-c", &get]].concat()).await?;
        let status = said.trim().lines().next().unwrap_or_default().to_owned();
        ensure!(status.ends_with(" 200 OK"), "{said}");
        Ok(status)
    });
    story.show(&format!("kubectl exec {VISITOR} -- sh -c '{get}'"), &got.await?);
    Ok(())
}

/// What cannot travel is refused with a reason.
pub async fn refuse(clusters: &Clusters, story: &Story) -> Result<()> {
    let home = clusters.home()?;
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "sniffer", "namespace": NAMESPACE},
        "spec": {
            "nodeSelector": {"liqo.io/type": "virtual-node"}, "hostNetwork": true,
            "containers": [{"name": "sniffer", "image": "rig/testbox:1", "args": ["pause"]}],
        },
    });
    home.apply(&pod.to_string()).await?;
    let ready = "{range .status.conditions[?(@.type=='Ready')]}{.reason}: {.message}{end}";
    let words = ["-n", NAMESPACE, "get", "pod", "sniffer", "-o", &format!("jsonpath={ready}")];
    let reason = eventually("a pod that wants a node's network is refused", || async {
        let reason = home.kubectl(&words).await?;
        ensure!(reason.contains("HostNetwork"), "it says {reason}");
        Ok(reason)
    });
    story.show("kubectl run sniffer, on a virtual node and in its network: refused", &reason.await?);
    home.kubectl(&["-n", NAMESPACE, "delete", "pod", "sniffer", "--timeout=60s"]).await.map(drop)
}

/// Changes how many instances of each part there are.
pub async fn scale(clusters: &Clusters, story: &Story, replicas: u32) -> Result<()> {
    let replicas = format!("--replicas={replicas}");
    clusters.home()?.kubectl(&["-n", NAMESPACE, "scale", "deployment", "--all", &replicas]).await?;
    story.say(format!("$ kubectl -n {NAMESPACE} scale deployment --all {replicas}"));
    Ok(())
}

/// Takes the shop down, and its namespace off all clusters.
pub async fn close(clusters: &Clusters, story: &Story) -> Result<()> {
    let home = clusters.home()?;
    let told = ferro(home, &["unoffload", NAMESPACE, "--wait"]).await?;
    story.show(
        &format!("ferro unoffload {NAMESPACE} --wait"),
        told.trim_end().lines().last().unwrap_or_default(),
    );
    home.kubectl(&["delete", "namespace", CUSTOMERS, NAMESPACE, "--timeout=300s"]).await.map(drop)
}

/// Customers who order without a pause.
pub struct Customers {
    home: Cluster,
    record: watch::Sender<Record>,
    /// Whoever listens to them; ends with this value.
    _listening: AbortOnDropHandle<()>,
}

impl Customers {
    /// Lets them in, beside the shop and at home, and listens to them.
    pub async fn come(home: &Cluster, story: &Story) -> Result<Self> {
        home.kubectl(&["create", "namespace", CUSTOMERS]).await?;
        apply(home, CUSTOMERS, manifests("load.yaml")?).await?;
        home.kubectl(&["-n", CUSTOMERS, "rollout", "status", "deployment/load", "--timeout=300s"]).await?;
        story.say(format!("$ kubectl -n {CUSTOMERS} apply -f examples/shop/load.yaml && kubectl -n {CUSTOMERS} logs -f deployment/load"));
        let (record, _) = watch::channel(Record::default());
        let listening = listen(home, record.clone(), story.clone())?;
        Ok(Self { home: home.clone(), record, _listening: listening })
    }

    /// From now on orders count towards a new chapter, in which they may fail for so many seconds.
    pub fn begin(&self, title: impl Into<String>, allowed: f64) {
        self.record.send_modify(|record| record.begin(title, allowed));
    }

    /// Waits until the chapter has lasted so many seconds, and orders are taken.
    pub async fn watch(&self, seconds: u64) -> Result<()> {
        let mut record = self.record.subscribe();
        let lasted = timeout(PATIENCE, record.wait_for(|record| record.has_lasted(seconds))).await;
        match lasted {
            Ok(seen) => seen.map(drop).context("nobody listens to the customers"),
            Err(_) => bail!("no orders are taken:\n{}", *self.record.borrow()),
        }
    }

    /// Sends them home; gives what they went through.
    pub async fn leave(self) -> Result<Record> {
        self.home.kubectl(&["-n", CUSTOMERS, "scale", "deployment", "load", "--replicas=0"]).await?;
        let mut record = self.record.subscribe();
        let over = timeout(PATIENCE, record.wait_for(Record::is_over)).await;
        let over =
            over.context("the customers do not go home")?.context("nobody listens to the customers")?;
        Ok(over.clone())
    }

    /// What they went through so far.
    pub fn so_far(&self) -> Record {
        self.record.borrow().clone()
    }
}

/// Follows what customers say, for the record and for the story.
fn listen(home: &Cluster, record: watch::Sender<Record>, story: Story) -> Result<AbortOnDropHandle<()>> {
    let mut logs = home.kubectl_command();
    logs.args(["-n", CUSTOMERS, "logs", "--follow", "deployment/load"]).stdout(Stdio::piped());
    let mut logs = logs.spawn().context("cannot start kubectl")?;
    let mut lines = BufReader::new(logs.stdout.take().context("kubectl has no output")?).lines();
    Ok(AbortOnDropHandle::new(tokio::spawn(async move {
        // What is not a line of theirs is kubectl's, and nothing to count.
        while let Ok(Some(text)) = lines.next_line().await {
            if let Ok(line) = serde_json::from_str::<Line>(&text) {
                record.send_modify(|record| record.hear(&line));
                story.tell(News::Heard(line));
            }
        }
        drop(logs);
    })))
}

/// The objects of a file of the example.
fn manifests(file: &str) -> Result<Vec<Value>> {
    let text = std::fs::read_to_string(workspace().join("examples/shop").join(file));
    let text = text.with_context(|| format!("cannot read examples/shop/{file}"))?;
    Ok(serde_saphyr::from_multiple(&text)?)
}

async fn apply(cluster: &Cluster, namespace: &str, mut objects: Vec<Value>) -> Result<()> {
    for object in &mut objects {
        object["metadata"]["namespace"] = namespace.into();
    }
    let list = json!({"apiVersion": "v1", "kind": "List", "items": objects});
    cluster.apply(&list.to_string()).await.map(drop)
}

/// One wish more: what has data of its own runs at home.
fn data_at_home(objects: &mut [Value]) {
    let at_home = json!({"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
        {"matchExpressions": [{"key": "liqo.io/type", "operator": "NotIn", "values": ["virtual-node"]}]},
    ]}});
    for object in objects.iter_mut().filter(|object| object["kind"] == "StatefulSet") {
        object["spec"]["template"]["spec"]["affinity"]["nodeAffinity"] = at_home.clone();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_has_data_is_told_to_stay_at_home() {
        let mut objects = manifests("shop.yaml").unwrap();
        data_at_home(&mut objects);
        let affine =
            |object: &&Value| object["spec"]["template"]["spec"]["affinity"]["nodeAffinity"].is_object();
        let names: Vec<_> = objects.iter().filter(affine).map(|object| &object["metadata"]["name"]).collect();
        assert_eq!(names, ["cart"]);
    }
}
