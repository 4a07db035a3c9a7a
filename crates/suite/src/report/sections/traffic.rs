//! Figures 13 and 14: what the drive reads and writes over time at three standard deviations.

use super::Section;
use super::sweep::sigmas;
use crate::published;
use crate::report::chart::{Axis, Chart, Colour, Kind, Limit, Series, Unit};
use crate::report::figure;
use crate::report::table::{Cell, Table};
use crate::results::{Results, Round, Sample, Test};
use crate::rounds::median;

const COLOURS: [Colour; 3] = [Colour::Ram, Colour::Flash, Colour::Third];

type Rate = fn(&Sample) -> Option<f64>;

/// The section of the drive's traffic.
pub fn section(results: &Results) -> Section {
    let array = figure::bytes(published::ARRAY_READ_BYTES_PER_SECOND);
    let mut section = Section::new(
        "traffic",
        "Figures 13 and 14: what the drive does meanwhile",
        &format!(
            "Read and written a second, by the kernel's counters of the drive. Published: reads \
             are steady, up to the {array}/s of the array at \u{3c3} = 10 %; writes come in bursts."
        ),
    );
    let chosen = three(&sigmas(results));
    let limit = results.drive_limit.as_ref();
    let reads = limit.map(|limit| limit.reads_per_second * f64::from(limit.block_bytes));
    section.chart(chart("figure-13", "Figure 13: read from the drive", &chosen, reads, |sample| {
        sample.drive_read_bytes_per_second
    }));
    let writes = limit.map(|limit| limit.write_bytes_per_second);
    section.chart(chart(
        "figure-14",
        "Figure 14: written to the drive",
        &chosen,
        writes,
        |sample| sample.drive_write_bytes_per_second,
    ));
    if limit.is_none() {
        section.warnings.push("The limits of the drive were not measured in this run.".to_owned());
    }
    section.tables.push(table(&sigmas(results), reads, writes));
    section
}

/// Of those that ran about as long as the longest, the smallest, the middle and the largest: the
/// suite gives more time to those whose traffic is worth a look.
fn three<'a>(tests: &[(f64, &'a Test)]) -> Vec<(f64, &'a Round)> {
    let last_round = |(sigma, test): &(f64, &'a Test)| Some((*sigma, test.rounds.last()?));
    let mut rounds: Vec<(f64, &Round)> = tests.iter().filter_map(last_round).collect();
    let longest = rounds.iter().map(|(_, round)| round.seconds).fold(0.0, f64::max);
    rounds.retain(|(_, round)| !round.samples.is_empty() && round.seconds >= longest * 0.75);
    match rounds.len() {
        0..=3 => rounds,
        count => [0, count / 2, count - 1].map(|index| rounds[index]).to_vec(),
    }
}

fn chart(
    id: &'static str,
    title: &str,
    chosen: &[(f64, &Round)],
    limit: Option<f64>,
    rate: Rate,
) -> Chart {
    let series = chosen.iter().zip(COLOURS).map(|((sigma, round), colour)| {
        let points = round.samples.iter().map(|sample| (sample.second, rate(sample))).collect();
        Series::over_time(&format!("\u{3c3} {sigma} %"), colour, points)
    });
    Chart {
        series: series.filter(|series| !series.is_empty()).collect(),
        limits: limit
            .map(|y| Limit { name: "limit of the drive".to_owned(), y })
            .into_iter()
            .collect(),
        ..Chart::new(
            id,
            title,
            Kind::Lines,
            Axis::new("time, min:s", Unit::Seconds),
            Axis::new("throughput", Unit::Throughput),
        )
    }
}

fn table(tests: &[(f64, &Test)], reads: Option<f64>, writes: Option<f64>) -> Table {
    let head = ["\u{3c3}", "Read, median", "of the limit", "Written, median", "Written, peak"];
    let mut table = Table::new("Traffic of the drive by standard deviation", &head);
    let rate = |figure: f64| format!("{}/s", figure::bytes(figure));
    for (sigma, test) in tests {
        let rates = |rate: Rate| {
            let samples = test.rounds.iter().flat_map(|round| &round.samples);
            samples.filter_map(rate).collect::<Vec<f64>>()
        };
        let read = median(rates(|sample| sample.drive_read_bytes_per_second));
        let written = rates(|sample| sample.drive_write_bytes_per_second);
        let peak = written.iter().copied().reduce(f64::max);
        let share = |part: Option<f64>, whole: Option<f64>| Some(part? / whole?);
        let of_writes =
            share(peak, writes).map(|share| format!("{} of the limit", figure::percent(share)));
        table.rows.push(vec![
            Cell::text(format!("{sigma}\u{a0}%")),
            Cell::figure(read, rate),
            Cell::figure(share(read, reads), figure::percent),
            Cell::figure(median(written), rate),
            Cell::figure(peak, rate).below(of_writes.unwrap_or_default()),
        ]);
    }
    table
}
