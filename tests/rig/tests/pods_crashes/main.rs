//! Controllers on both sides that end after their n-th write, here or at the peer, for every n while ten pods are made and
//! deleted: whatever was cut off, the next start comes to the same end, and nothing is left on either side.

mod pair;

use std::sync::atomic::Ordering;

use anyhow::{Context, Result, ensure};
use futures::future::try_join_all;
use rig::fuse::Fuse;
use rig::objects::{await_same, everything};
use rig::site::clusters;
use rig::wait::block_on;

use pair::Pair;

/// So many pairs run side by side, since much of the time is spent waiting for watches.
const PAIRS: i64 = 3;

/// Ends after so many writes, here and at the peer; after less than none it never does.
fn after(writes: i64) -> Fuse {
    Fuse::after(writes).everywhere()
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

/// Ends controllers after every n-th write of which the remainder is `part`.
async fn every_write(part: i64) -> Result<()> {
    let name = format!("fall-{part}");
    let topology = clusters(&name, &["rome", "turin"]).await?;
    let (a, b) = (topology.cluster("rome")?, topology.cluster("turin")?);
    let mut pair = Pair::join(a, b).await?;
    pair.cycle(&[after(-1), after(-1)]).await.context("the first time")?;
    let before = [everything(a).await?, everything(b).await?];
    let whole = [after(-1), after(-1)];
    pair.cycle(&whole).await.context("without any crash")?;
    let writes = whole.map(|fuse| fuse.written.load(Ordering::SeqCst));
    // Each pod is made, shown and deleted.
    ensure!(writes.iter().all(|writes| *writes >= 30), "only {writes:?} writes");
    for n in (1..=writes[0].max(writes[1])).filter(|n| n % PAIRS == part) {
        let ended = end_after(&mut pair, n, writes).await;
        ended.with_context(|| format!("ended after write {n} of {writes:?}"))?;
    }
    println!("{name}: ended after its part of {writes:?} writes, and came to the right end every time");
    // Whoever ended with the last write of all is followed by nobody who tidies up.
    pair.cycle(&[after(-1), after(-1)]).await.context("the last time")?;
    await_same(a, &before[0]).await?;
    await_same(b, &before[1]).await
}

#[test]
fn whoever_ends_after_any_write_for_ten_pods_comes_to_the_same_end() -> Result<()> {
    block_on(try_join_all((0..PAIRS).map(every_write))).map(drop)
}
