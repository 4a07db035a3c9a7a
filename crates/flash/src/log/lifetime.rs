//! How long records live, and which segments they share because of it.
//!
//! A segment is cheap to collect when all its records die at about the same time: then it is all
//! dead or all live. So records are sorted into streams by the lifetime that is expected of them,
//! and each stream fills segments of its own. What is known:
//! - A record that replaces one that died young will probably die young too.
//!   `Lifetimes::lane_after` tells it when the old record is released, from the age of the segment
//!   that it was in.
//! - A record that a gc run found alive is older than most, unless it comes out of a segment
//!   for the short-lived.
//!
//! Time is the number of bytes that the tier has appended: lifetimes matter relative to how fast
//! the log is filled. "Young" is relative to how long segments of the middle stream last, which is
//! measured as they are freed.
//!
//! Effect on the write amplification of Zipf (0.99) overwrites at 70 % full, by
//! `examples/write_amplification.rs` and a simulation of 1,024 segments: one stream for all 2.2,
//! survivors apart 1.74, survivors in two streams 1.71, hints for three lanes as well 1.48. For
//! uniform overwrites nothing can be known, and it stays near 1.9.

use std::sync::atomic::{AtomicU64, Ordering};

use super::space::Purpose;
use crate::limits::OPEN_BUFFERS_MAX;
use crate::record::Lane;

/// A lifespan counts this much towards the typical one.
const AVERAGED: u64 = 16;

/// Records that fill segments together.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
#[repr(u8)]
pub(crate) enum Stream {
    Demote,
    MidLived,
    ShortLived,
    /// Survivors of segments for records that were expected to die young.
    YoungSurvivors,
    /// Survivors of all others.
    OldSurvivors,
    /// Records that are too large for a write buffer, whatever their lifetime.
    Large,
}

/// All streams, in the order of their numbers.
pub(crate) const STREAMS: [Stream; 6] = [
    Stream::Demote,
    Stream::MidLived,
    Stream::ShortLived,
    Stream::YoungSurvivors,
    Stream::OldSurvivors,
    Stream::Large,
];

// Large records are not written from a buffer that is open.
const _: () = assert!(OPEN_BUFFERS_MAX == STREAMS.len() - 1);

impl From<Lane> for Stream {
    fn from(lane: Lane) -> Self {
        match lane {
            Lane::Demote => Self::Demote,
            Lane::MidLived => Self::MidLived,
            Lane::ShortLived => Self::ShortLived,
        }
    }
}

impl Stream {
    /// Who fills segments of this stream; large records come from the tier and from gc runs.
    pub(crate) fn purpose(self) -> Purpose {
        match self {
            Self::YoungSurvivors | Self::OldSurvivors => Purpose::Survivors,
            Self::Demote | Self::MidLived | Self::ShortLived | Self::Large => Purpose::Fresh,
        }
    }

    /// Where the survivors of a segment of this stream go.
    pub(crate) fn survivors(self) -> Self {
        match self {
            Self::MidLived | Self::ShortLived => Self::YoungSurvivors,
            Self::Demote | Self::YoungSurvivors | Self::OldSurvivors | Self::Large => {
                Self::OldSurvivors
            }
        }
    }
}

/// The clock and the typical lifespan.
pub(crate) struct Lifetimes {
    appended_bytes: AtomicU64,
    typical_bytes: AtomicU64,
}

impl Lifetimes {
    /// Shape: `capacity_bytes` is that of the log; a tenth is the first guess at the typical
    /// lifespan.
    pub(crate) fn new(capacity_bytes: u64) -> Self {
        Self {
            appended_bytes: AtomicU64::new(0),
            typical_bytes: AtomicU64::new(capacity_bytes / 10),
        }
    }

    /// The bytes that the tier has appended so far.
    pub(crate) fn now(&self) -> u64 {
        self.appended_bytes.load(Ordering::Relaxed)
    }

    pub(crate) fn advance(&self, bytes: u64) {
        self.appended_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// The lane for a record that replaces one from a segment of that stream and birth.
    pub(crate) fn lane_after(&self, stream: Stream, birth: u64) -> Lane {
        if !matches!(stream, Stream::Demote | Stream::MidLived | Stream::ShortLived) {
            return Lane::Demote;
        }
        let lived = self.now().saturating_sub(birth);
        let typical = self.typical_bytes.load(Ordering::Relaxed);
        match lived {
            lived if lived < typical / 8 => Lane::ShortLived,
            lived if lived < typical / 2 => Lane::MidLived,
            _ => Lane::Demote,
        }
    }

    /// A segment was freed.
    pub(crate) fn segment_freed(&self, stream: Stream, birth: u64) {
        if stream == Stream::MidLived {
            let lived = self.now().saturating_sub(birth);
            let typical = self.typical_bytes.load(Ordering::Relaxed);
            // Two workers at once may lose one sample of the two; it is an average of many.
            let averaged = typical - typical / AVERAGED + lived / AVERAGED;
            self.typical_bytes.store(averaged, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_are_numbered_in_order() {
        for (number, stream) in STREAMS.into_iter().enumerate() {
            assert_eq!(stream as usize, number);
        }
    }

    #[test]
    fn the_lane_follows_the_age_of_the_replaced_record() {
        let lifetimes = Lifetimes::new(8000);
        let cases = [
            (Stream::Demote, 0, Lane::ShortLived),
            (Stream::Demote, 99, Lane::ShortLived),
            (Stream::Demote, 100, Lane::MidLived),
            (Stream::ShortLived, 399, Lane::MidLived),
            (Stream::MidLived, 400, Lane::Demote),
            (Stream::OldSurvivors, 0, Lane::Demote),
            (Stream::Large, 0, Lane::Demote),
        ];
        lifetimes.advance(1000);
        for (stream, age, lane) in cases {
            assert_eq!(lifetimes.lane_after(stream, 1000 - age), lane, "{stream:?} {age}");
        }
    }

    #[test]
    fn the_typical_lifespan_follows_what_is_freed() {
        let lifetimes = Lifetimes::new(1_000_000);
        lifetimes.advance(16_000);
        for _ in 0..200 {
            lifetimes.segment_freed(Stream::MidLived, 0);
            lifetimes.segment_freed(Stream::Demote, 15_999);
        }
        let lane = |age: u64| lifetimes.lane_after(Stream::Demote, 16_000 - age);
        assert_eq!(lane(1_800), Lane::ShortLived);
        assert_eq!(lane(2_200), Lane::MidLived);
        assert_eq!(lane(9_000), Lane::Demote);
    }
}
