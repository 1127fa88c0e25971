//! Many Services: time that grows as their number does, one write for each object, one write for one change; and whoever
//! watches asks for nothing again.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use kube::api::{DeleteParams, ListParams};
use rig::audit::{Asked, Audit, Mark};
use rig::fuse::Fuse;
use rig::wait::eventually;
use serde_json::json;

use crate::stage::{Stage, on_stage};

/// All kinds that are reflected, and those of which there are many here.
const KINDS: [&str; 5] = ["services", "endpointslices", "configmaps", "secrets", "ingresses"];
const MANY: [&str; 2] = ["services", "endpointslices"];
/// So long is a watch that ends well, in seconds; then another one goes on from there.
const WATCH: u64 = 290;
/// One of many may take so many times as long as one of few.
const SLOWER: u32 = 2;
/// The machine is shared: so often it may be tried whether it does.
const TRIES: usize = 3;

/// So many Services, each with a slice of two endpoints.
fn many() -> usize {
    if std::env::var_os("SOAK").is_some() { 2000 } else { 400 }
}

async fn make(stage: &Stage, number: usize) -> Result<()> {
    let name = format!("many-{number}");
    stage.make("Service", &name, json!({"spec": {"ports": [{"port": 80}]}})).await?;
    let address = |side: usize| format!("10.{}.{}.{}", side, number / 250, number % 250 + 1);
    let slice = json!({
        "metadata": {"labels": {"kubernetes.io/service-name": name}}, "addressType": "IPv4", "ports": [{"port": 80}],
        "endpoints": [{"addresses": [address(1)]}, {"addresses": [address(2)]}],
    });
    stage.make("EndpointSlice", &name, slice).await
}

/// How many there are over there, where nobody else has any: the first one, and how many more the API server counts.
async fn count(stage: &Stage, kind: &str) -> Result<usize> {
    let list = stage.there(kind).list(&ListParams::default().limit(1)).await?;
    Ok(list.items.len() + usize::try_from(list.metadata.remaining_item_count.unwrap_or(0))?)
}

/// Waits until so many Services are over there, and as many slices.
async fn are_there(stage: &Stage, wanted: usize) -> Result<()> {
    eventually(&format!("{wanted} are there"), || async {
        let (services, slices) = (count(stage, "Service").await?, count(stage, "EndpointSlice").await?);
        ensure!(services == wanted && slices == wanted, "{services} Services, {slices} slices");
        Ok(())
    })
    .await
}

/// How long each of these takes, with its slice, until it is over there.
async fn time_each(stage: &Stage, numbers: Range<usize>) -> Result<Duration> {
    let (begin, wanted, all) = (Instant::now(), numbers.end, u32::try_from(numbers.len())?);
    stream::iter(numbers).map(|number| make(stage, number)).buffer_unordered(16).try_collect::<()>().await?;
    are_there(stage, wanted).await?;
    Ok(begin.elapsed() / all)
}

async fn clear(stage: &Stage) -> Result<()> {
    for kind in ["EndpointSlice", "Service"] {
        stage.here(kind).delete_collection(&DeleteParams::default(), &ListParams::default()).await?;
    }
    are_there(stage, 0).await
}

/// What controllers asked both API servers for, in the namespace that is reflected: ours at home, ours at the peer, and the
/// peer's own.
struct Books {
    here: Audit,
    there: Audit,
    namespace: String,
    /// By which the peer knows us.
    id: String,
}

/// A moment, in both books.
#[derive(Clone, Copy)]
struct Moment {
    here: Mark,
    there: Mark,
}

/// At home, and over there.
struct Since {
    here: Vec<Asked>,
    there: Vec<Asked>,
}

impl Books {
    async fn of(stage: &Stage) -> Result<Self> {
        Ok(Self {
            here: Audit::of(&stage.rome.cluster)?,
            there: stage.audit.clone(),
            namespace: stage.there.clone(),
            id: stage.rome.id().await?,
        })
    }

    async fn mark(&self) -> Result<Moment> {
        Ok(Moment { here: self.here.mark().await?, there: self.there.mark().await? })
    }

    async fn since(&self, moment: Moment) -> Result<Since> {
        let of = |asked: Vec<Asked>, namespace: &str| -> Vec<Asked> {
            let is_controller = |user: &str| user.ends_with(":ferro-controller") || user.contains(&self.id);
            let is_it = |one: &Asked| one.namespace == namespace && is_controller(&one.user);
            asked.into_iter().filter(is_it).collect()
        };
        Ok(Since {
            here: of(self.here.since(moment.here).await?, "shop"),
            there: of(self.there.since(moment.there).await?, &self.namespace),
        })
    }
}

impl Since {
    /// How often each of the many was written over there. Nothing is written at home, and nobody looks anything up.
    fn written(&self) -> Result<BTreeMap<String, usize>> {
        let is_one = |one: &&Asked| MANY.contains(&one.resource.as_str());
        let is_look = |one: &&Asked| ["get", "list"].contains(&one.verb.as_str());
        let looks: Vec<_> = self.here.iter().chain(&self.there).filter(is_one).filter(is_look).collect();
        ensure!(looks.is_empty(), "{} looks, the first is {:?}", looks.len(), looks.first());
        let at_home = self.here.iter().filter(is_one).find(|one| one.is_write());
        ensure!(at_home.is_none(), "an original was written: {at_home:?}");
        let mut written = BTreeMap::new();
        for one in self.there.iter().filter(is_one) {
            if one.is_write() && one.name.starts_with("many-") {
                *written.entry(format!("{} {}", one.resource, one.name)).or_default() += 1;
            }
        }
        Ok(written)
    }

    /// Whether each kind is watched on both sides, by one watch after the other and so many in all.
    fn watched(&self, most: u64) -> Result<()> {
        for (side, asked) in [("at home", &self.here), ("over there", &self.there)] {
            for kind in KINDS {
                let is_watch = |one: &&Asked| one.verb == "watch" && one.resource == kind && one.code < 400;
                let watches = u64::try_from(asked.iter().filter(is_watch).count())?;
                ensure!((1..=most).contains(&watches), "{side}: {watches} watches of {kind}");
            }
        }
        Ok(())
    }
}

#[test]
fn many_services_cost_one_write_each_and_one_change_costs_one() -> Result<()> {
    on_stage(async |stage| {
        let books = Books::of(stage).await?;
        let (begin, start) = (Instant::now(), books.mark().await?);
        // So that all watches begin now.
        stage.rome.run(Fuse::none()).await?;
        let here: &Stage = stage;
        eventually("all is watched", || async { books.since(start).await?.watched(1) }).await?;
        here.settles().await?;
        many_take_as_long_as_few(here, &books).await?;
        one_change_is_one_write(here, &books).await?;
        books.since(start).await?.watched(1 + begin.elapsed().as_secs() / WATCH)?;
        clear(here).await
    })
}

/// A quarter of them, and then the rest: each takes as long, but for what else goes on at the same time.
async fn many_take_as_long_as_few(stage: &Stage, books: &Books) -> Result<()> {
    let (all, quarter) = (many(), many() / 4);
    for _ in 0..TRIES {
        let mark = books.mark().await?;
        let few = time_each(stage, 0..quarter).await?;
        let rest = time_each(stage, quarter..all).await?;
        stage.settles().await?;
        let written = books.since(mark).await?.written()?;
        let writes: usize = written.values().sum();
        println!(
            "{all} Services with a slice each: {few:?} for one of the first {quarter}, {rest:?} for one of the \
             others; {writes} writes"
        );
        let other: BTreeMap<_, _> = written.iter().filter(|(_, count)| **count != 1).collect();
        ensure!(other.is_empty(), "written more than once: {other:?}");
        ensure!(written.len() == MANY.len() * all, "{} objects were written", written.len());
        if rest <= few * SLOWER {
            return Ok(());
        }
        clear(stage).await?;
    }
    bail!("where there are many, one more takes longer each time")
}

async fn one_change_is_one_write(stage: &Stage, books: &Books) -> Result<()> {
    let mark = books.mark().await?;
    stage.change("Service", "many-7", &json!({"spec": {"sessionAffinity": "ClientIP"}})).await?;
    stage.arrives("Service", "many-7", |copy| copy["spec"]["sessionAffinity"] == "ClientIP").await?;
    stage.settles().await?;
    let written = books.since(mark).await?.written()?;
    ensure!(written == BTreeMap::from([("services many-7".to_owned(), 1)]), "for one change: {written:?}");
    Ok(())
}
