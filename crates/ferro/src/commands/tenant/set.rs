//! `ferro tenant set`: changes what another cluster may use here; what is not given stays as it is.

use std::collections::BTreeMap;

use anyhow::ensure;
use clap::ValueEnum;
use ferro_api::common::ResourceQuota;
use ferro_api::config::PodSecurity;
use ferro_api::tenancy::{Subject, Tenant, TenantSpec};
use ferro_core::resources::Amount;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::jiff::Timestamp;
use kube::api::PostParams;
use kube::{Client, ResourceExt as _};

use crate::kube_args::KubeArgs;
use crate::kube_errors::Explain as _;
use crate::output::Show;
use crate::{complete, peers, tenants};

/// So often a change is tried that somebody else gets ahead of.
const MOST_ATTEMPTS: u32 = 10;

/// Change what another cluster may use here
///
/// What is not given stays as it is. It takes effect at once, in all namespaces of the Tenant; what exists beyond a new
/// limit stays until it is removed, and nothing is added to it.
#[derive(clap::Args)]
#[command(arg_required_else_help = true)]
#[command(after_help = "Examples:
  At most 20 namespaces and 4 CPUs, together:
    ferro tenant set rome --namespaces 20 --cpu 4

  Only on nodes with a label, and at most 10 widgets in each namespace:
    ferro tenant set rome --node-pool pool=guests --count widgets.example.org=10

  Let a person act for the consumer:
    ferro tenant set rome --owner user:jane

  As the configuration and the offer say, again:
    ferro tenant set rome --unset namespaces --unset quota")]
pub(super) struct Args {
    /// The Tenant: name or ID of the consumer cluster, or the beginning of one
    #[arg(add = complete::tenant_names())]
    tenant: String,

    /// How many namespaces it may have
    #[arg(long, value_name = "NUMBER")]
    namespaces: Option<u32>,

    /// The CPUs that all its namespaces use together, such as 4 or 2500m
    #[arg(long, value_name = "QUANTITY", value_parser = quantity)]
    cpu: Option<Quantity>,

    /// The memory that all its namespaces use together, such as 8Gi
    #[arg(long, value_name = "QUANTITY", value_parser = quantity)]
    memory: Option<Quantity>,

    /// Another resource that all its namespaces use together, such as pods=50; may be given several times
    #[arg(long, value_name = "RESOURCE=QUANTITY", value_parser = amount_of)]
    quota: Vec<(String, Quantity)>,

    /// What any one of its namespaces uses at most, such as cpu=1; may be given several times
    #[arg(long, value_name = "RESOURCE=QUANTITY", value_parser = amount_of)]
    ceiling: Vec<(String, Quantity)>,

    /// How many objects of a kind each of its namespaces may have, such as persistentvolumeclaims=10; may be given several
    /// times
    #[arg(long, value_name = "KIND=NUMBER", value_parser = number_of)]
    count: Vec<(String, u32)>,

    /// The Pod Security level of its namespaces
    #[arg(long, value_enum, value_name = "LEVEL")]
    pod_security: Option<Level>,

    /// A label of the nodes that its pods run on; may be given several times, and replaces those there were
    #[arg(long, value_name = "KEY=VALUE", value_parser = value_of)]
    node_pool: Vec<(String, String)>,

    /// The RuntimeClass that its pods run with
    #[arg(long, value_name = "NAME")]
    runtime_class: Option<String>,

    /// Somebody who may do what the consumer may: user:NAME, group:NAME or serviceaccount:NAMESPACE/NAME; may be given
    /// several times, and replaces those there were
    #[arg(long, value_name = "SUBJECT", value_parser = tenants::subject)]
    owner: Vec<Subject>,

    /// Whether its pods are kept apart from those of others
    #[arg(long, value_name = "BOOL")]
    isolation: Option<bool>,

    /// A setting to leave to the configuration and the offer again; may be given several times
    #[arg(long, value_enum, value_name = "SETTING")]
    unset: Vec<Setting>,

    #[command(flatten)]
    show: Show,

    #[command(flatten)]
    kube: KubeArgs,
}

/// A level of the Pod Security Standards.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Level {
    Privileged,
    Baseline,
    Restricted,
}

/// What can be left to the default.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Setting {
    Namespaces,
    Quota,
    Ceiling,
    Counts,
    PodSecurity,
    NodePool,
    RuntimeClass,
    Owners,
    Isolation,
}

fn quantity(text: &str) -> Result<Quantity, String> {
    text.parse::<Amount>().map_err(|error| error.to_string())?;
    Ok(Quantity(text.to_owned()))
}

fn amount_of(text: &str) -> Result<(String, Quantity), String> {
    let (resource, amount) = value_of(text)?;
    Ok((resource, quantity(&amount)?))
}

fn number_of(text: &str) -> Result<(String, u32), String> {
    let (kind, number) = value_of(text)?;
    Ok((kind, number.parse::<u32>().map_err(|error| error.to_string())?))
}

fn value_of(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("there is no = in it")?;
    if key.is_empty() {
        return Err("there is nothing before the =".into());
    }
    Ok((key.to_owned(), value.to_owned()))
}

/// Changes a Tenant.
pub(super) async fn set(args: &Args) -> anyhow::Result<()> {
    let client = args.kube.client().await?;
    let tenant = args.write(&client).await?;
    let table = || tenants::table(std::slice::from_ref(&tenant), true, Timestamp::now());
    let consumer = tenants::consumer(&tenant);
    let said = format!("the Tenant of {consumer} is changed; see it with 'ferro tenant show {consumer}'");
    args.show.object(&tenant, table, &said)
}

/// Whether somebody else wrote the object after it was read.
fn is_stale<T>(written: &kube::Result<T>) -> bool {
    matches!(written, Err(kube::Error::Api(status)) if status.code == 409)
}

impl Args {
    /// Writes a whole object with the version that was read, so that what somebody else changes meanwhile is not lost. The
    /// controller writes the status at any time, so that it is read and changed anew a few times.
    async fn write(&self, client: &Client) -> anyhow::Result<Tenant> {
        let how = PostParams { field_manager: Some(peers::MANAGER.into()), ..PostParams::default() };
        let mut attempts = 1..MOST_ATTEMPTS;
        loop {
            let mut tenant = tenants::meant(client, &self.tenant).await?;
            ensure!(
                tenant.metadata.deletion_timestamp.is_none(),
                "{} is on its way out, since the peering has ended",
                tenants::consumer(&tenant)
            );
            self.apply(&mut tenant);
            let written = tenants::api(client).replace(&tenant.name_any(), &how, &tenant).await;
            if !is_stale(&written) || attempts.next().is_none() {
                return written.explain(|| format!("change the Tenant {}", tenants::consumer(&tenant)));
            }
        }
    }

    fn apply(&self, tenant: &mut Tenant) {
        let in_force = tenant.status.as_ref().and_then(|status| status.resource_quota.clone());
        let spec = &mut tenant.spec;
        for setting in &self.unset {
            setting.unset(spec);
        }
        put(&mut spec.namespace_quota, self.namespaces);
        put(&mut spec.pod_security, self.pod_security.map(Level::level));
        put(&mut spec.runtime_class_name, self.runtime_class.clone());
        put(&mut spec.isolation, self.isolation);
        let named = [("cpu", &self.cpu), ("memory", &self.memory)];
        let named = named.into_iter().filter_map(|(name, amount)| Some((name.to_owned(), amount.clone()?)));
        let quota = named.chain(self.quota.iter().cloned());
        // A quota holds as a whole: what it does not name has no limit. So what holds now is where it begins.
        limit(&mut spec.resource_quota, quota.collect(), in_force.unwrap_or_default());
        let begin = spec.resource_quota.clone().unwrap_or_default();
        limit(&mut spec.namespace_ceiling, self.ceiling.iter().cloned().collect(), begin);
        spec.counts.extend(self.count.iter().cloned());
        if !self.node_pool.is_empty() {
            spec.node_pool = self.node_pool.iter().cloned().collect();
        }
        if !self.owner.is_empty() {
            spec.owners.clone_from(&self.owner);
        }
    }
}

fn put<T>(field: &mut Option<T>, given: Option<T>) {
    if given.is_some() {
        *field = given;
    }
}

fn limit(field: &mut Option<ResourceQuota>, given: BTreeMap<String, Quantity>, begin: ResourceQuota) {
    if !given.is_empty() {
        field.get_or_insert(begin).hard.extend(given);
    }
}

impl Level {
    fn level(self) -> PodSecurity {
        match self {
            Self::Privileged => PodSecurity::Privileged,
            Self::Baseline => PodSecurity::Baseline,
            Self::Restricted => PodSecurity::Restricted,
        }
    }
}

impl Setting {
    fn unset(self, spec: &mut TenantSpec) {
        match self {
            Self::Namespaces => spec.namespace_quota = None,
            Self::Quota => spec.resource_quota = None,
            Self::Ceiling => spec.namespace_ceiling = None,
            Self::Counts => spec.counts.clear(),
            Self::PodSecurity => spec.pod_security = None,
            Self::NodePool => spec.node_pool.clear(),
            Self::RuntimeClass => spec.runtime_class_name = None,
            Self::Owners => spec.owners.clear(),
            Self::Isolation => spec.isolation = None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Args, is_stale};
    use crate::tenants::tests::{ROME, tenant};
    use clap::Parser;
    use kube::core::Status;
    use serde_json::{Value, json};

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    fn after(words: &[&str], before: &Value) -> Value {
        let args = Line::parse_from(["set", "rome"].iter().chain(words)).args;
        let status = json!({"resourceQuota": {"hard": {"cpu": "2500m", "memory": "8Gi"}}});
        let mut tenant = tenant("rome", ROME, before, &status);
        args.apply(&mut tenant);
        let mut spec = serde_json::to_value(tenant.spec).unwrap();
        spec.as_object_mut().unwrap().remove("cluster");
        spec
    }

    #[test]
    fn what_is_not_given_stays_as_it_is() {
        let before = json!({"namespaceQuota": 5, "counts": {"widgets.example.org": 3}});
        let words = ["--count", "persistentvolumeclaims=10", "--pod-security", "restricted"];
        let counts = json!({"widgets.example.org": 3, "persistentvolumeclaims": 10});
        assert_eq!(
            after(&words, &before),
            json!({"namespaceQuota": 5, "counts": counts, "podSecurity": "restricted"})
        );
    }

    #[test]
    fn a_quota_begins_with_what_holds_so_that_nothing_loses_its_limit() {
        let quota = json!({"hard": {"cpu": "4", "memory": "8Gi", "pods": "50"}});
        assert_eq!(after(&["--cpu", "4", "--quota", "pods=50"], &json!({})), json!({"resourceQuota": quota}));
    }

    #[test]
    fn lists_are_replaced_and_settings_go_back_to_their_default() {
        let before = json!({
            "namespaceQuota": 5, "nodePool": {"a": "b"}, "owners": [{"kind": "User", "name": "jane"}],
        });
        let words = ["--unset", "namespaces", "--node-pool", "pool=guests", "--owner", "group:team"];
        assert_eq!(
            after(&words, &before),
            json!({"nodePool": {"pool": "guests"}, "owners": [{"kind": "Group", "name": "team"}]})
        );
        assert_eq!(
            after(&["--unset", "owners", "--unset", "node-pool"], &before),
            json!({"namespaceQuota": 5})
        );
    }

    #[test]
    fn only_a_conflict_is_tried_again() {
        let refused = |code: u16| -> kube::Result<()> {
            Err(kube::Error::Api(Box::new(Status { code, ..Status::default() })))
        };
        assert!(is_stale(&refused(409)));
        assert!(!is_stale(&refused(403)) && !is_stale(&Ok(())));
    }

    #[test]
    fn what_is_no_amount_is_refused() {
        for words in [
            ["--cpu", "many"],
            ["--quota", "pods"],
            ["--quota", "=5"],
            ["--count", "widgets=-1"],
            ["--namespaces", "-1"],
            ["--owner", "jane"],
        ] {
            assert!(Line::try_parse_from(["set", "rome"].iter().chain(&words)).is_err(), "{words:?}");
        }
    }
}
