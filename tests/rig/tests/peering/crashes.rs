//! A controller that ends after its n-th write, for every n: whatever was cut off, the next start comes to the same
//! end.

use std::sync::atomic::Ordering;

use anyhow::{Context, Result, ensure};
use ferro_api::discovery::PeeringState::{Established, None as Unpeered};
use futures::future::try_join_all;
use rig::objects::{await_same, everything};
use rig::wait::block_on;
use serde_json::json;

use crate::site::{Site, clusters, ferro, knows_itself};
use rig::fuse::Fuse;

/// Which of the two ends early.
#[derive(Clone, Copy)]
enum Victim {
    Consumer,
    Provider,
}

/// Two sites that peer and part again and again.
struct Pair {
    rome: Site,
    turin: Site,
}

impl Pair {
    fn victim(&mut self, victim: Victim) -> &mut Site {
        match victim {
            Victim::Consumer => &mut self.rome,
            Victim::Provider => &mut self.turin,
        }
    }

    /// Peers, unpeers and removes; the victim's controller ends when the fuse breaks, and another one starts.
    async fn cycle(&mut self, victim: Victim, fuse: &Fuse) -> Result<()> {
        self.victim(victim).run(fuse.clone()).await?;
        let remote = self.turin.cluster.kubeconfig.display().to_string();
        ferro(&self.rome.cluster, &["peer", "--remote-kubeconfig", &remote]).await?;
        self.until(victim, fuse, async |pair: &Self| {
            pair.rome.is(&pair.turin, Established, Unpeered).await?;
            pair.turin.is(&pair.rome, Unpeered, Established).await
        })
        .await?;
        self.rome.change(&self.turin, json!({"spec": {"join": false}})).await?;
        self.until(victim, fuse, async |pair: &Self| {
            pair.rome.is(&pair.turin, Unpeered, Unpeered).await?;
            pair.turin.is(&pair.rome, Unpeered, Unpeered).await
        })
        .await?;
        self.rome.remove(&self.turin).await?;
        self.turin.remove(&self.rome).await?;
        self.until(victim, fuse, async |pair: &Self| {
            pair.rome.is_alone().await?;
            pair.turin.is_alone().await
        })
        .await
    }

    /// Waits for a state, and starts the victim again when it has ended.
    async fn until(
        &mut self,
        victim: Victim,
        fuse: &Fuse,
        reached: impl AsyncFn(&Self) -> Result<()>,
    ) -> Result<()> {
        let begin = std::time::Instant::now();
        loop {
            if fuse.is_broken() && !self.victim(victim).was_restarted() {
                self.victim(victim).restart().await?;
            }
            match reached(self).await {
                Ok(()) => return Ok(()),
                Err(error) if begin.elapsed() > rig::wait::GENEROUSLY => return Err(error),
                Err(_) => tokio::time::sleep(rig::wait::GLANCE).await,
            }
        }
    }
}

/// Ends the victim after every n-th write of which the remainder by two is `part`: two halves run side by side, since
/// much of the time is spent waiting for Kubernetes to empty a namespace.
async fn every_write(name: &str, victim: Victim, part: i64) -> Result<()> {
    let topology = clusters(name, &["rome", "turin"]).await?;
    let (a, b) = (topology.cluster("rome")?, topology.cluster("turin")?);
    let mut pair = Pair { rome: Site::start(a, &[]).await?, turin: Site::start(b, &[]).await? };
    knows_itself(&pair.rome).await?;
    knows_itself(&pair.turin).await?;
    let whole = Fuse::none();
    pair.cycle(victim, &whole).await.context("without any crash")?;
    let before = [everything(a).await?, everything(b).await?];
    let writes = whole.written.load(Ordering::SeqCst);
    ensure!(writes > 15, "only {writes} writes");
    for n in (1..=writes).filter(|n| n % 2 == part) {
        let ended = pair.cycle(victim, &Fuse::after(n)).await;
        ended.with_context(|| format!("ended after write {n} of {writes}"))?;
    }
    println!("{name}: ended after half of {writes} writes each, and came to the right end every time");
    await_same(a, &before[0]).await?;
    await_same(b, &before[1]).await
}

#[test]
fn a_consumer_that_ends_after_any_write_comes_to_the_same_end() -> Result<()> {
    let halves = [("crash-c0", 0), ("crash-c1", 1)];
    block_on(try_join_all(halves.map(|(name, part)| every_write(name, Victim::Consumer, part)))).map(drop)
}

#[test]
fn a_provider_that_ends_after_any_write_comes_to_the_same_end() -> Result<()> {
    let halves = [("crash-p0", 0), ("crash-p1", 1)];
    block_on(try_join_all(halves.map(|(name, part)| every_write(name, Victim::Provider, part)))).map(drop)
}
