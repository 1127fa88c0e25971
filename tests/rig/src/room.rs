//! A network namespace without a name, which lives as long as its handle: for tests of packets without a cluster.

use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use ferro_fabric::netlink::namespace;

/// A network namespace.
pub struct Room(OwnedFd);

impl Room {
    /// Makes one, with nothing but a loopback interface.
    pub fn new() -> Result<Self> {
        let room = Self(namespace::create().context("cannot make a network namespace; use sudo")?);
        room.ip("link set lo up")?;
        Ok(room)
    }

    /// Where other programs find it.
    pub fn path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.0.as_raw_fd())
    }

    /// Does something in it. Sockets that are opened there stay there, and so do programs.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> std::io::Result<T> + Send) -> Result<T> {
        namespace::inside(self.0.as_fd(), work).context("in a network namespace")
    }

    /// Runs `ip` in it.
    pub fn ip(&self, arguments: &str) -> Result<()> {
        let arguments: Vec<_> = arguments.split_whitespace().collect();
        self.program("ip", &arguments).context("ip is in the package iproute2").map(drop)
    }

    /// Runs `nft` in it, and gives what it printed.
    pub fn nft(&self, command: &str) -> Result<String> {
        self.program("nft", &[command]).context("nft is in the package nftables")
    }

    fn program(&self, program: &str, arguments: &[&str]) -> Result<String> {
        let run = || Command::new(program).args(arguments).stdin(Stdio::null()).output();
        let output = self.run(run).with_context(|| format!("cannot run {program}"))?;
        let complaint = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{program} {}: {}", arguments.join(" "), complaint.trim());
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

/// Joins two of them by a link, whose ends have these addresses.
pub fn join(a: &Room, b: &Room, link: &str, addresses: [&str; 2]) -> Result<()> {
    a.ip(&format!("link add {link} type veth peer name {link} netns {}", b.path()))?;
    for (room, address) in [a, b].into_iter().zip(addresses) {
        room.ip(&format!("address add {address} dev {link}"))?;
        room.ip(&format!("link set {link} up"))?;
    }
    Ok(())
}
