//! Which ports of which addresses answer over TCP: whoever refuses is reached as well.

use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use anyhow::Result;
use tokio::net::TcpStream;
use tokio::task::JoinSet;

/// Tries all at once, and prints those that answer within that time.
pub(crate) async fn print(addresses: &[IpAddr], ports: &[u16], timeout: Duration) -> Result<()> {
    let mut tries = JoinSet::new();
    for to in addresses.iter().flat_map(|ip| ports.iter().map(|port| SocketAddr::new(*ip, *port))) {
        tries.spawn(async move { (to, tokio::time::timeout(timeout, TcpStream::connect(to)).await) });
    }
    while let Some(tried) = tries.join_next().await {
        match tried? {
            (to, Ok(Ok(_))) => println!("{to} open"),
            (to, Ok(Err(error))) if error.kind() == ErrorKind::ConnectionRefused => println!("{to} refused"),
            (_, Ok(Err(_)) | Err(_)) => {}
        }
    }
    Ok(())
}
