//! A network that loses, copies and delays.

use std::collections::BTreeSet;
use std::time::Duration;

use proptest::prelude::*;

use super::{A, B, Two, bytes, reply};
use crate::wireguard::{Drop, Work};

/// What the network does to a datagram.
#[derive(Clone, Copy, Debug)]
enum Fate {
    Arrives,
    ArrivesTwice,
    IsLate,
    IsLost,
}

fn fate() -> impl Strategy<Value = Fate> {
    prop_oneof![
        5 => Just(Fate::Arrives),
        1 => Just(Fate::ArrivesTwice),
        1 => Just(Fate::IsLate),
        2 => Just(Fate::IsLost),
    ]
}

/// Datagrams, and which side they are for.
type Flying = Vec<(usize, Vec<u8>)>;

/// Two gateways that send all the time.
struct Struggle {
    two: Two,
    taken: [BTreeSet<Vec<u8>>; 2],
    late: Flying,
}

impl Struggle {
    /// What each side sends now: a packet or the wish for a session, and what is due.
    fn launch(&mut self, round: usize) -> Flying {
        let Self { two, late, .. } = self;
        let mut flying = std::mem::take(late);
        for side in [A, B] {
            let packet = two.seal(side, &round.to_be_bytes());
            let also = match packet {
                Some(_) => bytes(two.devices[side].sent(two.peers[side], two.now)),
                None => two.want(side),
            };
            flying.extend([packet, also].into_iter().flatten().map(|datagram| (1 - side, datagram)));
            for work in two.poll(side) {
                if let Work::Send(transmit) = work {
                    flying.push((1 - side, transmit.datagram.bytes().to_vec()));
                }
            }
            let deadline = two.devices[side].deadline();
            assert!(deadline.is_none_or(|deadline| deadline > two.now.instant), "all was done");
        }
        flying
    }

    /// The last datagram overtakes all others.
    fn fly(&mut self, mut flying: Flying, fates: &mut impl Iterator<Item = Fate>) {
        while let Some((side, datagram)) = flying.pop() {
            match fates.next().unwrap() {
                Fate::Arrives => flying.extend(self.arrive(side, &datagram)),
                Fate::ArrivesTwice => {
                    flying.extend(self.arrive(side, &datagram));
                    flying.extend(self.arrive(side, &datagram));
                }
                Fate::IsLate => self.late.push((side, datagram)),
                Fate::IsLost => {}
            }
        }
    }

    fn arrive(&mut self, side: usize, datagram: &[u8]) -> Option<(usize, Vec<u8>)> {
        let reply = self.two.deliver(side, datagram).ok().and_then(reply);
        for packet in self.two.packets[side].drain(..) {
            assert!(self.taken[side].insert(packet), "a packet was taken twice");
        }
        reply.map(|reply| (1 - side, reply))
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn a_bad_network_delays_but_never_parts_them(
        fates in proptest::collection::vec(fate(), 1..100),
        rounds in 1_usize..150,
    ) {
        let mut struggle =
            Struggle { two: Two::new(), taken: [BTreeSet::new(), BTreeSet::new()], late: Vec::new() };
        let mut fates = fates.into_iter().cycle();
        for round in 0..rounds {
            struggle.two.pass(Duration::from_millis(2500));
            let flying = struggle.launch(round);
            struggle.fly(flying, &mut fates);
            for device in &struggle.two.devices {
                prop_assert!(device.by_index.len() <= 4, "three sessions, and a handshake under way");
                prop_assert!(!device.drops().contains_key(&Drop::ForgedData));
            }
        }
        // Then the weather is fine, and they are together in no time.
        for round in rounds..rounds + 3 {
            struggle.two.seconds(6);
            let flying = struggle.launch(round);
            struggle.fly(flying, &mut std::iter::repeat(Fate::Arrives));
        }
        struggle.two.both_ways();
    }
}
