//! `ferro offload`: lets a namespace use other clusters, or changes which ones and for what.

use anyhow::{bail, ensure};
use clap::ValueEnum;
use ferro_api::offloading::{NamespaceMappingStrategy, NamespaceOffloading, PodOffloadingStrategy};
use ferro_core::offloading::{OFFLOADING, remote_name};
use ferro_core::selector;
use k8s_openapi::api::core::v1::{NodeSelector, Pod};
use k8s_openapi::jiff::Timestamp;
use kube::Client;
use kube::api::{Api, ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use crate::kube_args::KubeArgs;
use crate::kube_errors::Explain as _;
use crate::offloading::{self, Seen, Watched};
use crate::output::{self, Show};
use crate::peers::{self, Names};
use crate::progress::Patience;
use crate::wait::Deadline;
use crate::{complete, this_cluster};

/// Let a namespace use other clusters
///
/// The namespace is made on every cluster that is selected, and from then on its pods may run there. On a namespace that
/// uses other clusters already, only what is given is changed. Pods that exist stay where they are, but for those on clusters
/// that are not selected any more: these are deleted, and their owners make them again where they may be.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  Let the namespace shop use all peers:
    ferro offload shop --wait

  Only those in Europe that are not at the edge, or the one with a GPU; pods run nowhere else:
    ferro offload shop --pods remote --selector 'liqo.io/region in (eu-west,eu-south),!edge; gpu'

  All peers again:
    ferro offload shop --selector liqo.io/type=virtual-node

  Why a cluster is used or not:
    ferro explain shop")]
pub(crate) struct Args {
    /// The namespace
    #[arg(add = complete::namespaces())]
    namespace: String,

    /// What it is called on other clusters: its name and the ID of this cluster, or just its name. It cannot be changed
    /// later [default: default-name]
    #[arg(long, value_enum, value_name = "STRATEGY")]
    strategy: Option<Mapping>,

    /// Where its pods may run: here and on the selected clusters, only here, or only there [default: local-and-remote]
    #[arg(long, value_enum, value_name = "WHERE")]
    pods: Option<Pods>,

    /// Which clusters it uses, by the labels of their nodes: KEY=VALUE, KEY!=VALUE, KEY in (A,B), KEY notin (A,B), KEY,
    /// !KEY, KEY>N, KEY<N; commas mean and, semicolons mean or [default: all]
    #[arg(long, value_parser = selector::text::parse)]
    selector: Option<NodeSelector>,

    #[command(flatten)]
    show: Show,

    #[command(flatten)]
    patience: Patience,

    #[command(flatten)]
    kube: KubeArgs,
}

/// What a namespace is called elsewhere, as a person says it; or as the object does.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Mapping {
    #[value(alias = "DefaultName")]
    DefaultName,
    #[value(aliases = ["EnforceSameName", "enforce-same-name"])]
    SameName,
}

/// Where pods may run, as a person says it; or as the object does.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Pods {
    #[value(alias = "LocalAndRemote")]
    LocalAndRemote,
    #[value(alias = "Local")]
    Local,
    #[value(alias = "Remote")]
    Remote,
}

/// Offloads.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    super::block_on(offload(args))
}

async fn offload(args: &Args) -> anyhow::Result<()> {
    let deadline = Deadline::after(args.patience.timeout);
    let client = args.kube.client().await?;
    let namespace = args.namespace.as_str();
    ensure!(
        !matches!(offloading::namespace(&client, namespace).await?, Seen::Missing),
        "there is no namespace {namespace}; make it with 'kubectl create namespace {namespace}', or choose another \
         cluster with --context"
    );
    let before = offloading::get(&client, namespace).await?;
    args.refuse(before.as_ref())?;
    if before.is_none() {
        args.refuse_name(&client).await?;
    }
    let mut offloading = args.write(&client, before.is_some()).await?;
    tell_of_pods(&client, args, before.is_none()).await;
    let names = peers::known_names(&client).await?;
    if args.patience.wait {
        offloading = Watched::new(&client, namespace, &names).ready(deadline).await?;
    }
    let table = || offloading::table(std::slice::from_ref(&offloading), &names, true, Timestamp::now());
    args.show.object(&offloading, table, &said(&offloading, &names, args.patience.wait))
}

impl Args {
    /// Says no to what the server would refuse, with what to do instead.
    fn refuse(&self, before: Option<&NamespaceOffloading>) -> anyhow::Result<()> {
        let (Some(before), name) = (before, &self.namespace) else { return Ok(()) };
        ensure!(
            before.metadata.deletion_timestamp.is_none(),
            "{name} is being taken off other clusters; wait until that is done (ferro unoffload {name} --wait), and try \
             again"
        );
        let strategy = before.spec.namespace_mapping_strategy();
        if let Some(wanted) = self.strategy.filter(|wanted| wanted.strategy() != strategy) {
            bail!(
                "what {name} is called on other clusters cannot be changed while it is there; run 'ferro unoffload {name} \
                 --wait', which removes it from them with all that runs there, and then 'ferro offload {name} --strategy \
                 {}'",
                wanted.word()
            );
        }
        Ok(())
    }

    /// Says no to a name that cannot be had elsewhere. Whoever may not ask who this cluster is hears it from the server.
    async fn refuse_name(&self, client: &Client) -> anyhow::Result<()> {
        let Ok(config) = this_cluster::config(client).await else { return Ok(()) };
        let strategy = self.strategy.map(Mapping::strategy).unwrap_or_default();
        if let Some(id) = config.status.and_then(|status| status.cluster_id) {
            remote_name(strategy, &self.namespace, &id)?;
        }
        Ok(())
    }

    async fn write(&self, client: &Client, exists: bool) -> anyhow::Result<NamespaceOffloading> {
        let api = offloading::api(client, &self.namespace);
        let manager = Some(peers::MANAGER.to_owned());
        let written = if exists {
            let how = PatchParams { field_manager: manager, ..PatchParams::default() };
            api.patch(OFFLOADING, &how, &Patch::Merge(json!({"spec": self.spec()}))).await
        } else {
            let how = PostParams { field_manager: manager, ..PostParams::default() };
            let spec = serde_json::from_value(self.spec())?;
            api.create(&how, &NamespaceOffloading::new(OFFLOADING, spec)).await
        };
        written.explain(|| format!("offload the namespace {}", self.namespace))
    }

    /// What was given.
    fn spec(&self) -> Value {
        let mut spec = json!({});
        if let Some(strategy) = self.strategy {
            spec["namespaceMappingStrategy"] = json!(strategy.strategy());
        }
        if let Some(pods) = self.pods {
            spec["podOffloadingStrategy"] = json!(pods.strategy());
        }
        if let Some(selector) = &self.selector {
            spec["clusterSelector"] = json!(selector);
        }
        spec
    }
}

impl Mapping {
    fn strategy(self) -> NamespaceMappingStrategy {
        match self {
            Self::DefaultName => NamespaceMappingStrategy::DefaultName,
            Self::SameName => NamespaceMappingStrategy::EnforceSameName,
        }
    }

    fn word(self) -> &'static str {
        match self {
            Self::DefaultName => "default-name",
            Self::SameName => "same-name",
        }
    }
}

impl Pods {
    fn strategy(self) -> PodOffloadingStrategy {
        match self {
            Self::LocalAndRemote => PodOffloadingStrategy::LocalAndRemote,
            Self::Local => PodOffloadingStrategy::Local,
            Self::Remote => PodOffloadingStrategy::Remote,
        }
    }
}

/// Says what becomes of the pods that there are.
async fn tell_of_pods(client: &Client, args: &Args, is_new: bool) {
    if is_new && matches!(args.pods, Some(Pods::Local)) {
        return;
    }
    let pods = Api::<Pod>::namespaced(client.clone(), &args.namespace);
    let one = pods.list_metadata(&ListParams::default().limit(1)).await;
    // Whoever may not list pods may still have some.
    if one.is_ok_and(|list| list.items.is_empty()) {
        return;
    }
    output::note(&of_pods(&args.namespace, !is_new && args.selector.is_some()));
}

/// Pods are placed when they are made, so that those there are do not move; unless their cluster is dropped.
fn of_pods(namespace: &str, is_selected_anew: bool) -> String {
    let stay = if is_selected_anew {
        format!(
            "Pods on clusters that {namespace} does not use any more are deleted, and their owners make them again where \
             they may be; one that nobody owns is gone. All others stay where they are."
        )
    } else {
        format!("Pods that are in {namespace} already stay where they are.")
    };
    format!(
        "{stay} To have them placed anew, restart them: kubectl --namespace {namespace} rollout restart deployment"
    )
}

fn said(offloading: &NamespaceOffloading, names: &Names, is_done: bool) -> String {
    let namespace = offloading::name(offloading);
    if !is_done {
        return format!(
            "{namespace} is being offloaded; see how it goes with 'ferro explain {namespace}', or use --wait"
        );
    }
    let clusters: Vec<_> =
        offloading::seats(offloading, names).iter().map(|seat| seat.cluster.to_owned()).collect();
    format!("{namespace} uses {}", clusters.join(", "))
}

#[cfg(test)]
mod tests {
    use super::Args;
    use crate::offloading::tests::{half, names, offloading};
    use clap::Parser;
    use serde_json::json;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    fn args(words: &[&str]) -> Args {
        Line::parse_from(["offload", "shop"].iter().chain(words)).args
    }

    #[test]
    fn only_what_is_given_is_written() {
        assert_eq!(args(&[]).spec(), json!({}));
        let all = args(&["--strategy", "same-name", "--pods", "remote", "--selector", "region=eu"]);
        let region = json!({"key": "region", "operator": "In", "values": ["eu"]});
        assert_eq!(
            all.spec(),
            json!({
                "namespaceMappingStrategy": "EnforceSameName", "podOffloadingStrategy": "Remote",
                "clusterSelector": {"nodeSelectorTerms": [{"matchExpressions": [region]}]},
            })
        );
    }

    #[test]
    fn another_name_elsewhere_takes_a_new_beginning() {
        let before = offloading("shop", &json!({}), &json!(null));
        let said = args(&["--strategy", "same-name"]).refuse(Some(&before)).unwrap_err().to_string();
        assert!(
            said.contains("'ferro unoffload shop --wait'") && said.contains("--strategy same-name'"),
            "{said}"
        );
        assert!(args(&["--strategy", "default-name"]).refuse(Some(&before)).is_ok());
        assert!(args(&[]).refuse(Some(&before)).is_ok() && args(&[]).refuse(None).is_ok());
    }

    #[test]
    fn what_is_going_is_not_offloaded_again_before_it_is_gone() {
        let mut before = offloading("shop", &json!({}), &json!(null));
        before.metadata.deletion_timestamp = before.metadata.creation_timestamp.clone();
        let said = args(&[]).refuse(Some(&before)).unwrap_err().to_string();
        assert!(said.contains("ferro unoffload shop --wait"), "{said}");
    }

    #[test]
    fn with_another_selector_it_is_said_that_pods_may_go() {
        let said = super::of_pods("shop", false);
        assert!(
            said.starts_with("Pods that are in shop already stay") && !said.contains("deleted"),
            "{said}"
        );
        let said = super::of_pods("shop", true);
        assert!(said.contains("are deleted") && said.contains("All others stay"), "{said}");
    }

    #[test]
    fn at_the_end_the_clusters_are_named() {
        let shop = offloading("shop", &json!({}), &half());
        assert_eq!(super::said(&shop, &names(), true), "shop uses milan, turin");
        assert!(super::said(&shop, &names(), false).contains("'ferro explain shop'"));
    }
}
