//! The provider's controller of Tenants: what peers have here, from their maps.
//!
//! Flow: `Facts` are what the watches say about the peer of a Tenant, and `Stock` is what there is of all Tenants, filed
//! by Tenant; `ferro_core::tenancy` decides; `Hand` writes. Guarantees: each Tenant has a task of its own, which decides
//! from watches that have seen all that it wrote before, so that of two for the last place one has it, and a Tenant that
//! is slow or fails delays no other. A change wakes the Tenant that it concerns. Assumptions: this process leads.

mod bells;
mod facts;
mod hand;
mod shelf;
mod stock;
mod view;
mod worker;

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use anyhow::Result;
use ferro_peering::home::Home;
use ferro_runtime::shutdown::Tasks;
use kube::ResourceExt as _;
use tracing::debug;

use bells::Bells;
use facts::Facts;
use hand::Hand;
use stock::Stock;
use worker::Worker;

/// Changes that come together are looked at together.
const GATHER: Duration = Duration::from_millis(20);
/// When nothing happens, all is looked at again.
const AT_REST: Duration = Duration::from_mins(10);

/// Keeps all Tenants as they should be, for ever.
pub async fn run(tasks: Tasks, home: Home) -> Result<()> {
    let bells = Bells::default();
    let stock = Stock::start(&tasks, &home, &bells);
    home.ready().await?;
    home.bindings.ready().await?;
    home.tenants.ready().await?;
    home.networks.ready().await?;
    stock.ready().await?;
    let hand = Hand::new(&home, stock.clone());
    let office = Arc::new(Office { home, stock, hand, facts: RwLock::default() });
    Controller { tasks, office, bells, workers: HashMap::new() }.run().await
}

/// What the tasks of all Tenants share.
struct Office {
    home: Home,
    stock: Stock,
    hand: Hand,
    facts: RwLock<HashMap<String, Arc<Facts>>>,
}

impl Office {
    /// What is known about the peer of a Tenant.
    fn facts(&self, tenant: &str) -> Option<Arc<Facts>> {
        self.facts.read().unwrap_or_else(PoisonError::into_inner).get(tenant).cloned()
    }
}

struct Controller {
    tasks: Tasks,
    office: Arc<Office>,
    bells: Bells,
    workers: HashMap<String, Tasks>,
}

impl Controller {
    async fn run(mut self) -> Result<()> {
        let mut home = self.office.home.clone();
        loop {
            self.survey()?;
            tokio::select! {
                changed = home.peers.changed() => changed?,
                changed = home.tenants.changed() => changed?,
                changed = home.bindings.changed() => changed?,
                changed = home.networks.tunnels.changed() => changed?,
                changed = home.config.changed() => {
                    changed?;
                    self.bells.ring_all();
                }
                () = self.bells.unheard() => {}
                () = tokio::time::sleep(AT_REST) => self.bells.ring_all(),
            }
            tokio::time::sleep(GATHER).await;
        }
    }

    /// Looks at all peers: starts tasks, ends those that nobody needs, and wakes whose facts have changed.
    fn survey(&mut self) -> Result<()> {
        let all = Facts::gather(&self.office.home)?;
        let mut names: BTreeSet<String> = self.office.stock.tenants().into_iter().collect();
        names.extend(self.office.home.tenants.all().iter().map(|tenant| tenant.name_any()));
        names.extend(all.iter().filter(|(_, facts)| facts.is_wanted()).map(|(name, _)| name.clone()));
        let changed = self.note(all, &names);
        self.workers.retain(|name, tasks| {
            let stays = names.contains(name);
            if !stays {
                self.bells.forget(name);
                tasks.dismiss();
            }
            stays
        });
        for name in names {
            if self.workers.contains_key(&name) {
                if changed.contains(&name) {
                    self.bells.ring(&name);
                }
                continue;
            }
            debug!(tenant = name, "is looked after");
            let tasks = self.tasks.child();
            let worker = Worker::new(name.clone(), self.office.clone(), self.bells.answer(&name));
            tasks.spawn("tenant", worker.run());
            self.workers.insert(name, tasks);
        }
        Ok(())
    }

    /// Takes over what is known now; says about whom it is news. Of one that has a Tenant and no peer, this is known.
    fn note(&self, mut all: HashMap<String, Facts>, names: &BTreeSet<String>) -> BTreeSet<String> {
        for name in names {
            if !all.contains_key(name) {
                all.insert(name.clone(), Facts::of_nobody(&self.office.home, name));
            }
        }
        let mut known = self.office.facts.write().unwrap_or_else(PoisonError::into_inner);
        let is_news =
            |(name, facts): &(&String, &Facts)| known.get(*name).is_none_or(|before| **before != **facts);
        let changed: BTreeSet<String> = all.iter().filter(is_news).map(|(name, _)| name.clone()).collect();
        *known = all.into_iter().map(|(name, facts)| (name, Arc::new(facts))).collect();
        changed
    }
}
