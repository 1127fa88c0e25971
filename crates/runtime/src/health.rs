//! What a cluster asks a role: is it alive, is it ready, what are its figures.
//!
//! Readiness is a set of guards: whoever must do something first takes one, and the role is ready when all are gone.
//! A guard that is dropped by a failing task counts as done, but then the task has ended the process.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result};
use axum::Router;
use axum::http::StatusCode;
use axum::routing::get;
use prometheus_client::registry::Registry;
use tokio::net::TcpListener;

/// What the role still has to do before it is ready.
#[derive(Clone, Debug, Default)]
pub struct Readiness(Arc<Mutex<BTreeSet<&'static str>>>);

/// One thing to do before the role is ready; dropping it says that it is done.
#[derive(Debug)]
pub struct Pending {
    name: &'static str,
    readiness: Readiness,
}

impl Readiness {
    /// Makes the role not ready until the guard is dropped.
    #[must_use]
    pub fn pending(&self, name: &'static str) -> Pending {
        self.set().insert(name);
        Pending { name, readiness: self.clone() }
    }

    fn missing(&self) -> Vec<&'static str> {
        self.set().iter().copied().collect()
    }

    fn set(&self) -> std::sync::MutexGuard<'_, BTreeSet<&'static str>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        self.readiness.set().remove(self.name);
    }
}

/// Serves `/livez`, `/readyz` and `/metrics`.
pub async fn serve(listen: SocketAddr, readiness: Readiness, metrics: Registry) -> Result<()> {
    let metrics = Arc::new(metrics);
    let router = Router::new()
        .route("/livez", get(|| async { "ok" }))
        .route("/readyz", get(move || std::future::ready(ready(&readiness))))
        .route("/metrics", get(move || std::future::ready(encode(&metrics))));
    let listener = TcpListener::bind(listen)
        .await
        .with_context(|| format!("cannot listen on {listen} for health checks; is the port taken?"))?;
    axum::serve(listener, router).await.context("the health endpoint ended")
}

fn ready(readiness: &Readiness) -> (StatusCode, String) {
    let missing = readiness.missing();
    if missing.is_empty() {
        (StatusCode::OK, "ok".into())
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, format!("waiting for {}", missing.join(", ")))
    }
}

fn encode(metrics: &Registry) -> (StatusCode, String) {
    let mut text = String::new();
    match prometheus_client::encoding::text::encode(&mut text, metrics) {
        Ok(()) => (StatusCode::OK, text),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_role_is_ready_when_the_last_guard_is_gone() {
        let readiness = Readiness::default();
        let (identity, watches) = (readiness.pending("identity"), readiness.pending("watches"));
        assert_eq!(
            ready(&readiness),
            (StatusCode::SERVICE_UNAVAILABLE, "waiting for identity, watches".into())
        );
        drop(identity);
        assert_eq!(ready(&readiness).1, "waiting for watches");
        drop(watches);
        assert_eq!(ready(&readiness).0, StatusCode::OK);
    }
}
