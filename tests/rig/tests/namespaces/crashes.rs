//! Controllers on both sides that end after their n-th write, here or at the peer, for every n while an offloading is made,
//! while it is changed and while it is deleted: whatever was cut off, the next start comes to the same end.

use std::time::Instant;

use anyhow::{Context, Result, ensure};
use ferro_api::discovery::PeeringState::{Established, None as Unpeered};
use ferro_api::offloading::{NamespaceOffloading, OffloadingPhase};
use ferro_api::virtualkubelet::NamespaceMap;
use futures::future::try_join_all;
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use rig::crashes::{Fuses, Writes, all_of, end_after, most};
use rig::fuse::Fuse;
use rig::objects::{await_same, everything};
use rig::site::{Site, clusters, ferro, knows_itself};
use rig::wait::{GENEROUSLY, GLANCE, block_on};
use serde_json::{Value, json};

use crate::stage::{make_namespace, namespace};

/// So many pairs run side by side, since much of the time is spent waiting for Kubernetes to empty a namespace.
const PAIRS: i64 = 3;

/// Two sites that are peered, and a namespace that goes back and forth.
struct Pair {
    rome: Site,
    turin: Site,
    remote: String,
}

impl Pair {
    fn sites(&mut self) -> [&mut Site; 2] {
        [&mut self.rome, &mut self.turin]
    }

    fn offloadings(&self) -> Api<NamespaceOffloading> {
        Api::namespaced(self.rome.admin.clone(), "wanders")
    }

    /// Offloads, selects nothing, selects all again, and deletes; a controller ends when its fuse breaks, and another
    /// one starts. Gives what was written.
    async fn cycle(&mut self, ends: &Writes) -> Result<Writes> {
        let mut fuses = Fuses::begin(self.sites(), after, ends).await?;
        let offloading = serde_json::from_value(json!({
            "apiVersion": "offloading.liqo.io/v1alpha1", "kind": "NamespaceOffloading",
            "metadata": {"name": "offloading"}, "spec": {},
        }))?;
        self.offloadings().create(&PostParams::default(), &offloading).await?;
        let phase = OffloadingPhase::Ready;
        self.until(&mut fuses, "made", async |pair: &Self| pair.is(phase, true).await).await?;
        fuses.step(self.sites()).await?;
        self.select(&json!([])).await?;
        let phase = OffloadingPhase::NoClusterSelected;
        self.until(&mut fuses, "unselected", async |pair: &Self| pair.is(phase, false).await).await?;
        fuses.step(self.sites()).await?;
        self.select(&json!([{"matchExpressions": [{"key": "liqo.io/type", "operator": "Exists"}]}])).await?;
        let phase = OffloadingPhase::Ready;
        self.until(&mut fuses, "selected", async |pair: &Self| pair.is(phase, true).await).await?;
        fuses.step(self.sites()).await?;
        self.offloadings().delete("offloading", &DeleteParams::default()).await?;
        self.until(&mut fuses, "deleted", async |pair: &Self| pair.is_clear().await).await?;
        Ok(fuses.written())
    }

    async fn select(&self, terms: &Value) -> Result<()> {
        let patch = json!({"spec": {"clusterSelector": {"nodeSelectorTerms": terms}}});
        self.offloadings().patch("offloading", &PatchParams::default(), &Patch::Merge(patch)).await?;
        Ok(())
    }

    /// Whether the phase is shown, and the namespace is there or not.
    async fn is(&self, phase: OffloadingPhase, there: bool) -> Result<()> {
        let offloading = self.offloadings().get("offloading").await?;
        let status = offloading.status.unwrap_or_default();
        ensure!(status.offloading_phase == Some(phase), "{status:?}");
        ensure!(status.remote_namespaces_conditions.is_empty() != there, "{status:?}");
        let found = namespace(&self.turin, &self.remote).await?;
        ensure!(found.is_some() == there, "{:?}", found.map(|found| found.status));
        Ok(())
    }

    /// Whether nothing is left but a map without entries.
    async fn is_clear(&self) -> Result<()> {
        let left = self.offloadings().get_opt("offloading").await?;
        ensure!(left.is_none(), "{:?}", left.and_then(|left| left.status));
        ensure!(namespace(&self.turin, &self.remote).await?.is_none(), "Turin still has the namespace");
        let home = namespace(&self.rome, "wanders").await?.context("Rome has lost its namespace")?;
        ensure!(
            !home.metadata.labels.unwrap_or_default().contains_key("offloading.liqo.io/admitted"),
            "admitted"
        );
        let maps: Api<NamespaceMap> = Api::all(self.rome.admin.clone());
        let maps = maps.list(&ListParams::default()).await?.items;
        let is_empty = |map: &NamespaceMap| {
            map.spec.desired_mapping.is_empty()
                && map.status.as_ref().is_none_or(|status| status.current_mapping.is_empty())
        };
        ensure!(maps.len() == 1 && maps.iter().all(is_empty), "{maps:?}");
        Ok(())
    }

    /// Waits for a state, and starts again who has ended.
    async fn until(
        &mut self,
        fuses: &mut Fuses<'_>,
        what: &str,
        reached: impl AsyncFn(&Self) -> Result<()>,
    ) -> Result<()> {
        let begin = Instant::now();
        loop {
            fuses.restart(self.sites()).await?;
            match reached(self).await {
                Ok(()) => return Ok(()),
                Err(error) if begin.elapsed() > GENEROUSLY => return Err(error.context(what.to_owned())),
                Err(_) => tokio::time::sleep(GLANCE).await,
            }
        }
    }
}

/// Ends after so many writes, here and at the peer; after less than none it never does.
fn after(writes: i64) -> Fuse {
    Fuse::after(writes).everywhere()
}

/// Ends controllers after every n-th write of which the remainder is `part`.
async fn every_write(part: i64) -> Result<()> {
    let name = format!("wander-{part}");
    let topology = clusters(&name, &["rome", "turin"]).await?;
    let (a, b) = (topology.cluster("rome")?, topology.cluster("turin")?);
    let (rome, turin) = tokio::try_join!(Site::start(a, &[]), Site::start(b, &[]))?;
    for site in [&rome, &turin] {
        knows_itself(site).await?;
    }
    let remote = turin.cluster.kubeconfig.display().to_string();
    ferro(&rome.cluster, &["peer", "--remote-kubeconfig", &remote]).await?;
    rome.reaches(&turin, Established, Unpeered).await?;
    make_namespace(&rome, "wanders").await?;
    let mut pair = Pair { remote: format!("wanders-{}", rome.id().await?), rome, turin };
    pair.cycle(&Writes::new()).await.context("the first time")?;
    let before = [everything(a).await?, everything(b).await?];
    let writes = pair.cycle(&Writes::new()).await.context("without any crash")?;
    ensure!([0, 1].iter().all(|site| all_of(&writes, *site) > 8), "only {writes:?} writes");
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
