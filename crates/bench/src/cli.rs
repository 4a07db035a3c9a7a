//! `kelvin bench run`: a command line in, a result and an exit code out.

use crate::live::LiveLine;
use crate::outputs::Outputs;
use crate::{Control, LoadError, Options, Report};
use signal_hook::consts::SIGINT;
use std::ffi::OsString;
use std::io::IsTerminal;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use stdx::output::{complain, exit_code};

/// The program, as it calls itself.
const PROGRAM: &str = "kelvin bench run";
/// Bad usage, no connection, or a file that cannot be written.
const CANNOT_RUN: u8 = 2;

/// Runs the load that `words` (without the name of the program) describe, and prints its result.
/// `--help` tells what the exit codes mean.
pub fn main(words: Vec<OsString>) -> ExitCode {
    let options = match Options::parse(std::iter::once(OsString::from(PROGRAM)).chain(words)) {
        Ok(options) => options,
        // The text of --help goes to the standard output, a complaint to the other.
        Err(error) if !error.use_stderr() => return exit_code(PROGRAM, error.print(), CANNOT_RUN),
        Err(error) => {
            let _ = error.print();
            return ExitCode::from(CANNOT_RUN);
        }
    };
    match run(&options) {
        Ok(report) => conclude(&report),
        Err(error) => {
            complain(PROGRAM, error);
            ExitCode::from(CANNOT_RUN)
        }
    }
}

fn run(options: &Options) -> Result<Report, LoadError> {
    let outputs = Outputs::open(options)?;
    let report = crate::run_watched(options, &control())?;
    outputs.write(&report)?;
    Ok(report)
}

/// Ctrl-C ends the load and keeps what was measured, a second one ends the program; on a terminal
/// there is a live line.
fn control() -> Control {
    let interrupted = Arc::new(AtomicBool::new(false));
    // Without these Ctrl-C just ends the program: that is no reason not to load.
    let _ = signal_hook::flag::register_conditional_shutdown(SIGINT, 130, Arc::clone(&interrupted));
    let _ = signal_hook::flag::register(SIGINT, Arc::clone(&interrupted));
    let live = std::io::stderr().is_terminal().then(|| LiveLine::new("load"));
    Control { interrupted, live, remark: Some(|text| complain(PROGRAM, text)) }
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
    complain(PROGRAM, reason);
    ExitCode::FAILURE
}
