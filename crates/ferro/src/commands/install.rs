//! `ferro install`: puts everything into a cluster, or brings what is there up to date.

mod apply;
mod rollout;
mod tally;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{bail, ensure};
use ferro_api::config::ClusterConfig;
use ferro_api::names::labels;
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Client;
use kube::api::{Api, DeleteParams, DynamicObject};
use serde_json::{Value, json};

use self::apply::Applier;
use self::tally::Tally;
use crate::chart::{self, values};
use crate::inventory::{self, Installation, Item, Kind};
use crate::kube_args::KubeArgs;
use crate::kube_errors::{Explain as _, found};
use crate::output::{self, Format};
use crate::wait::{self, Deadline};

/// The one object that configures a cluster.
const CONFIGURATION: &str = "liqo-configuration";

/// Install Ferrofluid into a cluster, or bring it up to date
///
/// Does what 'helm install' with the chart does, from within this program. Run it again to change a setting or
/// after an update: what is as it should be stays untouched. Settings that are not given again go back to their
/// defaults, so keep them in a values file.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  Install into the cluster of the current context, and wait until it works:
    ferro install --wait

  Give the cluster a name and a region:
    ferro install --cluster-name milan --set 'clusterLabels.liqo\\.io/region=eu'

  See what would be installed:
    ferro install --dry-run | less

  See everything that can be set:
    ferro install --show-values")]
pub(crate) struct Args {
    /// The namespace to install into; made when it is not there
    #[arg(short, long, value_name = "NAMESPACE", default_value = "liqo")]
    namespace: String,

    /// The name under which other clusters see this one [default: the one it has, or the name of the context]
    #[arg(long, value_name = "NAME")]
    cluster_name: Option<String>,

    /// Set a value, as in a.b=c,d[0]=e; counts more than values files, and the last one most
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,

    /// Take values from a YAML file; of several, the last one counts most
    #[arg(short = 'f', long, value_name = "FILE")]
    values: Vec<PathBuf>,

    #[command(flatten)]
    print: PrintArgs,

    /// Wait until everything runs
    #[arg(long)]
    wait: bool,

    /// How long to wait at most
    #[arg(long, value_name = "DURATION", value_parser = wait::duration, default_value = "5m")]
    timeout: Duration,

    /// Overwrite settings of the configuration that somebody else made
    #[arg(long)]
    force_conflicts: bool,

    #[command(flatten)]
    kube: KubeArgs,
}

/// Flags that ask to see something instead of installing.
#[derive(clap::Args)]
struct PrintArgs {
    /// Print the objects that would be installed, without asking the cluster
    #[arg(long)]
    dry_run: bool,

    /// The format of --dry-run
    #[arg(short, long, value_enum, default_value_t, requires = "dry_run")]
    output: Format,

    /// Print all values with their defaults, and do nothing else
    #[arg(long, conflicts_with_all = ["dry_run", "wait"])]
    show_values: bool,
}

/// Installs, or prints what would be installed.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    if args.print.show_values {
        return output::print(chart::DEFAULTS.as_bytes());
    }
    let values = values::collect(&args.values, &args.set, args.cluster_name.as_deref())?;
    // With any name, so that mistakes show before the cluster is asked for its own.
    chart::objects(&values, &args.namespace)?;
    if args.print.dry_run { print(args, values) } else { super::block_on(install(args, values)) }
}

fn print(args: &Args, mut values: Value) -> anyhow::Result<()> {
    name_by_context(args, &mut values)?;
    let mut objects = chart::definitions()?;
    objects.push(namespace(&args.namespace)?);
    objects.extend(ordered(chart::objects(&values, &args.namespace)?)?);
    output::print(output::manifests(&objects, args.print.output)?.as_bytes())
}

async fn install(args: &Args, mut values: Value) -> anyhow::Result<()> {
    let client = args.kube.client().await?;
    refuse_a_second(&client, &args.namespace).await?;
    if let Some(name) = present_name(&client).await? {
        values::name_by_default(&mut values, name);
    }
    name_by_context(args, &mut values)?;
    let objects = ordered(chart::objects(&values, &args.namespace)?)?;

    let deadline = Deadline::after(args.timeout);
    let applier = Applier { client: &client, deadline, force: args.force_conflicts };
    let mut tally = Tally::default();
    for definition in &chart::definitions()? {
        tally.applied(definition, applier.apply(definition).await?)?;
    }
    applier.await_served(&ferro_api::crds()).await?;
    if is_ours_to_make(&client, &args.namespace).await? {
        let namespace = namespace(&args.namespace)?;
        tally.applied(&namespace, applier.apply(&namespace).await?)?;
    }
    for object in &objects {
        tally.applied(object, applier.apply(object).await?)?;
    }
    for item in superfluous(&client, &objects).await? {
        item.delete(&client, &DeleteParams::background()).await?;
        tally.removed(&item)?;
    }
    tally.finish(&args.namespace, values::cluster_name(&values))?;
    if args.wait {
        rollout::wait(&client, &objects, deadline).await?;
        output::line("everything runs")?;
    }
    Ok(())
}

/// One installation a cluster, and one tool for it.
async fn refuse_a_second(client: &Client, namespace: &str) -> anyhow::Result<()> {
    let Some(present) = Installation::find(client).await? else { return Ok(()) };
    if let Some(release) = present.helm_release {
        bail!(
            "Helm manages the installation in this cluster; update it with 'helm upgrade {release} --namespace {}', or \
             remove it first with 'ferro uninstall'",
            present.namespace
        );
    }
    ensure!(
        present.namespace == namespace,
        "the cluster has an installation in the namespace {0} already; update that with '--namespace {0}', or remove it \
         first with 'ferro uninstall'",
        present.namespace
    );
    Ok(())
}

/// The name that the cluster has, from an earlier installation or by hand.
async fn present_name(client: &Client) -> anyhow::Result<Option<String>> {
    let config = Api::<ClusterConfig>::all(client.clone()).get(CONFIGURATION).await;
    let config = found(config).explain(|| "read the configuration".into())?;
    Ok(config.and_then(|config| config.spec.discovery().name))
}

fn name_by_context(args: &Args, values: &mut Value) -> anyhow::Result<()> {
    if let Some(name) = args.kube.context()?.as_deref().and_then(cluster_name) {
        values::name_by_default(values, name);
    }
    Ok(())
}

/// A text as the name of a cluster, which may stand in a label.
fn cluster_name(text: &str) -> Option<String> {
    let allowed = |letter: char| letter.is_ascii_alphanumeric() || "-_.".contains(letter);
    let name: String =
        text.chars().map(|letter| if allowed(letter) { letter } else { '-' }).take(63).collect();
    let name = name.trim_matches(|letter: char| !letter.is_ascii_alphanumeric());
    (!name.is_empty()).then(|| name.to_owned())
}

/// Whether the namespace is still to be made, or was made by an earlier run.
async fn is_ours_to_make(client: &Client, name: &str) -> anyhow::Result<bool> {
    let namespace = Api::<Namespace>::all(client.clone()).get(name).await;
    let namespace = found(namespace).explain(|| format!("read the namespace {name}"))?;
    let is_ours = |meta: &ObjectMeta| meta.deletion_timestamp.is_some() || labels::PART_OF.is_on(meta);
    Ok(namespace.is_none_or(|namespace| is_ours(&namespace.metadata)))
}

/// The namespace of the roles. One of them uses the network of its node, which only this level allows.
fn namespace(name: &str) -> anyhow::Result<DynamicObject> {
    Ok(serde_json::from_value(json!({
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": name, "labels": {
            (labels::PART_OF.key()): labels::PART_OF.value(),
            "pod-security.kubernetes.io/enforce": "privileged",
        }},
    }))?)
}

/// Each object after those that it needs.
fn ordered(objects: Vec<DynamicObject>) -> anyhow::Result<Vec<DynamicObject>> {
    let kinds = inventory::kinds();
    let rank = |object: &DynamicObject| {
        let kind = Kind::of(object)?;
        anyhow::Ok(kinds.iter().position(|known| *known == kind))
    };
    let mut ranked =
        objects.into_iter().map(|object| Ok((rank(&object)?, object))).collect::<anyhow::Result<Vec<_>>>()?;
    ranked.sort_by_key(|(rank, _)| *rank);
    Ok(ranked.into_iter().map(|(_, object)| object).collect())
}

/// What an earlier version had and this one has not. Definitions stay: with them would go what people wrote.
async fn superfluous(client: &Client, wanted: &[DynamicObject]) -> anyhow::Result<Vec<Item>> {
    let key =
        |item: &Item| (item.kind.resource.kind.clone(), item.meta.namespace.clone(), item.meta.name.clone());
    let wanted = wanted
        .iter()
        .map(|object| Ok(key(&Item::described(object)?)))
        .collect::<anyhow::Result<BTreeSet<_>>>()?;
    let mut superfluous = Vec::new();
    for kind in inventory::kinds() {
        if !kind.is::<CustomResourceDefinition>() && !kind.is::<Namespace>() {
            let ours = kind.ours(client).await?.into_iter();
            superfluous.extend(ours.filter(|item| apply::is_applied(item) && !wanted.contains(&key(item))));
        }
    }
    Ok(superfluous)
}

#[cfg(test)]
mod tests {
    use super::{cluster_name, namespace, ordered};
    use crate::chart::{self, values};
    use crate::inventory::Kind;

    #[test]
    fn a_context_gives_a_name_that_may_stand_in_a_label() {
        for (context, name) in [
            ("milan", Some("milan")),
            ("kubernetes-admin@kubernetes", Some("kubernetes-admin-kubernetes")),
            ("arn:aws:eks:eu-west-1:1234:cluster/prod", Some("arn-aws-eks-eu-west-1-1234-cluster-prod")),
            ("-käse-", Some("k-se")),
            ("@", None),
        ] {
            assert_eq!(cluster_name(context).as_deref(), name);
        }
        assert_eq!(cluster_name(&"x".repeat(100)).unwrap().len(), 63);
        assert_eq!(cluster_name(&format!("{}-y", "x".repeat(62))).unwrap().len(), 62);
    }

    #[test]
    fn workloads_come_last_and_the_configuration_first() {
        let values = values::collect(&[], &[], None).unwrap();
        let objects = ordered(chart::objects(&values, "liqo").unwrap()).unwrap();
        let kinds: Vec<_> = objects.iter().map(|object| Kind::of(object).unwrap().resource.kind).collect();
        assert_eq!(kinds[..2], ["Namespace", "ClusterConfig"]);
        let last = ["Deployment", "Deployment", "Deployment", "DaemonSet", "MutatingWebhookConfiguration"];
        assert_eq!(kinds[kinds.len() - last.len()..], last);
    }

    #[test]
    fn the_namespace_is_marked_as_ours() {
        let namespace = namespace("liqo").unwrap();
        assert!(ferro_api::names::labels::PART_OF.is_on(&namespace.metadata));
    }
}
