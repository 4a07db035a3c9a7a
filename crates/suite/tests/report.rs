//! The page and the CSV of made-up runs: complete, troubled, smoke.

use suite::results::{Results, State};
use suite::{csv, report};

#[allow(dead_code, reason = "each test uses a part of it")]
mod fixture;

const SIZE_MAX: usize = 1_000_000;

/// The charts as the page hands them to its script.
fn charts(page: &str) -> serde_json::Value {
    let (_, rest) = page.split_once(r#"id="chart-data">"#).expect("chart data");
    let (json, _) = rest.split_once("</script>").expect("the end of the chart data");
    serde_json::from_str(json).expect("valid JSON")
}

fn chart_ids(page: &str) -> Vec<String> {
    let charts = charts(page);
    let charts = charts.as_array().expect("an array");
    charts.iter().map(|chart| chart["id"].as_str().expect("an id").to_owned()).collect()
}

/// The text between the tags, without runs of blanks.
fn text(page: &str) -> String {
    let (_, main) = page.split_once("<main>").expect("a main part");
    let (main, _) = main.split_once("</main>").expect("its end");
    let mut text = String::new();
    for part in main.split('<') {
        let shown = part.split_once('>').map_or(part, |(_, shown)| shown);
        text.push_str(shown);
        text.push(' ');
    }
    text.replace('\u{a0}', " ").split_whitespace().collect::<Vec<&str>>().join(" ")
}

#[test]
fn a_complete_run_has_every_table_and_figure() {
    let page = report::html(&fixture::complete(1));
    let ids = [
        "flash-throughput",
        "flash-latency",
        "figure-11",
        "figure-12",
        "figure-13",
        "figure-14",
        "fill-memory",
        "fill-values",
        "growth-kept",
    ];
    assert_eq!(chart_ids(&page), ids);
    let text = text(&page);
    for expected in [
        "Table 1: flash against RAM",
        // Throughput from flash by that from RAM, ours and the published.
        "52.7 % 56.1 %",
        "Table 2: drive life",
        // What the larger data set keeps.
        "93.5 % 91.8 %",
        "AMD EPYC 9254 24-Core Processor, 8 cores",
        "Linux 6.12.48-amd64",
        "--maxmemory 1gb",
        "612 k/s of 4 KiB, 64 in flight",
    ] {
        assert!(text.contains(expected), "no {expected:?} in {text}");
    }
    for unexpected in ["not run", "partial", "failed", "Smoke", "Stopped early"] {
        assert!(!text.contains(unexpected), "{unexpected:?} in {text}");
    }
}

#[test]
fn what_went_wrong_is_marked_where_it_stands() {
    let text = text(&report::html(&fixture::troubled()));
    for expected in [
        "Stopped early.",
        "Test failed.",
        "Errors.",
        // Table 1: a partial figure, and two that are not there.
        "partial 842 k",
        "failed 359 k",
        "not run 706 k",
        "The limits of the drive were not measured",
        "Throughput kept as the data outgrow RAM: nothing was measured.",
    ] {
        assert!(text.contains(expected), "no {expected:?} in {text}");
    }
    // Nothing is concluded from a test that was cut.
    assert!(!text.contains("throughput stays at"));
}

#[test]
fn a_smoke_run_says_so_and_gives_no_verdict() {
    let page = report::html(&fixture::smoke());
    assert!(page.contains("Smoke run: the figures mean nothing"));
    for unexpected in ["throughput stays at", "better</b>", "worse</b>"] {
        assert!(!page.contains(unexpected), "{unexpected}");
    }
}

#[test]
fn an_empty_run_still_makes_a_page() {
    let mut results = fixture::complete(1);
    results.state = State::Failed("no server".to_owned());
    results.tests.clear();
    results.comparisons.clear();
    results.drive_limit = None;
    let page = report::html(&results);
    assert_eq!(chart_ids(&page), Vec::<String>::new());
    assert!(text(&page).contains("Run failed. no server"));
}

/// A server's message may hold anything.
#[test]
fn text_of_the_results_cannot_leave_its_place() {
    let mut results = fixture::troubled();
    results.machine.cpu = "</style><script>alert(1)</script>".to_owned();
    results.tests[1].title = "<b>title</b> & more".to_owned();
    results.tests[0].id = "</script><script>alert(2)</script>".to_owned();
    let page = report::html(&results);
    assert_eq!(page.matches("</script>").count(), 2);
    assert_eq!(page.matches("</style>").count(), 1);
    assert!(!page.contains("<script>alert"));
    assert!(!page.contains("<b>title"));
}

/// Nothing is asked for: no address but those of namespaces and anchors.
#[test]
fn the_page_is_self_contained_and_small() {
    let page = report::html(&fixture::complete(3));
    assert!(page.len() < SIZE_MAX, "{} bytes", page.len());
    for address in page.match_indices("://").map(|(index, _)| &page[index.saturating_sub(5)..]) {
        assert!(address.contains("://www.w3.org/2000/svg"), "{}", &address[..60]);
    }
    for request in ["src=", "@import", "url(", "fetch("] {
        assert!(!page.contains(request), "{request}");
    }
}

/// A day of samples a second is thinned, not left out.
#[test]
fn a_long_run_makes_a_page_of_the_same_size() {
    let mut results = fixture::complete(1);
    for test in &mut results.tests {
        for round in &mut test.rounds {
            round.samples = round.samples.iter().cycle().take(86_400).cloned().collect();
        }
    }
    assert!(report::html(&results).len() < SIZE_MAX);
}

type Write = fn(&Results, &mut Vec<u8>) -> Result<(), ::csv::Error>;

fn rows(write: Write, results: &Results) -> Vec<::csv::StringRecord> {
    let mut bytes = Vec::new();
    write(results, &mut bytes).expect("a vector takes all");
    let mut reader = ::csv::ReaderBuilder::new().has_headers(false).from_reader(&bytes[..]);
    reader.records().map(|row| row.expect("a row like the first")).collect()
}

#[test]
fn csv_has_a_row_an_observation() {
    let results = fixture::troubled();
    let rounds: usize = results.tests.iter().map(|test| test.rounds.len().max(1)).sum();
    let tests = rows(csv::tests, &results);
    assert_eq!(tests.len(), 1 + rounds);
    let failed = tests.iter().find(|row| &row[3] == "failed").expect("the failed test");
    assert_eq!(&failed[4], "the server closed the connection: Connection reset by peer </script>");
    // Not measured is empty, not zero.
    assert!(failed.iter().skip(6).all(str::is_empty), "{failed:?}");

    let rounds = results.tests.iter().flat_map(|test| &test.rounds);
    let count: usize = rounds.map(|round| round.samples.len()).sum();
    assert_eq!(rows(csv::samples, &results).len(), 1 + count);
    let comparisons = rows(csv::comparisons, &results);
    assert_eq!(comparisons.len(), 1 + results.comparisons.len());
    assert_eq!(&comparisons[0][4], "ours");
}
