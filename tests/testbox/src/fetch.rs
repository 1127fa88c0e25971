//! A small HTTP client that resolves names in Rust: a static glibc cannot, and crashes trying.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use hickory_resolver::TokioResolver;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// Fetches a page and prints its body; anything but success is an error.
pub(crate) async fn print(url: &str, timeout: Duration) -> Result<()> {
    let body =
        tokio::time::timeout(timeout, fetch(url)).await.with_context(|| format!("{url}: no answer"))??;
    print!("{body}");
    Ok(())
}

async fn fetch(url: &str) -> Result<String> {
    let rest = url.strip_prefix("http://").with_context(|| format!("{url} does not begin with http://"))?;
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    let (host, port) = authority.rsplit_once(':').unwrap_or((authority, "80"));
    let port: u16 = port.parse().with_context(|| format!("{port} is not a port"))?;
    let address = SocketAddr::new(resolve(host).await?, port);
    let mut stream =
        TcpStream::connect(address).await.with_context(|| format!("cannot connect to {address}"))?;
    let request = format!("GET /{path} HTTP/1.0\r\nHost: {authority}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await?;
    let answer = String::from_utf8_lossy(&answer);
    let (head, body) = answer.split_once("\r\n\r\n").context("the answer is not HTTP")?;
    let status = head.lines().next().unwrap_or_default();
    ensure!(status.split(' ').nth(1).is_some_and(|code| code.starts_with('2')), "{url}: {status}");
    Ok(body.to_owned())
}

async fn resolve(host: &str) -> Result<IpAddr> {
    if let Ok(address) = host.parse() {
        return Ok(address);
    }
    let resolver = TokioResolver::builder_tokio()?.build()?;
    let found = resolver.lookup_ip(host).await.with_context(|| format!("cannot resolve {host}"))?;
    found.iter().next().with_context(|| format!("{host} has no address"))
}
