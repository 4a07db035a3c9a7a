//! `kelvin bench run`: a command line in, a result and an exit code out.

use crate::live::LiveLine;
use crate::{Control, LoadError, Options, Report, hdr};
use signal_hook::consts::SIGINT;
use std::ffi::OsString;
use std::io::{IsTerminal, Write};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Bad usage, no connection, or a file that cannot be written.
const CANNOT_RUN: u8 = 2;

/// Runs the load that `words` (without the name of the program) describe, and prints its result.
/// `--help` tells what the exit codes mean.
pub fn main(words: Vec<OsString>) -> ExitCode {
    let name = OsString::from("kelvin bench run");
    let options = match Options::parse(std::iter::once(name).chain(words)) {
        Ok(options) => options,
        Err(error) => {
            // The text of --help goes to the standard output, a complaint to the other.
            let _ = error.print();
            return ExitCode::from(if error.use_stderr() { CANNOT_RUN } else { 0 });
        }
    };
    let outcome = crate::run_watched(&options, &control());
    match outcome.and_then(|report| publish(&report).map(|()| report)) {
        Ok(report) => conclude(&report),
        Err(error) => {
            eprintln!("kelvin bench run: {error}");
            ExitCode::from(CANNOT_RUN)
        }
    }
}

/// Ctrl-C ends the load and keeps what was measured, a second one ends the program; on a terminal
/// there is a live line.
fn control() -> Control {
    let interrupted = Arc::new(AtomicBool::new(false));
    // Without these Ctrl-C just ends the program: that is no reason not to load.
    let _ = signal_hook::flag::register_conditional_shutdown(SIGINT, 130, Arc::clone(&interrupted));
    let _ = signal_hook::flag::register(SIGINT, Arc::clone(&interrupted));
    let live = std::io::stderr().is_terminal().then(|| LiveLine::new("load"));
    Control { interrupted, live, remark: Some(|text| eprintln!("kelvin bench run: {text}")) }
}

/// Writes the result where the options say.
fn publish(report: &Report) -> Result<(), LoadError> {
    let refused = |path: &std::path::Path| {
        let path = path.display().to_string();
        move |source| LoadError::File { path, source }
    };
    match &report.options.out_file {
        Some(path) => std::fs::write(path, report.to_string()).map_err(refused(path))?,
        // A reader that has gone away, such as `head`, is no failure of the load.
        None => drop(write!(std::io::stdout(), "{report}")),
    }
    if let Some(path) = &report.options.json_out_file {
        let json = format!("{:#}\n", report.to_json());
        std::fs::write(path, json).map_err(refused(path))?;
    }
    if let Some(prefix) = &report.options.hdr_file_prefix {
        hdr::write_files(report, prefix)?;
    }
    Ok(())
}

fn conclude(report: &Report) -> ExitCode {
    if report.is_flawless() {
        return ExitCode::SUCCESS;
    }
    let stats = report.stats();
    let reason = match report.cut_short() {
        Some(reason) => format!("partial result: {reason}"),
        None => format!(
            "{} errors, {} wrong, {} missing, {} connections lost",
            stats.errors,
            stats.wrong,
            stats.misses(),
            stats.connections_lost
        ),
    };
    eprintln!("kelvin bench run: {reason}");
    ExitCode::FAILURE
}
