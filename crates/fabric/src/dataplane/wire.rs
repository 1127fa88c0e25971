//! The sockets by which datagrams come and go, many of one size with each call.
//!
//! Datagrams may be fragmented on their way, as those of other WireGuard implementations: where the path is narrower
//! than the tunnel was told, packets then still arrive. Socket buffers are raised as far as the kernel permits.

use std::io::{self, IoSlice, IoSliceMut};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use nix::errno::Errno;
use nix::sys::socket::{
    ControlMessage, ControlMessageOwned, MsgFlags, SockaddrStorage, recvmsg, sendmsg, setsockopt, sockopt,
};
use rustix::net::sockopt as options;
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, getsockname, socket_with};

/// As much as a link of 10 Gbit/s brings in some milliseconds.
const BUFFER: usize = 8 << 20;
/// The kernel takes no more datagrams at once, and no more bytes.
pub(super) const MOST_AT_ONCE: usize = 64;
/// More bytes are not sent at once.
pub(super) const LONGEST: usize = 65_507;
/// Any port is tried so often, until one is free for both families.
const ATTEMPTS: usize = 16;

/// UDP sockets of both families, on one port.
#[derive(Debug)]
pub struct Wire {
    v4: OwnedFd,
    /// None where the kernel has no IPv6.
    v6: Option<OwnedFd>,
    port: u16,
    /// Whether the kernel takes many datagrams at once. The two families may leave by different devices.
    many_v4: AtomicBool,
    many_v6: AtomicBool,
}

/// What came with one call: datagrams of one size from one sender, the last of which may be shorter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Arrival {
    pub(super) from: SocketAddr,
    pub(super) length: usize,
    pub(super) size: usize,
}

/// Room for control messages, which are read where they lie.
#[repr(align(8))]
struct Control([u8; 64]);

/// Whether to wait until the kernel has room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Patience {
    Wait,
    Drop,
}

impl Wire {
    /// Opens the sockets on this port, or on any if it is zero, in the network namespace of the calling thread.
    pub fn open(port: u16) -> io::Result<Self> {
        let mut result = Self::try_open(port);
        for _ in 1..ATTEMPTS {
            match &result {
                Err(error) if port == 0 && error.kind() == io::ErrorKind::AddrInUse => {
                    result = Self::try_open(port);
                }
                _ => break,
            }
        }
        result
    }

    fn try_open(port: u16) -> io::Result<Self> {
        let v4 = open_v4(port)?;
        let port = SocketAddr::try_from(getsockname(&v4)?)?.port();
        let v6 = match open_v6(port) {
            Ok(socket) => Some(socket),
            Err(error) if lacks_family(&error) => None,
            Err(error) => return Err(error),
        };
        Ok(Self { v4, v6, port, many_v4: AtomicBool::new(true), many_v6: AtomicBool::new(true) })
    }

    /// The port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The sockets of both families.
    pub(super) fn sockets(&self) -> (BorrowedFd<'_>, Option<BorrowedFd<'_>>) {
        (self.v4.as_fd(), self.v6.as_ref().map(AsFd::as_fd))
    }

    /// Receives what is there; none if nothing is.
    pub(super) fn receive(socket: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<Option<Arrival>> {
        let mut control = Control([0; 64]);
        let mut slices = [IoSliceMut::new(buffer)];
        let flags = MsgFlags::MSG_DONTWAIT;
        let received =
            match recvmsg::<SockaddrStorage>(socket.as_raw_fd(), &mut slices, Some(&mut control.0), flags) {
                Ok(received) => received,
                Err(Errno::EAGAIN) => return Ok(None),
                Err(error) => return Err(error.into()),
            };
        let size = received.cmsgs()?.find_map(|message| match message {
            ControlMessageOwned::UdpGroSegments(size) => usize::try_from(size).ok(),
            _ => None,
        });
        let from = received.address.as_ref().and_then(address).ok_or(io::ErrorKind::InvalidData)?;
        let length = received.bytes;
        Ok(Some(Arrival { from, length, size: size.filter(|size| *size > 0).unwrap_or(length) }))
    }

    /// Sends datagrams of this size, that lie one after the other; the last may be shorter.
    pub(super) fn send(
        &self,
        to: SocketAddr,
        bytes: &[u8],
        size: usize,
        patience: Patience,
    ) -> io::Result<()> {
        let many = if to.ip().to_canonical().is_ipv4() { &self.many_v4 } else { &self.many_v6 };
        let (socket, to) = self.towards(to)?;
        let flags = match patience {
            Patience::Wait => MsgFlags::empty(),
            Patience::Drop => MsgFlags::MSG_DONTWAIT,
        };
        let send = |bytes: &[u8], control: &[ControlMessage<'_>]| {
            sendmsg(socket.as_raw_fd(), &[IoSlice::new(bytes)], control, flags, Some(&to)).map(drop)
        };
        if bytes.len() > size && many.load(Ordering::Relaxed) {
            let segment = u16::try_from(size).map_err(io::Error::other)?;
            match send(bytes, &[ControlMessage::UdpGsoSegments(&segment)]) {
                // The device cannot, and never will.
                Err(Errno::EIO) => many.store(false, Ordering::Relaxed),
                // The path is too narrow for one of them: they are fragmented, one by one.
                Err(Errno::EINVAL | Errno::EMSGSIZE) => {}
                result => return Ok(result?),
            }
        }
        let mut result = Ok(());
        for datagram in bytes.chunks(size.max(1)) {
            result = result.and(send(datagram, &[]));
        }
        Ok(result?)
    }

    fn towards(&self, to: SocketAddr) -> io::Result<(BorrowedFd<'_>, SockaddrStorage)> {
        match (to.ip().to_canonical(), to, &self.v6) {
            (IpAddr::V4(ip), _, _) => Ok((self.v4.as_fd(), SocketAddrV4::new(ip, to.port()).into())),
            (IpAddr::V6(_), SocketAddr::V6(to), Some(v6)) => Ok((v6.as_fd(), to.into())),
            (IpAddr::V6(_), _, _) => Err(io::ErrorKind::Unsupported.into()),
        }
    }
}

fn open_v4(port: u16) -> io::Result<OwnedFd> {
    let socket = socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
    options::set_ip_mtu_discover(&socket, options::Ipv4PathMtuDiscovery::DONT)?;
    prepare(&socket)?;
    bind(&socket, &SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, port))?;
    Ok(socket)
}

fn open_v6(port: u16) -> io::Result<OwnedFd> {
    let socket = socket_with(AddressFamily::INET6, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
    options::set_ipv6_v6only(&socket, true)?;
    prepare(&socket)?;
    bind(&socket, &SocketAddrV6::new(Ipv6Addr::UNSPECIFIED, port, 0, 0))?;
    Ok(socket)
}

fn prepare(socket: &OwnedFd) -> io::Result<()> {
    // Who may not exceed the limit of the system gets as much as that allows.
    if options::set_socket_recv_buffer_size_force(socket, BUFFER).is_err() {
        options::set_socket_recv_buffer_size(socket, BUFFER)?;
    }
    if options::set_socket_send_buffer_size_force(socket, BUFFER).is_err() {
        options::set_socket_send_buffer_size(socket, BUFFER)?;
    }
    // Without it datagrams come one by one.
    let _ = setsockopt(socket, sockopt::UdpGroSegment, &true);
    Ok(())
}

fn lacks_family(error: &io::Error) -> bool {
    let known = [rustix::io::Errno::AFNOSUPPORT, rustix::io::Errno::ADDRNOTAVAIL];
    error.raw_os_error().is_some_and(|error| known.iter().any(|known| known.raw_os_error() == error))
}

fn address(storage: &SockaddrStorage) -> Option<SocketAddr> {
    let v4 = storage.as_sockaddr_in().map(|address| SocketAddrV4::from(*address).into());
    v4.or_else(|| storage.as_sockaddr_in6().map(|address| SocketAddrV6::from(*address).into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn receive_all(wire: &Wire, v6: bool, wanted: usize) -> Vec<Vec<u8>> {
        let socket = if v6 { wire.sockets().1.unwrap() } else { wire.sockets().0 };
        let (mut buffer, mut all) = (vec![0; 1 << 16], Vec::new());
        while all.len() < wanted {
            let Some(arrival) = Wire::receive(socket, &mut buffer).unwrap() else {
                std::thread::yield_now();
                continue;
            };
            all.extend(buffer[..arrival.length].chunks(arrival.size).map(<[u8]>::to_vec));
        }
        all
    }

    #[test]
    fn many_datagrams_go_at_once_and_come_as_they_were() {
        let (a, b) = (Wire::open(0).unwrap(), Wire::open(0).unwrap());
        let bytes: Vec<u8> = (0..20_000_u32).map(|n| n.to_le_bytes()[1]).collect();
        for (to, v6) in [(IpAddr::from(Ipv4Addr::LOCALHOST), false), (Ipv6Addr::LOCALHOST.into(), true)] {
            a.send((to, b.port()).into(), &bytes, 1200, Patience::Wait).unwrap();
            let all = receive_all(&b, v6, 17);
            assert_eq!((all.len(), all[16].len()), (17, 800));
            assert_eq!(all.concat(), bytes);
        }
    }

    #[test]
    fn a_kernel_that_takes_only_one_at_a_time_gets_them_so() {
        let (a, b) = (Wire::open(0).unwrap(), Wire::open(0).unwrap());
        a.many_v4.store(false, Ordering::Relaxed);
        a.send((Ipv4Addr::LOCALHOST, b.port()).into(), &[7; 2500], 1000, Patience::Wait).unwrap();
        assert!(a.many_v6.load(Ordering::Relaxed), "the other family is another matter");
        let lengths: Vec<_> = receive_all(&b, false, 3).iter().map(Vec::len).collect();
        assert_eq!(lengths, [1000, 1000, 500]);
    }

    #[test]
    fn an_address_in_the_other_notation_is_reached() {
        let (a, b) = (Wire::open(0).unwrap(), Wire::open(0).unwrap());
        let mapped = SocketAddr::new(Ipv4Addr::LOCALHOST.to_ipv6_mapped().into(), b.port());
        a.send(mapped, b"hello", 5, Patience::Wait).unwrap();
        assert_eq!(receive_all(&b, false, 1), [b"hello"]);
    }

    #[test]
    fn a_port_that_is_taken_is_an_error() {
        let taken = Wire::open(0).unwrap();
        assert_eq!(Wire::open(taken.port()).unwrap_err().kind(), io::ErrorKind::AddrInUse);
    }
}
