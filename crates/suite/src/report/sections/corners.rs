//! Table 1: reads, writes and both, with all values from RAM and with nearly all from flash.

use super::Section;
use crate::published;
use crate::report::chart::{Axis, Chart, Colour, Kind, Series, Unit};
use crate::report::figure;
use crate::report::table::{Cell, Table, doubt};
use crate::results::{Results, Round, Test};

/// A row of Table 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Corner {
    /// What is done.
    pub name: &'static str,
    /// Id of the test with the maximum RAM hit ratio.
    pub ram: &'static str,
    /// Id of the test with the minimum.
    pub flash: &'static str,
}

/// The rows of Table 1.
pub const CORNERS: [Corner; 3] = [
    Corner { name: "GET", ram: "get-max", flash: "get-min" },
    Corner { name: "SET", ram: "set-max", flash: "set-min" },
    Corner { name: "70/30 GET/SET", ram: "mix-max", flash: "mix-min" },
];

/// Flash against RAM: what is left of the throughput, and what becomes of the latency.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Delta {
    /// Throughput from flash by that from RAM.
    pub throughput: f64,
    /// Mean latency from flash by that from RAM.
    pub latency: Option<f64>,
}

impl Corner {
    /// Its two tests.
    pub fn tests(self, results: &Results) -> [Option<&Test>; 2] {
        [self.ram, self.flash].map(|id| results.test(id))
    }

    /// Its name, with why its figures are to be doubted.
    fn marked_name(&self, results: &Results) -> String {
        match doubt(&self.tests(results)) {
            Some(doubt) => format!("{} ({doubt})", self.name),
            None => self.name.to_owned(),
        }
    }

    /// In this run, if both of its tests were run.
    pub fn ours(self, results: &Results) -> Option<Delta> {
        let (ram, flash) = (results.test(self.ram)?, results.test(self.flash)?);
        Some(Delta {
            throughput: ops(Some(flash))? / ops(Some(ram))?,
            latency: Some(average(Some(flash))? / average(Some(ram))?),
        })
    }

    /// As published.
    pub fn published(self) -> Option<Delta> {
        let (ram, flash) = (published::of(self.ram)?, published::of(self.flash)?);
        Some(Delta {
            throughput: flash.ops_per_second / ram.ops_per_second,
            latency: flash.average_ms.zip(ram.average_ms).map(|(flash, ram)| flash / ram),
        })
    }
}

/// The section of Table 1.
pub fn section(results: &Results) -> Section {
    let mut section = Section::new(
        "table-1",
        "Table 1: flash against RAM",
        "Each load runs twice: on keys whose values fit in RAM, and on the whole data set, where \
         nearly every read goes to flash. Hardware differs, so the last two columns are the ones \
         to compare: each is a ratio within its own run. Latencies are means; hits are those of \
         reads, of SETs those of writes.",
    );
    section.chart(throughput(results));
    section.chart(latency(results));
    section.tables.push(table(results));
    section
}

/// Bars: the share of RAM's throughput that flash keeps, ours beside the published.
fn throughput(results: &Results) -> Chart {
    Chart {
        note: "Throughput at the minimum RAM hit ratio by that at the maximum; more is better."
            .to_owned(),
        ..bars(
            results,
            ("flash-throughput", "Throughput that flash keeps of RAM's"),
            Axis::within("of RAM's throughput", Unit::Percent, [0.0, 100.0]),
            |delta| Some(delta.throughput),
        )
    }
}

/// Bars: what becomes of RAM's latency.
fn latency(results: &Results) -> Chart {
    Chart {
        note: "Mean latency at the minimum RAM hit ratio by that at the maximum; less is better."
            .to_owned(),
        ..bars(
            results,
            ("flash-latency", "What RAM's latency becomes from flash"),
            Axis::within("of RAM's latency", Unit::Percent, [0.0, 100.0]),
            |delta| delta.latency,
        )
    }
}

fn bars(
    results: &Results,
    (id, title): (&'static str, &str),
    y: Axis,
    share: fn(Delta) -> Option<f64>,
) -> Chart {
    let bars = |name: &str, colour, delta: &dyn Fn(Corner) -> Option<Delta>| Series {
        name: name.to_owned(),
        colour,
        points: CORNERS
            .iter()
            .enumerate()
            .map(|(index, corner)| {
                (index as f64, delta(*corner).and_then(share).map(|share| share * 100.0))
            })
            .collect(),
        names: Vec::new(),
    };
    let ours = bars("This run", Colour::Ram, &|corner| corner.ours(results));
    let published = bars("Published", Colour::Reference, &|corner| corner.published());
    Chart {
        // Without a figure of ours there is nothing to hold the published ones against.
        series: if ours.is_empty() { Vec::new() } else { vec![ours, published] },
        categories: CORNERS.iter().map(|corner| corner.marked_name(results)).collect(),
        ..Chart::new(id, title, Kind::Bars, Axis::new("load", Unit::Category), y)
    }
}

fn table(results: &Results) -> Table {
    let head = [
        "Load",
        "From RAM, ops/s",
        "ms",
        "RAM hits",
        "From flash, ops/s",
        "ms",
        "RAM hits",
        "Throughput, flash of RAM",
        "Latency, flash of RAM",
    ];
    let mut table = Table::new("Six corner cases", &head);
    for corner in CORNERS {
        let mut row = vec![Cell::ours(corner.name)];
        row.extend(side(results, corner.ram));
        row.extend(side(results, corner.flash));
        let (ours, theirs) = (corner.ours(results), corner.published());
        let throughput = |delta: Option<Delta>| delta.map(|delta| delta.throughput);
        let latency = |delta: Option<Delta>| delta.and_then(|delta| delta.latency);
        row.push(
            Cell::figure(throughput(ours), figure::percent)
                .published(throughput(theirs), figure::percent)
                .marked(&corner.tests(results)),
        );
        row.push(
            Cell::figure(latency(ours), figure::percent)
                .published(latency(theirs), figure::percent)
                .marked(&corner.tests(results)),
        );
        table.rows.push(row);
    }
    table
}

/// Throughput, latency and hit ratio of one of the six.
fn side(results: &Results, id: &str) -> [Cell; 3] {
    let (test, theirs) = (results.test(id), published::of(id));
    let throughput = match ops(test) {
        None => Cell::state(test),
        ours => Cell::figure(ours, figure::count).marked(&[test]),
    };
    // A SET reads nothing: its hits are writes over values in RAM.
    let hits = |round: &Round| round.ram_hit_ratio.or(round.write_ram_hit_ratio);
    let hits = test.and_then(|test| test.median_of_known(hits));
    [
        throughput.published(theirs.map(|theirs| theirs.ops_per_second), figure::count),
        Cell::figure(average(test), figure::ms)
            .published(theirs.and_then(|theirs| theirs.average_ms), figure::ms),
        Cell::figure(hits, figure::percent),
    ]
}

fn ops(test: Option<&Test>) -> Option<f64> {
    test?.median(|round| round.ops_per_second)
}

fn average(test: Option<&Test>) -> Option<f64> {
    test?.median(|round| round.latency.average_ms)
}
