//! Sends datagrams that may pass one router, two, three and so on, and hears where each of them ends.
//!
//! It takes what every process may do, and nothing more: no raw sockets, so that it runs in any pod, without rights.

use std::io::{self, IoSliceMut};
use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::os::fd::AsRawFd as _;
use std::time::{Duration, Instant};

use ferro_core::network::trace::probe::{FURTHEST, Heard, PORT, Returned};
use nix::libc::{SO_EE_ORIGIN_ICMP, sock_extended_err, sockaddr_in};
use nix::sys::socket::{ControlMessageOwned, MsgFlags, SockaddrIn, recvmsg, setsockopt, sockopt};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// So often one is sent that was not answered: some may be lost, and routers answer only so often.
const ROUNDS: usize = 3;
/// So long answers are awaited. All rounds together outlast the search for a neighbour, which fails after three seconds.
const PATIENCE: Duration = Duration::from_millis(1200);
/// What is in them says where they come from, to whom wonders.
const TEXT: &[u8] = b"ferro trace";
/// The kinds of ICMP errors that matter, and the code by which the endpoint itself is known.
const UNREACHABLE: u8 = 3;
const EXPIRED: u8 = 11;
const NO_PORT: u8 = 3;

/// Each that is on its way, by how far it may go. One socket each: an error belongs to who sent.
struct Probe {
    hops: u8,
    socket: UdpSocket,
}

/// Sends them towards an address, and gives what came back, within seconds.
pub fn probe(to: Ipv4Addr) -> io::Result<Vec<Heard>> {
    let opened = (1..=FURTHEST).map(|hops| Probe::open(to, hops)).collect::<io::Result<Vec<_>>>();
    let mut waiting = match opened {
        // This pod has no route: nothing will be heard.
        Err(error) if error.kind() == io::ErrorKind::NetworkUnreachable => return Ok(Vec::new()),
        opened => opened?,
    };
    let mut heard = Vec::new();
    for _ in 0..ROUNDS {
        for probe in &waiting {
            // What fails by an error that waits to be read is sent again.
            _ = probe.socket.send(TEXT);
        }
        listen(&mut waiting, &mut heard, Instant::now() + PATIENCE)?;
        if heard.iter().any(|heard: &Heard| heard.what == Returned::Arrived) {
            break;
        }
    }
    heard.sort_by_key(|heard| heard.hops);
    Ok(heard)
}

/// Takes what comes back, until then or until all were answered.
fn listen(waiting: &mut Vec<Probe>, heard: &mut Vec<Heard>, until: Instant) -> io::Result<()> {
    while !waiting.is_empty() {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            break;
        }
        let mut sockets: Vec<_> =
            waiting.iter().map(|probe| PollFd::new(&probe.socket, PollFlags::IN | PollFlags::ERR)).collect();
        let left = Timespec::try_from(left).map_err(io::Error::other)?;
        poll(&mut sockets, Some(&left))?;
        waiting.retain(|probe| match probe.answer() {
            Some(answer) => {
                heard.push(answer);
                false
            }
            None => true,
        });
    }
    Ok(())
}

impl Probe {
    fn open(to: Ipv4Addr, hops: u8) -> io::Result<Self> {
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
        socket.set_nonblocking(true)?;
        socket.set_ttl(hops.into())?;
        setsockopt(&socket, sockopt::Ipv4RecvErr, &true)?;
        socket.connect((to, PORT))?;
        Ok(Self { hops, socket })
    }

    /// What came back, if anything.
    fn answer(&self) -> Option<Heard> {
        let heard = |(what, from)| Heard { hops: self.hops, from, what };
        self.error().map(heard).or_else(|| {
            // Somebody listens there after all.
            self.socket.recv(&mut [0; 64]).ok()?;
            Some(heard((Returned::Arrived, self.socket.peer_addr().ok()?.ip())))
        })
    }

    /// The error that a router or the endpoint sent, and who it was.
    fn error(&self) -> Option<(Returned, IpAddr)> {
        let mut text = [0; 64];
        let mut slices = [IoSliceMut::new(&mut text)];
        let mut control = nix::cmsg_space!(sock_extended_err, sockaddr_in);
        let (socket, flags) = (self.socket.as_raw_fd(), MsgFlags::MSG_ERRQUEUE | MsgFlags::MSG_DONTWAIT);
        let received = recvmsg::<SockaddrIn>(socket, &mut slices, Some(&mut control), flags).ok()?;
        received.cmsgs().ok()?.find_map(|message| match message {
            ControlMessageOwned::Ipv4RecvErr(error, Some(from)) => {
                Some((returned(&error)?, IpAddr::V4(SockaddrIn::from(from).ip())))
            }
            _ => None,
        })
    }
}

/// What an error says; none of one that does not come from the network.
fn returned(error: &sock_extended_err) -> Option<Returned> {
    match (error.ee_origin, error.ee_type, error.ee_code) {
        (SO_EE_ORIGIN_ICMP, EXPIRED, _) => Some(Returned::Expired),
        (SO_EE_ORIGIN_ICMP, UNREACHABLE, NO_PORT) => Some(Returned::Arrived),
        (SO_EE_ORIGIN_ICMP, UNREACHABLE, _) => Some(Returned::Unreachable),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_next_door_answers_however_few_hops_are_left() {
        let heard = probe(Ipv4Addr::LOCALHOST).unwrap();
        assert!(!heard.is_empty());
        for (hops, heard) in (1..).zip(heard) {
            assert_eq!(heard, Heard { hops, from: Ipv4Addr::LOCALHOST.into(), what: Returned::Arrived });
        }
    }
}
