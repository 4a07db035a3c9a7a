//! The journal of `appendonly` as all workers know it: where records go, whether writes may run, and how rewrites
//! have ended.
//!
//! 1. A record is appended while the slots of what it changes are held, so the journal's order is the order of changes.
//! 2. A journal that was opened stays open until the process ends. Whether records go to it is told by
//!    `Listening`, which changes with every slot held.
//! 3. Before it is on, a gap is appended: what is behind that follows from a checkpoint alone.
//! 4. What is loaded for a client is in no record. A gap is appended before, and writes are refused until a
//!    checkpoint is in place ([`Journaling::is_cut`]): one that has begun may come to nothing.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use command::Record;
use flash::{Journal, Position};
use parking_lot::Mutex;

/// After a rewrite that failed the next one that nobody asked for begins no sooner.
const RETRY_SECONDS: u64 = 60;
/// The same where flash is short of the room that it would make.
const RETRY_FOR_ROOM_SECONDS: u64 = 5;
/// How far behind what is to be synced every second may be before writes wait for it, as in Redis.
const BEHIND_MAX: Duration = Duration::from_secs(2);

/// The part of the values on flash that the journal may come to besides the size of its checkpoint, a quarter: to run records of
/// as many bytes takes a start some seconds for ten million keys. (Overwrites of 1 KiB values, ten times RAM: 2.18 bytes a byte
/// to the drive and 13 checkpoints where its size alone counted.)
const REFERRED_SHIFT: u32 = 2;
/// Within so many seconds of the beginning of the last rewrite the next one takes so many times the growth: a small data
/// set that is written a million times a second would else be rewritten every second or two, at a sixth of the CPU. A
/// start then has a longer journal to run: with the growth of 100 % that is the default, up to five times what there
/// was when that rewrite ended.
const SOON_SECONDS: u64 = 10;
const SOON_GROWTH: u64 = 4;
/// Where the journal takes longer than this to grow by so many bytes nobody waits for a core or the drive.
const QUIET_SECONDS: u64 = 10;
const QUIET_BYTES: u64 = 1 << 20;

/// Part of `maxmemory` that records may take which are not durable, a 16th, but no less than this. Writes wait then.
const HELD_SHIFT: u32 = 4;
const HELD_BYTES_MIN: u64 = 4 << 20;
/// Part of `maxmemory` that the journal keeps for records to come, a 64th: from 1 GiB on as much as it ever needs.
const SPARE_SHIFT: u32 = 6;

/// What is known of the journal.
#[derive(Default)]
pub(crate) struct Journaling {
    journal: OnceLock<Journal>,
    /// Whether replies wait for what they tell of to be durable.
    waits_for_sync: AtomicBool,
    /// Whether data was loaded that no checkpoint in place has: writes are refused. Changes with every slot held.
    is_cut: AtomicBool,
    /// Whether what is to be synced every second was not when it was last looked at.
    is_behind: AtomicBool,
    /// `maxmemory`, as it was then.
    max_memory: AtomicU64,
    /// Whether keys were taken out of the snapshot that it begins with, since their value was lost: what records do to
    /// them may be refused.
    pub(crate) lacks_keys: AtomicBool,
    /// How often writes began to wait because the journal was behind.
    pub(crate) delayed: AtomicU64,
    /// Whether a rewrite is to begin as soon as may be.
    pub(crate) is_scheduled: AtomicBool,
    pub(crate) rewrites: Mutex<Rewrites>,
}

/// How checkpoints have ended, and what the journal has come to.
#[derive(Debug, Default)]
pub(crate) struct Rewrites {
    /// When the one under way began: Unix seconds.
    began: Option<u64>,
    /// When one was last begun.
    last_try: u64,
    /// How long the last took.
    pub(crate) last_seconds: Option<u64>,
    pub(crate) failures_in_a_row: u64,
    pub(crate) count: u64,
    /// What all came to after the last rewrite; behind a start its checkpoint.
    pub(crate) base_bytes: u64,
    /// How many bytes more that would be if the checkpoint's values were not compressed.
    compressed_away: u64,
    /// What it came to when it had last grown by `QUIET_BYTES`, and when that was: Unix seconds.
    seen: (u64, u64),
}

/// What the journal has come to, and what is asked of a rewrite.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Growth {
    pub(crate) current_bytes: u64,
    /// Values that a checkpoint refers to rather than has.
    pub(crate) referred_bytes: u64,
    /// `auto-aof-rewrite-percentage`, and `auto-aof-rewrite-min-size`.
    pub(crate) percent: u64,
    pub(crate) bytes_min: u64,
}

impl Journaling {
    /// The journal, once it was opened.
    #[inline]
    pub(crate) fn journal(&self) -> Option<&Journal> {
        self.journal.get()
    }

    /// Keeps a journal that was opened; there is none yet.
    pub(crate) fn set_journal(&self, journal: Journal) {
        let is_first = self.journal.set(journal).is_ok();
        assert!(is_first, "invariant: a journal is opened once");
    }

    /// Appends a record, of changes whose slots are held.
    #[inline]
    pub(crate) fn append(&self, payload: &[&[u8]]) -> Position {
        self.journal.get().expect("invariant: there is a journal for records").append(payload)
    }

    /// Appends a command that changes what no handler does, of which the slot is held.
    pub(crate) fn append_command(&self, db: u8, now_ms: u64, words: &[&[u8]]) {
        let mut record = Record::new(Vec::new(), now_ms);
        record.add(db, words.iter().copied());
        self.append(&record.pieces());
    }

    /// Whether replies wait for what they tell of to be durable. Cost: a load.
    #[inline]
    pub(crate) fn waits_for_sync(&self) -> bool {
        self.waits_for_sync.load(Ordering::Relaxed)
    }

    pub(crate) fn set_waits_for_sync(&self, waits: bool) {
        self.waits_for_sync.store(waits, Ordering::Relaxed);
    }

    /// Whether writes are refused until a checkpoint is in place.
    pub(crate) fn is_cut(&self) -> bool {
        self.is_cut.load(Ordering::Relaxed)
    }

    /// Every slot is held.
    pub(crate) fn set_cut(&self, is_cut: bool) {
        self.is_cut.store(is_cut, Ordering::Relaxed);
    }

    /// Whether a write may run now: it is not to wait for room, or for what is behind.
    pub(crate) fn takes_writes(&self) -> bool {
        let Some(journal) = self.journal.get() else { return true };
        let is_held_up = self.is_behind.load(Ordering::Relaxed);
        !is_held_up && journal.has_room() && held_bytes(journal) < self.held_bytes_max()
    }

    /// Memory of the journal, in bytes: of records until they are durable, and for those to come.
    pub(crate) fn memory_bytes(&self) -> u64 {
        self.journal.get().map_or(0, |journal| journal.memory_bytes() as u64)
    }

    fn held_bytes_max(&self) -> u64 {
        match self.max_memory.load(Ordering::Relaxed) {
            0 => u64::MAX,
            bytes => (bytes >> HELD_SHIFT).max(HELD_BYTES_MIN),
        }
    }

    /// The error of a write while the journal cannot be written, as Redis gives it.
    pub(crate) fn refusal(&self) -> Option<String> {
        let journal = self.journal.get().filter(|journal| journal.is_failing())?;
        let reason = journal.status().error.map(|error| error.for_client());
        let reason = reason.unwrap_or_else(|| "unknown".to_owned());
        Some(format!("MISCONF Errors writing to the AOF file: {reason}"))
    }

    /// Looks whether what is to be synced every second is, and has it synced sooner where it takes much of the memory.
    pub(crate) fn look(&self, is_every_second: bool, max_memory: u64) {
        let Some(journal) = self.journal.get() else { return };
        if self.max_memory.swap(max_memory, Ordering::Relaxed) != max_memory {
            journal.bound_spare(if max_memory == 0 { u64::MAX } else { max_memory >> SPARE_SHIFT });
        }
        if held_bytes(journal) > self.held_bytes_max() / 2 {
            journal.sync_soon();
        }
        let is_behind = is_every_second && journal.behind() > BEHIND_MAX;
        let was_behind = self.is_behind.swap(is_behind, Ordering::Relaxed);
        if is_behind && !was_behind {
            self.delayed.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Begins a rewrite at this time: Unix seconds.
    pub(crate) fn begin_rewrite(&self, now: u64) {
        self.is_scheduled.store(false, Ordering::Relaxed);
        self.rewrites.lock().begin(now);
    }

    /// Ends it at this time: Unix seconds. `compressed_away`: if it is done, how many bytes its values have beyond those in the
    /// file.
    pub(crate) fn end_rewrite(&self, compressed_away: Option<u64>, now: u64) {
        let base = compressed_away.map(|away| (self.current_bytes(), away));
        self.rewrites.lock().end(now, base);
    }

    /// Notes what the checkpoint comes to that a start has loaded, and how many bytes more that would be if its values
    /// were not compressed. Records behind it are growth, as in Redis: else a server that is started again and again
    /// would never rewrite its journal.
    pub(crate) fn note_base(&self, compressed_away: u64) {
        let status = self.journal.get().map(Journal::status);
        let base_bytes = status.map_or(0, |status| status.snapshot_bytes);
        let mut rewrites = self.rewrites.lock();
        (rewrites.base_bytes, rewrites.compressed_away) = (base_bytes, compressed_away);
    }

    /// Bytes of the checkpoint and of what is behind it.
    pub(crate) fn current_bytes(&self) -> u64 {
        let status = self.journal.get().map(Journal::status);
        status.map_or(0, |status| status.snapshot_bytes + status.bytes)
    }

    /// Whether the journal has grown by so many percent since it was rewritten, a moment ago by a multiple of that, and is
    /// worth that again.
    pub(crate) fn is_due(&self, growth: &Growth, now: u64) -> bool {
        self.rewrites.lock().are_due(growth, now)
    }

    /// Whether a rewrite that must be may be tried now.
    pub(crate) fn may_retry(&self, now: u64) -> bool {
        self.rewrites.lock().may_try(now, RETRY_SECONDS)
    }

    /// The same of one that makes room on flash.
    pub(crate) fn may_retry_for_room(&self, now: u64) -> bool {
        self.rewrites.lock().may_try(now, RETRY_FOR_ROOM_SECONDS)
    }

    /// Whether the last rewrite has failed.
    pub(crate) fn has_failed(&self) -> bool {
        self.rewrites.lock().failures_in_a_row > 0
    }
}

fn held_bytes(journal: &Journal) -> u64 {
    // In this order: what is durable was appended.
    let durable = journal.durable().0;
    journal.appended().0 - durable
}

impl Rewrites {
    /// Begins one, at this time: Unix seconds.
    fn begin(&mut self, now: u64) {
        self.began = Some(now);
        self.last_try = now;
    }

    /// Ends it. `base`: if it is done, what is there, and how many bytes more that would be uncompressed.
    fn end(&mut self, now: u64, base: Option<(u64, u64)>) {
        let began = self.began.take().unwrap_or(now);
        self.last_seconds = Some(now.saturating_sub(began));
        self.count += 1;
        match base {
            None => self.failures_in_a_row += 1,
            Some(base) => {
                self.failures_in_a_row = 0;
                (self.base_bytes, self.compressed_away) = base;
            }
        }
    }

    /// For how many seconds one has been under way.
    pub(crate) fn current_seconds(&self, now: u64) -> Option<u64> {
        self.began.map(|began| now.saturating_sub(began))
    }

    /// Records are not compressed, so that growth is measured by what a checkpoint would come to if it were not either. One that
    /// refers to values is short, so to wait for its size alone would have one taken for each few records. It comes sooner
    /// where nobody writes, so that the next start is quick.
    fn are_due(&mut self, growth: &Growth, now: u64) -> bool {
        let &Growth { current_bytes, referred_bytes, percent, bytes_min } = growth;
        let is_quiet = self.is_quiet(current_bytes, now);
        let is_soon = now.abs_diff(self.last_try) < SOON_SECONDS;
        let growth_factor = if is_soon { SOON_GROWTH } else { 1 };
        let grown_bytes = current_bytes.saturating_sub(self.base_bytes);
        let is_of = |bytes: u64| {
            u128::from(grown_bytes) * 100 >= u128::from(bytes.max(1)) * u128::from(percent)
        };
        let plain_bytes = self.base_bytes + self.compressed_away;
        let least = plain_bytes.saturating_mul(growth_factor);
        let is_grown = is_of(least.saturating_add(referred_bytes >> REFERRED_SHIFT))
            || is_quiet && is_of(self.base_bytes);
        percent > 0 && current_bytes > bytes_min && is_grown && self.may_try(now, RETRY_SECONDS)
    }

    /// Whether hardly anything was written for a while.
    fn is_quiet(&mut self, current_bytes: u64, now: u64) -> bool {
        if current_bytes.abs_diff(self.seen.0) >= QUIET_BYTES {
            self.seen = (current_bytes, now);
        }
        // The clock may have been set back.
        now.abs_diff(self.seen.1) >= QUIET_SECONDS
    }

    fn may_try(&self, now: u64, retry_seconds: u64) -> bool {
        self.failures_in_a_row == 0 || now.abs_diff(self.last_try) > retry_seconds
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rewrite_is_due_by_growth() {
        let mut rewrites = Rewrites { base_bytes: 1_200, ..Rewrites::default() };
        rewrites.seen = (2_400, 95);
        let growth = |current_bytes, referred_bytes, percent, bytes_min| Growth {
            current_bytes,
            referred_bytes,
            percent,
            bytes_min,
        };
        for (current_bytes, referred_bytes, percent, bytes_min, is_due) in [
            (2_400, 0, 100, 0, true),
            (2_399, 0, 100, 0, false),
            (2_400, 0, 100, 2_400, false),
            (2_400, 0, 0, 0, false),
            (u64::MAX, 0, u64::MAX, 0, false),
            (2_400, 4, 100, 0, false),
            (3_399, 4_000, 100, 0, false),
            (3_400, 4_000, 100, 0, true),
        ] {
            let growth = growth(current_bytes, referred_bytes, percent, bytes_min);
            assert_eq!(rewrites.are_due(&growth, 100), is_due, "{growth:?}");
        }
        let due = growth(2_400, 0, 100, 0);
        rewrites.begin(100);
        assert_eq!(rewrites.current_seconds(105), Some(5));
        rewrites.end(110, None);
        assert!(!rewrites.are_due(&due, 150), "it failed a moment ago");
        assert!(rewrites.may_try(106, RETRY_FOR_ROOM_SECONDS), "flash is short of room");
        assert!(rewrites.are_due(&due, 161));
        rewrites.begin(161);
        rewrites.end(162, Some((2_000, 500)));
        assert_eq!((rewrites.base_bytes, rewrites.failures_in_a_row), (2_000, 0));
        rewrites.seen = (2_000, 171);
        assert!(!rewrites.are_due(&growth(4_499, 0, 100, 0), 171), "uncompressed it would be more");
        assert!(!rewrites.are_due(&growth(4_500, 0, 100, 0), 170), "one was begun a moment ago");
        assert!(rewrites.are_due(&growth(4_500, 0, 100, 0), 171));
        assert!(!rewrites.are_due(&growth(11_999, 0, 100, 0), 170));
        assert!(rewrites.are_due(&growth(12_000, 0, 100, 0), 170));
        assert!(!rewrites.are_due(&growth(12_999, 4_000, 100, 0), 170));
        assert!(
            rewrites.are_due(&growth(13_000, 4_000, 100, 0), 170),
            "values on flash count once"
        );
        assert!(!rewrites.are_due(&growth(u64::MAX, 0, u64::MAX, 0), 170));
        assert!(rewrites.are_due(&growth(4_500, 0, 100, 0), 100), "the clock was set back");
        assert_eq!((rewrites.last_seconds, rewrites.count), (Some(1), 2));
    }

    #[test]
    fn a_short_checkpoint_is_taken_again_when_nobody_writes() {
        let mut rewrites = Rewrites { base_bytes: 100 * QUIET_BYTES, ..Rewrites::default() };
        let mut is_due = |grown: u64, now| {
            let current_bytes = (100 + grown) * QUIET_BYTES;
            let referred_bytes = 4_000 * QUIET_BYTES;
            let growth = Growth { current_bytes, referred_bytes, percent: 100, bytes_min: 0 };
            rewrites.are_due(&growth, now)
        };
        assert!(!is_due(50, 1_000));
        assert!(!is_due(50, 1_000 + QUIET_SECONDS), "it has not grown enough for that either");
        assert!(!is_due(100, 1_100) && !is_due(101, 1_109) && !is_due(101, 1_118));
        assert!(is_due(101, 1_109 + QUIET_SECONDS));
        assert!(is_due(1_100, 1_130), "however quickly");
    }
}
