//! The segmented log: the default engine.
//!
//! Reading order: `segment` (states, and what of a segment is in RAM), `format` (the bytes),
//! `append`, `read` (with `read_batch`, `read_ahead`, `block_cache`), `gc`, then `shared` and `worker`,
//! which hold the parts together.

mod append;
mod block_cache;
mod capacity;
mod config;
mod counters;
mod epochs;
mod flush;
pub(crate) mod format;
mod gc;
#[cfg(test)]
mod gc_tests;
mod geometry;
mod io;
mod janitor;
mod keeping;
mod kept;
mod large;
mod large_read;
mod lifetime;
#[cfg(test)]
mod memory_tests;
mod moving;
mod read;
mod read_ahead;
mod read_batch;
#[cfg(test)]
mod read_tests;
mod recover;
mod segment;
mod shared;
mod space;
pub(crate) mod state;
mod table;
#[cfg(test)]
pub(crate) mod tests;
mod worker;

use std::path::PathBuf;
use std::sync::Arc;

use capacity::check_paths;
pub use config::{Backend, LogConfig};
pub use epochs::CheckpointEnd;
use geometry::Geometry;
use janitor::Janitor;
use keeping::Keeping;
pub use kept::{KeptFlash, KeptRecord, refused_files, set_labels_aside};
use lifetime::Lifetimes;
use shared::Shared;
use state::LogState;
use worker::LogWorker;

use crate::device::Drives;
use crate::device::file::DataFile;
use crate::device::files::FileDrives;
use crate::device::label::Label;
use crate::device::sim::SimDisk;
use crate::engine::stats::EngineStats;
use crate::engine::{Checkpoints, Engine, EngineWorker, FreeSpace};
use crate::error::EngineError;
use crate::journal::JournalMark;
use crate::limits::{SEGMENT_BYTES_MAX, SEGMENT_BYTES_MIN};
use crate::location::{Location, RecordId};
use crate::record::Lane;

/// Opens a log on files. They are emptied first, and removed when the engine and its workers are
/// dropped. `without`: the journal that there is, if its last checkpoint refers to nothing on flash.
///
/// Errors: with a text for the operator: no path, a path that is not a directory, not writable, in
/// use by another server, kept for a journal, without enough space; a size with which the log cannot
/// work. Nothing that was kept was changed then.
pub fn open_log(
    config: &LogConfig,
    without: Option<JournalMark>,
) -> Result<Arc<dyn Engine>, EngineError> {
    check_paths(&config.paths)?;
    let segment_bytes = segment_bytes(config)?;
    let least = Shared::segments_min(config.workers.max(1)) as u64 * segment_bytes;
    if config.flash_bytes < least {
        let bytes = config.flash_bytes;
        return Err(EngineError::Settings(format!(
            "flash size too small: {bytes} bytes, at least {least} are needed"
        )));
    }
    let drives = FileDrives::create(&config.paths, config.backend, without)?;
    let engine = LogEngine::new(Arc::new(drives), config, segment_bytes, Keeping::begin_anywhere)?;
    let janitor = Janitor::start(Arc::clone(&engine.shared))?;
    Ok(Arc::new(LogEngine { janitor: Some(janitor), ..engine }))
}

/// Opens a log on files that were kept, by the state that a checkpoint has of it ([`Checkpoints::close`]): the records that
/// this refers to are there, and everything else is free. Paths without a file to which it refers are new, and so are
/// those that it has gone on without.
///
/// Errors: with a text for the operator: as [`open_log`]; the files are not those of the state, or are missing; sizes that
/// do not go with it. Nothing in the files was changed then.
pub fn reopen_log(config: &LogConfig, state: &[u8]) -> Result<Arc<dyn Engine>, EngineError> {
    check_paths(&config.paths)?;
    let state = read_state(config, state)?;
    let of_state = (state.flash, state.sector_bytes);
    // Of a path that was left before the checkpoint, and has come back.
    let is_outdated =
        |label: &Label| label.newest < state.number && !state.refers_to_file(label.file);
    let (drives, without, outdated) =
        FileDrives::reopen(&config.paths, config.backend, of_state, is_outdated)?;
    let engine = LogEngine::recover(Arc::new(drives), config, state)?;
    if !without.is_empty() {
        outdated.iter().try_for_each(DataFile::clear)?;
        drop(outdated);
        engine.shared.set_paths(&config.paths)?;
    }
    let janitor = Janitor::start(Arc::clone(&engine.shared))?;
    Ok(Arc::new(LogEngine { janitor: Some(janitor), ..engine }))
}

/// The same on simulated drives.
pub fn reopen_sim(
    disk: &SimDisk,
    config: &LogConfig,
    state: &[u8],
) -> Result<Arc<dyn Engine>, EngineError> {
    Ok(Arc::new(LogEngine::recover(disk.drives(), config, read_state(config, state)?)?))
}

/// Whether there are files that may be kept for a journal: who opens the log looks at that first.
pub fn has_kept_files(paths: &[PathBuf]) -> bool {
    paths.iter().any(|path| DataFile::has_label(path))
}

fn read_state(config: &LogConfig, state: &[u8]) -> Result<LogState, EngineError> {
    let refused = |reason: String| Err(EngineError::Settings(reason));
    let state = match LogState::decode(state) {
        Ok(state) => state,
        Err(what) => {
            return refused(format!("what the journal says of the flash cannot be used: {what}"));
        }
    };
    if let Some(bytes) = config.segment_bytes.filter(|&bytes| bytes != state.segment_bytes) {
        let kept = state.segment_bytes;
        return refused(format!(
            "flash segments of {bytes} bytes are asked for, and those that the journal refers to have {kept}: start with \
             flash-segment-size {kept}"
        ));
    }
    Ok(state)
}

/// Opens a log on simulated drives; `config.paths` and `config.backend` do not matter. Nothing runs
/// in the background.
///
/// Errors: a size with which the log cannot work.
pub fn open_sim(disk: &SimDisk, config: &LogConfig) -> Result<Arc<dyn Engine>, EngineError> {
    let engine = LogEngine::new(disk.drives(), config, segment_bytes(config)?, |_| ())?;
    Ok(Arc::new(engine))
}

/// The segment size that was asked for, or the one that suits the flash.
fn segment_bytes(config: &LogConfig) -> Result<u64, EngineError> {
    let Some(bytes) = config.segment_bytes else {
        return Ok(Geometry::segment_bytes_for(config.flash_bytes));
    };
    if bytes.is_power_of_two() && (SEGMENT_BYTES_MIN..=SEGMENT_BYTES_MAX).contains(&bytes) {
        return Ok(bytes);
    }
    Err(EngineError::Settings(format!(
        "flash segment of {bytes} bytes: not a power of two from {SEGMENT_BYTES_MIN} to \
         {SEGMENT_BYTES_MAX}"
    )))
}

/// The log as the tier holds it.
struct LogEngine {
    shared: Arc<Shared>,
    /// Gives space back to the filesystems in the background; not on simulated drives.
    janitor: Option<Janitor>,
}

impl LogEngine {
    fn new(
        drives: Arc<dyn Drives>,
        config: &LogConfig,
        segment_bytes: u64,
        begin: fn(&Keeping),
    ) -> Result<Self, EngineError> {
        let geometry = Geometry::new(segment_bytes, drives.sector_bytes());
        let lifetimes = Lifetimes::new(config.flash_bytes);
        let shared = Shared::new(drives, geometry, config.workers.max(1), lifetimes);
        let shared = Arc::new(shared);
        begin(&shared.keeping);
        shared.resize(config.flash_bytes)?;
        Ok(Self { shared, janitor: None })
    }

    fn recover(
        drives: Arc<dyn Drives>,
        config: &LogConfig,
        state: LogState,
    ) -> Result<Self, EngineError> {
        let geometry = Geometry::new(state.segment_bytes, state.sector_bytes);
        let lifetimes = Lifetimes::new(config.flash_bytes);
        let shared = Shared::new(drives, geometry, config.workers.max(1), lifetimes);
        let shared = Arc::new(shared);
        shared.recover(state, config.flash_bytes)?;
        Ok(Self { shared, janitor: None })
    }
}

impl Engine for LogEngine {
    fn worker(&self) -> Result<Box<dyn EngineWorker>, EngineError> {
        Ok(Box::new(LogWorker::new(Arc::clone(&self.shared))?))
    }

    fn release(&self, at: Location, size: usize) -> Lane {
        self.shared.release(at, size)
    }

    fn identify(&self, at: Location) -> RecordId {
        self.shared.identify(at)
    }

    fn stats(&self) -> EngineStats {
        self.shared.stats()
    }

    fn free_space(&self) -> FreeSpace {
        self.shared.free_space()
    }

    fn resize(&self, bytes: u64) -> Result<(), EngineError> {
        self.shared.resize(bytes)
    }

    fn set_paths(&self, paths: &[PathBuf]) -> Result<(), EngineError> {
        self.shared.set_paths(paths)?;
        if let Some(janitor) = &self.janitor {
            janitor.wake();
        }
        Ok(())
    }

    fn set_read_ahead(&self, is_on: bool) {
        self.shared.set_read_ahead(is_on);
    }

    fn reset(&self) {
        self.shared.reset();
        if let Some(janitor) = &self.janitor {
            janitor.wake();
        }
    }

    fn give_space_back(&self) -> bool {
        self.shared.tidy_one()
    }

    fn checkpoints(&self) -> Option<&dyn Checkpoints> {
        Some(&*self.shared)
    }
}
