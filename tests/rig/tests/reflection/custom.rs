//! A kind of the administrator's own, which both API servers know: once the configuration lists it, its objects go over as
//! those of any other kind do.

use anyhow::{Result, ensure};
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};

use crate::stage::{Stage, on_stage};

const KIND: &str = "Menu";
const NAME: &str = "lunch";

fn is_dish(dish: &str) -> impl Fn(&Value) -> bool {
    move |menu: &Value| menu["spec"]["dish"] == dish
}

/// Lists the kind, or takes it off the list.
async fn list(stage: &Stage, is_listed: bool) -> Result<()> {
    let resources: &[&str] = if is_listed { &["menus"] } else { &[] };
    list_all(stage, resources).await
}

/// Lists these kinds, and no others.
async fn list_all(stage: &Stage, resources: &[&str]) -> Result<()> {
    let kind = |resource: &&str| json!({"group": "example.org", "version": "v1", "resource": resource});
    let kinds: Vec<Value> = resources.iter().map(kind).collect();
    stage.configure(&json!({"customResources": kinds})).await
}

#[test]
fn a_kind_that_the_administrator_lists_goes_over_and_stays_as_it_should_be() -> Result<()> {
    on_stage(async |stage| {
        let menu = json!({"apiVersion": "example.org/v1", "kind": KIND, "spec": {"dish": "soup"}});
        stage.make(KIND, NAME, menu).await?;
        stage.settles().await?;
        ensure!(stage.there(KIND).get_opt(NAME).await?.is_none(), "it goes although nobody has listed it");
        list(stage, true).await?;
        stage.arrives(KIND, NAME, is_dish("soup")).await?;
        changes_arrive_but_for_the_status(stage).await?;
        whoever_meddles_is_put_right(stage).await?;
        let reflect = |word: &Value| json!({"metadata": {"annotations": {"liqo.io/reflect": word}}});
        stage.change(KIND, NAME, &reflect(&json!("false"))).await?;
        stage.stays_away(KIND, NAME).await?;
        stage.change(KIND, NAME, &reflect(&Value::Null)).await?;
        stage.arrives(KIND, NAME, is_dish("stew")).await?;
        // What is listed no more is taken back.
        list(stage, false).await?;
        stage.stays_away(KIND, NAME).await?;
        list(stage, true).await?;
        stage.arrives(KIND, NAME, is_dish("stew")).await?;
        another_takes_its_place(stage).await?;
        stage.unmake(KIND, &[NAME]).await?;
        list(stage, false).await
    })
}

/// What was listed before is taken back, and comes again when it is listed in place of the other.
async fn another_takes_its_place(stage: &Stage) -> Result<()> {
    let plate = json!({"apiVersion": "example.org/v1", "kind": "Plate", "spec": {"size": "large"}});
    stage.make("Plate", NAME, plate).await?;
    list_all(stage, &["plates"]).await?;
    stage.arrives("Plate", NAME, |plate| plate["spec"]["size"] == "large").await?;
    stage.stays_away(KIND, NAME).await?;
    list(stage, true).await?;
    stage.arrives(KIND, NAME, is_dish("stew")).await?;
    stage.unmake("Plate", &[NAME]).await
}

async fn changes_arrive_but_for_the_status(stage: &Stage) -> Result<()> {
    let status = Patch::Merge(json!({"status": {"eaten": true}}));
    stage.here(KIND).patch_status(NAME, &PatchParams::default(), &status).await?;
    stage.change(KIND, NAME, &json!({"spec": {"dish": "stew"}})).await?;
    let copy = stage.arrives(KIND, NAME, is_dish("stew")).await?;
    ensure!(copy.get("status").is_none(), "{copy}");
    Ok(())
}

async fn whoever_meddles_is_put_right(stage: &Stage) -> Result<()> {
    let there = stage.there(KIND);
    let meddled = Patch::Merge(json!({"spec": {"dish": "theirs"}}));
    let meddled = json!(there.patch(NAME, &PatchParams::default(), &meddled).await?);
    ensure!(is_dish("theirs")(&meddled), "{meddled}");
    let copy = stage.arrives(KIND, NAME, is_dish("stew")).await?;
    there.delete(NAME, &DeleteParams::default()).await?;
    let is_another = |present: &Value| present["metadata"]["uid"] != copy["metadata"]["uid"];
    stage.arrives(KIND, NAME, |present| is_another(present) && is_dish("stew")(present)).await.map(drop)
}
