//! Whether memory stays within its bounds, at every step.
//!
//! The machines are tiny beside what a client may send, so that clients are looked at apart: what
//! is on its way in or out has a bound of its own.

use tier::{Budget, MemoryUse};

use crate::machine::pages_for;

/// `maxmemory` may be exceeded by this part of itself, 1/20: each worker may let a write in before
/// the others' counts.
const OVER_PART: u64 = 20;
/// Of `maxmemory`, what clients may take: 1/4.
const CLIENTS_PART: u64 = 4;
/// That is never less.
const CLIENTS_BYTES_MIN: u64 = 4 << 20;
/// How often a value counts that a request fetches, once for its reply; the clients' limit counts it
/// once.
const FETCHED_COPIES: u64 = 2;

/// What memory is held against.
#[derive(Debug, Default)]
pub(crate) struct MemoryBound {
    /// The largest `maxmemory` so far: what was let in under it may stay where nothing may go.
    max_bytes: u64,
}

impl MemoryBound {
    /// Looks at what is in use now. Of the engine no more than `engine_bytes_max` counts: a checkpoint has
    /// readers of its own, each of which takes as much as a worker, whatever `maxmemory` is.
    ///
    /// Errors: it is too much.
    pub(crate) fn check(&mut self, budget: &Budget, engine_bytes_max: i64) -> Result<(), String> {
        let max_bytes = budget.max_bytes();
        if max_bytes == 0 {
            return Ok(());
        }
        self.max_bytes = self.max_bytes.max(max_bytes);
        let used = budget.memory_use();
        let MemoryUse { data_bytes, client_bytes, engine_bytes, .. } = used;
        let engine_bytes = engine_bytes.min(engine_bytes_max);
        let needed = pages_for((data_bytes + engine_bytes).max(0) as u64);
        if needed > self.max_bytes + self.max_bytes / OVER_PART {
            return Err(format!("maxmemory {} holds {needed} bytes: {used:?}", self.max_bytes));
        }
        let share = (self.max_bytes / CLIENTS_PART).max(CLIENTS_BYTES_MIN);
        // What a checkpoint takes is no client's.
        let client_bytes = client_bytes - budget.background_bytes();
        if client_bytes > (FETCHED_COPIES * share) as i64 {
            return Err(format!("clients may take {share} bytes: {used:?}"));
        }
        Ok(())
    }
}
