//! What is refused before anybody has to answer: offloadings that cannot be, and labels by those who have no right.

use anyhow::{Context, Result, ensure};
use rig::topology::Cluster;
use rig::wait::{block_on, eventually};
use serde_json::{Value, json};

use super::stage::{INSTALLATION, stage};

fn offloading(namespace: &str, spec: &Value) -> String {
    json!({
        "apiVersion": "offloading.liqo.io/v1alpha1", "kind": "NamespaceOffloading",
        "metadata": {"name": "offloading", "namespace": namespace}, "spec": spec,
    })
    .to_string()
}

/// Waits until a deed is refused, and gives the reason.
async fn refused(what: &str, deed: impl AsyncFn() -> Result<String>) -> Result<String> {
    let refused = || async { deed().await.err().context("it was allowed") };
    Ok(format!("{:#}", eventually(what, refused).await?))
}

#[test]
fn offloadings_that_cannot_be_are_refused_with_the_reason() -> Result<()> {
    block_on(async {
        let (stage, _turn) = stage().await?;
        let cluster = stage.cluster()?;
        let (long, fits) = ("a".repeat(27), "a".repeat(26));
        for namespace in [&long, &fits, "liqo-mine", "liqonet"] {
            cluster.kubectl(&["create", "namespace", namespace]).await?;
        }
        let default = offloading(&long, &json!({}));
        let why =
            refused("a name that is too long is refused", async || cluster.apply(&default).await).await?;
        ensure!(why.contains("at most 26 characters"), "{why}");
        cluster.apply(&offloading(&fits, &json!({}))).await?;
        cluster.apply(&offloading(&long, &json!({"namespaceMappingStrategy": "EnforceSameName"}))).await?;
        cluster
            .apply(&offloading("liqonet", &json!({"namespaceMappingStrategy": "EnforceSameName"})))
            .await?;
        for namespace in ["kube-system", "kube-public", "default", "liqo-mine", INSTALLATION] {
            let same = offloading(namespace, &json!({"namespaceMappingStrategy": "EnforceSameName"}));
            let why = refused("a name of the system is refused", async || cluster.apply(&same).await).await?;
            ensure!(why.contains("use DefaultName"), "{namespace}: {why}");
        }
        Ok(())
    })
}

#[test]
fn pods_that_the_webhook_never_sees_are_not_offloaded() -> Result<()> {
    block_on(async {
        let (stage, _turn) = stage().await?;
        let cluster = stage.cluster()?;
        let with =
            |namespace: &str, pods: &str| offloading(namespace, &json!({"podOffloadingStrategy": pods}));
        for namespace in ["kube-system", INSTALLATION] {
            for spec in [offloading(namespace, &json!({})), with(namespace, "Remote")] {
                let why = refused("pods that nobody could keep in place are refused", async || {
                    cluster.apply(&spec).await
                });
                let why = why.await?;
                ensure!(why.contains("use podOffloadingStrategy Local"), "{namespace}: {why}");
            }
            let label = ["label", "namespace", namespace, "liqo.io/enabled=true"];
            let why = refused("so is the label", async || cluster.kubectl(&label).await).await?;
            ensure!(why.contains("never shown to the webhook"), "{namespace}: {why}");
            // Services may be for others.
            cluster.apply(&with(namespace, "Local")).await?;
            let why =
                refused("it stays so", async || cluster.apply(&with(namespace, "Remote")).await).await?;
            ensure!(why.contains("use podOffloadingStrategy Local"), "{namespace}: {why}");
            let delete = ["delete", "namespaceoffloading", "offloading", "--namespace", namespace];
            cluster.kubectl(&delete).await?;
        }
        Ok(())
    })
}

#[test]
fn selectors_that_mean_nothing_are_refused_with_the_reason() -> Result<()> {
    block_on(async {
        let (stage, _turn) = stage().await?;
        let cluster = stage.cluster()?;
        let wrong = |key: &str, operator: &str, values: &[&str]| {
            let expression = json!({"key": key, "operator": operator, "values": values});
            let terms = json!([{"matchExpressions": [expression]}]);
            offloading("default", &json!({"clusterSelector": {"nodeSelectorTerms": terms}}))
        };
        for (selector, reason) in [
            (wrong("a b", "In", &["c"]), "should match"),
            (wrong("a", "Like", &["c"]), "Unsupported value"),
            (wrong("a", "Gt", &["many"]), "one integer"),
            (wrong("a", "In", &[]), "must not be empty"),
        ] {
            let why = cluster.apply(&selector).await.err().context("it was allowed")?.to_string();
            ensure!(why.contains(reason), "{selector}: {why}");
        }
        Ok(())
    })
}

/// kubectl as a user.
async fn as_user(cluster: &Cluster, user: &str, arguments: &[&str]) -> Result<String> {
    cluster.kubectl(&[&["--as", user][..], arguments].concat()).await
}

/// Lets a user change a namespace, and gives it a role there.
async fn grant(cluster: &Cluster, namespace: &str, user: &str, role: &str) -> Result<()> {
    let binding = format!("{user}-{role}");
    let (role, user) = (format!("--clusterrole={role}"), format!("--user={user}"));
    let arguments = ["create", "rolebinding", &binding, &role, &user, "--namespace", namespace];
    cluster.kubectl(&arguments).await.map(drop)
}

#[test]
fn labels_that_mean_an_offloading_are_for_those_who_may_make_one() -> Result<()> {
    block_on(async {
        let (stage, _turn) = stage().await?;
        let cluster = stage.cluster()?;
        let create =
            ["create", "clusterrole", "namespace-editor", "--verb=get,patch,update", "--resource=namespaces"];
        cluster.kubectl(&create).await?;
        cluster.kubectl(&["create", "namespace", "labelled"]).await?;
        for (user, roles) in [
            ("alice", &["namespace-editor", "admin"][..]),
            ("bob", &["namespace-editor", "ferro-offloading-admin"]),
        ] {
            for role in roles {
                grant(cluster, "labelled", user, role).await?;
            }
        }
        let label = ["label", "namespace", "labelled", "--overwrite"];
        let set = |user: &'static str, label_: &'static str| async move {
            as_user(cluster, user, &[&label[..], &[label_]].concat()).await
        };
        let harmless = || set("alice", "team=shop");
        eventually("an editor changes other labels", harmless).await?;
        let why = refused("an editor offloads nothing", async || set("alice", "liqo.io/enabled=true").await)
            .await?;
        ensure!(why.contains("which you may not create"), "{why}");
        let why = refused("nobody but the controller marks", async || {
            set("bob", "offloading.liqo.io/admitted=yes").await
        })
        .await?;
        ensure!(why.contains("set by the controller"), "{why}");
        eventually("an administrator of offloadings does", || set("bob", "liqo.io/enabled=true")).await?;
        let why =
            refused("an editor does not end it", async || set("alice", "liqo.io/enabled-").await).await?;
        ensure!(why.contains("which you may not delete"), "{why}");
        set("bob", "liqo.io/enabled-").await?;
        Ok(())
    })
}

#[test]
fn users_see_the_policy_of_their_namespace_and_cannot_change_it() -> Result<()> {
    block_on(async {
        let (stage, _turn) = stage().await?;
        let cluster = stage.cluster()?;
        for role in ["view", "edit", "admin"] {
            grant(cluster, "remote", &format!("a-{role}"), role).await?;
        }
        let may = |user: &'static str, verb: &'static str, kind: &'static str| async move {
            let said = as_user(cluster, user, &["auth", "can-i", verb, kind, "--namespace", "remote"]).await;
            // It says no with an exit code.
            Ok::<_, anyhow::Error>(said.is_ok_and(|said| said.trim() == "yes"))
        };
        let (offloadings, deployments) =
            ("namespaceoffloadings.offloading.liqo.io", "liqodeployments.offloading.liqo.io");
        for (user, kind, sees, writes) in [
            ("a-view", offloadings, true, false),
            ("a-view", deployments, true, false),
            ("a-edit", offloadings, true, false),
            ("a-edit", deployments, true, true),
            ("a-admin", offloadings, true, false),
            ("a-admin", deployments, true, true),
        ] {
            let right = || async {
                let rights = (may(user, "get", kind).await?, may(user, "patch", kind).await?);
                ensure!(rights == (sees, writes), "{user} on {kind}: {rights:?}");
                Ok(())
            };
            // The controller-manager puts the parts of these roles together a moment later.
            eventually("people have the right rights", right).await?;
        }
        Ok(())
    })
}
