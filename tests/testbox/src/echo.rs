//! A server that says who answered and who asked, so that a test can see where a request went and what address it had.

use std::net::SocketAddr;

use anyhow::{Context, Result};
use axum::body::Body;
use axum::extract::ConnectInfo;
use axum::http::HeaderMap;
use axum::routing::{get, post};
use axum::{Json, Router};
use serde_json::{Value, json};
use tokio::net::{TcpListener, UdpSocket};

/// Serves HTTP and UDP on the same port.
pub(crate) async fn serve(listen: SocketAddr) -> Result<()> {
    let router = Router::new()
        .route("/", get(answer))
        .route("/mirror", post(mirror))
        .route("/healthz", get(|| async { "ok" }));
    let listener = TcpListener::bind(listen).await.with_context(|| format!("cannot listen on {listen}"))?;
    let datagrams = UdpSocket::bind(listen).await.with_context(|| format!("cannot listen on {listen}"))?;
    println!("listening on {listen}");
    tokio::select! {
        result = axum::serve(listener, router.into_make_service_with_connect_info::<SocketAddr>()) => Ok(result?),
        result = echo_datagrams(&datagrams) => result,
    }
}

async fn answer(ConnectInfo(caller): ConnectInfo<SocketAddr>, headers: HeaderMap) -> Json<Value> {
    let host = headers.get("host").and_then(|host| host.to_str().ok()).unwrap_or_default();
    println!("GET / from {caller}");
    Json(identity(caller, host))
}

/// Sends back what comes, while it comes.
async fn mirror(body: Body) -> Body {
    body
}

async fn echo_datagrams(socket: &UdpSocket) -> Result<()> {
    let mut buffer = vec![0; 65536];
    loop {
        let (length, caller) = socket.recv_from(&mut buffer).await?;
        let mut reply = identity(caller, "");
        reply["payload"] = String::from_utf8_lossy(&buffer[..length]).into();
        // A caller that cannot be answered is its own affair.
        let _ = socket.send_to(reply.to_string().as_bytes(), caller).await;
    }
}

/// Cluster, node and pod come from the pod's environment.
fn identity(caller: SocketAddr, host: &str) -> Value {
    let variable = |name: &str| std::env::var(name).unwrap_or_default();
    json!({
        "cluster": variable("CLUSTER"), "node": variable("NODE"), "pod": variable("HOSTNAME"),
        "caller": caller.ip(), "host": host,
    })
}
