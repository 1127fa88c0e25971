//! Serving until told to stop, without dropping anybody: first no new customers are sent, then those here are served.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use axum::Router;
use axum::routing::get;
use http::StatusCode;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

/// Those who are being served when the listener closes are given so long.
const LAST_WORDS: Duration = Duration::from_secs(5);

/// Where to listen, and how long it takes until everybody knows that this instance ends.
#[derive(Clone, Copy, Debug, clap::Args)]
pub struct Stage {
    /// Where to listen
    #[arg(long, default_value = "0.0.0.0:8080")]
    listen: SocketAddr,
    /// Seconds between "not ready" and the end, until nobody is sent here any more
    #[arg(long, default_value_t = 3)]
    drain: u64,
}

/// Serves until a signal says otherwise.
pub(crate) async fn serve(stage: Stage, router: Router) -> Result<()> {
    let ending = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&ending);
    let ready = move || async move {
        if seen.load(Ordering::Relaxed) { StatusCode::SERVICE_UNAVAILABLE } else { StatusCode::OK }
    };
    let router = router.route("/livez", get(|| async { StatusCode::OK })).route("/readyz", get(ready));
    let listener = TcpListener::bind(stage.listen).await;
    let listener = listener.with_context(|| format!("cannot listen on {}", stage.listen))?;
    println!("listening on {}", listener.local_addr()?);
    let (closed, shut) = tokio::sync::oneshot::channel();
    let drained = async move {
        told_to_stop().await;
        ending.store(true, Ordering::Relaxed);
        tokio::time::sleep(Duration::from_secs(stage.drain)).await;
        let _ = closed.send(());
    };
    let patience_ends = async {
        let _ = shut.await;
        tokio::time::sleep(LAST_WORDS).await;
    };
    tokio::select! {
        served = axum::serve(listener, router).with_graceful_shutdown(drained) => Ok(served?),
        () = patience_ends => Ok(()),
    }
}

/// Returns when this process is to end.
pub(crate) async fn told_to_stop() {
    match signal(SignalKind::terminate()) {
        Ok(mut terminate) => tokio::select! {
            _ = terminate.recv() => {}
            _ = tokio::signal::ctrl_c() => {}
        },
        // Without the one signal there is still the other.
        Err(_) => drop(tokio::signal::ctrl_c().await),
    }
}
