//! `ferro tenant delegate` and `revoke`: the owner of a Tenant lets people into its namespaces, and out of them again.

use anyhow::{Context as _, bail, ensure};
use clap::ValueEnum;
use ferro_api::names::labels;
use ferro_api::tenancy::{DelegationLevel, Subject, Tenant, TenantDelegation, TenantDelegationSpec};
use ferro_core::tenancy::MOST_DELEGATIONS;
use kube::api::{Api, DeleteParams, Patch, PatchParams};
use kube::{Client, Resource as _, ResourceExt as _};

use crate::kube_args::KubeArgs;
use crate::kube_errors::{Explain as _, found};
use crate::output::{self, Show};
use crate::{complete, peers, tenants, this_cluster};

/// Let people into the namespaces of a Tenant
///
/// For an owner of the Tenant, or an administrator of this cluster. A Tenant has up to 16 delegations, by number.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  Let a team look at all namespaces of rome:
    ferro tenant delegate rome --to group:team --level viewer

  Let a program change things in one of them:
    ferro tenant delegate rome --to serviceaccount:shop-4222622b-ecab-8637-860c-5a5a0f30e9c1/bot \\
      --level editor --in shop-4222622b-ecab-8637-860c-5a5a0f30e9c1

  Let another team look instead:
    ferro tenant delegate rome --number 0 --to group:others --level viewer

  Take it back:
    ferro tenant revoke rome 0")]
pub(super) struct Args {
    /// The Tenant: name or ID of the consumer cluster, or the beginning of one
    #[arg(add = complete::tenant_names())]
    tenant: String,

    /// Who is let in: user:NAME, group:NAME or serviceaccount:NAMESPACE/NAME; may be given several times
    #[arg(long, value_name = "SUBJECT", value_parser = tenants::subject, required = true)]
    to: Vec<Subject>,

    /// How far: viewers read all but Secrets; editors also write what does not lead to Secrets; admins do all that the
    /// owner may
    #[arg(long, value_enum, value_name = "LEVEL")]
    level: Level,

    /// A namespace of the Tenant, by its name here; may be given several times [default: all of them]
    #[arg(long, value_name = "NAMESPACE")]
    r#in: Vec<String>,

    /// The number of a delegation to replace [default: the first that is free]
    #[arg(long)]
    number: Option<usize>,

    /// The ID of this cluster, for an owner who may not read its configuration
    #[arg(long, value_name = "ID")]
    provider: Option<String>,

    #[command(flatten)]
    show: Show,

    #[command(flatten)]
    kube: KubeArgs,
}

/// Take back what a delegation gave
#[derive(clap::Args)]
#[command(after_help = "Examples:
  ferro tenant revoke rome 0")]
pub(super) struct Revoke {
    /// The Tenant: name or ID of the consumer cluster, or the beginning of one
    #[arg(add = complete::tenant_names())]
    tenant: String,

    /// The number of the delegation; see 'ferro tenant show'
    number: usize,

    #[command(flatten)]
    kube: KubeArgs,
}

/// How far rights go.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Level {
    Viewer,
    Editor,
    Admin,
}

/// Gives rights.
pub(super) async fn delegate(args: &Args) -> anyhow::Result<()> {
    let client = args.kube.client().await?;
    let place = Place::find(&client, &args.tenant).await?;
    let own_id = match &args.provider {
        Some(id) => id.clone(),
        None => own_id(&client).await?,
    };
    let number = match args.number {
        Some(number) => number,
        None => free(&tenants::delegations(&client, &place.namespace).await?, &place.tenant)?,
    };
    ensure!(number < MOST_DELEGATIONS, "a Tenant has the delegations 0 to {}", MOST_DELEGATIONS - 1);
    let delegation = args.delegation(&place.tenant, &own_id, number);
    let how = PatchParams::apply(peers::MANAGER).force();
    let written = place.api(&client).patch(&delegation.name_any(), &how, &Patch::Apply(&delegation)).await;
    let consumer = tenants::consumer(&place.tenant);
    let written = written.explain(|| format!("write the delegation {number} of {consumer}"))?;
    let table = || tenants::delegation_table(&place.tenant, std::slice::from_ref(&written));
    let said =
        format!("this is delegation {number}; see whether it holds with 'ferro tenant show {consumer}'");
    args.show.object(&written, table, &said)
}

/// Takes rights back.
pub(super) async fn revoke(args: &Revoke) -> anyhow::Result<()> {
    let client = args.kube.client().await?;
    let place = Place::find(&client, &args.tenant).await?;
    let (number, consumer) = (args.number, tenants::consumer(&place.tenant));
    let name = tenants::delegation_name(&place.tenant, number);
    let deleted = found(place.api(&client).delete(&name, &DeleteParams::background()).await);
    if deleted.explain(|| format!("delete the delegation {number} of {consumer}"))?.is_none() {
        bail!("{consumer} has no delegation {number}; see 'ferro tenant show {consumer}'");
    }
    output::line(&format!("delegation {number} of {consumer} is revoked"))
}

/// Who this cluster is.
async fn own_id(client: &Client) -> anyhow::Result<String> {
    let config = this_cluster::config(client).await;
    let config = config.context("an administrator of this cluster knows its ID; give it with --provider")?;
    let id = config.status.and_then(|status| status.cluster_id);
    id.context("this cluster has no identity yet; see 'ferro status'")
}

/// A Tenant, and the namespace in which its delegations lie.
struct Place {
    tenant: Tenant,
    namespace: String,
}

impl Place {
    async fn find(client: &Client, wanted: &str) -> anyhow::Result<Self> {
        let tenant = tenants::meant(client, wanted).await?;
        let namespace = tenants::control_namespace(client, &tenant).await;
        Ok(Self { tenant, namespace })
    }

    fn api(&self, client: &Client) -> Api<TenantDelegation> {
        Api::namespaced(client.clone(), &self.namespace)
    }
}

/// The first number that no delegation has.
fn free(all: &[TenantDelegation], tenant: &Tenant) -> anyhow::Result<usize> {
    let is_free = |number: &usize| {
        let name = tenants::delegation_name(tenant, *number);
        all.iter().all(|delegation| delegation.name_any() != name)
    };
    let free = (0..MOST_DELEGATIONS).find(is_free);
    free.with_context(|| {
        format!(
            "{} has {MOST_DELEGATIONS} delegations, and cannot have more; replace one with --number, or revoke it",
            tenants::consumer(tenant)
        )
    })
}

impl Args {
    /// Named and marked as what the consumer itself lays down here, so that it counts in the same way.
    fn delegation(&self, tenant: &Tenant, own_id: &str, number: usize) -> TenantDelegation {
        let level = match self.level {
            Level::Viewer => DelegationLevel::Viewer,
            Level::Editor => DelegationLevel::Editor,
            Level::Admin => DelegationLevel::Admin,
        };
        let spec = TenantDelegationSpec { subjects: self.to.clone(), level, namespaces: self.r#in.clone() };
        let mut delegation = TenantDelegation::new(&tenants::delegation_name(tenant, number), spec);
        let meta = delegation.meta_mut();
        labels::REPLICATED.put_on(meta);
        labels::ORIGIN_ID.put_on(meta, &tenant.spec.cluster.cluster_id);
        labels::REMOTE_ID.put_on(meta, own_id);
        delegation
    }
}

#[cfg(test)]
mod tests {
    use super::{Args, MOST_DELEGATIONS, free};
    use crate::tenants::tests::{ROME, tenant};
    use clap::Parser;
    use serde_json::json;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    #[test]
    fn a_delegation_says_who_how_far_and_where() {
        let words = "delegate rome --to user:jane --to group:team --level editor --in shop-x";
        let rome = tenant("rome", ROME, &json!({}), &json!({}));
        let delegation = Line::parse_from(words.split(' ')).args.delegation(&rome, "us", 3);
        assert_eq!(
            serde_json::to_value(delegation).unwrap(),
            json!({
                "apiVersion": "tenancy.liqo.io/v1alpha1", "kind": "TenantDelegation",
                "metadata": {
                    "name": format!("{ROME}-3"),
                    "labels": {"liqo.io/replicated": "true", "liqo.io/originID": ROME, "liqo.io/remoteID": "us"},
                },
                "spec": {
                    "subjects": [{"kind": "User", "name": "jane"}, {"kind": "Group", "name": "team"}],
                    "level": "Editor", "namespaces": ["shop-x"],
                },
            })
        );
        assert!(Line::try_parse_from("delegate rome --level viewer".split(' ')).is_err());
    }

    #[test]
    fn the_first_number_that_is_free_is_taken_and_there_is_an_end() {
        let rome = tenant("rome", ROME, &json!({}), &json!({}));
        let args = Line::parse_from("delegate rome --to user:jane --level viewer".split(' ')).args;
        let mut all: Vec<_> = [0, 2].map(|number| args.delegation(&rome, "us", number)).into();
        assert_eq!(free(&all, &rome).unwrap(), 1);
        all = (0..MOST_DELEGATIONS).map(|number| args.delegation(&rome, "us", number)).collect();
        assert!(free(&all, &rome).unwrap_err().to_string().contains("--number"));
    }
}
