//! The home's controller of namespaces on other clusters: follows offloadings, nodes and answers of peers.
//!
//! Flow: [`News`] tells `ferro_core::offloading::Index` what changed; it decides; [`Hand`] writes, and what the API server
//! answers is told to the index at once, so that nothing is written twice. Guarantees: only what changed is looked at; all
//! is looked at anew every ten minutes, with an index that is filled from the beginning. Entries of namespaces
//! that are dropped wait for their pods, of which the agent of virtual nodes tells ([`Occupancy`]); before one goes, its
//! namespace is closed to pods that have yet to begin. Assumptions: this process leads.

mod hand;
mod news;

use std::time::Duration;

use anyhow::Result;
use ferro_core::offloading::{Index, Write};
use ferro_peering::home::Home;
use ferro_runtime::shutdown::Tasks;
use futures::future::join_all;
use k8s_openapi::jiff::Timestamp;
use tokio::time::Instant;
use tracing::{error, warn};

use crate::occupancy::Occupancy;
use hand::{Hand, Seen};
use news::{News, Watches};

/// Changes that come together are looked at together, so that each map is written once.
const GATHER: Duration = Duration::from_millis(20);
/// Pause after something that failed; longer and longer, as long as it fails.
const RETRY: Duration = Duration::from_secs(1);
const MOST_DOUBLINGS: u32 = 5;
/// When nothing happens, all is looked at again.
const AT_REST: Duration = Duration::from_mins(10);
/// So many writes that do not depend on each other are under way at a time.
const AT_ONCE: usize = 8;
/// A namespace is settled in fewer steps than this; one that is not shall not keep the API server busy.
const MOST_STEPS: usize = 20;

/// Keeps the namespaces on other clusters as they should be, for ever.
pub async fn run(tasks: Tasks, home: Home, occupancy: Occupancy) -> Result<()> {
    let watches = Watches::start(&tasks, &home, occupancy.follow().await?);
    home.ready().await?;
    watches.ready().await?;
    let own = home.own()?.signer.identity().id().to_string();
    let mut controller = Controller {
        index: Index::new(&own, &home.namespace),
        news: watches.follow(),
        hand: Hand::new(&home.client, &own),
        occupancy,
        installation: home.namespace.clone(),
        own,
        watches,
    };
    controller.run().await
}

struct Controller {
    own: String,
    installation: String,
    watches: Watches,
    news: News,
    index: Index,
    hand: Hand,
    occupancy: Occupancy,
}

impl Controller {
    async fn run(&mut self) -> Result<()> {
        let (mut failures, mut check) = (0_u32, Instant::now() + AT_REST);
        loop {
            if Instant::now() >= check {
                self.begin_anew();
                check = Instant::now() + AT_REST;
            }
            self.news.tell(&mut self.index);
            failures = if self.settle().await { failures.saturating_add(1) } else { 0 };
            let retry = RETRY * 2_u32.pow(failures.min(MOST_DOUBLINGS));
            let wake = if failures > 0 { check.min(Instant::now() + retry) } else { check };
            tokio::select! {
                changed = self.news.come() => changed?,
                () = tokio::time::sleep_until(wake) => {}
            }
            tokio::time::sleep(GATHER).await;
        }
    }

    /// Forgets everything, and learns it again from the watches.
    fn begin_anew(&mut self) {
        self.index = Index::new(&self.own, &self.installation);
        self.news = self.watches.follow();
    }

    /// Plans and writes until nothing is left to write; says whether something is to be tried again.
    async fn settle(&mut self) -> bool {
        let mut failed = Vec::new();
        for _ in 0..MOST_STEPS {
            let writes = self.index.plan(Timestamp::now());
            if writes.is_empty() {
                break;
            }
            if !self.close(&writes) {
                self.news.tell(&mut self.index);
                for write in &writes {
                    self.index.again(write.subject());
                }
                continue;
            }
            for stage in writes.chunk_by(|one, next| one.stage() == next.stage()) {
                failed.extend(self.perform(stage).await);
            }
        }
        let left = self.index.plan(Timestamp::now());
        if !left.is_empty() {
            error!(writes = ?left, "this is never settled; it is tried again after a pause");
        }
        failed.extend(left);
        for write in &failed {
            self.index.again(write.subject());
        }
        self.occupancy.reopen(|cluster, namespace| self.index.leaves(cluster, namespace));
        !failed.is_empty()
    }

    /// Closes what is about to be dropped. Whether there is in it who was known to be when that was planned.
    fn close(&self, writes: &[Write]) -> bool {
        let mut dropped = writes.iter().flat_map(Write::dropped);
        dropped.all(|(cluster, namespace)| {
            self.occupancy.close(cluster, namespace) == self.index.is_occupied(cluster, namespace)
        })
    }

    /// Writes that do not depend on each other. Returns those that failed.
    async fn perform(&mut self, writes: &[Write]) -> Vec<Write> {
        let mut failed = Vec::new();
        for some in writes.chunks(AT_ONCE) {
            let done = join_all(some.iter().map(|write| self.hand.perform(&self.index, write))).await;
            for (write, result) in some.iter().zip(done) {
                match result {
                    Ok(seen) => self.take_in(seen),
                    Err(error) => {
                        warn!(subject = ?write.subject(), error = format!("{error:#}"), "will be tried again");
                        failed.push(write.clone());
                    }
                }
            }
        }
        failed
    }

    /// What the API server answered is what the watches will see.
    fn take_in(&mut self, seen: Seen) {
        match seen {
            Seen::Nothing => {}
            Seen::Namespace(name, namespace) => self.index.set_namespace(&name, Some(&namespace)),
            Seen::Offloading(namespace, offloading) => self.index.set_offloading(&namespace, offloading),
            Seen::Map(namespace, map) => self.index.set_map(&namespace, &self.own, map),
        }
    }
}
