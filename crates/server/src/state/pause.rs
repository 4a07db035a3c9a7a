//! What keeps commands from running: CLIENT PAUSE, which has them wait until a time, and DEBUG RELOAD, which has
//! them refused; and whether writes are journaled, so that the journal is asked before they run.

use std::sync::atomic::{AtomicU64, Ordering};

/// A file is being loaded. Kept with a time, so that it costs nothing to look at.
const LOADING: u64 = 1 << 63;
/// Writes are journaled. Kept so likewise.
const JOURNALED: u64 = 1 << 62;
/// What is no time.
const NO_TIME: u64 = LOADING | JOURNALED;

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
        let until_ms = until_ms & !NO_TIME;
        let later = |old| Some(old & NO_TIME | until_ms.max(old & !NO_TIME));
        let _ = bound.fetch_update(Ordering::Relaxed, Ordering::Relaxed, later);
    }

    /// Ends every pause.
    pub(crate) fn end(&self) {
        self.all_until_ms.fetch_and(NO_TIME, Ordering::Relaxed);
        self.writes_until_ms.store(0, Ordering::Relaxed);
    }

    /// Begins to load a file. False: one is being loaded.
    pub(crate) fn start_loading(&self) -> bool {
        self.all_until_ms.fetch_or(LOADING, Ordering::Relaxed) & LOADING == 0
    }

    pub(crate) fn end_loading(&self) {
        self.all_until_ms.fetch_and(!LOADING, Ordering::Relaxed);
    }

    /// Whether others' commands are refused because a file is being loaded.
    pub(crate) fn is_loading(&self) -> bool {
        self.all_until_ms.load(Ordering::Relaxed) & LOADING != 0
    }

    pub(crate) fn set_journaled(&self, is_on: bool) {
        match is_on {
            true => self.all_until_ms.fetch_or(JOURNALED, Ordering::Relaxed),
            false => self.all_until_ms.fetch_and(!JOURNALED, Ordering::Relaxed),
        };
    }

    /// Whether the journal is to be asked before a write.
    pub(crate) fn is_journaled(&self) -> bool {
        self.all_until_ms.load(Ordering::Relaxed) & JOURNALED != 0
    }

    /// Whether there may be anything that keeps commands from running. Cost: two loads.
    #[inline]
    pub(crate) fn is_set(&self) -> bool {
        let all = self.all_until_ms.load(Ordering::Relaxed);
        all | self.writes_until_ms.load(Ordering::Relaxed) != 0
    }

    /// Whether a command must wait.
    #[inline]
    pub(crate) fn stops(&self, writes: bool, now_ms: u64) -> bool {
        let all = self.all_until_ms.load(Ordering::Relaxed) & !NO_TIME;
        let some = self.writes_until_ms.load(Ordering::Relaxed);
        all > now_ms || (writes && some > now_ms)
    }

    /// Whether keys must not expire: a pause leaves the data as it is.
    pub(crate) fn is_on(&self, now_ms: u64) -> bool {
        self.stops(true, now_ms)
    }
}
