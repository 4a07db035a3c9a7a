//! A load goes no faster than values can leave RAM for it.

use std::cell::Cell;

use crate::limits::{LOADED_MEASURE_BYTES, LOADED_OVER_TICKS_MAX};
use crate::state::worker::Worker;

/// What has a load wait while `maxmemory` is overrun: what it may allocate is an estimate, and a load allocates much
/// before that is corrected. So it measures what is resident itself, each time it has put a few pieces.
#[derive(Default)]
pub(super) struct Brake {
    /// Bytes put since what is resident was measured.
    put_bytes: Cell<u64>,
    /// Ticks of upkeep since memory was not overrun.
    waited: Cell<u32>,
}

impl Brake {
    /// Waits before `bytes` are put until memory is not overrun. That may be for holes that nothing fills: behind the
    /// longest wait a load goes on all the same, by a few pieces a tick. Cost: an addition, and 3 us now and then.
    pub(super) async fn wait(&self, worker: &Worker, bytes: u64) {
        let put_bytes = self.put_bytes.get() + bytes;
        self.put_bytes.set(put_bytes);
        if put_bytes < LOADED_MEASURE_BYTES {
            return;
        }
        self.put_bytes.set(0);
        worker.server.tier.measure_resident();
        while worker.server.tier.budget.is_overrun() {
            self.waited.set(self.waited.get().saturating_add(1));
            worker.upkeep_tick.notified().await;
            if self.waited.get() >= LOADED_OVER_TICKS_MAX {
                return;
            }
        }
        self.waited.set(0);
    }
}
