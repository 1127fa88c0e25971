//! Tenants on a real API server: what a consumer has at its provider, what it may do there, and how it goes.
//!
//! Consumers are known by the certificates that they got when they peered; the provider's controllers run under their own
//! service accounts, so that their rights are tested, too.

mod commands;
mod delegation;
mod furniture;
mod leaving;
mod limits;
mod shadows;
mod stage;

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail, ensure};
use ferro_api::tenancy::{Tenant, TenantNamespacePhase};
use ferro_api::virtualkubelet::MappingPhase;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod, ResourceQuota, Secret};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::rbac::v1::RoleBinding;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt as _};
use rig::audit::{Asked, writes};
use rig::objects::everything;
use rig::wait::eventually;
use serde_json::{Value, json};

use stage::{Stage, on_stage, refused};

fn parsed<K: serde::de::DeserializeOwned>(object: Value) -> Result<K> {
    Ok(serde_json::from_value(object)?)
}

#[test]
fn a_namespace_is_stamped_fenced_and_shown_to_its_consumer() -> Result<()> {
    on_stage(async |stage| {
        stage.rome.has([("shop", "shop-of-rome")]).await?;
        let admin = &stage.turin.admin;
        let namespace = Api::<Namespace>::all(admin.clone()).get("shop-of-rome").await?;
        let labels = namespace.labels();
        ensure!(labels["tenancy.liqo.io/tenant"] == stage.rome.id, "{labels:?}");
        ensure!(labels["liqo.io/originID"] == stage.rome.id, "{labels:?}");
        ensure!(labels["pod-security.kubernetes.io/enforce"] == "baseline", "{labels:?}");
        Api::<NetworkPolicy>::namespaced(admin.clone(), "shop-of-rome").get("ferro-tenant").await?;
        Api::<RoleBinding>::namespaced(admin.clone(), "shop-of-rome").get("ferro-tenant").await?;

        // The consumer sees its own Tenant by name, and no other one.
        let tenants: Api<Tenant> = Api::all(stage.rome.client.clone());
        eventually("its namespace is listed, and no other one", || async {
            let own = tenants.get(&stage.rome.id).await?.status.context("nothing is shown")?;
            let [listed] = &own.namespaces[..] else { bail!("{own:?}") };
            ensure!(listed.name == "shop-of-rome", "{listed:?}");
            ensure!(listed.phase == TenantNamespacePhase::Active, "{listed:?}");
            ensure!(listed.origin_namespace.as_deref() == Some("shop"), "{listed:?}");
            Ok(())
        })
        .await?;
        refused(tenants.get(&stage.milan.id).await)?;
        refused(tenants.list(&ListParams::default()).await)?;

        // And does its work in its namespace.
        let maps: Api<ConfigMap> = Api::namespaced(stage.rome.client.clone(), "shop-of-rome");
        maps.create(&PostParams::default(), &parsed(json!({"metadata": {"name": "mine"}}))?).await?;
        Ok(())
    })
}

#[test]
fn what_is_not_the_consumers_is_out_of_its_reach() -> Result<()> {
    on_stage(async |stage| {
        let (rome, milan) = (&stage.rome, &stage.milan);
        rome.has([("shop", "shop-of-rome")]).await?;
        milan.has([("vault", "vault-of-milan")]).await?;
        let secret: Secret = parsed(json!({"metadata": {"name": "gold"}}))?;
        let of_milan: Api<Secret> = Api::namespaced(milan.client.clone(), "vault-of-milan");
        of_milan.create(&PostParams::default(), &secret).await?;
        let seen_by_rome: Api<Secret> = Api::namespaced(rome.client.clone(), "vault-of-milan");
        let why = refused(seen_by_rome.get("gold").await)?;
        ensure!(why.contains("cannot get resource \"secrets\""), "{why}");

        // Not even in its own namespace: pods, rights, and what the provider has put there.
        let own = "shop-of-rome";
        let pods: Api<Pod> = Api::namespaced(rome.client.clone(), own);
        let pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
        let why = refused(pods.create(&PostParams::default(), &parsed(pod)?).await)?;
        ensure!(why.contains("cannot create resource \"pods\""), "{why}");
        let bindings: Api<RoleBinding> = Api::namespaced(rome.client.clone(), own);
        let everything =
            json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"});
        let binding = json!({"metadata": {"name": "all"}, "roleRef": everything});
        let why = refused(bindings.create(&PostParams::default(), &parsed(binding)?).await)?;
        ensure!(why.contains("cannot create resource \"rolebindings\""), "{why}");
        let quotas: Api<ResourceQuota> = Api::namespaced(rome.client.clone(), own);
        refused(quotas.delete("ferro-tenant", &DeleteParams::default()).await)?;
        let policies: Api<NetworkPolicy> = Api::namespaced(rome.client.clone(), own);
        refused(policies.delete("ferro-tenant", &DeleteParams::default()).await)?;
        Ok(())
    })
}

#[test]
fn nobody_puts_a_namespace_into_a_tenant_but_the_controller() -> Result<()> {
    on_stage(async |stage| {
        let stolen = json!({"metadata": {"name": "stolen", "labels": {"tenancy.liqo.io/tenant": stage.milan.id,
            "app.kubernetes.io/part-of": "ferrofluid"}}});
        let as_rome: Api<Namespace> = Api::all(stage.rome.client.clone());
        let why = refused(as_rome.create(&PostParams::default(), &parsed(stolen.clone())?).await)?;
        ensure!(why.contains("cannot create resource \"namespaces\""), "{why}");
        // Not even who may do everything else.
        let as_admin: Api<Namespace> = Api::all(stage.turin.admin.clone());
        let why = refused(as_admin.create(&PostParams::default(), &parsed(stolen.clone())?).await)?;
        ensure!(why.contains("only the controller sets it"), "{why}");
        let steal = Patch::Merge(json!({"metadata": {"labels": stolen["metadata"]["labels"]}}));
        refused(as_admin.patch("default", &PatchParams::default(), &steal).await)?;
        stage.rome.has([("shop", "shop-of-rome")]).await?;
        refused(as_admin.patch("shop-of-rome", &PatchParams::default(), &steal).await)?;
        Ok(())
    })
}

/// What tells whether namespaces were touched: they themselves, and what there is in them. The controller-manager writes
/// their status.
async fn untouched<const N: usize>(stage: &Stage, names: [&str; N]) -> Result<Vec<Value>> {
    let mut found = Vec::new();
    for name in names {
        let meta = Api::<Namespace>::all(stage.turin.admin.clone()).get(name).await?.metadata;
        found.push(json!([
            meta.uid,
            meta.labels,
            meta.annotations,
            meta.finalizers,
            meta.deletion_timestamp
        ]));
    }
    let is_there = |object: &&String| object.split(' ').nth(2).is_some_and(|place| names.contains(&place));
    let objects = everything(&stage.turin.cluster).await?;
    found.push(objects.iter().filter(is_there).cloned().collect());
    Ok(found)
}

#[test]
fn a_namespace_that_is_there_already_is_left_alone() -> Result<()> {
    on_stage(async |stage| {
        let namespaces: Api<Namespace> = Api::all(stage.turin.admin.clone());
        let ours = parsed(json!({"metadata": {"name": "ours", "labels": {"whose": "turins"}}}))?;
        let ours: Namespace = namespaces.create(&PostParams::default(), &ours).await?;
        let maps: Api<ConfigMap> = Api::namespaced(stage.turin.admin.clone(), "ours");
        let treasure = parsed(json!({"metadata": {"name": "treasure"}, "data": {"of": "turin"}}))?;
        let treasure: ConfigMap = maps.create(&PostParams::default(), &treasure).await?;
        let names = [
            ("a", "ours"),
            ("b", "kube-system"),
            ("c", "default"),
            ("d", "liqo"),
            ("e", "twin"),
            ("f", "twin"),
        ];
        let systems = ["kube-system", "default", "liqo"];
        let before = untouched(stage, systems).await?;
        stage.rome.ask(&names.map(|(origin, name)| (origin.to_owned(), name.to_owned())).into()).await?;
        for (origin, word) in [
            ("a", "leaves it alone"),
            ("b", "reserved"),
            ("c", "reserved"),
            ("d", "reserved"),
            ("f", "both ask for twin"),
        ] {
            let why = stage.rome.refusal(origin).await?;
            ensure!(why.contains(word), "{origin}: {why}");
        }
        stage.rome.ask(&BTreeMap::new()).await?;
        eventually("all entries are gone", || async {
            ensure!(stage.rome.answers().await?.is_empty());
            Ok(())
        })
        .await?;
        let after = untouched(stage, systems).await?;
        ensure!(before == after, "{before:#?} became {after:#?}");
        let still = namespaces.get("ours").await?;
        ensure!(still.metadata.uid == ours.metadata.uid && still.labels() == ours.labels(), "{still:?}");
        ensure!(maps.get("treasure").await? == treasure, "what was in it is not as it was");
        namespaces.delete("ours", &DeleteParams::default()).await?;
        Ok(())
    })
}

/// What the controller of Tenants asked the API server for.
fn of_tenancy(asked: &Asked) -> bool {
    let kinds = [
        "namespaces",
        "rolebindings",
        "resourcequotas",
        "limitranges",
        "networkpolicies",
        "namespacemaps",
        "tenants",
    ];
    asked.user == "system:serviceaccount:liqo:ferro-controller"
        && kinds.contains(&asked.resource.as_str())
        && (asked.manager.as_deref() == Some("ferro-tenancy") || !asked.is_write())
        && asked.verb != "watch"
}

#[test]
fn a_hundred_namespaces_cost_less_than_five_hundred_requests_and_the_last_as_much_as_the_first() -> Result<()>
{
    on_stage(async |stage| {
        let mark = stage.audit.mark().await?;
        let desired: BTreeMap<_, _> =
            (0..100).map(|index| (format!("n-{index}"), format!("there-{index}"))).collect();
        stage.rome.ask(&desired).await?;
        eventually("all are accepted", || async {
            let answers = stage.rome.answers().await?;
            let accepted = answers.values().filter(|answer| answer.phase == MappingPhase::Accepted).count();
            ensure!(accepted == 100 && stage.namespaces_of(&stage.rome).await?.len() == 100, "{accepted}");
            Ok(())
        })
        .await?;
        let asked = stage.audit.since(mark).await?;
        let asked: Vec<Asked> = asked.into_iter().filter(of_tenancy).collect();
        println!("{} requests for 100 namespaces", asked.len());
        ensure!(asked.len() < 500, "{} requests", asked.len());
        // What the API server did not take was no write: after 5 s without its watch a controller may try what is done.
        let done: Vec<Asked> = asked.into_iter().filter(|one| one.code < 400).collect();
        let each = |resource| writes(&done, resource).values().copied().max().unwrap_or_default();
        let most = ["namespaces", "rolebindings", "resourcequotas", "networkpolicies"].map(each);
        ensure!(most.iter().all(|most| *most <= 1), "some were written more often: {most:?}");
        Ok(())
    })
}
