//! The three clusters, and what is done to them as wholes: installing, peering, cutting off, healing, parting.

use anyhow::{Context, Result, ensure};
use futures::future::{try_join_all, try_join3};
use rig::installation::{ferro, ferro_with_input, install, load, load_shop};
use rig::lan::Loss;
use rig::plan::ClusterSpec;
use rig::topology::{Cluster, Topology};
use rig::tunnels::connected;
use rig::wait::eventually;
use serde_json::Value;

use crate::NAME;
use crate::story::Story;

/// Where the shop is at home, and the two that lend a hand.
pub const HOME: &str = "rome";
/// The one that is cut off.
pub const LOST: &str = "turin";
/// The one that stays.
pub const OTHER: &str = "milan";
/// All of them.
pub const ALL: [&str; 3] = [HOME, LOST, OTHER];

/// They announce themselves on the LAN and look for others there, but join nobody by themselves.
const FINDABLE: [&str; 4] =
    ["--set", "discovery.config.announce=true", "--set", "discovery.config.search=true"];

/// Three running clusters.
pub struct Clusters {
    topology: Topology,
}

impl Clusters {
    /// Starts them, with the images of ferro and of the shop on their nodes.
    pub async fn start(story: &Story, keep: bool) -> Result<Self> {
        story.chapter("three clusters");
        story.say("starting three real Kubernetes clusters with the same pod and service networks");
        let specs = ALL.map(|name| ClusterSpec::named(name).with_same_cidrs()).into();
        let teller = story.clone();
        let tell = move |cluster: &str, step: &str| teller.say(format!("{cluster}: {step}"));
        let topology = if keep {
            Topology::keep(NAME, specs, tell).await?
        } else {
            Topology::up_telling(NAME, specs, tell).await?
        };
        story.say("loading the images of ferro and of the shop, made from these sources, onto the nodes");
        load(&topology).await?;
        load_shop(&topology).await?;
        Ok(Self { topology })
    }

    /// One of them.
    pub fn get(&self, name: &str) -> Result<&Cluster> {
        self.topology.cluster(name)
    }

    /// The one at home.
    pub fn home(&self) -> Result<&Cluster> {
        self.get(HOME)
    }

    /// Installs ferro everywhere, and waits until home has found the others.
    pub async fn install(&self, story: &Story) -> Result<()> {
        story.chapter("installing");
        let (home, lost, other) = (self.home()?, self.get(LOST)?, self.get(OTHER)?);
        story.say(format!(
            "$ ferro install --cluster-name {HOME} {} --wait    # and so on each",
            FINDABLE.join(" ")
        ));
        try_join3(install(home, &FINDABLE), install(lost, &FINDABLE), install(other, &FINDABLE)).await?;
        let found = eventually("home finds the others on the LAN", || async {
            let peers = ferro(home, &["peers"]).await?;
            ensure!(peers.contains(LOST) && peers.contains(OTHER), "it knows only: {peers}");
            Ok(peers)
        });
        story.show("ferro peers", &found.await?);
        Ok(())
    }

    /// Joins all three: one pair by the keys to both, one by a token, and the two others with each other.
    pub async fn peer(&self, story: &Story) -> Result<()> {
        story.chapter("peering");
        let (home, lost, other) = (self.home()?, self.get(LOST)?, self.get(OTHER)?);
        let remote = |cluster: &Cluster| cluster.kubeconfig.display().to_string();
        let both =
            |to: &str| ["peer", "--remote-kubeconfig", to, "--bidirectional", "--wait"].map(str::to_owned);
        let told = run(home, &both(&remote(lost))).await?;
        story
            .show(&format!("ferro peer --remote-kubeconfig {LOST}.conf --bidirectional --wait"), last(&told));
        self.peer_by_token(story).await?;
        let told = run(lost, &both(&remote(other))).await?;
        story.show(&format!("ferro --context {LOST} peer --remote-kubeconfig {OTHER}.conf …"), last(&told));
        let nodes = home.kubectl(&["get", "nodes", "-L", "liqo.io/type"]).await?;
        ensure!(
            nodes.matches("virtual-node").count() == 2,
            "{HOME} does not have two virtual nodes: {nodes}"
        );
        story.show("kubectl get nodes -L liqo.io/type", &nodes);
        self.joined().await?;
        story.show("ferro network", &ferro(home, &["network"]).await?);
        Ok(())
    }

    /// A token of the one lets the other in, and is on no command line.
    async fn peer_by_token(&self, story: &Story) -> Result<()> {
        let (home, other) = (self.home()?, self.get(OTHER)?);
        let printed: Value = serde_json::from_str(&ferro(other, &["token", "--output=json"]).await?)?;
        let token = printed["token"].as_str().context("no token is printed")?;
        ferro_with_input(home, &["add", "--token-stdin"], token).await?;
        story
            .say(format!("$ ferro token --context {OTHER} | bash    # a token for one cluster, for an hour"));
        let told = ferro(home, &["peer", OTHER, "--wait"]).await?;
        story.show(&format!("ferro peer {OTHER} --wait"), last(&told));
        Ok(())
    }

    /// Waits until all tunnels carry packets, from both ends.
    pub async fn joined(&self) -> Result<()> {
        let pairs = ALL.iter().flat_map(|from| ALL.iter().map(move |to| (*from, *to)));
        let tunnels = pairs
            .filter(|(from, to)| from != to)
            .map(|(from, to)| async move { connected(self.get(from)?, self.get(to)?).await });
        try_join_all(tunnels).await.map(drop)
    }

    /// Cuts one cluster off from the others.
    pub async fn cut(&self) -> Result<()> {
        for other in [HOME, OTHER] {
            self.topology.cut(LOST, other, Loss::CUT, false).await?;
        }
        let lost = self.get(LOST)?.plan.control_plane().to_string();
        let ping = ["busybox", "ping", "-c", "1", "-W", "1", &lost];
        ensure!(self.home()?.on_node(1, &ping).await.is_err(), "the cut does not cut");
        Ok(())
    }

    /// Mends that.
    pub async fn heal(&self) -> Result<()> {
        for other in [HOME, OTHER] {
            self.topology.heal(LOST, other).await?;
        }
        Ok(())
    }

    /// Ends the peering of home with another; pods that run there come home.
    pub async fn unpeer(&self, story: &Story, peer: &str) -> Result<()> {
        let home = self.home()?;
        let told = ferro(home, &["unpeer", peer, "--bidirectional", "--wait"]).await?;
        story.show(&format!("ferro unpeer {peer} --bidirectional --wait"), last(&told));
        let nodes = home.kubectl(&["get", "nodes", "-o", "name"]).await?;
        ensure!(!nodes.contains(&format!("liqo-{peer}")), "a virtual node is left: {nodes}");
        Ok(())
    }

    /// Takes everything out of all clusters again.
    pub async fn uninstall(&self, story: &Story) -> Result<()> {
        // Each says for itself that it wants nothing of the others any more.
        for (from, to) in [(LOST, HOME), (LOST, OTHER), (OTHER, HOME), (OTHER, LOST)] {
            ferro(self.get(from)?, &["unpeer", to, "--bidirectional", "--wait"]).await?;
        }
        let clear = ALL.map(|name| async move {
            let cluster = self.get(name)?;
            ferro(cluster, &["uninstall", "--yes", "--wait"]).await?;
            let left = cluster.kubectl(&["get", "namespaces,nodes,crds", "-o", "name"]).await?;
            ensure!(!left.contains("liqo") && !left.contains("shop-"), "something is left on {name}: {left}");
            Ok(())
        });
        try_join_all(clear).await?;
        story.say("$ ferro uninstall --yes --wait    # on each: no node, no namespace, no kind is left");
        Ok(())
    }
}

async fn run(cluster: &Cluster, words: &[String]) -> Result<String> {
    ferro(cluster, &words.iter().map(String::as_str).collect::<Vec<_>>()).await
}

fn last(text: &str) -> &str {
    text.trim_end().lines().last().unwrap_or_default()
}
