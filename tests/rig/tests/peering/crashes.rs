//! A controller that ends after its n-th write, for every n: whatever was cut off, the next start comes to the same
//! end.

use std::sync::atomic::Ordering;

use anyhow::{Context, Result, ensure};
use ferro_api::discovery::PeeringState::{Established, None as Unpeered};
use futures::future::try_join_all;
use rig::fuse::Fuse;
use rig::objects::{await_same, everything};
use rig::site::{Site, clusters, ferro, knows_itself};
use rig::wait::block_on;
use serde_json::json;

/// So many pairs run side by side, since much of the time is spent waiting for Kubernetes to empty a namespace.
const PAIRS: i64 = 4;

/// Two sites that peer and part again and again.
struct Pair {
    rome: Site,
    turin: Site,
}

impl Pair {
    fn sites(&mut self) -> [&mut Site; 2] {
        [&mut self.rome, &mut self.turin]
    }

    /// Peers, unpeers and removes; a controller ends when its fuse breaks, and another one starts.
    async fn cycle(&mut self, fuses: &[Fuse; 2]) -> Result<()> {
        for (site, fuse) in self.sites().into_iter().zip(fuses) {
            site.run(fuse.clone()).await?;
        }
        let remote = self.turin.cluster.kubeconfig.display().to_string();
        ferro(&self.rome.cluster, &["peer", "--remote-kubeconfig", &remote]).await?;
        self.until(fuses, async |pair: &Self| {
            pair.rome.is(&pair.turin, Established, Unpeered).await?;
            pair.turin.is(&pair.rome, Unpeered, Established).await
        })
        .await?;
        self.rome.change(&self.turin, json!({"spec": {"join": false}})).await?;
        self.until(fuses, async |pair: &Self| {
            pair.rome.is(&pair.turin, Unpeered, Unpeered).await?;
            pair.turin.is(&pair.rome, Unpeered, Unpeered).await
        })
        .await?;
        self.rome.remove(&self.turin).await?;
        self.turin.remove(&self.rome).await?;
        self.until(fuses, async |pair: &Self| {
            pair.rome.is_alone().await?;
            pair.turin.is_alone().await
        })
        .await
    }

    /// Waits for a state, and starts again who has ended.
    async fn until(&mut self, fuses: &[Fuse; 2], reached: impl AsyncFn(&Self) -> Result<()>) -> Result<()> {
        let begin = std::time::Instant::now();
        loop {
            for (site, fuse) in self.sites().into_iter().zip(fuses) {
                if fuse.is_broken() && !site.was_restarted() {
                    site.restart().await?;
                }
            }
            match reached(self).await {
                Ok(()) => return Ok(()),
                Err(error) if begin.elapsed() > rig::wait::GENEROUSLY => return Err(error),
                Err(_) => tokio::time::sleep(rig::wait::GLANCE).await,
            }
        }
    }
}

/// Who ends after its n-th write: both in one cycle; in the long form each of them while the other one lives.
fn endings(n: i64) -> Vec<[Fuse; 2]> {
    if std::env::var_os("SOAK").is_none() {
        return vec![[Fuse::after(n), Fuse::after(n)]];
    }
    vec![[Fuse::after(n), Fuse::none()], [Fuse::none(), Fuse::after(n)]]
}

/// Ends controllers after every n-th write of which the remainder is `part`.
async fn every_write(part: i64) -> Result<()> {
    let name = format!("crash-{part}");
    let topology = clusters(&name, &["rome", "turin"]).await?;
    let (a, b) = (topology.cluster("rome")?, topology.cluster("turin")?);
    let mut pair = Pair { rome: Site::start(a, &[]).await?, turin: Site::start(b, &[]).await? };
    knows_itself(&pair.rome).await?;
    knows_itself(&pair.turin).await?;
    let whole = [Fuse::none(), Fuse::none()];
    pair.cycle(&whole).await.context("without any crash")?;
    let before = [everything(a).await?, everything(b).await?];
    let writes = whole.map(|fuse| fuse.written.load(Ordering::SeqCst));
    ensure!(writes.iter().all(|writes| *writes > 15), "only {writes:?} writes");
    for n in (1..=writes[0].max(writes[1])).filter(|n| n % PAIRS == part) {
        for fuses in endings(n) {
            let ended = pair.cycle(&fuses).await;
            ended.with_context(|| format!("ended after write {n} of {writes:?}"))?;
        }
    }
    println!("{name}: ended after its part of {writes:?} writes, and came to the right end every time");
    await_same(a, &before[0]).await?;
    await_same(b, &before[1]).await
}

#[test]
fn whoever_ends_after_any_write_comes_to_the_same_end() -> Result<()> {
    block_on(try_join_all((0..PAIRS).map(every_write))).map(drop)
}
