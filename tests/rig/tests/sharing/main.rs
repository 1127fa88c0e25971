//! Sharing between real API servers: who is let in and accepted, how much each is offered, and until when.

mod keepalive;
mod offers;
mod policies;

use anyhow::{Context, Result, ensure};
use ferro_api::discovery::AuthState;
use ferro_api::names::labels;
use ferro_api::sharing::ResourceOffer;
use futures::future::try_join_all;
use k8s_openapi::api::core::v1::{Node, NodeCondition};
use kube::api::ListParams;
use kube::{Api, ResourceExt as _};
use rig::installation::ferro_with_input;
use rig::site::{Site, clusters, ferro, knows_itself};
use rig::topology::Topology;
use rig::wait::eventually;
use serde_json::{Value, json};
use tokio::sync::{Semaphore, SemaphorePermit};

/// Tests take turns: few clusters at a time are quicker than many.
static TURN: Semaphore = Semaphore::const_new(1);

/// Clusters with ferro, for one test.
struct Stage {
    /// In the order of their names as they were given.
    sites: Vec<Site>,
    _topology: Topology,
    _turn: SemaphorePermit<'static>,
}

impl Stage {
    /// Bare clusters, each with ferro and these settings.
    async fn set(name: &str, specs: &[(&str, &[&str])]) -> Result<Self> {
        let turn = TURN.acquire().await?;
        let names: Vec<&str> = specs.iter().map(|(name, _)| *name).collect();
        let topology = clusters(name, &names).await?;
        let start = async |(name, settings): &(&str, &[&str])| {
            let site = Site::start(topology.cluster(name)?, settings).await?;
            knows_itself(&site).await?;
            Ok::<_, anyhow::Error>(site)
        };
        let sites = try_join_all(specs.iter().map(start)).await?;
        Ok(Self { sites, _topology: topology, _turn: turn })
    }

    fn two(&mut self) -> Result<[&mut Site; 2]> {
        self.sites.iter_mut().collect::<Vec<_>>().try_into().ok().context("there are not two")
    }

    fn three(&mut self) -> Result<[&mut Site; 3]> {
        self.sites.iter_mut().collect::<Vec<_>>().try_into().ok().context("there are not three")
    }
}

impl Drop for Stage {
    /// The roles end with their clusters; the addresses are soon those of others.
    fn drop(&mut self) {
        for mut site in self.sites.drain(..) {
            tokio::spawn(async move { site.stop().await });
        }
    }
}

/// A token that lets one cluster in.
async fn token(provider: &Site) -> Result<String> {
    let printed: Value = serde_json::from_str(&ferro(&provider.cluster, &["token", "--output=json"]).await?)?;
    Ok(printed["token"].as_str().context("no token is printed")?.to_owned())
}

/// Gives a token to a cluster, as a person would; the token is on no command line.
async fn add(consumer: &Site, token: &str, arguments: &[&str]) -> Result<()> {
    let arguments = [&["add", "--token-stdin"][..], arguments].concat();
    ferro_with_input(&consumer.cluster, &arguments, &format!("{token}\n")).await.map(drop)
}

/// Lets a consumer in with a token, which decides nothing else, and has it ask for resources.
async fn ask(consumer: &Site, provider: &Site) -> Result<()> {
    add(consumer, &token(provider).await?, &["--name", &provider.name]).await?;
    ferro(&consumer.cluster, &["peer", &provider.name]).await.map(drop)
}

/// What `kubectl describe` shows of a peer: its state, and its Events.
async fn described(site: &Site, peer: &Site) -> Result<(String, String)> {
    let name = site.peer(peer).await?.name_any();
    let shown = site.cluster.kubectl(&["describe", "foreigncluster", &name]).await?;
    let (state, events) = shown.split_once("\nEvents:").context("no Events are shown")?;
    Ok((state.to_owned(), events.to_owned()))
}

/// Waits until `kubectl describe` shows a condition with this reason, and a message with these words.
async fn shows(site: &Site, peer: &Site, condition: &str, reason: &str, words: &[&str]) -> Result<()> {
    block_says(site, peer, ("Type", condition), reason, words).await
}

/// Waits until `kubectl describe` shows what came of authentication, for this reason, with these words.
async fn shows_authentication(
    site: &Site,
    peer: &Site,
    state: AuthState,
    reason: &str,
    words: &[&str],
) -> Result<()> {
    let state = serde_json::to_value(state)?;
    block_says(site, peer, ("State", state.as_str().unwrap_or_default()), reason, words).await
}

async fn block_says(
    site: &Site,
    peer: &Site,
    last_line: (&str, &str),
    reason: &str,
    words: &[&str],
) -> Result<()> {
    let what = format!("{} shows {last_line:?} of {} with {reason}", site.name, peer.name);
    eventually(&what, || async {
        let (state, _) = described(site, peer).await?;
        let (shown, message) = block(&state, last_line).with_context(|| state.clone())?;
        ensure!(shown == reason, "the reason is {shown}: {message}");
        for words in words {
            ensure!(message.contains(words), "not \"{words}\", but: {message}");
        }
        Ok(())
    })
    .await
}

/// Reason and message of the block that ends with this line; kubectl sorts the lines of a block.
fn block<'a>(text: &'a str, last_line: (&str, &str)) -> Option<(&'a str, &'a str)> {
    let (mut reason, mut message) = (None, None);
    for (key, value) in text.lines().filter_map(|line| line.trim().split_once(':')) {
        match (key, value.trim()) {
            ("Reason", value) => reason = Some(value),
            ("Message", value) => message = Some(value),
            line if line == last_line => return reason.zip(message),
            _ => {}
        }
    }
    None
}

/// The identifier of another cluster.
async fn id_of(site: &Site, other: &Site) -> Result<String> {
    let identity = site.peer(other).await?.spec.cluster_identity;
    Ok(identity.context("it is not known who the peer is")?.cluster_id)
}

/// The node that stands for another cluster.
async fn node_of(site: &Site, other: &Site) -> Result<Node> {
    let nodes: Api<Node> = Api::all(site.admin.clone());
    let of_other = labels::REMOTE_ID.selector(&id_of(site, other).await?);
    let node = nodes.list(&ListParams::default().labels(&of_other)).await?.items.pop();
    node.with_context(|| format!("{} has no node for {}", site.name, other.name))
}

/// The offer of another cluster, as it arrived.
async fn offer_of(consumer: &Site, provider: &Site) -> Result<ResourceOffer> {
    let offers: Api<ResourceOffer> = Api::all(consumer.admin.clone());
    let of_provider = labels::ORIGIN_ID.selector(&id_of(consumer, provider).await?);
    let offer = offers.list(&ListParams::default().labels(&of_provider)).await?.items.pop();
    offer.with_context(|| format!("{} has no offer of {}", consumer.name, provider.name))
}

/// Whether the node that stands for another cluster is ready.
async fn readiness(site: &Site, other: &Site) -> Result<NodeCondition> {
    let conditions = node_of(site, other).await?.status.and_then(|status| status.conditions);
    let ready = conditions.into_iter().flatten().find(|condition| condition.type_ == "Ready");
    ready.context("the node does not say whether it is ready")
}

/// Waits until the node that stands for another cluster is as ready as this.
async fn is_ready(site: &Site, other: &Site, status: &str, reason: &str) -> Result<()> {
    eventually(&format!("the node for {} is {reason}", other.name), || async {
        let ready = readiness(site, other).await?;
        ensure!(ready.status == status && ready.reason.as_deref() == Some(reason), "{ready:?}");
        Ok(())
    })
    .await
}

/// Changes the configuration of a cluster, as a user would.
async fn configure(site: &Site, spec: &Value) -> Result<()> {
    let patch = json!({"spec": spec}).to_string();
    let arguments = ["patch", "clusterconfig", "liqo-configuration", "--type=merge", "--patch", &patch];
    site.cluster.kubectl(&arguments).await.map(drop)
}
