//! `ferro status`: who this cluster is, whether its roles run, how its peerings stand, and what to do next.

mod problems;

use std::collections::BTreeMap;
use std::fmt::Write as _;

use ferro_api::config::ClusterConfig;
use ferro_api::discovery::{ForeignCluster, PeeringState, PeeringStatus};
use ferro_api::net::TunnelEndpoint;
use ferro_api::offloading::NamespaceOffloading;
use ferro_api::tenancy::Tenant;
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment};
use k8s_openapi::jiff::Timestamp;
use kube::api::Api;
use kube::{Client, ResourceExt as _};
use serde::Serialize;

use crate::kube_args::KubeArgs;
use crate::kube_errors::{Explain as _, found};
use crate::output::{self, Format, View};
use crate::this_cluster::{self, Identity};
use crate::{chart, network, offloading, peers, table, tenants};

/// The label in which every object has the version that it came with.
const VERSION: &str = "app.kubernetes.io/version";

/// Show this cluster: who it is, whether all runs, how its peerings stand, and what to do next
#[derive(clap::Args)]
#[command(after_help = "Examples:
  ferro status

  With a table of all peers:
    ferro status -o wide")]
pub(crate) struct Args {
    /// The format to print in
    #[arg(short, long, value_enum, value_name = "FORMAT")]
    output: Option<View>,

    #[command(flatten)]
    kube: KubeArgs,
}

/// What is shown.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Status {
    #[serde(skip_serializing_if = "Option::is_none")]
    cluster_name: Option<String>,
    #[serde(rename = "clusterID", skip_serializing_if = "Option::is_none")]
    cluster_id: Option<String>,
    namespace: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    auth_url: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    api_server_url: Option<String>,
    roles: Vec<Role>,
    peers: Peers,
    namespaces: Namespaces,
    tenants: Tenants,
    /// What is wrong, each with what to do about it.
    problems: Vec<String>,
}

/// How many pods of a role are ready; none where it is not there at all.
#[derive(Debug, Serialize)]
struct Role {
    name: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pods: Option<Pods>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
struct Pods {
    ready: i32,
    desired: i32,
}

/// How many peers there are in which state.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
struct Peers {
    known: usize,
    outgoing: BTreeMap<&'static str, usize>,
    incoming: BTreeMap<&'static str, usize>,
}

/// How many namespaces use other clusters, in which phase.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
struct Namespaces {
    offloaded: usize,
    phases: BTreeMap<&'static str, usize>,
}

/// How many other clusters use this one, and how many namespaces they have here.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
struct Tenants {
    known: usize,
    namespaces: u32,
}

/// What is found in the cluster.
struct Facts {
    namespace: String,
    version: Option<String>,
    identity: Option<Identity>,
    config: ClusterConfig,
    roles: Vec<Role>,
    peers: Vec<ForeignCluster>,
    tunnels: Vec<TunnelEndpoint>,
    offloadings: Vec<NamespaceOffloading>,
    tenants: Vec<Tenant>,
}

/// Shows the cluster.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    super::block_on(async {
        let facts = Facts::find(&args.kube.client().await?).await?;
        let status = Status::of(&facts);
        match args.output {
            Some(View::Json) => output::print_value(&status, Format::Json),
            Some(View::Yaml) => output::print_value(&status, Format::Yaml),
            Some(View::Wide) if !facts.peers.is_empty() => {
                let table = table::peers(&facts.peers, true, Timestamp::now());
                output::print(format!("{}\n{table}", status.text()).as_bytes())
            }
            Some(View::Wide) | None => output::print(status.text().as_bytes()),
        }
    })
}

impl Facts {
    async fn find(client: &Client) -> anyhow::Result<Self> {
        let namespace = this_cluster::namespace(client).await?;
        let controller = deployment(client, &namespace, chart::CONTROLLER).await?;
        let auth = deployment(client, &namespace, chart::AUTH).await?;
        let gateway = deployment(client, &namespace, chart::GATEWAY).await?;
        let node = Api::<DaemonSet>::namespaced(client.clone(), &namespace).get(chart::NODE).await;
        let node = found(node).explain(|| format!("read {}", chart::NODE))?;
        let version = controller.as_ref().and_then(|found| found.labels().get(VERSION).cloned());
        let roles = vec![
            Role { name: chart::CONTROLLER, pods: controller.as_ref().map(of_deployment) },
            Role { name: chart::AUTH, pods: auth.as_ref().map(of_deployment) },
            Role { name: chart::NODE, pods: node.as_ref().map(of_daemon_set) },
            Role { name: chart::GATEWAY, pods: gateway.as_ref().map(of_deployment) },
        ];
        Ok(Self {
            identity: this_cluster::identity(client, &namespace).await?,
            config: this_cluster::config(client).await?,
            peers: peers::list(client).await?,
            tunnels: network::tunnels(client).await?,
            offloadings: offloading::list(client).await?,
            tenants: tenants::list(client).await?,
            namespace,
            version,
            roles,
        })
    }
}

async fn deployment(client: &Client, namespace: &str, name: &str) -> anyhow::Result<Option<Deployment>> {
    let deployment = Api::<Deployment>::namespaced(client.clone(), namespace).get(name).await;
    found(deployment).explain(|| format!("read {name}"))
}

fn of_deployment(deployment: &Deployment) -> Pods {
    let desired = deployment.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1);
    let ready = deployment.status.as_ref().and_then(|status| status.ready_replicas).unwrap_or(0);
    Pods { ready, desired }
}

fn of_daemon_set(daemon_set: &DaemonSet) -> Pods {
    let status = daemon_set.status.as_ref();
    status.map_or(Pods { ready: 0, desired: 0 }, |status| Pods {
        ready: status.number_ready,
        desired: status.desired_number_scheduled,
    })
}

impl Status {
    fn of(facts: &Facts) -> Self {
        let identity = facts.identity.as_ref();
        let api_server = identity.and_then(|identity| identity.api_server.as_ref()).map(ToString::to_string);
        Self {
            cluster_name: identity.map(|identity| identity.name.clone()),
            cluster_id: identity.map(|identity| identity.id.to_string()),
            namespace: facts.namespace.clone(),
            version: facts.version.clone(),
            auth_url: facts.config.status.as_ref().and_then(|status| status.auth_url.clone()),
            api_server_url: api_server,
            roles: facts.roles.iter().map(|role| Role { ..*role }).collect(),
            peers: Peers::of(&facts.peers),
            namespaces: Namespaces::of(&facts.offloadings),
            tenants: Tenants::of(&facts.tenants),
            problems: problems::of(facts),
        }
    }

    fn text(&self) -> String {
        let or_unknown = |value: &Option<String>| value.clone().unwrap_or_else(|| "not known yet".into());
        let mut rows = vec![
            ("Cluster:".to_owned(), or_unknown(&self.cluster_name)),
            ("Cluster ID:".into(), or_unknown(&self.cluster_id)),
            ("Namespace:".into(), self.namespace.clone()),
            ("Version:".into(), or_unknown(&self.version)),
            ("Auth URL:".into(), or_unknown(&self.auth_url)),
            ("API server:".into(), or_unknown(&self.api_server_url)),
        ];
        rows.extend(self.roles.iter().map(|role| (format!("{}:", role.name), role.text())));
        rows.push(("Peers:".into(), self.peers.text()));
        rows.extend(self.namespaces.text().map(|text| ("Namespaces:".into(), text)));
        rows.extend(self.tenants.text().map(|text| ("Tenants:".into(), text)));
        let rows: Vec<_> = rows.into_iter().map(|(key, value)| vec![key, output::plain(&value)]).collect();
        let mut text = table::aligned(&rows);
        text.push('\n');
        text.push_str(&self.advice());
        text
    }

    fn advice(&self) -> String {
        if self.problems.is_empty() && self.peers.known == 0 {
            return format!("Everything runs, but {}.\n", peers::nobody());
        }
        if self.problems.is_empty() {
            return "Everything is as it should be.\n".into();
        }
        let mut text = "What is wrong, and what to do:\n".to_owned();
        for problem in &self.problems {
            // Writing to a string cannot fail.
            _ = writeln!(text, "- {}", output::plain(problem));
        }
        text
    }
}

impl Role {
    fn text(&self) -> String {
        self.pods.map_or_else(
            || "not installed".into(),
            |pods| format!("{} of {} ready", pods.ready, pods.desired),
        )
    }
}

impl Peers {
    fn of(known: &[ForeignCluster]) -> Self {
        let mut peers = Self { known: known.len(), ..Self::default() };
        for status in known.iter().filter_map(|peer| peer.status.as_ref()) {
            count(&mut peers.outgoing, status.outgoing.as_ref());
            count(&mut peers.incoming, status.incoming.as_ref());
        }
        peers
    }

    fn text(&self) -> String {
        let direction = |name: &str, counts: &BTreeMap<&str, usize>| {
            let counts: Vec<_> = counts.iter().map(|(state, count)| format!("{count} {state}")).collect();
            if counts.is_empty() { String::new() } else { format!("; {name}: {}", counts.join(", ")) }
        };
        let (outgoing, incoming) =
            (direction("outgoing", &self.outgoing), direction("incoming", &self.incoming));
        format!("{} known{outgoing}{incoming}", self.known)
    }
}

impl Namespaces {
    fn of(offloadings: &[NamespaceOffloading]) -> Self {
        let mut namespaces = Self { offloaded: offloadings.len(), ..Self::default() };
        for phase in offloadings.iter().filter_map(offloading::state) {
            *namespaces.phases.entry(offloading::phase(phase)).or_default() += 1;
        }
        namespaces
    }

    /// Nothing where no namespace uses other clusters.
    fn text(&self) -> Option<String> {
        let phases: Vec<_> = self.phases.iter().map(|(phase, count)| format!("{count} {phase}")).collect();
        let phases = if phases.is_empty() { String::new() } else { format!("; {}", phases.join(", ")) };
        (self.offloaded > 0).then(|| format!("{} on other clusters{phases}", self.offloaded))
    }
}

impl Tenants {
    fn of(tenants: &[Tenant]) -> Self {
        let used = |tenant: &Tenant| tenant.status.as_ref()?.namespaces_used;
        Self { known: tenants.len(), namespaces: tenants.iter().filter_map(used).sum() }
    }

    /// Nothing where nobody uses this cluster.
    fn text(&self) -> Option<String> {
        (self.known > 0).then(|| format!("{} with {} namespaces here", self.known, self.namespaces))
    }
}

fn count(counts: &mut BTreeMap<&'static str, usize>, direction: Option<&PeeringStatus>) {
    if let Some(direction) = direction.filter(|direction| direction.state != PeeringState::None) {
        *counts.entry(table::state(direction.state)).or_default() += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::Status;
    use super::problems::tests::healthy;
    use crate::offloading::tests::offloading;
    use crate::peers::tests::peer;
    use crate::tenants::tests::{ROME, tenant};
    use serde_json::json;

    #[test]
    fn a_healthy_cluster_is_shown_with_what_to_do_first() {
        assert_eq!(
            Status::of(&healthy()).text().split("run 'ferro token'").next().unwrap(),
            "\
Cluster:            rome
Cluster ID:         0aaaaaaa-4c1b-802c-a5f1-5ef6f39c0490
Namespace:          liqo
Version:            0.1.0
Auth URL:           https://192.0.2.1:30443
API server:         not known yet
ferro-controller:   1 of 1 ready
ferro-auth:         1 of 1 ready
ferro-node:         2 of 2 ready
ferro-gateway:      1 of 1 ready
Peers:              0 known

Everything runs, but this cluster knows no other cluster yet; "
        );
    }

    #[test]
    fn peers_are_counted_by_state() {
        let mut facts = healthy();
        let established = json!({"outgoing": {"state": "Established"}, "incoming": {"state": "None"}});
        let pending = json!({"outgoing": {"state": "Pending"}, "incoming": {"state": "Established"}});
        for (name, status) in [("a", &established), ("b", &established), ("c", &pending)] {
            facts.peers.push(peer(name, &json!({"authUrl": name}), status));
        }
        let status = Status::of(&facts);
        assert_eq!(
            status.peers.text(),
            "3 known; outgoing: 2 Established, 1 Pending; incoming: 1 Established"
        );
        assert!(status.text().ends_with("\n\nEverything is as it should be.\n"));
    }

    #[test]
    fn namespaces_and_tenants_are_counted_where_there_are_some() {
        let mut facts = healthy();
        facts.peers.push(peer("a", &json!({"authUrl": "a"}), &json!({})));
        facts.offloadings.push(offloading("shop", &json!({}), &json!({"offloadingPhase": "Ready"})));
        facts.tenants.push(tenant("rome", ROME, &json!({}), &json!({"namespacesUsed": 2})));
        let text = Status::of(&facts).text();
        assert!(text.contains("Namespaces:         1 on other clusters; 1 Ready\n"), "{text}");
        assert!(text.contains("Tenants:            1 with 2 namespaces here\n"), "{text}");
    }

    #[test]
    fn programs_get_the_same() {
        let value = serde_json::to_value(Status::of(&healthy())).unwrap();
        assert_eq!(value["clusterID"], "0aaaaaaa-4c1b-802c-a5f1-5ef6f39c0490");
        assert_eq!(value["roles"][2], json!({"name": "ferro-node", "pods": {"ready": 2, "desired": 2}}));
        assert_eq!(value["peers"], json!({"known": 0, "outgoing": {}, "incoming": {}}));
        assert_eq!(value["problems"], json!([]));
    }
}
