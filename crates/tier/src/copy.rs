//! Values in RAM are copied to flash and stay in RAM: a checkpoint of the journal refers to the copies in place of having the
//! values, and a later demotion writes nothing.
//!
//! Values that are not copied go into the checkpoint: where flash has little room, where it takes nothing for now and the
//! drive does not get on, where memory is short, and those for which it is not worth it.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use flash::{EngineError, FreeSpace};
use keyspace::{Copying, EntryPosition, Key, View};

use crate::demote::StopReason;
use crate::limits::{COPY_BYTES_MAX, COPY_PLACES_MAX, COPY_WAITS_MAX};
use crate::tier::{Pressure, Tier};
use crate::worker::TierWorker;

/// Shorter values are not copied. The place of a copy takes 5 to 8 bytes of the record, 16 with what the allocator rounds.
const COPIED_BYTES_MIN: usize = 256;
/// What is in RAM alone must be worth so many segments: the last one that is filled with copies stays half empty.
const SEGMENTS_MIN: u64 = 4;
/// A part of the flash in which nothing lives is left to others, 1/4: with less, gc writes much for what it frees, or evicts.
const SPARE_SHIFT: u32 = 2;

/// Copies values, on a thread that serves nobody.
pub struct Copier {
    /// One of its own: while it deals with writes that have failed no slot may be held.
    worker: TierWorker,
    is_stopped: bool,
}

impl Copier {
    /// None: there is too little to copy, or no room for it.
    ///
    /// Errors: the engine's ring or threads could not be made.
    pub fn new(tier: &Arc<Tier>) -> Result<Option<Copier>, EngineError> {
        let Some(engine) = tier.engine().filter(|_| tier.has_flash() && !tier.drains()) else {
            return Ok(None);
        };
        let hot_bytes = tier.counters.hot_bytes.load(Ordering::Relaxed);
        let bytes_min = SEGMENTS_MIN * engine.stats().segment_bytes;
        if hot_bytes < bytes_min as i64 || !has_room(&engine.free_space()) {
            return Ok(None);
        }
        let worker = TierWorker::new(tier.clone(), 0)?;
        Ok(Some(Copier { worker, is_stopped: false }))
    }

    /// Copies the values of keys of a slot that are `wanted`. Waits for the drive, with nothing held, while that gets on.
    pub fn copy_slot(&mut self, slot: u16, wanted: impl Fn(&Key<'_>) -> bool) {
        let tier = &*self.worker.tier;
        let (mut from, mut waits) = (EntryPosition::default(), 0);
        while !self.is_stopped {
            let space = tier.engine().map(|engine| engine.free_space());
            let has_room = space.as_ref().is_some_and(has_room);
            if !has_room || tier.pressure() == Pressure::Wait {
                // Room may come, and memory: the next slot is looked at again.
                return;
            }
            let before = from;
            match self.copy_some(slot, &mut from, &wanted) {
                None if from == EntryPosition::default() => break,
                None => {}
                Some(StopReason::Busy) => {
                    waits = if from == before { waits + 1 } else { 0 };
                    self.is_stopped = waits >= COPY_WAITS_MAX;
                    self.turn();
                }
                Some(_) => self.is_stopped = true,
            }
        }
        self.worker.submit();
    }

    /// Copies values of a slot from a place on, with the slot held once. Why flash takes no more.
    fn copy_some(
        &self,
        slot: u16,
        from: &mut EntryPosition,
        wanted: &impl Fn(&Key<'_>) -> bool,
    ) -> Option<StopReason> {
        let copied = self.worker.with_demoter(|demoter, tally| {
            let mut state = self.worker.tier.keyspace.lock(slot);
            let mut bytes = 0;
            let mut copy = |view: View<'_>, table: u8| {
                if bytes >= COPY_BYTES_MAX {
                    return Copying::Stop;
                }
                let is_worth_it = view.value_len() >= COPIED_BYTES_MIN;
                if !is_worth_it || !wanted(&Key::in_slot(view.key, slot)) {
                    return Copying::Leave;
                }
                bytes += view.value_len();
                demoter.copy(slot, &view, table)
            };
            state.copy_each(from, COPY_PLACES_MAX, tally, &mut copy);
        });
        copied.stopped
    }

    /// Hands writes to the drive, and deals with those that have ended. No slot is held.
    fn turn(&self) {
        self.worker.submit();
        if self.worker.in_flight() > 0 {
            self.worker.wait_for_device();
        }
        self.worker.reap();
    }
}

impl Drop for Copier {
    /// Waits until all is on flash. A copy that cannot be written is none.
    fn drop(&mut self) {
        self.worker.flush();
        while self.worker.in_flight() > 0 {
            self.turn();
        }
    }
}

/// Whether flash has room for copies: more than what has gc work, or a checkpoint taken for what it frees.
fn has_room(space: &FreeSpace) -> bool {
    let spare_bytes = space.capacity_bytes.saturating_sub(space.live_bytes);
    space.free_bytes > space.gc_below_bytes && spare_bytes > space.capacity_bytes >> SPARE_SHIFT
}
