//! Flash: it is opened at the start, and switched on, resized and laid out anew by CONFIG SET (off: `flash_drain.rs`).
//!
//! It is there when `flash-path` and `flash-size` are both set. What was journaled before it came is in the journal, so a
//! restart needs nothing of it until a checkpoint refers to values on flash.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use flash::{Backend, Engine, EngineStats, FoundJournal, JournalError, JournalMark, LogConfig};
use thiserror::Error;

use crate::config::{ApplyError, Config, FlashIo, OptionRow};
use crate::session::flash_drain::{call_off_drain, close_flash, switch_off};
use crate::session::journal::journal_folder;
use crate::state::server::Server;

/// Behind what cannot be read.
const CHECK_HINT: &str = " (kelvin check with the same options tells what is damaged)";
/// What says what flash there is.
const OPTIONS: [&str; 2] = ["flash-path", "flash-size"];
/// Between two looks at what others have done.
pub(super) const LOOK_EVERY: Duration = Duration::from_millis(1);

/// Why flash is not opened, whatever the drives say.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum FlashError {
    /// A journal that refers to flash, without flash.
    #[error(
        "the journal refers to values on flash: start with the flash-path and flash-size that the server had, or move the \
         journal away to start from a snapshot"
    )]
    NoFlash,
    /// `flash-path` without `flash-size`.
    #[error("flash-path and flash-size belong together: flash-size is missing")]
    NoSize,
}

/// The directories of `flash-path`.
pub(crate) fn flash_paths(config: &Config) -> Vec<PathBuf> {
    let words = config.flash_path.load();
    let path = |word: &Vec<u8>| PathBuf::from(String::from_utf8_lossy(word).into_owned());
    words.iter().map(path).collect()
}

/// Opens the flash that the options name at the start, as the journal has left it.
///
/// Errors: it cannot be, or does not go with the journal.
pub(crate) fn open_flash(
    config: &Config,
    workers: usize,
) -> anyhow::Result<Option<Arc<dyn Engine>>> {
    let (paths, size) = (flash_paths(config), config.flash_size.load());
    let is_journaled = config.appendonly.load();
    let journal = match is_journaled || flash::has_kept_files(&paths) {
        true => find_journal(config)?,
        false => None,
    };
    let has_state = journal.as_ref().is_some_and(|found| found.flash_state.is_some());
    match (paths.is_empty(), size) {
        (true, _) if is_journaled && has_state => bail!(FlashError::NoFlash),
        (true, 0) => return Ok(None),
        (true, _) => {
            tracing::warn!("there is no flash: flash-size is set, and flash-path is not");
            return Ok(None);
        }
        (false, 0) => bail!(FlashError::NoSize),
        (false, _) => {}
    }
    open_by(config, workers, journal.as_ref()).map(Some)
}

/// The journal that the options name, which nobody has opened.
fn find_journal(config: &Config) -> anyhow::Result<Option<FoundJournal>> {
    let folder = journal_folder(config);
    let failed = || format!("cannot look into the journal in {}", folder.display());
    flash::find_journal(&folder).map_err(|error| {
        let is_damaged = matches!(error, JournalError::Damaged { .. });
        let hint = if is_damaged { CHECK_HINT } else { "" };
        anyhow::Error::new(error).context(failed() + hint)
    })
}

/// Opens the flash as a journal has left it.
fn open_by(
    config: &Config,
    workers: usize,
    journal: Option<&FoundJournal>,
) -> anyhow::Result<Arc<dyn Engine>> {
    let (mark, state) = match journal {
        Some(found) => (Some(found.mark), found.flash_state.as_deref()),
        None => (None, None),
    };
    let log = log_config(config, workers);
    match state {
        None => open_empty(&log, mark),
        // Refused where files are kept for it.
        Some(_) if !config.appendonly.load() => open_empty(&log, None),
        Some(state) => {
            let engine = flash::reopen_log(&log, state).with_context(kept)?;
            tracing::info!("flash is as the last checkpoint of the journal has left it");
            Ok(engine)
        }
    }
}

fn kept() -> String {
    format!("cannot open the flash as it is kept{CHECK_HINT}")
}

/// Opens flash that has nothing on it. `without`: the journal, whose last checkpoint refers to nothing there.
fn open_empty(log: &LogConfig, without: Option<JournalMark>) -> anyhow::Result<Arc<dyn Engine>> {
    match flash::has_kept_files(&log.paths) {
        true => flash::open_log(log, without).with_context(kept),
        false => Ok(flash::open_log(log, without)?),
    }
}

fn log_config(config: &Config, workers: usize) -> LogConfig {
    let backend = match config.flash_io.load() {
        FlashIo::Auto => Backend::Auto,
        FlashIo::Uring => Backend::Uring,
        FlashIo::Threads => Backend::Threads,
    };
    let segment_bytes = match config.flash_segment_size.load() {
        0 => None,
        bytes => Some(bytes),
    };
    let (paths, flash_bytes) = (flash_paths(config), config.flash_size.load());
    LogConfig { paths, flash_bytes, workers, segment_bytes, backend }
}

/// Acts on options of flash that CONFIG SET has stored, on a thread that may wait.
///
/// Errors: they cannot take effect; the caller puts the old values back and applies again.
pub(crate) fn apply(server: &Arc<Server>, rows: &[&'static OptionRow]) -> Result<(), ApplyError> {
    let names = rows.iter().map(|row| row.name);
    let mut names: Vec<&'static str> = names.filter(|name| OPTIONS.contains(name)).collect();
    let Some(&first) = names.first() else { return Ok(()) };
    let has_paths = !server.config.flash_path.load().is_empty();
    if has_paths && call_off_drain(server) {
        // A size that was set meanwhile was not acted on.
        names = OPTIONS.to_vec();
    }
    let named = |name: &'static str| move |reason: String| ApplyError { name, reason };
    match server.tier.engine() {
        Some(engine) if !has_paths => switch_off(server).map_err(|reason| {
            keep(server, &*engine);
            named(first)(reason)
        })?,
        Some(engine) => {
            for name in names {
                change(server, &*engine, name).map_err(named(name))?;
            }
        }
        None if is_wanted(&server.config) => switch_on(server).map_err(named(first))?,
        None => {}
    }
    note_options(server);
    Ok(())
}

/// Notes the options that were acted on, if they name a path.
pub(crate) fn note_options(server: &Server) {
    if !server.config.flash_path.load().is_empty() {
        server.flash_changes.note_options(server.config.flash());
    }
}

/// Has the options name the flash that there is, which cannot go: those of now may be what a change goes back to that has
/// called off a drain and failed.
fn keep(server: &Server, engine: &dyn Engine) {
    server.config.put_flash(server.flash_changes.options());
    if let Err(reason) = change(server, engine, "flash-path") {
        tracing::error!(reason, "flash-path does not say what there is");
    }
}

/// Whether the options say that there is to be flash.
fn is_wanted(config: &Config) -> bool {
    !config.flash_path.load().is_empty() && config.flash_size.load() > 0
}

/// Changes the flash that there is.
fn change(server: &Server, engine: &dyn Engine, name: &str) -> Result<(), String> {
    let changed = match name {
        "flash-path" => engine.set_paths(&flash_paths(&server.config)),
        _ => engine.resize(server.config.flash_size.load()),
    };
    changed.map_err(|error| error.to_string())
}

/// Opens flash, and has values go there once all workers have taken their sides of it.
fn switch_on(server: &Arc<Server>) -> Result<(), String> {
    if server.saves.is_loading() {
        return Err("flash cannot be switched on while the data is loaded".to_owned());
    }
    let engine = open_now(server).map_err(|error| format!("{error:#}"))?;
    engine.set_read_ahead(server.config.tier_read_ahead.load());
    *server.totals.flash_base.lock() = EngineStats::default();
    // Of a change that was given up.
    server.flash_changes.take_failure();
    server.tier.offer_engine(engine);
    if let Err(reason) = await_workers(server) {
        close_flash(server);
        return Err(reason);
    }
    server.tier.begin_demoting();
    tracing::info!("flash is on: values go there when memory is short");
    Ok(())
}

/// Opens the flash that the options name beside the journal that there is: that refers to nothing on flash.
fn open_now(server: &Server) -> anyhow::Result<Arc<dyn Engine>> {
    let (config, workers) = (&server.config, server.tier.workers);
    let log = log_config(config, workers);
    if let Some(journal) = server.journaling.journal() {
        return open_empty(&log, Some(journal.mark()));
    }
    let journal = match flash::has_kept_files(&log.paths) {
        true => find_journal(config)?,
        false => None,
    };
    // What a journal refers to that is not loaded here is left alone.
    let without = journal.filter(|found| found.flash_state.is_none()).map(|found| found.mark);
    open_empty(&log, without)
}

/// Has the workers follow a change of the engine, and waits until they have.
///
/// Errors: one cannot, or the server stops.
pub(super) fn await_workers(server: &Server) -> Result<(), String> {
    server.flash_changes.tell();
    while !server.tier.have_workers_followed() {
        if let Some(reason) = server.flash_changes.take_failure() {
            return Err(reason);
        }
        if server.is_stopping() {
            return Err("the server is stopping".to_owned());
        }
        std::thread::sleep(LOOK_EVERY);
    }
    Ok(())
}
