//! The controller of memory: figures in, actions out.
//!
//! It decides how much a slice of work is to free and by which means, and what becomes of the writes
//! that wait. It has no clock and makes no call: whoever runs a slice (`upkeep.rs`, `wait.rs`) hands
//! in the figures and does as it is told, so that a closed loop with models of the allocator and of
//! the drive drives it in tests.
//!
//! ```text
//!  tracked <= watermark        nothing to do
//!  watermark .. limit          demotion and eviction run ahead of need, in step with what is written
//!  beyond the limit            writes wait, and slices run until there is memory or none can be made
//! ```
//!
//! 1. Under `noeviction` no key goes, whatever the figures.
//! 2. With flash, values are demoted first. Keys are evicted when values alone no longer make the
//!    room: their keys fill RAM, or flash is full and its garbage collection frees nothing.
//! 3. A write is refused only when nothing can be freed: for what is resident, never for the
//!    estimate.
//! 4. A large request that makes the data set no larger may take the margin then, one at a time.

use crate::demote::StopReason;
use crate::limits::{FULL_SLICE_BYTES, SLICE_BYTES_MAX, VALUES_BYTES_MIN, WRITE_BYTES, WRITES_MAX};
use crate::tier::Pressure;

/// Values that take less than this part of the limit leave nothing to demote: a sixteenth.
const VALUES_SHIFT: u32 = 4;
/// Values that take less than this part of it are few: a 64th.
const FEW_VALUES_SHIFT: u32 = 6;
/// Keys of this part of the data set are few: an eighth.
const FEW_KEYS_SHIFT: u32 = 3;
/// A data set that takes less than this part of the limit does not fill RAM: a half.
const DATA_SHIFT: u32 = 1;
/// Pages are dense when at most this part of what defragmentation asked about moved: an eighth.
const DENSE_SHIFT: u32 = 3;
/// Hardly any of the flash is garbage, so that it is to be evicted from, when at most this part is: an eighth.
const GARBAGE_SHIFT: u32 = 3;

/// How much of `maxmemory` is resident.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Resident {
    /// Less than all but the margin.
    NotFull,
    /// All but a part of the margin.
    NearlyFull,
    /// All of it, but what is allocated would fit and it has not been so for long.
    FullForNow,
    /// All of it.
    Full,
}

/// What the controller knows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Figures {
    /// Bytes beyond the limit on what is allocated.
    pub(crate) over_limit: i64,
    /// Bytes beyond the mark at which demotion and eviction begin.
    pub(crate) over_watermark: i64,
    pub(crate) limit_bytes: i64,
    pub(crate) resident: Resident,
    /// Whether `maxmemory` is resident, and a 64th of it more.
    pub(crate) is_overrun: bool,
    /// Whether that would be so with what the write that waits first takes and what others have claimed, which
    /// goes by itself.
    pub(crate) is_overrun_by_claims: bool,
    /// Whether pages that evicted keys have left can be emptied, without flash: writes wait for that while
    /// `maxmemory` is overrun.
    pub(crate) may_empty_pages: bool,
    pub(crate) has_flash: bool,
    /// Whether the policy lets any key go that there is.
    pub(crate) may_evict: bool,
    /// Bytes of the data set in RAM: keys and values.
    pub(crate) data_bytes: i64,
    /// Bytes of values in RAM.
    pub(crate) values_bytes: i64,
    /// Whether what is allocated would fit without them.
    pub(crate) fits_without_values: bool,
    /// Bytes that would be resident beyond `maxmemory`, with what the write that waits first takes if that
    /// is much; less what others have claimed.
    pub(crate) missing_bytes: i64,
    /// Whether the worker's hand may still find values to demote: it has not just passed over all of
    /// its slots, as often as a value may stay that was used, and found none that flash takes.
    pub(crate) own_hand_may_find: bool,
    /// The same of the other workers' hands.
    pub(crate) other_hands_may_find: bool,
    /// Whether sparse pages could be emptied.
    pub(crate) may_defrag: bool,
    /// Whether the write that waits first takes much.
    pub(crate) is_large: bool,
    /// Bytes of keys that are to go for it though what is allocated is within the limit.
    pub(crate) owed_bytes: i64,
    /// Whether it does, and what is in its way may go by itself: what other large requests have claimed or
    /// run with, values on their way to flash, what other clients hold.
    pub(crate) is_held_up: bool,
    /// Whether a large request waits first that makes the data set no larger, `maxmemory` would not be overrun with what
    /// it takes, and no other has claimed any.
    pub(crate) bears_alone: bool,
    /// Whether the data set gets smaller.
    pub(crate) shrinks: bool,
    /// Whether blocks that were read ahead go, which they do while memory is short, down to the least that they may be.
    pub(crate) read_ahead_shrinks: bool,
    /// Bytes that the data set takes less than when writes were last refused.
    pub(crate) freed_since_refusal: i64,
}

/// What one slice is to free, and how.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Slice {
    pub(crate) demote_bytes: i64,
    /// By eviction, less what demotion has freed.
    pub(crate) evict_bytes: i64,
}

/// What a slice did.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Done {
    /// Bytes that demotion freed.
    pub(crate) demoted_bytes: i64,
    /// Why it stopped early.
    pub(crate) stopped: Option<StopReason>,
    /// What was evicted, if that was tried.
    pub(crate) evicted: Option<EvictedKeys>,
    /// Blocks that defragmentation moved.
    pub(crate) moved: u64,
    /// Whether garbage collection of the flash gets on.
    pub(crate) gc_frees: bool,
    /// Whether garbage collection frees nothing, and a checkpoint that is to come does.
    pub(crate) awaits_checkpoint: bool,
    /// Whether the write that has waited longest has waited for as long as it may.
    pub(crate) is_overdue: bool,
    /// Whether it has waited for as long as it may for defragmentation alone, or others have in vain.
    pub(crate) is_late: bool,
}

/// Keys that went, and what came of it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct EvictedKeys {
    pub(crate) keys: u64,
    pub(crate) freed_bytes: i64,
    /// Bytes that upkeep is about to free: nodes of large collections among these keys.
    pub(crate) detached_bytes: i64,
    /// Slots that were looked at.
    pub(crate) slots: usize,
    /// Every key was looked at, and none may go.
    pub(crate) is_spent: bool,
}

/// What becomes of the writes that wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// There is memory: all small ones in front go on, or the large one that is the first.
    AdmitAll,
    /// So many of them, the oldest first, go on.
    Admit(usize),
    /// The same beyond the limit, which is an estimate: nothing more can be freed, and `maxmemory` is not
    /// resident.
    AdmitBeyondLimit,
    /// The large one that is the first takes the margin, as no other does until it has what it takes: nothing can be
    /// freed for it.
    AdmitAlone,
    /// Another slice.
    Continue,
    /// Another slice, which also evicts so many bytes.
    Evict(i64),
    /// Another slice when the device has completed something.
    AwaitDevice,
    /// Another slice when memory has been measured.
    AwaitMeasure,
    /// Another slice when memory has been measured; the other workers demote meanwhile, since only
    /// their slots may hold values.
    AwaitOthers,
    /// No memory can be made for any of them.
    Refuse,
}

impl Next {
    /// Whether the write that waits first goes on waiting.
    pub(crate) fn keeps_waiting(self) -> bool {
        use Next::{Admit, AdmitAll, AdmitAlone, AdmitBeyondLimit, Refuse};
        !matches!(self, AdmitAll | Admit(_) | AdmitBeyondLimit | AdmitAlone | Refuse)
    }
}

impl Figures {
    /// How urgently memory is needed. With flash a write waits, too, while `maxmemory` is resident: the limit is an
    /// estimate of what comes to that. Without flash, a large one does, and others while it is overrun. With flash
    /// a large one waits for nothing else, since what is resident was measured for it.
    pub(crate) fn pressure(&self) -> Pressure {
        if (self.has_flash || self.is_large) && self.is_full() || self.is_overrun_by_keys() {
            Pressure::Wait
        } else if self.has_flash && self.is_large {
            Pressure::Demote
        } else if self.over_watermark <= 0 {
            Pressure::None
        } else if self.over_limit <= 0 {
            Pressure::Demote
        } else {
            Pressure::Wait
        }
    }

    /// Whether `maxmemory` is overrun by pages that evicted keys have left.
    fn is_overrun_by_keys(&self) -> bool {
        self.is_overrun && self.may_empty_pages
    }

    /// Whether `maxmemory` is resident with a large write, or overrun.
    fn is_well_over(&self) -> bool {
        if self.is_large { self.is_full() } else { self.is_overrun }
    }

    fn is_full(&self) -> bool {
        matches!(self.resident, Resident::Full | Resident::FullForNow)
    }

    /// A slice that frees about `bytes`.
    pub(crate) fn slice(&self, bytes: i64) -> Slice {
        let bytes = bytes.clamp(0, SLICE_BYTES_MAX);
        let evicts = self.keys_may_go()
            && self.data_fills_ram()
            && !self.values_suffice()
            && self.keys_suffice();
        let evict_bytes = if evicts { bytes } else { 0 };
        let demotes = self.has_flash && self.values_bytes >= VALUES_BYTES_MIN;
        Slice { demote_bytes: if demotes { bytes } else { 0 }, evict_bytes }
    }

    /// Whether the data set is what fills RAM. With flash it may be buffers of requests and values on
    /// their way to flash, which go by themselves: to evict keys would free little.
    fn data_fills_ram(&self) -> bool {
        !self.has_flash || self.data_bytes > self.limit_bytes >> DATA_SHIFT
    }

    /// Whether it is not the data set that fills RAM, and what does may go by itself: buffers, or pages that were left.
    fn is_filled_by_buffers(&self) -> bool {
        !self.is_large && self.resident != Resident::Full && !self.data_fills_ram()
    }

    /// Whether demotion can free what is needed. Else keys fill RAM.
    fn values_suffice(&self) -> bool {
        self.has_flash && self.values_bytes > self.limit_bytes >> VALUES_SHIFT
    }

    /// What is left of a slice for eviction to free, after demotion.
    pub(crate) fn left_to_evict(&self, slice: Slice, done: &Done) -> i64 {
        let is_stuck = match done.stopped {
            Some(StopReason::Spent) => self.data_fills_ram() && !self.others_hold_values(),
            Some(StopReason::Full) => !done.gc_frees && !done.awaits_checkpoint,
            _ => false,
        };
        let is_spent = is_stuck && self.keys_may_go() && self.keys_suffice();
        let wanted = if is_spent { slice.demote_bytes } else { slice.evict_bytes };
        wanted - done.demoted_bytes
    }

    /// With flash, keys are let go for the fact alone, never for the estimate.
    fn keys_may_go(&self) -> bool {
        self.may_evict && !(self.has_flash && self.resident == Resident::NotFull)
    }

    /// A slice for `waiting` writes, after defragmentation `moved` some of the blocks it `asked`
    /// about.
    pub(crate) fn slice_for_waiting(&self, waiting: usize, moved: u64, asked: u64) -> Slice {
        if self.waits_for_pages() {
            let evicts = self.keys_may_go() && self.owed_bytes > 0;
            let evict_bytes = if evicts { self.owed_bytes.min(SLICE_BYTES_MAX) } else { 0 };
            return Slice { demote_bytes: 0, evict_bytes };
        }
        let wanted = self.over_limit.max(0) + (waiting as i64).min(WRITES_MAX) * WRITE_BYTES;
        // While `maxmemory` is resident, the limit was too high, whatever it says. But first come
        // pages that are sparse: what goes makes holes, and a cold key takes a little.
        let is_dense = moved <= asked >> DENSE_SHIFT;
        let least = if self.is_full() && is_dense { FULL_SLICE_BYTES } else { 0 };
        let missing = if self.is_large && self.has_flash { self.missing_bytes } else { 0 };
        self.slice(wanted.max(least).max(missing))
    }

    /// What becomes of the writes that wait, by the figures after a slice. `deficit` is what was
    /// over the limit when a write was last let go on.
    pub(crate) fn judge(&self, done: &Done, deficit: i64) -> Next {
        if self.pressure() != Pressure::Wait {
            return Next::AdmitAll;
        }
        let evicted = done.evicted.unwrap_or_default();
        if self.waits_for_pages() {
            let is_overrun = self.is_overrun_by_keys();
            // Those of a crowd are late all at once.
            let awaits_claims = self.is_overrun_by_claims && !done.is_overdue;
            return match () {
                () if is_overrun && done.is_overdue => Next::Refuse,
                () if !is_overrun && done.is_late && !awaits_claims => Next::AdmitAll,
                () if evicted.keys > 0 || done.moved > 0 => Next::Continue,
                () => Next::AwaitMeasure,
            };
        }
        if self.is_overrun_by_keys() && self.over_limit <= 0 {
            // Defragmentation empties the pages that the evicted have left.
            let gets_on = done.moved > 0 || evicted.keys > 0;
            return match done.is_late {
                true => Next::AdmitAll,
                false if gets_on => Next::Continue,
                false => Next::AwaitMeasure,
            };
        }
        if evicted.keys > 0 && !self.has_flash && !self.is_large && self.over_limit < deficit {
            // Eviction gets on, and each write that goes on leaves less over the limit than the
            // last: `maxmemory` was lowered, and nobody waits until it is kept, unless for much.
            return Next::Admit((evicted.freed_bytes / WRITE_BYTES).max(1) as usize);
        }
        if done.demoted_bytes > 0 || evicted.keys > 0 || done.moved > 0 && !done.is_late {
            return Next::Continue;
        }
        if self.has_flash { self.judge_flash(done) } else { self.judge_ram(done) }
    }

    /// Whether a large write waits, without flash, for pages alone: what is allocated is within the limit,
    /// but `maxmemory` would be resident. Keys of what is missing go for it, once, and no more: pages that such
    /// keys have left come free late.
    pub(crate) fn waits_for_pages(&self) -> bool {
        !self.has_flash && self.is_large && self.over_limit <= 0
    }

    /// Nothing was freed, and there is no flash.
    fn judge_ram(&self, done: &Done) -> Next {
        match done.evicted {
            None if self.may_evict && self.keys_suffice() => self.evict(),
            // The hand met nothing that may go yet: it goes on where it stopped.
            Some(evicted) if !evicted.is_spent && !done.is_overdue => Next::Continue,
            _ if !self.is_full() => Next::AdmitBeyondLimit,
            _ if (self.is_held_up || self.shrinks) && !done.is_overdue => Next::AwaitMeasure,
            _ => Next::Refuse,
        }
    }

    /// Nothing was freed, and there is flash.
    fn judge_flash(&self, done: &Done) -> Next {
        let in_time = !done.is_overdue;
        let tries_eviction = self.may_evict && done.evicted.is_none() && self.keys_suffice();
        let awaits_buffers = !self.data_fills_ram() && (!self.is_large || self.is_held_up);
        let evicts = done.evicted.is_some_and(|evicted| !evicted.is_spent) && in_time;
        match done.stopped {
            None if self.fits_keys() => Next::AdmitBeyondLimit,
            None if in_time => Next::Continue,
            Some(StopReason::Busy) if in_time => Next::AwaitDevice,
            // Collection gets on slowly where most of the flash is live.
            Some(StopReason::Full) if self.bears_alone && done.is_late => Next::AdmitAlone,
            Some(StopReason::Full) if in_time && done.gc_frees => Next::AwaitDevice,
            Some(StopReason::Full) if in_time && done.awaits_checkpoint => Next::AwaitMeasure,
            // What was deleted may be written anew, though its pages are still resident and the limit
            // takes them for overhead: there is room in them.
            Some(StopReason::Spent)
                if self.freed_since_refusal >= WRITE_BYTES && !self.is_well_over() =>
            {
                Next::Admit((self.freed_since_refusal / WRITE_BYTES) as usize)
            }
            // Before pages are packed: they come free slowly, and each of a crowd of such requests would wait for that.
            // Keys that may go have gone by now.
            Some(StopReason::Spent)
                if self.bears_alone && (!in_time || !self.others_hold_values()) =>
            {
                Next::AdmitAlone
            }
            _ if !done.is_late && self.may_defrag => Next::Continue,
            Some(StopReason::Spent) if self.resident == Resident::NotFull => Next::AdmitBeyondLimit,
            Some(StopReason::Spent) if in_time && self.others_hold_values() => Next::AwaitOthers,
            _ if in_time && self.is_full() && self.read_ahead_shrinks => Next::AwaitMeasure,
            Some(StopReason::Spent) if in_time && awaits_buffers && tries_eviction => {
                Next::AwaitMeasure
            }
            // Keys alone are left in RAM.
            Some(StopReason::Spent) if tries_eviction => self.evict(),
            Some(StopReason::Spent) if evicts => Next::Continue,
            Some(StopReason::Spent) if in_time && self.own_hand_may_find && self.has_values() => {
                Next::AwaitMeasure
            }
            _ if in_time && (self.is_held_up || self.shrinks) => Next::AwaitMeasure,
            Some(StopReason::Spent) if in_time && self.is_filled_by_buffers() => Next::AwaitMeasure,
            Some(StopReason::Spent) => Next::Refuse,
            // Keys are let go for the fact alone, never for the estimate.
            _ if !self.is_full() => Next::AdmitBeyondLimit,
            _ if tries_eviction => self.evict(),
            _ if evicts => Next::Continue,
            // Flash takes nothing more, so there is nothing to wait for.
            _ if self.bears_alone => Next::AdmitAlone,
            // Values have gone to flash; their pages may be on their way.
            _ if in_time && self.resident == Resident::FullForNow => Next::AwaitMeasure,
            _ => Next::Refuse,
        }
    }

    /// Whether a write that takes much could fit if keys go, with flash a few of them, as it is before each
    /// slice: what is in its way may be buffers, and no key should go in vain.
    fn keys_suffice(&self) -> bool {
        let few_bytes = self.data_bytes >> FEW_KEYS_SHIFT;
        match self.has_flash {
            _ if !self.is_large => true,
            true => few_bytes > self.missing_bytes,
            false => self.data_bytes > self.over_limit,
        }
    }

    /// Whether RAM has room though it is keys' but for few values, which need not be sought.
    fn fits_keys(&self) -> bool {
        self.resident == Resident::NotFull
            && self.values_bytes < self.limit_bytes >> FEW_VALUES_SHIFT
    }

    fn evict(&self) -> Next {
        let missing_bytes = if self.is_large && self.has_flash { self.missing_bytes } else { 0 };
        Next::Evict(self.over_limit.max(missing_bytes).clamp(WRITE_BYTES, SLICE_BYTES_MAX))
    }

    /// What the other workers are to demote for the writes that wait here, in bytes, now that `next` is to
    /// become of these. None: as before.
    pub(crate) fn asks_others(&self, next: Next) -> Option<i64> {
        let missing = self.missing_bytes.max(FULL_SLICE_BYTES);
        match next {
            Next::AwaitOthers => Some(missing),
            _ if !next.keeps_waiting() => Some(0),
            // Else their clients would take what is freed here.
            _ if self.is_large && self.has_flash && self.others_hold_values() => Some(missing),
            // They keep what they have read ahead, unless `maxmemory` is resident or they are asked.
            _ if self.is_large && self.read_ahead_shrinks => Some(missing),
            Next::AwaitMeasure => Some(0),
            // The own hand looks once more.
            _ => None,
        }
    }

    /// Whether the slots of other workers may hold values that are worth waiting for.
    fn others_hold_values(&self) -> bool {
        self.other_hands_may_find && self.has_values()
    }

    /// Whether values take a good part of RAM, and what is there could fit without them.
    fn has_values(&self) -> bool {
        self.values_bytes > self.limit_bytes >> VALUES_SHIFT && self.fits_without_values
    }
}

/// Whether garbage collection of the flash is to evict the live records that it meets: free segments
/// run out, and dead records no longer make the room.
pub(crate) fn evicts_from_flash(space: &flash::FreeSpace) -> bool {
    space.free_bytes + space.coming_bytes < space.short_below_bytes && has_little_garbage(space)
}

/// Whether hardly any of the flash is garbage.
pub(crate) fn has_little_garbage(space: &flash::FreeSpace) -> bool {
    let garbage_max = space.capacity_bytes >> GARBAGE_SHIFT;
    // What is held for a checkpoint comes free with the next one, if there is to be one.
    let free_bytes = space.free_bytes + space.coming_bytes;
    space.live_bytes + free_bytes + garbage_max > space.capacity_bytes
}

#[cfg(test)]
#[path = "controller_tests.rs"]
mod tests;
