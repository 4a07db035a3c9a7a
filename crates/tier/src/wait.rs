//! Waiting for memory: what a write does that finds none.

use std::cell::RefCell;
use std::sync::atomic::Ordering;
use std::task::{Poll, Waker};
use std::time::Duration;

use crate::demote::StopReason;
use crate::tier::{Pressure, TierError};
use crate::upkeep::SLICE_BYTES_MAX;
use crate::worker::TierWorker;

/// How long a write waits for room before it is refused, while the drive still makes some.
const ROOM_WAIT_MAX: Duration = Duration::from_secs(5);
/// Bytes that it frees at least while `maxmemory` is resident.
const FULL_SLICE_BYTES: i64 = 64 << 10;
/// Pages are dense when at most this part of what defragmentation asked about moved: an eighth.
const DENSE_SHIFT: u32 = 3;

impl TierWorker {
    /// Waits until there is room for a write.
    ///
    /// Errors: [`TierError::OutOfMemory`] when neither demotion nor eviction makes any within
    /// `ROOM_WAIT_MAX`.
    pub async fn room(&self) -> Result<(), TierError> {
        // What has just been sought in vain is not there until memory is measured again, or less
        // is allocated, and then nobody asks.
        let measures = Some(self.tier.budget.measures());
        if self.refused_at.get() == measures {
            return Err(TierError::OutOfMemory);
        }
        let start = self.tier.clock.now();
        let result = self.wait_for_room(start).await;
        if result.is_err() {
            self.refused_at.set(Some(self.tier.budget.measures()));
        }
        let waited = self.tier.clock.now() - start;
        let waited_us = waited.as_micros() as u64;
        self.tier.counters.pressure_us.fetch_add(waited_us, Ordering::Relaxed);
        self.tier.counters.pressure_waits.fetch_add(1, Ordering::Relaxed);
        result
    }

    async fn wait_for_room(&self, start: Duration) -> Result<(), TierError> {
        let budget = &self.tier.budget;
        while self.tier.pressure() == Pressure::Wait {
            let over = budget.over_limit();
            let packed = self.defrag();
            // While `maxmemory` is resident, the limit was too high, whatever it says. But first
            // come pages that are sparse: what goes makes holes, and a cold key takes a little.
            let is_dense = packed.moved <= packed.asked >> DENSE_SHIFT;
            let wanted =
                if budget.is_full() && is_dense { over.max(FULL_SLICE_BYTES) } else { over };
            let demoted = self.demote(wanted.min(SLICE_BYTES_MAX));
            self.collect_for(demoted.written_bytes);
            let in_time = self.tier.clock.now() - start < ROOM_WAIT_MAX;
            if demoted.freed_bytes > 0 || packed.moved > 0 && in_time {
                self.tier.look_for_room();
                yield_once().await;
                continue;
            }
            let evict = || self.evict(over.clamp(1, SLICE_BYTES_MAX)) > 0;
            match demoted.stopped {
                // The hand met nothing that may go yet: it goes on where it stopped.
                None if in_time => yield_once().await,
                Some(StopReason::Busy) if in_time => self.device_turn().await,
                Some(StopReason::Full) if in_time && self.collect() => self.device_turn().await,
                _ if in_time && self.may_defrag() => yield_once().await,
                Some(StopReason::Spent) if !budget.is_nearly_full() => return Ok(()),
                // The slots of other workers hold values: their hands will come to them.
                Some(StopReason::Spent) if in_time && self.tier.has_values_to_demote() => {
                    self.next_upkeep().await;
                }
                // Keys alone are left in RAM.
                Some(StopReason::Spent) if evict() => {}
                Some(StopReason::Spent) => return Err(TierError::OutOfMemory),
                // With flash keys are let go for the fact alone, never for the estimate.
                _ if self.engine.is_some() && !budget.is_full() => return Ok(()),
                _ if evict() => {}
                _ if !budget.is_full() => return Ok(()),
                // Values have gone to flash; their pages may be on their way.
                _ if self.engine.is_some() && in_time && budget.is_full_for_now() => {
                    self.next_upkeep().await;
                }
                _ => return Err(TierError::OutOfMemory),
            }
        }
        Ok(())
    }

    /// Waits for the next round of upkeep: a few milliseconds.
    async fn next_upkeep(&self) {
        wake_up_from(&self.idle).await;
    }

    /// Waits for the next completions of the device; when it has nothing to do, for others to have
    /// their turn.
    pub async fn device_turn(&self) {
        self.submit();
        if self.in_flight() == 0 {
            return yield_once().await;
        }
        wake_up_from(&self.reaped).await;
    }
}

/// Waits until those who sleep in `wakers` are woken.
async fn wake_up_from(wakers: &RefCell<Vec<Waker>>) {
    let mut waited = false;
    std::future::poll_fn(|cx| {
        if waited {
            return Poll::Ready(());
        }
        waited = true;
        wakers.borrow_mut().push(cx.waker().clone());
        Poll::Pending
    })
    .await;
}

/// Lets every other task that is ready have its turn. Unlike the runtime's own, it does not look for
/// new events first.
pub async fn yield_once() {
    let mut yielded = false;
    std::future::poll_fn(|cx| {
        if yielded {
            return Poll::Ready(());
        }
        yielded = true;
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}
