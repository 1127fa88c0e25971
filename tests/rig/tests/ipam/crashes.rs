//! An address manager that ends after its n-th write, for every n, while a gateway follows it: nothing is given twice,
//! what was told stays so, and what was given back is free again.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::atomic::Ordering;

use anyhow::{Context, Result, ensure};
use ferro_core::network::{Agreement, Asker, Naming};
use futures::future::join_all;
use ipnet::IpNet;
use kube::api::ListParams;
use rig::addresses::{Listener, Manner, kept, offered};
use rig::wait::{block_on, eventually};

use crate::stage::Stage;
use rig::fuse::Fuse;

/// As many as need several objects of the storage.
const ENDPOINTS: u16 = 300;
/// How often a step is asked for after a restart; each time it is waited for the gateway.
const TRIES: u32 = 30;

fn endpoint(number: u16) -> IpAddr {
    let [high, low] = number.to_be_bytes();
    [172, 18, high, low].into()
}

/// What is asked, step by step; each may be asked again. All peers have the same networks, so that all but the first one
/// get others in their place.
#[derive(Clone, Copy, Debug)]
enum Step {
    Acquire(&'static str),
    Agree(&'static str),
    Map(&'static str, u16, u16),
    Unmap(&'static str, u16, u16),
    Release(&'static str),
}

const STEPS: [Step; 12] = [
    Step::Acquire("rome"),
    Step::Agree("rome"),
    Step::Acquire("turin"),
    Step::Agree("turin"),
    Step::Map("rome", 0, ENDPOINTS),
    Step::Map("turin", 100, ENDPOINTS),
    Step::Unmap("rome", 0, 150),
    Step::Map("rome", 0, 20),
    Step::Release("turin"),
    Step::Unmap("rome", 0, 10),
    // What was turin's rests.
    Step::Acquire("oslo"),
    Step::Agree("oslo"),
];

/// What callers were told so far, by one address manager or another.
#[derive(Default)]
struct Told {
    /// For each address the endpoint that it stood for: it rests longer than a cycle takes.
    addresses: BTreeMap<IpAddr, IpAddr>,
    /// For each endpoint that is mapped, its address.
    mapped: BTreeMap<IpAddr, IpAddr>,
    /// Under which name each peer's pods are.
    pods: BTreeMap<&'static str, Naming>,
}

impl Told {
    fn map(&mut self, endpoint: IpAddr, address: IpAddr) -> Result<()> {
        let stands_for = *self.addresses.entry(address).or_insert(endpoint);
        ensure!(stands_for == endpoint, "{address} stood for {stands_for}, and now for {endpoint}");
        let before = *self.mapped.entry(endpoint).or_insert(address);
        ensure!(before == address, "{endpoint} was told as {before}, and now as {address}");
        Ok(())
    }
}

impl Stage {
    async fn step(&self, step: Step, told: &mut Told) -> Result<()> {
        match step {
            Step::Acquire(peer) => {
                let named = self.handle.acquire(peer, offered(1)?).await?.pod;
                let before = *told.pods.entry(peer).or_insert(named);
                ensure!(before == named, "the pods of {peer} were {before:?}, and now {named:?}");
            }
            Step::Agree(peer) => self.handle.agree(peer, kept()).await?,
            Step::Release(peer) => self.handle.release(peer).await?,
            Step::Map(peer, from, to) => {
                let mapped = (from..to).map(|number| self.handle.map(Asker::Caller, peer, endpoint(number)));
                for (number, address) in (from..to).zip(join_all(mapped).await) {
                    told.map(endpoint(number), address?)?;
                }
            }
            Step::Unmap(peer, from, to) => {
                let unmapped =
                    (from..to).map(|number| self.handle.unmap(Asker::Caller, peer, endpoint(number)));
                join_all(unmapped).await.into_iter().collect::<Result<(), _>>()?;
            }
        }
        Ok(())
    }

    /// Asks all, and again from where it was cut off.
    async fn cycle(&mut self, fuse: Fuse, gateway: &Listener) -> Result<()> {
        // The first start may be cut off, too.
        if self.begin_anew(fuse).await.is_err() {
            self.restart(Fuse::none()).await?;
        }
        let mut told = Told::default();
        for step in STEPS {
            self.insist(step, &mut told).await.with_context(|| format!("{step:?}"))?;
            // What nobody has mapped any more may have another address next time.
            let stored = self.stored().await?;
            told.mapped.retain(|endpoint, _| stored.contains_key(&endpoint.to_string()));
        }
        self.is_as_asked(&told, gateway).await?;
        for peer in ["rome", "oslo"] {
            self.insist(Step::Release(peer), &mut told).await?;
        }
        // What was cut off while it cleared up is found by the next one.
        self.restart(Fuse::none()).await?;
        eventually("nothing is left", || self.is_empty(gateway)).await
    }

    /// Asks, and when it is cut off, asks the next one until it is done.
    async fn insist(&mut self, step: Step, told: &mut Told) -> Result<()> {
        let Err(cut_off) = self.step(step, told).await else { return Ok(()) };
        self.restart(Fuse::none()).await?;
        self.stored().await.context("after the restart")?;
        // A gateway comes again by itself, but not at once: until then what is stored is not said to work.
        let mut last = cut_off;
        for _ in 0..TRIES {
            match self.step(step, told).await {
                Ok(()) => return Ok(()),
                Err(error) => last = error,
            }
        }
        Err(last.context("it is not done after all"))
    }

    /// What is stored, what the gateway does, and what callers were told are one.
    async fn is_as_asked(&self, told: &Told, gateway: &Listener) -> Result<()> {
        let stored = self.stored().await?;
        let left: BTreeSet<String> =
            (10..20).chain(150..ENDPOINTS).map(|number| endpoint(number).to_string()).collect();
        ensure!(stored.keys().cloned().collect::<BTreeSet<_>>() == left, "{} are left", stored.len());
        for (endpoint, (address, peers)) in &stored {
            ensure!(peers.len() == 1 && peers.contains("rome"), "{endpoint} is for {peers:?}");
            let told = told.mapped.get(&endpoint.parse()?).map(ToString::to_string);
            ensure!(told.as_ref() == Some(address), "{endpoint} is {address}, and was told as {told:?}");
        }
        eventually("the gateway has what is stored, and nothing else", || async {
            ensure!(gateway.count() == stored.len(), "{} of {}", gateway.count(), stored.len());
            for (endpoint, (address, _)) in &stored {
                let rule = gateway.rule("rome", endpoint);
                ensure!(rule.as_ref() == Some(address), "{endpoint} is {rule:?}, not {address}");
            }
            Ok(())
        })
        .await?;
        let [rome, turin, oslo] = ["rome", "turin", "oslo"].map(|peer| told.pods.get(peer).copied());
        ensure!(rome == Some(Naming::Kept) && turin != rome, "{rome:?}, {turin:?}");
        ensure!(oslo.is_some() && oslo != turin, "turin had {turin:?} just before, and oslo {oslo:?}");
        let peers = self.handle.watch().borrow().peers().clone();
        ensure!(peers.keys().eq(["oslo", "rome"]), "{:?}", peers.keys());
        let named: Vec<IpNet> = peers.values().flat_map(Agreement::networks).collect();
        let apart = |a: &IpNet, b: &IpNet| !a.contains(b) && !b.contains(a);
        let is_apart = (0..named.len()).all(|n| named[..n].iter().all(|other| apart(other, &named[n])));
        ensure!(is_apart, "{named:?}");
        Ok(())
    }

    /// Nothing is kept for anybody, here or at the gateway.
    async fn is_empty(&self, gateway: &Listener) -> Result<()> {
        ensure!(self.stored().await?.is_empty(), "an endpoint is left");
        for object in self.storage().await? {
            let spec = object.spec;
            ensure!(spec.cluster_subnets.is_empty(), "{:?} are left", spec.cluster_subnets);
            ensure!(spec.nat_mappings_configured.is_empty(), "{:?} are left", spec.nat_mappings_configured);
        }
        let left = self.mappings().list(&ListParams::default()).await?.items.len();
        ensure!(left == 0, "{left} NatMappings are left");
        ensure!(gateway.count() == 0, "{} rules are left", gateway.count());
        Ok(())
    }
}

#[test]
fn ended_after_any_write_it_gives_no_address_twice_and_loses_none() -> Result<()> {
    block_on(async {
        let mut stage = Stage::new(16).await?;
        let gateway = stage.gateway(Manner::Promptly).await?;
        let whole = Fuse::none();
        stage.cycle(whole.clone(), &gateway).await.context("without any end")?;
        let writes = whole.written.load(Ordering::SeqCst);
        ensure!(writes > 15, "only {writes} writes");
        for n in 1..=writes {
            let ended = stage.cycle(Fuse::after(n), &gateway).await;
            ended.with_context(|| format!("ended after write {n} of {writes}"))?;
        }
        println!("ended after each of {writes} writes, and came to the right end every time");
        stage.end().await;
        Ok(())
    })
}
