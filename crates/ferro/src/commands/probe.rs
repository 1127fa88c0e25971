//! `ferro probe`: what `ferro trace --live` runs beside a pod, in its network.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use anyhow::Context as _;
use ferro_core::network::trace::probe::Heard;
use ferro_fabric::probe::probe;

/// To whom, and what came back.
pub(crate) type Answers = BTreeMap<Ipv4Addr, Vec<Heard>>;

/// Send datagrams that end at each router of a way, and print who answers ('ferro trace --live' does this)
#[derive(clap::Args)]
#[command(hide = true)]
pub(crate) struct Args {
    /// The addresses to send to
    #[arg(required = true, num_args = 1..=MOST)]
    to: Vec<Ipv4Addr>,
}

/// So many ways are tried at once; it is a few datagrams for each.
pub(crate) const MOST: usize = 8;

/// Sends, and prints what came back.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let tried = std::thread::scope(|scope| {
        let threads: Vec<_> = args.to.iter().map(|to| (*to, scope.spawn(|| probe(*to)))).collect();
        let join = |(to, thread): (Ipv4Addr, std::thread::ScopedJoinHandle<'_, _>)| {
            let heard: std::io::Result<Vec<Heard>> =
                thread.join().unwrap_or_else(|_| Err(std::io::Error::other("it ended")));
            Ok((to, heard.with_context(|| format!("cannot send to {to}"))?))
        };
        threads.into_iter().map(join).collect::<anyhow::Result<Answers>>()
    })?;
    println!("{}", serde_json::to_string(&tried)?);
    Ok(())
}
