//! The records of the journal: each is read as a start reads it, and its commands are looked at.

use command::{BadRecord, Commands, KeyAt, LoggedCommand, find_keys};
use flash::{Beyond, JournalRecord, Recovery};
use smallvec::SmallVec;

use super::error::CheckError;
use super::files::{Found, tell};
use super::report::Report;
use crate::config::Config;
use crate::family::REGISTRY;
use crate::session::journal::GAP;
use crate::state::registry::Run;

/// What a file of the journal has.
#[derive(Clone, Copy, Default)]
struct Counts {
    records: u64,
    commands: u64,
}

const RECORD_NOT_UNDERSTOOD: &str = "a record that is as it was written cannot be run: another version of Kelvin may have \
     written it";

/// Checks all records, and tells what each file has. Whether there is an end for which a start is refused.
pub(super) fn check_records(
    config: &Config,
    recovery: &mut Recovery,
    found: &mut Found,
    report: &mut Report,
) -> Result<bool, CheckError> {
    let files = recovery.files();
    let mut counts = vec![Counts::default(); files.len()];
    let (bytes, from) = (recovery.bytes(), recovery.checkpoint().0);
    let ended = loop {
        let record = match recovery.read_checked() {
            Ok(Some(record)) => record,
            Ok(None) => break Ok(None),
            Err(error) => break Err(error),
        };
        let position = record.position.0;
        if record.payload == GAP {
            break Ok(Some(position));
        }
        let commands = count_commands(&record);
        let counts = &mut counts[recovery.file_index()];
        counts.records += 1;
        match commands {
            Ok(commands) => counts.commands += commands,
            Err(what) => {
                found.refusal = found.refusal.or(Some(RECORD_NOT_UNDERSTOOD));
                report.damage(format_args!("the record that ends at position {position}: {what}"));
            }
        }
        report.progress("journal", position - from, bytes);
    };
    for (file, Counts { records, commands }) in files.iter().zip(counts) {
        let (name, first, bytes) = (&file.name, file.first.0, file.bytes);
        report.line(format_args!(
            "  {name}: {records} records of {commands} commands from position {first} on, {bytes} bytes"
        ));
    }
    match ended {
        Ok(None) => return Ok(tell_of_torn_end(config, recovery, report)),
        Ok(Some(position)) => report.line(format_args!(
            "  the journal was off from position {position} on: a start passes over what stands behind, and begins anew"
        )),
        Err(error) => {
            tell(error, found, report)?;
            tell_of_rest(recovery, report)?;
            return Ok(true);
        }
    }
    Ok(false)
}

/// The commands of a record. Errors: what a start would refuse.
fn count_commands(record: &JournalRecord<'_>) -> Result<u64, String> {
    let bad = |error: BadRecord| error.to_string();
    let mut commands = Commands::read(record.payload).map_err(bad)?;
    let mut count = 0;
    while let Some(command) = commands.read_next().map_err(bad)? {
        let entry =
            REGISTRY.find(command.args).filter(|entry| entry.spec.takes(command.args.len()));
        if !entry.is_some_and(|entry| matches!(entry.run, Run::Keys(_))) {
            return Err(format!(
                "{}: there is no such command on keys",
                command.args[0].escape_ascii()
            ));
        }
        count += 1;
    }
    Ok(count)
}

/// Whether a start is refused for it.
fn tell_of_torn_end(config: &Config, recovery: &Recovery, report: &mut Report) -> bool {
    let Some(torn) = recovery.torn() else { return false };
    let (name, offset, bytes, what) = (torn.name, torn.offset, torn.bytes, torn.what);
    let told = format!("{name} at byte {offset}: {what}: the last {bytes} bytes are not whole");
    let is_left_out = config.aof_load_truncated.load();
    match is_left_out {
        true => report.line(format_args!("  {told}: a start leaves them out")),
        false => report.damage(format_args!("{told}, and aof-load-truncated is no")),
    }
    !is_left_out
}

/// Tells which keys a record behind damage has to do with.
fn tell_of_keys(payload: &[u8], report: &mut Report) {
    let Ok(mut commands) = Commands::read(payload) else { return };
    let mut found: SmallVec<[KeyAt; 4]> = SmallVec::new();
    while let Ok(Some(LoggedCommand { db, args, .. })) = commands.read_next() {
        let Some(entry) = REGISTRY.find(args) else { continue };
        find_keys(entry.spec.keys, args, &mut found);
        for key in found.iter().filter_map(|at| args.get(at.index)) {
            report.key("behind", db.into(), key, args[0].escape_ascii());
        }
    }
}

/// Tells what there is behind damage.
fn tell_of_rest(recovery: &mut Recovery, report: &mut Report) -> Result<(), CheckError> {
    let mut records = 0u64;
    recovery.read_beyond(&mut |found| match found {
        Beyond::Record(payload) => {
            records += 1;
            tell_of_keys(payload, report);
        }
        Beyond::Damage(error) => report.damage(error),
    })?;
    report.line(format_args!("  behind the first damage: {records} records that can be read"));
    Ok(())
}
