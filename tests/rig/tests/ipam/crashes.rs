//! An address manager that ends after its n-th write, for every n: no address is given twice, and none is lost.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::atomic::Ordering;

use anyhow::{Context, Result, ensure};
use futures::future::join_all;
use kube::api::ListParams;
use rig::addresses::Manner;
use rig::wait::{block_on, eventually};

use crate::stage::Stage;
use rig::fuse::Fuse;

/// As many as need several objects of the storage.
const ENDPOINTS: u16 = 300;

fn endpoint(number: u16) -> IpAddr {
    let [high, low] = number.to_be_bytes();
    [172, 18, high, low].into()
}

/// What is asked, step by step; each may be asked again.
#[derive(Clone, Copy, Debug)]
enum Step {
    Meet(&'static str, u8),
    Map(&'static str, u16, u16),
    Unmap(&'static str, u16, u16),
    Release(&'static str),
}

const STEPS: [Step; 8] = [
    Step::Meet("rome", 1),
    Step::Meet("turin", 2),
    Step::Map("rome", 0, ENDPOINTS),
    Step::Map("turin", 100, ENDPOINTS),
    Step::Unmap("rome", 0, 150),
    Step::Map("rome", 0, 20),
    Step::Release("turin"),
    Step::Unmap("rome", 0, 10),
];

impl Stage {
    async fn step(&self, step: Step) -> Result<()> {
        match step {
            Step::Meet(peer, number) => self.meet(peer, number).await,
            Step::Release(peer) => Ok(self.handle.release(peer).await?),
            Step::Map(peer, from, to) => {
                let mapped = (from..to).map(|number| self.handle.map(peer, endpoint(number)));
                join_all(mapped).await.into_iter().try_for_each(|mapped| mapped.map(drop))?;
                Ok(())
            }
            Step::Unmap(peer, from, to) => {
                let unmapped = (from..to).map(|number| self.handle.unmap(peer, endpoint(number)));
                join_all(unmapped).await.into_iter().collect::<Result<(), _>>()?;
                Ok(())
            }
        }
    }

    /// Asks all, and again from where it was cut off.
    async fn cycle(&mut self, fuse: Fuse) -> Result<()> {
        // The first start may be cut off, too.
        if self.begin_anew(fuse).await.is_err() {
            self.restart(Fuse::none()).await?;
        }
        for step in STEPS {
            self.insist(step).await?;
        }
        let stored = self.stored().await?;
        let left: BTreeSet<String> =
            (10..20).chain(150..ENDPOINTS).map(|number| endpoint(number).to_string()).collect();
        ensure!(stored.keys().cloned().collect::<BTreeSet<_>>() == left, "{} are left", stored.len());
        ensure!(stored.values().all(|(_, peers)| peers.len() == 1 && peers.contains("rome")));
        self.insist(Step::Release("rome")).await?;
        ensure!(self.stored().await?.is_empty(), "something is left");
        // What was cut off while it cleared up is found by the next one.
        self.restart(Fuse::none()).await?;
        eventually("no NatMapping is left", || async {
            let left = self.mappings().list(&ListParams::default()).await?.items.len();
            ensure!(left == 0, "{left} are left");
            Ok(())
        })
        .await
    }

    /// Asks, and when it is cut off, asks the next one until it is done.
    async fn insist(&mut self, step: Step) -> Result<()> {
        if self.step(step).await.is_err() {
            self.restart(Fuse::none()).await?;
            self.stored().await.context("after the restart")?;
            // A gateway comes again by itself, but not at once.
            eventually("it is done after all", || self.step(step)).await?;
        }
        Ok(())
    }
}

#[test]
fn ended_after_any_write_it_gives_no_address_twice_and_loses_none() -> Result<()> {
    block_on(async {
        let mut stage = Stage::new(16).await?;
        let _gateway = stage.gateway(Manner::Promptly).await?;
        let whole = Fuse::none();
        stage.cycle(whole.clone()).await.context("without any end")?;
        let writes = whole.written.load(Ordering::SeqCst);
        ensure!(writes > 15, "only {writes} writes");
        for n in 1..=writes {
            let ended = stage.cycle(Fuse::after(n)).await;
            ended.with_context(|| format!("ended after write {n} of {writes}"))?;
        }
        println!("ended after each of {writes} writes, and came to the right end every time");
        stage.end().await;
        Ok(())
    })
}
