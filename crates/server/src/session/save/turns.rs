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
        if !stdx::waiting::give_way() {
            self.give_way_by(Instant::now, std::thread::yield_now);
        }
    }

    /// Does so by a clock, if it is time.
    fn give_way_by(&self, clock: impl Fn() -> Instant, hand_over: impl FnOnce()) {
        let now = clock();
        if now.saturating_duration_since(self.began.get()) < self.others.get().max(RUN_MIN) {
            return;
        }
        hand_over();
        let after = clock();
        self.others.set(after.saturating_duration_since(now));
        self.began.set(after);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_walk_runs_as_long_as_others_have_had_the_core() {
        let (turns, clock) = (Turns::new(), Cell::new(Duration::ZERO));
        let began = turns.began.get();
        // Whether it gives way having run so long, where others keep the core for so long then, in microseconds.
        let gives_way = |run, others| {
            let gave = Cell::new(false);
            let pass = |micros| clock.set(clock.get() + Duration::from_micros(micros));
            pass(run);
            let hand_over = || {
                gave.set(true);
                pass(others);
            };
            turns.give_way_by(|| began + clock.get(), hand_over);
            gave.get()
        };
        assert!(!gives_way(49, 0), "it has hardly run");
        assert!(gives_way(1, 3_000));
        assert!(!gives_way(50, 0) && !gives_way(2_949, 0), "others had it for longer");
        assert!(gives_way(1, 2));
        assert!(!gives_way(49, 0), "what others were given does not count for it");
        assert!(gives_way(1, 0));
    }
}
