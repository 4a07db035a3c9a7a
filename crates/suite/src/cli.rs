//! The command lines of `kelvin bench report` and `kelvin bench compare`.

use std::ffi::OsString;
use std::io::{self, Write};
use std::iter;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Parser, ValueEnum};
use stdx::output::{complain, exit_code, print};

use crate::compare::{self, Comparison, Row, rule};
use crate::read::{ReadError, read};
use crate::report::{self, ReportError};

/// Makes the report of a run again from its results.
#[derive(Debug, Clone, Parser)]
#[command(name = "kelvin bench report", version)]
pub struct ReportOptions {
    /// What `kelvin bench suite` left: results.json.
    pub results: PathBuf,
    /// Where the page goes.
    #[arg(short, long, default_value = "report.html")]
    pub output: PathBuf,
    /// Also write tests.csv, samples.csv and comparisons.csv into this folder.
    #[arg(long, value_name = "FOLDER")]
    pub csv: Option<PathBuf>,
}

/// Sets two runs side by side: medians over the rounds, their ratio, and whether the difference
/// may be chance (exact sign test over the paired rounds, which needs at least six of them:
/// `--rounds 6` of `kelvin bench suite`).
#[derive(Debug, Clone, Parser)]
#[command(name = "kelvin bench compare", version)]
pub struct CompareOptions {
    /// Results of the first run: the file or its folder.
    pub a: PathBuf,
    /// Results of the second run: the file or its folder.
    pub b: PathBuf,
    /// How to print it.
    #[arg(long, value_enum, default_value_t)]
    pub format: Format,
}

/// How a comparison is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum Format {
    /// A table for people.
    #[default]
    Text,
    /// JSON.
    Json,
    /// CSV, a row a figure.
    Csv,
    /// A page that needs nothing else.
    Html,
}

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CliError {
    /// The results cannot be used.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The report cannot be written.
    #[error(transparent)]
    Report(#[from] ReportError),
    /// The comparison cannot be written.
    #[error("standard output: {0}")]
    Output(#[from] io::Error),
}

/// Bad usage.
const BAD_USAGE: u8 = 2;

/// `kelvin bench report`: says where the files are.
pub fn report(words: Vec<OsString>) -> ExitCode {
    run("kelvin bench report", words, |options: ReportOptions| {
        let paths = make_report(&options)?;
        let lines: Vec<String> = paths.iter().map(|path| format!("{}\n", path.display())).collect();
        Ok(print(lines.concat())?)
    })
}

/// `kelvin bench compare`.
pub fn compare(words: Vec<OsString>) -> ExitCode {
    run("kelvin bench compare", words, |options: CompareOptions| {
        let mut text = Vec::new();
        write_comparison(&options, &mut text)?;
        Ok(print(text)?)
    })
}

fn run<Options: Parser>(
    name: &str,
    words: Vec<OsString>,
    command: impl Fn(Options) -> Result<(), CliError>,
) -> ExitCode {
    let options = match Options::try_parse_from(iter::once(OsString::from(name)).chain(words)) {
        Ok(options) => options,
        // The text of --help goes to the standard output, a complaint to the other.
        Err(error) if !error.use_stderr() => return exit_code(name, error.print(), BAD_USAGE),
        Err(error) => {
            let _ = error.print();
            return ExitCode::from(BAD_USAGE);
        }
    };
    match command(options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            complain(name, error);
            ExitCode::FAILURE
        }
    }
}

/// Makes the report again, and answers what was written.
///
/// Errors: results that cannot be used, files that cannot be written.
pub fn make_report(options: &ReportOptions) -> Result<Vec<PathBuf>, CliError> {
    let results = read(&options.results)?;
    report::write_html(&results, &options.output)?;
    let mut paths = vec![options.output.clone()];
    if let Some(folder) = &options.csv {
        paths.extend(report::write_csv(&results, folder)?);
    }
    Ok(paths)
}

/// Writes the comparison.
///
/// Errors: results that cannot be used, output that cannot be written.
pub fn write_comparison(options: &CompareOptions, to: &mut impl Write) -> Result<(), CliError> {
    let comparison = compare::compare(&read(&options.a)?, &read(&options.b)?);
    match options.format {
        Format::Text => text(&comparison, (&options.a, &options.b), to)?,
        Format::Json => {
            serde_json::to_writer_pretty(&mut *to, &comparison).map_err(io::Error::from)?;
            writeln!(to)?;
        }
        Format::Csv => csv(&comparison, to)?,
        Format::Html => {
            let (a, b) = (options.a.to_string_lossy(), options.b.to_string_lossy());
            to.write_all(report::comparison_html(&comparison, &a, &b).as_bytes())?;
        }
    }
    Ok(())
}

fn csv(comparison: &Comparison, to: &mut impl Write) -> io::Result<()> {
    let mut rows = ::csv::Writer::from_writer(to);
    for row in &comparison.rows {
        rows.serialize(row).map_err(io::Error::other)?;
    }
    rows.flush()
}

fn text(comparison: &Comparison, (a, b): (&Path, &Path), to: &mut impl Write) -> io::Result<()> {
    writeln!(to, "a: {}\nb: {}\n", a.display(), b.display())?;
    for mismatch in &comparison.mismatches {
        writeln!(to, "note: {mismatch}")?;
    }
    if !comparison.mismatches.is_empty() {
        writeln!(to)?;
    }
    writeln!(
        to,
        "{:<14} {:<16} {:>10} {:>10} {:>6} {:>6} {:>7}  verdict",
        "test", "figure", "a", "b", "b/a", "rounds", "chance"
    )?;
    let mut last = "";
    for row in &comparison.rows {
        let test = if row.test == last { "" } else { &row.test };
        last = &row.test;
        writeln!(to, "{}", line(test, row))?;
    }
    writeln!(to, "\n{}", rule())
}

fn line(test: &str, row: &Row) -> String {
    let figure = |figure: Option<f64>| figure.map_or("-".to_owned(), number);
    let rounds = if row.a_rounds == row.b_rounds {
        row.a_rounds.to_string()
    } else {
        format!("{}/{}", row.a_rounds, row.b_rounds)
    };
    let ratio = row.ratio.map_or("-".to_owned(), |ratio| format!("{ratio:.3}"));
    let chance = row.chance.map_or("-".to_owned(), |chance| format!("{:.1} %", chance * 100.0));
    let verdict = row.verdict.text();
    format!(
        "{test:<14} {:<16} {:>10} {:>10} {ratio:>6} {rounds:>6} {chance:>7}  {verdict}",
        row.figure,
        figure(row.a),
        figure(row.b),
    )
}

/// Whole operations, and milliseconds to the microsecond.
fn number(figure: f64) -> String {
    if figure >= 1000.0 { format!("{figure:.0}") } else { format!("{figure:.3}") }
}
