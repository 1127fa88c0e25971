//! The Tenants of a provider: what each consumer cluster may use here, and what it uses.

mod shown;

use ferro_api::tenancy::{Subject, SubjectKind, Tenant, TenantDelegation};
use ferro_core::identity::ClusterId;
use ferro_core::names;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::api::Api;
use kube::{Client, ResourceExt as _};

pub(crate) use self::shown::{complaint, delegation_table, details, table};

use crate::calling::{self, Called};
use crate::kube_errors::{Explain as _, found};
use crate::{listing, peers};

/// What to do when there are none.
pub(crate) const NONE: &str = "no other cluster uses this one; a Tenant is made when a peer's request for resources is \
                               accepted: see 'ferro peers'";

impl Called for Tenant {
    const WHAT: &str = "Tenant";

    fn name(&self) -> &str {
        consumer(self)
    }

    fn others(&self) -> Vec<&str> {
        vec![&self.spec.cluster.cluster_id]
    }

    fn none() -> &'static str {
        NONE
    }
}

/// Access to all of them.
pub(crate) fn api(client: &Client) -> Api<Tenant> {
    Api::all(client.clone())
}

/// All Tenants, by the name of the consumer.
pub(crate) async fn list(client: &Client) -> anyhow::Result<Vec<Tenant>> {
    let mut tenants = listing::all::<Tenant>(client, "Tenants").await?;
    tenants.sort_by(|one, other| consumer(one).cmp(consumer(other)));
    Ok(tenants)
}

/// The Tenant that a person means, by name or identifier of the consumer. Its owner may read just this one, and so is not
/// made to list them.
pub(crate) async fn meant(client: &Client, wanted: &str) -> anyhow::Result<Tenant> {
    if wanted.parse::<ClusterId>().is_ok() {
        let tenant = found(api(client).get(wanted).await).explain(|| format!("read the Tenant {wanted}"))?;
        if let Some(tenant) = tenant {
            return Ok(tenant);
        }
    }
    let all = list(client).await?;
    calling::find(&all, wanted).cloned()
}

/// What the consumer calls itself, or else its identifier.
pub(crate) fn consumer(tenant: &Tenant) -> &str {
    let cluster = &tenant.spec.cluster;
    cluster.cluster_name.as_deref().unwrap_or(&cluster.cluster_id)
}

/// The namespace in which the owner of a Tenant writes. Whoever may not read peers has to do with how it is named as a
/// rule.
pub(crate) async fn control_namespace(client: &Client, tenant: &Tenant) -> String {
    let cluster = &tenant.spec.cluster;
    let known = peers::list(client).await.unwrap_or_default();
    let peer = known.into_iter().find(|peer| peers::cluster_id(peer) == Some(&cluster.cluster_id));
    let kept = peer.and_then(|peer| peer.status?.tenant_namespaces?.local);
    let name = cluster.cluster_name.as_deref().unwrap_or_default();
    kept.unwrap_or_else(|| names::tenant_namespace(name, &cluster.cluster_id))
}

/// The rights that the owners of a Tenant gave to others; none for whoever may not read them.
pub(crate) async fn delegations(client: &Client, namespace: &str) -> anyhow::Result<Vec<TenantDelegation>> {
    let api = Api::<TenantDelegation>::namespaced(client.clone(), namespace);
    let mut all = match api.list(&kube::api::ListParams::default()).await {
        Err(kube::Error::Api(status)) if status.is_forbidden() => Vec::new(),
        all => {
            found(all).explain(|| "list the delegations".into())?.map(|list| list.items).unwrap_or_default()
        }
    };
    all.sort_by_key(TenantDelegation::name_any);
    Ok(all)
}

/// The name of a delegation, which is a number to people.
pub(crate) fn delegation_name(tenant: &Tenant, number: usize) -> String {
    format!("{}-{number}", tenant.spec.cluster.cluster_id)
}

/// Whom a person means: `user:jane`, `group:team` or `serviceaccount:namespace/name`.
pub(crate) fn subject(text: &str) -> Result<Subject, String> {
    let how = || format!("'{text}' is nobody; write user:NAME, group:NAME or serviceaccount:NAMESPACE/NAME");
    let (kind, name) = text.split_once(':').filter(|(_, name)| !name.is_empty()).ok_or_else(how)?;
    let of = |kind, name: &str, namespace: Option<&str>| Subject {
        kind,
        name: name.to_owned(),
        namespace: namespace.map(str::to_owned),
    };
    match kind.to_ascii_lowercase().as_str() {
        "user" => Ok(of(SubjectKind::User, name, None)),
        "group" => Ok(of(SubjectKind::Group, name, None)),
        "serviceaccount" => {
            let (namespace, name) = name.split_once('/').ok_or_else(how)?;
            Ok(of(SubjectKind::ServiceAccount, name, Some(namespace)))
        }
        _ => Err(how()),
    }
}

/// A subject in the same words.
pub(crate) fn subject_text(subject: &Subject) -> String {
    let name = &subject.name;
    match (subject.kind, &subject.namespace) {
        (SubjectKind::User, _) => format!("user:{name}"),
        (SubjectKind::Group, _) => format!("group:{name}"),
        (SubjectKind::ServiceAccount, namespace) => {
            format!("serviceaccount:{}/{name}", namespace.as_deref().unwrap_or_default())
        }
    }
}

/// Whether all is as asked for, and if not, why.
fn readiness(conditions: &[Condition]) -> Option<&Condition> {
    conditions.iter().find(|condition| condition.type_ == ferro_api::tenancy::condition::READY)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::{consumer, subject, subject_text};
    use crate::calling;
    use ferro_api::tenancy::Tenant;
    use serde_json::{Value, json};

    pub(crate) const ROME: &str = "4222622b-ecab-8637-860c-5a5a0f30e9c1";
    const OSLO: &str = "0bbbbbbb-4c1b-802c-a5f1-5ef6f39c0490";

    /// A Tenant of that cluster, with more of a spec, and with this status.
    pub(crate) fn tenant(name: &str, id: &str, more: &Value, status: &Value) -> Tenant {
        let mut spec = json!({"cluster": {"clusterID": id, "clusterName": name}});
        for (key, value) in more.as_object().into_iter().flatten() {
            spec[key] = value.clone();
        }
        serde_json::from_value(json!({
            "apiVersion": "tenancy.liqo.io/v1alpha1", "kind": "Tenant",
            "metadata": {"name": id, "creationTimestamp": "2030-01-01T00:00:00Z"},
            "spec": spec, "status": status,
        }))
        .unwrap()
    }

    #[test]
    fn a_tenant_is_found_by_name_or_identifier_of_its_cluster_or_the_beginning_of_one() {
        let all =
            [tenant("rome", ROME, &json!({}), &json!({})), tenant("oslo", OSLO, &json!({}), &json!({}))];
        for wanted in ["rome", ROME, "422", "ro"] {
            assert_eq!(consumer(calling::find(&all, wanted).unwrap()), "rome", "{wanted}");
        }
        let said = calling::find(&all, "rmoe").unwrap_err().to_string();
        assert_eq!(said, "there is no Tenant rmoe; did you mean rome? These are known: rome, oslo");
        let said = calling::find::<Tenant>(&[], "rome").unwrap_err().to_string();
        assert!(said.contains("'ferro peers'"), "{said}");
    }

    #[test]
    fn subjects_are_read_as_they_are_printed() {
        for text in ["user:jane", "user:oidc:jane", "group:team", "serviceaccount:shop-x/bot"] {
            assert_eq!(subject_text(&subject(text).unwrap()), text);
        }
        assert_eq!(subject_text(&subject("Group:team").unwrap()), "group:team");
        for text in ["jane", "user:", "serviceaccount:bot", "robot:r2"] {
            let said = subject(text).unwrap_err();
            assert!(said.contains("write user:NAME"), "{said}");
        }
    }
}
