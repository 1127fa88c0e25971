//! A client of the API server that a pod is told of, by its variables, its token and the authorities beside that: what every
//! library does for a program that runs inside a cluster.

use std::env;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::fetch;

const FOLDER: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// Prints the names of all pods in the namespace of this one.
pub(crate) async fn print(timeout: Duration) -> Result<()> {
    let names = tokio::time::timeout(timeout, names()).await.context("the API server does not answer")??;
    for name in &names {
        println!("{name}");
    }
    Ok(())
}

async fn names() -> Result<Vec<String>> {
    let body = get(&format!("/api/v1/namespaces/{}/pods", own("namespace")?)).await?;
    let pods: Value = serde_json::from_str(&body).context("the answer is not JSON")?;
    let items = pods["items"].as_array().context("the answer is no list")?;
    Ok(items.iter().filter_map(|pod| pod["metadata"]["name"].as_str()).map(str::to_owned).collect())
}

async fn get(path: &str) -> Result<String> {
    let host = env::var("KUBERNETES_SERVICE_HOST").context("nobody says where the API server is")?;
    let port = env::var("KUBERNETES_SERVICE_PORT").context("nobody says at which port it is")?;
    let address = fetch::locate(&format!("{host}:{port}")).await?;
    let name = ServerName::try_from(host.clone()).with_context(|| format!("{host} is no name"))?;
    let config = ClientConfig::builder().with_root_certificates(authorities()?).with_no_client_auth();
    let tcp = TcpStream::connect(address).await.with_context(|| format!("cannot connect to {address}"))?;
    let mut stream = TlsConnector::from(Arc::new(config)).connect(name, tcp).await?;
    let token = own("token")?;
    let request = format!(
        "GET {path} HTTP/1.0\r\nHost: {host}\r\nAuthorization: Bearer {token}\r\nAccept: application/json\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).await?;
    let mut answer = Vec::new();
    // Some end the connection without a goodbye.
    _ = stream.read_to_end(&mut answer).await;
    let answer = String::from_utf8_lossy(&answer);
    let (head, body) = answer.split_once("\r\n\r\n").context("the answer is not HTTP")?;
    let status = head.lines().next().unwrap_or_default();
    ensure!(fetch::is_success(status), "{path}: {status} {body}");
    Ok(body.to_owned())
}

fn own(file: &str) -> Result<String> {
    let path = Path::new(FOLDER).join(file);
    let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    Ok(text.trim().to_owned())
}

fn authorities() -> Result<RootCertStore> {
    let mut roots = RootCertStore::empty();
    let path = Path::new(FOLDER).join("ca.crt");
    for authority in
        CertificateDer::pem_file_iter(&path).with_context(|| format!("cannot read {}", path.display()))?
    {
        roots.add(authority.context("ca.crt is no certificate")?)?;
    }
    Ok(roots)
}
