//! Every combination of names: each of the four networks of two peers is free where the other one is, or it is taken.

use anyhow::{Context, Result, ensure};
use serde_json::json;

use crate::pair::Pair;
use crate::{hops, settings};

/// Tries all that lie between "none is taken", as it is with these two, and "all are"; gives them back as peers.
pub async fn try_the_others(mut pair: Pair<'_>) -> Result<Pair<'_>> {
    for number in 1..15_u8 {
        let taken = [0, 1, 2, 3].map(|bit| (number >> bit) & 1 == 1);
        println!("fabric: taken are pods and external network there, and here: {taken:?}");
        pair = take(pair, taken).await?;
        ensure!(pair.renamed()? == taken, "{taken:?} are taken, and {:?} renamed", pair.renamed()?);
        pair.works().await.with_context(|| format!("with {taken:?} taken"))?;
        if taken[0] != taken[2] {
            // The vector V2: pods of one are renamed, and those of the other are not.
            hops::are_as_named(&pair).await.with_context(|| format!("with {taken:?} taken"))?;
        }
    }
    Ok(pair)
}

/// Parts two peers, lets each keep those networks of the other for itself, and joins them again.
async fn take(pair: Pair<'_>, taken: [bool; 4]) -> Result<Pair<'_>> {
    let [a, b] = [pair.0[0].cluster, pair.0[1].cluster];
    let of_b = offered(&pair, 0)?;
    let of_a = offered(&pair, 1)?;
    pair.part().await?;
    for cluster in [a, b] {
        // Otherwise a peer that comes back soon gets the names that it had.
        cluster.kubectl(&["delete", "ipamstorages", "--all"]).await?;
    }
    let chosen = |networks: [String; 2], taken: &[bool]| -> Vec<String> {
        networks.into_iter().zip(taken).filter(|(_, taken)| **taken).map(|(network, _)| network).collect()
    };
    settings::set(a, json!({"reservedCIDRs": chosen(of_b, &taken[..2])})).await?;
    settings::set(b, json!({"reservedCIDRs": chosen(of_a, &taken[2..])})).await?;
    Pair::join(a, b).await
}

/// The networks that the other one of a side has.
fn offered(pair: &Pair<'_>, side: usize) -> Result<[String; 2]> {
    let spec = &pair.0[side].tunnel.spec;
    Ok([spec.pod_cidr.clone(), spec.external_cidr.clone().context("the peer has no external network")?])
}
