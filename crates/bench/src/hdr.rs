//! Latencies as HDR histograms that other programs read, in microseconds as memtier_benchmark has
//! them: compressed text in the JSON, and with `--hdr-file-prefix` two files of each run and command.

use crate::LoadError;
use crate::report::{Report, Run};
use crate::stats::{Row, latency_histogram};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::interval_log::IntervalLogWriterBuilder;
use hdrhistogram::serialization::{Serializer, V2DeflateSerializer};
use std::fmt::Write;
use std::io;
use std::time::Duration;

/// Steps of the distribution in each half of what remains above a percentile.
const DISTRIBUTION_STEPS: u32 = 5;
const US_PER_MS: f64 = 1000.0;

/// The histogram of a row as compressed text.
pub fn compressed(row: &Row) -> Option<String> {
    let mut bytes = Vec::new();
    V2DeflateSerializer::new().serialize(&latencies_us(row), &mut bytes).ok()?;
    Some(STANDARD.encode(bytes))
}

/// A file that [`write_files`] writes whatever the load does.
pub fn first_file(prefix: &str) -> String {
    format!("{prefix}_FULL_RUN_1.txt")
}

/// Writes, of each run and command, the distribution as text (`.txt`) and the histogram as a log
/// (`.hgrm`) to files whose names begin with `prefix`.
///
/// Errors: [`LoadError::File`].
pub fn write_files(report: &Report, prefix: &str) -> Result<(), LoadError> {
    for (index, run) in report.runs.iter().enumerate() {
        let number = index + 1;
        write_pair(&format!("{prefix}_FULL_RUN_{number}"), &run.stats.totals(), run)?;
        for (place, row) in run.stats.rows.iter().enumerate().filter(|(_, row)| row.count() > 0) {
            let kind = report.kind(place);
            write_pair(&format!("{prefix}_{kind}_command_run_{number}"), row, run)?;
        }
    }
    Ok(())
}

fn write_pair(name: &str, row: &Row, run: &Run) -> Result<(), LoadError> {
    let latencies = latencies_us(row);
    let write = |path: String, bytes: io::Result<Vec<u8>>| {
        bytes
            .and_then(|bytes| std::fs::write(&path, bytes))
            .map_err(|source| LoadError::File { path, source })
    };
    write(format!("{name}.txt"), Ok(distribution(&latencies).into_bytes()))?;
    write(format!("{name}.hgrm"), interval_log(&latencies, run))
}

/// The latencies in microseconds.
fn latencies_us(row: &Row) -> Histogram<u64> {
    let mut latencies = latency_histogram();
    for step in row.latency_ns.iter_recorded() {
        latencies.saturating_record_n(step.value_iterated_to() / 1000, step.count_at_value());
    }
    latencies
}

/// The classic text of a histogram: milliseconds, percentile, count, and the inverse of what remains.
fn distribution(latencies: &Histogram<u64>) -> String {
    let mut text = String::new();
    let _ = writeln!(
        text,
        "{:>12} {:>14} {:>10} {:>14}\n",
        "Value", "Percentile", "TotalCount", "1/(1-Percentile)"
    );
    let mut total = 0;
    for step in latencies.iter_quantiles(DISTRIBUTION_STEPS) {
        total += step.count_since_last_iteration();
        let (value_ms, quantile) =
            (step.value_iterated_to() as f64 / US_PER_MS, step.quantile_iterated_to());
        let _ = write!(text, "{value_ms:>12.3} {quantile:>14.12} {total:>10}");
        if quantile < 1.0 {
            let _ = write!(text, " {:>14.2}", 1.0 / (1.0 - quantile));
        }
        text.push('\n');
    }
    let (mean_ms, deviation_ms) = (latencies.mean() / US_PER_MS, latencies.stdev() / US_PER_MS);
    let max_ms = latencies.max() as f64 / US_PER_MS;
    let _ = writeln!(text, "#[Mean    = {mean_ms:>12.3}, StdDeviation   = {deviation_ms:>12.3}]");
    let _ = writeln!(text, "#[Max     = {max_ms:>12.3}, Total count    = {:>12}]", latencies.len());
    text
}

/// The log that HdrHistogram's programs read, with one interval: the run.
fn interval_log(latencies: &Histogram<u64>, run: &Run) -> io::Result<Vec<u8>> {
    let (mut bytes, mut serializer) = (Vec::new(), V2DeflateSerializer::new());
    let mut log = IntervalLogWriterBuilder::new()
        .with_start_time(run.started)
        .begin_log_with(&mut bytes, &mut serializer)?;
    log.write_histogram(latencies, Duration::ZERO, Duration::from_secs_f64(run.seconds), None)
        .map_err(|error| io::Error::other(format!("{error:?}")))?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::report;
    use crate::stats::{Replies, Stats};

    fn stats() -> Stats {
        let mut stats = Stats::new(3);
        let replies = Replies { count: 3, latency_ns: 5_000_000, received_bytes: 0 };
        stats.rows[0].received(replies, 0);
        stats
    }

    #[test]
    fn histograms_are_in_microseconds() {
        let latencies = latencies_us(&stats().rows[0]);
        assert_eq!(latencies.len(), 3);
        assert!(latencies.max().abs_diff(5000) < 5);
        assert!(compressed(&stats().rows[0]).is_some_and(|text| text.starts_with("HISTF")));
        let text = distribution(&latencies);
        assert!(text.contains("5.003 1.000000000000          3"), "{text}");
    }

    #[test]
    fn each_command_that_was_sent_has_its_files() {
        let folder = std::env::temp_dir().join(format!("kelvin-hdr-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        let prefix = folder.join("a").display().to_string();
        write_files(&report("", stats()), &prefix).expect("files");
        let mut names: Vec<String> = std::fs::read_dir(&folder)
            .expect("a folder")
            .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        let log = std::fs::read_to_string(format!("{prefix}_FULL_RUN_1.hgrm")).expect("a log");
        std::fs::remove_dir_all(&folder).expect("a folder to remove");
        assert_eq!(
            names,
            [
                "a_FULL_RUN_1.hgrm",
                "a_FULL_RUN_1.txt",
                "a_SET_command_run_1.hgrm",
                "a_SET_command_run_1.txt"
            ]
        );
        assert!(log.contains("HISTF"), "{log}");
    }
}
