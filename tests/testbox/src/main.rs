//! `testbox`: what runs inside test pods, in one static program so that its image holds nothing else.

mod echo;
mod tls;
mod webhook;

use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::Result;
use clap::Parser;

#[derive(Parser)]
#[command(version, about)]
enum Arguments {
    /// Hold a pod's namespaces open until told to stop
    Pause,
    /// Answer HTTP and UDP with who answered and who asked
    Serve {
        /// Where to listen, for both
        #[arg(long, default_value = "0.0.0.0:8080")]
        listen: SocketAddr,
    },
    /// Admit every object and mark it, over TLS
    Webhook {
        /// Where to listen
        #[arg(long, default_value = "0.0.0.0:8443")]
        listen: SocketAddr,
        /// Folder with tls.crt and tls.key
        #[arg(long, default_value = "/tls")]
        certificate: PathBuf,
    },
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let work = async {
        match Arguments::parse() {
            Arguments::Pause => std::future::pending().await,
            Arguments::Serve { listen } => echo::serve(listen).await,
            Arguments::Webhook { listen, certificate } => webhook::serve(listen, &certificate).await,
        }
    };
    // As the first process of a container nobody else turns a signal into an end.
    let mut terminate = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
    tokio::select! {
        result = work => result,
        _ = terminate.recv() => Ok(()),
        _ = tokio::signal::ctrl_c() => Ok(()),
    }
}
