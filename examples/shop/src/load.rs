//! Customers: each places orders one after the other and checks every one of them by its content.

mod check;
mod tally;
mod visit;

use std::io::Write as _;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Result, ensure};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;

use crate::call::Caller;
use crate::report::Line;
use crate::serve::told_to_stop;
use tally::Tally;
use visit::{Visit, Visited};

/// How many customers there are, and how much they buy.
#[derive(Clone, Copy, Debug, clap::Args)]
pub struct Load {
    /// Customers that order at the same time
    #[arg(long, default_value_t = 8)]
    customers: u32,
    /// Orders in a second that all of them place together, if the shop is fast enough
    #[arg(long, default_value_t = 10.0)]
    rate: f64,
    /// Stop after so many seconds; otherwise when told to
    #[arg(long)]
    seconds: Option<u64>,
    /// Say everything as JSON, one object a line
    #[arg(long)]
    json: bool,
}

/// Places orders until told to stop; says whether all of them were taken and right.
pub(crate) async fn run(load: Load, caller: Caller) -> Result<bool> {
    ensure!(load.customers > 0 && load.rate > 0.0, "there must be customers, and they must order something");
    let (begin, caller) = (Instant::now(), Arc::new(caller));
    let run = SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis();
    let (send, mut visits) = mpsc::channel(1024);
    let mut customers = JoinSet::new();
    for customer in 0..load.customers {
        let (caller, send) = (Arc::clone(&caller), send.clone());
        customers.spawn(shop_on(caller, format!("{run}-{customer}"), load.interval(), send));
    }
    drop(send);
    let mut tally = Tally::default();
    let mut seconds = tokio::time::interval_at((begin + SECOND).into(), SECOND);
    let mut end = std::pin::pin!(load.end());
    loop {
        tokio::select! {
            Some(visited) = visits.recv() => tally.add(visited, begin).iter().try_for_each(|line| load.say(line))?,
            _ = seconds.tick() => load.say(&Line::Second(tally.second()))?,
            () = &mut end => break,
        }
    }
    customers.shutdown().await;
    while let Ok(visited) = visits.try_recv() {
        tally.add(visited, begin).iter().try_for_each(|line| load.say(line))?;
    }
    for line in visit::audit(&caller, tally.unknown(), begin).await {
        tally.note(&line);
        load.say(&line)?;
    }
    let summary = tally.summary(begin.elapsed());
    let good = summary.is_good();
    load.say(&Line::Summary(summary))?;
    Ok(good)
}

const SECOND: Duration = Duration::from_secs(1);

/// One customer after the other, each with one order, at this pace.
async fn shop_on(caller: Arc<Caller>, name: String, interval: Duration, send: mpsc::Sender<Visited>) {
    let mut pace = tokio::time::interval(interval);
    pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
    for number in 0_u64.. {
        pace.tick().await;
        let visit = Visit::new(format!("c-{name}-{number}"), number);
        if send.send(visit.perform(&caller).await).await.is_err() {
            return;
        }
    }
}

impl Load {
    fn interval(&self) -> Duration {
        Duration::from_secs_f64(f64::from(self.customers) / self.rate)
    }

    async fn end(&self) {
        match self.seconds {
            None => told_to_stop().await,
            Some(seconds) => tokio::select! {
                () = told_to_stop() => {}
                () = tokio::time::sleep(Duration::from_secs(seconds)) => {}
            },
        }
    }

    fn say(&self, line: &Line) -> Result<()> {
        let mut out = std::io::stdout().lock();
        if self.json {
            writeln!(out, "{}", serde_json::to_string(line)?)?;
        } else {
            writeln!(out, "{line}")?;
        }
        Ok(())
    }
}
