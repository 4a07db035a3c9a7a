//! A load goes no faster than values can leave RAM for it.

use std::cell::Cell;

use crate::limits::LOADED_OVER_TICKS_MAX;
use crate::state::worker::Worker;

/// What has a load wait while `maxmemory` is overrun: what it may allocate is an estimate, and on a busy machine it
/// allocates for a while before that is corrected.
#[derive(Default)]
pub(super) struct Brake {
    /// Ticks of upkeep since memory was not overrun.
    waited: Cell<u32>,
}

impl Brake {
    /// Waits until memory is not overrun, or, since that may be for holes that nothing fills, has been for as long as
    /// is waited for at all. Cost: a load if it is not.
    pub(super) async fn wait(&self, worker: &Worker) {
        while worker.server.tier.budget.is_overrun() {
            if self.waited.get() >= LOADED_OVER_TICKS_MAX {
                return;
            }
            self.waited.set(self.waited.get() + 1);
            worker.upkeep_tick.notified().await;
        }
        self.waited.set(0);
    }
}
