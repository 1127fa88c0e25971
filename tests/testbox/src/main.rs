//! `testbox`: what runs inside test pods, in one static program so that its image holds nothing else.

mod datagram;
mod echo;
mod fetch;
mod load;
mod mirror;
mod neighbours;
mod scan;
mod tls;
mod webhook;

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use clap::Parser;

#[derive(Parser)]
#[command(version, about)]
enum Arguments {
    /// Hold a pod's namespaces open until told to stop
    Pause,
    /// Answer HTTP and UDP with who answered and who asked, and mirror streams
    Serve {
        /// Where to listen, for both
        #[arg(long, default_value = "0.0.0.0:8080")]
        listen: SocketAddr,
    },
    /// Fetch a page over HTTP and print it; also what `wget` is in the busybox image
    Get {
        /// The page
        url: String,
        /// Give up after this many seconds
        #[arg(short = 'T', long, default_value_t = 5)]
        timeout: u64,
    },
    /// Ask for a page again and again, each time by a new connection, and print how long that took
    Load {
        /// The page
        url: String,
        /// How often
        #[arg(long, default_value_t = 1000)]
        requests: usize,
        /// So many at once
        #[arg(long, default_value_t = 1)]
        at_once: usize,
        /// Give up on one after this many seconds
        #[arg(short = 'T', long, default_value_t = 5)]
        timeout: u64,
    },
    /// Send a text over UDP and print the answer
    Datagram {
        /// HOST:PORT
        to: String,
        /// The text
        text: String,
        /// Give up after this many seconds
        #[arg(short = 'T', long, default_value_t = 5)]
        timeout: u64,
    },
    /// Send bytes to a mirror and compare what comes back
    Mirror {
        /// Its page
        url: String,
        /// How many
        #[arg(long, default_value_t = 10_000_000)]
        bytes: usize,
        /// Give up after this many seconds
        #[arg(short = 'T', long, default_value_t = 60)]
        timeout: u64,
    },
    /// Print the pods of this one's namespace, as the API server says that it is told of
    Neighbours {
        /// Give up after this many seconds
        #[arg(short = 'T', long, default_value_t = 10)]
        timeout: u64,
    },
    /// Print which ports answer over TCP and UDP
    Scan {
        /// The ports
        #[arg(long, value_delimiter = ',')]
        ports: Vec<u16>,
        /// The addresses
        addresses: Vec<IpAddr>,
        /// Give up after this many seconds
        #[arg(short = 'T', long, default_value_t = 3)]
        timeout: u64,
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

/// Called as `wget` it is `testbox get` that has always been quiet and always printed the page.
fn arguments() -> Arguments {
    let words: Vec<String> = std::env::args().collect();
    if words.first().is_some_and(|name| name.ends_with("wget")) {
        let kept = words
            .into_iter()
            .skip(1)
            .filter(|word| !matches!(word.as_str(), "-q" | "-O" | "-" | "-O-" | "-qO-"));
        return Arguments::parse_from(["testbox".to_owned(), "get".to_owned()].into_iter().chain(kept));
    }
    Arguments::parse_from(words)
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let work = async {
        match arguments() {
            Arguments::Pause => std::future::pending().await,
            Arguments::Serve { listen } => echo::serve(listen).await,
            Arguments::Get { url, timeout } => fetch::print(&url, Duration::from_secs(timeout)).await,
            Arguments::Load { url, requests, at_once, timeout } => {
                load::print(&url, requests, at_once, Duration::from_secs(timeout)).await
            }
            Arguments::Datagram { to, text, timeout } => {
                datagram::print(&to, &text, Duration::from_secs(timeout)).await
            }
            Arguments::Mirror { url, bytes, timeout } => {
                mirror::compare(&url, bytes, Duration::from_secs(timeout)).await
            }
            Arguments::Neighbours { timeout } => neighbours::print(Duration::from_secs(timeout)).await,
            Arguments::Scan { ports, addresses, timeout } => {
                scan::print(&addresses, &ports, Duration::from_secs(timeout)).await
            }
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
