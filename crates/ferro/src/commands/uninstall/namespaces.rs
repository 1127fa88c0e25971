//! What namespaces carry for us: the label that asks for their offloading, and the mark by which the webhook knows them.
//!
//! The label would make an offloading again as soon as it is removed, so it goes first. The mark goes with the offloading;
//! where nobody was there to take it off, it goes last, when no policy keeps it in place any more.

use ferro_api::names::labels::{self, Mark};
use k8s_openapi::api::core::v1::Namespace;
use kube::Client;
use kube::api::{ListParams, Patch, PatchParams};
use serde_json::json;

use crate::calling;
use crate::inventory::{Item, Kind};
use crate::kube_errors::{Explain as _, found};
use crate::output;

/// Takes the wish to be offloaded off all namespaces.
pub(super) async fn unlabel(client: &Client) -> anyhow::Result<()> {
    let labelled = take_off(client, labels::ENABLED).await?;
    if labelled.is_empty() {
        return Ok(());
    }
    let names = calling::cut(labelled.iter().map(Item::name));
    output::line(&format!("took the label {} off the namespaces {names}", labels::ENABLED.key()))
}

/// Takes off the mark that nobody was there to take off.
pub(super) async fn unmark(client: &Client) -> anyhow::Result<()> {
    take_off(client, labels::OFFLOADED).await.map(drop)
}

/// Takes a mark off all namespaces that have it, and gives these back.
async fn take_off(client: &Client, mark: Mark) -> anyhow::Result<Vec<Item>> {
    let marked =
        Kind::cluster::<Namespace>().list(client, &ListParams::default().labels(&mark.selector())).await?;
    let patch = Patch::Merge(json!({"metadata": {"labels": {(mark.key()): null}}}));
    for item in &marked {
        let patched = item.api(client).patch_metadata(item.name(), &PatchParams::default(), &patch).await;
        found(patched).explain(|| format!("take the label {} off {item}", mark.key()))?;
    }
    Ok(marked)
}
