//! Which files there are to be checked: those that a start with the same options would read.

use std::path::Path;

use flash::{CheckedJournal, EngineError, JournalError, KeptFlash, has_kept_files};

use super::error::CheckError;
use super::journal::check_records;
use super::report::Report;
use super::snapshot::{SnapshotOf, check_snapshot};
use crate::config::Config;
use crate::session::journal::journal_folder;
use crate::session::save::snapshot_path;
use crate::state::settings::flash_paths;

/// Checks all that there is.
pub(super) fn check_all(config: &Config, report: &mut Report) -> Result<(), CheckError> {
    let folder = journal_folder(config);
    let journal = CheckedJournal::open(&folder)?;
    let is_on = config.appendonly.load();
    match &journal {
        None => report.line(format_args!("there is no journal in {}", folder.display())),
        Some(journal) => {
            report.line(format_args!("journal {}", folder.display()));
            if !is_on {
                report.line("  appendonly is off: a start with these options would not read it");
            }
            check_journal(config, journal, report)?;
        }
    }
    if journal.is_none() && has_kept_files(&flash_paths(config)) {
        report.damage("the flash has values that a journal refers to, which is not there");
    }
    // What a start reads that has no journal.
    let (dir, name) = snapshot_path(config);
    let path = dir.join(name);
    if journal.is_some() && is_on {
        return Ok(());
    }
    match path.exists() {
        true => check_snapshot(&path, SnapshotOf::All, report),
        false if journal.is_none() => {
            report.line(format_args!("there is nothing to check: there is no {}", path.display()));
            Ok(())
        }
        false => Ok(()),
    }
}

fn check_journal(
    config: &Config,
    journal: &CheckedJournal,
    report: &mut Report,
) -> Result<(), CheckError> {
    let mut recovery = match journal.recovery() {
        Ok(recovery) => recovery,
        Err(error) => return tell(error, report),
    };
    for name in recovery.needless() {
        report.line(format_args!("  {name}: counts for nothing, and goes at the next start"));
    }
    if let Some(path) = recovery.snapshot() {
        check_checkpoint(config, journal, &path, report)?;
    }
    check_records(config, &mut recovery, report)
}

/// Checks what a checkpoint has, and what it refers to.
fn check_checkpoint(
    config: &Config,
    journal: &CheckedJournal,
    snapshot: &Path,
    report: &mut Report,
) -> Result<(), CheckError> {
    let state = match journal.flash_state() {
        Ok(state) => state,
        Err(error) => {
            tell(error, report)?;
            None
        }
    };
    let Some(state) = state else {
        return check_snapshot(snapshot, SnapshotOf::Checkpoint(None), report);
    };
    let paths = flash_paths(config);
    if paths.is_empty() {
        return Err(CheckError::NoFlash);
    }
    let mut refused: Vec<EngineError> = Vec::new();
    let mut flash = KeptFlash::open(&paths, &state, &mut refused)?;
    for name in flash.iter().flat_map(KeptFlash::names) {
        report.line(format_args!("  {name}"));
    }
    refused.iter().for_each(|error| report.damage(error));
    check_snapshot(snapshot, SnapshotOf::Checkpoint(flash.as_mut()), report)?;
    if flash.is_some_and(|flash| !flash.is_all_claimed()) && !report.has_lost() {
        report.damage(format_args!(
            "{}: it refers to less on flash than the state of the flash says",
            snapshot.display()
        ));
    }
    Ok(())
}

/// Tells of what is wrong with the journal. Errors: it cannot be read.
pub(super) fn tell(error: JournalError, report: &mut Report) -> Result<(), CheckError> {
    match error {
        error @ (JournalError::Io { .. } | JournalError::InUse { .. }) => Err(error.into()),
        error => {
            report.damage(error);
            Ok(())
        }
    }
}
