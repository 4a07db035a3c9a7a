//! Figures 11 and 12: throughput and latency against the RAM hit ratio that was measured.

use super::Section;
use crate::report::chart::{Axis, Band, Chart, Colour, Kind, Series, Unit};
use crate::report::figure;
use crate::report::table::{Cell, Table, doubt};
use crate::results::{Results, Test};

/// A test of the sweep, and its standard deviation in percent of the key range.
pub fn sigmas(results: &Results) -> Vec<(f64, &Test)> {
    let sigma = |test: &Test| test.id.strip_prefix("sigma-")?.parse().ok();
    let mut tests: Vec<(f64, &Test)> =
        results.tests.iter().filter_map(|test| Some((sigma(test)?, test))).collect();
    tests.sort_by(|(left, _), (right, _)| left.total_cmp(right));
    tests
}

/// A measured point of the sweep.
struct Point<'a> {
    sigma: f64,
    hit_percent: f64,
    test: &'a Test,
}

impl Point<'_> {
    fn name(&self) -> String {
        let doubt = doubt(&[Some(self.test)]).map(|doubt| format!(" ({doubt})"));
        format!("\u{3c3} {} %{}", self.sigma, doubt.unwrap_or_default())
    }
}

/// The section of the sweep.
pub fn section(results: &Results) -> Section {
    let mut section = Section::new(
        "sweep",
        "Figures 11 and 12: from flash to RAM",
        "Keys are drawn from a normal distribution. The smaller its standard deviation \u{3c3} \
         (in percent of the key range), the more of the keys in use fit in RAM. The horizontal \
         axis is the share of reads that RAM served, as counted by the server.",
    )
    .paragraph(
        "Published shape: throughput is nearly flat between 60 % and 90 %; below 60 % the flash \
         saturates; above 90 % RAM dominates.",
    );
    let tests = sigmas(results);
    let points = measured(&tests);
    section.chart(throughput(&points));
    section.chart(latency(&points));
    section.tables.push(table(&tests));
    section
}

/// Those with a hit ratio, from the lowest to the highest.
fn measured<'a>(tests: &[(f64, &'a Test)]) -> Vec<Point<'a>> {
    let mut points: Vec<Point> = tests
        .iter()
        .filter_map(|&(sigma, test)| {
            let hit = test.median_of_known(|round| round.ram_hit_ratio)?;
            Some(Point { sigma, hit_percent: hit * 100.0, test })
        })
        .collect();
    points.sort_by(|left, right| left.hit_percent.total_cmp(&right.hit_percent));
    points
}

fn series(
    name: &str,
    colour: Colour,
    points: &[Point],
    figure: impl Fn(&Test) -> Option<f64>,
) -> Series {
    Series {
        name: name.to_owned(),
        colour,
        points: points.iter().map(|point| (point.hit_percent, figure(point.test))).collect(),
        names: points.iter().map(Point::name).collect(),
    }
}

fn throughput(points: &[Point]) -> Chart {
    let ops =
        series("Throughput", Colour::Ram, points, |test| test.median(|round| round.ops_per_second));
    Chart {
        series: vec![ops],
        ..against_hits("figure-11", "Figure 11: throughput by RAM hit ratio", "ops/s", Unit::Ops)
    }
}

fn latency(points: &[Point]) -> Chart {
    let average = series("Average", Colour::Ram, points, |test| {
        test.median(|round| round.latency.average_ms)
    });
    let p99 =
        series("p99", Colour::Flash, points, |test| test.median(|round| round.latency.p99_ms));
    Chart {
        series: vec![average, p99],
        note: "The published figure gives the average.".to_owned(),
        ..against_hits("figure-12", "Figure 12: latency by RAM hit ratio", "latency", Unit::Ms)
    }
}

fn against_hits(id: &'static str, title: &str, label: &'static str, unit: Unit) -> Chart {
    Chart {
        bands: vec![
            Band { from: 0.0, to: 60.0, name: "published: flash saturates" },
            Band { from: 60.0, to: 90.0, name: "nearly flat" },
            Band { from: 90.0, to: 100.0, name: "RAM" },
        ],
        ..Chart::new(
            id,
            title,
            Kind::Points,
            Axis::within("RAM hit ratio, measured", Unit::Percent, [0.0, 100.0]),
            Axis::new(label, unit),
        )
    }
}

fn table(tests: &[(f64, &Test)]) -> Table {
    let head = ["\u{3c3}", "State", "RAM hits", "ops/s", "average ms", "p99 ms", "p99.9 ms"];
    let mut table = Table::new("The sweep", &head);
    for &(sigma, test) in tests {
        let hit = test.median_of_known(|round| round.ram_hit_ratio);
        table.rows.push(vec![
            Cell::text(format!("{sigma}\u{a0}%")),
            Cell::state(Some(test)),
            Cell::figure(hit, figure::percent),
            Cell::figure(test.median(|round| round.ops_per_second), figure::count),
            Cell::figure(test.median(|round| round.latency.average_ms), figure::ms),
            Cell::figure(test.median(|round| round.latency.p99_ms), figure::ms),
            Cell::figure(test.median(|round| round.latency.p99_9_ms), figure::ms),
        ]);
    }
    table
}
