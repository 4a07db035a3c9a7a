//! The load generator as a program of its own. It exits with 1 when anything was wrong, so that a
//! script need not read the report.

use bench::Options;
use clap::Parser;
use std::process::ExitCode;

/// Loads a Redis-compatible server and checks what it answers.
#[derive(Parser)]
#[command(name = "kelvin-load", version, args_override_self = true)]
struct Line {
    #[command(flatten)]
    options: Options,
}

fn main() -> ExitCode {
    let line = Line::parse();
    let report = match bench::run(&line.options) {
        Ok(report) => report,
        Err(error) => {
            eprintln!("kelvin-load: {error}");
            return ExitCode::from(2);
        }
    };
    print!("{report}");
    if let Some(path) = &line.options.json_out_file
        && let Err(error) = std::fs::write(path, report.to_json())
    {
        eprintln!("kelvin-load: cannot write {}: {error}", path.display());
        return ExitCode::from(2);
    }
    if report.is_flawless() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
