//! What the parts of a worker share: the log, the device, the counts; and how completions find
//! their way back.

use std::sync::Arc;
use std::time::Instant;

use super::counters::Counters;
use super::shared::Shared;
use crate::device::Device;
use crate::device::buffer::{AlignedBuffer, IoBuffer};

/// A worker's connection to the log and to the drives.
pub(crate) struct Io {
    /// When the first read was queued that has not been submitted: the start of all of them.
    pub(crate) turn: Option<Instant>,
    pub(crate) shared: Arc<Shared>,
    pub(crate) device: Box<dyn Device>,
    pub(crate) counters: Arc<Counters>,
}

impl Io {
    /// The time of this turn. Cost: the clock is read once a turn.
    pub(crate) fn now(&mut self) -> Instant {
        *self.turn.get_or_insert_with(Instant::now)
    }

    /// Hands over what is queued: the end of a turn.
    pub(crate) fn submit(&mut self) {
        self.turn = None;
        self.device.submit();
    }

    /// Queues a read of whole sectors of a segment.
    pub(crate) fn read(&mut self, segment: u32, offset: u32, buffer: IoBuffer, user: User) {
        let extent = self.shared.extent(segment, offset, buffer.bytes().len());
        self.device.read(extent, buffer, user.pack());
    }

    /// Queues a write of the first `size` bytes of a buffer, whole sectors.
    pub(crate) fn write(
        &mut self,
        (segment, offset): (u32, u32),
        buffer: Arc<AlignedBuffer>,
        size: usize,
        user: User,
    ) {
        self.counters.device_writes.add(1);
        self.counters.device_write_bytes.add(size as u64);
        let extent = self.shared.extent(segment, offset, size);
        self.device.write(extent, buffer, user.pack());
    }
}

/// Whose operation it is: travels through the device as 64 bits.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub(crate) enum User {
    /// A read for the tier.
    Read { index: u32 },
    /// A write buffer.
    Block { segment: u32, offset: u32 },
    /// A footer.
    Footer { segment: u32 },
    /// A piece of the large record that is being written.
    LargeWrite { piece: u32 },
    /// A piece of a large record that is being read.
    LargeRead { index: u32, piece: u32 },
    /// A victim's footer.
    GcFooter,
    /// A block of a victim.
    GcBlock { index: u32 },
}

const MIDDLE_SHIFT: u32 = 32;
const KIND_SHIFT: u32 = 56;

impl User {
    pub(crate) fn pack(self) -> u64 {
        let (kind, middle, low) = match self {
            Self::Read { index } => (0, 0, index),
            Self::Block { segment, offset } => (1, segment, offset),
            Self::Footer { segment } => (2, segment, 0),
            Self::LargeWrite { piece } => (3, 0, piece),
            Self::LargeRead { index, piece } => (4, index, piece),
            Self::GcFooter => (5, 0, 0),
            Self::GcBlock { index } => (6, 0, index),
        };
        debug_assert!(u64::from(middle) < 1 << (KIND_SHIFT - MIDDLE_SHIFT));
        kind << KIND_SHIFT | u64::from(middle) << MIDDLE_SHIFT | u64::from(low)
    }

    /// Shape: only what `pack` made.
    pub(crate) fn unpack(packed: u64) -> Self {
        let low = packed as u32;
        let middle = (packed >> MIDDLE_SHIFT) as u32 & ((1 << (KIND_SHIFT - MIDDLE_SHIFT)) - 1);
        match packed >> KIND_SHIFT {
            0 => Self::Read { index: low },
            1 => Self::Block { segment: middle, offset: low },
            2 => Self::Footer { segment: middle },
            3 => Self::LargeWrite { piece: low },
            4 => Self::LargeRead { index: middle, piece: low },
            5 => Self::GcFooter,
            6 => Self::GcBlock { index: low },
            kind => unreachable!("invariant: no operation of kind {kind} is queued"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::SEGMENTS_MAX;

    #[test]
    fn users_come_back() {
        let segment = SEGMENTS_MAX as u32 - 1;
        let users = [
            User::Read { index: u32::MAX },
            User::Block { segment, offset: u32::MAX },
            User::Footer { segment },
            User::LargeWrite { piece: 7 },
            User::LargeRead { index: 3, piece: u32::MAX },
            User::GcFooter,
            User::GcBlock { index: 9 },
        ];
        for user in users {
            assert_eq!(User::unpack(user.pack()), user);
        }
    }
}
