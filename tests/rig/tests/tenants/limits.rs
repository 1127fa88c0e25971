//! Quotas: what is beyond them is refused with the numbers, and of many that want the last place one has it.

use std::collections::BTreeMap;

use anyhow::{Result, ensure};
use ferro_api::virtualkubelet::MappingPhase;
use futures::future::try_join_all;
use kube::api::{Patch, PatchParams};
use rig::audit::Asked;
use rig::wait::eventually;
use serde_json::json;

use crate::stage::{Consumer, on_stage};

#[test]
fn beyond_the_quota_is_refused_with_the_numbers_and_nothing_else_is_disturbed() -> Result<()> {
    on_stage(async |stage| {
        stage.set(&stage.rome, &json!({"namespaceQuota": 2})).await?;
        stage.rome.has([("b", "b-of-rome"), ("c", "c-of-rome")]).await?;
        let names = ["a", "b", "c", "d"].map(|name| (name.to_owned(), format!("{name}-of-rome")));
        stage.rome.ask(&names.into()).await?;
        for origin in ["a", "d"] {
            let why = stage.rome.refusal(origin).await?;
            ensure!(why.contains("quota of 2 namespaces is used up: there are 2"), "{why}");
        }
        ensure!(stage.namespaces_of(&stage.rome).await? == ["b-of-rome", "c-of-rome"]);
        let status = eventually("the Tenant says so, too", || async {
            let status = stage.tenant(&stage.rome).await?.status.unwrap_or_default();
            ensure!(status.namespaces.len() == 4, "{:?}", status.namespaces);
            Ok(status)
        })
        .await?;
        ensure!(status.namespaces_used == Some(2) && status.namespace_quota == Some(2), "{status:?}");
        // A larger quota is taken up at once.
        stage.set(&stage.rome, &json!({"namespaceQuota": 3})).await?;
        eventually("the first one that waited has its place", || async {
            let answer = stage.rome.answer("a").await?;
            ensure!(answer.phase == MappingPhase::Accepted, "{answer:?}");
            Ok(())
        })
        .await
    })
}

/// One more entry, as fast as possible; an API server that has too many of them at once says so.
async fn add(consumer: &Consumer, index: usize) -> Result<()> {
    let entry = json!({"spec": {"desiredMapping": {format!("n-{index}"): format!("there-{index}")}}});
    loop {
        match consumer.maps().patch(&consumer.id, &PatchParams::default(), &Patch::Merge(&entry)).await {
            Err(kube::Error::Api(status)) if matches!(status.code, 409 | 429) => {}
            patched => return Ok(patched.map(drop)?),
        }
    }
}

#[test]
fn of_a_hundred_that_want_the_last_namespace_exactly_one_has_it() -> Result<()> {
    on_stage(async |stage| {
        stage.set(&stage.rome, &json!({"namespaceQuota": 2})).await?;
        stage.rome.has([("first", "first-of-rome")]).await?;
        let mark = stage.audit.mark().await?;
        try_join_all((0..100).map(|index| add(&stage.rome, index))).await?;
        let answers = eventually("all hundred are answered", || async {
            let answers = stage.rome.answers().await?;
            let accepted = answers.values().filter(|answer| answer.phase == MappingPhase::Accepted).count();
            ensure!(answers.len() == 101 && accepted == 2, "{} answers, {accepted} accepted", answers.len());
            Ok(answers)
        })
        .await?;
        ensure!(answers["first"].phase == MappingPhase::Accepted, "who has one keeps it");
        let there = stage.namespaces_of(&stage.rome).await?;
        ensure!(there.len() == 2, "{there:?}");
        // Nor was there ever one more, if only for a moment.
        let is_creation =
            |one: &&Asked| one.resource == "namespaces" && one.verb == "create" && one.code < 400;
        let created = stage.audit.since(mark).await?.iter().filter(is_creation).count();
        ensure!(created == 1, "{created} namespaces were created");
        let won: BTreeMap<_, _> =
            answers.iter().filter(|(_, answer)| answer.phase == MappingPhase::Accepted).collect();
        println!("{:?} had the last one", won.keys().find(|origin| **origin != "first"));
        Ok(())
    })
}
