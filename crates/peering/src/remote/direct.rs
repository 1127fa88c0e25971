//! A connection of its own to the API server of a peer, for one request whose answer is upgraded or has no end.
//!
//! The shared client cannot do that: it bounds what is answered, and HTTP/2 knows no upgrades. Guarantees: the
//! connection ends when its [`Line`] is dropped, and so does what the request had started over there; dropping
//! [`ask`] itself ends it, too. No more of a body is read than somebody asks for.

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use ferro_core::auth::Credential;
use http_body_util::Empty;
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1::{self, SendRequest};
use hyper::header::{AUTHORIZATION, HOST, HeaderValue};
use hyper::{Request, Response, Uri};
use hyper_rustls::HttpsConnectorBuilder;
use tokio::task::JoinSet;
use tower_service::Service as _;

use super::{CONNECT, bearer, tcp, tls};
use crate::keepsake::Keepsake;

/// How much of an answer lies here until it is asked for; the head has to fit.
const BUFFER: usize = 64 * 1024;
/// How long what was sent may stay unconfirmed.
const UNCONFIRMED: Duration = Duration::from_mins(1);

/// The connection of one answer.
#[derive(Debug)]
pub struct Line {
    _sender: SendRequest<Empty<Bytes>>,
    _drive: JoinSet<()>,
}

/// Asks the API server of a peer, by path and query, as whom the peer let in. `patience` is how long the head of the
/// answer may take, where there is a limit to that.
pub async fn ask(
    keepsake: &Keepsake,
    mut request: Request<Empty<Bytes>>,
    patience: Option<Duration>,
) -> Result<(Response<Incoming>, Line)> {
    let Some(grant) = &keepsake.grant else { bail!("the other cluster has not let this one in yet") };
    let needs_key = matches!(grant.credential, Credential::Certificate(_));
    ensure!(!needs_key || keepsake.key.is_some(), "the key of the certificate that was granted is missing");
    let uri: Uri = format!("{}{}", grant.api_server_url, request.uri())
        .parse()
        .context("the request is too long for the other cluster")?;
    let host = uri.authority().context("the URL of the API server has no host")?.as_str();
    request.headers_mut().insert(HOST, HeaderValue::from_str(host)?);
    if let Some(bearer) = bearer(grant)? {
        request.headers_mut().insert(AUTHORIZATION, bearer);
    }
    *request.uri_mut() = uri.path_and_query().context("the request has no path")?.as_str().parse()?;

    let mut tcp = tcp();
    tcp.set_tcp_user_timeout(Some(UNCONFIRMED));
    let https = HttpsConnectorBuilder::new().with_tls_config(tls(grant, keepsake.key.as_deref())?);
    let mut connector = https.https_only().enable_http1().wrap_connector(tcp);
    let stream = tokio::time::timeout(CONNECT * 2, connector.call(uri)).await;
    let stream = stream
        .map_err(|_| anyhow::anyhow!("it takes too long"))
        .and_then(|connected| connected.map_err(|error| anyhow::anyhow!(error)))
        .with_context(|| format!("cannot connect to the API server at {}", grant.api_server_url))?;
    let (mut sender, connection) = http1::Builder::new().max_buf_size(BUFFER).handshake(stream).await?;
    let mut drive = JoinSet::new();
    drive.spawn(async move {
        // How the connection ends shows in the answer as well.
        _ = connection.with_upgrades().await;
    });
    let answer = sender.send_request(request);
    let answer = match patience {
        Some(patience) => tokio::time::timeout(patience, answer)
            .await
            .with_context(|| format!("the API server does not answer within {} s", patience.as_secs()))?,
        None => answer.await,
    };
    let response = answer.context("the API server does not answer as one")?;
    Ok((response, Line { _sender: sender, _drive: drive }))
}
