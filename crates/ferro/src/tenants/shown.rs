//! Tenants as a table, and one of them with all that belongs to it.

use std::collections::BTreeMap;

use ferro_api::config::TenancyConfig;
use ferro_api::tenancy::{DelegationLevel, Tenant, TenantDelegation, TenantNamespacePhase};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt as _;

use super::{consumer, readiness, subject_text};
use crate::{output, table};

/// The resources that a table has room for.
const SHOWN: [&str; 3] = ["cpu", "memory", "pods"];

const NARROW: [&str; 6] = ["CONSUMER", "NAMESPACES", "CPU", "MEMORY", "PODS", "READY"];

/// The table of these Tenants.
pub(crate) fn table(tenants: &[Tenant], wide: bool, now: Timestamp) -> String {
    let more: &[&str] = if wide { &["CLUSTER ID", "OWNERS", "NODE POOL"] } else { &[] };
    let head = [NARROW.as_slice(), more, &["AGE"]].concat().into_iter().map(str::to_owned).collect();
    let rows = tenants.iter().map(|tenant| row(tenant, wide, now));
    table::aligned(&std::iter::once(head).chain(rows).collect::<Vec<_>>())
}

fn row(tenant: &Tenant, wide: bool, now: Timestamp) -> Vec<String> {
    let status = tenant.status.clone().unwrap_or_default();
    let ready = readiness(&status.conditions);
    let mut row = vec![consumer(tenant).to_owned(), namespaces(tenant, "/")];
    row.extend(SHOWN.map(|name| resource(tenant, name, "/")));
    row.push(ready.map_or(table::NOTHING, |condition| &condition.status).to_owned());
    if wide {
        row.extend([
            tenant.spec.cluster.cluster_id.clone(),
            listed(tenant.spec.owners.iter().map(subject_text), table::NOTHING),
            pool(&tenant.spec.node_pool, table::NOTHING),
        ]);
    }
    row.push(table::since(tenant.creation_timestamp().map(|created| created.0), now));
    row.into_iter().map(|cell| output::plain(&cell)).collect()
}

/// How many namespaces there are of how many.
fn namespaces(tenant: &Tenant, between: &str) -> String {
    let status = tenant.status.as_ref();
    let number = |of: Option<u32>| of.map_or(table::NOTHING.to_owned(), |number| number.to_string());
    let used = number(status.map(|status| status.namespaces_used.unwrap_or(0)));
    format!("{used}{between}{}", number(status.and_then(|status| status.namespace_quota)))
}

/// How much of a resource is used of how much.
fn resource(tenant: &Tenant, name: &str, between: &str) -> String {
    let status = tenant.status.clone().unwrap_or_default();
    let quantity =
        |amount: Option<&Quantity>, none: &str| amount.map_or(none.to_owned(), |amount| amount.0.clone());
    let hard = status.resource_quota.unwrap_or_default().hard;
    format!("{}{between}{}", quantity(status.used.get(name), "0"), quantity(hard.get(name), table::NOTHING))
}

fn pool(labels: &BTreeMap<String, String>, none: &str) -> String {
    listed(labels.iter().map(|(key, value)| format!("{key}={value}")), none)
}

fn listed(words: impl Iterator<Item = String>, none: &str) -> String {
    let words: Vec<_> = words.collect();
    if words.is_empty() { none.to_owned() } else { words.join(", ") }
}

/// What is wrong with a Tenant, and what to do about it.
pub(crate) fn complaint(tenant: &Tenant) -> Option<String> {
    let ready = readiness(&tenant.status.as_ref()?.conditions)?;
    (ready.status == "False").then(|| format!("the Tenant of {}: {}", consumer(tenant), ready.message))
}

/// One Tenant with its namespaces and delegations, and with the settings that hold for it.
pub(crate) fn details(tenant: &Tenant, delegations: &[TenantDelegation], config: &TenancyConfig) -> String {
    let mut text = table::aligned(&settings(tenant, config));
    let sections = [namespace_rows(tenant), delegation_rows(tenant, delegations)];
    for rows in sections.iter().filter(|rows| rows.len() > 1) {
        text.push('\n');
        text.push_str(&table::aligned(rows));
    }
    if let Some(complaint) = complaint(tenant) {
        text.push_str(&output::below(&[complaint]));
    }
    text
}

fn settings(tenant: &Tenant, config: &TenancyConfig) -> Vec<Vec<String>> {
    let spec = &tenant.spec;
    let own = |text: Option<String>, default: String| text.unwrap_or(default);
    let quantities = |hard: &BTreeMap<String, Quantity>| {
        listed(hard.iter().map(|(name, amount)| format!("{name}={}", amount.0)), "nothing")
    };
    let ceiling = spec.namespace_ceiling.as_ref().map(|ceiling| quantities(&ceiling.hard));
    let pod_security = spec.pod_security.unwrap_or(config.pod_security());
    let counts = spec.counts.iter().map(|(kind, count)| format!("{kind}={count}"));
    let resources = tenant.status.iter().filter_map(|status| status.resource_quota.as_ref());
    let resources: Vec<_> = resources.flat_map(|quota| quota.hard.keys()).collect();
    let mut rows = vec![
        ("Consumer:".to_owned(), consumer(tenant).to_owned()),
        ("Cluster ID:".into(), spec.cluster.cluster_id.clone()),
        ("Owners:".into(), listed(spec.owners.iter().map(subject_text), "the consumer alone")),
        ("Namespaces:".into(), namespaces(tenant, " of ")),
    ];
    rows.extend(resources.into_iter().map(|name| (format!("{name}:"), resource(tenant, name, " of "))));
    rows.extend([
        ("Each namespace:".into(), own(ceiling, "as much as all together".into())),
        ("Counts:".into(), listed(counts, "no limits")),
        ("Pod Security:".into(), pod_security.as_str().to_owned()),
        ("Node pool:".into(), pool(&spec.node_pool, "all nodes")),
        ("Runtime class:".into(), own(spec.runtime_class_name.clone(), "as pods ask for".into())),
        ("Isolation:".into(), if spec.isolation() { "yes" } else { "no" }.to_owned()),
    ]);
    rows.into_iter().map(|(key, value)| vec![key, output::plain(&value)]).collect()
}

fn namespace_rows(tenant: &Tenant) -> Vec<Vec<String>> {
    let head = ["NAMESPACE", "STANDS FOR", "PHASE", "WHY"].map(str::to_owned).to_vec();
    let nothing = |text: &Option<String>| text.clone().unwrap_or_else(|| table::NOTHING.to_owned());
    let namespaces = tenant.status.iter().flat_map(|status| &status.namespaces);
    let rows = namespaces.map(|namespace| {
        let phase = match namespace.phase {
            TenantNamespacePhase::Active => "Active",
            TenantNamespacePhase::Terminating => "Terminating",
            TenantNamespacePhase::Refused => "Refused",
        };
        vec![
            namespace.name.clone(),
            nothing(&namespace.origin_namespace),
            phase.to_owned(),
            output::plain(&nothing(&namespace.message)),
        ]
    });
    std::iter::once(head).chain(rows).collect()
}

/// The table of these delegations.
pub(crate) fn delegation_table(tenant: &Tenant, delegations: &[TenantDelegation]) -> String {
    table::aligned(&delegation_rows(tenant, delegations))
}

fn delegation_rows(tenant: &Tenant, delegations: &[TenantDelegation]) -> Vec<Vec<String>> {
    let head = ["DELEGATION", "LEVEL", "TO", "NAMESPACES", "READY", "WHY"].map(str::to_owned).to_vec();
    let prefix = format!("{}-", tenant.spec.cluster.cluster_id);
    let rows = delegations.iter().map(|delegation| {
        let level = match delegation.spec.level {
            DelegationLevel::Viewer => "Viewer",
            DelegationLevel::Editor => "Editor",
            DelegationLevel::Admin => "Admin",
        };
        let ready = delegation.status.as_ref().and_then(|status| readiness(&status.conditions));
        let why = ready.filter(|ready| ready.status != "True").map(|ready| ready.message.clone());
        let name = delegation.name_any();
        let number = name.strip_prefix(&prefix).unwrap_or(&name);
        let row = [
            number.to_owned(),
            level.to_owned(),
            listed(delegation.spec.subjects.iter().map(subject_text), table::NOTHING),
            listed(delegation.spec.namespaces.iter().cloned(), "all"),
            ready.map_or(table::NOTHING, |condition| &condition.status).to_owned(),
            why.unwrap_or_else(|| table::NOTHING.to_owned()),
        ];
        row.into_iter().map(|cell| output::plain(&cell)).collect()
    });
    std::iter::once(head).chain(rows).collect()
}

#[cfg(test)]
mod tests {
    use super::super::tests::{ROME, tenant};
    use super::{complaint, details, table};
    use ferro_api::config::TenancyConfig;
    use ferro_api::tenancy::{Tenant, TenantDelegation};
    use serde_json::json;

    fn rome() -> Tenant {
        let spec = json!({"owners": [{"kind": "User", "name": "jane"}], "nodePool": {"pool": "guests"}});
        tenant(
            "rome",
            ROME,
            &spec,
            &json!({
                "namespacesUsed": 1, "namespaceQuota": 1,
                "resourceQuota": {"hard": {"cpu": "2500m", "memory": "8Gi"}}, "used": {"cpu": "500m"},
                "namespaces": [
                    {"name": "shop-x", "originNamespace": "shop", "phase": "Active"},
                    {"name": "lab-x", "originNamespace": "lab", "phase": "Refused", "message": "the quota is used up"},
                ],
                "conditions": [{"type": "Ready", "status": "False", "reason": "SomeRefused",
                    "message": "1 namespace was refused", "lastTransitionTime": "2030-01-01T00:00:00Z"}],
            }),
        )
    }

    #[test]
    fn the_table_shows_what_is_used_of_what() {
        let now = "2030-01-01T00:00:42Z".parse().unwrap();
        assert_eq!(
            table(&[rome()], false, now),
            "\
CONSUMER   NAMESPACES   CPU          MEMORY   PODS   READY   AGE
rome       1/1          500m/2500m   0/8Gi    0/-    False   42s
"
        );
        let wide = table(&[rome()], true, now);
        assert!(wide.contains("user:jane   pool=guests   42s"), "{wide}");
    }

    #[test]
    fn one_tenant_is_shown_with_all_that_holds_for_it() {
        let delegation: TenantDelegation = serde_json::from_value(json!({
            "apiVersion": "tenancy.liqo.io/v1alpha1", "kind": "TenantDelegation",
            "metadata": {"name": format!("{ROME}-0"), "namespace": "liqo-tenant-rome-1"},
            "spec": {"subjects": [{"kind": "Group", "name": "team"}], "level": "Viewer"},
        }))
        .unwrap();
        assert_eq!(
            details(&rome(), &[delegation], &TenancyConfig::default()),
            "\
Consumer:         rome
Cluster ID:       4222622b-ecab-8637-860c-5a5a0f30e9c1
Owners:           user:jane
Namespaces:       1 of 1
cpu:              500m of 2500m
memory:           0 of 8Gi
Each namespace:   as much as all together
Counts:           no limits
Pod Security:     baseline
Node pool:        pool=guests
Runtime class:    as pods ask for
Isolation:        yes

NAMESPACE   STANDS FOR   PHASE     WHY
shop-x      shop         Active    -
lab-x       lab          Refused   the quota is used up

DELEGATION   LEVEL    TO           NAMESPACES   READY   WHY
0            Viewer   group:team   all          -       -

the Tenant of rome: 1 namespace was refused
"
        );
    }

    #[test]
    fn only_a_tenant_in_which_something_is_missing_is_complained_about() {
        assert_eq!(complaint(&rome()).unwrap(), "the Tenant of rome: 1 namespace was refused");
        assert_eq!(complaint(&tenant("rome", ROME, &json!({}), &json!({}))), None);
    }
}
