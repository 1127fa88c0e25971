//! Whom an owner lets into its namespaces, and how far they come.

use anyhow::{Context, Result, ensure};
use ferro_api::tenancy::{Tenant, TenantDelegation};
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::rbac::v1::RoleBinding;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use rig::wait::eventually;
use serde_json::{Value, json};

use crate::parsed;
use crate::stage::{Consumer, Stage, on_stage, refused};

/// As the consumer.
fn delegations(consumer: &Consumer) -> Api<TenantDelegation> {
    Api::namespaced(consumer.client.clone(), &consumer.control)
}

/// Lets somebody in, as the consumer.
async fn delegate(consumer: &Consumer, number: &str, spec: &Value) -> kube::Result<TenantDelegation> {
    delegate_as(&consumer.client, consumer, number, spec).await
}

/// Lets somebody into the namespaces of a consumer, as somebody.
async fn delegate_as(
    client: &Client,
    consumer: &Consumer,
    number: &str,
    spec: &Value,
) -> kube::Result<TenantDelegation> {
    let object = json!({
        "apiVersion": "tenancy.liqo.io/v1alpha1", "kind": "TenantDelegation",
        "metadata": {"name": format!("{}-{number}", consumer.id), "labels": consumer.marks()}, "spec": spec,
    });
    let object = serde_json::from_value(object).map_err(kube::Error::SerdeError)?;
    let delegations: Api<TenantDelegation> = Api::namespaced(client.clone(), &consumer.control);
    delegations.create(&PostParams::default(), &object).await
}

async fn lets_in(
    stage: &Stage,
    owner: &Client,
    number: &str,
    user: &str,
    level: &str,
    namespaces: &[&str],
) -> Result<Client> {
    let subjects = json!([{"kind": "User", "name": user}]);
    let spec = json!({"subjects": subjects, "level": level, "namespaces": namespaces});
    delegate_as(owner, &stage.rome, number, &spec).await?;
    let client = stage.client_of(user).await?;
    let pods: Api<Pod> = Api::namespaced(client.clone(), "shop-of-rome");
    eventually(&format!("{user} is let in"), || async {
        pods.list(&ListParams::default()).await?;
        Ok(())
    })
    .await?;
    Ok(client)
}

/// Whether somebody may do what was tried. What failed for another reason says nothing.
fn is_let<T>(answer: kube::Result<T>) -> Result<bool> {
    match answer {
        Ok(_) => Ok(true),
        Err(kube::Error::Api(status)) if matches!(status.code, 403 | 422) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// What somebody may do in a namespace: read pods, write a `ConfigMap`, read and write Secrets, make pods, grant rights.
async fn may(client: &Client, namespace: &str) -> Result<[bool; 6]> {
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
    let secrets: Api<Secret> = Api::namespaced(client.clone(), namespace);
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let bindings: Api<RoleBinding> = Api::namespaced(client.clone(), namespace);
    let named = || json!({"metadata": {"name": "x"}});
    let pod = json!({"metadata": {"name": "x"}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let role = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "ferro-tenant-viewer"});
    let binding = json!({"metadata": {"name": "x"}, "roleRef": role});
    Ok([
        is_let(pods.list(&ListParams::default()).await)?,
        is_let(maps.create(&dry, &parsed(named())?).await)?,
        is_let(secrets.list(&ListParams::default()).await)?,
        is_let(secrets.create(&dry, &parsed(named())?).await)?,
        is_let(pods.create(&dry, &parsed(pod)?).await)?,
        is_let(bindings.create(&dry, &parsed(binding)?).await)?,
    ])
}

#[test]
fn a_delegate_does_what_was_granted_and_no_more() -> Result<()> {
    on_stage(async |stage| {
        stage.rome.has([("shop", "shop-of-rome"), ("back", "back-of-rome")]).await?;
        stage.milan.has([("vault", "vault-of-milan")]).await?;
        let rome = &stage.rome.client;
        let viewer = lets_in(stage, rome, "0", "jane", "Viewer", &["shop-of-rome"]).await?;
        let editor = lets_in(stage, rome, "1", "john", "Editor", &[]).await?;
        let admin = lets_in(stage, rome, "2", "anna", "Admin", &[]).await?;
        let nothing = [false; 6];
        ensure!(may(&viewer, "shop-of-rome").await? == [true, false, false, false, false, false]);
        ensure!(may(&editor, "shop-of-rome").await? == [true, true, false, false, false, false]);
        ensure!(may(&admin, "shop-of-rome").await? == [true, true, true, true, false, false]);
        ensure!(may(&viewer, "back-of-rome").await? == nothing, "it was granted in one namespace");
        eventually("the others are let into all of them", || async {
            ensure!(may(&editor, "back-of-rome").await?[0] && may(&admin, "back-of-rome").await?[0]);
            Ok(())
        })
        .await?;
        for client in [&viewer, &editor, &admin] {
            for namespace in ["vault-of-milan", "default", "kube-system", &stage.rome.control] {
                ensure!(may(client, namespace).await? == nothing, "somebody is let into {namespace}");
            }
        }
        for number in ["0", "1", "2"] {
            let name = format!("{}-{number}", stage.rome.id);
            delegations(&stage.rome).delete(&name, &DeleteParams::default()).await?;
        }
        eventually("what was granted is taken back", || async {
            ensure!(
                may(&admin, "shop-of-rome").await? == nothing
                    && may(&viewer, "shop-of-rome").await? == nothing
            );
            Ok(())
        })
        .await
    })
}

#[test]
fn owners_beside_the_consumer_work_in_its_namespaces_let_others_in_and_come_no_further() -> Result<()> {
    on_stage(async |stage| {
        stage.rome.has([("shop", "shop-of-rome"), ("back", "back-of-rome")]).await?;
        stage.milan.has([("vault", "vault-of-milan")]).await?;
        let account = json!({"kind": "ServiceAccount", "name": "bot", "namespace": "back-of-rome"});
        stage.set(&stage.rome, &json!({"owners": [{"kind": "User", "name": "olga"}, account]})).await?;
        for (number, name) in ["olga", "system:serviceaccount:back-of-rome:bot"].into_iter().enumerate() {
            let owner = stage.client_of(name).await?;
            works(stage, &owner).await.with_context(|| name.to_owned())?;
            lets_others_in(stage, &owner, number).await.with_context(|| name.to_owned())?;
        }
        let olga = stage.client_of("olga").await?;
        stage.set(&stage.rome, &json!({"owners": null})).await?;
        eventually("who is no owner any more is out", || async {
            ensure!(may(&olga, "shop-of-rome").await? == [false; 6]);
            ensure!(
                !is_let(Api::<Tenant>::all(olga.clone()).get(&stage.rome.id).await)?,
                "she sees the Tenant"
            );
            Ok(())
        })
        .await
    })
}

/// Whether an owner does what the consumer may, and nothing elsewhere.
async fn works(stage: &Stage, owner: &Client) -> Result<()> {
    for namespace in ["shop-of-rome", "back-of-rome"] {
        eventually("an owner works in the namespaces", || async {
            let may = may(owner, namespace).await?;
            ensure!(may == [true, true, true, true, false, false], "{may:?}");
            Ok(())
        })
        .await?;
    }
    for namespace in ["vault-of-milan", "default", "kube-system", "liqo", &stage.rome.control] {
        ensure!(may(owner, namespace).await? == [false; 6], "an owner is let into {namespace}");
    }
    let tenants: Api<Tenant> = Api::all(owner.clone());
    eventually("an owner sees its Tenant", || async { Ok(tenants.get(&stage.rome.id).await?) }).await?;
    refused(tenants.get(&stage.milan.id).await)?;
    refused(tenants.list(&ListParams::default()).await)?;
    Ok(())
}

/// Whether an owner gives each grade to somebody, and takes it back; and not in the name of another consumer.
async fn lets_others_in(stage: &Stage, owner: &Client, number: usize) -> Result<()> {
    let own: Api<TenantDelegation> = Api::namespaced(owner.clone(), &stage.rome.control);
    eventually("an owner may say whom it lets in", || async {
        own.list(&ListParams::default()).await?;
        Ok(())
    })
    .await?;
    let number = number.to_string();
    for (level, rights) in [
        ("Viewer", [true, false, false, false, false, false]),
        ("Editor", [true, true, false, false, false, false]),
        ("Admin", [true, true, true, true, false, false]),
    ] {
        let guest = format!("guest-{number}-{}", level.to_lowercase());
        let client = lets_in(stage, owner, &number, &guest, level, &["shop-of-rome"]).await?;
        let may_now = may(&client, "shop-of-rome").await?;
        ensure!(may_now == rights, "{level}: {may_now:?}");
        ensure!(may(&client, "back-of-rome").await? == [false; 6], "it was granted in one namespace");
        own.delete(&format!("{}-{number}", stage.rome.id), &DeleteParams::default()).await?;
        eventually("what was granted is taken back", || async {
            ensure!(may(&client, "shop-of-rome").await? == [false; 6]);
            Ok(())
        })
        .await?;
    }
    let spec = json!({"subjects": [{"kind": "User", "name": "eve"}], "level": "Viewer"});
    refused(delegate_as(owner, &stage.milan, &number, &spec).await)?;
    Ok(())
}

#[test]
fn who_looks_after_all_tenants_reads_everything_but_secrets_and_writes_nothing() -> Result<()> {
    on_stage(async |stage| {
        stage.rome.has([("shop", "shop-of-rome")]).await?;
        stage.milan.has([("vault", "vault-of-milan")]).await?;
        let kubectl = &stage.turin.cluster;
        let create =
            ["create", "clusterrolebinding", "vera", "--clusterrole=ferro-tenant-viewer", "--user=vera"];
        kubectl.kubectl(&create).await?;
        let vera = stage.client_of("vera").await?;
        let tenants: Api<Tenant> = Api::all(vera.clone());
        let all = eventually("she sees all Tenants", || async {
            Ok(tenants.list(&ListParams::default()).await?.items)
        });
        ensure!(all.await?.len() == 2, "there are two Tenants");
        for namespace in ["shop-of-rome", "vault-of-milan"] {
            let may = may(&vera, namespace).await?;
            ensure!(may == [true, false, false, false, false, false], "{namespace}: {may:?}");
            Api::<NetworkPolicy>::namespaced(vera.clone(), namespace).get("ferro-tenant").await?;
        }
        let more = Patch::Merge(json!({"spec": {"namespaceQuota": 1000}}));
        refused(tenants.patch(&stage.rome.id, &PatchParams::default(), &more).await)?;
        refused(tenants.delete(&stage.rome.id, &DeleteParams::default()).await)?;
        let delegations: Api<TenantDelegation> = Api::namespaced(vera, &stage.rome.control);
        refused(delegations.list(&ListParams::default()).await)?;
        kubectl.kubectl(&["delete", "clusterrolebinding", "vera"]).await?;
        Ok(())
    })
}

#[test]
fn an_owner_lets_in_only_those_whom_it_may_and_only_so_many() -> Result<()> {
    on_stage(async |stage| {
        stage.rome.has([("shop", "shop-of-rome")]).await?;
        let subjects = json!([
            {"kind": "Group", "name": "system:authenticated"},
            {"kind": "User", "name": format!("{}:0", stage.milan.id)},
            {"kind": "ServiceAccount", "name": "default", "namespace": "kube-system"},
        ]);
        delegate(&stage.rome, "3", &json!({"subjects": subjects, "level": "Admin"})).await?;
        let (delegations, name) = (delegations(&stage.rome), format!("{}-3", stage.rome.id));
        let said = eventually("it is said why not", || async {
            let status = delegations.get(&name).await?.status.unwrap_or_default();
            let ready = status.conditions.into_iter().find(|condition| condition.type_ == "Ready");
            Ok(ready.context("nothing is said")?.message)
        })
        .await?;
        ensure!(said.matches("is refused").count() == 3, "{said}");
        let bindings: Api<RoleBinding> = Api::namespaced(stage.turin.admin.clone(), "shop-of-rome");
        ensure!(bindings.get_opt("ferro-tenant-admin-3").await?.is_none(), "somebody is let in");
        delegations.delete(&name, &DeleteParams::default()).await?;

        let spec = json!({"subjects": [{"kind": "User", "name": "eve"}], "level": "Viewer"});
        for number in ["16", "x", "01"] {
            let why = refused(delegate(&stage.rome, number, &spec).await)?;
            ensure!(why.contains("-0 to -15"), "{why}");
        }
        Ok(())
    })
}
