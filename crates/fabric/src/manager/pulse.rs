//! Looks whether the gateway of this cluster lives, apart from the rounds: they take place when something has changed.
//!
//! It asks instead of watching: a watch that has broken, or is about to, shows nothing just as a gateway that is gone.

use std::time::Duration;

use anyhow::{Context, Result};
use ferro_core::network::pulse::{LEASE, LOOK, Pulse};
use ferro_peering::home::Home;
use ferro_runtime::shutdown::Tasks;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::jiff::Timestamp;
use kube::Api;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use tracing::{debug, info, warn};

/// So long an answer may take.
const PATIENCE: Duration = Duration::from_secs(3);

/// Starts to look. What comes back is whether the gateway is silent.
pub(super) fn listen(tasks: &Tasks, home: &Home) -> watch::Receiver<bool> {
    let leases = Api::namespaced(home.client.clone(), &home.namespace);
    let (tell, silent) = watch::channel(false);
    tasks.spawn("gateway's pulse", follow(leases, tell));
    silent
}

async fn follow(leases: Api<Lease>, tell: watch::Sender<bool>) -> Result<()> {
    let mut pulse = Pulse::default();
    loop {
        match look(&leases).await {
            Ok(renewal) => pulse.hear(renewal),
            Err(error) => {
                debug!(error = format!("{error:#}"), "whether the gateway lives cannot be seen");
                pulse.miss();
            }
        }
        let is_silent = pulse.is_silent();
        if tell.send_if_modified(|before| std::mem::replace(before, is_silent) != is_silent) {
            say(is_silent);
        }
        sleep(LOOK).await;
    }
}

async fn look(leases: &Api<Lease>) -> Result<Option<Timestamp>> {
    let lease = timeout(PATIENCE, leases.get_opt(LEASE)).await.context("the API does not answer")??;
    Ok(lease.and_then(|lease| Some(lease.spec?.renew_time?.0)))
}

fn say(is_silent: bool) {
    if is_silent {
        warn!("the gateway is silent; its tunnels count as not connected");
    } else {
        info!("the gateway is heard again");
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use ferro_core::network::pulse::SILENCE;
    use http::{Request, Response};
    use kube::client::{Body, Client, ClientBuilder};
    use serde_json::json;
    use tokio::time::Instant;

    use super::*;

    /// What the API says of the Lease: when it was renewed, or nothing at all.
    type Renewed = Arc<Mutex<Option<u32>>>;

    fn api(renewed: &Renewed) -> Client {
        let renewed = Arc::clone(renewed);
        let answer = tower::service_fn(move |_: Request<Body>| {
            let renewed = *renewed.lock().unwrap();
            async move {
                let Some(second) = renewed else { return std::future::pending().await };
                let lease = json!({"metadata": {"name": LEASE}, "spec": {
                    "renewTime": format!("2026-01-01T00:00:{second:02}.000000Z"),
                }});
                Response::builder().body(Body::from(lease.to_string().into_bytes()))
            }
        });
        ClientBuilder::new(answer, "liqo").build()
    }

    #[tokio::test(start_paused = true)]
    async fn an_outage_of_the_api_is_no_silence_of_the_gateway() {
        let renewed = Renewed::new(Mutex::new(Some(0)));
        let say = |what| *renewed.lock().unwrap() = what;
        let (tell, mut silent) = watch::channel(false);
        let follows = tokio::spawn(follow(Api::namespaced(api(&renewed), "liqo"), tell));

        // The gateway renews, and then the API is away for much longer than the gateway may be.
        sleep(LOOK * 2).await;
        say(None);
        sleep(SILENCE * 10).await;
        say(Some(0));
        sleep(SILENCE.saturating_sub(LOOK)).await;
        assert!(!silent.has_changed().unwrap(), "{:?}", *silent.borrow());

        let quiet = Instant::now();
        silent.wait_for(|is_silent| *is_silent).await.unwrap();
        assert!(quiet.elapsed() <= LOOK * 3, "{:?}", quiet.elapsed());
        say(Some(1));
        silent.wait_for(|is_silent| !is_silent).await.unwrap();
        follows.abort();
    }
}
