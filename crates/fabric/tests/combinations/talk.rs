//! What two in different clusters have to say to each other. Each sees the other under the name that its own cluster has
//! for it, and nothing that is said changes on the way.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::thread;
use std::time::Duration;

use ring::digest::{Digest, SHA256, digest};
use rustix::net::{AddressFamily, SocketFlags, SocketType, ipproto, socket_with};

use crate::cluster::Talker;
use crate::world::{eventually, exchange};

/// Slowness is not a failure.
const PATIENCE: Duration = Duration::from_mins(1);
/// How long it is waited for what is asked for again.
const SHORTLY: Duration = Duration::from_secs(5);

/// Bytes that tell their place: 251 is no divisor of anything that is sent at once.
pub fn pattern(length: usize) -> Vec<u8> {
    (0..=250).cycle().take(length).collect()
}

/// Says so many bytes by TCP, and hears what their checksum is.
pub fn stream(from: Talker<'_>, to: Talker<'_>, length: usize) {
    let listener = to.host.listen(&SocketAddr::new(to.ip, 0).to_string());
    let target = SocketAddr::new(to.named, listener.local_addr().unwrap().port());
    let mut sender = from.host.inside(|| TcpStream::connect_timeout(&target, PATIENCE)).unwrap();
    // A connection that was made is there, whether or not anybody has accepted it.
    let (receiver, seen) = listener.accept().unwrap();
    assert_eq!(seen.ip(), from.named, "who talks to {}", to.ip);
    for end in [&sender, &receiver] {
        end.set_read_timeout(Some(PATIENCE)).unwrap();
        end.set_write_timeout(Some(PATIENCE)).unwrap();
    }
    let said = pattern(length);
    let heard = thread::scope(|scope| {
        scope.spawn(|| answer(receiver, length));
        sender.write_all(&said).unwrap();
        let mut heard = Vec::new();
        sender.read_to_end(&mut heard).unwrap();
        heard
    });
    assert!(heard == checksum(&said).as_ref(), "{length} bytes, and others came");
}

fn answer(mut receiver: TcpStream, length: usize) {
    let mut heard = vec![0; length];
    receiver.read_exact(&mut heard).unwrap();
    receiver.write_all(checksum(&heard).as_ref()).unwrap();
}

fn checksum(bytes: &[u8]) -> Digest {
    digest(&SHA256, bytes)
}

/// Sends a datagram and has it answered.
pub fn datagram(from: Talker<'_>, to: Talker<'_>) {
    let [sender, receiver] =
        [from, to].map(|talker| talker.host.udp(&SocketAddr::new(talker.ip, 0).to_string()));
    let at = SocketAddr::new(to.named, receiver.local_addr().unwrap().port());
    let (seen, _) = eventually("a datagram and its answer", || exchange(&sender, &receiver, at));
    assert_eq!(seen, from.named, "who talks to {}", to.ip);
}

/// Asks the kernel of the other one for an echo of so many bytes.
pub fn ping(from: Talker<'_>, to: Talker<'_>, length: usize) {
    try_ping(from, to, length, PATIENCE).unwrap();
}

/// The same, again and again: where there is too much for a machine, an echo may be lost.
pub fn ping_often(from: Talker<'_>, to: Talker<'_>, length: usize) {
    eventually("an echo", || try_ping(from, to, length, SHORTLY));
}

fn try_ping(from: Talker<'_>, to: Talker<'_>, length: usize, patience: Duration) -> Result<(), String> {
    let open = || {
        let flags = SocketFlags::CLOEXEC;
        Ok(socket_with(AddressFamily::INET, SocketType::DGRAM, flags, Some(ipproto::ICMP))?)
    };
    let socket = UdpSocket::from(from.host.inside(open).unwrap());
    socket.set_read_timeout(Some(patience)).unwrap();
    // The kernel sees to identifier and checksum.
    let request = [&[8, 0, 0, 0, 0, 0, 0, 1][..], &pattern(length)].concat();
    socket.send_to(&request, (to.named, 0)).unwrap();
    let mut reply = vec![0; request.len() + 1];
    let lost = |error| format!("no echo of {length} bytes from {}: {error}", to.named);
    let (received, seen) = socket.recv_from(&mut reply).map_err(lost)?;
    assert_eq!((received, seen.ip(), reply[0]), (request.len(), to.named, 0));
    assert!(reply[8..received] == request[8..], "another echo of {length} bytes");
    Ok(())
}
