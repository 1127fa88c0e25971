//! While addresses are mapped and given up all the time, everybody who is called is the one who was meant.

use std::net::{IpAddr, Ipv4Addr};

use anyhow::{Context, Result, ensure};
use futures::future::try_join_all;
use rig::pods::{Caller, Echo};

use crate::addresses::Addresses;
use crate::pair::{NODES, Pair, Side};

/// How often each pod has an address made for whom it calls.
const ROUNDS: usize = 10;
/// Connections to it each time, and to a pod beside it.
const CONNECTIONS: usize = 10;
/// Those that come and go are never called. By the old rule the first would be the first pods.
const OTHERS: [u8; 3] = [198, 51, 100];
const AT_ONCE: u8 = 16;

/// From a pod on each node of the first cluster, a few hundred connections to the second one.
pub async fn nobody_else_is_met(pair: &Pair<'_>) -> Result<()> {
    let [here, there] = &pair.0;
    let addresses = Addresses::of(there.cluster).await?;
    let calls = NODES.map(|number| call_around(here, there, &addresses, number));
    tokio::select! {
        called = try_join_all(calls) => called.map(drop),
        ended = come_and_go(here, &addresses) => ended,
    }
}

/// Calls the process of a node, by an address that is made anew each time, and a pod of the other node.
async fn call_around(here: &Side<'_>, there: &Side<'_>, addresses: &Addresses, number: usize) -> Result<()> {
    let caller = Caller::on(here.cluster, number).await?;
    let process = Echo::process_of(there.cluster, number);
    let other = NODES.into_iter().find(|other| *other != number).context("there is no other node")?;
    let pod = Echo::on(there.cluster, other).await?;
    // It may have an address from before.
    addresses.unmap(&here.id, process.ip).await?;
    for _ in 0..ROUNDS {
        let address = addresses.map(&here.id, process.ip).await?;
        call(there, &caller, &process, address).await?;
        call(there, &caller, &pod, here.name_of(pod.ip)?).await?;
        addresses.unmap(&here.id, process.ip).await?;
    }
    Ok(())
}

/// The first is a datagram, which nobody sends again: an address works from the moment on at which it is told.
async fn call(there: &Side<'_>, caller: &Caller<'_>, server: &Echo, address: IpAddr) -> Result<()> {
    let known_as = there.name_of(caller.ip)?;
    let mut answers = vec![caller.ask_by_datagram(address).await?];
    answers.extend(caller.ask(address, CONNECTIONS).await?);
    for answer in answers {
        let is_right = answer.is_of(server) && answer.is_to(known_as);
        ensure!(is_right, "{caller} called {server:?} at {address}: {answer:?}");
    }
    Ok(())
}

/// Maps and unmaps, for ever.
async fn come_and_go(here: &Side<'_>, addresses: &Addresses) -> Result<()> {
    let endpoint = |last: u8| IpAddr::from(Ipv4Addr::new(OTHERS[0], OTHERS[1], OTHERS[2], last));
    loop {
        try_join_all((1..=AT_ONCE).map(|last| addresses.map(&here.id, endpoint(last)))).await?;
        try_join_all((1..=AT_ONCE).map(|last| addresses.unmap(&here.id, endpoint(last)))).await?;
    }
}
