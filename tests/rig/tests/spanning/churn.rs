//! Endpoints that come and go all the time, on all clusters: whoever asks notices no more of it than inside one cluster.

use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, ListParams};
use kube::{Api, Client, ResourceExt as _};
use rig::pods::is_ready;
use rig::wait::GLANCE;

use crate::stage::{Stage, is_soak};

/// The namespace that uses this cluster only, with the same servers and the same churn.
const PLAIN: &str = "plain";
/// So many servers, of which one goes at each turn. A turn takes so long at least, and as long as the one after it takes to
/// be ready: without any server, nobody is answered inside one cluster either.
const SERVERS: usize = 4;
const TURN: Duration = Duration::from_secs(3);
/// So many turns are churn.
const TURNS: u32 = 3;

/// How many requests somebody has made, how many of them were not answered by a server of the Service, and how often no
/// request came about, since a busy machine did not say in time which address the Service has.
#[derive(Clone, Copy, Debug)]
struct Tally {
    asked: u32,
    failed: u32,
    nameless: u32,
}

/// Servers that go on for a while after they were told to end, as those do that nobody is to miss. They say of which
/// namespace they are: an answer of the other one's is none.
fn servers(namespace: &str) -> String {
    format!(
        r"
apiVersion: apps/v1
kind: Deployment
metadata: {{name: churn, namespace: {namespace}}}
spec:
  replicas: {SERVERS}
  selector: {{matchLabels: {{app: churn}}}}
  template:
    metadata: {{labels: {{app: churn}}}}
    spec:
      terminationGracePeriodSeconds: 20
      topologySpreadConstraints:
      - {{maxSkew: 1, topologyKey: kubernetes.io/hostname, whenUnsatisfiable: ScheduleAnyway, labelSelector: {{matchLabels: {{app: churn}}}}}}
      containers:
      - name: echo
        image: rig/testbox:1
        args: [serve]
        ports: [{{name: http, containerPort: 8080}}]
        env: [{{name: CLUSTER, value: {namespace}}}]
        lifecycle: {{preStop: {{sleep: {{seconds: 10}}}}}}
        readinessProbe: {{httpGet: {{path: /healthz, port: 8080}}, periodSeconds: 1}}
---
apiVersion: v1
kind: Service
metadata: {{name: churn, namespace: {namespace}}}
spec: {{selector: {{app: churn}}, ports: [{{port: 80, targetPort: http}}]}}
"
    )
}

pub async fn whoever_asks_notices_no_more_than_inside_one_cluster(stage: &Stage) -> Result<()> {
    let rome = stage.rome()?;
    rome.kubectl(&["create", "namespace", PLAIN]).await?;
    for namespace in [PLAIN, "shop"] {
        rome.apply(&servers(namespace)).await?;
    }
    for namespace in [PLAIN, "shop"] {
        let status = ["-n", namespace, "rollout", "status", "deployment/churn", "--timeout=300s"];
        rome.kubectl(&status).await?;
    }
    let length = if is_soak() { Duration::from_mins(10) } else { Duration::from_mins(1) };
    let ask = |asker, namespace| ask_for(stage, asker, namespace, length);
    let (alone, at_home, on_turin, on_milan, churned) = tokio::join!(
        ask("rome", PLAIN),
        ask("rome", "shop"),
        ask("turin", "shop"),
        ask("milan", "shop"),
        churn(stage, length),
    );
    churned?;
    let (alone, spanning) = (alone?, [at_home?, on_turin?, on_milan?]);
    println!("churn: inside one cluster {alone:?}; over three {spanning:?}");
    for tally in spanning {
        ensure!(tally.asked >= 20 && tally.nameless < tally.asked / 2, "hardly anybody asked: {tally:?}");
        ensure!(tally.failed <= alone.failed, "{tally:?} beside {alone:?} inside one cluster");
    }
    rome.kubectl(&["delete", "namespace", PLAIN, "--timeout=300s"]).await?;
    stage.kubectl(&["delete", "deployment/churn", "service/churn"]).await.map(drop)
}

/// Somebody on a cluster asks without a pause, each time by a new connection. Who is slow to answer answers.
async fn ask_for(stage: &Stage, asker: &str, namespace: &str, length: Duration) -> Result<Tally> {
    let script = format!(
        "end=$(($(date +%s)+{})); n=0; f=0; u=0; while [ $(date +%s) -lt $end ]; do \
         said=$(wget -T 15 http://churn.{namespace}/ 2>&1); case \"$said\" in \
         *'\"cluster\":\"{namespace}\"'*) n=$((n+1));; *'cannot resolve'*) u=$((u+1));; *) n=$((n+1)); f=$((f+1));; \
         esac; done; echo $n $f $u",
        length.as_secs()
    );
    let said = stage.exec(asker, &["sh", "-c", &script]).await?;
    let counts: Vec<u32> = said.split_whitespace().map(str::parse).collect::<Result<_, _>>()?;
    let [all, failed, nameless] = counts[..] else { bail!("{asker} says {said}") };
    Ok(Tally { asked: all, failed, nameless })
}

/// Takes the oldest server away in both namespaces, again and again, until a turn before whoever asks has done.
async fn churn(stage: &Stage, length: Duration) -> Result<()> {
    let end = Instant::now() + length.saturating_sub(TURN);
    let client = &stage.rome()?.client;
    let (plain, shop) = (Servers::of(client, PLAIN), Servers::of(client, "shop"));
    let (mut turns, mut abroad) = (0, 0);
    while Instant::now() < end {
        let (Some(one), Some(other)) = tokio::try_join!(plain.oldest(), shop.oldest())? else {
            tokio::time::sleep(GLANCE).await;
            continue;
        };
        tokio::try_join!(plain.end(&one), shop.end(&other))?;
        turns += 1;
        abroad += u32::from(is_abroad(&other));
        tokio::time::sleep(TURN).await;
    }
    println!("churn: {turns} turns, of which {abroad} on peers");
    ensure!(turns >= TURNS && abroad > 0, "there were {turns} turns only, of which {abroad} on peers");
    Ok(())
}

/// The servers of a namespace.
struct Servers(Api<Pod>);

impl Servers {
    fn of(client: &Client, namespace: &str) -> Self {
        Self(Api::namespaced(client.clone(), namespace))
    }

    /// The oldest of them that stays, once all are ready.
    async fn oldest(&self) -> Result<Option<Pod>> {
        let mut servers = self.0.list(&ListParams::default().labels("app=churn")).await?.items;
        servers.retain(|pod| pod.metadata.deletion_timestamp.is_none() && is_ready(pod));
        if servers.len() != SERVERS {
            return Ok(None);
        }
        Ok(servers.into_iter().min_by_key(|pod| pod.metadata.creation_timestamp.clone()))
    }

    async fn end(&self, server: &Pod) -> Result<()> {
        Ok(self.0.delete(&server.name_any(), &DeleteParams::default()).await.map(drop)?)
    }
}

fn is_abroad(pod: &Pod) -> bool {
    let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref());
    node.is_some_and(|node| node.starts_with("liqo-"))
}
