//! The simulated machine: its clock, and what memory the allocator holds.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use tier::{Clock, ResidentSource, Tier};

/// When simulated time begins, Unix microseconds.
const START_US: u64 = 1_700_000_000_000_000;
/// The same in milliseconds.
pub(crate) const START_MS: u64 = START_US / 1000;
/// Resident before there is any data.
pub(crate) const BASE_BYTES: u64 = 8 << 20;
/// The allocator's rounding and holes: this part of what is allocated, 1/16.
const HOLES_SHIFT: u32 = 4;
/// Of what has come free, this part goes back to the machine between two looks at it: 1/4.
const LAG_SHIFT: u32 = 2;

/// Time that passes when the scheduler says so.
#[derive(Debug, Default)]
pub(crate) struct SimClock {
    now_us: AtomicU64,
    /// The longest that a task of a connection went on before it waited or let others run.
    longest_poll_us: AtomicU64,
}

impl SimClock {
    /// Microseconds since the start.
    pub(crate) fn now_us(&self) -> u64 {
        self.now_us.load(Ordering::Relaxed)
    }

    pub(crate) fn advance(&self, us: u64) {
        self.now_us.fetch_add(us, Ordering::Relaxed);
    }

    /// A task of a connection that went on at this time ends, waits, or lets others run.
    pub(crate) fn note_poll(&self, began_us: u64) {
        self.longest_poll_us.fetch_max(self.now_us() - began_us, Ordering::Relaxed);
    }

    /// As old may the time be that a request takes for the present: whoever goes on takes the time anew before
    /// a request runs. 0 where no worker is stopped.
    pub(crate) fn longest_poll_us(&self) -> u64 {
        self.longest_poll_us.load(Ordering::Relaxed)
    }
}

impl Clock for SimClock {
    fn now(&self) -> Duration {
        Duration::from_micros(self.now_us())
    }

    fn unix_ms(&self) -> u64 {
        (START_US + self.now_us()) / 1000
    }
}

/// A model of the allocator: what is allocated takes pages at once, with some holes, and what is
/// freed gives them back little by little.
#[derive(Debug)]
pub(crate) struct SimMemory {
    /// Known once it has been made, as it is made with this.
    tier: Arc<OnceLock<Weak<Tier>>>,
    pages_bytes: u64,
}

impl SimMemory {
    /// The memory of a tier that is yet to be made.
    pub(crate) fn new(tier: Arc<OnceLock<Weak<Tier>>>) -> SimMemory {
        SimMemory { tier, pages_bytes: 0 }
    }
}

/// What is resident, at least, with so much allocated.
pub(crate) fn pages_for(tracked_bytes: u64) -> u64 {
    BASE_BYTES + with_holes(tracked_bytes)
}

fn with_holes(tracked_bytes: u64) -> u64 {
    tracked_bytes + (tracked_bytes >> HOLES_SHIFT)
}

impl ResidentSource for SimMemory {
    fn resident_bytes(&mut self) -> Option<u64> {
        let tracked = self.tier.get().and_then(Weak::upgrade).map_or(0, |tier| {
            let used = tier.budget.memory_use();
            (used.data_bytes + used.client_bytes + used.engine_bytes).max(0) as u64
        });
        let needed = with_holes(tracked);
        let free = self.pages_bytes.saturating_sub(needed);
        self.pages_bytes = needed + free - (free >> LAG_SHIFT);
        Some(BASE_BYTES + self.pages_bytes)
    }
}
