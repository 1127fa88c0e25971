//! Network namespaces: work in another one, and new ones.
//!
//! A thread that has moved is not used for anything else: whoever ran on it later would be in the wrong network.

use std::fs::File;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::thread;

use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space};

/// The namespace that a thread is in.
const OWN: &str = "/proc/thread-self/ns/net";

/// The namespace of the calling thread.
pub fn current() -> io::Result<OwnedFd> {
    File::open(OWN).map(OwnedFd::from)
}

/// A new namespace, which lives as long as somebody holds it or is in it.
pub fn create() -> io::Result<OwnedFd> {
    apart(|| {
        #[allow(deprecated, reason = "only the flag for file descriptors can break what others rely on")]
        rustix::thread::unshare(UnshareFlags::NEWNET)?;
        current()
    })
}

/// Does something in a namespace, on a thread of its own, and waits for it. Sockets that are opened there stay there.
pub fn inside<T: Send>(
    namespace: BorrowedFd<'_>,
    work: impl FnOnce() -> io::Result<T> + Send,
) -> io::Result<T> {
    apart(|| {
        enter(namespace)?;
        work()
    })
}

/// Moves the calling thread into a namespace for good.
pub fn enter(namespace: BorrowedFd<'_>) -> io::Result<()> {
    Ok(move_into_link_name_space(namespace, Some(LinkNameSpaceType::Network))?)
}

fn apart<T: Send>(work: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
    let panicked = || io::Error::other("the work in another network namespace panicked");
    thread::scope(|scope| scope.spawn(work).join().unwrap_or_else(|_| Err(panicked())))
}
