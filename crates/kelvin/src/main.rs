//! The `kelvin` program: `kelvin server` runs the database.

mod allocator;

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::process::ExitCode;

/// The memory budget counts in this allocator's size classes (see `.cargo/config.toml`).
#[global_allocator]
static ALLOCATOR: allocator::Allocator = allocator::Allocator;

const USAGE: &str = "\
Kelvin, a Redis-compatible database whose data set spans RAM and flash.

Usage: kelvin server [FILE] [--OPTION VALUE ...]

  FILE      a configuration file in redis.conf's syntax
  --OPTION  any option of such a file, for example:

  kelvin server --port 6379 --maxmemory 1gb --flash-path /mnt/nvme0 --flash-size 16gb
";

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1).map(OsString::into_vec);
    match arguments.next().as_deref() {
        Some(b"server") => {
            let arguments: Vec<Vec<u8>> = arguments.collect();
            match server::run(&arguments) {
                Ok(()) => ExitCode::SUCCESS,
                Err(error) => {
                    eprintln!("kelvin: {error:#}");
                    ExitCode::FAILURE
                }
            }
        }
        Some(b"--version" | b"-v") => {
            println!("kelvin {}", env!("CARGO_PKG_VERSION"));
            ExitCode::SUCCESS
        }
        Some(b"--help" | b"-h") => {
            print!("{USAGE}");
            ExitCode::SUCCESS
        }
        _ => {
            eprint!("{USAGE}");
            ExitCode::FAILURE
        }
    }
}
