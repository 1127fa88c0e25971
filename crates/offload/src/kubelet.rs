//! What API servers ask of the kubelet of a virtual node: logs, commands, ports.
//!
//! - Flow: one port of the process that leads answers for all virtual nodes. A request is asked again at the API server of
//!   the cluster where the pod runs, with what that cluster granted to this one; logs are passed through, and
//!   connections that are upgraded are made into one.
//! - Guarantees: callers are known by the authorities of this cluster or by a token, and have the right on the node of
//!   the pod, or are refused. Nothing is kept: whoever leads next answers at once.
//! - The port can be reached by everybody in the cluster: who is not known has limited time and few places.

mod cache;
mod callers;
mod door;
mod question;
mod refusal;
mod serving;
mod splice;
#[cfg(test)]
mod tests;
mod upgrade;
mod visit;

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use ferro_peering::keepsake::Keepsake;
use ferro_runtime::places::Places;
use ferro_runtime::shutdown::Tasks;
use ferro_runtime::tls;
use ferro_runtime::watch::Watched;
use kube::{Api, Client};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tracing::{debug, error, warn};

use self::callers::Callers;
use self::visit::{Desk, attend};

/// The port of all virtual nodes.
pub const PORT: u16 = 10250;

/// Connections of whom nothing is known yet, and those from one address: all may come from one API server.
const STRANGERS: usize = 256;
const STRANGERS_EACH: usize = 128;

/// Knows where pods run.
pub trait Directory: Send + Sync + 'static {
    /// The pod of a virtual node that has this name here.
    fn find(&self, namespace: &str, pod: &str) -> Option<Target>;
}

/// Where a pod runs.
#[derive(Clone)]
pub struct Target {
    /// The virtual node that it is bound to.
    pub node: String,
    /// The identifier that it has here.
    pub uid: String,
    /// What the cluster granted where it runs.
    pub keepsake: Arc<Keepsake>,
    /// Its namespace over there.
    pub namespace: String,
    /// Its name over there.
    pub pod: String,
}

/// Serves until the tasks end, at this address of the process. Call it only while this process leads; `ready` turns true
/// when nodes may name the address.
pub async fn serve(
    tasks: Tasks,
    client: Client,
    address: IpAddr,
    directory: Arc<dyn Directory>,
    ready: watch::Sender<bool>,
) -> Result<()> {
    let listener = tls::listen(SocketAddr::from((Ipv6Addr::UNSPECIFIED, PORT))).await?;
    let maps = Api::namespaced(client.clone(), door::NAMESPACE);
    let authorities = Watched::start(&tasks, "authorities of clients", maps, door::authorities());
    let (certificate, certificates) = watch::channel(None);
    let (tell, acceptor) = watch::channel(None);
    let mut first = acceptor.clone();
    let desk = Arc::new(Desk::new(directory, Callers::new(client.clone())));
    let announce = async {
        first.wait_for(Option::is_some).await.context("there is no door")?;
        ready.send_replace(true);
        std::future::pending().await
    };
    tokio::select! {
        result = serving::keep(client, address, certificate) => result,
        result = door::follow(certificates, authorities, tell) => result,
        result = accept(&listener, acceptor, desk) => result,
        result = announce => result,
    }
}

/// Takes connections; each has a task, and no task is left when this ends.
async fn accept(
    listener: &TcpListener,
    acceptor: watch::Receiver<Option<TlsAcceptor>>,
    desk: Arc<Desk>,
) -> Result<()> {
    let places = Places::new(STRANGERS, STRANGERS_EACH);
    let mut visits = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            Some(ended) = visits.join_next() => {
                match ended {
                    Ok(Ok(())) => {}
                    Ok(Err(error)) => debug!(error = format!("{error:#}"), "a visit failed"),
                    Err(error) => error!(%error, "a visit did not end as it should"),
                }
                continue;
            }
        };
        match accepted {
            Ok((stream, caller)) => {
                let acceptor = acceptor.borrow().clone();
                // Who has its share is sent away, so that it does not keep others waiting.
                if let (Some(acceptor), Some(place)) = (acceptor, places.take(caller.ip())) {
                    visits.spawn(attend(Arc::clone(&desk), acceptor, stream, place));
                }
            }
            Err(error) => {
                // Too many open files, as a rule: others must end first.
                warn!(%error, "cannot accept a connection");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}
