//! The `kelvin` program: the database, and the tools around it. This file only finds out which one
//! is meant.

#![deny(unsafe_code)]

#[allow(unsafe_code, reason = "an allocator is unsafe by its trait")]
mod allocator;
#[allow(unsafe_code, reason = "jemalloc is asked by pointers")]
mod heap;

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::process::ExitCode;

use stdx::output::{complain, exit_code, print};

/// The memory budget counts in this allocator's size classes (see `.cargo/config.toml`).
#[global_allocator]
static ALLOCATOR: allocator::Allocator = allocator::Allocator;

/// Exit code when the standard output cannot be written.
const FAILURE: u8 = 1;

/// A command of the program.
struct Command {
    /// The words that name it.
    words: &'static [&'static str],
    /// What follows them.
    arguments: &'static str,
    /// What it is, in a line.
    about: &'static str,
    /// Takes what follows the words.
    run: fn(Vec<OsString>) -> ExitCode,
}

const COMMANDS: &[Command] = &[
    Command {
        words: &["server"],
        arguments: "[FILE] [--OPTION VALUE ...]",
        about: "the database, with options of redis.conf from a file or the command line",
        run: run_server,
    },
    Command {
        words: &["bench", "run"],
        arguments: "[OPTIONS]",
        about: "load a server, with the options of memtier_benchmark",
        run: bench::cli::main,
    },
    Command {
        words: &["bench", "suite"],
        arguments: "[OPTIONS]",
        about: "run the published benchmarks, scaled to this machine, and report",
        run: suite::run::main,
    },
    Command {
        words: &["bench", "report"],
        arguments: "RESULTS.json [-o FILE] [--csv FOLDER]",
        about: "make the report of a run again from its results",
        run: suite::cli::report,
    },
    Command {
        words: &["bench", "compare"],
        arguments: "A.json B.json [--format text|json|csv|html]",
        about: "set two runs side by side, and tell what may be chance",
        run: suite::cli::compare,
    },
    Command {
        words: &["import"],
        arguments: "FILE|DIRECTORY [OPTIONS]",
        about: "send what a Redis has saved to a running server: an RDB file, an append-only log",
        run: import::main,
    },
    Command {
        words: &["check"],
        arguments: "[--repair] [FILE] [--OPTION VALUE ...]",
        about: "look whether what a server has kept is whole: journal, snapshot, values on flash",
        run: server::check::main,
    },
    Command {
        words: &["plan"],
        arguments: "endurance|size [OPTIONS]",
        about: "drive life, and what a data set needs beside a deployment that is all RAM",
        run: plan::main,
    },
];

fn main() -> ExitCode {
    let words: Vec<OsString> = std::env::args_os().skip(1).collect();
    let named = |command: &&Command| {
        command.words.len() <= words.len()
            && command.words.iter().zip(&words).all(|(name, word)| word == name)
    };
    if let Some(command) = COMMANDS.iter().find(named) {
        return (command.run)(words[command.words.len()..].to_vec());
    }
    match words.last().and_then(|word| word.to_str()) {
        Some("--version" | "-v") => say(&version()),
        Some("--help" | "-h") => say(&usage()),
        _ => {
            complain("kelvin", format_args!("which command?\n\n{}", usage().trim_end()));
            ExitCode::FAILURE
        }
    }
}

/// Prints the answer to a question about the program.
fn say(text: &str) -> ExitCode {
    exit_code("kelvin", print(text), FAILURE)
}

/// A line in the form of `redis-server --version`, which programs look for `v=` in.
fn version() -> String {
    format!("Kelvin server v={} malloc=jemalloc bits={}\n", env!("CARGO_PKG_VERSION"), usize::BITS)
}

fn usage() -> String {
    let mut text = String::from(
        "Kelvin, a Redis-compatible database whose data set spans RAM and flash.\n\nUsage:\n",
    );
    for command in COMMANDS {
        let words = command.words.join(" ");
        text += &format!("  kelvin {words} {}\n      {}\n", command.arguments, command.about);
    }
    text + "\nFor example:\n  \
        kelvin server --port 6379 --maxmemory 1gb --flash-path /mnt/nvme0 --flash-size 16gb\n"
}

const SERVER_HELP: &str = "\
Usage: kelvin server [FILE] [--OPTION VALUE ...]

The options are those of redis.conf, in FILE or on the command line, which wins. Most wanted:
  --port NUMBER            where clients connect; 6379
  --maxmemory SIZE         RAM that the server may use, such as 1gb
  --flash-path DIRECTORY   where values go that find no room in RAM; several with spaces between
  --flash-size SIZE        how much flash they may use
  --maxmemory-policy NAME  what to evict when there is no room at all; noeviction
  --workers NUMBER         threads; one for each core
CONFIG GET * lists all options of a running server.

For example:
  kelvin server /etc/kelvin.conf --port 6380
  kelvin server --maxmemory 1gb --flash-path /mnt/nvme0 --flash-size 16gb

  kelvin server --help | -h
  kelvin server --version | -v
";

fn run_server(words: Vec<OsString>) -> ExitCode {
    if let [word] = &words[..] {
        match word.to_str() {
            Some("--version" | "-v") => return say(&version()),
            Some("--help" | "-h") => return say(SERVER_HELP),
            _ => {}
        }
    }
    let arguments: Vec<Vec<u8>> = words.into_iter().map(OsString::into_vec).collect();
    let heap = heap::Jemalloc::new().map(|heap| Box::new(heap) as Box<dyn keyspace::Heap>);
    match server::run(&arguments, heap) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            complain("kelvin", format_args!("{error:#}"));
            ExitCode::FAILURE
        }
    }
}
