//! The published tests, as data: what is run, over which data set, and where it is published.
//!
//! Lines are as published but for host and port. Where a document gives no command line ([`P3700`]
//! and [`OPTANE`] name sizes, ratios and connections only) the line has what is given, memtier's defaults
//! for the rest, and `--distinct-client-seed`: without it all connections ask for the same keys at
//! the same time, and what one brings to RAM is a hit for the others.
//!
//! Invariant: tests that share a data set stand together, the one that begins it first, so that a
//! run fills each data set once.

use crate::command_line::Length;
use crate::data_set::{CENTRE, DataSet, GROWTH_ONCE, GROWTH_RAM, GROWTH_TWICE, LARGE, SMALL};
use crate::published::{FATTWIN, HOW_FAST, OPTANE, P3700};

/// A test: loads over a data set, of which the last is measured.
#[derive(Debug, Clone, PartialEq)]
pub struct TestPlan {
    /// Stable between runs, see [`crate::results::Test::id`].
    pub id: String,
    /// For people.
    pub title: String,
    /// The publication: its title and year.
    pub publication: &'static str,
    /// The figure or table in it.
    pub place: &'static str,
    /// What the server holds.
    pub data: &'static DataSet,
    /// Whether the server is empty before it or holds the data set.
    pub begin: Begin,
    /// Loads that bring RAM into the state that the measured one wants.
    pub warm: Vec<Line>,
    /// The measured load.
    pub load: Line,
}

/// What a test begins with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Begin {
    /// A server without data: the test fills it.
    Empty,
    /// A server with the data set.
    Filled,
}

/// A command line as published, and how long it runs here.
#[derive(Debug, Clone, PartialEq)]
pub struct Line {
    /// The published arguments.
    pub published: String,
    /// How long.
    pub length: Length,
    /// How many connections.
    pub connections: Connections,
}

/// How the number of connections is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Connections {
    /// As published.
    AsPublished,
    /// Those of one thread (`-t 1`), for each core of the server.
    PerServerCore,
}

impl Line {
    fn new(published: impl Into<String>, length: Length) -> Line {
        Line { published: published.into(), length, connections: Connections::AsPublished }
    }
}

/// All tests, in the order they run.
pub fn tests() -> Vec<TestPlan> {
    let mut tests = vec![fill_a()];
    tests.extend(TABLE_1.iter().map(table_1));
    tests.extend(SIGMAS.iter().map(sigma));
    tests.extend(small());
    tests.extend(GROWTH.iter().map(growth));
    tests.extend(centre());
    tests
}

fn fill_a() -> TestPlan {
    TestPlan {
        id: "fill".to_owned(),
        title: "Fill, and the profile of memory after it".to_owned(),
        publication: FATTWIN,
        place: "Memory profile",
        data: &LARGE,
        begin: Begin::Empty,
        warm: Vec::new(),
        load: Line::new(LARGE.fill, Length::AllKeys),
    }
}

/// Id, title, how long, and the published line of each corner case.
type Corner = (&'static str, &'static str, Length, &'static str);

/// The six corner cases. The maximum of hits is a range of keys that fits in RAM and is warm: it is
/// passed many times, so its length is in seconds. The minimum is one pass over all keys.
const TABLE_1: &[Corner] = &[
    (
        "get-max",
        "GET, all values in RAM",
        Length::Times(1.0),
        "--pipeline=8 -c 1 -t 64 --key-maximum=100000000 --data-size=512 --ratio=0:1 \
         --key-pattern=P:P --test-time=300 -x 5",
    ),
    (
        "get-min",
        "GET, the whole key space",
        Length::AllKeys,
        "--pipeline=8 -c 1 -t 64 --key-maximum=6000000000 --data-size=512 --ratio=0:1 \
         --key-pattern=P:P",
    ),
    (
        "set-max",
        "SET, all values in RAM",
        Length::Times(1.0),
        "--pipeline=8 -c 1 -t 64 --key-maximum=150000000 -n allkeys --data-size=512 --ratio=1:0 \
         --key-pattern=P:P -x 4",
    ),
    (
        "set-min",
        "SET, the whole key space",
        Length::AllKeys,
        "--pipeline=8 -c 1 -t 64 --key-maximum=6000000000 -n allkeys --data-size=512 --ratio=1:0 \
         --key-pattern=P:P",
    ),
    (
        "mix-max",
        "70/30 GET/SET, all values in RAM",
        Length::Times(1.0),
        "--pipeline=8 -c 1 -t 64 --key-maximum=150000000 -n allkeys --data-size=512 --ratio=3:7 \
         --key-pattern=P:P -x 4",
    ),
    (
        "mix-min",
        "70/30 GET/SET, the whole key space",
        Length::AllKeys,
        "--pipeline=8 -c 1 -t 64 --key-maximum=6000000000 -n allkeys --data-size=512 --ratio=3:7 \
         --key-pattern=P:P",
    ),
];

fn table_1(corner: &Corner) -> TestPlan {
    let (id, title, length, line) = *corner;
    let warm = match length {
        Length::AllKeys => Vec::new(),
        Length::Times(_) => vec![Line::new(line, Length::Times(0.5))],
    };
    TestPlan {
        id: id.to_owned(),
        title: title.to_owned(),
        publication: FATTWIN,
        place: "Table 1",
        data: &LARGE,
        begin: Begin::Filled,
        warm,
        load: Line::new(line, length),
    }
}

/// Standard deviations in per cent of the key range. With 6.56 % of the values in RAM, those
/// nearest the centre, they are to hit RAM from 26 % (10) to 99.9 % (1) of the time.
const SIGMAS: &[f64] = &[1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 7.0, 10.0];
/// Of these, the three whose flash traffic over time is shown, which was published for three
/// minutes.
const SIGMAS_OVER_TIME: [f64; 3] = [2.0, 5.0, 10.0];

fn sigma(percent: &f64) -> TestPlan {
    let deviation = percent / 100.0 * LARGE.published_keys as f64;
    let line = format!(
        "--pipeline=8 -c 1 -t 8 --key-maximum=6000000000 -n allkeys --data-size=512 --ratio=3:7 \
         --key-pattern=G:G --key-stddev={deviation} --distinct-client-seed"
    );
    let over_time = SIGMAS_OVER_TIME.contains(percent);
    TestPlan {
        id: format!("sigma-{percent}"),
        title: format!("70/30 GET/SET, Gaussian, sigma {percent} % of the keys"),
        publication: FATTWIN,
        place: if over_time { "Figures 11 to 14" } else { "Figures 11 and 12" },
        data: &LARGE,
        begin: Begin::Filled,
        warm: vec![Line::new(line.clone(), Length::Times(0.4))],
        load: Line::new(line, Length::Times(if over_time { 2.0 } else { 0.8 })),
    }
}

/// [`P3700`] gives no connections. Its 3.25 M operations a second at 0.92 ms were 2,990 in flight on
/// 88 hardware threads: 34 a thread, here 4 connections with 8 each. Which keys were used is not
/// given either: uniform is memtier's default and the harder case. 1 GB/s of drive traffic for
/// 3.25 M operations a second says that theirs were hot ones mostly, so there is a second test with
/// those.
fn small() -> [TestPlan; 2] {
    let line = "--pipeline=8 -c 4 -t 1 --key-maximum=1000000000 --data-size=100 --ratio=2:8 \
                --distinct-client-seed";
    let uniform = format!("{line} --key-pattern=R:R");
    // Nine tenths of the keys that are used are those 10 % that fit in RAM.
    let hot = format!("{line} --key-pattern=G:G --key-stddev=30000000");
    let test = |id: &str, title: &str, published: String| {
        let line = |times| Line {
            published: published.clone(),
            length: Length::Times(times),
            connections: Connections::PerServerCore,
        };
        TestPlan {
            id: id.to_owned(),
            title: title.to_owned(),
            publication: P3700,
            place: "Result",
            data: &SMALL,
            begin: Begin::Filled,
            warm: vec![line(0.5)],
            load: line(1.0),
        }
    };
    [
        test("small-uniform", "80/20 GET/SET of 100 B, 10 % in RAM, uniform keys", uniform),
        test("small-hot", "80/20 GET/SET of 100 B, 10 % in RAM, hot keys", hot),
    ]
}

const GROWTH: &[(&str, &str, &DataSet)] = &[
    ("growth-ram", "20/80 SET/GET of 100 B, RAM only", &GROWTH_RAM),
    ("growth-1x", "20/80 SET/GET of 100 B, flash present, all in RAM", &GROWTH_ONCE),
    ("growth-2x", "20/80 SET/GET of 100 B, 2.1 times the data set", &GROWTH_TWICE),
];

fn growth((id, title, data): &(&str, &str, &'static DataSet)) -> TestPlan {
    let line = "--pipeline=4 -c 5 -t 6 --key-maximum=1000000000 --data-size=100 --ratio=1:4 \
                --key-pattern=R:R --distinct-client-seed --test-time=600";
    TestPlan {
        id: (*id).to_owned(),
        title: (*title).to_owned(),
        publication: OPTANE,
        place: "Table",
        data,
        begin: Begin::Filled,
        warm: vec![Line::new(line, Length::Times(0.5))],
        load: Line::new(line, Length::Times(1.0)),
    }
}

fn centre() -> [TestPlan; 3] {
    let centre = "--key-minimum=27250000 --key-maximum=47750000 -n allkeys --key-pattern=P:P \
                  --ratio=0:1 --hide-histogram";
    let load = "--pipeline=11 -c 20 -t 1 -d 500 --key-maximum=75000000 --key-pattern=G:G \
                --key-stddev=5125000 --ratio=1:1 --distinct-client-seed --randomize \
                --test-time=600 --run-count=1 --out-file=test.out";
    let test = |id: &str, title: &str, begin, load| TestPlan {
        id: id.to_owned(),
        title: title.to_owned(),
        publication: HOW_FAST,
        place: "Result",
        data: &CENTRE,
        begin,
        warm: Vec::new(),
        load,
    };
    let all = Length::AllKeys;
    [
        test("centre-fill", "Step 1: fill", Begin::Empty, Line::new(CENTRE.fill, all)),
        test("centre-read", "Step 2: read the centre", Begin::Filled, Line::new(centre, all)),
        TestPlan {
            // A run that begins here has not read the centre yet.
            warm: vec![Line::new(centre, all)],
            ..test(
                "centre-mix",
                "Step 3: 50/50 GET/SET, Gaussian around the centre",
                Begin::Filled,
                Line::new(load, Length::Times(2.0)),
            )
        },
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command_line::CommandLine;
    use std::collections::HashSet;

    #[test]
    fn ids_are_unique_and_data_sets_stand_together() {
        let tests = tests();
        let ids: HashSet<_> = tests.iter().map(|test| &test.id).collect();
        assert_eq!(ids.len(), tests.len());
        let mut seen = Vec::new();
        for test in &tests {
            if seen.last() != Some(&test.data.name) {
                assert!(!seen.contains(&test.data.name), "{} is filled twice", test.data.name);
                seen.push(test.data.name);
            } else {
                assert_eq!(test.begin, Begin::Filled, "{} would empty the server", test.id);
            }
        }
    }

    #[test]
    fn every_published_figure_has_its_test() {
        let tests = tests();
        for figure in crate::published::FIGURES {
            let test = tests.iter().find(|test| test.id == figure.test);
            let test = test.unwrap_or_else(|| panic!("no test {}", figure.test));
            assert_eq!(test.publication, figure.publication, "{}", test.id);
        }
    }

    #[test]
    fn values_are_as_large_in_every_line_of_a_data_set() {
        for test in tests() {
            for line in test.warm.iter().chain([&test.load]) {
                let parsed = CommandLine::parse(&line.published);
                let size = parsed.value("--data-size").or(parsed.value("-d")).flatten();
                let reads = parsed.value("--ratio") == Some(Some("0:1"));
                let expected = test.data.value_bytes.to_string();
                assert!(reads || size == Some(expected.as_str()), "{}: {line:?}", test.id);
            }
        }
    }
}
