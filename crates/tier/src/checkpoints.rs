//! Room on flash that comes with the next checkpoint of the journal: segments that are free but for the last one, which
//! refers to what they had.

use std::sync::atomic::{AtomicBool, Ordering};

use flash::FreeSpace;

use crate::tier::Tier;

/// A checkpoint is taken when so little of the flash is free, an eighth, and what it brings is worth it, a 32nd.
const FREE_FLASH_SHIFT: u32 = 3;
const HELD_FLASH_SHIFT: u32 = 5;

/// What is known of the next checkpoint.
#[derive(Default)]
pub(crate) struct NextCheckpoint {
    /// Whether it is taken when it is wanted.
    comes: AtomicBool,
    /// Somebody has found no room where it would bring some.
    is_awaited: AtomicBool,
}

impl NextCheckpoint {
    /// There is no room. Whether some comes with a checkpoint.
    fn is_awaited_for(&self, space: &FreeSpace) -> bool {
        let brings_room = space.held_bytes > 0;
        if brings_room {
            self.is_awaited.store(true, Ordering::Relaxed);
        }
        brings_room && self.comes.load(Ordering::Relaxed)
    }

    /// Whether one should be taken now.
    fn is_wanted(&self, space: &FreeSpace) -> bool {
        let is_awaited = self.is_awaited.swap(false, Ordering::Relaxed) && space.held_bytes > 0;
        // Before anybody waits for it.
        let is_worth_it = space.free_bytes < space.capacity_bytes >> FREE_FLASH_SHIFT
            && space.held_bytes >= space.capacity_bytes >> HELD_FLASH_SHIFT;
        is_awaited || is_worth_it
    }
}

impl Tier {
    /// Says whether a checkpoint is taken when it is wanted. While none is, nobody waits for one.
    pub fn set_checkpoint_comes(&self, comes: bool) {
        self.next_checkpoint.comes.store(comes, Ordering::Relaxed);
    }

    /// Has a checkpoint taken if that brings room on flash, of which there is none. Whether one comes: what lacks room waits
    /// for that.
    pub(crate) fn await_checkpoint(&self) -> bool {
        self.free_space().is_some_and(|space| self.next_checkpoint.is_awaited_for(&space))
    }

    /// Whether somebody waits for one that comes.
    pub fn is_checkpoint_awaited(&self) -> bool {
        let NextCheckpoint { comes, is_awaited } = &self.next_checkpoint;
        is_awaited.load(Ordering::Relaxed) && comes.load(Ordering::Relaxed)
    }

    /// Whether a checkpoint should be taken for the room that it makes on flash. Whoever asks takes it: those who lack room
    /// say so again.
    pub fn wants_checkpoint(&self) -> bool {
        self.free_space().is_some_and(|space| self.next_checkpoint.is_wanted(&space))
    }

    fn free_space(&self) -> Option<FreeSpace> {
        self.engine.as_ref().map(|engine| engine.free_space())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_checkpoint_is_wanted_when_flash_is_short_or_somebody_found_no_room() {
        let space = |free_bytes, held_bytes| {
            let (gc_below_bytes, capacity_bytes, live_bytes) = (20, 640, 0);
            FreeSpace { free_bytes, gc_below_bytes, capacity_bytes, live_bytes, held_bytes }
        };
        for (free, held, is_wanted, is_wanted_by_who_waits) in [
            (640, 0, false, false),
            (80, 500, false, true),
            (79, 20, true, true),
            (79, 19, false, true),
            // Though something is free: a long record may need more.
            (10, 10, false, true),
            (0, 10, false, true),
            (0, 0, false, false),
        ] {
            let next = NextCheckpoint::default();
            let space = space(free, held);
            assert_eq!(next.is_wanted(&space), is_wanted, "{space:?}");
            assert!(!next.is_awaited_for(&space), "none comes");
            next.comes.store(true, Ordering::Relaxed);
            assert_eq!(next.is_awaited_for(&space), held > 0, "{space:?}");
            assert_eq!(next.is_wanted(&space), is_wanted_by_who_waits, "{space:?}");
            assert_eq!(next.is_wanted(&space), is_wanted, "whoever waits has not said so again");
        }
    }
}
