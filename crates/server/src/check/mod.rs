//! `kelvin check`: what a start would read is read without one, by the same code, and everything that is damaged or lost is
//! told: the journal, the snapshot of its checkpoint, and the values on flash that this refers to.
//!
//! ```text
//! files      which of them there are, by the options of the server
//! journal    the records
//! snapshot   keys, and references to values on flash, which are checked in batches
//! recent     values that the snapshot refers to in the journal
//! report     what is told
//! repair     what can be repaired: `lost` keys are followed (`follow`) through the records, and taken out (`rewrite`)
//! ```
//!
//! Invariant: no more is in memory than a batch of references, the longest string or record, the list of the segments
//! of the flash, and the names of keys whose values are in the journal, which were all in RAM.

mod error;
mod files;
mod follow;
mod journal;
mod lost;
mod recent;
mod repair;
mod report;
mod rewrite;
mod snapshot;

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::process::ExitCode;

use stdx::output::{complain, exit_code, print};

use crate::config::Config;
use crate::state::server::KELVIN_VERSION;

use error::CheckError;
use files::check_all;
use repair::repair;
use report::Report;

/// The program, as it calls itself.
const PROGRAM: &str = "kelvin check";
/// Exit codes: there is damage; it could not be looked at.
const DAMAGED: u8 = 1;
const FAILURE: u8 = 2;
/// What was damaged in a way that hid other damage is repaired first.
const REPAIRS_MAX: u32 = 3;

const HELP: &str = "\
Usage: kelvin check [--repair] [--quiet] [FILE] [--OPTION VALUE ...]

Looks whether what a server has kept is whole: its journal, the snapshot of the last checkpoint, and the values on flash
that this refers to. The server must not run. FILE and options are those of `kelvin server`, so that its own command line
can be given; these say where the files are:
  --dir DIRECTORY          where the journal's folder and the snapshot's file are
  --appenddirname NAME     the folder of the journal; appendonlydir
  --dbfilename NAME        the snapshot's file; dump.rdb
  --flash-path DIRECTORY   where values on flash are; several with spaces between

Without --repair nothing is changed. Every key whose value is damaged is listed.

  --repair                 give up what is damaged, so that the server starts on the rest: the journal ends in front of the
                           damage, keys whose value on flash is lost are deleted, a manifest is made anew; what was there is
                           kept under another name
  --quiet | -q             tell no progress

Exit status: 0 all is whole, 1 there is damage, 2 it could not be looked at.
";

/// Runs `kelvin check` with what stands behind it on the command line.
pub fn main(words: Vec<OsString>) -> ExitCode {
    let line = Line::read(words);
    if let Some(text) = line.asked {
        return exit_code(PROGRAM, print(text), FAILURE);
    }
    match check(&line) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(DAMAGED),
        Err(error) => {
            complain(PROGRAM, error);
            ExitCode::from(FAILURE)
        }
    }
}

/// What was asked for.
#[derive(Default)]
struct Line {
    /// What is to be told instead.
    asked: Option<String>,
    is_quiet: bool,
    repairs: bool,
    /// For the server.
    options: Vec<Vec<u8>>,
}

impl Line {
    fn read(words: Vec<OsString>) -> Line {
        let mut line = Line::default();
        for word in words {
            match word.to_str() {
                Some("--help" | "-h") => line.asked = Some(HELP.to_owned()),
                Some("--version" | "-V") => {
                    line.asked = Some(format!("{PROGRAM} {KELVIN_VERSION}\n"));
                }
                Some("--quiet" | "-q") => line.is_quiet = true,
                Some("--repair") => line.repairs = true,
                _ => line.options.push(word.into_vec()),
            }
        }
        line
    }
}

/// Whether all is whole.
fn check(line: &Line) -> Result<bool, CheckError> {
    let config = Config::default();
    config.load_arguments(&line.options)?;
    let mut repairs = 0;
    loop {
        let mut report = Report::new(line.is_quiet);
        let found = check_all(&config, &mut report)?;
        if !line.repairs || report.is_whole() || repairs == REPAIRS_MAX {
            return report.end();
        }
        if !repair(&config, found, &mut report)? {
            return report.end();
        }
        repairs += 1;
        report.line("checked again:");
    }
}
