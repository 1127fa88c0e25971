//! Handshake messages that somebody forges, as many as he can.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, ensure};
use blake2::digest::consts::U16;
use blake2::digest::{Digest as _, KeyInit, Mac as _};
use blake2::{Blake2s256, Blake2sMac};
use ferro_fabric::wireguard::Drop;

use crate::theirs::{PORT, our_key};
use crate::tunnel::Tunnel;

/// It goes on for at least so long.
const SHORTEST: Duration = Duration::from_secs(3);
/// How long it may take until it is one.
const PATIENCE: Duration = Duration::from_secs(30);
/// So many messages lie before the gateway at most: it always has some to do, and yet nobody else waits longer than for
/// these, on however slow a machine.
const WAITING: u64 = 100;
/// So many are sent at once.
const WAVE: u32 = 20;

/// Floods our end of a tunnel from theirs, and does something as soon as it asks for cookies; says how many came back.
pub fn during(tunnel: &Tunnel, work: impl FnOnce() -> Result<()> + Send) -> Result<u64> {
    let gateway: SocketAddr = (IpAddr::from([192, 0, 2, 1]), PORT).into();
    let attacker = tunnel.theirs.room.run(|| UdpSocket::bind("192.0.2.2:0"))?;
    attacker.set_nonblocking(true)?;
    let (has_ended, cookies) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        let working = scope.spawn(|| {
            let done = await_cookies(&cookies).and_then(|()| work());
            has_ended.store(true, Ordering::Relaxed);
            done
        });
        let (begin, mut number, mut buffer) = (Instant::now(), 0, [0; 256]);
        while !has_ended.load(Ordering::Relaxed) || begin.elapsed() < SHORTEST {
            while let Ok(length) = attacker.recv(&mut buffer) {
                cookies.fetch_add(u64::from(length == 64 && buffer[0] == 3), Ordering::Relaxed);
            }
            let answered = cookies.load(Ordering::Relaxed) + refused(tunnel);
            if u64::from(number).saturating_sub(answered) < WAITING {
                for _ in 0..WAVE {
                    number += 1;
                    _ = attacker.send_to(&forged(number), gateway);
                }
            } else {
                thread::sleep(Duration::from_millis(1));
            }
        }
        working.join().map_err(|_| anyhow!("the work panicked"))??;
        Ok(cookies.load(Ordering::Relaxed))
    })
}

/// Waits until our end is under load.
fn await_cookies(cookies: &AtomicU64) -> Result<()> {
    let begin = Instant::now();
    while cookies.load(Ordering::Relaxed) == 0 {
        ensure!(begin.elapsed() < PATIENCE, "nobody is asked for a cookie");
        thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

/// How many forged ones our end has looked at, and not asked for a cookie.
fn refused(tunnel: &Tunnel) -> u64 {
    tunnel.engine.drops().get(&Drop::ForgedHandshake.to_string()).copied().unwrap_or_default()
}

/// A handshake message as anybody can make it who knows the key of the gateway: only the end is genuine.
fn forged(number: u32) -> Vec<u8> {
    let mut message = vec![0; 148];
    message[0] = 1;
    message[4..8].copy_from_slice(&number.to_ne_bytes());
    for (place, byte) in message[8..116].iter_mut().enumerate() {
        *byte = number.to_le_bytes()[place % 4] ^ u8::try_from(place).unwrap_or_default();
    }
    let mut label = Blake2s256::new();
    label.update(b"mac1----");
    label.update(our_key().public().0);
    let key = label.finalize();
    if let Ok(mut mac) = <Blake2sMac<U16> as KeyInit>::new_from_slice(&key) {
        mac.update(&message[..116]);
        message[116..132].copy_from_slice(&mac.finalize().into_bytes());
    }
    message
}
