//! A network namespace that lives as long as its handle.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::panic::resume_unwind;
use std::process::Command;
use std::thread;

use nix::sched::{CloneFlags, setns, unshare};

/// A network namespace. No name of it is left anywhere.
pub struct Namespace(File);

impl Namespace {
    /// Makes one, with nothing but a loopback interface.
    pub fn new() -> Self {
        assert!(
            rustix::process::geteuid().is_root(),
            "this test makes network namespaces and needs root: use sudo"
        );
        let make = || {
            unshare(CloneFlags::CLONE_NEWNET).expect("a network namespace can be made");
            File::open("/proc/thread-self/ns/net").expect("the namespace can be opened")
        };
        let namespace = Self(thread::spawn(make).join().unwrap_or_else(|panic| resume_unwind(panic)));
        namespace.ip("link set lo up");
        namespace
    }

    /// Another handle.
    pub fn again(&self) -> Self {
        Self(self.0.try_clone().unwrap())
    }

    /// Where it is to be found by other programs.
    pub fn path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.0.as_raw_fd())
    }

    /// Runs something in it.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        let inside = || {
            setns(&self.0, CloneFlags::CLONE_NEWNET).expect("the namespace can be entered");
            work()
        };
        thread::scope(|scope| scope.spawn(inside).join().unwrap_or_else(|panic| resume_unwind(panic)))
    }

    /// Runs `ip` in it.
    pub fn ip(&self, arguments: &str) {
        let output = self.run(|| Command::new("ip").args(arguments.split_whitespace()).output());
        let output = output.expect("ip can be run: it is in the package iproute2");
        let complaint = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "ip {arguments}: {complaint}");
    }
}
