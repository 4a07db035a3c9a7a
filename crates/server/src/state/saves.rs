//! What is known of snapshots: the one under way, how the last one ended, when the next is due.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::state::clock::unix_ms;
use crate::state::snapshot::Snapshot;

/// After one that failed the next is begun no sooner.
const RETRY_SECONDS: u64 = 5;

/// The error of what needs the data while a file is being loaded.
pub(crate) const LOADING_ERROR: &str = "LOADING Redis is loading the dataset in memory";

/// Who wants a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// A client that waits for it.
    Save,
    /// Nobody waits.
    Background,
    /// The server ends with it: nothing is written any more.
    Shutdown,
    /// The journal begins with it anew.
    Checkpoint,
}

pub(crate) struct Saves {
    snapshot: Mutex<Option<Arc<Snapshot>>>,
    /// The purpose of the one under way, and when it began: Unix seconds.
    under_way: Mutex<Option<(Purpose, u64)>>,
    /// Whether the one under way is the last, and nothing is written any more.
    pub(crate) is_ending: AtomicBool,
    /// Whether one is to begin as soon as may be.
    pub(crate) is_scheduled: AtomicBool,
    last_unix: AtomicU64,
    last_try_unix: AtomicU64,
    /// How the last in the background ended.
    has_failed: AtomicBool,
    /// Whether it could not be written, which may have writes refused.
    is_unwritten: AtomicBool,
    /// How long it took, -1 if there was none.
    last_seconds: AtomicI64,
    count: AtomicU64,
    /// Changes that the last has.
    saved_changes: AtomicU64,
    /// Whether a file is being loaded. Changes with `under_way` locked: none begins meanwhile.
    is_loading: AtomicBool,
    /// Whether the last load has failed, or has not ended: what is there is not to take the place of the file, unless
    /// a client says so.
    is_half_loaded: AtomicBool,
    pub(crate) loaded_keys: AtomicU64,
    /// Those of them whose values were on flash and stayed there.
    pub(crate) loaded_places: AtomicU64,
    /// Values that it found in the journal, where the snapshot refers to them.
    pub(crate) loaded_recent: AtomicU64,
    pub(crate) loaded_expired: AtomicU64,
    pub(crate) loading: LoadingProgress,
}

/// How far a load has come.
#[derive(Default)]
pub(crate) struct LoadingProgress {
    /// When it began: Unix seconds.
    pub(crate) began_unix: AtomicU64,
    /// Bytes of the files, as far as that is known.
    pub(crate) total_bytes: AtomicU64,
    pub(crate) done_bytes: AtomicU64,
    /// Memory that the data took where it was saved, if the file tells.
    pub(crate) used_bytes: AtomicU64,
    /// Bytes that strings and references have and the files have not, since they are compressed there.
    pub(crate) compressed_away: AtomicU64,
}

impl LoadingProgress {
    fn begin(&self) {
        self.began_unix.store(unix_ms() / 1_000, Ordering::Relaxed);
        let LoadingProgress { total_bytes, done_bytes, used_bytes, compressed_away, .. } = self;
        for bytes in [total_bytes, done_bytes, used_bytes, compressed_away] {
            bytes.store(0, Ordering::Relaxed);
        }
    }

    /// Another file is read, of so many bytes.
    pub(crate) fn begin_file(&self, bytes: u64) {
        self.total_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// So many bytes were read, which take as many in the file.
    pub(crate) fn note_compressed(&self, bytes: u64, in_file: u64) {
        self.compressed_away.fetch_add(bytes.saturating_sub(in_file), Ordering::Relaxed);
    }

    /// So many bytes more were read.
    pub(crate) fn note_read(&self, bytes: u64) {
        self.done_bytes.fetch_add(bytes, Ordering::Relaxed);
    }
}

impl Saves {
    pub(crate) fn new(started_unix: u64) -> Saves {
        Saves {
            snapshot: Mutex::new(None),
            under_way: Mutex::new(None),
            is_ending: AtomicBool::new(false),
            is_scheduled: AtomicBool::new(false),
            last_unix: AtomicU64::new(started_unix),
            last_try_unix: AtomicU64::new(0),
            has_failed: AtomicBool::new(false),
            is_unwritten: AtomicBool::new(false),
            last_seconds: AtomicI64::new(-1),
            count: AtomicU64::new(0),
            saved_changes: AtomicU64::new(0),
            is_loading: AtomicBool::new(false),
            is_half_loaded: AtomicBool::new(false),
            loaded_keys: AtomicU64::new(0),
            loaded_places: AtomicU64::new(0),
            loaded_recent: AtomicU64::new(0),
            loaded_expired: AtomicU64::new(0),
            loading: LoadingProgress::default(),
        }
    }

    /// Begins one. False: one is under way, or a file is being loaded, or it was not loaded as a whole.
    pub(crate) fn begin(&self, purpose: Purpose) -> bool {
        let mut under_way = self.under_way.lock();
        let is_half_loaded = self.is_half_loaded() && purpose != Purpose::Save;
        if under_way.is_some() || self.is_loading() || is_half_loaded {
            return false;
        }
        let now = unix_ms() / 1_000;
        *under_way = Some((purpose, now));
        if purpose != Purpose::Checkpoint {
            self.is_scheduled.store(false, Ordering::Relaxed);
            self.last_try_unix.store(now, Ordering::Relaxed);
        }
        true
    }

    /// Ends it. `changes`: those that it has, if there is a file; if not, whether it could not be written.
    pub(crate) fn end(&self, changes: Option<u64>, is_unwritten: bool) {
        let now = unix_ms() / 1_000;
        let mut under_way = self.under_way.lock();
        let (purpose, began) = under_way.take().expect("invariant: one was begun");
        if purpose == Purpose::Checkpoint {
            // Its file is the journal's.
            return;
        }
        if let Some(changes) = changes {
            self.last_unix.store(now, Ordering::Relaxed);
            self.saved_changes.store(changes, Ordering::Relaxed);
            self.count.fetch_add(1, Ordering::Relaxed);
            self.is_half_loaded.store(false, Ordering::Relaxed);
        }
        if purpose == Purpose::Background {
            self.last_seconds.store(now.saturating_sub(began) as i64, Ordering::Relaxed);
        }
        // One that was waited for cures what others have failed in, as in Redis.
        if purpose == Purpose::Background || changes.is_some() {
            self.has_failed.store(changes.is_none(), Ordering::Relaxed);
            self.is_unwritten.store(is_unwritten, Ordering::Relaxed);
        }
    }

    /// The purpose of the one under way.
    pub(crate) fn purpose(&self) -> Option<Purpose> {
        self.under_way.lock().map(|(purpose, _)| purpose)
    }

    /// For how many seconds one has been under way in the background, -1 if none is.
    pub(crate) fn current_seconds(&self) -> i64 {
        match *self.under_way.lock() {
            Some((Purpose::Background, began)) => (unix_ms() / 1_000).saturating_sub(began) as i64,
            _ => -1,
        }
    }

    /// The snapshot that writes are to be saved for.
    pub(crate) fn snapshot(&self) -> Option<Arc<Snapshot>> {
        self.snapshot.lock().clone()
    }

    /// Every slot must be held.
    pub(crate) fn set_snapshot(&self, snapshot: Option<Arc<Snapshot>>) {
        *self.snapshot.lock() = snapshot;
    }

    /// When the last was done: Unix seconds.
    pub(crate) fn last_unix(&self) -> u64 {
        self.last_unix.load(Ordering::Relaxed)
    }

    pub(crate) fn has_failed(&self) -> bool {
        self.has_failed.load(Ordering::Relaxed)
    }

    /// Whether it could not be written.
    pub(crate) fn is_unwritten(&self) -> bool {
        self.is_unwritten.load(Ordering::Relaxed)
    }

    pub(crate) fn last_seconds(&self) -> i64 {
        self.last_seconds.load(Ordering::Relaxed)
    }

    pub(crate) fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    /// Changes since the last, of so many in all.
    pub(crate) fn unsaved(&self, changes: u64) -> u64 {
        changes.saturating_sub(self.saved_changes.load(Ordering::Relaxed))
    }

    /// Begins to load a file. False: a snapshot is under way.
    pub(crate) fn begin_loading(&self) -> bool {
        let under_way = self.under_way.lock();
        if under_way.is_some() {
            return false;
        }
        self.is_half_loaded.store(true, Ordering::Relaxed);
        self.is_loading.store(true, Ordering::Relaxed);
        self.loaded_keys.store(0, Ordering::Relaxed);
        self.loaded_places.store(0, Ordering::Relaxed);
        self.loaded_recent.store(0, Ordering::Relaxed);
        self.loaded_expired.store(0, Ordering::Relaxed);
        self.loading.begin();
        true
    }

    /// Ends that. `changes`: those so far, if all of the file was loaded.
    pub(crate) fn end_loading(&self, changes: Option<u64>) {
        let _under_way = self.under_way.lock();
        if let Some(changes) = changes {
            self.saved_changes.store(changes, Ordering::Relaxed);
            self.is_half_loaded.store(false, Ordering::Relaxed);
        }
        self.is_loading.store(false, Ordering::Relaxed);
    }

    pub(crate) fn is_loading(&self) -> bool {
        self.is_loading.load(Ordering::Relaxed)
    }

    /// Whether no more than a part of a file was loaded.
    pub(crate) fn is_half_loaded(&self) -> bool {
        self.is_half_loaded.load(Ordering::Relaxed)
    }

    /// The first of the points, seconds and changes each, that asks for a snapshot now.
    pub(crate) fn due(&self, points: &[(u64, u64)], changes: u64) -> Option<(u64, u64)> {
        if points.is_empty() || self.is_loading() || self.is_half_loaded() {
            return None;
        }
        let now = unix_ms() / 1_000;
        let may_try = !self.has_failed()
            || now.saturating_sub(self.last_try_unix.load(Ordering::Relaxed)) > RETRY_SECONDS;
        let unsaved = self.unsaved(changes);
        let since = now.saturating_sub(self.last_unix());
        let is_due = |&&(seconds, count): &&(u64, u64)| unsaved >= count && since > seconds;
        points.iter().find(is_due).copied().filter(|_| may_try)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_ask_for_enough_changes_in_enough_time() {
        let now = unix_ms() / 1_000;
        let saves = Saves::new(now - 100);
        let points = [(300, 1), (60, 10)];
        assert_eq!(saves.due(&points, 9), None);
        assert_eq!(saves.due(&points, 10), Some((60, 10)));
        assert!(saves.begin(Purpose::Background));
        assert!(!saves.begin(Purpose::Save));
        saves.end(None, false);
        assert!(saves.has_failed());
        assert_eq!(saves.due(&points, 10), None, "it failed a moment ago");
        assert!(saves.begin(Purpose::Save));
        saves.end(Some(10), false);
        assert!(!saves.has_failed());
        assert_eq!((saves.unsaved(12), saves.count(), saves.last_seconds()), (2, 1, 0));
        assert_eq!(saves.due(&points, 100), None, "it is saved");
    }

    #[test]
    fn what_was_loaded_in_part_is_saved_only_for_a_client() {
        let saves = Saves::new(0);
        assert!(saves.begin(Purpose::Background));
        assert!(!saves.begin_loading());
        saves.end(None, false);
        assert!(saves.begin_loading());
        assert!(!saves.begin(Purpose::Save), "it is being loaded");
        saves.end_loading(Some(3));
        assert_eq!(saves.unsaved(3), 0);
        assert!(saves.begin_loading());
        saves.end_loading(None);
        assert_eq!(saves.due(&[(1, 1)], 100), None);
        assert!(!saves.begin(Purpose::Background) && !saves.begin(Purpose::Shutdown));
        assert!(saves.begin(Purpose::Save));
        saves.end(Some(4), false);
        assert!(saves.begin(Purpose::Shutdown));
    }

    #[test]
    fn a_checkpoint_is_no_save() {
        let saves = Saves::new(7);
        assert!(saves.begin(Purpose::Checkpoint));
        assert!(!saves.begin(Purpose::Background));
        saves.end(None, false);
        assert!(!saves.has_failed());
        assert!(saves.begin(Purpose::Checkpoint));
        saves.end(Some(4), false);
        assert_eq!((saves.unsaved(4), saves.count(), saves.last_unix()), (4, 0, 7));
    }
}
