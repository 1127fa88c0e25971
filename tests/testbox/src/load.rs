//! Requests one after the other, each by a connection of its own, and how long each took: what `ab` does.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde_json::json;
use tokio::task::JoinSet;

use crate::fetch;

/// Makes so many requests, so many of them at once; prints how long they took, in microseconds, as JSON.
pub(crate) async fn print(url: &str, requests: usize, at_once: usize, timeout: Duration) -> Result<()> {
    // A name is resolved once: how long that takes is another question.
    let rest = url.strip_prefix("http://").with_context(|| format!("{url} does not begin with http://"))?;
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    let url = format!("http://{}/{path}", fetch::locate(authority).await?);
    let begin = Instant::now();
    let mut askers = JoinSet::new();
    for _ in 0..at_once.max(1) {
        askers.spawn(ask(url.clone(), requests / at_once.max(1), timeout));
    }
    let mut took = Vec::new();
    while let Some(asked) = askers.join_next().await {
        took.extend(asked??);
    }
    let seconds = begin.elapsed().as_secs_f64();
    took.sort_unstable();
    let at = |percent: usize| took.get((took.len() * percent).div_ceil(100).saturating_sub(1)).copied();
    println!("{}", json!({"requests": took.len(), "seconds": seconds, "p50": at(50), "p99": at(99)}));
    Ok(())
}

async fn ask(url: String, requests: usize, timeout: Duration) -> Result<Vec<u128>> {
    let mut took = Vec::with_capacity(requests);
    for _ in 0..requests {
        let begin = Instant::now();
        tokio::time::timeout(timeout, fetch::fetch(&url))
            .await
            .with_context(|| format!("{url}: no answer"))??;
        took.push(begin.elapsed().as_micros());
    }
    Ok(took)
}
