//! What leaves and what arrives, and which of it is an answer: held against the plainest table there could be.

use std::collections::HashMap;
use std::ops::Range;
use std::time::{Duration, Instant};

use ferro_fabric::dataplane::Flows;
use ferro_fabric::packet::{Flow, Header, Stage};

use super::plain::{self, ICMP, ICMP_V6, TCP, UDP};
use crate::Read;

/// So many things happen at most: a table that overflows may forget.
const MOST: usize = 48;
/// As exact as times are, and for how many such steps things are known: connections, and all else.
const TICK: Duration = Duration::from_secs(4);
const LONG: u32 = 24 * 60 * 15;
const SHORT: u32 = 3 * 15;
/// For how many of them any packet of a connection makes it known.
const GRACE: u32 = 2 * 15;
/// Of TCP.
const ACK: u8 = 0x10;

/// How far a conversation is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Begun,
    GoesOn,
    Ended,
}

/// What is expected of the table.
#[derive(Default)]
struct Expected {
    now: u32,
    noted: HashMap<Flow, (State, u32)>,
}

impl Expected {
    /// Whether a packet that leaves is noted.
    fn notes(&self, flow: Flow, stage: Stage) -> bool {
        stage == Stage::Begins || self.now < GRACE || self.knows(flow)
    }

    fn note(&mut self, flow: Flow, stage: Stage) {
        let after = match (stage, self.noted.get(&flow)) {
            (Stage::Begins, _) => State::Begun,
            // Of the last packets of a connection some come behind its end.
            (Stage::Ends, _) | (Stage::GoesOn, Some((State::Ended, _))) => State::Ended,
            (Stage::GoesOn, Some((State::Begun | State::GoesOn, _)) | None) => State::GoesOn,
        };
        self.noted.insert(flow, (after, self.now));
    }

    /// Whether it is known.
    fn knows(&self, flow: Flow) -> bool {
        let life = |state: &State| if *state == State::GoesOn { LONG } else { SHORT };
        self.noted.get(&flow).is_some_and(|(state, then)| self.now - then <= life(state))
    }
}

/// Things that happen, each with two bytes in front of it: of the first two bits, one says that time passes, and the
/// other, of a packet, that it arrives. The others say how long the packet or the time is.
pub fn flows(mut data: &[u8]) -> Read {
    let start = Instant::now();
    let (flows, mut expected, mut is_answered) = (Flows::new(start), Expected::default(), None);
    for _ in 0..MOST {
        let Some((head, rest)) = data.split_first_chunk() else { break };
        let head = u16::from_be_bytes(*head);
        let length = head & 0x3fff;
        if head & 0x8000 != 0 {
            expected.now += u32::from(length);
            flows.tick(start + TICK * expected.now);
            data = rest;
            continue;
        }
        let (packet, rest) = rest.split_at(rest.len().min(length.into()));
        data = rest;
        let Ok(header) = Header::parse(packet) else { continue };
        let packet = &packet[..header.length];
        if head & 0x4000 == 0 {
            leave(packet, &header, &flows, &mut expected);
        } else if let Some(flow) = Flow::answered(packet, &header) {
            let has = flows.has(flow);
            assert_eq!(has, expected.knows(flow), "{flow:?}");
            is_answered = is_answered.or(has.then_some(()));
        }
    }
    is_answered
}

fn leave(packet: &[u8], header: &Header, flows: &Flows, expected: &mut Expected) {
    let Some((flow, stage)) = Flow::begun(packet, header) else { return };
    for answer in [answer(packet), error(packet)].into_iter().flatten() {
        let header = Header::parse(&answer).map_err(|_| answer.escape_ascii().to_string());
        assert_eq!(header.map(|header| Flow::answered(&answer, &header)), Ok(Some(flow)));
    }
    if expected.notes(flow, stage) {
        expected.note(flow, stage);
        expected.note(flow.of_both(), Stage::Begins);
    }
    flows.note(flow, stage);
    for flow in [flow, flow.of_both()] {
        assert_eq!(flows.has(flow), expected.knows(flow), "{flow:?}");
    }
}

/// Where the addresses are.
fn addresses(packet: &[u8]) -> Option<[Range<usize>; 2]> {
    Some(if packet.first()? >> 4 == 4 { [12..16, 16..20] } else { [8..24, 24..40] })
}

/// What whoever gets a packet might answer.
fn answer(packet: &[u8]) -> Option<Vec<u8>> {
    let upper = plain::upper(packet)?;
    let [source, destination] = addresses(packet)?;
    let mut answer = packet.to_vec();
    answer[source.clone()].copy_from_slice(&packet[destination.clone()]);
    answer[destination].copy_from_slice(&packet[source]);
    let is_v4 = packet.first()? >> 4 == 4;
    match upper.protocol {
        TCP | UDP => {
            answer.get_mut(upper.at..upper.at + 4)?.rotate_left(2);
            if upper.protocol == TCP {
                *answer.get_mut(upper.at + 13)? = ACK;
            }
        }
        ICMP if is_v4 => *answer.get_mut(upper.at)? = 0,
        ICMP_V6 if !is_v4 => *answer.get_mut(upper.at)? = 129,
        _ => {}
    }
    Some(answer)
}

/// What a router on the way might say about a packet to who sent it: that the time was exceeded.
fn error(packet: &[u8]) -> Option<Vec<u8>> {
    let [source, _] = addresses(packet)?;
    let length = u16::try_from(packet.len() + 8).ok()?;
    let (head, kind) = if packet.first()? >> 4 == 4 {
        let [high, low] = (20 + length).to_be_bytes();
        (vec![0x45, 0, high, low, 0, 0, 0, 0, 64, ICMP, 0, 0, 192, 0, 2, 1], 11)
    } else {
        let [high, low] = length.to_be_bytes();
        ([&[0x60, 0, 0, 0, high, low, ICMP_V6, 64][..], &[1; 16]].concat(), 3)
    };
    Some([&head[..], &packet[source], &[kind, 0, 0, 0, 0, 0, 0, 0], packet].concat())
}
