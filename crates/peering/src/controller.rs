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

/// Runs all controllers until the tasks end or one of them fails.
pub async fn run(
    tasks: Tasks,
    client: Client,
    namespace: String,
    config: Watched<ClusterConfig>,
    metrics: Metrics,
) -> Result<()> {
    let (told, own) = watch::channel(None);
    let (rejections, rejected) = watch::channel(BTreeSet::new());
    let filed_by = approver::auth_service(&namespace);
    let home = Home::start(&tasks, client.clone(), namespace.clone(), config.clone(), own);
    let certificates = identity::certificates(&tasks, client.clone(), &namespace);
    tasks.spawn("identity", identity::keep(client, namespace, config, certificates, told));
    tasks.spawn("approver", approver::run(tasks.clone(), home.clone(), filed_by));
    tasks.spawn("enrolment", enrol::run(tasks.clone(), home.clone(), rejected));
    tasks.spawn("discovery", discovery::run(tasks.clone(), home.clone()));
    peers::run(tasks, home, rejections, metrics).await
}
