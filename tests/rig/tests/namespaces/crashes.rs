//! Controllers on both sides that end after their n-th write, here or at the peer, for every n of an offloading that is
//! made, changed and deleted: whatever was cut off, the next start comes to the same end.

use std::sync::atomic::Ordering;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use ferro_api::discovery::PeeringState::{Established, None as Unpeered};
use ferro_api::offloading::{NamespaceOffloading, OffloadingPhase};
use ferro_api::virtualkubelet::NamespaceMap;
use futures::future::try_join_all;
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
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
    /// one starts.
    async fn cycle(&mut self, fuses: &[Fuse; 2]) -> Result<()> {
        for (site, fuse) in self.sites().into_iter().zip(fuses) {
            site.run(fuse.clone()).await?;
        }
        let offloading = serde_json::from_value(json!({
            "apiVersion": "offloading.liqo.io/v1alpha1", "kind": "NamespaceOffloading",
            "metadata": {"name": "offloading"}, "spec": {},
        }))?;
        self.offloadings().create(&PostParams::default(), &offloading).await?;
        self.until(fuses, "made", async |pair: &Self| pair.is(OffloadingPhase::Ready, true).await).await?;
        self.select(&json!([])).await?;
        let phase = OffloadingPhase::NoClusterSelected;
        self.until(fuses, "unselected", async |pair: &Self| pair.is(phase, false).await).await?;
        self.select(&json!([{"matchExpressions": [{"key": "liqo.io/type", "operator": "Exists"}]}])).await?;
        self.until(fuses, "selected", async |pair: &Self| pair.is(OffloadingPhase::Ready, true).await)
            .await?;
        self.offloadings().delete("offloading", &DeleteParams::default()).await?;
        self.until(fuses, "deleted", async |pair: &Self| pair.is_clear().await).await
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
        fuses: &[Fuse; 2],
        what: &str,
        reached: impl AsyncFn(&Self) -> Result<()>,
    ) -> Result<()> {
        let begin = Instant::now();
        loop {
            for (site, fuse) in self.sites().into_iter().zip(fuses) {
                if fuse.is_broken() && !site.was_restarted() {
                    site.restart().await?;
                }
            }
            match reached(self).await {
                Ok(()) => return Ok(()),
                Err(error) if begin.elapsed() > GENEROUSLY => return Err(error.context(what.to_owned())),
                Err(_) => tokio::time::sleep(GLANCE).await,
            }
        }
    }
}

/// Ends both sides after their n-th write in one cycle; in the long form each of them while the other one lives. So does
/// whoever did not come so far in the common one, since the other's end has spared it a write.
async fn end_after(pair: &mut Pair, n: i64, writes: [i64; 2]) -> Result<()> {
    let mut left = writes.map(|writes| n <= writes);
    if std::env::var_os("SOAK").is_none() {
        let fuses = left.map(|is_left| if is_left { after(n) } else { after(-1) });
        pair.cycle(&fuses).await?;
        left = [left[0] && !fuses[0].is_broken(), left[1] && !fuses[1].is_broken()];
    }
    for side in (0..left.len()).filter(|side| left[*side]) {
        let fuses = [0, 1].map(|other| if other == side { after(n) } else { after(-1) });
        pair.cycle(&fuses).await?;
    }
    Ok(())
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
    pair.cycle(&[after(-1), after(-1)]).await.context("the first time")?;
    let before = [everything(a).await?, everything(b).await?];
    let whole = [after(-1), after(-1)];
    pair.cycle(&whole).await.context("without any crash")?;
    let writes = whole.map(|fuse| fuse.written.load(Ordering::SeqCst));
    ensure!(writes.iter().all(|writes| *writes > 8), "only {writes:?} writes");
    for n in (1..=writes[0].max(writes[1])).filter(|n| n % PAIRS == part) {
        let ended = end_after(&mut pair, n, writes).await;
        ended.with_context(|| format!("ended after write {n} of {writes:?}"))?;
    }
    println!("{name}: ended after its part of {writes:?} writes, and came to the right end every time");
    await_same(a, &before[0]).await?;
    await_same(b, &before[1]).await
}

#[test]
fn whoever_ends_after_any_write_comes_to_the_same_end() -> Result<()> {
    block_on(try_join_all((0..PAIRS).map(every_write))).map(drop)
}
