//! Those who come and go: each has endpoints of its own, which it has mapped, calls and gives back at random.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use ferro_api::proto::ipam::ipam_client::IpamClient;
use ferro_api::proto::ipam::{MapRequest, UnmapRequest};
use ferro_fabric::ipam::client::Channel;
use futures::future::try_join_all;
use ipnet::IpNet;
use tonic::Code;

use crate::PATIENCE;
use crate::hub::{Hub, PEER};
use crate::scene::{CALLS, LATE_CALLS, Scene, old_rule};

/// Those who call.
const CALLERS: u8 = 8;
/// Those who only map and unmap, as fast as they can.
const OTHERS: u8 = 2;
/// How many endpoints each has.
const ENDPOINTS: u8 = 31;
/// How long a call may take that may come to nobody.
const BRIEFLY: Duration = Duration::from_millis(100);
/// One in so many addresses is called once more after it was given back.
const LATE: u64 = 16;
/// How often an address is asked for when the answer is that it is not ready yet.
const TRIES: u32 = 30;

/// What was done.
#[derive(Debug, Default)]
pub struct Tally {
    mapped: AtomicU32,
    unmapped: AtomicU32,
    /// Answers that an address is not ready yet.
    not_yet: AtomicU32,
    /// Calls to an address that was given back, which came to its endpoint all the same.
    late: AtomicU32,
}

/// Numbers that follow from a seed.
struct Dice(u64);

impl Dice {
    /// One below.
    fn below(&mut self, limit: u64) -> u64 {
        // SplitMix64: good enough to choose by, and the same everywhere.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % limit
    }
}

/// One who comes and goes.
struct Walker {
    dice: Dice,
    /// Says which endpoints are its own.
    number: u8,
    mapped: BTreeMap<Ipv4Addr, IpAddr>,
    ipam: IpamClient<Channel>,
    scene: Arc<Scene>,
    external: IpNet,
    tally: Arc<Tally>,
}

/// Makes so many connections to addresses that were just told, or a while ago, while others come and go.
pub async fn all(hub: &Hub, seed: u64, connections: u32) -> Result<Arc<Tally>> {
    let tally = Arc::<Tally>::default();
    let mut walkers = Vec::new();
    for number in 0..CALLERS + OTHERS {
        walkers.push(Walker {
            dice: Dice(seed.wrapping_add(u64::from(number) << 32)),
            number,
            mapped: BTreeMap::new(),
            ipam: hub.client().await?,
            scene: Arc::clone(&hub.scene),
            external: hub.external,
            tally: Arc::clone(&tally),
        });
    }
    let others = walkers.split_off(usize::from(CALLERS));
    let callers = walkers.into_iter().map(|walker| walker.call_around(connections / u32::from(CALLERS)));
    tokio::select! {
        called = try_join_all(callers) => called.map(drop)?,
        ended = try_join_all(others.into_iter().map(Walker::come_and_go)) => ended.map(drop)?,
    }
    Ok(tally)
}

impl Walker {
    /// Makes so many connections.
    async fn call_around(mut self, connections: u32) -> Result<()> {
        let mut made = 0;
        while made < connections {
            let endpoint = self.choose();
            match self.mapped.get(&endpoint).copied() {
                Some(address) if self.dice.below(2) == 0 => {
                    self.unmap(endpoint).await?;
                    if self.dice.below(LATE) == 0 {
                        self.call_late(endpoint, address).await?;
                    }
                    continue;
                }
                Some(address) => self.call(endpoint, address).await?,
                None => {
                    let address = self.map(endpoint).await?;
                    self.call(endpoint, address).await?;
                }
            }
            made += 1;
        }
        Ok(())
    }

    /// Maps and unmaps for ever.
    async fn come_and_go(mut self) -> Result<()> {
        loop {
            let endpoint = self.choose();
            if self.mapped.contains_key(&endpoint) {
                self.unmap(endpoint).await?;
            } else {
                self.map(endpoint).await?;
            }
        }
    }

    /// An endpoint of its own. Those of callers stand for pods of B by the old rule, and so do those of others.
    fn choose(&mut self) -> Ipv4Addr {
        let which = u8::try_from(self.dice.below(u64::from(ENDPOINTS))).unwrap_or_default();
        let (block, place) = (self.number / CALLERS, self.number % CALLERS);
        Ipv4Addr::new(10, 1, block, 1 + place * ENDPOINTS + which)
    }

    async fn map(&mut self, endpoint: Ipv4Addr) -> Result<IpAddr> {
        let request = MapRequest { cluster_id: PEER.into(), ip: endpoint.to_string() };
        for _ in 0..TRIES {
            match self.ipam.map_endpoint_ip(request.clone()).await {
                Ok(told) => {
                    let address: IpAddr = told.into_inner().ip.parse()?;
                    let is_right = address != old_rule(endpoint.into())? && self.external.contains(&address);
                    ensure!(is_right, "{endpoint} is told as {address}");
                    self.tally.mapped.fetch_add(1, Ordering::Relaxed);
                    self.mapped.insert(endpoint, address);
                    return Ok(address);
                }
                Err(status) if status.code() == Code::Unavailable => {
                    self.tally.not_yet.fetch_add(1, Ordering::Relaxed);
                }
                Err(status) => return Err(status).with_context(|| format!("cannot map {endpoint}")),
            }
        }
        bail!("{endpoint} is not ready after {TRIES} tries")
    }

    async fn unmap(&mut self, endpoint: Ipv4Addr) -> Result<()> {
        let request = UnmapRequest { cluster_id: PEER.into(), ip: endpoint.to_string() };
        let mut tries = 0;
        while let Err(status) = self.ipam.unmap_endpoint_ip(request.clone()).await {
            tries += 1;
            // A write may be late on a busy machine; whoever asked is to ask again.
            if status.code() != Code::Unavailable || tries == TRIES {
                return Err(status).with_context(|| format!("cannot unmap {endpoint}"));
            }
        }
        self.mapped.remove(&endpoint);
        self.tally.unmapped.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    async fn call(&self, endpoint: Ipv4Addr, address: IpAddr) -> Result<()> {
        let answers = self.scene.call(address, CALLS, PATIENCE).await?;
        ensure!(answers == endpoint, "{answers} answers at {address}, which stands for {endpoint}");
        Ok(())
    }

    /// Calls an address that was given back: its endpoint may still answer, or nobody.
    async fn call_late(&self, endpoint: Ipv4Addr, address: IpAddr) -> Result<()> {
        if let Ok(answers) = self.scene.call(address, LATE_CALLS, BRIEFLY).await {
            ensure!(answers == endpoint, "{answers} answers at {address}, which stood for {endpoint}");
            self.tally.late.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }
}
