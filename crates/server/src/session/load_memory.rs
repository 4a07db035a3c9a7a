//! Memory for what is loaded or run again: it is waited for, and in the end done without, within bounds. It was there when
//! the data was written, and a server that does not start has lost it for its clients.

use std::cell::Cell;

use tier::{Claim, Held, TierError};

use crate::limits::{LOADED_LARGE_BYTES, LOADED_REFUSALS_MAX};
use crate::state::worker::Worker;

/// What waits for the memory of a load, piece by piece.
pub(super) struct LoadMemory {
    /// The part of `maxmemory` beyond the limit that may be used where none can be freed, as a power of two below it.
    over_shift: u32,
    /// Bytes that may still be put before memory is waited for again, since that was in vain a moment ago.
    unwaited_bytes: Cell<u64>,
}

impl LoadMemory {
    pub(super) fn new(over_shift: u32) -> LoadMemory {
        LoadMemory { over_shift, unwaited_bytes: Cell::new(0) }
    }

    /// Memory for `bytes`. None where it is to be put without: it fits beside what the data set takes, and what is
    /// resident besides are buffers that a large value came in, which may be read ahead (a small one waits for these); or
    /// it does not fit, nothing can be freed, and that is within the bound.
    ///
    /// Errors: the data set does not fit. Takes up to [`LOADED_REFUSALS_MAX`] refusals to know.
    pub(super) async fn wait(
        &self,
        worker: &Worker,
        bytes: u64,
    ) -> Result<Option<Claim>, TierError> {
        let budget = &worker.server.tier.budget;
        let over_max = (budget.max_bytes() >> self.over_shift) as i64;
        let fits_beside = |over_max: i64| budget.over_limit() + bytes as i64 <= over_max;
        let unwaited_bytes = self.unwaited_bytes.get();
        if bytes <= unwaited_bytes && fits_beside(over_max) {
            self.unwaited_bytes.set(unwaited_bytes - bytes);
            return Ok(None);
        }
        for refusals in 1.. {
            if let Ok(claim) = worker.tier.wait_for_memory(bytes, Held::default()).await {
                return Ok(Some(claim));
            }
            let is_last = refusals >= LOADED_REFUSALS_MAX;
            if fits_beside(0) && (is_last || bytes >= LOADED_LARGE_BYTES) {
                return Ok(None);
            } else if is_last {
                break;
            }
            worker.upkeep_tick.notified().await;
        }
        if !fits_beside(over_max) {
            return Err(TierError::OutOfMemory);
        }
        self.unwaited_bytes.set(LOADED_LARGE_BYTES);
        Ok(None)
    }
}
