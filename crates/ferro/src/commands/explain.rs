//! `ferro explain`: for one namespace and each cluster, whether it is selected and why, and how the namespace fares there.

mod clusters;

use std::fmt::Write as _;

use anyhow::ensure;
use ferro_api::discovery::ForeignCluster;
use ferro_api::names::labels;
use ferro_api::offloading::{NamespaceOffloading, NamespaceOffloadingSpec, PodOffloadingStrategy};
use ferro_core::offloading::remote_name;
use ferro_core::selector;
use k8s_openapi::api::core::v1::Node;
use kube::Client;
use kube::api::ListParams;
use serde::Serialize;

use self::clusters::{OfCluster, Selection};
use crate::kube_args::KubeArgs;
use crate::offloading::{self, Seen};
use crate::output::{self, View};
use crate::{complete, listing, peers, table, this_cluster};

/// Say for each cluster why a namespace uses it or not, and how the namespace fares there
#[derive(clap::Args)]
#[command(after_help = "Examples:
  ferro explain shop

  For programs:
    ferro explain shop -o json | jq '.clusters[] | select(.selection != \"Selected\")'")]
pub(crate) struct Args {
    /// The namespace
    #[arg(add = complete::offloaded_namespaces())]
    namespace: String,

    /// The format to print in
    #[arg(short, long, value_enum, value_name = "FORMAT")]
    output: Option<View>,

    #[command(flatten)]
    kube: KubeArgs,
}

/// All that is said.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Explained {
    namespace: String,
    is_offloaded: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    mapping: Option<&'static str>,
    /// What the namespace is called on other clusters.
    #[serde(skip_serializing_if = "Option::is_none")]
    remote_namespace: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pods: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    selector: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    phase: Option<&'static str>,
    clusters: Vec<OfCluster>,
    /// Whether there may be others, which whoever asks may not see.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    are_hidden: bool,
    /// What is wrong with the offloading as a whole.
    problems: Vec<String>,
}

/// Explains.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    super::block_on(async {
        let client = args.kube.client().await?;
        let explained = find(&client, &args.namespace).await?;
        output::value(&explained, |_| explained.text(), args.output)
    })
}

async fn find(client: &Client, namespace: &str) -> anyhow::Result<Explained> {
    ensure!(
        !matches!(offloading::namespace(client, namespace).await?, Seen::Missing),
        "there is no namespace {namespace}; see 'ferro namespaces'"
    );
    let offloading = offloading::get(client, namespace).await?;
    let which = ListParams::default().labels(&labels::TYPE_VIRTUAL_NODE.selector());
    let nodes = listing::if_allowed::<Node>(client, "nodes", &which).await?;
    let peers = listing::if_allowed::<ForeignCluster>(client, "peers", &ListParams::default()).await?;
    let own = this_cluster::config_if_allowed(client).await?.and_then(|config| config.status);
    let own_id = own.and_then(|status| status.cluster_id);
    let (clusters, are_hidden) = match (&nodes, &peers) {
        (Some(nodes), Some(peers)) => (clusters::all(offloading.as_ref(), nodes, peers), false),
        // Who looks after a namespace need not see the clusters: the offloading says of each what became of it.
        _ => (clusters::told(offloading.as_ref(), &peers::names(peers.iter().flatten())), true),
    };
    let explained = Explained::of(namespace, offloading.as_ref(), own_id.as_deref(), clusters);
    Ok(Explained { are_hidden, ..explained })
}

impl Explained {
    fn of(
        namespace: &str,
        offloading: Option<&NamespaceOffloading>,
        own_id: Option<&str>,
        clusters: Vec<OfCluster>,
    ) -> Self {
        let spec = offloading.map(|offloading| &offloading.spec);
        let mapping = spec.map(NamespaceOffloadingSpec::namespace_mapping_strategy);
        let called = mapping.zip(own_id).map(|(mapping, id)| remote_name(mapping, namespace, id));
        let (called, unnamed) = match called.transpose() {
            Ok(called) => (called, None),
            Err(error) => (None, Some(error.to_string())),
        };
        let summary = offloading.and_then(offloading::summary).map(str::to_owned);
        Self {
            namespace: namespace.to_owned(),
            is_offloaded: offloading.is_some(),
            mapping: mapping.map(offloading::mapping),
            remote_namespace: called,
            pods: spec.map(|spec| offloading::pods(spec.pod_offloading_strategy())),
            selector: spec.map(|spec| selector::text::text(&spec.cluster_selector())),
            phase: offloading.and_then(offloading::state).map(offloading::phase),
            clusters,
            are_hidden: false,
            problems: unnamed.or(summary).into_iter().collect(),
        }
    }

    fn text(&self) -> String {
        let mut text = self.head();
        if self.clusters.is_empty() && self.are_hidden {
            text.push_str("\nIt says nothing of other clusters, and you may not see which ones there are.\n");
            return text;
        }
        if self.clusters.is_empty() {
            _ = writeln!(text, "\nThere are no other clusters: {}.", peers::nobody());
            return text;
        }
        text.push('\n');
        text.push_str(&self.table());
        for problem in &self.problems {
            // Writing to a string cannot fail.
            _ = writeln!(text, "\n{}", output::plain(problem));
        }
        if self.is_offloaded
            && self.clusters.iter().any(|cluster| cluster.selection == Selection::NotSelected)
        {
            text.push_str(&self.how_to_select());
        }
        text
    }

    fn head(&self) -> String {
        if !self.is_offloaded {
            return format!(
                "{0} uses no other cluster: its pods run here only. To change that: ferro offload {0}\n",
                self.namespace
            );
        }
        let unknown = || table::NOTHING.to_owned();
        let row = |key: &str, value: Option<String>| vec![key.to_owned(), value.unwrap_or_else(unknown)];
        let owned = |word: Option<&'static str>| word.map(str::to_owned);
        let called = self
            .remote_namespace
            .as_ref()
            .map(|name| format!("{name} ({})", self.mapping.unwrap_or_default()));
        table::aligned(&[
            row("Namespace:", Some(self.namespace.clone())),
            row("Called there:", called.or_else(|| owned(self.mapping))),
            row("Pods:", owned(self.pods)),
            row("Selector:", self.selector.clone()),
            row("Phase:", owned(self.phase)),
        ])
    }

    fn table(&self) -> String {
        let head = ["CLUSTER", "NODE", "SELECTED", "STATE", "WHY"].map(str::to_owned).to_vec();
        let rows = self.clusters.iter().flat_map(OfCluster::rows);
        table::aligned(&std::iter::once(head).chain(rows).collect::<Vec<_>>())
    }

    fn how_to_select(&self) -> String {
        format!(
            "\nTo use one that is not selected, change the selector (ferro offload {} --selector …), or the labels of its \
             node (spec.nodeLabels of the ForeignCluster).\n",
            self.namespace
        )
    }
}

/// What it means for pods that the namespace exists on a cluster.
fn use_of(pods: PodOffloadingStrategy) -> &'static str {
    match pods {
        PodOffloadingStrategy::LocalAndRemote => "pods may run there and here",
        PodOffloadingStrategy::Local => "it exists there, and pods run here only",
        PodOffloadingStrategy::Remote => "pods may run there, and not here",
    }
}

#[cfg(test)]
mod tests {
    use super::Explained;
    use super::clusters::{
        all,
        tests::{nodes, peers},
    };
    use crate::offloading::tests::{half, offloading};
    use serde_json::json;

    const ROME: &str = "4222622b-ecab-8637-860c-5a5a0f30e9c1";

    #[test]
    fn a_namespace_is_explained_cluster_by_cluster() {
        let region = json!({"key": "liqo.io/region", "operator": "In", "values": ["eu"]});
        let spec = json!({"clusterSelector": {"nodeSelectorTerms": [{"matchExpressions": [region]}]}});
        let shop = offloading("shop", &spec, &half());
        let explained = Explained::of("shop", Some(&shop), Some(ROME), all(Some(&shop), &nodes(), &peers()));
        let text = explained.text();
        assert!(
            text.starts_with(
                "\
Namespace:      shop
Called there:   shop-4222622b-ecab-8637-860c-5a5a0f30e9c1 (DefaultName)
Pods:           LocalAndRemote
Selector:       liqo.io/region=eu
Phase:          SomeFailed

CLUSTER   NODE         SELECTED   STATE                 WHY
"
            ),
            "{text}"
        );
        assert!(text.contains("\nturin     liqo-turin   yes        Ready "), "{text}");
        assert!(text.ends_with("(spec.nodeLabels of the ForeignCluster).\n"), "{text}");
        assert_eq!(serde_json::to_value(&explained).unwrap()["clusters"][2]["selection"], "NotSelected");
    }

    #[test]
    fn a_namespace_that_stays_at_home_is_told_how_to_go() {
        let text = Explained::of("shop", None, Some(ROME), all(None, &nodes(), &peers())).text();
        assert!(text.starts_with("shop uses no other cluster: its pods run here only."), "{text}");
        assert!(text.contains("ferro offload shop"), "{text}");
    }
}
