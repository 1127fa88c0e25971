//! Never the wrong pod, and never too early: while endpoints come and go at random, every address works from the moment
//! on at which it is told, and no pod hears what is meant for another one.

mod hub;
mod scene;
mod walk;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, ensure};
use ferro_core::network::{Agreement, Asker, Ours, PeerTable, Translation};
use ferro_fabric::dataplane::{Engine, PeerPlan, Tun, Wire};
use ferro_fabric::wireguard::PrivateKey;
use rig::addresses::offered;
use rig::wait::{block_on, eventually};

use hub::Hub;
use scene::{CALLS, FOREIGN, NUMBER, PODS, Scene, TUNNELS, none_lost, old_rule};

/// How long a call may take that must come to somebody: the machine may be busy.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// The number from which all choices of a run follow: the one that is given, or another one each time.
fn seed() -> Result<u64> {
    if let Ok(given) = std::env::var("SEED") {
        return given.parse().context("SEED is not a number");
    }
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?;
    Ok(now.as_secs() ^ (u64::from(now.subsec_nanos()) << 32))
}

#[test]
fn no_wrong_pod_hears_anything_and_no_first_packet_is_lost_while_mappings_churn() -> Result<()> {
    let connections = if std::env::var_os("SOAK").is_some() { 100_000 } else { 2_000 };
    let seed = seed()?;
    println!("SEED={seed}");
    block_on(async {
        let hub = Hub::start().await?;
        let endpoint: IpAddr = "10.1.0.5".parse()?;
        let told = eventually("an address is told", || async {
            Ok(hub.handle.map(Asker::Caller, hub::PEER, endpoint).await?)
        })
        .await?;
        ensure!(told != old_rule(endpoint)? && hub.external.contains(&told), "A is told {told}");
        let answers = hub.scene.call(told, CALLS, PATIENCE).await?;
        ensure!(answers == endpoint, "{answers} answers at {told}");
        unmap(&hub, hub::PEER, endpoint).await?;

        // All is agreed on with the third cluster, and no gateway has a tunnel to it: nothing is said to work.
        for endpoint in ["172.31.0.9".parse()?, "10.0.0.9".parse()?] {
            // A gateway that is late is said to be, and whoever asked is to ask again; but never is an address told.
            let told = eventually("it is said that there is no tunnel", || async {
                match hub.handle.map(Asker::Caller, "c", endpoint).await {
                    Ok(told) => Ok(Some(told)),
                    Err(trouble) if trouble.to_string().contains("no tunnel to c yet") => Ok(None),
                    Err(trouble) => Err(anyhow::Error::from(trouble)),
                }
            })
            .await?;
            ensure!(told.is_none(), "{told:?}");
            unmap(&hub, "c", endpoint).await?;
        }

        let tally = walk::all(&hub, seed, connections).await?;
        println!("{connections} connections: {tally:?}");
        let lost = eventually("all packets have come", || async { none_lost(hub.scene.handshakes()?) });
        lost.await.with_context(|| format!("SEED={seed}"))?;
        let (wrong, packets) = hub.scene.wrong()?;
        ensure!(wrong.is_empty() && packets == 0, "SEED={seed}: {packets} packets came to {wrong:?}");
        // They would have heard it.
        let answers = hub.scene.call(old_rule(endpoint)?, CALLS, PATIENCE).await?;
        ensure!(hub.scene.wrong()?.0 == [answers], "{:?}", hub.scene.wrong()?);
        hub.end().await;
        Ok(())
    })
}

/// Gives an address back; a write may be late on a busy machine, and whoever asked is to ask again.
async fn unmap(hub: &Hub, peer: &str, endpoint: IpAddr) -> Result<()> {
    eventually("an address is given back", || async {
        Ok(hub.handle.unmap(Asker::Caller, peer, endpoint).await?)
    })
    .await
}

/// B's gateway without an address manager, with these endpoints under addresses of the external network.
fn set(engine: &Engine, external: &str, redirections: &BTreeMap<IpAddr, IpAddr>) -> Result<()> {
    let networks = offered(NUMBER)?;
    let agreement = Agreement {
        their_pods: Translation::identity(networks.pod),
        their_external: networks.external.map(Translation::identity),
        ours: Some(Ours {
            pods: Translation::identity(PODS.parse()?),
            external: Some(Translation::identity(external.parse()?)),
        }),
    };
    let (endpoint, key) = Scene::gateway()?;
    let plan = PeerPlan {
        key,
        endpoint: Some(endpoint),
        keepalive: None,
        table: PeerTable::new(&agreement, redirections, Vec::new()).context("both have agreed")?,
        probe: None,
    };
    Ok(engine.set(BTreeMap::from([("a".to_owned(), plan)]))?)
}

#[test]
fn the_old_rule_and_a_rule_that_comes_late_would_both_be_seen() -> Result<()> {
    block_on(async {
        let (external, scene) = ("10.77.0.0/16", Arc::new(Scene::new()?));
        let key = PrivateKey::new([2; 32]);
        let public = key.public();
        let start = || Engine::start(Tun::open("ferro0")?, Wire::open(TUNNELS)?, key, 1420);
        let engine = scene.b.run(start)?;
        scene.b.ip("link set ferro0 up mtu 1420")?;
        scene.b.ip(&format!("route add {} dev ferro0", offered(NUMBER)?.pod))?;
        let [endpoint, address]: [IpAddr; 2] = ["10.1.0.5".parse()?, "10.77.0.45".parse()?];
        ensure!(FOREIGN.parse::<ipnet::IpNet>()?.contains(&endpoint));
        set(&engine, external, &BTreeMap::from([(endpoint, address)]))?;
        scene.connect(public, external.parse()?)?;

        ensure!(scene.call(address, CALLS, PATIENCE).await? == endpoint);
        eventually("all packets have come", || async { none_lost(scene.handshakes()?) }).await?;
        ensure!(scene.wrong()? == (Vec::new(), 0), "{:?}", scene.wrong()?);

        let misled = scene.call(old_rule(endpoint)?, CALLS, PATIENCE).await?;
        ensure!(misled == old_rule(endpoint)?);
        let (wrong, packets) = scene.wrong()?;
        ensure!(wrong == [misled] && packets > 0, "{packets} packets came to {wrong:?}");

        set(&engine, external, &BTreeMap::new())?;
        ensure!(scene.call(address, CALLS, Duration::from_millis(300)).await.is_err());
        ensure!(none_lost(scene.handshakes()?).is_err(), "{:?}", scene.handshakes()?);
        Ok(())
    })
}
