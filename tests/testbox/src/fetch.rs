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

pub(crate) async fn fetch(url: &str) -> Result<String> {
    let (mut stream, authority, path) = connect(url).await?;
    let request = format!("GET /{path} HTTP/1.0\r\nHost: {authority}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await?;
    let answer = String::from_utf8_lossy(&answer);
    let (head, body) = answer.split_once("\r\n\r\n").context("the answer is not HTTP")?;
    let status = head.lines().next().unwrap_or_default();
    ensure!(is_success(status), "{url}: {status}");
    Ok(body.to_owned())
}

/// Connects to the server of a page; gives also its name and the path there.
pub(crate) async fn connect(url: &str) -> Result<(TcpStream, &str, &str)> {
    let rest = url.strip_prefix("http://").with_context(|| format!("{url} does not begin with http://"))?;
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    let address = locate(authority).await?;
    let stream = TcpStream::connect(address).await.with_context(|| format!("cannot connect to {address}"))?;
    Ok((stream, authority, path))
}

/// Whether the first line of an answer says that all is well.
pub(crate) fn is_success(status: &str) -> bool {
    status.split(' ').nth(1).is_some_and(|code| code.starts_with('2'))
}

/// The address of `HOST:PORT`, or of `HOST` at the port of the web.
pub(crate) async fn locate(authority: &str) -> Result<SocketAddr> {
    let (host, port) = authority.rsplit_once(':').unwrap_or((authority, "80"));
    let port: u16 = port.parse().with_context(|| format!("{port} is not a port"))?;
    Ok(SocketAddr::new(resolve(host).await?, port))
}

async fn resolve(host: &str) -> Result<IpAddr> {
    if let Ok(address) = host.parse() {
        return Ok(address);
    }
    let resolver = TokioResolver::builder_tokio()?.build()?;
    let found = resolver.lookup_ip(host).await.with_context(|| format!("cannot resolve {host}"))?;
    found.iter().next().with_context(|| format!("{host} has no address"))
}
