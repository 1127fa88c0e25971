//! The address manager is killed with its controller: packets do not miss it, and it forgets nothing.

use std::net::IpAddr;

use anyhow::{Context, Result, ensure};
use futures::future::try_join_all;
use rig::pods::Echo;

use crate::addresses::Addresses;
use crate::conversation::Conversation;
use crate::faults::{Killed, kill_controllers};
use crate::pair::{NODES, Pair};

/// Kills the controllers of the second of two. What was begun goes on without them; when they are back, the same
/// endpoints have the same addresses.
pub async fn outlives_the_controllers(pair: &Pair<'_>) -> Result<()> {
    let before = mapped(pair).await?;
    let mut conversations = Conversation::both_ways(pair).await?;
    let killed = kill_controllers(pair.0[1].cluster).await?;
    try_join_all(conversations.iter_mut().map(Conversation::goes_on)).await.context("without controllers")?;
    try_join_all(killed.into_iter().map(Killed::are_back)).await?;
    try_join_all(conversations.iter_mut().map(Conversation::goes_on)).await?;
    let after = mapped(pair).await?;
    ensure!(after == before, "nodes were at {before:?}, and are at {after:?}");
    Ok(())
}

/// The addresses of the nodes there.
async fn mapped(pair: &Pair<'_>) -> Result<Vec<IpAddr>> {
    let [here, there] = &pair.0;
    let addresses = Addresses::of(there.cluster).await?;
    try_join_all(NODES.map(|number| addresses.map(&here.id, Echo::process_of(there.cluster, number).ip)))
        .await
}
