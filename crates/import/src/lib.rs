//! `kelvin import`: what a Redis has saved is sent to a running server, an RDB file or the files of an append-only log.
//!
//! ```text
//! files      which files there are, and in which order: a file, or a directory with a manifest
//! rdb_file   keys of an RDB file -> RESTORE, or for large collections the commands that make them (`pieces`)
//! aof_file   commands of a log -> themselves
//! link       where requests go: the connection, on which replies are looked at as they come
//! progress   what is told meanwhile
//! ```
//!
//! Invariant: no more is in memory than a piece of a value, the longest string or command of the files, and what is on
//! its way.

#![forbid(unsafe_code)]

mod aof_file;
mod error;
mod files;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod link;
mod manifest;
mod pieces;
mod progress;
mod rdb_file;
mod recorded;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use stdx::output::{complain, exit_code, print};

use crate::error::ImportError;
use crate::files::{Input, find};
use crate::link::{Destination, Link, Server};
use crate::progress::Progress;

/// The program, as it calls itself.
const PROGRAM: &str = "kelvin import";
/// Exit code of every failure.
const FAILURE: u8 = 1;

/// Loads what a Redis has saved into a running server: an RDB file, an append-only file, or the directory of one of
/// several parts (appendonlydir).
///
/// Keys are sent with RESTORE, large collections piece by piece, the commands of a log as they are. When the import
/// fails, the server keeps what was sent before.
#[derive(Debug, Parser)]
#[command(name = "kelvin import", version)]
struct Line {
    /// The file, or the directory with the manifest.
    path: PathBuf,
    /// The server.
    #[arg(short = 'H', long, default_value = "127.0.0.1")]
    host: String,
    /// Its port.
    #[arg(short, long, default_value_t = 6379)]
    port: u16,
    /// Whom to authenticate as.
    #[arg(long)]
    user: Option<String>,
    /// The password, if the server wants one.
    #[arg(short = 'a', long)]
    password: Option<String>,
    /// Take a server that has keys: those of the files replace others of the same name. Without it the server must be
    /// empty.
    #[arg(long)]
    replace: bool,
    /// Fail when the last file ends in the midst of a command, as after a crash; else that is told, and left out.
    #[arg(long)]
    strict: bool,
    /// Tell no progress.
    #[arg(short, long)]
    quiet: bool,
}

/// What was sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Sent {
    keys: u64,
    /// Keys that had expired.
    expired: u64,
    commands: u64,
}

/// Runs `kelvin import` with what stands behind it on the command line. Failures are one line on standard error.
pub fn main(arguments: Vec<OsString>) -> ExitCode {
    let name = OsString::from(PROGRAM);
    let line = match Line::try_parse_from(std::iter::once(name).chain(arguments)) {
        Ok(line) => line,
        Err(error) if !error.use_stderr() => return exit_code(PROGRAM, error.print(), FAILURE),
        Err(error) => {
            let _ = error.print();
            return ExitCode::from(FAILURE);
        }
    };
    match import(&line) {
        Ok(text) => exit_code(PROGRAM, print(text), FAILURE),
        Err(error) => {
            complain(PROGRAM, error);
            ExitCode::from(FAILURE)
        }
    }
}

/// Imports all files, and says what was sent.
fn import(line: &Line) -> Result<String, ImportError> {
    let inputs = find(&line.path)?;
    let total_bytes = inputs.iter().map(|input| input.bytes).sum();
    let server = Server {
        host: &line.host,
        port: line.port,
        user: line.user.as_deref(),
        password: line.password.as_deref(),
    };
    let mut progress = Progress::new(total_bytes, line.quiet);
    let mut link = Link::connect(&server)?;
    if !line.replace {
        link.check_empty()?;
    }
    let mut sent = Sent::default();
    for input in &inputs {
        let mut importing = Importing {
            input,
            link: &mut link,
            progress: &mut progress,
            warn: &mut |text| complain(PROGRAM, text),
            sent: &mut sent,
            replaces: line.replace,
            is_strict: line.strict,
        };
        importing.import()?;
        progress.end_file(input.bytes);
    }
    link.finish()?;
    Ok(format!(
        "{} keys and {} commands from {} in {:.1} s; {} keys had expired\n",
        sent.keys,
        sent.commands,
        if inputs.len() == 1 { "one file".to_owned() } else { format!("{} files", inputs.len()) },
        progress.seconds(),
        sent.expired,
    ))
}

/// One of the files on its way.
struct Importing<'a> {
    input: &'a Input,
    link: &'a mut dyn Destination,
    progress: &'a mut Progress,
    /// Told of what is left out.
    warn: &'a mut dyn FnMut(String),
    sent: &'a mut Sent,
    replaces: bool,
    is_strict: bool,
}

impl Importing<'_> {
    /// A file has keys in RDB format, commands, or keys with commands behind them.
    fn import(&mut self) -> Result<(), ImportError> {
        let begin = match self.input.begins_as_rdb()? {
            true => self.import_keys()?,
            false => 0,
        };
        // Each file begins with the first database.
        if begin < self.input.bytes {
            self.link.select(self.input, begin, 0)?;
            self.import_commands(begin)?;
        }
        Ok(())
    }
}
