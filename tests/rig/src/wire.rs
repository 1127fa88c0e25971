//! The wire to a server: a relay in this process, which a test cuts and heals. The clusters of a rig and this process
//! share one LAN, so cutting that would cut a role off from its own cluster, too.

use std::net::{Ipv4Addr, SocketAddr};

use anyhow::{Context, Result};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

/// What a wire does to those who use it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wire {
    /// Everything gets through.
    Whole,
    /// Connections end, and new ones are closed at once.
    Broken,
    /// Nothing gets through and nobody is told; what was sent meanwhile arrives when the wire is whole again.
    Silent,
}

/// A relay to one server; it ends with this value.
pub struct Relay {
    /// Where it listens.
    pub address: SocketAddr,
    wire: watch::Sender<Wire>,
    task: JoinHandle<()>,
}

impl Relay {
    /// Relays from some port of this address.
    pub async fn start(from: Ipv4Addr, to: SocketAddr) -> Result<Self> {
        let listener = TcpListener::bind((from, 0)).await.context("cannot listen")?;
        let address = listener.local_addr()?;
        let (wire, state) = watch::channel(Wire::Whole);
        let task = tokio::spawn(serve(listener, to, state));
        Ok(Self { address, wire, task })
    }

    /// What becomes of everything from now on.
    pub fn set(&self, wire: Wire) {
        self.wire.send_replace(wire);
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(listener: TcpListener, to: SocketAddr, wire: watch::Receiver<Wire>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let Ok((stream, _)) = accepted else { continue };
                connections.spawn(until_broken(stream, to, wire.clone()));
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn until_broken(stream: TcpStream, to: SocketAddr, mut wire: watch::Receiver<Wire>) {
    let relayed = relay(stream, to, wire.clone());
    tokio::select! {
        _ = wire.wait_for(|wire| *wire == Wire::Broken) => {}
        // However a connection ends, both of its ends see it.
        _ = relayed => {}
    }
}

async fn relay(stream: TcpStream, to: SocketAddr, mut wire: watch::Receiver<Wire>) -> Result<()> {
    pass(&mut wire).await?;
    let (here, there) = (stream.into_split(), TcpStream::connect(to).await?.into_split());
    tokio::try_join!(pump(here.0, there.1, wire.clone()), pump(there.0, here.1, wire)).map(drop)
}

async fn pump(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    mut wire: watch::Receiver<Wire>,
) -> Result<()> {
    let mut buffer = vec![0; 16 * 1024];
    loop {
        let count = from.read(&mut buffer).await?;
        pass(&mut wire).await?;
        if count == 0 {
            return Ok(to.shutdown().await?);
        }
        to.write_all(&buffer[..count]).await?;
    }
}

/// Waits while the wire is silent.
async fn pass(wire: &mut watch::Receiver<Wire>) -> Result<()> {
    wire.wait_for(|wire| *wire != Wire::Silent).await?;
    Ok(())
}
