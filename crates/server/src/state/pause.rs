//! CLIENT PAUSE: commands that wait until a time.

use std::sync::atomic::{AtomicU64, Ordering};

/// Which commands wait, until when. Both bounds are Unix milliseconds, 0 for none.
#[derive(Default, Debug)]
pub(crate) struct Pause {
    all_until_ms: AtomicU64,
    writes_until_ms: AtomicU64,
}

/// What a pause stops.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Paused {
    /// Every command.
    All,
    /// Commands that may write.
    Writes,
}

impl Pause {
    /// Starts or lengthens a pause.
    pub(crate) fn start(&self, what: Paused, until_ms: u64) {
        let bound = match what {
            Paused::All => &self.all_until_ms,
            Paused::Writes => &self.writes_until_ms,
        };
        bound.fetch_max(until_ms, Ordering::Relaxed);
    }

    /// Ends every pause.
    pub(crate) fn end(&self) {
        self.all_until_ms.store(0, Ordering::Relaxed);
        self.writes_until_ms.store(0, Ordering::Relaxed);
    }

    /// Whether a command must wait. Cost: two loads.
    #[inline]
    pub(crate) fn stops(&self, writes: bool, now_ms: u64) -> bool {
        let all = self.all_until_ms.load(Ordering::Relaxed);
        let some = self.writes_until_ms.load(Ordering::Relaxed);
        if all | some == 0 {
            return false;
        }
        all > now_ms || (writes && some > now_ms)
    }

    /// Whether keys must not expire: a pause leaves the data as it is.
    pub(crate) fn is_on(&self, now_ms: u64) -> bool {
        self.stops(true, now_ms)
    }
}
