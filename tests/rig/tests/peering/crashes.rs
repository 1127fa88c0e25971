//! A controller that ends after its n-th write of every step, for every n: whatever was cut off, the next start comes to
//! the same end.

use anyhow::{Context, Result, ensure};
use ferro_api::discovery::PeeringState::{Established, None as Unpeered};
use futures::future::try_join_all;
use rig::crashes::{Fuses, Writes, all_of, end_after, most};
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

    /// Peers, unpeers and removes; a controller ends when its fuse breaks, and another one starts. Gives what was written.
    async fn cycle(&mut self, ends: &Writes) -> Result<Writes> {
        let mut fuses = Fuses::begin(self.sites(), Fuse::after, ends).await?;
        let remote = self.turin.cluster.kubeconfig.display().to_string();
        ferro(&self.rome.cluster, &["peer", "--remote-kubeconfig", &remote]).await?;
        self.until(&mut fuses, async |pair: &Self| {
            pair.rome.is(&pair.turin, Established, Unpeered).await?;
            pair.turin.is(&pair.rome, Unpeered, Established).await
        })
        .await?;
        fuses.step(self.sites()).await?;
        self.rome.change(&self.turin, json!({"spec": {"join": false}})).await?;
        self.until(&mut fuses, async |pair: &Self| {
            pair.rome.is(&pair.turin, Unpeered, Unpeered).await?;
            pair.turin.is(&pair.rome, Unpeered, Unpeered).await
        })
        .await?;
        fuses.step(self.sites()).await?;
        self.rome.remove(&self.turin).await?;
        self.turin.remove(&self.rome).await?;
        self.until(&mut fuses, async |pair: &Self| {
            pair.rome.is_alone().await?;
            pair.turin.is_alone().await
        })
        .await?;
        Ok(fuses.written())
    }

    /// Waits for a state, and starts again who has ended.
    async fn until(
        &mut self,
        fuses: &mut Fuses<'_>,
        reached: impl AsyncFn(&Self) -> Result<()>,
    ) -> Result<()> {
        let begin = std::time::Instant::now();
        loop {
            fuses.restart(self.sites()).await?;
            match reached(self).await {
                Ok(()) => return Ok(()),
                Err(error) if begin.elapsed() > rig::wait::GENEROUSLY => return Err(error),
                Err(_) => tokio::time::sleep(rig::wait::GLANCE).await,
            }
        }
    }
}

/// Ends controllers after every n-th write of which the remainder is `part`.
async fn every_write(part: i64) -> Result<()> {
    let name = format!("crash-{part}");
    let topology = clusters(&name, &["rome", "turin"]).await?;
    let (a, b) = (topology.cluster("rome")?, topology.cluster("turin")?);
    let (rome, turin) = tokio::try_join!(Site::start(a, &[]), Site::start(b, &[]))?;
    tokio::try_join!(knows_itself(&rome), knows_itself(&turin))?;
    let mut pair = Pair { rome, turin };
    let writes = pair.cycle(&Writes::new()).await.context("without any crash")?;
    let before = [everything(a).await?, everything(b).await?];
    ensure!([0, 1].iter().all(|site| all_of(&writes, *site) > 15), "only {writes:?} writes");
    let numbers = (1..=most(&writes)).filter(|n| n % PAIRS == part);
    end_after(numbers, &writes, async |ends: &Writes| pair.cycle(ends).await).await?;
    println!("{name}: ended after its part of {writes:?} writes, and came to the right end every time");
    await_same(a, &before[0]).await?;
    await_same(b, &before[1]).await
}

#[test]
fn whoever_ends_after_any_write_comes_to_the_same_end() -> Result<()> {
    block_on(try_join_all((0..PAIRS).map(every_write))).map(drop)
}
