//! The client of a role to the API server of its own cluster: by as few HTTP/2 connections as it takes, and counted.
//!
//! The usual client opens a connection for each watch, and each costs memory in both processes.

use std::time::Duration;

use anyhow::{Context, Result};
use http::Request;
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use kube::client::{Body, ClientBuilder, ConfigExt as _};
use kube::{Client, Config};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;
use tower::{BoxError, ServiceBuilder};

use crate::connections::Connections;

/// How long a connection may take to come about.
const CONNECT: Duration = Duration::from_secs(5);
/// How often a silent connection is tried, and how long an echo may take.
const PING: Duration = Duration::from_secs(20);

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct What {
    method: String,
    resource: String,
}

/// Connects to the API server of the cluster that this runs in, or that the kubeconfig names.
pub async fn connect(metrics: &mut Registry) -> Result<Client> {
    let config = Config::infer().await.context("cannot find the API server; does this run in a cluster?")?;
    let requests = Family::<What, Counter>::default();
    metrics.register("api_requests", "Requests to the API server of this cluster", requests.clone());
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    tcp.set_connect_timeout(Some(CONNECT));
    let tls = config.rustls_client_config().context("cannot use the credentials of this role")?;
    let connector = hyper_rustls::HttpsConnectorBuilder::new()
        .with_tls_config(tls)
        .https_only()
        .enable_http1()
        .enable_http2()
        .wrap_connector(tcp);
    let open = move || {
        legacy::Client::builder(TokioExecutor::new())
            .timer(TokioTimer::new())
            .pool_timer(TokioTimer::new())
            .http2_keep_alive_interval(PING)
            .http2_keep_alive_timeout(PING)
            .build::<_, Body>(connector.clone())
    };
    let count = move |request: Request<Body>| {
        let what = What {
            method: request.method().as_str().to_owned(),
            resource: resource(request.uri().path()).to_owned(),
        };
        requests.get_or_create(&what).inc();
        request
    };
    let service = ServiceBuilder::new()
        .map_request(count)
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer().context("cannot use the credentials of this role")?)
        .map_err(BoxError::from)
        .service(Connections::new(open));
    Ok(ClientBuilder::new(service, config.default_namespace).build())
}

/// The plural of the kind that a path of the API is about; names and namespaces would be too many.
fn resource(path: &str) -> &str {
    let mut parts = path.trim_start_matches('/').split('/');
    let version = if parts.next() == Some("apis") { parts.nth(1) } else { parts.next() };
    let mut rest = version.map_or_else(Vec::new, |_| parts.collect());
    if rest.first() == Some(&"namespaces") && rest.len() > 2 {
        rest.drain(..2);
    }
    rest.first().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::resource;

    #[test]
    fn the_kind_is_read_from_the_path() {
        assert_eq!(resource("/api/v1/namespaces/liqo/secrets/ferro-tokens"), "secrets");
        assert_eq!(resource("/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"), "leases");
        assert_eq!(
            resource("/apis/discovery.liqo.io/v1alpha1/foreignclusters/turin/status"),
            "foreignclusters"
        );
        assert_eq!(resource("/api/v1/namespaces/liqo"), "namespaces");
        assert_eq!(resource("/version"), "");
    }
}
