//! The report of a run: one HTML file that needs nothing else, and CSV beside it.
//!
//! Tables and text are written here, so that they can be read without scripts; charts are handed to
//! `templates/charts.js` as JSON. Invariants:
//!
//! 1. The page asks for nothing: its content policy forbids every request.
//! 2. Text of a results file is escaped, in HTML by the template, in JSON here.
//! 3. What is missing, partial, failed or of a smoke run says so where its figure would be.

mod chart;
mod comparison;
mod figure;
mod sections;
mod summary;
mod table;

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use askama::Template;

use crate::csv;
use crate::results::Results;
use chart::Chart;
pub use comparison::comparison_html;
use sections::{Section, corners, fill, life, run, sweep, traffic, workloads};
use summary::{Summary, summary};

/// Of both pages.
const STYLE: &str = include_str!("../../templates/style.css");

/// Why a report could not be written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReportError {
    /// A file cannot be written.
    #[error("{}: {error}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system says.
        error: io::Error,
    },
    /// A CSV file cannot be written.
    #[error("{}: {error}", path.display())]
    Csv {
        /// The file.
        path: PathBuf,
        /// What went wrong.
        error: ::csv::Error,
    },
}

#[derive(Template)]
#[template(path = "report.html")]
struct Page<'a> {
    style: &'static str,
    scripts: [&'static str; 2],
    charts: String,
    results: &'a Results,
    started: String,
    ram: String,
    flash: String,
    summary: Summary,
    sections: Vec<Section>,
}

/// The report as HTML.
pub fn html(results: &Results) -> String {
    let sections = vec![
        corners::section(results),
        sweep::section(results),
        traffic::section(results),
        fill::section(results),
        life::section(results),
        workloads::small(results),
        workloads::growth(results),
        workloads::centre(results),
        run::comparisons(results),
        run::tests(results),
        run::machine(results),
    ];
    let charts: Vec<&Chart> = sections.iter().flat_map(|section| &section.charts).collect();
    let page = Page {
        style: STYLE,
        scripts: [
            include_str!("../../templates/figures.js"),
            include_str!("../../templates/charts.js"),
        ],
        charts: embedded_json(&charts),
        results,
        started: figure::moment(results.started_unix_ms),
        ram: figure::bytes(results.setting.ram_bytes as f64),
        flash: figure::bytes(results.setting.flash_bytes as f64),
        summary: summary(results),
        sections,
    };
    page.render().expect("the template only writes to a string")
}

/// JSON that cannot end the script element it stands in.
fn embedded_json(charts: &[&Chart]) -> String {
    let json = serde_json::to_string(charts).expect("charts have no maps with odd keys");
    json.replace('<', "\\u003c")
}

/// Writes `report.html`, `tests.csv`, `samples.csv` and `comparisons.csv` into a folder, and says
/// where they are.
///
/// Errors: a file that cannot be written.
pub fn write(results: &Results, folder: &Path) -> Result<Vec<PathBuf>, ReportError> {
    let page = folder.join("report.html");
    write_html(results, &page)?;
    let mut paths = vec![page];
    paths.extend(write_csv(results, folder)?);
    Ok(paths)
}

/// Writes the report to a file.
///
/// Errors: a file that cannot be written.
pub fn write_html(results: &Results, path: &Path) -> Result<(), ReportError> {
    let path = path.to_owned();
    std::fs::write(&path, html(results)).map_err(|error| ReportError::Io { path, error })
}

/// Writes `tests.csv`, `samples.csv` and `comparisons.csv` into a folder.
///
/// Errors: a file that cannot be written.
pub fn write_csv(results: &Results, folder: &Path) -> Result<Vec<PathBuf>, ReportError> {
    type Write = fn(&Results, &mut File) -> Result<(), ::csv::Error>;
    let files: [(&str, Write); 3] = [
        ("tests.csv", csv::tests),
        ("samples.csv", csv::samples),
        ("comparisons.csv", csv::comparisons),
    ];
    let write = |(name, write): (&str, Write)| {
        let path = folder.join(name);
        match File::create(&path) {
            Err(error) => Err(ReportError::Io { path, error }),
            Ok(mut file) => match write(results, &mut file) {
                Err(error) => Err(ReportError::Csv { path, error }),
                Ok(()) => Ok(path),
            },
        }
    };
    files.into_iter().map(write).collect()
}
