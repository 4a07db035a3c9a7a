//! What can be repaired is: so that a server starts on what is left, and answers without errors.
//!
//! The journal ends where damage begins, since all that stands behind follows from it. Keys whose value on flash is lost are
//! taken out of the snapshot, and removed behind the last record if records have made something of them.

use std::path::Path;

use command::{BadRecord, Commands, Record};
use flash::{CheckedJournal, Journal, JournalRecord, Recovery, set_labels_aside};

use super::error::CheckError;
use super::files::{Checkpoint, Found};
use super::follow::Followed;
use super::lost::Lost;
use super::report::Report;
use super::rewrite::{REWRITTEN_NAME, rewrite_snapshot};
use super::snapshot::is_whole;
use crate::config::Config;
use crate::session::flash::flash_paths;
use crate::session::journal::GAP;
use crate::state::clock::unix_ms;

/// Repairs what was found. False: some of it cannot be, and the report says why.
///
/// Errors: something could not be read or written. What was done by then is whole by itself.
pub(super) fn repair(
    config: &Config,
    found: Found,
    report: &mut Report,
) -> Result<bool, CheckError> {
    let Found { journal, is_unreadable, records, checkpoint, refusal } = found;
    if let Some(why) = refusal {
        return refuse(report, why);
    }
    let Some(journal) = journal else {
        return refuse(report, "there is no journal by which it could be repaired");
    };
    let has_beginning = records.as_ref().is_none_or(Recovery::has_beginning);
    if is_unreadable || !has_beginning {
        return make_manifest(&journal, report);
    }
    if let Some(recovery) = records {
        report.line("repair: the journal ends in front of the first damage");
        tell_of_copies(report, &recovery.cut()?);
    }
    match checkpoint.filter(Checkpoint::is_damaged) {
        Some(checkpoint) => take_out_lost(config, &journal, checkpoint, report),
        None => Ok(true),
    }
}

fn refuse(report: &mut Report, why: &str) -> Result<bool, CheckError> {
    report.line(format_args!("not repaired: {why}"));
    Ok(false)
}

fn tell_of_copies(report: &mut Report, names: &[String]) {
    if !names.is_empty() {
        report.line(format_args!("  what was there is kept as {}", names.join(", ")));
    }
}

fn make_manifest(journal: &CheckedJournal, report: &mut Report) -> Result<bool, CheckError> {
    match journal.make_manifest(&mut |path: &Path| is_whole(path))? {
        Some(position) => {
            report.line(format_args!(
                "repair: the manifest names the snapshot of position {}",
                position.0
            ));
            Ok(true)
        }
        None => refuse(
            report,
            "the journal's beginning is missing, and there is no whole snapshot at which a file of it begins: restore \
             it from a copy, or move it away to start without",
        ),
    }
}

/// Takes keys whose value is lost out of the checkpoint.
fn take_out_lost(
    config: &Config,
    journal: &CheckedJournal,
    checkpoint: Checkpoint,
    report: &mut Report,
) -> Result<bool, CheckError> {
    let Checkpoint { path, position, tables, lost, flash, is_of_flash, .. } = checkpoint;
    let flash = flash.filter(|flash| !flash.has_refused_file());
    if flash.is_none() && is_of_flash {
        return refuse(
            report,
            "the values may be there, and nobody can say so without the state of the flash and its label: restore \
             these from a copy",
        );
    }
    // A snapshot that does not say them refers to nothing.
    let tables = tables.unwrap_or_default();
    let mut followed = Followed::new(tables, lost);
    // All that are at the checkpoint are taken out.
    let at_checkpoint = followed.lost.clone();
    let is_cut = follow_records(journal, &mut followed)?;
    if [&at_checkpoint, &followed.lost, &followed.made].into_iter().any(Lost::is_over) {
        return refuse(
            report,
            "more values are lost than can be followed through the journal: restore them from a copy",
        );
    }
    if is_cut && followed.made.len() > 0 {
        return refuse(
            report,
            "the journal was off: keys of which something was made behind that cannot be removed",
        );
    }
    for (table, key) in followed.lost.iter() {
        report.key("given up", followed.db(table).into(), key, "its value is lost");
    }
    remove_made(journal, &followed)?;
    let state = match &flash {
        Some(flash) => {
            flash.lengthen()?;
            flash.has_files().then(|| flash.state_of_claims())
        }
        None => None,
    };
    let out = path.with_file_name(REWRITTEN_NAME);
    let is_lost = |table: u8, key: &[u8]| at_checkpoint.has(table, key);
    let taken_out = rewrite_snapshot(&path, &out, tables, state.is_some(), &is_lost)?;
    if state.is_none() {
        tell_of_copies(report, &set_labels_aside(&flash_paths(config))?);
    }
    let kept = journal.replace_snapshot(position, REWRITTEN_NAME, state.as_deref())?;
    report.line(format_args!("repair: {taken_out} keys are taken out of the snapshot"));
    tell_of_copies(report, &kept);
    Ok(true)
}

/// Follows lost keys through all records. Whether the journal was off behind some.
fn follow_records(journal: &CheckedJournal, followed: &mut Followed) -> Result<bool, CheckError> {
    let mut recovery = journal.recovery()?;
    while let Some(JournalRecord { payload, .. }) = recovery.read_checked()? {
        if payload == GAP {
            return Ok(true);
        }
        let bad = |error: BadRecord| CheckError::Record(error.to_string());
        let mut commands = Commands::read(payload).map_err(bad)?;
        while let Some(command) = commands.read_next().map_err(bad)? {
            followed.run(command);
        }
    }
    Ok(false)
}

/// Removes keys of which records have made something without their value, behind the last record.
fn remove_made(journal: &CheckedJournal, followed: &Followed) -> Result<(), CheckError> {
    if followed.made.len() == 0 {
        return Ok(());
    }
    let mut recovery = journal.recovery()?;
    while recovery.read_checked()?.is_some() {}
    let journal = recovery.start()?;
    let (now_ms, mut buffer) = (unix_ms(), Vec::new());
    for (table, key) in followed.made.iter() {
        let mut record = Record::new(std::mem::take(&mut buffer), now_ms);
        record.add(followed.db(table), [&b"DEL"[..], key].into_iter());
        wait_for_room(&journal)?;
        journal.append(&record.pieces());
        buffer = record.into_buffer();
    }
    Ok(journal.close()?)
}

/// Errors: the journal cannot be written.
fn wait_for_room(journal: &Journal) -> Result<(), CheckError> {
    while !journal.has_room() {
        if journal.is_failing() {
            return Ok(journal.close()?);
        }
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    Ok(())
}
