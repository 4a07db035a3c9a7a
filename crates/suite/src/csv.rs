//! Results as CSV, tidy: one row an observation, one file a kind of observation.
//!
//! Invariants:
//!
//! 1. Columns have the names of the results' fields, units included; what is unknown is empty.
//! 2. `test` and `round` (from 1) join the files.
//! 3. Of what has no rows the file is empty.

use std::io::Write;

use serde::Serialize;

use crate::results::{Results, Round, Sample, State, Test};

/// A test or, if it has any, one of its rounds.
#[derive(Serialize)]
struct TestRow<'a> {
    test: &'a str,
    title: &'a str,
    publication: &'a str,
    state: &'static str,
    failure: Option<&'a str>,
    smoke: bool,
    round: Option<usize>,
    seconds: Option<f64>,
    ops_per_second: Option<f64>,
    average_ms: Option<f64>,
    p50_ms: Option<f64>,
    p99_ms: Option<f64>,
    p99_9_ms: Option<f64>,
    max_ms: Option<f64>,
    share_under_1_ms: Option<f64>,
    ram_hit_ratio: Option<f64>,
    write_ram_hit_ratio: Option<f64>,
    server_cpu_seconds: Option<f64>,
    others_cpu_seconds: Option<f64>,
    errors: Option<u64>,
}

/// Tests and their rounds. A test without rounds has one row, with its state.
///
/// Errors: what the writer answers.
pub fn tests(results: &Results, to: &mut impl Write) -> Result<(), csv::Error> {
    let mut rows = csv::Writer::from_writer(to);
    for test in &results.tests {
        if test.rounds.is_empty() {
            rows.serialize(test_row(results, test, None))?;
        }
        for round in test.rounds.iter().enumerate() {
            rows.serialize(test_row(results, test, Some(round)))?;
        }
    }
    Ok(rows.flush()?)
}

fn test_row<'a>(results: &Results, test: &'a Test, round: Option<(usize, &Round)>) -> TestRow<'a> {
    let (state, failure) = state(&test.state);
    let index = round.map(|(index, _)| index);
    let round = round.map(|(_, round)| round);
    let latency = round.map(|round| round.latency);
    TestRow {
        test: &test.id,
        title: &test.title,
        publication: &test.publication,
        state,
        failure,
        smoke: results.setting.smoke,
        round: index.map(|index| index + 1),
        seconds: round.map(|round| round.seconds),
        ops_per_second: round.map(|round| round.ops_per_second),
        average_ms: latency.map(|latency| latency.average_ms),
        p50_ms: latency.map(|latency| latency.p50_ms),
        p99_ms: latency.map(|latency| latency.p99_ms),
        p99_9_ms: latency.map(|latency| latency.p99_9_ms),
        max_ms: latency.map(|latency| latency.max_ms),
        share_under_1_ms: round.and_then(|round| round.share_under_1_ms),
        ram_hit_ratio: round.and_then(|round| round.ram_hit_ratio),
        write_ram_hit_ratio: round.and_then(|round| round.write_ram_hit_ratio),
        server_cpu_seconds: round.and_then(|round| round.server_cpu_seconds),
        others_cpu_seconds: round.and_then(|round| round.others_cpu_seconds),
        errors: round.map(|round| round.errors),
    }
}

fn state(state: &State) -> (&'static str, Option<&str>) {
    match state {
        State::Done => ("done", None),
        State::Partial => ("partial", None),
        State::Pending => ("pending", None),
        State::Failed(why) => ("failed", Some(why)),
    }
}

/// A sample, and what it is of. The fields of [`Sample`] again, since CSV cannot nest them.
#[derive(Serialize)]
struct SampleRow<'a> {
    test: &'a str,
    round: usize,
    second: f64,
    ops_per_second: f64,
    resident_bytes: Option<u64>,
    index_bytes: Option<u64>,
    value_bytes: Option<u64>,
    buffer_bytes: Option<u64>,
    keys: Option<u64>,
    values_in_ram: Option<u64>,
    values_in_flash: Option<u64>,
    ram_hit_ratio: Option<f64>,
    flash_used_bytes: Option<u64>,
    drive_read_bytes_per_second: Option<f64>,
    drive_write_bytes_per_second: Option<f64>,
    drive_reads_per_second: Option<f64>,
}

/// The samples of all rounds.
///
/// Errors: what the writer answers.
pub fn samples(results: &Results, to: &mut impl Write) -> Result<(), csv::Error> {
    let mut rows = csv::Writer::from_writer(to);
    for test in &results.tests {
        for (index, round) in test.rounds.iter().enumerate() {
            for sample in &round.samples {
                rows.serialize(sample_row(&test.id, index + 1, sample))?;
            }
        }
    }
    Ok(rows.flush()?)
}

fn sample_row<'a>(test: &'a str, round: usize, sample: &Sample) -> SampleRow<'a> {
    SampleRow {
        test,
        round,
        second: sample.second,
        ops_per_second: sample.ops_per_second,
        resident_bytes: sample.resident_bytes,
        index_bytes: sample.index_bytes,
        value_bytes: sample.value_bytes,
        buffer_bytes: sample.buffer_bytes,
        keys: sample.keys,
        values_in_ram: sample.values_in_ram,
        values_in_flash: sample.values_in_flash,
        ram_hit_ratio: sample.ram_hit_ratio,
        flash_used_bytes: sample.flash_used_bytes,
        drive_read_bytes_per_second: sample.drive_read_bytes_per_second,
        drive_write_bytes_per_second: sample.drive_write_bytes_per_second,
        drive_reads_per_second: sample.drive_reads_per_second,
    }
}

/// The figures beside the published ones.
///
/// Errors: what the writer answers.
pub fn comparisons(results: &Results, to: &mut impl Write) -> Result<(), csv::Error> {
    let mut rows = csv::Writer::from_writer(to);
    for comparison in &results.comparisons {
        rows.serialize(comparison)?;
    }
    Ok(rows.flush()?)
}
