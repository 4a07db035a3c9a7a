//! Table 1: reads, writes and both, with all values from RAM and with nearly all from flash.

use super::Section;
use crate::published;
use crate::report::chart::{Axis, Chart, Colour, Kind, Series, Unit};
use crate::report::figure;
use crate::report::table::{Cell, Table};
use crate::results::{Results, Test};

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
         to compare: each is a ratio within its own run.",
    );
    section.chart(kept(results));
    section.tables.push(table(results));
    section
}

/// Bars: the share of RAM's throughput that flash keeps, ours beside the published.
fn kept(results: &Results) -> Chart {
    let bars = |name: &str, colour, delta: &dyn Fn(Corner) -> Option<Delta>| Series {
        name: name.to_owned(),
        colour,
        points: CORNERS
            .iter()
            .enumerate()
            .map(|(index, corner)| {
                (index as f64, delta(*corner).map(|delta| delta.throughput * 100.0))
            })
            .collect(),
        names: Vec::new(),
    };
    Chart {
        series: vec![
            bars("This run", Colour::Ram, &|corner| corner.ours(results)),
            bars("Published", Colour::Reference, &|corner| corner.published()),
        ],
        categories: CORNERS.iter().map(|corner| corner.name.to_owned()).collect(),
        note: "Throughput at the minimum RAM hit ratio, as a share of that at the maximum; \
               more is better."
            .to_owned(),
        ..Chart::new(
            "flash-kept",
            "Throughput that flash keeps of RAM's",
            Kind::Bars,
            Axis::new("load", Unit::Category),
            Axis::within("of RAM's throughput", Unit::Percent, [0.0, 100.0]),
        )
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
    let mut table = Table::new("Six corner cases; latencies are means", &head);
    for corner in CORNERS {
        let mut row = vec![Cell::text(corner.name)];
        row.extend(side(results, corner.ram));
        row.extend(side(results, corner.flash));
        let (ours, theirs) = (corner.ours(results), corner.published());
        let throughput = |delta: Option<Delta>| delta.map(|delta| delta.throughput);
        let latency = |delta: Option<Delta>| delta.and_then(|delta| delta.latency);
        row.push(
            Cell::figure(throughput(ours), figure::percent)
                .published(throughput(theirs), figure::percent),
        );
        row.push(
            Cell::figure(latency(ours), figure::percent)
                .published(latency(theirs), figure::percent),
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
        ours => Cell::figure(ours, figure::count),
    };
    let hits = test.and_then(|test| test.median_of_known(|round| round.ram_hit_ratio));
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
