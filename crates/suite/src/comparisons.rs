//! Our figures beside the published ones.
//!
//! Hardware differs, so what is compared is a ratio within each run: flash against RAM, a
//! data set that outgrows RAM against one that does not, what the drive was asked for against what it can do, shares of memory and of requests.
//! A test that was not run to its end has no comparison.

use crate::published::{self, FATTWIN, Published};
use crate::results::{Comparison, Results, Round, Sample, State, Test};
use crate::rounds::median;

/// Every comparison that the tests allow, in the order of the publications.
pub fn compare(results: &Results) -> Vec<Comparison> {
    let parts = [
        profile(results),
        table_1(results),
        sweep(results),
        traffic(results),
        small(results),
        growth(results),
        centre(results),
    ];
    parts.concat()
}

/// A test that ran to its end.
fn done<'a>(results: &'a Results, id: &str) -> Option<&'a Test> {
    results.tests.iter().find(|test| test.id == id && test.state == State::Done)
}

fn ops(test: &Test) -> Option<f64> {
    test.median(|round| round.ops_per_second)
}

fn average_ms(test: &Test) -> Option<f64> {
    test.median(|round| round.latency.average_ms)
}

fn p99_ms(test: &Test) -> Option<f64> {
    test.median(|round| round.latency.p99_ms)
}

/// Mean over a round of what its samples say, median over rounds.
fn mean_of_samples(test: &Test, figure: impl Fn(&Sample) -> Option<f64>) -> Option<f64> {
    let mean = |round: &Round| {
        let figures: Vec<f64> = round.samples.iter().filter_map(&figure).collect();
        (!figures.is_empty()).then(|| figures.iter().sum::<f64>() / figures.len() as f64)
    };
    median(test.rounds.iter().filter_map(mean))
}

/// A comparison with the place in the documents and the kind of figure.
fn row(
    (publication, place): (&str, &str),
    name: impl Into<String>,
    unit: &str,
    more_is_better: bool,
) -> Comparison {
    Comparison {
        publication: publication.to_owned(),
        place: place.to_owned(),
        name: name.into(),
        unit: unit.to_owned(),
        ours: None,
        published: None,
        our_share: None,
        published_share: None,
        more_is_better,
    }
}

/// A share, which is its own figure in per cent.
fn share_row(place: (&str, &str), name: &str, unit: &str, ours: f64, theirs: f64) -> Comparison {
    Comparison {
        ours: Some(ours * 100.0),
        published: Some(theirs * 100.0),
        our_share: Some(ours),
        published_share: Some(theirs),
        ..row(place, name, unit, true)
    }
}

fn profile(results: &Results) -> Vec<Comparison> {
    let last = || done(results, "fill")?.rounds.last()?.samples.last();
    let Some(sample) = last() else { return Vec::new() };
    let place = (FATTWIN, "Memory profile");
    let of_ram = |bytes: Option<u64>| Some(bytes? as f64 / results.setting.ram_bytes as f64);
    let in_ram = sample
        .values_in_ram
        .zip(sample.keys.filter(|keys| *keys > 0))
        .map(|(values, keys)| values as f64 / keys as f64);
    let rows = [
        in_ram.map(|share| {
            let theirs = published::FILL_VALUES_IN_RAM_SHARE;
            share_row(place, "Values in RAM after the fill", "% of values", share, theirs)
        }),
        of_ram(sample.index_bytes).map(|share| Comparison {
            // A smaller index leaves more RAM for values.
            more_is_better: false,
            ..share_row(
                place,
                "Index (keys) after the fill; published: over",
                "% of RAM",
                share,
                published::FILL_INDEX_SHARE,
            )
        }),
        of_ram(sample.resident_bytes).map(|share| {
            let theirs = published::FILL_RAM_USED_SHARE;
            share_row(place, "RAM in use after the fill", "% of RAM", share, theirs)
        }),
    ];
    rows.into_iter().flatten().collect()
}

/// Operations with their tests at the maximum and at the minimum of RAM hits.
const CORNERS: [(&str, &str, &str); 3] = [
    ("GET", "get-max", "get-min"),
    ("SET", "set-max", "set-min"),
    ("70/30 GET/SET", "mix-max", "mix-min"),
];

fn table_1(results: &Results) -> Vec<Comparison> {
    let mut rows = Vec::new();
    for (name, max_id, min_id) in CORNERS {
        let Some((max_published, min_published)) = published::of(max_id).zip(published::of(min_id))
        else {
            continue;
        };
        let (max, min) = (done(results, max_id), done(results, min_id));
        rows.extend(max.into_iter().flat_map(|test| {
            against(test, max_published, None, &format!("{name}, maximum of RAM hits"))
        }));
        rows.extend(min.into_iter().flat_map(|test| {
            let base = max.map(|max| (max, max_published));
            against(test, min_published, base, &format!("{name}, minimum of RAM hits"))
        }));
        rows.extend(min.and_then(|test| drive_reads(results, test, (FATTWIN, "Table 1"), name)));
    }
    rows
}

/// A figure that tests and documents have.
struct Measure {
    name: &'static str,
    unit: &'static str,
    more_is_better: bool,
    ours: fn(&Test) -> Option<f64>,
    theirs: fn(&Published) -> Option<f64>,
}

const MEASURES: [Measure; 3] = [
    Measure {
        name: "throughput",
        unit: "ops/s",
        more_is_better: true,
        ours: ops,
        theirs: |figure| Some(figure.ops_per_second),
    },
    Measure {
        name: "average latency",
        unit: "ms",
        more_is_better: false,
        ours: average_ms,
        theirs: |figure| figure.average_ms,
    },
    Measure {
        name: "p99 latency",
        unit: "ms",
        more_is_better: false,
        ours: p99_ms,
        theirs: |figure| figure.p99_ms,
    },
];

/// A test's throughput and latency beside the published ones. With a `base` each is also a share:
/// the test's over the base's.
fn against(
    test: &Test,
    figure: &Published,
    base: Option<(&Test, &Published)>,
    name: &str,
) -> Vec<Comparison> {
    let place = (figure.publication, figure.place);
    let share = |value: fn(&Test) -> Option<f64>| Some(value(test)? / value(base?.0)?);
    let published_share =
        |value: fn(&Published) -> Option<f64>| Some(value(figure)? / value(base?.1)?);
    let rows = MEASURES.iter().filter_map(|measure| {
        // A figure that is not published is in the table of all tests.
        let published = (measure.theirs)(figure)?;
        let name = format!("{name}: {}", measure.name);
        Some(Comparison {
            ours: (measure.ours)(test),
            published: Some(published),
            our_share: share(measure.ours),
            published_share: published_share(measure.theirs),
            ..row(place, name, measure.unit, measure.more_is_better)
        })
    });
    rows.collect()
}

/// Reads of the drive in a test, as a share of what the probe measured.
fn drive_reads(
    results: &Results,
    test: &Test,
    place: (&str, &str),
    name: &str,
) -> Option<Comparison> {
    let reads = mean_of_samples(test, |sample| sample.drive_reads_per_second)?;
    let limit = results.drive_limit.as_ref()?.reads_per_second;
    // A test that only writes tells nothing of reads.
    let has_reads = test.rounds.iter().any(|round| round.ram_hit_ratio.is_some());
    has_reads.then(|| Comparison {
        ours: Some(reads),
        our_share: Some(reads / limit),
        ..row(
            place,
            format!("{name}, minimum of RAM hits: reads of the drive, as part of its limit"),
            "reads/s",
            true,
        )
    })
}

/// Measured share of reads from RAM and throughput, of the tests of the sweep, by share.
fn sweep_points(results: &Results) -> Vec<(f64, f64)> {
    let tests = results.tests.iter().filter(|test| test.id.starts_with("sigma-"));
    let points = tests
        .filter(|test| test.state == State::Done)
        .filter_map(|test| Some((test.median_of_known(|round| round.ram_hit_ratio)?, ops(test)?)));
    let mut points: Vec<(f64, f64)> = points.collect();
    points.sort_by(|a, b| a.0.total_cmp(&b.0));
    points
}

/// On the straight lines between the points; none outside of them.
fn interpolate(points: &[(f64, f64)], x: f64) -> Option<f64> {
    points.windows(2).find_map(|pair| {
        let ((left, low), (right, high)) = (pair[0], pair[1]);
        let inside = (left..=right).contains(&x) && left < right;
        inside.then(|| low + (high - low) * (x - left) / (right - left))
    })
}

/// The document says in words what its Figures 11 and 12 show: nearly flat from 60 to 90 %.
fn sweep(results: &Results) -> Vec<Comparison> {
    let points = sweep_points(results);
    let ends = interpolate(&points, 0.6).zip(interpolate(&points, 0.9));
    let comparison = ends.map(|(at_60, at_90)| Comparison {
        ours: Some(at_60),
        our_share: Some(at_60 / at_90),
        ..row(
            (FATTWIN, "Figure 11"),
            "Throughput at 60 % of reads from RAM, over that at 90 % (published: nearly flat)",
            "ops/s",
            true,
        )
    });
    comparison.into_iter().collect()
}

/// Figure 13: at the widest of the three the array was read at its limit.
fn traffic(results: &Results) -> Vec<Comparison> {
    let comparison = || {
        let test = done(results, "sigma-10")?;
        let bytes = mean_of_samples(test, |sample| sample.drive_read_bytes_per_second)?;
        let reads = mean_of_samples(test, |sample| sample.drive_reads_per_second)?;
        let limit = results.drive_limit.as_ref()?.reads_per_second;
        Some(Comparison {
            ours: Some(bytes),
            published: Some(published::ARRAY_READ_BYTES_PER_SECOND),
            our_share: Some(reads / limit),
            published_share: Some(1.0),
            ..row(
                (FATTWIN, "Figure 13"),
                "Reads of the drive at sigma 10 %, as part of its limit",
                "bytes/s",
                true,
            )
        })
    };
    comparison().into_iter().collect()
}

fn small(results: &Results) -> Vec<Comparison> {
    let Some(figure) = published::of("small-uniform") else { return Vec::new() };
    let variants = [("small-uniform", "uniform keys"), ("small-hot", "hot keys")];
    let tests = variants.into_iter().filter_map(|(id, name)| Some((done(results, id)?, name)));
    let rows = tests.flat_map(|(test, name)| {
        let under = test.median_of_known(|round| round.share_under_1_ms);
        let under = under.zip(figure.share_under_1_ms).map(|(ours, theirs)| {
            let name = format!("80/20, 100 B, {name}: requests under 1 ms");
            share_row((figure.publication, figure.place), &name, "% of requests", ours, theirs)
        });
        let mut rows = against(test, figure, None, &format!("80/20, 100 B, {name}"));
        rows.extend(under);
        rows
    });
    rows.collect()
}

/// Each row as a share of the first, all in RAM and no other tier.
fn growth(results: &Results) -> Vec<Comparison> {
    let variants = [
        ("growth-ram", "RAM only"),
        ("growth-1x", "Flash present, data set in RAM"),
        ("growth-2x", "Data set 2.1 times as large"),
    ];
    let base = done(results, "growth-ram").zip(published::of("growth-ram"));
    let rows = variants.into_iter().filter_map(|(id, name)| {
        let base = base.filter(|(base, _)| base.id != id);
        Some(against(done(results, id)?, published::of(id)?, base, name))
    });
    rows.flatten().collect()
}

fn centre(results: &Results) -> Vec<Comparison> {
    let rows = || {
        let (test, figure) = (done(results, "centre-mix")?, published::of("centre-mix")?);
        let mut rows = against(test, figure, None, "50/50, Gaussian around the centre");
        rows.push(Comparison {
            ours: average_ms(test),
            ..row(
                (figure.publication, figure.place),
                "50/50, Gaussian around the centre: average latency (published: below 1 ms)",
                "ms",
                false,
            )
        });
        Some(rows)
    };
    rows().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::{DriveLimit, Latency, Machine, Setting};

    fn sample() -> Sample {
        Sample {
            second: 1.0,
            ops_per_second: 1.0,
            resident_bytes: Some(900),
            index_bytes: Some(450),
            value_bytes: Some(400),
            buffer_bytes: Some(10),
            keys: Some(1000),
            values_in_ram: Some(70),
            values_in_flash: Some(930),
            ram_hit_ratio: None,
            flash_used_bytes: None,
            drive_read_bytes_per_second: Some(1e9),
            drive_write_bytes_per_second: None,
            drive_reads_per_second: Some(50_000.0),
        }
    }

    /// A test with one round: its operations a second, average latency and hits.
    fn test(id: &str, ops_per_second: f64, average_ms: f64, hits: Option<f64>) -> Test {
        let latency = Latency {
            average_ms,
            p50_ms: 0.1,
            p99_ms: average_ms * 2.0,
            p99_9_ms: 1.0,
            max_ms: 2.0,
        };
        let round = Round {
            seconds: 1.0,
            ops_per_second,
            latency,
            share_under_1_ms: Some(0.98),
            ram_hit_ratio: hits,
            write_ram_hit_ratio: None,
            server_cpu_seconds: None,
            others_cpu_seconds: None,
            errors: 0,
            samples: vec![sample()],
        };
        Test {
            id: id.to_owned(),
            title: String::new(),
            publication: String::new(),
            state: State::Done,
            commands: Vec::new(),
            rounds: vec![round],
        }
    }

    fn results(tests: Vec<Test>) -> Results {
        Results {
            format: crate::results::FORMAT,
            started_unix_ms: 0,
            state: State::Done,
            machine: Machine {
                cpu: String::new(),
                cores: 2,
                ram_bytes: 1,
                drive: String::new(),
                file_system: String::new(),
                kernel: String::new(),
                versions: Vec::new(),
            },
            setting: Setting {
                server: String::new(),
                ram_bytes: 1000,
                flash_bytes: 10_000,
                keys: 1000,
                smoke: false,
            },
            drive_limit: Some(DriveLimit {
                probe: String::new(),
                block_bytes: 1536,
                depth: 1,
                reads_per_second: 100_000.0,
                write_bytes_per_second: 1.0,
            }),
            tests,
            comparisons: Vec::new(),
        }
    }

    /// Ours, published, our share, published share, of the line with this name.
    fn figures(lines: &[Comparison], name: &str) -> [Option<f64>; 4] {
        let line = lines.iter().find(|line| line.name == name);
        let line = line.unwrap_or_else(|| panic!("no {name} in {lines:#?}"));
        [line.ours, line.published, line.our_share, line.published_share]
    }

    fn close(figures: [Option<f64>; 4], expected: [Option<f64>; 4]) {
        let same = figures.iter().zip(expected).all(|(left, right)| match (left, right) {
            (Some(left), Some(right)) => (left - right).abs() <= right.abs() * 1e-3,
            (left, right) => left.is_none() && right.is_none(),
        });
        assert!(same, "{figures:?} is not {expected:?}");
    }

    #[test]
    fn flash_is_set_against_ram() {
        let all = Some(1.0);
        let lines = compare(&results(vec![
            test("get-max", 900_000.0, 0.5, all),
            test("get-min", 300_000.0, 1.5, Some(0.05)),
            test("set-min", 300_000.0, 1.5, None),
        ]));
        let max = figures(&lines, "GET, maximum of RAM hits: throughput");
        close(max, [Some(900_000.0), Some(1_500_000.0), None, None]);
        let min = figures(&lines, "GET, minimum of RAM hits: throughput");
        close(min, [Some(300_000.0), Some(842_000.0), Some(0.3333), Some(0.5613)]);
        let latency = figures(&lines, "GET, minimum of RAM hits: average latency");
        close(latency, [Some(1.5), Some(0.54), Some(3.0), Some(2.0769)]);
        let drive = "GET, minimum of RAM hits: reads of the drive, as part of its limit";
        close(figures(&lines, drive), [Some(50_000.0), None, Some(0.5), None]);
        // Without its other half a figure stands alone.
        let alone = figures(&lines, "SET, minimum of RAM hits: throughput");
        close(alone, [Some(300_000.0), Some(359_000.0), None, None]);
        assert!(lines.iter().all(|line| !line.name.starts_with("70/30")));
        assert!(lines.iter().all(|line| !line.name.starts_with("SET, minimum of RAM hits: reads")));
    }

    #[test]
    fn the_profile_is_in_shares() {
        let lines = compare(&results(vec![test("fill", 1.0, 1.0, None)]));
        let values = figures(&lines, "Values in RAM after the fill");
        close(values, [Some(7.0), Some(6.56), Some(0.07), Some(0.0656)]);
        let index = figures(&lines, "Index (keys) after the fill; published: over");
        close(index, [Some(45.0), Some(60.0), Some(0.45), Some(0.6)]);
        let used = figures(&lines, "RAM in use after the fill");
        close(used, [Some(90.0), Some(99.9), Some(0.9), Some(0.999)]);
    }

    #[test]
    fn the_sweep_is_read_at_the_measured_hits() {
        let sweep = |id: &str, ops, hits| test(id, ops, 0.2, Some(hits));
        let tests = vec![
            sweep("sigma-1", 1000.0, 1.0),
            sweep("sigma-2", 800.0, 0.8),
            sweep("sigma-10", 500.0, 0.4),
        ];
        let lines = compare(&results(tests.clone()));
        let name =
            "Throughput at 60 % of reads from RAM, over that at 90 % (published: nearly flat)";
        close(figures(&lines, name), [Some(650.0), None, Some(650.0 / 900.0), None]);
        let reads = figures(&lines, "Reads of the drive at sigma 10 %, as part of its limit");
        close(reads, [Some(1e9), Some(6.442e9), Some(0.5), Some(1.0)]);
        // Two points on one side say nothing of the other.
        let lines = compare(&results(tests[..2].to_vec()));
        assert!(lines.iter().all(|line| line.place != "Figure 11"));
    }

    #[test]
    fn a_larger_data_set_is_set_against_ram_only() {
        let mut tests = vec![
            test("growth-ram", 1000.0, 0.3, None),
            test("growth-1x", 950.0, 0.3, None),
            test("growth-2x", 500.0, 0.6, None),
            test("small-uniform", 1000.0, 0.5, None),
        ];
        let lines = compare(&results(tests.clone()));
        let twice = figures(&lines, "Data set 2.1 times as large: throughput");
        close(twice, [Some(500.0), Some(1_071_621.0), Some(0.5), Some(0.9182)]);
        let tail = figures(&lines, "Data set 2.1 times as large: p99 latency");
        close(tail, [Some(1.2), Some(0.99), Some(2.0), Some(1.0532)]);
        let under = figures(&lines, "80/20, 100 B, uniform keys: requests under 1 ms");
        close(under, [Some(98.0), Some(99.99), Some(0.98), Some(0.9999)]);
        // What failed is compared with nothing, and nothing with it.
        tests[0].state = State::Failed("it died".to_owned());
        let lines = compare(&results(tests));
        let twice = figures(&lines, "Data set 2.1 times as large: throughput");
        close(twice, [Some(500.0), Some(1_071_621.0), None, None]);
        assert!(lines.iter().all(|line| !line.name.starts_with("RAM only")));
    }
}
