//! The other side of reflection: endpoints of a peer are out of use here as long as its tunnel is silent.
//!
//! The peer itself cannot do that, if it is cut off. `ferro_core::reflection::silence` says what to write; only slices that
//! a peer has reflected into the namespaces of its own Tenant are touched.

use std::collections::HashMap;
use std::time::Duration;

use anyhow::{Context, Result};
use ferro_api::names::labels;
use ferro_core::reflection::silence;
use ferro_peering::home::Home;
use ferro_runtime::queue::Queue;
use ferro_runtime::shutdown::Tasks;
use ferro_runtime::watch::{Limit, Watched};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{Patch, PatchParams};
use kube::runtime::watcher;
use kube::{Api, ResourceExt as _};
use tracing::warn;

use super::hand::MANAGER;
use crate::pods::outlook;

/// So many slices are worked on at once.
const AT_ONCE: usize = 16;
/// Pause after something that failed.
const RETRY: Duration = Duration::from_secs(1);

/// A slice: its namespace, and its name.
type Key = (String, String);

/// Keeps the endpoints of all peers in use exactly as long as these are heard, for ever.
pub async fn run(tasks: Tasks, home: Home) -> Result<()> {
    let reflected = watcher::Config::default().labels(&labels::REFLECTED_SLICE.selector());
    let slices: Watched<EndpointSlice> = Watched::start_limited(
        &tasks,
        "reflected slices",
        Api::all(home.client.clone()),
        reflected,
        (),
        Limit { trim: |slice| slice.ports = None, ..Limit::NONE },
    );
    home.ready().await?;
    home.namespaces.ready().await?;
    home.networks.ready().await?;
    slices.ready().await?;
    let own = home.own()?.signer.identity().id().to_string();
    let queue = Queue::default();
    tasks.spawn("changes of reflected slices", follow(slices.clone(), queue.clone()));
    tasks.spawn(
        "tunnels of reflected slices",
        listen(home.clone(), own.clone(), slices.clone(), queue.clone()),
    );
    queue.work(AT_ONCE, |key| look(&home, &own, &slices, key)).await;
    Ok(())
}

async fn follow(slices: Watched<EndpointSlice>, queue: Queue<Key>) -> Result<()> {
    let mut changes = slices.follow();
    loop {
        for (reference, _) in changes.take() {
            queue.push((reference.namespace.unwrap_or_default(), reference.name));
        }
        changes.changed().await?;
    }
}

/// When a peer falls silent, or is heard again, all its slices are looked at.
async fn listen(home: Home, own: String, slices: Watched<EndpointSlice>, queue: Queue<Key>) -> Result<()> {
    let (mut tunnels, mut peers) = (home.networks.tunnels.clone(), home.peers.clone());
    let mut heard: HashMap<String, bool> = HashMap::new();
    loop {
        tokio::select! {
            changed = tunnels.changed() => changed?,
            changed = peers.changed() => changed?,
        }
        let mut present = HashMap::new();
        for slice in slices.all() {
            let Some(peer) = labels::ORIGIN_ID.of(&slice.metadata) else { continue };
            let is_heard =
                *present.entry(peer.to_owned()).or_insert_with(|| outlook::network(&home, &own, peer).0);
            if heard.get(peer) != Some(&is_heard) {
                queue.push((slice.namespace().unwrap_or_default(), slice.name_any()));
            }
        }
        heard = present;
    }
}

async fn look(home: &Home, own: &str, slices: &Watched<EndpointSlice>, key: Key) -> Option<Duration> {
    let slice = slices.get(Some(&key.0), &key.1)?;
    let peer = labels::ORIGIN_ID.of(&slice.metadata)?;
    let namespace = home.namespaces.get(None, &key.0)?;
    if labels::TENANT.of(&namespace.metadata) != Some(peer) {
        return None;
    }
    let patch = silence::patch(&slice, outlook::network(home, own, peer).0)?;
    let how = PatchParams { field_manager: Some(MANAGER.into()), ..PatchParams::default() };
    let api: Api<EndpointSlice> = Api::namespaced(home.client.clone(), &key.0);
    match api.patch(&key.1, &how, &Patch::Merge(patch)).await {
        // The watch will show what it is now.
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => None,
        patched => {
            let error = patched.context("cannot take endpoints out of use, or into it").err()?;
            let (namespace, slice) = &key;
            warn!(namespace, slice, error = format!("{error:#}"), "will be tried again");
            Some(RETRY)
        }
    }
}
