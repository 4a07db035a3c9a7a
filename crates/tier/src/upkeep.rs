//! Upkeep: what a worker does for memory ahead of need, after batches and every few milliseconds.

use std::sync::atomic::Ordering;

use flash::{EngineWorker, WRITE_BUFFER_BYTES, WRITE_BUFFERS, WRITE_BUFFERS_MIN};
use keyspace::{Hint, Tally};

use crate::controller::{Done, Figures, Slice};
use crate::demote::{StopReason, Written};
use crate::limits::{LARGE_SLICE_SLOTS_MAX, SLICE_BYTES_MAX, SLICE_SLOTS_MAX};
use crate::tier::Pressure;
use crate::worker::TierWorker;

/// While memory is short, resident memory is looked at after growth by this part of `maxmemory`:
/// 1/256.
const LOOK_SHIFT: u32 = 8;
/// The part of `maxmemory` that blocks which are read ahead may take, on all workers: 1/8.
const READ_AHEAD_SHIFT: u32 = 3;
/// What those of a worker may take at most, in bytes: more has served nobody.
const READ_AHEAD_BYTES_MAX: usize = 32 << 20;
/// What they may take whatever there is, in bytes: four of the largest.
pub(crate) const READ_AHEAD_BYTES_MIN: usize = 256 << 10;
/// The part of `maxmemory` that the write buffers of all workers may take, 1/16, as long as each has the fewest that it
/// gets on with.
const WRITE_BUFFERS_SHIFT: u32 = 4;
/// Bytes that a batch of writes is to have demoted, at least.
const BATCH_BYTES_MIN: i64 = 16 << 10;
/// Bytes that writers have demoted at once, at least: a slice costs something of its own.
const DUE_BYTES_MIN: i64 = 64 << 10;

impl TierWorker {
    /// Ends a batch: adds its tally to the counters, sends the values of its cold writes to flash unless
    /// a first use is enough to stay, and demotes a little when memory is short.
    #[inline]
    pub fn after_batch(&self, tally: &mut Tally) -> Pressure {
        let mut grown = tally.ram_bytes();
        self.tier.add_tally(tally);
        if !tally.cold_writes.is_empty() {
            grown -= self.demote_cold_writes(&tally.cold_writes);
            tally.cold_writes.clear();
        }
        if !tally.new_values.is_empty() {
            let gone = self.pass_probation(&mut tally.new_values);
            self.gc_for(gone.written_bytes);
            grown -= gone.freed_bytes;
        }
        let pressure = self.tier.pressure();
        if pressure == Pressure::None && self.tier.asked_bytes() == 0 {
            // Without flash `maxmemory` may be overrun while less is allocated than may be: by values that find no
            // room in the holes that evicted keys have left.
            let has_looked = !self.tier.has_flash() && self.look_after(grown);
            return if has_looked { self.tier.pressure() } else { pressure };
        }
        self.relieve(grown)
    }

    /// Returns the bytes that came free.
    fn demote_cold_writes(&self, cold_writes: &[Hint]) -> i64 {
        if self.tier.promotes_at_once() || self.tier.drains() {
            return 0;
        }
        let gone = self.demote_unused(cold_writes, Written::Cold);
        self.gc_for(gone.written_bytes);
        gone.freed_bytes
    }

    #[cold]
    fn relieve(&self, grown: i64) -> Pressure {
        // Twice what the batch brought: writers pay their own way and catch up a little.
        let due = self.demotion_due_bytes.get() + (2 * grown).max(BATCH_BYTES_MIN);
        self.demotion_due_bytes.set(due);
        if due >= DUE_BYTES_MIN {
            self.demotion_due_bytes.set(0);
            self.relieve_of(due);
        }
        self.defrag_for(grown);
        self.look_after(grown);
        self.tier.pressure()
    }

    /// Frees so many bytes at most: of what is over the watermark, or else for writes that wait on others.
    fn relieve_of(&self, bytes: i64) {
        let over = self.tier.budget.over_watermark();
        if over > 0 {
            self.run_slice(self.figures(0).slice(bytes.min(over)), 0);
        } else {
            self.demote_for_others(bytes);
        }
    }

    pub(crate) fn figures(&self, wanted_bytes: u64) -> Figures {
        self.figures_beside(wanted_bytes, 0)
    }

    /// The same where `left_bytes` are to be left to reads.
    pub(crate) fn figures_beside(&self, wanted_bytes: u64, left_bytes: i64) -> Figures {
        let figures = self.tier.figures(self.index, wanted_bytes, left_bytes);
        Figures { may_defrag: self.may_defrag(), ..figures }
    }

    /// Demotes, collects and evicts what a slice is to free, for a write that takes `wanted_bytes` if that is
    /// much.
    pub(crate) fn run_slice(&self, slice: Slice, wanted_bytes: u64) -> Done {
        let mut done = Done::default();
        if slice.demote_bytes > 0 {
            let is_large = wanted_bytes > 0;
            let slots_max = if is_large { LARGE_SLICE_SLOTS_MAX } else { SLICE_SLOTS_MAX };
            done = self.demote_slice(slice.demote_bytes, slots_max);
        } else if self.tier.has_flash() {
            done.stopped = Some(StopReason::Spent);
        }
        let evict_bytes = self.figures(wanted_bytes).left_to_evict(slice, &done);
        if evict_bytes > 0 {
            done.evicted = Some(self.evict(evict_bytes));
        }
        done
    }

    /// Demotes, and collects in step with that.
    fn demote_slice(&self, bytes: i64, slots_max: usize) -> Done {
        let demoted = self.demote(bytes, slots_max);
        self.gc_for(demoted.written_bytes);
        let is_full = demoted.stopped == Some(StopReason::Full);
        let gc_frees = is_full && self.gc();
        let awaits_checkpoint = is_full && !gc_frees && self.tier.room_comes_with_checkpoint();
        let is_stuck = match demoted.stopped {
            Some(StopReason::Failed) => true,
            Some(StopReason::Full) => !gc_frees && !awaits_checkpoint,
            _ => false,
        };
        if is_stuck {
            self.tier.rounds[self.index].note_stuck(self.tier.budget.measures());
        }
        let (demoted_bytes, stopped) = (demoted.freed_bytes, demoted.stopped);
        Done { demoted_bytes, stopped, gc_frees, awaits_checkpoint, ..Done::default() }
    }

    /// Looks at resident memory after so much growth: a fast writer does not wait for the next
    /// measurement, which a busy machine may delay. Whether it did.
    fn look_after(&self, grown: i64) -> bool {
        let unseen = self.unseen_bytes.get() + grown.max(0);
        let step = self.tier.budget.max_bytes() >> LOOK_SHIFT;
        let is_due = step > 0 && unseen as u64 * self.tier.workers as u64 >= step;
        self.unseen_bytes.set(if is_due { 0 } else { unseen });
        if is_due {
            self.tier.look_for_memory(0);
        }
        is_due
    }

    /// The worker's share of upkeep, to be called every few milliseconds and when
    /// [`TierWorker::upkeep_due`] says so: a slice for writes that wait here, or else demotion and
    /// eviction ahead of need, or for writes that wait on others, and defragmentation; then gc. True:
    /// there is more to do at once, when others have had their turn.
    pub fn upkeep(&self) -> bool {
        let someone_waits = !self.waiting.is_empty();
        let mut more = self.serve_waiting();
        if !someone_waits {
            more = self.free_ahead();
            self.defrag_idle();
        }
        self.tier.rounds[self.index].note_garbage(!self.gc());
        self.bound_engine();
        self.want_submit();
        more
    }

    /// Says how much memory the engine may take, by what `maxmemory` is now.
    fn bound_engine(&self) {
        if let Some(engine) = self.engine.borrow_mut().as_deref_mut() {
            engine.bound_write_buffers(self.write_buffers_max());
            self.bound_read_ahead(engine);
        }
    }

    /// Says how much memory what is read ahead may take: a share of `maxmemory`, to which it grows in steps, each of which
    /// is measured before the next; less and less while `maxmemory` is resident, or a large request waits for memory.
    fn bound_read_ahead(&self, engine: &mut dyn EngineWorker) {
        let budget = &self.tier.budget;
        let share = read_ahead_share(budget.max_bytes(), self.tier.workers);
        // Small writes that wait are in step with demotion.
        let is_wanted = budget.is_full_beside(0, budget.room_for_reads())
            || self.waiting.wanted_bytes() > 0
            || self.tier.asked_bytes() > 0;
        let has_measured = self.read_ahead_at.replace(budget.measures()) != budget.measures();
        let allowed = self.read_ahead_bytes.get();
        let next = if is_wanted {
            allowed - allowed / 8
        } else if has_measured {
            engine.block_cache_bytes() + share / 4
        } else {
            allowed
        };
        let bytes = next.clamp(READ_AHEAD_BYTES_MIN, share);
        self.read_ahead_bytes.set(bytes);
        engine.bound_block_cache(bytes, share);
    }

    /// Frees what is over the watermark, a slice of it. True: it frees more at once.
    fn free_ahead(&self) -> bool {
        let over = self.tier.budget.over_watermark();
        if over <= 0 {
            return self.demote_for_others(SLICE_BYTES_MAX);
        }
        let done = self.run_slice(self.figures(0).slice(over), 0);
        let freed = done.demoted_bytes + done.evicted.map_or(0, |evicted| evicted.freed_bytes);
        freed > 0 && freed < over
    }

    /// Demotes at most `bytes` of what writes that wait on another worker ask for, which then looks whether
    /// it suffices. True: nothing was found yet, and it looks on at once.
    fn demote_for_others(&self, bytes: i64) -> bool {
        let slice = self.figures(0).slice(bytes.min(self.tier.asked_bytes()));
        if slice.demote_bytes == 0 {
            return false;
        }
        let done = self.demote_slice(slice.demote_bytes, LARGE_SLICE_SLOTS_MAX);
        self.tier.asked_bytes.fetch_sub(done.demoted_bytes, Ordering::Relaxed);
        done.demoted_bytes == 0 && done.stopped.is_none()
    }
}

/// Write buffers of one worker. `max_bytes` is `maxmemory`, 0 for none.
pub(crate) fn write_buffers_share(max_bytes: u64, workers: usize) -> usize {
    let share = (max_bytes >> WRITE_BUFFERS_SHIFT) as usize / workers / WRITE_BUFFER_BYTES;
    if max_bytes == 0 { WRITE_BUFFERS } else { share.clamp(WRITE_BUFFERS_MIN, WRITE_BUFFERS) }
}

/// Bytes that the blocks of one worker may come to. `max_bytes` is `maxmemory`, 0 for none.
fn read_ahead_share(max_bytes: u64, workers: usize) -> usize {
    let share = match max_bytes {
        0 => READ_AHEAD_BYTES_MAX,
        _ => (max_bytes >> READ_AHEAD_SHIFT) as usize / workers,
    };
    share.clamp(READ_AHEAD_BYTES_MIN, READ_AHEAD_BYTES_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn write_buffers_have_a_share_of_maxmemory_within_bounds() {
        for (max_mib, workers, expected) in
            [(1024, 4, 12), (48, 1, 12), (128, 4, 8), (64, 4, 7), (16, 64, 7), (0, 4, 12)]
        {
            assert_eq!(
                write_buffers_share(max_mib << 20, workers),
                expected,
                "{max_mib} {workers}"
            );
        }
    }

    #[test]
    fn what_is_read_ahead_has_a_share_of_maxmemory_within_bounds() {
        for (max_mib, workers, expected) in [
            (256, 1, 32 << 20),
            (256, 4, 8 << 20),
            (64 << 10, 4, 32 << 20),
            (0, 4, 32 << 20),
            (40, 64, 256 << 10),
        ] {
            assert_eq!(read_ahead_share(max_mib << 20, workers), expected, "{max_mib} {workers}");
        }
    }
}
