//! One question over UDP, and the answer to it.

use std::net::Ipv4Addr;
use std::time::Duration;

use anyhow::{Context, Result};
use tokio::net::UdpSocket;

use crate::fetch::locate;

/// Sends a text to `HOST:PORT` and prints what comes back. It is sent once: who loses it is found out.
pub(crate) async fn print(to: &str, text: &str, timeout: Duration) -> Result<()> {
    let answer =
        tokio::time::timeout(timeout, ask(to, text)).await.with_context(|| format!("{to}: no answer"))??;
    println!("{answer}");
    Ok(())
}

async fn ask(to: &str, text: &str) -> Result<String> {
    let address = locate(to).await?;
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).await?;
    socket.connect(address).await.with_context(|| format!("there is no way to {address}"))?;
    socket.send(text.as_bytes()).await?;
    let mut answer = vec![0; 65536];
    let length = socket.recv(&mut answer).await.with_context(|| format!("nobody answers at {address}"))?;
    Ok(String::from_utf8_lossy(&answer[..length]).into_owned())
}
