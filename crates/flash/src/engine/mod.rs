//! The seam between the tier and a store of records.
//!
//! One `Engine` is shared by all threads. Each worker thread asks it for an `EngineWorker` and
//! drives that from its event loop: `reap` when `wake_fd` is readable, queue reads and appends,
//! `submit` at the end of each turn, before it sleeps (`reap` and `gc` queue work too).
//! Nothing here blocks, except what says so.
//!
//! Invariants that every engine keeps:
//! 1. A location is readable from the moment `append` returns until `release`, by every worker.
//! 2. Bytes that are not exactly the appended record are never handed out.
//! 3. A record that could not be written is handed back by `Completion::WriteFailed`; nothing is
//!    lost silently.
//! 4. The place of a released record is not used again while a read of it is in flight.

#[cfg(test)]
pub(crate) mod conformance;
pub(crate) mod fetched;
pub(crate) mod neighbours;
pub(crate) mod stats;

use std::os::fd::BorrowedFd;
use std::path::PathBuf;
use std::sync::Arc;

use crate::error::{AppendError, EngineError};
use crate::journal::Position;
use crate::location::{Location, RecordId};
use crate::record::{Lane, OwnedRecord, Record, RecordMeta};
use fetched::FetchedRecord;
use neighbours::Neighbours;
use stats::EngineStats;

pub use crate::log::CheckpointEnd;

/// A store of records, shared by all workers.
pub trait Engine: Send + Sync {
    /// The engine's side of one worker thread.
    ///
    /// Errors: the ring or the threads behind it could not be made.
    fn worker(&self) -> Result<Box<dyn EngineWorker>, EngineError>;

    /// Says that the record at `at` is dead; its space comes back with a later gc run.
    ///
    /// Answers with the lane that suits the next record of the same key, judged by how long this
    /// one lived.
    /// Shape: `size` is the record's `record_size`. Each location is released at most once. Cost:
    /// two atomic subtractions.
    fn release(&self, at: Location, size: usize) -> Lane;

    /// The name of the record at `at`. Called with the key's slot locked, it is that of the record
    /// that the keyspace points at: its segment was not freed since the record was written.
    ///
    /// Cost: one atomic load.
    fn identify(&self, at: Location) -> RecordId;

    /// A snapshot of all figures. Cost: a walk over the segment table; not for the data path.
    fn stats(&self) -> EngineStats;

    /// How much room there is. Cost: a few atomic loads; made to be asked every turn of the loop.
    fn free_space(&self) -> FreeSpace;

    /// Changes the flash size while running: grows at once, shrinks as segments become free.
    ///
    /// Errors: the paths cannot hold that much, or it is below the smallest size that can work.
    /// Nothing changed then.
    fn resize(&self, bytes: u64) -> Result<(), EngineError>;

    /// Changes the list of paths while running. The flash size stays and is shared out evenly over
    /// the new list: a path that was added takes over its share as segments of the others become
    /// free. What lives on a path that is not listed any more is moved by gc runs, and when
    /// nothing is left there its file is removed; a record that is damaged keeps the file until the
    /// record is released. A path that is listed again before that stays.
    ///
    /// Errors: with a text for the operator, as at the start: a directory that is not there, not
    /// writable or in use, the same one twice, no path that takes writes, not enough space for its
    /// share on one. Nothing changed then. Blocks; not for the data path.
    fn set_paths(&self, paths: &[PathBuf]) -> Result<(), EngineError>;

    /// Says whether reads that follow the order of writing read ahead: they do, at first. In force at
    /// each worker's next `submit`.
    fn set_read_ahead(&self, is_on: bool);

    /// Forgets every record at once (FLUSHALL). All locations handed out before are invalid: a
    /// release of one of them would count against a record that is written there later.
    ///
    /// The caller keeps appends, relocations and releases out until it returns (it holds all
    /// slots, and no worker has releases to make up for), so that there is no doubt which
    /// locations are meant. Reads in flight may still answer, or answer `Gone`.
    fn reset(&self);

    /// Gives the blocks of some space that is free for long back to the filesystem. False: there is
    /// nothing to give. Engines on files do it by themselves in the background. Blocks; not for the
    /// data path.
    fn give_space_back(&self) -> bool;

    /// Checkpoints that refer to records where they are. None: the engine keeps nothing.
    fn checkpoints(&self) -> Option<&dyn Checkpoints> {
        None
    }
}

/// Checkpoints: what is written elsewhere at a moment, and may say of values that they are on flash, and where. A log that
/// is opened by the state of such a checkpoint has these records still.
///
/// One is taken at a time: `prepare`, `begin` at its moment, `refer` for each value, `close` behind the last, `end`.
pub trait Checkpoints: Send + Sync {
    /// Has the files kept from now on, for a journal: [`crate::JournalMark`]. Blocks; not for the data path.
    ///
    /// Errors: they cannot be, or what is on them could not be made durable. No checkpoint may refer to it.
    fn prepare(&self, journal: u64) -> Result<(), EngineError>;

    /// Keeps free segments back for the checkpoint that begins soon, or [`Checkpoints::release_room`] is called: what is free
    /// has to last until it ends. Cost: a short lock.
    fn keep_room(&self);

    /// Lets others have them, unless the checkpoint has begun.
    fn release_room(&self);

    /// Begins a checkpoint and returns its number: from now on segments that are freed are not used again as long as it may
    /// refer to what is in them. No reference is being made meanwhile. Cost: a short lock.
    fn begin(&self) -> u64;

    /// Says how much of the checkpoint that has begun is done, of so much. Where flash is short of free segments, new records have
    /// as large a part of them as that: who writes is slowed down rather than stopped when none is left. Cost: mostly a division.
    fn set_progress(&self, done: u32, of: u32);

    /// The number of the checkpoint by whose state the log was opened.
    fn opened_by(&self) -> Option<u64>;

    /// Whether a checkpoint may refer to the record at a location, of that size. Called with the key's slot locked, so that
    /// the record is the one that the keyspace means. Cost: an atomic load.
    fn may_refer(&self, at: Location, size: usize) -> bool;

    /// Makes a reference to a record, if it may be. None: the value is to be written.
    ///
    /// Cost: two atomic operations.
    fn refer(&self, number: u64, at: Location, size: usize) -> Option<RecordId>;

    /// Brings all that a checkpoint refers to to the drive, no more references being made, and returns the state of the log
    /// that belongs to it, which is at a position of the journal. Waits for the workers, each of which is to turn, while
    /// `goes_on`, and for the drives.
    ///
    /// Errors: not all of it is durable, so the checkpoint has failed.
    fn close(
        &self,
        number: u64,
        position: Position,
        goes_on: &dyn Fn() -> bool,
    ) -> Result<Vec<u8>, EngineError>;

    /// Says whether a checkpoint is taken when there is no other room than what it frees. Until then one comes.
    fn set_comes(&self, comes: bool);

    /// Says how a checkpoint has ended. Blocks; not for the data path.
    fn end(&self, number: u64, end: CheckpointEnd);

    /// Says that no start will find a checkpoint that refers to anything, so that nothing is held or kept for one. Blocks; not
    /// for the data path.
    ///
    /// Errors: files stay marked as kept, and what is held for a checkpoint is held until that could be undone, which is tried
    /// again in the background.
    fn forget(&self) -> Result<(), EngineError>;

    /// Says that the keyspace points at a record that the checkpoint refers to by whose state the log was opened. False: there
    /// is none.
    fn claim(&self, record: RecordId, size: usize) -> bool;

    /// Says that this was said of all. Errors: it was not, so what was read is not that checkpoint.
    fn end_claims(&self) -> Result<(), EngineError>;
}

/// One worker thread's side of an engine. Neither `Send` nor blocking.
pub trait EngineWorker {
    /// Copies a record into the open write buffer of its lane. The location is valid at once: reads
    /// are served from the buffer until the record is on flash.
    fn append(&mut self, lane: Lane, record: &Record<'_>) -> Result<Location, AppendError>;

    /// As `append`, without a copy of a large payload: the engine keeps the record until it is on
    /// flash.
    ///
    /// Errors: with the record handed back.
    fn append_owned(
        &mut self,
        lane: Lane,
        record: OwnedRecord,
    ) -> Result<Location, (AppendError, OwnedRecord)>;

    /// As [`Engine::identify`].
    fn identify(&self, at: Location) -> RecordId;

    /// Starts a read. `size` is the record's `record_size`. The device is asked at the next
    /// `submit`.
    ///
    /// Errors: `Gone` when the record was released and its segment freed; look the key up again.
    /// Any other error is of this very record, never of one that took its place. Once `Pending`, a
    /// read brings what was there when it began.
    fn read(&mut self, record: RecordId, size: usize, token: u64) -> ReadStart;

    /// As `read`, with what lies around the record ([`crate::AROUND_BYTES`]): a read of the device that succeeds is also
    /// reported with all that it has brought ([`Completion::Neighbours`]).
    fn read_around(&mut self, record: RecordId, size: usize, token: u64) -> ReadStart;

    /// Asks the CPU for the lines of a record of about so many bytes that will be read, where it has been read ahead: so that
    /// the cache misses of several overlap. Cost: 20 ns.
    fn prefetch(&self, at: Location, bytes: usize);

    /// Hands all queued work to the device. Cost: at most one system call.
    fn submit(&mut self);

    /// Appends what has completed to `done`. Call when `wake_fd` is readable; clears it. Never
    /// blocks.
    fn reap(&mut self, done: &mut Vec<Completion>);

    /// Whether something has completed, as far as that is known without a system call.
    fn has_ended(&mut self) -> bool;

    /// An eventfd that is readable when completions wait. Stays the engine's: do not close it.
    fn wake_fd(&self) -> BorrowedFd<'_>;

    /// Reads and writes that the device was asked for and has not answered, gc runs included.
    fn in_flight(&self) -> usize;

    /// Memory of large records on their way to flash, in bytes, those that gc runs move as well. It comes free when
    /// they are there, and they come and go faster than memory is measured.
    fn unwritten_bytes(&self) -> usize;

    /// Says how many write buffers it may have: at least [`WRITE_BUFFERS_MIN`](crate::WRITE_BUFFERS_MIN), or 0 for a
    /// side that appends nothing. [`WRITE_BUFFERS`](crate::WRITE_BUFFERS) until it is called.
    fn bound_write_buffers(&mut self, count: usize);

    /// Memory of the blocks that were read ahead, in bytes.
    fn block_cache_bytes(&self) -> usize;

    /// Says how much memory they may take now, of a share that they may come to: to be called every few milliseconds. Those that
    /// are too many go, some megabytes at a time, but for what is being read.
    fn bound_block_cache(&mut self, bytes: usize, share: usize);

    /// Has reads that are begun together become one over gaps of so many bytes, and reads nothing ahead: for a walk over flash in
    /// order, which asks for all that it wants. 0: reads become one where they touch.
    fn merge_reads_over(&mut self, gap_bytes: u32);

    /// Reads a record and waits for it: for commands that learn of a key too late to prepare it.
    /// Called with the key's slot locked, so that the record is the one that the keyspace means.
    fn read_blocking(&mut self, at: Location, size: usize) -> Result<FetchedRecord, EngineError>;

    /// The same of several records, which the device reads side by side. Each takes a buffer beyond those of
    /// the worker, so that the caller asks for few at a time.
    fn read_all_blocking(
        &mut self,
        reads: &[(Location, usize)],
    ) -> Vec<Result<FetchedRecord, EngineError>> {
        reads.iter().map(|&(at, size)| self.read_blocking(at, size)).collect()
    }

    /// Starts to write partly filled buffers (shutdown, memory pressure, tests). `in_flight` falls
    /// to 0 when done.
    fn flush(&mut self);

    /// Garbage collection, one bounded step of about `budget_bytes` of reading. Its reads go
    /// through `submit` and `reap` like all others. Call each turn while it answers `Working`; when
    /// it answers `Idle` there is nothing to do.
    ///
    /// `owner` must be the same for all calls.
    fn gc(&mut self, owner: &dyn Owner, budget_bytes: usize) -> GcProgress;
}

/// How a read began.
#[derive(Debug)]
pub enum ReadStart {
    /// The record was still in RAM: here it is.
    Ready(FetchedRecord),
    /// `reap` will answer with the token.
    Pending,
    /// Too many reads are in flight, or their buffers are held: call again after `reap`. Never the
    /// answer while no read of its kind, small or large, is in flight, so that a caller who retries
    /// after each `reap` gets on.
    Busy,
    /// It cannot be read.
    Failed(EngineError),
}

/// What `reap` reports.
#[derive(Debug)]
pub enum Completion {
    /// A read that was `Pending` has ended.
    Read {
        /// The token given to `read`.
        token: u64,
        /// The verified record.
        result: Result<FetchedRecord, EngineError>,
    },
    /// What a read around records has brought, behind their completions.
    Neighbours(Neighbours),
    /// These records did not reach flash. For each whose location the keyspace still points at, the
    /// tier puts the record back in RAM and releases the location; the others were released when
    /// the keyspace let go of them. Every worker can read them until the tier drops them here, so it
    /// drops each once it has dealt with it.
    WriteFailed {
        /// Each record with the location that `append` gave.
        records: Vec<(Location, Arc<OwnedRecord>)>,
        /// Why.
        error: EngineError,
    },
}

/// What one step of gc did.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub enum GcProgress {
    /// There is room enough, or nothing that could be collected.
    Idle,
    /// A gc run is under way: call again.
    Working,
    /// A segment was freed.
    Done {
        /// Bytes that had to be moved.
        relocated_bytes: u64,
        /// Bytes of room that it made.
        freed_bytes: u64,
    },
}

/// Where freed segments are held for a checkpoint gc begins when less than so many eighths are free of what does not live:
/// survivors need room before any comes free, and the more is held when a checkpoint is taken, at a quarter, the fewer
/// are taken.
pub(crate) const FREE_SPARE_EIGHTHS: u64 = 3;
/// Flash is short of room when less than so many eighths are free: gc alone has not made enough.
pub(crate) const SHORT_SPARE_EIGHTHS: u64 = 2;
/// Gc ends when this share is held, a half: each checkpoint is written for the room that it brings.
pub(crate) const HELD_SPARE_SHARE: u64 = 2;

/// Room on flash.
#[derive(Copy, Clone, Debug, Default, Eq, PartialEq)]
pub struct FreeSpace {
    /// Bytes of free segments that appends may take, gc's reserve left out: now, or in step with a checkpoint
    /// ([`Checkpoints::set_progress`]).
    pub free_bytes: u64,
    /// Below this many free bytes `gc` starts to work; the nearer to 0, the more it should be
    /// given to do.
    pub gc_below_bytes: u64,
    /// Below this many flash is short of room, though gc works: keys may have to go.
    pub short_below_bytes: u64,
    /// Bytes that the engine may fill in all; after the flash size was lowered, the new size.
    pub capacity_bytes: u64,
    /// Bytes of records that live. The nearer to the capacity, the more each append costs in
    /// gc: evict before nine tenths.
    pub live_bytes: u64,
    /// Bytes of segments that come free when the next checkpoint is in place.
    pub held_bytes: u64,
    /// The same, if one comes: see [`Checkpoints::set_comes`].
    pub coming_bytes: u64,
    /// Whether it is for the next checkpoint that a path is not left yet, or the log not as small as it is to be.
    pub is_held_up: bool,
}

/// What the keyspace says of a record that a gc run met.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub enum Liveness {
    /// The keyspace does not point at this location any more (overwritten, deleted, expired).
    Dead,
    /// The keyspace points here and nowhere else: keep it.
    Live,
    /// The keyspace has dropped its reference to this location just now, because the value is in
    /// RAM too or its key was evicted: need not be kept. The gc run accounts for the release;
    /// the owner does not call `release`.
    Dropped,
}

/// The keyspace as gc sees it. Called on the worker's thread, from `gc`.
pub trait Owner {
    /// It will soon be asked about the records of these keys, at most [`crate::EXPECTED_MAX`], and
    /// may bring near what it needs for that. A hint: they are not verified yet.
    fn expect(&self, records: &[(RecordMeta, &[u8])]) {
        let _ = records;
    }

    /// Whether it evicts what gc meets to make room: segments are worth collecting then
    /// though nothing in them is dead, the oldest first.
    fn evicts(&self) -> bool {
        false
    }

    /// Whether the keyspace still points at `at`. A record that is released while this runs may be
    /// called live.
    fn is_live(&self, record: &Record<'_>, at: Location) -> Liveness;

    /// The record was copied from `from` to `to`: if the keyspace still points at `from`, it points
    /// at `to` from now on and the answer is true (gc accounts for `from`; do not
    /// release it). Otherwise false, and gc releases `to`. Compares the full location
    /// under the slot's lock.
    fn relocate(&self, record: &Record<'_>, from: Location, to: Location) -> bool;
}
