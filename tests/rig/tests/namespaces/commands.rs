//! The commands that people use, against a real API server: what they change, and what they say as text and as JSON.

use anyhow::{Context, Result, ensure};
use rig::site::{Site, ferro};
use serde_json::{Value, json};

use crate::stage::{Stage, namespace, on_stage};

/// What a command says for programs.
async fn said(stage: &Stage, arguments: &[&str]) -> Result<Value> {
    let said = ferro(&stage.rome.cluster, &[arguments, &["--output", "json"]].concat()).await?;
    serde_json::from_str(&said).with_context(|| said)
}

/// What a command says for people.
async fn told(stage: &Stage, arguments: &[&str]) -> Result<String> {
    ferro(&stage.rome.cluster, arguments).await
}

/// Why a command fails.
async fn refused(stage: &Stage, arguments: &[&str]) -> Result<String> {
    let why = told(stage, arguments).await.err().with_context(|| format!("{arguments:?} is accepted"))?;
    Ok(format!("{why:#}"))
}

/// The words of the line that begins with one.
fn line<'a>(text: &'a str, first: &str) -> Result<Vec<&'a str>> {
    let mut lines = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    lines
        .find(|words| words.first() == Some(&first))
        .with_context(|| format!("there is no {first} in {text}"))
}

/// What is said of one cluster.
fn of<'a>(explained: &'a Value, cluster: &str) -> Result<&'a Value> {
    let mut clusters = explained["clusters"].as_array().into_iter().flatten();
    clusters.find(|one| one["cluster"] == cluster).with_context(|| format!("no {cluster} in {explained}"))
}

/// What Rome calls another cluster.
async fn name_of(stage: &Stage, site: &Site) -> Result<String> {
    stage.rome.peer(site).await?.metadata.name.context("it has no name")
}

#[test]
fn a_namespace_goes_there_and_back_by_commands_that_say_what_became_of_it() -> Result<()> {
    on_stage(async |stage| {
        stage.label_node(&stage.turin.site, &json!({"zone": "eu"})).await?;
        stage.make("shop").await?;
        ensure!(told(stage, &["explain", "shop"]).await?.starts_with("shop uses no other cluster"));
        offload(stage).await?;
        explain(stage).await?;
        change(stage).await?;
        unoffload(stage).await?;
        stage.discard("shop").await?;
        stage.label_node(&stage.turin.site, &json!({})).await
    })
}

async fn offload(stage: &Stage) -> Result<()> {
    let turin = name_of(stage, &stage.turin.site).await?;
    let all = ["--strategy", "same-name", "--pods", "remote", "--selector", "zone=eu", "--wait"];
    let text = told(stage, &[&["offload", "shop"][..], &all].concat()).await?;
    ensure!(text.ends_with(&format!("shop uses {turin}\n")), "{text}");
    let spec = serde_json::to_value(stage.offloading("shop").await?.spec)?;
    let zone = json!({"key": "zone", "operator": "In", "values": ["eu"]});
    let wanted = json!({
        "namespaceMappingStrategy": "EnforceSameName", "podOffloadingStrategy": "Remote",
        "clusterSelector": {"nodeSelectorTerms": [{"matchExpressions": [zone]}]},
    });
    ensure!(spec == wanted, "{spec}");
    ensure!(namespace(&stage.turin.site, "shop").await?.is_some(), "--wait did not wait");

    let listed = told(stage, &["namespaces"]).await?;
    let line = line(&listed, "shop")?;
    ensure!(line[1..6] == ["EnforceSameName", "Remote", "Ready", "1/1", turin.as_str()], "{listed}");
    let listed = said(stage, &["namespaces"]).await?;
    ensure!(listed["items"][0]["metadata"]["namespace"] == "shop", "{listed}");
    ensure!(listed["items"][0]["status"]["offloadingPhase"] == "Ready", "{listed}");
    Ok(())
}

/// For each cluster, why it is used or not.
async fn explain(stage: &Stage) -> Result<()> {
    let (turin, milan) = (name_of(stage, &stage.turin.site).await?, name_of(stage, &stage.milan).await?);
    let text = told(stage, &["explain", "shop"]).await?;
    let node = format!("liqo-{turin}");
    ensure!(line(&text, &turin)?[1..4] == [node.as_str(), "yes", "Ready"], "{text}");
    ensure!(line(&text, &milan)?[2] == "no", "{text}");
    ensure!(text.contains("zone is not set, and must be") && text.contains("pods may run there"), "{text}");
    let explained = said(stage, &["explain", "shop"]).await?;
    ensure!(explained["remoteNamespace"] == "shop" && explained["phase"] == "Ready", "{explained}");
    let (used, unused) = (of(&explained, &turin)?, of(&explained, &milan)?);
    ensure!(used["selection"] == "Selected" && used["state"] == "Ready", "{used}");
    ensure!(used["clusterID"] == stage.turin.site.id().await?, "{used}");
    ensure!(unused["selection"] == "NotSelected", "{unused}");
    ensure!(unused["why"][0].as_str().is_some_and(|why| why.contains("zone is not set")), "{unused}");
    Ok(())
}

/// What is given is changed, and nothing else.
async fn change(stage: &Stage) -> Result<()> {
    let why = refused(stage, &["offload", "shop", "--strategy", "default-name"]).await?;
    ensure!(why.contains("ferro unoffload shop --wait"), "{why}");
    let why = refused(stage, &["offload", "nowhere"]).await?;
    ensure!(why.contains("there is no namespace nowhere"), "{why}");
    let all = ["offload", "shop", "--selector", "liqo.io/type=virtual-node", "--wait"];
    let offloading = said(stage, &all).await?;
    let status = &offloading["status"];
    ensure!(status["remoteNamespacesConditions"].as_object().is_some_and(|all| all.len() == 2), "{status}");
    ensure!(offloading["spec"]["podOffloadingStrategy"] == "Remote", "{offloading}");
    let text = told(stage, &["namespaces", "--output", "wide"]).await?;
    ensure!(line(&text, "shop")?[4] == "2/2", "{text}");
    Ok(())
}

async fn unoffload(stage: &Stage) -> Result<()> {
    let text = told(stage, &["unoffload", "shop", "--wait"]).await?;
    ensure!(text.ends_with("shop uses no other cluster any more\n"), "{text}");
    for site in [&stage.turin.site, &stage.milan] {
        ensure!(namespace(site, "shop").await?.is_none(), "--wait did not wait for {}", site.name);
    }
    let listed = said(stage, &["namespaces"]).await?;
    ensure!(listed["items"] == json!([]), "{listed}");
    let text = told(stage, &["unoffload", "shop"]).await?;
    ensure!(text.contains("nothing to do"), "{text}");
    let explained = said(stage, &["explain", "shop"]).await?;
    ensure!(explained["isOffloaded"] == false, "{explained}");
    let turin = name_of(stage, &stage.turin.site).await?;
    ensure!(of(&explained, &turin)?["selection"] == "NotOffloaded", "{explained}");
    Ok(())
}
