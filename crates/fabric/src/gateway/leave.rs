//! Tunnels that are to go: once the engine is without one, its TunnelEndpoint is let go, and only then may its networks
//! be given to another peer.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use ferro_api::names::finalizers;
use ferro_api::net::TunnelEndpoint;
use ferro_runtime::finalizer::{is_last_wish, without};
use ferro_runtime::shutdown::Tasks;
use kube::api::PatchParams;
use kube::{Api, Client, ResourceExt as _};
use tokio::sync::watch;
use tokio::time::sleep;
use tracing::{info, warn};

use super::notice::MANAGER;

/// How long to wait after a failure.
const PAUSE: Duration = Duration::from_secs(1);

/// Lets tunnels go.
pub(super) struct Leaver(watch::Sender<Vec<Arc<TunnelEndpoint>>>);

impl Leaver {
    /// The engine is without these.
    pub(super) fn let_go(&self, mut going: Vec<Arc<TunnelEndpoint>>) {
        going.retain(|endpoint| is_last_wish(&endpoint.metadata, finalizers::TUNNEL));
        self.0.send_if_modified(|present| {
            let is_new = *present != going;
            *present = going;
            is_new
        });
    }
}

/// Lets go of what it is told, until the tasks end.
pub(super) fn start(tasks: &Tasks, client: Client) -> Leaver {
    let (tell, told) = watch::channel(Vec::new());
    tasks.spawn("farewells", keep(client, told));
    Leaver(tell)
}

async fn keep(client: Client, mut told: watch::Receiver<Vec<Arc<TunnelEndpoint>>>) -> Result<()> {
    loop {
        let (going, mut failed) = (told.borrow_and_update().clone(), false);
        for endpoint in &going {
            if let Err(error) = let_go(&client, endpoint).await {
                let peer = &endpoint.spec.cluster_id;
                warn!(peer, error = format!("{error:#}"), "a tunnel cannot be let go; will be tried again");
                failed = true;
            }
        }
        if failed {
            sleep(PAUSE).await;
        } else {
            told.changed().await.context("nobody has tunnels any more")?;
        }
    }
}

async fn let_go(client: &Client, endpoint: &TunnelEndpoint) -> Result<()> {
    let namespace = endpoint.namespace().unwrap_or_default();
    let api: Api<TunnelEndpoint> = Api::namespaced(client.clone(), &namespace);
    let by = PatchParams { field_manager: Some(MANAGER.into()), ..PatchParams::default() };
    let patch = without(&endpoint.metadata, finalizers::TUNNEL)?;
    match api.patch_metadata(&endpoint.name_any(), &by, &patch).await {
        Ok(_) => info!(peer = endpoint.spec.cluster_id, "a tunnel is gone"),
        Err(kube::Error::Api(status)) if status.code == 404 => {}
        Err(error) => return Err(error).context("cannot change the TunnelEndpoint"),
    }
    Ok(())
}
