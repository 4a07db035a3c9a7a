//! The top of the page: what a reader who reads no further should take away.

use super::figure;
use super::sections::corners::{CORNERS, Corner};
use super::table::doubt;
use crate::published;
use crate::results::{Results, Round, State, Test};
use crate::rounds::median;

/// The top of the page.
#[derive(Debug, Clone, PartialEq)]
pub struct Summary {
    /// What a reader must know before any figure.
    pub notices: Vec<Notice>,
    /// The answer in words.
    pub sentences: Vec<String>,
    /// The figures that matter.
    pub tiles: Vec<Tile>,
}

/// Something that limits what the figures mean.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notice {
    /// In a word or two.
    pub title: String,
    /// In a sentence.
    pub text: String,
}

/// A figure that matters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tile {
    /// What it is.
    pub label: String,
    /// The figure.
    pub value: String,
    /// Its unit, or what it is a part of.
    pub unit: String,
    /// The published one, and how ours compares.
    pub below: String,
    /// Whether ours is the better one, if that can be said.
    pub better: Option<bool>,
    /// Why the figure is to be doubted, in a word.
    pub mark: String,
}

/// The summary of a run.
pub fn summary(results: &Results) -> Summary {
    Summary { notices: notices(results), sentences: sentences(results), tiles: tiles(results) }
}

fn notices(results: &Results) -> Vec<Notice> {
    let notice = |title: &str, text: String| Notice { title: title.to_owned(), text };
    let mut notices = Vec::new();
    if results.setting.smoke {
        let text = "The tests were cut to seconds to see that everything works. The figures mean \
                    nothing.";
        notices.push(notice("Smoke run", text.to_owned()));
    }
    let done = results.tests.iter().filter(|test| test.state == State::Done).count();
    let count = results.tests.len();
    match &results.state {
        State::Done => {}
        State::Partial | State::Pending => notices.push(notice(
            "Stopped early",
            format!("{done} of {count} tests came to their end. What is missing is marked so."),
        )),
        State::Failed(why) => notices.push(notice("Run failed", why.clone())),
    }
    for test in &results.tests {
        if let State::Failed(why) = &test.state {
            notices.push(notice("Test failed", format!("{}: {why}", test.title)));
        } else if test.errors() > 0 {
            let text = format!("{}: {} errors.", test.title, test.errors());
            notices.push(notice("Errors", text));
        }
    }
    notices.extend(disturbed(results));
    notices
}

/// Which tests were measured while something else ran.
fn disturbed(results: &Results) -> Option<Notice> {
    let tests = results.tests.iter();
    let tests = tests.filter(|test| test.rounds.iter().any(Round::is_disturbed));
    let ids: Vec<&str> = tests.map(|test| test.id.as_str()).collect();
    let text = format!("Other processes used CPU while these were measured: {}.", ids.join(", "));
    (!ids.is_empty()).then(|| Notice { title: "Busy machine".to_owned(), text })
}

/// Only from tests that came to their end, and not of a run whose figures mean nothing.
fn sentences(results: &Results) -> Vec<String> {
    if results.setting.smoke {
        return Vec::new();
    }
    [flash_sentence(results), drive_sentence(results), data_sentence(results)]
        .into_iter()
        .flatten()
        .collect()
}

/// Flash against RAM, over the loads that have both.
fn flash_sentence(results: &Results) -> Option<String> {
    let part = |corner: &Corner| {
        let (ours, theirs) = (corner.ours(results)?, corner.published()?);
        let well = doubt(&corner.tests(results)).is_none();
        let (ours, theirs) = (figure::percent(ours.throughput), figure::percent(theirs.throughput));
        well.then(|| format!("{ours} for {} (published {theirs})", corner.name))
    };
    let parts: Vec<String> = CORNERS.iter().filter_map(part).collect();
    (!parts.is_empty()).then(|| {
        let parts = parts.join(", ");
        format!("With nearly every value in flash instead of RAM, throughput stays at {parts}.")
    })
}

/// How much of what the drive can do is asked of it.
fn drive_sentence(results: &Results) -> Option<String> {
    let limit = results.drive_limit.as_ref()?;
    let block = figure::bytes(f64::from(limit.block_bytes));
    let capacity = format!(
        "The drive gives {} random reads of {block} a second and {}/s of sequential writes",
        figure::count(limit.reads_per_second),
        figure::bytes(limit.write_bytes_per_second)
    );
    let Some((test, share)) = busiest(results) else { return Some(format!("{capacity}.")) };
    let share = figure::percent(share);
    Some(format!(
        "{capacity}; the test that reads most from it ({}) uses {share} of the reads.",
        test.title
    ))
}

/// What becomes of the throughput when the data outgrow RAM.
fn data_sentence(results: &Results) -> Option<String> {
    let (ours, theirs) = doubled(results)?;
    let well = doubt(&doubled_tests(results)).is_none();
    let (ours, theirs) = (figure::percent(ours), figure::percent(theirs));
    well.then(|| {
        format!(
            "With 2.1 times the data in the same RAM it stays at {ours} (published {theirs}, where \
             the second tier is memory, not a drive)."
        )
    })
}

/// The test with the most reads of the drive, and their median as a share of its limit.
fn busiest(results: &Results) -> Option<(&Test, f64)> {
    let limit = results.drive_limit.as_ref()?.reads_per_second;
    let reads = |test: &Test| {
        let samples = test.rounds.iter().flat_map(|round| &round.samples);
        median(samples.filter_map(|sample| sample.drive_reads_per_second))
    };
    let tests = results.tests.iter().filter_map(|test| Some((test, reads(test)? / limit)));
    tests.max_by(|(_, left), (_, right)| left.total_cmp(right))
}

/// The data set that outgrows RAM and what it is held against: all in RAM, if that was run.
fn doubled_tests(results: &Results) -> [Option<&Test>; 2] {
    let base = results.test("growth-ram").filter(|test| !test.rounds.is_empty());
    [results.test("growth-2x"), base.or_else(|| results.test("growth-1x"))]
}

/// The throughput that the larger data set keeps, ours and the published.
fn doubled(results: &Results) -> Option<(f64, f64)> {
    let [double, base] = doubled_tests(results);
    let (double, base) = (double?, base?);
    let ops = |test: &Test| test.median(|round| round.ops_per_second);
    let published = |test: &Test| published::of(&test.id).map(|figure| figure.ops_per_second);
    Some((ops(double)? / ops(base)?, published(double)? / published(base)?))
}

fn tiles(results: &Results) -> Vec<Tile> {
    let mut tiles: Vec<Tile> = CORNERS.iter().map(|corner| corner_tile(*corner, results)).collect();
    tiles.extend([latency_tile(results), under_1_ms_tile(results), doubled_tile(results)]);
    tiles.extend([drive_tile(results), tests_tile(results)]);
    if results.setting.smoke {
        tiles.iter_mut().for_each(|tile| tile.better = None);
    }
    tiles
}

/// How many tests came to their end.
fn tests_tile(results: &Results) -> Tile {
    let done = results.tests.iter().filter(|test| test.state == State::Done).count();
    let errors: u64 = results.tests.iter().map(Test::errors).sum();
    Tile {
        label: "Tests that came to their end".to_owned(),
        value: format!("{done} of {}", results.tests.len()),
        unit: if errors == 0 { "without errors".to_owned() } else { format!("{errors} errors") },
        below: String::new(),
        better: None,
        mark: String::new(),
    }
}

impl Tile {
    /// The same, marked if a test that it comes from did not end well: then there is no verdict.
    fn marked(self, tests: &[Option<&Test>]) -> Self {
        match doubt(tests) {
            Some(mark) => Self { mark, better: None, ..self },
            None => self,
        }
    }
}

/// A tile of a share, where more is better.
fn share_tile(label: &str, unit: &str, ours: Option<f64>, theirs: Option<f64>) -> Tile {
    let theirs_text = theirs.map(|theirs| format!("published {}", figure::percent(theirs)));
    Tile {
        label: label.to_owned(),
        value: ours.map_or("\u{2013}".to_owned(), figure::percent),
        unit: if ours.is_some() { unit.to_owned() } else { "not measured".to_owned() },
        below: theirs_text.unwrap_or_default(),
        better: ours.zip(theirs).map(|(ours, theirs)| ours >= theirs),
        mark: String::new(),
    }
}

fn corner_tile(corner: Corner, results: &Results) -> Tile {
    let ours = corner.ours(results).map(|delta| delta.throughput);
    let theirs = corner.published().map(|delta| delta.throughput);
    share_tile(&format!("{} from flash", corner.name), "of RAM's throughput", ours, theirs)
        .marked(&corner.tests(results))
}

/// The worst mean latency of Table 1. How many requests are in flight for each core differs, so
/// there is no verdict.
fn latency_tile(results: &Results) -> Tile {
    let ids = || CORNERS.iter().flat_map(|corner| [corner.ram, corner.flash]);
    let average = |id| results.test(id)?.median(|round| round.latency.average_ms);
    let known: Vec<f64> = ids().filter_map(average).collect();
    let ours = known.iter().copied().reduce(f64::max);
    let theirs = ids().filter_map(|id| published::of(id)?.average_ms).reduce(f64::max);
    let of = if known.len() == ids().count() { "" } else { ", of those that ran" };
    let ms = |ms: f64| format!("{}\u{a0}ms", figure::ms(ms));
    Tile {
        label: "Slowest test of Table 1".to_owned(),
        value: ours.map_or("\u{2013}".to_owned(), ms),
        unit: ours.map_or("not measured".to_owned(), |_| format!("average latency{of}")),
        below: theirs.map(|theirs| format!("published {}", ms(theirs))).unwrap_or_default(),
        better: None,
        mark: String::new(),
    }
    .marked(&CORNERS.map(|corner| corner.tests(results)).concat())
}

fn under_1_ms_tile(results: &Results) -> Tile {
    let share = |id| results.test(id)?.median_of_known(|round| round.share_under_1_ms);
    let theirs = published::of("small-uniform").and_then(|figure| figure.share_under_1_ms);
    let hot = share("small-hot").map(|share| format!("; hot keys {}", figure::percent(share)));
    let unit = format!("uniform keys{}", hot.unwrap_or_default());
    share_tile("Under 1 ms, 100 B, 80/20", &unit, share("small-uniform"), theirs)
        .marked(&[results.test("small-uniform")])
}

fn doubled_tile(results: &Results) -> Tile {
    let ours = doubled(results);
    let published = |id| published::of(id).map(|figure| figure.ops_per_second);
    let against_ram = || Some(published("growth-2x")? / published("growth-ram")?);
    let theirs = ours.map(|(_, theirs)| theirs).or_else(against_ram);
    share_tile(
        "Data set \u{d7} 2.1, same RAM",
        "of the throughput",
        ours.map(|(ours, _)| ours),
        theirs,
    )
    .marked(&doubled_tests(results))
}

/// How much of what the drive can do is asked of it; there is nothing published to compare.
fn drive_tile(results: &Results) -> Tile {
    let busiest = busiest(results);
    Tile {
        below: busiest.map(|(test, _)| format!("in {}", test.id)).unwrap_or_default(),
        ..share_tile(
            "Drive at its busiest",
            "of its random reads",
            busiest.map(|(_, share)| share),
            None,
        )
    }
}
