//! What a deployment needs before there is one: `kelvin plan endurance` tells how long drives
//! live, `kelvin plan size` how much RAM, flash, nodes and money a data set takes.
//!
//! [`units`] reads what people write, [`table`] prints; [`endurance`] and [`size`] are the two
//! commands. [`measure`] looks at a running server, [`memory_model`] says what keys and values
//! take, [`popularity`] how accesses spread over them, and [`policy`] what Kelvin's demotion makes
//! of that.
//!
//! Invariant: nothing here touches a server beyond asking `INFO` and `CONFIG GET`.

#![forbid(unsafe_code)]

use std::ffi::OsString;
use std::process::ExitCode;

use stdx::output::{complain, exit_code, print};

use clap::error::ErrorKind;
use clap::{Parser, Subcommand};
use serde::Serialize;

pub mod endurance;
pub mod measure;
pub mod memory_model;
pub mod policy;
pub mod popularity;
pub mod report;
pub mod size;
pub mod table;
pub mod units;

/// The program, as it calls itself.
const PROGRAM: &str = "kelvin plan";
/// Exit code of every failure.
const FAILURE: u8 = 1;

/// Why there is no plan.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// The options contradict each other, or ask for what cannot be.
    #[error("{0}")]
    Options(String),
    /// A server could not be measured.
    #[error("{address}: {what}")]
    Server {
        /// Host and port.
        address: String,
        /// What went wrong.
        what: String,
    },
}

/// Plans a deployment of Kelvin.
#[derive(Debug, Parser)]
#[command(name = "kelvin plan", version, disable_help_subcommand = true)]
struct Line {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// How long drives live at a write rate, and which rating they need.
    Endurance(endurance::Options),
    /// What a data set needs: RAM, flash, nodes, drives and money, beside all in RAM.
    Size(Box<size::Options>),
}

/// Runs `kelvin plan` with what stands behind it on the command line. Failures are one line on
/// standard error.
pub fn main(arguments: Vec<OsString>) -> ExitCode {
    let name = OsString::from(PROGRAM);
    let line = match Line::try_parse_from(std::iter::once(name).chain(arguments)) {
        Ok(line) => line,
        Err(error) if !error.use_stderr() => return exit_code(PROGRAM, error.print(), FAILURE),
        Err(error) if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            return fail("which plan, endurance or size? --help tells about both");
        }
        Err(error) => return fail(&one_line(&error.to_string())),
    };
    let result = match &line.command {
        Command::Endurance(options) => endurance::run(options),
        Command::Size(options) => size::run(options),
    };
    match result {
        Ok(text) => exit_code(PROGRAM, print(text), FAILURE),
        Err(error) => fail(&error.to_string()),
    }
}

fn fail(what: &str) -> ExitCode {
    complain(PROGRAM, what);
    ExitCode::from(FAILURE)
}

/// The first paragraph of an error of clap's, which says all; usage and tips follow it.
fn one_line(error: &str) -> String {
    let paragraph = error.split("\n\n").next().unwrap_or_default();
    let words: Vec<&str> = paragraph.split_whitespace().collect();
    words.join(" ").trim_start_matches("error: ").to_owned()
}

fn json(result: &impl Serialize) -> String {
    let text = serde_json::to_string_pretty(result);
    text.expect("invariant: results are numbers and texts by name") + "\n"
}

/// To so many decimals, so that JSON says what is printed.
fn rounded(value: f64, decimals: i32) -> f64 {
    let scale = 10f64.powi(decimals);
    (value * scale).round() / scale
}
