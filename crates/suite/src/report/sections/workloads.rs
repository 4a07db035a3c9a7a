//! Three workloads, a table each: small values, a data set that outgrows RAM, and a warm centre of
//! the keys.

use super::Section;
use crate::published::{self, HOW_FAST, OPTANE, P3700, Published};
use crate::report::chart::{Axis, Chart, Colour, Kind, Series, Unit};
use crate::report::figure;
use crate::report::table::{Cell, Table};
use crate::results::{Results, Test};

/// Small values, four reads to a write, a tenth of the data set in RAM.
pub fn small(results: &Results) -> Section {
    let mut section = Section::new(
        "small",
        "100-byte values, 80/20",
        "Published in \u{201c}Redis on Flash with Intel P3700 NVMe SSDs\u{201d}. Eight reads to two writes of 100-byte values, a tenth of the data set in RAM. The share \
         of requests under 1 ms is the figure to compare. Which keys were used is not published: \
         uniform ones are the harder case, hot ones the likelier.",
    );
    let head = ["Test", "State", "ops/s", "average ms", "p99 ms", "under 1 ms", "RAM hits"];
    let mut table = Table::new("Throughput, latency and hits", &head);
    for test in rows(results, P3700, &["small-uniform"]) {
        let mut row = test.common();
        let share = test.ours.and_then(|ours| ours.median_of_known(|round| round.share_under_1_ms));
        let theirs = test.published.and_then(|theirs| theirs.share_under_1_ms);
        row.push(Cell::figure(share, figure::percent).published(theirs, figure::percent));
        row.push(test.hits());
        table.rows.push(row);
    }
    section.tables.push(table);
    section
}

/// The same RAM, a data set that fits and one 2.1 times as large.
pub fn growth(results: &Results) -> Section {
    let mut section = Section::new(
        "growth",
        "Twice the data in the same RAM",
        "Published in \u{201c}Redis Enterprise Operator on OpenShift with Optane Persistent \
         Memory\u{201d}. The same load on a data set that fits in RAM and on one 2.1 times as large. The deltas \
         are against the first row that was run; published deltas are against the same row. The \
         second tier of the published system is memory, not a drive.",
    );
    let rows = rows(results, OPTANE, &["growth-ram", "growth-1x", "growth-2x"]);
    let base = rows.iter().find(|row| row.ops().is_some());
    section.chart(kept(&rows, base));
    let head = ["Test", "State", "ops/s", "average ms", "p99 ms", "Throughput kept", "p99, change"];
    let mut table = Table::new("Throughput and latency, and their changes", &head);
    for row in &rows {
        let mut cells = row.common();
        cells.push(
            Cell::figure(ratio(row, base, Row::ops), figure::percent)
                .published(ratio(row, base, Row::published_ops), figure::percent),
        );
        cells.push(
            Cell::figure(ratio(row, base, Row::p99), figure::change)
                .published(ratio(row, base, Row::published_p99), figure::change),
        );
        table.rows.push(cells);
    }
    section.tables.push(table);
    section
}

/// Half reads, half writes, a centre of the keys read before.
pub fn centre(results: &Results) -> Section {
    let mut section = Section::new(
        "centre",
        "Half reads, half writes around a centre",
        "Published in \u{201c}How Fast Is Flash?\u{201d} (2017). Fill, read the centre of the key range once, then ten minutes of reads and writes drawn \
         from a normal distribution around it. Published: about 115 k ops/s at less than a \
         millisecond.",
    );
    let head = ["Test", "State", "ops/s", "average ms", "p99 ms", "RAM hits"];
    let mut table = Table::new("The load, and what prepares it", &head);
    for row in rows(results, HOW_FAST, &["centre-mix"]) {
        let mut cells = row.common();
        cells.push(row.hits());
        table.rows.push(cells);
    }
    section.tables.push(table);
    section
}

/// A row: our test, the published figures, or both.
#[derive(Clone, Copy)]
struct Row<'a> {
    id: &'a str,
    ours: Option<&'a Test>,
    published: Option<&'static Published>,
}

/// Our tests of a publication in the order they ran, then those expected that are missing.
fn rows<'a>(results: &'a Results, publication: &str, expected: &[&'a str]) -> Vec<Row<'a>> {
    let ours = results.tests.iter().filter(|test| test.publication == publication);
    let ours = ours.map(|test| test.id.as_str());
    let missing = expected.iter().copied().filter(|id| results.test(id).is_none());
    let row = |id: &'a str| {
        // The same test with other keys is held against the same figures.
        let variant = || published::of(&format!("{}-uniform", id.strip_suffix("-hot")?));
        Row { id, ours: results.test(id), published: published::of(id).or_else(variant) }
    };
    ours.chain(missing).map(row).collect()
}

/// A figure of a row.
type Column<'a> = fn(&Row<'a>) -> Option<f64>;

/// A figure by that of the base, if both are known.
fn ratio<'a>(row: &Row<'a>, base: Option<&Row<'a>>, figure: Column<'a>) -> Option<f64> {
    Some(figure(row)? / figure(base?)?)
}

impl Row<'_> {
    fn name(&self) -> Cell {
        let name = match self.id {
            "growth-ram" => "RAM only",
            "growth-1x" => "RAM and flash, same data set",
            "growth-2x" => "RAM and flash, data set \u{d7} 2.1",
            id => self.ours.map_or(id, |test| &test.title),
        };
        if self.published.is_some() { Cell::ours(name) } else { Cell::text(name) }
    }

    /// Name, state, throughput, mean and 99th percentile: what all workloads have.
    fn common(&self) -> Vec<Cell> {
        let theirs = self.published;
        vec![
            self.name(),
            Cell::state(self.ours),
            Cell::figure(self.ops(), figure::count).published(self.published_ops(), figure::count),
            Cell::figure(self.average(), figure::ms)
                .published(theirs.and_then(|theirs| theirs.average_ms), figure::ms),
            Cell::figure(self.p99(), figure::ms).published(self.published_p99(), figure::ms),
        ]
    }

    fn hits(&self) -> Cell {
        let hits = self.ours.and_then(|test| test.median_of_known(|round| round.ram_hit_ratio));
        Cell::figure(hits, figure::percent)
    }

    fn ops(&self) -> Option<f64> {
        self.ours?.median(|round| round.ops_per_second)
    }

    fn average(&self) -> Option<f64> {
        self.ours?.median(|round| round.latency.average_ms)
    }

    fn p99(&self) -> Option<f64> {
        self.ours?.median(|round| round.latency.p99_ms)
    }

    fn published_ops(&self) -> Option<f64> {
        Some(self.published?.ops_per_second)
    }

    fn published_p99(&self) -> Option<f64> {
        self.published?.p99_ms
    }
}

fn kept<'a>(rows: &[Row<'a>], base: Option<&Row<'a>>) -> Chart {
    let bars = |name: &str, colour, ops: Column<'a>| Series {
        name: name.to_owned(),
        colour,
        points: rows
            .iter()
            .enumerate()
            .map(|(index, row)| (index as f64, ratio(row, base, ops).map(|share| share * 100.0)))
            .collect(),
        names: Vec::new(),
    };
    let ours = bars("This run", Colour::Ram, Row::ops);
    let published = bars("Published", Colour::Reference, Row::published_ops);
    Chart {
        // Without a figure of ours there is nothing to hold the published ones against.
        series: if ours.is_empty() { Vec::new() } else { vec![ours, published] },
        categories: rows.iter().map(|row| row.name().text).collect(),
        note: "Throughput as a share of the first row's; more is better.".to_owned(),
        ..Chart::new(
            "growth-kept",
            "Throughput kept as the data outgrow RAM",
            Kind::Bars,
            Axis::new("data set", Unit::Category),
            Axis::within("of the first row's throughput", Unit::Percent, [0.0, 100.0]),
        )
    }
}
