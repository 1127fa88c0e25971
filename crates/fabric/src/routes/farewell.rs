//! The end of the node role: routes stay for the one that comes next, unless none will come.

use std::time::Duration;

use anyhow::{Context, Result};
use ferro_core::network::routes::Wanted;
use k8s_openapi::api::apps::v1::DaemonSet;
use kube::{Api, Client};
use tokio::time::{Instant, sleep, timeout};
use tracing::{info, warn};

use super::Kernel;

/// The object that starts one node role on each node.
const DAEMON_SET: &str = "ferro-node";
/// How long the API server has to say whether another one comes. After 30 s the process is killed.
const PATIENCE: Duration = Duration::from_secs(20);
/// Rights go with the installation, but an API server that has just started may not know yet who has which.
const DOUBT: Duration = Duration::from_secs(5);
/// Between two questions.
const PAUSE: Duration = Duration::from_secs(1);

/// What the API server says to one question.
#[derive(Debug, PartialEq, Eq)]
enum Said {
    /// Another one comes.
    Stays,
    /// None comes.
    Goes,
    /// That it is not ours to ask.
    Barred,
    /// Nothing that helps. That it does not know us is of that sort: a token goes with its pod, which may have been deleted
    /// by force, and another one is here.
    Nothing,
}

/// Removes all that was made in the kernel, if the installation is being removed.
pub async fn farewell(client: Client, namespace: &str) {
    let objects = Api::namespaced(client, namespace);
    match timeout(PATIENCE, is_for_good(&objects)).await {
        Ok(true) => match clean() {
            Ok(changes) => info!(changes, "the installation is being removed; nothing is left in the kernel"),
            Err(error) => warn!(error = format!("{error:#}"), "something is left in the kernel"),
        },
        Ok(false) => {}
        Err(_) => {
            warn!("the API server does not say whether the installation stays; routes are left in place");
        }
    }
}

fn clean() -> Result<usize> {
    let changes = Kernel::open()?.become_like(&Wanted::default()).context("cannot remove routes")?;
    Ok(changes.len())
}

/// Whether no other node role will come after this one; asks until somebody knows.
async fn is_for_good(objects: &Api<DaemonSet>) -> bool {
    let mut barred_since = None;
    loop {
        match ask(objects).await {
            Said::Stays => return false,
            Said::Goes => return true,
            Said::Barred => _ = barred_since.get_or_insert_with(Instant::now),
            Said::Nothing => {}
        }
        if barred_since.is_some_and(|since| since.elapsed() >= DOUBT) {
            return true;
        }
        sleep(PAUSE).await;
    }
}

async fn ask(objects: &Api<DaemonSet>) -> Said {
    match objects.get_metadata(DAEMON_SET).await {
        Ok(object) if object.metadata.deletion_timestamp.is_some() => Said::Goes,
        Ok(_) => Said::Stays,
        Err(kube::Error::Api(status)) if status.code == 404 => Said::Goes,
        Err(kube::Error::Api(status)) if status.code == 403 => Said::Barred,
        Err(_) => Said::Nothing,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use http::{Request, Response};
    use kube::client::{Body, ClientBuilder};
    use serde_json::{Value, json};

    use super::*;

    /// An API server that answers so in turn, and the last of it for ever.
    fn api(answers: Vec<(u16, Value)>) -> Api<DaemonSet> {
        let turn = AtomicUsize::new(0);
        let answer = tower::service_fn(move |_: Request<Body>| {
            let turn = turn.fetch_add(1, Ordering::Relaxed).min(answers.len() - 1);
            let (code, answer) = &answers[turn];
            let response =
                Response::builder().status(*code).body(Body::from(answer.to_string().into_bytes()));
            std::future::ready(response)
        });
        Api::namespaced(ClientBuilder::new(answer, "liqo").build(), "liqo")
    }

    fn present(metadata: &Value) -> (u16, Value) {
        (200, json!({"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": metadata}))
    }

    fn refusal(code: u16) -> (u16, Value) {
        let why = json!({"kind": "Status", "apiVersion": "v1", "code": code, "status": "Failure", "message": "no",
            "reason": "No"});
        (code, why)
    }

    #[tokio::test(start_paused = true)]
    async fn routes_go_only_with_the_installation() {
        let stays = || present(&json!({"name": "ferro-node"}));
        let going = json!({"name": "ferro-node", "deletionTimestamp": "2026-01-01T00:00:00Z"});
        for (answers, expected) in [
            (vec![stays()], Some(false)),
            (vec![present(&going)], Some(true)),
            (vec![refusal(404)], Some(true)),
            (vec![refusal(403)], Some(true)),
            // Its rights go first, and then it itself.
            (vec![refusal(403), refusal(401)], Some(true)),
            (vec![refusal(403), refusal(403), stays()], Some(false)),
            (vec![refusal(500), refusal(500), refusal(404)], Some(true)),
            (vec![refusal(401)], None),
            (vec![refusal(500)], None),
        ] {
            let said = format!("{answers:?}");
            let found = timeout(PATIENCE, is_for_good(&api(answers))).await.ok();
            assert_eq!(found, expected, "{said}");
        }
    }
}
