//! How often one sender gets a turn under load: who is at its address has proved that, and no more than that.
//!
//! A cookie costs an attacker nothing who receives what is sent to it. So each address has a few handshakes at once, and
//! then some each second; the rest of the time is for others.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::time::{Duration, Instant};

/// So often a sender gets a turn in the long run: a peer begins a handshake every five seconds at most, and there may
/// be several behind one address.
const EVERY: Duration = Duration::from_millis(50);
/// So many turns are saved.
const SAVED: u32 = 5;
/// So many senders are remembered.
const MOST: usize = 8192;
/// How often those are forgotten who have saved all turns again, when there are too many.
const SWEEP: Duration = Duration::from_secs(1);

/// The turns of all senders.
#[derive(Debug, Default)]
pub(super) struct Turns {
    senders: HashMap<IpAddr, Saved>,
    swept: Option<Instant>,
}

#[derive(Clone, Copy, Debug)]
struct Saved {
    time: Duration,
    at: Instant,
}

impl Saved {
    fn now(self, now: Instant) -> Duration {
        (self.time + now.saturating_duration_since(self.at)).min(EVERY * SAVED)
    }
}

impl Turns {
    /// Whether it is the turn of this sender.
    pub(super) fn take(&mut self, sender: IpAddr, now: Instant) -> bool {
        let sender = network(sender);
        if !self.senders.contains_key(&sender) && !self.has_room(now) {
            return false;
        }
        let saved = self.senders.entry(sender).or_insert(Saved { time: EVERY * SAVED, at: now });
        let time = saved.now(now);
        let rest = time.checked_sub(EVERY);
        *saved = Saved { time: rest.unwrap_or(time), at: now };
        rest.is_some()
    }

    fn has_room(&mut self, now: Instant) -> bool {
        let is_due = self.swept.is_none_or(|swept| now.saturating_duration_since(swept) >= SWEEP);
        if self.senders.len() >= MOST && is_due {
            self.swept = Some(now);
            self.senders.retain(|_, saved| saved.now(now) < EVERY * SAVED);
        }
        self.senders.len() < MOST
    }
}

/// Of IPv6 a sender has all addresses of a network.
fn network(ip: IpAddr) -> IpAddr {
    match ip.to_canonical() {
        IpAddr::V4(ip) => ip.into(),
        IpAddr::V6(ip) => Ipv6Addr::from_bits(ip.to_bits() >> 64 << 64).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many of so many turns a sender gets, evenly over a second.
    fn second(turns: &mut Turns, sender: IpAddr, start: Instant, wanted: u32) -> usize {
        let at = |n| start + Duration::from_secs(1) * n / wanted;
        (0..wanted).filter(|n| turns.take(sender, at(*n))).count()
    }

    fn v4(bits: u32) -> IpAddr {
        IpAddr::V4(bits.into())
    }

    #[test]
    fn a_flood_of_one_sender_gets_its_share_and_others_theirs() {
        let (mut turns, start) = (Turns::default(), Instant::now());
        let got = second(&mut turns, v4(1), start, 10_000);
        assert!((20..=25).contains(&got), "{got}");
        assert!(turns.take(v4(2), start));
        assert_eq!(second(&mut turns, v4(3), start, 20), 20);
        let later = start + Duration::from_mins(1);
        assert_eq!((0..9).filter(|_| turns.take(v4(1), later)).count(), 5);
    }

    #[test]
    fn a_network_of_ipv6_is_one_sender() {
        let (mut turns, now) = (Turns::default(), Instant::now());
        let ip = |host: u128| IpAddr::V6((0x2001_0db8_u128 << 96 | host).into());
        assert_eq!((0..100).filter(|host| turns.take(ip(*host), now)).count(), 5);
        assert!(turns.take(ip(1 << 64), now));
        let mapped = "::ffff:0.0.0.9".parse().unwrap();
        assert_eq!((0..9).filter(|n| turns.take(if n % 2 == 0 { mapped } else { v4(9) }, now)).count(), 5);
    }

    #[test]
    fn no_more_senders_are_remembered_than_there_is_room_for() {
        let (mut turns, now) = (Turns::default(), Instant::now());
        let got = (0..20_000).filter(|bits| turns.take(v4(*bits), now)).count();
        assert_eq!((got, turns.senders.len()), (MOST, MOST));
        assert!(turns.take(v4(1), now), "who is known has its turns");
        let later = now + SWEEP;
        assert!(turns.take(v4(100_000), later));
        assert!(turns.senders.len() < MOST);
    }
}
