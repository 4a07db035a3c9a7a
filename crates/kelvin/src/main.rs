//! The `kelvin` program: the database, and the tools around it. This file only finds out which one
//! is meant.

mod allocator;
mod heap;

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::process::ExitCode;

/// The memory budget counts in this allocator's size classes (see `.cargo/config.toml`).
#[global_allocator]
static ALLOCATOR: allocator::Allocator = allocator::Allocator;

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
    match words.first().and_then(|word| word.to_str()) {
        Some("--version" | "-v") => {
            println!("kelvin {}", env!("CARGO_PKG_VERSION"));
            ExitCode::SUCCESS
        }
        Some("--help" | "-h") => {
            print!("{}", usage());
            ExitCode::SUCCESS
        }
        _ => {
            eprint!("{}", usage());
            ExitCode::FAILURE
        }
    }
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

fn run_server(words: Vec<OsString>) -> ExitCode {
    let arguments: Vec<Vec<u8>> = words.into_iter().map(OsString::into_vec).collect();
    let heap = heap::Jemalloc::new().map(|heap| Box::new(heap) as Box<dyn keyspace::Heap>);
    match server::run(&arguments, heap) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("kelvin: {error:#}");
            ExitCode::FAILURE
        }
    }
}
