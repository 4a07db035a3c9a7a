//! What somebody wants to hear of that happens to keys: the classes of events that `notify-keyspace-events`
//! names, whether clients wait for keys, whether changes are journaled, whether a snapshot is being taken, and
//! whether a file is being loaded. Handlers look at it once a run, so it is one number.

use std::sync::atomic::{AtomicU32, Ordering};

use command::Classes;
use parking_lot::Mutex;

/// A file is being loaded: nothing else is written. No class of events either.
const LOADING: Classes = Classes(1 << 29);
/// A snapshot is being taken. No class of events, but looked at together with them.
const SAVING: Classes = Classes(1 << 30);
/// What options of notifications do not change.
const KEPT: Classes = SAVING.and(LOADING).and(Classes::LOGGED);

#[derive(Default)]
pub(crate) struct Listening {
    /// [`Classes`].
    classes: AtomicU32,
    /// Clients that wait for keys. Locked while the number above changes.
    waiting: Mutex<u64>,
}

impl Listening {
    /// What is listened to. Cost: a load. Whoever holds a slot sees those who began to wait for a key of it.
    #[inline]
    pub(crate) fn classes(&self) -> Classes {
        self.split().0
    }

    /// Whether there is something to be done before a write: a snapshot is being taken, for which it is to be saved
    /// first, or a file is being loaded, and it is to be refused. Cost: none beside the other.
    #[inline]
    pub(crate) fn split(&self) -> (Classes, bool) {
        let all = Classes(self.classes.load(Ordering::Relaxed));
        (all.without(SAVING.and(LOADING)), all.has(SAVING.and(LOADING)))
    }

    /// Every slot is held, so whoever holds one later sees it.
    pub(crate) fn set_saving(&self, is_saving: bool) {
        self.set(SAVING, is_saving);
    }

    /// Every slot is held likewise.
    pub(crate) fn set_loading(&self, is_loading: bool) {
        self.set(LOADING, is_loading);
    }

    /// Every slot is held likewise.
    pub(crate) fn set_logged(&self, is_logged: bool) {
        self.set(Classes::LOGGED, is_logged);
    }

    /// Whether changes are journaled.
    #[inline]
    pub(crate) fn is_logged(&self) -> bool {
        Classes(self.classes.load(Ordering::Relaxed)).has(Classes::LOGGED)
    }

    fn set(&self, bit: Classes, is_on: bool) {
        match is_on {
            true => self.classes.fetch_or(bit.0, Ordering::Relaxed),
            false => self.classes.fetch_and(!bit.0, Ordering::Relaxed),
        };
    }

    /// Has these events published: none unless they are to be published by key or by name.
    pub(crate) fn set_notified(&self, classes: Classes) {
        let waiting = self.waiting.lock();
        let is_any = classes.has(Classes::BY_KEY.and(Classes::BY_EVENT));
        let notified = if is_any { classes } else { Classes::NONE };
        let waited = if *waiting > 0 { Classes::WAITED } else { Classes::NONE };
        let set = |bits| Some(Classes(bits).only(KEPT).and(notified).and(waited).0);
        let _ = self.classes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, set);
    }

    /// A client waits for keys, of which it holds the slots.
    pub(crate) fn start_waiting(&self) {
        let mut waiting = self.waiting.lock();
        *waiting += 1;
        self.classes.fetch_or(Classes::WAITED.0, Ordering::Relaxed);
    }

    /// It does no longer.
    pub(crate) fn stop_waiting(&self) {
        let mut waiting = self.waiting.lock();
        *waiting -= 1;
        if *waiting == 0 {
            self.classes.fetch_and(!Classes::WAITED.0, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_waits_and_who_is_notified_are_told_apart() {
        let listening = Listening::default();
        assert_eq!(listening.classes(), Classes::NONE);
        listening.set_notified(Classes::LIST);
        assert_eq!(listening.classes(), Classes::NONE, "neither by key nor by name");
        listening.start_waiting();
        listening.start_waiting();
        let notified = Classes::LIST.and(Classes::BY_KEY);
        listening.set_notified(notified);
        assert_eq!(listening.classes(), notified.and(Classes::WAITED));
        listening.stop_waiting();
        assert!(listening.classes().has(Classes::WAITED));
        listening.stop_waiting();
        assert_eq!(listening.classes(), notified);
        listening.set_saving(true);
        listening.set_notified(notified);
        assert_eq!(listening.split(), (notified, true));
        listening.set_loading(true);
        listening.set_saving(false);
        assert_eq!(listening.split(), (notified, true));
        listening.set_loading(false);
        assert_eq!(listening.split(), (notified, false));
        listening.set_logged(true);
        listening.set_notified(Classes::NONE);
        assert_eq!(listening.split(), (Classes::LOGGED, false));
        listening.set_logged(false);
        assert!(!listening.is_logged());
    }
}
