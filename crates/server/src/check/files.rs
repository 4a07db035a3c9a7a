//! Which files there are to be checked: those that a start with the same options would read.

use std::path::{Path, PathBuf};

use flash::{
    CheckedJournal, EngineError, JournalError, KeptFlash, Position, Recovery, has_kept_files,
    refused_files,
};
use keyspace::DB_COUNT;

use super::error::CheckError;
use super::journal::check_records;
use super::lost::Lost;
use super::report::Report;
use super::snapshot::{SnapshotFound, SnapshotOf, check_snapshot};
use crate::config::Config;
use crate::session::flash::flash_paths;
use crate::session::journal::journal_folder;
use crate::session::save::snapshot_path;

const OF_ANOTHER_VERSION: &str = "another version of Kelvin has written it";
const FLASH_OF_OTHERS: &str =
    "the flash may be needed by another journal, or by a copy of this one";
const SNAPSHOT_DAMAGED: &str = "nobody can say which keys of the snapshot are damaged, and nothing else has them: restore \
     it from a copy";

/// What was found that a repair needs to know.
#[derive(Default)]
pub(super) struct Found {
    pub(super) journal: Option<CheckedJournal>,
    /// What the journal begins with is damaged or missing.
    pub(super) is_unreadable: bool,
    /// The journal up to the damage, if there is some.
    pub(super) records: Option<Recovery>,
    pub(super) checkpoint: Option<Checkpoint>,
    /// Why there is no repair.
    pub(super) refusal: Option<&'static str>,
}

/// The last checkpoint.
pub(super) struct Checkpoint {
    pub(super) path: PathBuf,
    pub(super) position: Position,
    pub(super) tables: Option<[u8; DB_COUNT]>,
    pub(super) lost: Lost,
    pub(super) flash: Option<KeptFlash>,
    /// Whether it refers to flash.
    pub(super) is_of_flash: bool,
    /// What is said of the flash is not what is there, though no value may be lost.
    pub(super) is_other: bool,
}

impl Checkpoint {
    pub(super) fn is_damaged(&self) -> bool {
        self.is_other || self.lost.len() > 0 || self.lost.is_over()
    }
}

/// Checks all that there is.
pub(super) fn check_all(config: &Config, report: &mut Report) -> Result<Found, CheckError> {
    let folder = journal_folder(config);
    let (mut found, is_on) = (Found::default(), config.appendonly.load());
    match CheckedJournal::open(&folder)? {
        None => report.line(format_args!("there is no journal in {}", folder.display())),
        Some(journal) => {
            report.line(format_args!("journal {}", folder.display()));
            if !is_on {
                report.line("  appendonly is off: a start with these options would not read it");
            }
            check_journal(config, &journal, &mut found, report)?;
            found.journal = Some(journal);
        }
    }
    if found.journal.is_none() && has_kept_files(&flash_paths(config)) {
        report.damage("the flash has values that a journal refers to, which is not there");
    }
    // What a start reads that has no journal.
    if found.journal.is_none() || !is_on {
        check_saved(config, &mut found, report)?;
    }
    Ok(found)
}

fn check_saved(config: &Config, found: &mut Found, report: &mut Report) -> Result<(), CheckError> {
    let (dir, name) = snapshot_path(config);
    let path = dir.join(name);
    if path.exists() {
        let snapshot = check_snapshot(&path, SnapshotOf::All, report)?;
        found.refusal = found.refusal.or((!snapshot.is_whole).then_some(SNAPSHOT_DAMAGED));
    } else if found.journal.is_none() {
        report.line(format_args!("there is nothing to check: there is no {}", path.display()));
    }
    Ok(())
}

fn check_journal(
    config: &Config,
    journal: &CheckedJournal,
    found: &mut Found,
    report: &mut Report,
) -> Result<(), CheckError> {
    let mut recovery = match journal.recovery() {
        Ok(recovery) => recovery,
        Err(error) => {
            found.is_unreadable = true;
            return tell(error, found, report);
        }
    };
    for name in recovery.needless() {
        report.line(format_args!("  {name}: counts for nothing, and goes at the next start"));
    }
    if recovery.has_beginning() && !matches!(journal.flash_state(), Ok(Some(_))) {
        for error in refused_files(&flash_paths(config), recovery.mark())? {
            found.refusal = Some(FLASH_OF_OTHERS);
            report.damage(error);
        }
    }
    if let Some(path) = recovery.snapshot() {
        let position = recovery.checkpoint();
        found.checkpoint =
            check_checkpoint(config, (journal, &recovery), (&path, position), found, report)?;
    }
    if check_records(config, &mut recovery, found, report)? {
        found.records = Some(recovery);
    }
    Ok(())
}

/// Checks what a checkpoint has, and what it refers to.
fn check_checkpoint(
    config: &Config,
    (journal, recovery): (&CheckedJournal, &Recovery),
    (path, position): (&Path, Position),
    found: &mut Found,
    report: &mut Report,
) -> Result<Option<Checkpoint>, CheckError> {
    let state = match journal.flash_state() {
        Ok(state) => state,
        Err(error) => {
            tell(error, found, report)?;
            None
        }
    };
    let mut refused: Vec<EngineError> = Vec::new();
    let mut flash = match &state {
        None => None,
        Some(state) => {
            let paths = flash_paths(config);
            if paths.is_empty() {
                return Err(CheckError::NoFlash);
            }
            KeptFlash::open(&paths, state, &mut refused)?
        }
    };
    for name in flash.iter().flat_map(KeptFlash::names) {
        report.line(format_args!("  {name}"));
    }
    refused.iter().for_each(|error| report.damage(error));
    let snapshot = check_snapshot(path, SnapshotOf::Checkpoint(flash.as_mut()), report)?;
    let SnapshotFound { is_whole, tables, is_of_flash, mut lost, recent } = snapshot;
    recent.check(recovery, &tables.unwrap_or_default(), &mut lost, report)?;
    if !is_whole {
        found.refusal = found.refusal.or(Some(SNAPSHOT_DAMAGED));
    }
    let has_more = flash.as_ref().is_some_and(|flash| !flash.is_all_claimed());
    if has_more && is_whole && lost.len() == 0 {
        report.damage(format_args!(
            "{}: what it refers to on flash is not what the state of the flash says",
            path.display()
        ));
    }
    let is_other = has_more || !refused.is_empty();
    let (path, position) = (path.to_owned(), position);
    Ok(Some(Checkpoint { path, position, tables, lost, flash, is_of_flash, is_other }))
}

/// Tells of what is wrong with the journal. Errors: it cannot be read.
pub(super) fn tell(
    error: JournalError,
    found: &mut Found,
    report: &mut Report,
) -> Result<(), CheckError> {
    match error {
        error @ (JournalError::Io { .. } | JournalError::InUse { .. }) => return Err(error.into()),
        JournalError::Version { .. } => found.refusal = Some(OF_ANOTHER_VERSION),
        _ => {}
    }
    report.damage(error);
    Ok(())
}
