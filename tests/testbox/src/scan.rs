//! Which ports of which addresses answer over TCP and UDP: whoever refuses is reached as well.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use anyhow::Result;
use tokio::net::{TcpStream, UdpSocket};
use tokio::task::JoinSet;

/// Tries all at once, and prints those that answer within that time.
pub(crate) async fn print(addresses: &[IpAddr], ports: &[u16], timeout: Duration) -> Result<()> {
    let mut tries = JoinSet::new();
    for to in addresses.iter().flat_map(|ip| ports.iter().map(|port| SocketAddr::new(*ip, *port))) {
        tries.spawn(async move { (to, "tcp", tokio::time::timeout(timeout, connect(to)).await) });
        tries.spawn(async move { (to, "udp", tokio::time::timeout(timeout, ask(to)).await) });
    }
    while let Some(tried) = tries.join_next().await {
        match tried? {
            (to, by, Ok(Ok(()))) => println!("{to} {by} open"),
            (to, by, Ok(Err(error))) if error.kind() == ErrorKind::ConnectionRefused => {
                println!("{to} {by} refused");
            }
            (_, _, Ok(Err(_)) | Err(_)) => {}
        }
    }
    Ok(())
}

async fn connect(to: SocketAddr) -> io::Result<()> {
    TcpStream::connect(to).await.map(drop)
}

/// Sends one datagram, and waits for any answer.
async fn ask(to: SocketAddr) -> io::Result<()> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).await?;
    socket.connect(to).await?;
    socket.send(b"scan").await?;
    socket.recv(&mut [0; 1500]).await.map(drop)
}
