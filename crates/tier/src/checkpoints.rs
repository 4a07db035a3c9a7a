//! Room on flash that comes with the next checkpoint of the journal: segments that are free but for the last one, which
//! refers to what they had.

use std::sync::atomic::{AtomicBool, Ordering};

use flash::FreeSpace;

use crate::tier::Tier;

/// A checkpoint is taken for room when less than this part is free of what does not live, a quarter, and it brings as much:
/// garbage collection works by then, and makes more until the checkpoint begins.
const WORTH_SPARE_SHARE: u64 = 4;
/// Or when as little is free as this, an eighth, and it brings as much.
const SHORT_SPARE_SHARE: u64 = 8;

/// What is known of the next checkpoint.
#[derive(Default)]
pub(crate) struct NextCheckpoint {
    /// Whether it is taken when it is wanted.
    comes: AtomicBool,
    /// Somebody has found no room where it would bring some, and nobody has begun it since.
    room_is_lacking: AtomicBool,
}

impl NextCheckpoint {
    /// There is no room: the checkpoint is wanted, if it would bring some. Whether it does, and comes.
    fn note_lack_of_room(&self, space: &FreeSpace) -> bool {
        let brings_room = space.held_bytes > 0;
        if brings_room {
            self.room_is_lacking.store(true, Ordering::Relaxed);
        }
        brings_room && self.comes.load(Ordering::Relaxed)
    }

    /// Whether it should be taken now. Whoever asks takes it, so what was noted is forgotten.
    fn take_wish(&self, space: &FreeSpace) -> bool {
        let is_lacking = self.room_is_lacking.swap(false, Ordering::Relaxed);
        is_lacking && space.held_bytes > 0 || is_worth_it(space)
    }
}

/// Whether a checkpoint should be taken before anybody has to wait for it. Each is written for the room that it brings: the more,
/// the better.
fn is_worth_it(space: &FreeSpace) -> bool {
    let spare_bytes = space.capacity_bytes.saturating_sub(space.live_bytes);
    let is_with =
        |share| space.free_bytes < spare_bytes / share && space.held_bytes >= spare_bytes / share;
    space.held_bytes > 0 && (is_with(WORTH_SPARE_SHARE) || is_with(SHORT_SPARE_SHARE))
}

impl Tier {
    /// Says whether a checkpoint is taken when it is wanted. While none is, nobody waits for one.
    pub fn set_checkpoint_comes(&self, comes: bool) {
        let engine = self.engine();
        let Some(checkpoints) = engine.as_ref().and_then(|engine| engine.checkpoints()) else {
            return;
        };
        self.next_checkpoint.comes.store(comes, Ordering::Relaxed);
        checkpoints.set_comes(comes);
    }

    /// Has a checkpoint taken if that brings room on flash, of which there is none. Whether one comes: what lacks room waits
    /// for that.
    pub(crate) fn room_comes_with_checkpoint(&self) -> bool {
        self.free_space().is_some_and(|space| self.next_checkpoint.note_lack_of_room(&space))
    }

    /// Forgets who found no room before a checkpoint has brought some: who finds none behind it says so again.
    pub fn forget_lack_of_room(&self) {
        self.next_checkpoint.room_is_lacking.store(false, Ordering::Relaxed);
    }

    /// Whether somebody waits for one that comes and has not begun.
    pub fn is_checkpoint_waited_for(&self) -> bool {
        let NextCheckpoint { comes, room_is_lacking } = &self.next_checkpoint;
        room_is_lacking.load(Ordering::Relaxed) && comes.load(Ordering::Relaxed)
    }

    /// Whether a checkpoint should be taken for the room that it makes on flash. Whoever asks takes it: those who lack room
    /// say so again.
    pub fn take_wish_for_checkpoint(&self) -> bool {
        self.free_space().is_some_and(|space| self.next_checkpoint.take_wish(&space))
    }

    /// Whether a path could be left, or the flash be smaller that is to be, if there were another checkpoint.
    pub fn is_flash_held_up(&self) -> bool {
        self.free_space().is_some_and(|space| space.is_held_up)
    }

    /// Forgets what is known of checkpoints, for the engine has gone.
    pub(crate) fn forget_checkpoints(&self) {
        self.next_checkpoint.comes.store(false, Ordering::Relaxed);
        self.forget_lack_of_room();
    }

    pub(crate) fn free_space(&self) -> Option<FreeSpace> {
        self.flash.engine().as_ref().map(|engine| engine.free_space())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_checkpoint_is_wanted_when_flash_is_short_or_somebody_found_no_room() {
        let space = |free_bytes, held_bytes| {
            let (gc_below_bytes, capacity_bytes, live_bytes) = (20, 840, 200);
            let coming_bytes = held_bytes;
            FreeSpace {
                free_bytes,
                gc_below_bytes,
                capacity_bytes,
                live_bytes,
                held_bytes,
                coming_bytes,
                ..FreeSpace::default()
            }
        };
        for (free, held, is_wanted, is_wanted_by_who_waits) in [
            (640, 0, false, false),
            (160, 480, false, true),
            (159, 160, true, true),
            (159, 159, false, true),
            (79, 80, true, true),
            (79, 79, false, true),
            // Though something is free: a long record may need more.
            (10, 10, false, true),
            (0, 10, false, true),
            (0, 0, false, false),
        ] {
            let next = NextCheckpoint::default();
            let space = space(free, held);
            assert_eq!(next.take_wish(&space), is_wanted, "{space:?}");
            assert!(!next.note_lack_of_room(&space), "none comes");
            next.comes.store(true, Ordering::Relaxed);
            assert_eq!(next.note_lack_of_room(&space), held > 0, "{space:?}");
            assert_eq!(next.take_wish(&space), is_wanted_by_who_waits, "{space:?}");
            assert_eq!(next.take_wish(&space), is_wanted, "whoever waits has not said so again");
        }
    }
}
