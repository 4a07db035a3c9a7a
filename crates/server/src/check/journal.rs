//! The records of the journal: each is read as a start reads it, and its commands are looked at.

use command::{BadRecord, Commands};
use flash::{Beyond, JournalRecord, Recovery};

use super::error::CheckError;
use super::files::tell;
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

/// Checks all records, and tells what each file has.
pub(super) fn check_records(
    config: &Config,
    recovery: &mut Recovery,
    report: &mut Report,
) -> Result<(), CheckError> {
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
                report.damage(format_args!("the record that ends at position {position}: {what}"))
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
        Ok(None) => tell_of_torn_end(config, recovery, report),
        Ok(Some(position)) => report.line(format_args!(
            "  the journal was off from position {position} on: a start passes over what stands behind, and begins anew"
        )),
        Err(error) => {
            tell(error, report)?;
            tell_of_rest(recovery, report)?;
        }
    }
    Ok(())
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

fn tell_of_torn_end(config: &Config, recovery: &Recovery, report: &mut Report) {
    let Some(torn) = recovery.torn() else { return };
    let (name, offset, bytes, what) = (torn.name, torn.offset, torn.bytes, torn.what);
    let told = format!("{name} at byte {offset}: {what}: the last {bytes} bytes are not whole");
    match config.aof_load_truncated.load() {
        true => report.line(format_args!("  {told}: a start leaves them out")),
        false => report.damage(format_args!("{told}, and aof-load-truncated is no")),
    }
}

/// Tells what there is behind damage.
fn tell_of_rest(recovery: &mut Recovery, report: &mut Report) -> Result<(), CheckError> {
    let mut records = 0u64;
    recovery.read_beyond(&mut |found| match found {
        Beyond::Record(_) => records += 1,
        Beyond::Damage(error) => report.damage(error),
    })?;
    report.line(format_args!("  behind the first damage: {records} records that can be read"));
    Ok(())
}
