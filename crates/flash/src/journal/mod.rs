//! The journal: records in one order on a drive, from which a data set is made again.
//!
//! A record is bytes to this module. `append` copies it into a buffer in memory, under one mutex and without I/O; the
//! order of these copies is the order of the journal. One thread (`writer.rs`) takes the buffer, writes it to the
//! current segment, syncs as the policy says and publishes up to where all is durable. So what a crash leaves is a
//! prefix of the one order, and holds all that was published.
//!
//! ```text
//! <folder>/lock               held by the process that has the journal
//! <folder>/manifest           the last checkpoint: its position, the first segment behind it, and the first that it refers to
//! <folder>/snapshot.900.rdb   what the records up to position 900 make, written by whoever took the checkpoint
//! <folder>/journal.000004     header | record | record | ...         positions 900 to 1400
//! <folder>/journal.000005     header | record | ...                  positions 1400 to ...
//! ```
//!
//! A *position* counts the bytes of all records since the journal began; that of a record is where it ends.
//! `docs/format.md` has every byte.
//!
//! # Invariants
//! 1. A segment gets its name when its header and what it begins with are durable; and before it is begun, everything in
//!    front of its first position is durable.
//! 2. A segment reaches to where the next one begins. What stands behind that was given up: its write or its sync had
//!    failed, and the next segment has it anew.
//! 3. What was not synced stays in memory until it is. A sync that failed is never tried again on the same file, since
//!    the kernel may have dropped what it could not write: a new segment begins at the last durable position.
//! 4. The records of one `append` lie in one segment, and are read as one or not at all.
//! 5. A write without a sync may be lost in part: a page that was written later may be there while an earlier one is
//!    not. So a bad record says nothing about damage. Marks do: a mark is a record of the writer's own that says up to
//!    where the journal was durable when it was made. A bad record in front of such a position is damage, and refused;
//!    any other is where the journal ends.
//! 6. What is read when the journal is opened is durable up to what the last mark says, no further: the page cache may
//!    have what the drive has not. The rest is appended again, at the same positions: the new segment has all of it
//!    before it has a name, as some of it may have been durable. Nothing that is on the drive is changed.
//!
//! # When a write fails
//! Where space is lacking, the same write is tried again, every [`crate::JOURNAL_RETRY`]; else a new segment is begun at
//! the last durable position, as often. Meanwhile `is_failing` is true, and whoever waits is woken. Nothing is dropped, so
//! the journal recovers when the drive does.
//!
//! Reading order: `header`, `record` (the bytes), `storage` (the seam), `buffer`, `writer`, `recovery`; `check` and `repair`,
//! which do without a server.

mod append;
mod buffer;
mod check;
mod checkpoint;
mod error;
mod folder;
mod header;
mod held;
mod host;
mod names;
mod queue;
mod reader;
mod recent;
mod record;
mod recovery;
mod repair;
mod shared;
#[cfg(any(test, feature = "fuzzing", feature = "simulation"))]
pub(crate) mod sim;
#[cfg(feature = "simulation")]
mod simulated;
#[cfg(feature = "simulation")]
mod simulated_files;
mod status;
mod storage;
#[cfg(test)]
mod tests;
mod tuning;
mod waiters;
mod writer;

#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzzing;

use std::path::PathBuf;
use std::sync::Arc;
use std::task::Waker;
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::Mutex;

pub use check::{Beyond, CheckedJournal, JournalFile, TornEnd};
pub use checkpoint::{FoundJournal, JournalMark, find_journal};
pub use error::JournalError;
pub use recent::{Recent, RecentRecords};
pub use recovery::{JournalRecord, Recovery};
pub use status::JournalStatus;

#[cfg(feature = "simulation")]
pub use simulated::{SimJournal, SimJournalSizes, SimWriter};
#[cfg(feature = "simulation")]
pub use simulated_files::{SimFile, SimFiles};

use header::Header;
use host::Host;
use shared::Shared;
use storage::Storage;
use writer::Writer;

/// A place in the journal: bytes of all records in front of it. That of a record is where it ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position(pub u64);

/// When what was written is synced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncPolicy {
    /// At once: whoever needs it waits for `durable`.
    Always,
    /// Once a second.
    EverySecond,
    /// When so much was written that it would take long ([`crate::JOURNAL_SYNC_BYTES`]), and when a segment ends.
    Never,
}

/// What becomes of a record at the end that is not whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TornTail {
    /// It is cut off, which is to say left out, and the log tells of it.
    Cut,
    /// The journal is not opened.
    Refuse,
}

/// How a journal is opened.
#[derive(Clone, Debug)]
pub struct JournalOptions {
    /// The folder of the journal, which is made where there is none. Nothing else uses it.
    pub folder: PathBuf,
    /// When it syncs.
    pub sync: SyncPolicy,
    /// What becomes of a torn end.
    pub torn_tail: TornTail,
}

/// An open journal. [`Recovery`] opens it.
pub struct Journal {
    shared: Arc<Shared>,
    storage: Arc<dyn Storage>,
    folder: PathBuf,
    /// What the manifests say of which journal it is.
    identity: Header,
    host: Host,
    /// None: it was closed.
    thread: Mutex<Option<JoinHandle<()>>>,
    /// Held while a manifest is written.
    checkpoint: Mutex<()>,
}

impl Journal {
    /// The journal and its writer, which nobody runs yet.
    fn new(
        shared: Arc<Shared>,
        storage: Arc<dyn Storage>,
        folder: PathBuf,
        identity: Header,
        host: Host,
    ) -> Self {
        let (thread, checkpoint) = (Mutex::new(None), Mutex::new(()));
        Self { shared, storage, folder, identity, host, thread, checkpoint }
    }

    /// Has the writer run. Errors: there is no thread to be had for it.
    fn start(&self, writer: Writer) -> Result<(), JournalError> {
        let thread = self.host.run(writer, &self.shared).map_err(|error| {
            JournalError::io(self.folder.display(), "start of a thread", &error)
        })?;
        *self.thread.lock() = thread;
        Ok(())
    }

    /// Whether so little waits to become durable that more may be appended. Writers ask before they change anything.
    #[inline]
    pub fn has_room(&self) -> bool {
        self.shared.has_room()
    }

    /// Memory of what is not durable, and of what is kept for records to come, in bytes. Cost: a lock, and a look at each
    /// piece of 256 KiB.
    pub fn memory_bytes(&self) -> usize {
        self.shared.memory_bytes()
    }

    /// Says how much memory may be kept for records to come, in bytes, at most what a sync at full speed takes
    /// ([`crate::JOURNAL_SPARE_CHUNKS_MAX`]).
    pub fn bound_spare(&self, bytes: u64) {
        let spare = self.shared.queue.lock().buffer.bound_spare(bytes);
        drop(spare);
    }

    /// Up to where the journal is durable. Never goes back.
    #[inline]
    pub fn durable(&self) -> Position {
        Position(self.shared.durable())
    }

    /// Where the next record begins.
    #[inline]
    pub fn appended(&self) -> Position {
        Position(self.shared.appended())
    }

    /// Whether the last write or sync has failed, or the journal is closed: until it is false again, nothing becomes
    /// durable, and `status` says why.
    #[inline]
    pub fn is_failing(&self) -> bool {
        self.shared.is_failing()
    }

    /// Since when there is something that is not durable, as the writer saw it.
    pub fn behind(&self) -> Duration {
        self.shared.behind(self.host.now())
    }

    /// Has `waker` called once: when the journal is durable up to `position`, at once if it is; or when it fails, at
    /// once if it does. Under `Always` the writer begins now if it had nothing to do.
    ///
    /// Bounds: what waits is freed when it is called, which comes soon, for a position is never beyond `appended`.
    pub fn wake_when_durable(&self, position: Position, waker: &Waker) {
        debug_assert!(position <= self.appended());
        let is_waiting = self.shared.waiters.wait_for_durable(position.0, waker, &self.shared);
        if is_waiting && self.shared.sync_policy() == SyncPolicy::Always {
            self.shared.want_durable(position.0);
        }
    }

    /// Has `waker` called once when there is room again, or when the journal fails; at once if so it is.
    pub fn wake_when_room(&self, waker: &Waker) {
        self.shared.waiters.wait_for_room(waker, &self.shared);
    }

    /// Has all that was appended become durable soon, whatever the policy.
    pub fn sync_soon(&self) {
        self.shared.want_durable(self.shared.appended());
    }

    /// Changes when it syncs from now on.
    pub fn set_sync(&self, sync: SyncPolicy) {
        self.shared.set_sync_policy(sync);
    }

    /// Brings all that was appended to the drive, and ends the writer. What is appended later goes nowhere.
    ///
    /// Errors: it did not become durable.
    pub fn close(&self) -> Result<(), JournalError> {
        self.shared.close();
        if let Some(thread) = self.thread.lock().take() {
            // What it died of was told when it did.
            let _ = thread.join();
        }
        if self.durable() == self.appended() {
            return Ok(());
        }
        self.shared.outcome().and(Err(JournalError::Closed))
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        if let Err(error) = self.close() {
            tracing::error!(%error, "the journal was closed with records that are not durable");
        }
    }
}
