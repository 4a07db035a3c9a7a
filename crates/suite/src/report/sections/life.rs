//! Table 2: how long a drive would live at the write rates of this run.

use super::Section;

use crate::report::table::{Cell, Table};
use crate::results::{Results, Test};

/// Endurance ratings of the published table, in petabytes written.
const RATINGS_PBW: [f64; 6] = [10.0, 15.0, 20.0, 30.0, 35.0, 40.0];
const MIB: f64 = (1u64 << 20) as f64;

/// The section of the drive's life.
pub fn section(results: &Results) -> Section {
    let mut section = Section::new(
        "table-2",
        "Table 2: drive life at these write rates",
        "Years until a drive of the given rating (petabytes written, PBW) is worn out if a test \
         ran on for ever, at its mean write rate by the kernel's counters of the drive. Published: \
         from 12.1 years (100 MiB/s, 40 PBW) down to 0.6 (500 MiB/s, 10 PBW).",
    );
    let mut head = vec!["Test".to_owned(), "Written, mean".to_owned()];
    head.extend(RATINGS_PBW.iter().map(|rating| format!("{rating} PBW")));
    let mut table = Table::new("Years of life", &[]);
    table.head = head;
    table.rows = results.tests.iter().filter_map(row).collect();
    if table.rows.is_empty() {
        section.warnings.push("The writes of the drive were not measured.".to_owned());
    } else {
        section.tables.push(table);
    }
    section
}

fn row(test: &Test) -> Option<Vec<Cell>> {
    let rate = mean_write_rate(test)?;
    let mut row = vec![
        Cell::text(&test.title).marked(&[Some(test)]),
        Cell::figure(Some(rate / MIB), |mib| format!("{mib:.1}\u{a0}MiB/s")),
    ];
    row.extend(RATINGS_PBW.map(|rating| Cell::figure(years(rating, rate), years_text)));
    Some(row)
}

/// Over all samples, bursts and pauses alike.
fn mean_write_rate(test: &Test) -> Option<f64> {
    let samples = test.rounds.iter().flat_map(|round| &round.samples);
    let rates: Vec<f64> =
        samples.filter_map(|sample| sample.drive_write_bytes_per_second).collect();
    (!rates.is_empty()).then(|| rates.iter().sum::<f64>() / rates.len() as f64)
}

/// None for a drive that is not written to: it lives for ever.
fn years(rating_pbw: f64, rate: f64) -> Option<f64> {
    (rate > 0.0).then(|| plan::endurance::years(rating_pbw, rate))
}

fn years_text(years: f64) -> String {
    if years > 100.0 { "over 100".to_owned() } else { format!("{years:.2}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lives_are_those_of_the_published_table() {
        let cases = [
            (10.0, 100.0, "3.02"),
            (40.0, 100.0, "12.10"),
            (30.0, 300.0, "3.02"),
            (10.0, 500.0, "0.60"),
        ];
        for (rating, rate, expected) in cases {
            assert_eq!(years(rating, rate * MIB).map(years_text).as_deref(), Some(expected));
        }
        assert_eq!(years(10.0, 0.0), None);
    }
}
