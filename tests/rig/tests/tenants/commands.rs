//! The commands of a provider's administrator, against a real API server: what they change, and what they say as text and as
//! JSON.

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::ListParams;
use rig::site::ferro;
use rig::wait::eventually;
use serde_json::{Value, json};

use crate::stage::{Stage, on_stage};

/// What a command says for programs.
async fn said(stage: &Stage, arguments: &[&str]) -> Result<Value> {
    let said = ferro(&stage.turin.cluster, &[arguments, &["--output", "json"]].concat()).await?;
    serde_json::from_str(&said).with_context(|| said)
}

/// What a command says for people.
async fn told(stage: &Stage, arguments: &[&str]) -> Result<String> {
    ferro(&stage.turin.cluster, arguments).await
}

/// The words of the line that begins with these.
fn after<'a>(text: &'a str, first: &str) -> Result<Vec<&'a str>> {
    let mut lines = text.lines().filter_map(|line| line.strip_prefix(first));
    let rest = lines.next().with_context(|| format!("there is no {first} in {text}"))?;
    Ok(rest.split_whitespace().collect())
}

#[test]
fn tenants_are_listed_shown_and_set_by_commands() -> Result<()> {
    on_stage(async |stage| {
        stage.rome.has([("shop", "shop-of-rome")]).await?;
        eventually("the Tenant is listed with its namespace", || async {
            let text = told(stage, &["tenants"]).await?;
            ensure!(after(&text, "rome ")?[0] == "1/100" && after(&text, "milan ")?[0] == "0/100", "{text}");
            Ok(())
        })
        .await?;
        let listed = said(stage, &["tenants"]).await?;
        let ids: Vec<_> = listed["items"].as_array().into_iter().flatten().collect();
        let is_rome = |tenant: &&&Value| tenant["metadata"]["name"] == stage.rome.id.as_str();
        ensure!(ids.len() == 2 && ids.iter().any(|tenant| is_rome(&tenant)), "{listed}");

        let set =
            ["tenant", "set", "rome", "--namespaces", "7", "--cpu", "4", "--count", "widgets.example.org=10"];
        let more = ["--pod-security", "restricted", "--node-pool", "pool=guests", "--owner", "user:olga"];
        let tenant = said(stage, &[&set[..], &more].concat()).await?;
        let spec = &tenant["spec"];
        ensure!(
            spec["namespaceQuota"] == 7 && spec["counts"] == json!({"widgets.example.org": 10}),
            "{spec}"
        );
        ensure!(spec["resourceQuota"]["hard"]["cpu"] == "4", "{spec}");
        ensure!(
            spec["podSecurity"] == "restricted" && spec["nodePool"] == json!({"pool": "guests"}),
            "{spec}"
        );
        eventually("it is shown as it was set", || async {
            let text = told(stage, &["tenant", "show", "rome"]).await?;
            ensure!(after(&text, "Namespaces:")? == ["1", "of", "7"], "{text}");
            ensure!(after(&text, "cpu:")? == ["0", "of", "4"], "{text}");
            ensure!(after(&text, "Counts:")? == ["widgets.example.org=10"], "{text}");
            ensure!(after(&text, "Owners:")? == ["user:olga"], "{text}");
            ensure!(after(&text, "shop-of-rome ")? == ["shop", "Active", "-"], "{text}");
            Ok(())
        })
        .await?;
        let text =
            told(stage, &["tenant", "set", "rome", "--unset", "namespaces", "--unset", "owners"]).await?;
        ensure!(text.contains("the Tenant of rome is changed"), "{text}");
        let shown = said(stage, &["tenant", "show", &stage.rome.id]).await?;
        let spec = &shown["tenant"]["spec"];
        ensure!(spec.get("namespaceQuota").is_none() && spec.get("owners").is_none(), "{spec}");
        ensure!(spec["podSecurity"] == "restricted", "{spec}");
        let wrong = told(stage, &["tenant", "show", "nobody"]).await;
        ensure!(wrong.is_err(), "there is a Tenant called nobody");
        Ok(())
    })
}

#[test]
fn people_are_let_in_and_out_by_commands() -> Result<()> {
    on_stage(async |stage| {
        stage.rome.has([("shop", "shop-of-rome")]).await?;
        let to =
            ["tenant", "delegate", "rome", "--to", "user:jane", "--level", "viewer", "--in", "shop-of-rome"];
        let delegation = said(stage, &to).await?;
        ensure!(delegation["metadata"]["name"] == format!("{}-0", stage.rome.id), "{delegation}");
        let jane = stage.client_of("jane").await?;
        let pods: Api<Pod> = Api::namespaced(jane, "shop-of-rome");
        eventually("she is let in, and it is said so", || async {
            pods.list(&ListParams::default()).await?;
            let text = told(stage, &["tenant", "show", "rome"]).await?;
            let words = after(&text, "0 ")?;
            ensure!(words[..4] == ["Viewer", "user:jane", "shop-of-rome", "True"], "{text}");
            Ok(())
        })
        .await?;
        let text =
            told(stage, &["tenant", "delegate", "rome", "--to", "group:team", "--level", "editor"]).await?;
        ensure!(text.starts_with("this is delegation 1;"), "{text}");
        let shown = said(stage, &["tenant", "show", "rome"]).await?;
        ensure!(shown["delegations"].as_array().is_some_and(|all| all.len() == 2), "{shown}");
        for number in ["0", "1"] {
            let text = told(stage, &["tenant", "revoke", "rome", number]).await?;
            ensure!(text == format!("delegation {number} of rome is revoked\n"), "{text}");
        }
        let again = told(stage, &["tenant", "revoke", "rome", "0"]).await;
        ensure!(again.is_err_and(|why| why.to_string().contains("rome has no delegation 0")));
        eventually("she is out again", || async {
            ensure!(pods.list(&ListParams::default()).await.is_err(), "she still sees pods");
            Ok(())
        })
        .await
    })
}
