//! An opening in a room: what connects to an address in there gets through to one that this process reaches.
//!
//! So a role in a room finds the API server and the services of its cluster where it looks for them, and no link leads
//! from the room into the network of this machine.

use std::net::SocketAddr;

use anyhow::{Context, Result};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};

use crate::room::Room;

/// An opening. It closes with this value, and so do the connections through it.
#[derive(Debug)]
pub struct Opening(JoinHandle<()>);

impl Opening {
    /// Opens a room at an address, which is given to the room for it.
    pub fn new(room: &Room, at: SocketAddr, to: SocketAddr) -> Result<Self> {
        room.ip(&format!("address add {} dev lo", at.ip()))?;
        let listener = room.run(|| {
            let listener = std::net::TcpListener::bind(at)?;
            listener.set_nonblocking(true)?;
            Ok(listener)
        });
        let listener = TcpListener::from_std(listener.with_context(|| format!("cannot listen on {at}"))?)?;
        Ok(Self(tokio::spawn(pass(listener, to))))
    }
}

impl Drop for Opening {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Passes on whatever comes; the connections end with it.
async fn pass(listener: TcpListener, to: SocketAddr) {
    let mut passing = JoinSet::new();
    while let Ok((mut inside, _)) = listener.accept().await {
        while passing.try_join_next().is_some() {}
        passing.spawn(async move {
            // Whoever connected sees that it ends, and why does not matter to it.
            if let Ok(mut outside) = TcpStream::connect(to).await {
                _ = inside.set_nodelay(true).and(outside.set_nodelay(true));
                _ = copy_bidirectional(&mut inside, &mut outside).await;
            }
        });
    }
}
