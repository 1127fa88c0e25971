//! All that the controller role does once it leads, on one set of watches.

use std::collections::BTreeSet;

use anyhow::Result;
use ferro_api::config::ClusterConfig;
use ferro_runtime::shutdown::Tasks;
use ferro_runtime::watch::Watched;
use kube::Client;
use tokio::sync::watch;

use crate::home::Home;
use crate::metrics::Metrics;
use crate::{approver, discovery, enrol, identity, peers};

/// This cluster, with its identity kept and its watches started. Call it only while this process leads.
pub fn home(tasks: &Tasks, client: Client, namespace: String, config: Watched<ClusterConfig>) -> Home {
    let (told, own) = watch::channel(None);
    let home = Home::start(tasks, client.clone(), namespace.clone(), config.clone(), own);
    let certificates = identity::certificates(tasks, client.clone(), &namespace);
    tasks.spawn("identity", identity::keep(client, namespace, config, certificates, told));
    home
}

/// Runs all controllers of peering until the tasks end or one of them fails.
pub async fn run(tasks: Tasks, home: Home, metrics: Metrics) -> Result<()> {
    let (rejections, rejected) = watch::channel(BTreeSet::new());
    let filed_by = approver::auth_service(&home.namespace);
    tasks.spawn("approver", approver::run(tasks.clone(), home.clone(), filed_by));
    tasks.spawn("enrolment", enrol::run(tasks.clone(), home.clone(), rejected));
    tasks.spawn("discovery", discovery::run(tasks.clone(), home.clone()));
    peers::run(tasks, home, rejections, metrics).await
}
