//! The time in an initiation, by which an old one that somebody sends again is known.

use std::time::{Duration, SystemTime};

use zerocopy::byteorder::big_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, Unaligned, transmute};

const SECOND: u32 = 1_000_000_000;
/// What TAI64 calls the beginning of 1970.
const BEGINNING_OF_1970: u64 = (1 << 62) + 10;

/// A time in the form TAI64N. Of two, the later one is the greater, whatever a peer has put into it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, FromBytes, IntoBytes, Immutable, Unaligned)]
#[repr(C)]
pub struct Timestamp {
    seconds: U64,
    nanoseconds: U32,
}

impl Timestamp {
    /// The timestamp for now that is later than the last one, even if the clock was set back, or another gateway has
    /// given the last one.
    pub fn after(last: Option<Self>, clock: SystemTime) -> Self {
        let now = Self::at(clock);
        last.map_or(now, |last| now.max(last.next()))
    }

    fn at(clock: SystemTime) -> Self {
        let since_1970 = clock.duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO);
        Self {
            seconds: BEGINNING_OF_1970.saturating_add(since_1970.as_secs()).into(),
            nanoseconds: since_1970.subsec_nanos().into(),
        }
    }

    fn next(self) -> Self {
        let nanoseconds = self.nanoseconds.get().saturating_add(1);
        if nanoseconds < SECOND {
            Self { nanoseconds: nanoseconds.into(), ..self }
        } else {
            Self { seconds: self.seconds.get().saturating_add(1).into(), nanoseconds: 0.into() }
        }
    }

    /// As it is sent and stored.
    pub fn to_bytes(self) -> [u8; 12] {
        transmute!(self)
    }

    /// From what was sent or stored.
    pub fn from_bytes(bytes: [u8; 12]) -> Self {
        transmute!(bytes)
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use proptest::prelude::*;

    use super::Timestamp;

    fn clock(nanoseconds: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_nanos(nanoseconds)
    }

    #[test]
    fn the_form_is_tai64n() {
        let bytes = Timestamp::after(None, clock(1_000_000_002)).to_bytes();
        assert_eq!(bytes, [0x40, 0, 0, 0, 0, 0, 0, 0x0b, 0, 0, 0, 2]);
    }

    #[test]
    fn a_clock_that_was_set_back_does_not_matter() {
        let last = Timestamp::after(None, clock(5_999_999_999));
        let next = Timestamp::after(Some(last), clock(3));
        assert!(next > last);
        assert_eq!(next, Timestamp::after(None, clock(6_000_000_000)));
        assert_eq!(Timestamp::after(Some(next), clock(7_000_000_000)), Timestamp::at(clock(7_000_000_000)));
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_timestamp_and_the_next_is_later(bytes: [u8; 12], nanoseconds: u64) {
            let last = Timestamp::from_bytes(bytes);
            prop_assert_eq!(last.to_bytes(), bytes);
            prop_assume!(last.seconds.get() < u64::MAX);
            prop_assert!(Timestamp::after(Some(last), clock(nanoseconds)) > last);
        }

        #[test]
        fn bytes_are_ordered_as_times(a: [u8; 12], b: [u8; 12]) {
            prop_assert_eq!(a.cmp(&b), Timestamp::from_bytes(a).cmp(&Timestamp::from_bytes(b)));
        }
    }
}
