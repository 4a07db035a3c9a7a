//! The walk of a snapshot and the workers share cores: the walk gives way between two looks at a slot.
//!
//! A worker that is woken while the walk runs would wait for its slice of the core, some milliseconds. If it has little to do
//! the walk hands it the core and has it back at once. If it has much to do it keeps the core for a slice: then the walk
//! goes on for as long before it gives way again, for the longer it takes, the more writes have to save what their keys held
//! first.

use std::cell::Cell;
use std::time::{Duration, Instant};

/// So long the walk runs at least: to give way costs a microsecond.
const RUN_MIN: Duration = Duration::from_micros(50);

/// When the walk gives way.
pub(super) struct Turns {
    began: Cell<Instant>,
    /// How long others had the core when it gave way last.
    others: Cell<Duration>,
}

impl Turns {
    pub(super) fn new() -> Turns {
        Turns { began: Cell::new(Instant::now()), others: Cell::default() }
    }

    /// Gives way if it is time. Nothing is held.
    pub(super) fn give_way(&self) {
        if stdx::waiting::give_way() {
            return;
        }
        let now = Instant::now();
        if now.saturating_duration_since(self.began.get()) < self.others.get().max(RUN_MIN) {
            return;
        }
        std::thread::yield_now();
        let after = Instant::now();
        self.others.set(after.saturating_duration_since(now));
        self.began.set(after);
    }
}
