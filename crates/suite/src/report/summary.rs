//! The top of the page: what a reader who reads no further should take away.

use super::figure;
use super::sections::corners::{CORNERS, Corner};
use crate::published;
use crate::results::{Results, State, Test};
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
    notices
}

fn sentences(results: &Results) -> Vec<String> {
    [flash_sentence(results), drive_sentence(results), data_sentence(results)]
        .into_iter()
        .flatten()
        .collect()
}

/// Flash against RAM, over the loads that have both.
fn flash_sentence(results: &Results) -> Option<String> {
    let part = |corner: &Corner| {
        let (ours, theirs) = (corner.ours(results)?, corner.published()?);
        Some(format!(
            "{} for {} (published {})",
            figure::percent(ours.throughput),
            corner.name,
            figure::percent(theirs.throughput)
        ))
    };
    let parts: Vec<String> = CORNERS.iter().filter_map(part).collect();
    (!parts.is_empty()).then(|| {
        let parts = parts.join(", ");
        format!("Of the throughput it has from RAM, the server keeps from flash {parts}.")
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

/// What becomes of the throughput when the data outgrow RAM (brief C).
fn data_sentence(results: &Results) -> Option<String> {
    let kept = doubled(results)?;
    let theirs = doubled_published()?;
    Some(format!(
        "With a data set 2.1 times as large in the same RAM it keeps {} of its throughput \
         (published {}).",
        figure::percent(kept),
        figure::percent(theirs)
    ))
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

fn ops(results: &Results, id: &str) -> Option<f64> {
    results.test(id)?.median(|round| round.ops_per_second)
}

fn doubled(results: &Results) -> Option<f64> {
    Some(ops(results, "brief-c-2x")? / ops(results, "brief-c-1x")?)
}

fn doubled_published() -> Option<f64> {
    let ops = |id| published::of(id).map(|figure| figure.ops_per_second);
    Some(ops("brief-c-2x")? / ops("brief-c-1x")?)
}

fn tiles(results: &Results) -> Vec<Tile> {
    let mut tiles: Vec<Tile> = CORNERS.iter().map(|corner| corner_tile(*corner, results)).collect();
    tiles.extend([latency_tile(results), under_1_ms_tile(results), doubled_tile(results)]);
    tiles.push(drive_tile(results));
    tiles
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
    }
}

fn corner_tile(corner: Corner, results: &Results) -> Tile {
    let ours = corner.ours(results).map(|delta| delta.throughput);
    let theirs = corner.published().map(|delta| delta.throughput);
    share_tile(&format!("{} from flash", corner.name), "of RAM's throughput", ours, theirs)
}

/// The worst mean latency of Table 1.
fn latency_tile(results: &Results) -> Tile {
    let ids = || CORNERS.iter().flat_map(|corner| [corner.ram, corner.flash]);
    let average = |id| results.test(id)?.median(|round| round.latency.average_ms);
    let known: Vec<f64> = ids().filter_map(average).collect();
    let ours = known.iter().copied().reduce(f64::max);
    let theirs = ids().filter_map(|id| published::of(id)?.average_ms).reduce(f64::max);
    let of = if known.len() == ids().count() { "" } else { ", of those that ran" };
    Tile {
        label: format!("Worst average latency of Table 1{of}"),
        value: ours.map_or("\u{2013}".to_owned(), figure::ms),
        unit: if ours.is_some() { "ms".to_owned() } else { "not measured".to_owned() },
        below: theirs.map(|ms| format!("published {} ms", figure::ms(ms))).unwrap_or_default(),
        better: ours.zip(theirs).map(|(ours, theirs)| ours <= theirs),
    }
}

fn under_1_ms_tile(results: &Results) -> Tile {
    let ours = results.test("brief-b");
    let ours = ours.and_then(|test| test.median_of_known(|round| round.share_under_1_ms));
    let theirs = published::of("brief-b").and_then(|figure| figure.share_under_1_ms);
    share_tile("Requests under 1 ms", "of 100-byte values, 80/20", ours, theirs)
}

fn doubled_tile(results: &Results) -> Tile {
    let (ours, theirs) = (doubled(results), doubled_published());
    share_tile("Data set \u{d7} 2.1, same RAM", "of the throughput", ours, theirs)
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
