//! Leadership: of several replicas one works, the others wait, and one that loses its Lease ends at once.
//!
//! Ending, rather than pausing, because the next start heals everything from what is: there is one way in.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use http::{Method, Request};
use kube::Client;
use kube::client::{Body, ClientBuilder};
use kube_lease_manager::LeaseManagerBuilder;
use tokio::sync::watch;
use tokio::time::Instant;
use tracing::{info, warn};

/// How long a Lease holds after its last renewal, and how much earlier it is renewed.
const DURATION: u64 = 15;
const GRACE: u64 = 10;
/// So long after its last renewal a leader stops, before anybody else may begin.
const SURE: Duration = Duration::from_secs(12);
/// How long giving the Lease back may take; others find it expired soon enough.
const GIVING_BACK: Duration = Duration::from_secs(3);

/// Waits for the Lease, does the work, and gives the Lease back when the work is done.
pub async fn lead(
    client: Client,
    namespace: &str,
    name: &str,
    identity: &str,
    work: impl Future<Output = Result<()>>,
) -> Result<()> {
    let (note, renewed) = watch::channel(Instant::now());
    let manager = LeaseManagerBuilder::new(noting(client, note), name)
        .with_namespace(namespace)
        .with_identity(identity)
        .with_duration(DURATION)
        .with_grace(GRACE)
        .build()
        .await
        .with_context(|| format!("cannot use the Lease {namespace}/{name}"))?;
    let (mut leading, keeper) = manager.watch().await;
    leading.wait_for(|leads| *leads).await.context("the Lease is no longer kept")?;
    info!(lease = name, "leading");
    let result = tokio::select! {
        result = work => result,
        lost = leading.wait_for(|leads| !*leads) => match lost {
            Ok(_) => bail!("another replica took the Lease {namespace}/{name}"),
            Err(_) => bail!("the Lease {namespace}/{name} is no longer kept"),
        },
        () = expiry(renewed) => bail!("the Lease {namespace}/{name} could not be renewed in time"),
    };
    drop(leading);
    if let Ok(kept) = tokio::time::timeout(GIVING_BACK, keeper).await {
        kept.context("the keeper of the Lease failed")?.context("cannot give the Lease back")?;
    } else {
        warn!(lease = name, "could not give the Lease back in time");
    }
    result
}

/// A client that notes when the last write that went well was sent: the keeper of a Lease does not tell that its
/// renewals fail, and a leader that is cut off must know when its time is up.
fn noting(client: Client, note: watch::Sender<Instant>) -> Client {
    let namespace = client.default_namespace().to_owned();
    let send = move |request: Request<Body>| {
        let (client, note) = (client.clone(), note.clone());
        async move {
            let (is_write, sent) = (request.method() != Method::GET, Instant::now());
            let response = client.send(request).await?;
            if is_write && response.status().is_success() {
                note.send_replace(sent);
            }
            Ok::<_, kube::Error>(response)
        }
    };
    ClientBuilder::new(tower::service_fn(send), namespace).build()
}

/// Waits until the last renewal is too long ago.
async fn expiry(mut renewed: watch::Receiver<Instant>) {
    loop {
        let end = *renewed.borrow_and_update() + SURE;
        tokio::select! {
            () = tokio::time::sleep_until(end) => return,
            changed = renewed.changed() => if changed.is_err() {
                tokio::time::sleep_until(end).await;
                return;
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use http::Response;
    use http_body_util::BodyExt as _;
    use serde_json::{Value, json};

    use super::*;

    /// An API server with one Lease, which may be cut off.
    #[derive(Clone)]
    struct Server {
        lease: Arc<Mutex<Value>>,
        is_cut: watch::Receiver<bool>,
    }

    impl Server {
        async fn answer(self, request: Request<Body>) -> Result<Response<Body>, kube::Error> {
            if *self.is_cut.borrow() {
                std::future::pending::<()>().await;
            }
            let (parts, body) = request.into_parts();
            let change = body.collect().await?.to_bytes();
            let mut lease = self.lease.lock().unwrap();
            if parts.method == Method::PATCH {
                let change: Value = serde_json::from_slice(&change).unwrap();
                let fields = change["spec"].as_object().unwrap().clone();
                lease["spec"].as_object_mut().unwrap().extend(fields);
            }
            Ok(Response::new(Body::from(lease.to_string().into_bytes())))
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_leader_that_is_cut_off_stops_before_its_lease_expires() {
        let (cut, is_cut) = watch::channel(false);
        let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"name": "lead", "namespace": "liqo", "resourceVersion": "1"}, "spec": {}});
        let server = Server { lease: Arc::new(Mutex::new(lease)), is_cut };
        let answer = tower::service_fn(move |request| server.clone().answer(request));
        let client = ClientBuilder::new(answer, "liqo").build();
        let work = async {
            tokio::time::sleep(Duration::from_mins(5)).await;
            cut.send_replace(true);
            std::future::pending().await
        };
        let begin = Instant::now();
        let error = lead(client, "liqo", "lead", "one", work).await.unwrap_err().to_string();
        assert!(error.contains("could not be renewed"), "{error}");
        let end = Duration::from_mins(5) + Duration::from_secs(DURATION);
        assert!(begin.elapsed() <= end, "{:?}", begin.elapsed());
    }
}
