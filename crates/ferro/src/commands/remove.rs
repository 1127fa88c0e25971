//! `ferro remove`: ends all with another cluster, takes back its rights, and forgets it.

use ferro_api::discovery::ForeignCluster;
use ferro_api::names::annotations;
use kube::api::{DeleteParams, Patch};
use kube::{Client, ResourceExt as _};
use serde_json::{Value, json};

use super::unpeer::{self, Force};
use crate::complete;
use crate::kube_args::KubeArgs;
use crate::kube_errors::{Explain as _, found};
use crate::output::Show;
use crate::peers;
use crate::progress::{Patience, Watched};
use crate::wait::Deadline;

/// Forget another cluster, after all peerings with it are ended
///
/// Ends both directions, takes back the rights that the peer has here, and removes its namespace. A cluster that
/// announces itself on the local network is found again.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  ferro remove milan --wait

  A peer that is gone for good:
    ferro remove milan --force")]
pub(crate) struct Args {
    /// The peer: its name, the name or ID of its cluster, or the beginning of one
    #[arg(add = complete::peer_names())]
    peer: String,

    #[command(flatten)]
    force: Force,

    #[command(flatten)]
    show: Show,

    #[command(flatten)]
    patience: Patience,

    #[command(flatten)]
    kube: KubeArgs,
}

/// Removes a peer.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    super::block_on(remove(args))
}

async fn remove(args: &Args) -> anyhow::Result<()> {
    let client = args.kube.client().await?;
    let peer = peers::meant(&client, Some(&args.peer)).await?;
    let name = peer.name_any();
    let loss = unpeer::loss(&client, &peer).await?;
    args.force.confirm(&unpeer::warning(&name), loss.as_deref())?;
    let deadline = Deadline::after(args.patience.timeout);
    let peer = end(&client, peer, args.force.force).await?;
    if !args.patience.wait {
        let said = format!("{name} is being removed; see how it goes with 'ferro peers', or use --wait");
        return args.show.result(&peer, &said);
    }
    Watched::new(&client, &name).gone(peer.uid().as_deref(), deadline).await?;
    args.show.result(&peer, &format!("{name} is removed"))
}

/// Deletes the peer, and then says whether by force: force is for what is being ended, and the controller takes it off a
/// peer that stays.
async fn end(client: &Client, peer: ForeignCluster, force: bool) -> anyhow::Result<ForeignCluster> {
    let name = peer.name_any();
    let deleted = found(peers::api(client).delete(&name, &DeleteParams::background()).await);
    deleted.map(drop).explain(|| format!("remove the peer {name}"))?;
    if !force {
        return Ok(peer);
    }
    match peers::api(client).patch(&name, &peers::how(), &Patch::Merge(forced(&peer))).await {
        // It is gone already, and another one may have its name.
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(peer),
        forced => forced.explain(|| format!("remove the peer {name} by force")),
    }
}

/// Force for just this peer.
fn forced(peer: &ForeignCluster) -> Value {
    json!({"metadata": {"uid": peer.uid(), "annotations": {(annotations::FORCE.key()): "true"}}})
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use http::{Method, Request, Response};
    use kube::client::{Body, ClientBuilder};
    use serde_json::json;

    use super::{end, forced};
    use crate::peers::tests::peer;

    /// What is asked of the API server when a peer is removed.
    async fn asked(force: bool) -> Vec<Method> {
        let asked: Arc<Mutex<Vec<Method>>> = Arc::default();
        let noted = Arc::clone(&asked);
        let milan = || peer("milan", &json!({}), &json!({}));
        let answer = tower::service_fn(move |request: Request<Body>| {
            noted.lock().unwrap().push(request.method().clone());
            std::future::ready(Response::builder().body(Body::from(json!(milan()).to_string().into_bytes())))
        });
        end(&ClientBuilder::new(answer, "liqo").build(), milan(), force).await.unwrap();
        let asked = asked.lock().unwrap();
        asked.clone()
    }

    #[tokio::test]
    async fn force_follows_the_deletion_so_that_the_controller_does_not_take_it_off() {
        assert_eq!(asked(true).await, [Method::DELETE, Method::PATCH]);
        assert_eq!(asked(false).await, [Method::DELETE]);
    }

    #[test]
    fn force_is_for_one_peer_and_not_for_the_next_of_its_name() {
        let mut milan = peer("milan", &json!({}), &json!({}));
        milan.metadata.uid = Some("1".into());
        assert_eq!(
            forced(&milan),
            json!({"metadata": {"uid": "1", "annotations": {"liqo.io/force": "true"}}})
        );
    }
}
