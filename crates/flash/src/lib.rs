//! The flash tier's store: byte records in, locations out, one device read to get a record back.
//!
//! This crate knows bytes, devices and segments. It knows no Redis type, no key table and no async
//! runtime: the `tier` crate joins it with those through two seams.
//! - `Engine` / `EngineWorker` (`engine/`): what the tier may ask of a store. One engine is shared
//!   by all workers; each worker thread owns one `EngineWorker` and never blocks in it.
//! - `Owner`: what a gc run may ask of the keyspace.
//!
//! Reading order: `location`, `record` (the byte format), `engine` (the seam).
//!
//! Beside the store stands the journal (`journal/`): records in one order that are durable when it says so. Its checkpoints
//! may refer to records of the store, which are kept for them (`Checkpoints`); it knows no more of that than a file.

#![deny(unsafe_code)]

mod device;
mod engine;
mod error;
mod file;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod journal;
mod limits;
mod location;
mod log;
mod record;

pub use device::sim::{SimDisk, SimFaults};
pub use engine::fetched::FetchedRecord;
pub use engine::neighbours::Neighbours;
pub use engine::stats::{EngineStats, LatencySummary};
pub use engine::{
    CheckpointEnd, Checkpoints, Completion, Engine, EngineWorker, FreeSpace, GcProgress, Liveness,
    Owner, ReadStart,
};
pub use error::{AppendError, EngineError};
pub use journal::{
    Beyond, CheckedJournal, FoundJournal, Journal, JournalError, JournalFile, JournalMark,
    JournalOptions, JournalRecord, JournalStatus, Position, Recent, RecentRecords, Recovery,
    SyncPolicy, TornEnd, TornTail, find_journal,
};
#[cfg(feature = "simulation")]
pub use journal::{SimFile, SimFiles, SimJournal, SimJournalSizes, SimWriter};
pub use limits::*;
pub use location::{Location, RecordId};
pub use log::{
    Backend, KeptFlash, KeptRecord, LogConfig, has_kept_files, open_log, open_sim, refused_files,
    reopen_log, reopen_sim, set_labels_aside,
};
pub use record::{Lane, OwnedRecord, Record, RecordMeta, record_size};
pub use stdx::Random as SimRandom;
