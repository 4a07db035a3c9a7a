//! Two made-up runs side by side, and files that are no results.

use std::path::{Path, PathBuf};

use clap::Parser;
use suite::cli::{CompareOptions, ReportOptions, make_report, write_comparison};
use suite::compare::{Row, Verdict, compare};
use suite::results::Results;

#[allow(dead_code, reason = "each test uses a part of it")]
mod fixture;

fn verdicts(a: &Results, b: &Results, figure: &str) -> Vec<Verdict> {
    let comparison = compare(a, b);
    let rows = comparison.rows.iter().filter(|row| row.figure == figure);
    // The fill has one round in all fixtures.
    rows.filter(|row| row.test != "fill").map(|row| row.verdict).collect()
}

#[test]
fn a_clear_difference_in_enough_rounds_is_significant() {
    let a = fixture::complete(6);
    let faster = fixture::scaled(a.clone(), 1.05);
    for figure in ["ops/s", "average ms", "p99 ms"] {
        assert!(verdicts(&a, &faster, figure).iter().all(|verdict| *verdict == Verdict::Better));
        assert!(verdicts(&faster, &a, figure).iter().all(|verdict| *verdict == Verdict::Worse));
    }
    let row = |row: &&Row| row.test == "get-max" && row.figure == "ops/s";
    let comparison = compare(&a, &faster);
    let row = comparison.rows.iter().find(row).expect("a row");
    assert!((row.ratio.expect("a ratio") - 1.05).abs() < 1e-9);
    assert_eq!(row.chance, Some(0.03125));
}

#[test]
fn equal_runs_differ_in_nothing() {
    let a = fixture::complete(6);
    let comparison = compare(&a, &a);
    assert_eq!(comparison.mismatches, Vec::<String>::new());
    let others = comparison.rows.iter().filter(|row| row.test != "fill");
    assert!(others.clone().all(|row| row.verdict == Verdict::NoDifferenceShown));
    assert!(others.clone().all(|row| row.ratio == Some(1.0)));
}

#[test]
fn with_one_round_each_significance_cannot_be_told() {
    let a = fixture::complete(1);
    let faster = fixture::scaled(a.clone(), 2.0);
    assert!(verdicts(&a, &faster, "ops/s").iter().all(|verdict| *verdict == Verdict::TooFewRounds));
}

#[test]
fn mismatches_are_named() {
    let a = fixture::complete(2);
    let mut b = fixture::troubled();
    b.machine.kernel = "Linux 7.0".to_owned();
    b.setting.ram_bytes = 2 << 30;
    b.setting.smoke = true;
    let mismatches = compare(&a, &b).mismatches;
    for expected in [
        "kernel: a Linux 6.12.48-amd64, b Linux 7.0",
        "RAM in bytes: a 1073741824, b 2147483648",
        "kind of run: a full, b smoke, whose figures mean nothing",
        "limits of the drive: a by fio 3.33, b not measured",
        "state: a done, b partial",
        "get-min: a done, b partial",
        "growth-2x: only in a",
        "get-max: a 2 rounds, b 1; only the first 1 are paired",
    ] {
        assert!(mismatches.iter().any(|line| line == expected), "no {expected} in {mismatches:#?}");
    }
}

/// A folder of its own for each test, away when it ends.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("kelvin-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a folder for the test");
        Self(path)
    }

    fn write(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.0.join(name);
        std::fs::write(&path, bytes).expect("a file of the test");
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // What is left is of no harm in a temporary folder.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn compared(a: &Path, b: &Path, format: &str) -> String {
    let words = ["compare".as_ref(), a.as_os_str(), b.as_os_str()];
    let words = words.into_iter().chain(["--format".as_ref(), format.as_ref()]);
    let options = CompareOptions::parse_from(words);
    let mut bytes = Vec::new();
    write_comparison(&options, &mut bytes).expect("two results files");
    String::from_utf8(bytes).expect("text")
}

#[test]
fn a_machine_that_did_something_else_is_told() {
    let mut busy = fixture::complete(1);
    busy.tests[1].rounds[0].others_cpu_seconds = Some(busy.tests[1].rounds[0].seconds);
    let lines = compare(&fixture::complete(1), &busy).mismatches;
    let rounds = busy.tests.iter().map(|test| test.rounds.len()).sum::<usize>();
    assert_eq!(lines, [format!("b: other processes used CPU in 1 of {rounds} rounds")]);

    let folder = Folder::new("busy");
    let results = folder.write("results.json", &serde_json::to_vec(&busy).expect("JSON"));
    let output = results.with_file_name("report.html");
    // The folder of a run stands for its results.
    let run = results.parent().expect("a folder").to_owned();
    make_report(&ReportOptions { results: run, output: output.clone(), csv: None })
        .expect("a report");
    let page = std::fs::read_to_string(output).expect("a page");
    assert!(page.contains(&format!("while these were measured: {}.", busy.tests[1].id)));
}

#[test]
fn a_comparison_is_text_json_csv_or_html() {
    let folder = Folder::new("compare");
    let json = |results: &Results| serde_json::to_vec(results).expect("results as JSON");
    let a = folder.write("a.json", &json(&fixture::complete(6)));
    let b = folder.write("b.json", &json(&fixture::scaled(fixture::complete(6), 0.9)));
    let text = compared(&a, &b, "text");
    let line = text.lines().find(|line| line.starts_with("get-min")).expect("a line of get-min");
    assert!(line.contains("0.900") && line.ends_with("b is worse"), "{line}");
    assert!(text.contains("below 6 pairs of rounds significance cannot be told"));
    let page = compared(&a, &b, "html");
    assert_eq!(page.matches("<td class=\"text fine\"><span>b is worse").count(), 0);
    assert!(page.matches("<span>b is worse</span>").count() > 30);

    let rows = compare(&fixture::complete(6), &fixture::complete(6)).rows.len();
    let parsed: serde_json::Value = serde_json::from_str(&compared(&a, &b, "json")).expect("JSON");
    assert_eq!(parsed["rows"].as_array().map(Vec::len), Some(rows));
    assert_eq!(compared(&a, &b, "csv").lines().count(), 1 + rows);
}

#[test]
fn a_report_can_be_made_again() {
    let folder = Folder::new("again");
    let results = serde_json::to_vec(&fixture::complete(1)).expect("results as JSON");
    let results = folder.write("results.json", &results);
    let page = folder.0.join("page.html");
    let words = ["report".as_ref(), results.as_os_str(), "-o".as_ref(), page.as_os_str()];
    let words = words.into_iter().chain(["--csv".as_ref(), folder.0.as_os_str()]);
    let paths = make_report(&ReportOptions::parse_from(words)).expect("a report");
    let names: Vec<_> = paths.iter().filter_map(|path| path.file_name()).collect();
    assert_eq!(names, ["page.html", "tests.csv", "samples.csv", "comparisons.csv"]);
    assert!(paths.iter().all(|path| path.metadata().is_ok_and(|file| file.len() > 100)));
}

#[test]
fn a_bad_file_gives_one_clear_line() {
    let folder = Folder::new("bad");
    let mut old = fixture::complete(1);
    old.format = 99;
    let old = serde_json::to_vec(&old).expect("results as JSON");
    let cases: [(&str, &[u8], &str); 5] = [
        ("empty", b"", "not a results file: EOF while parsing"),
        ("text", b"hello", "not a results file: expected value at line 1 column 1"),
        ("other", b"{\"a\": 1}", "not a results file: missing field `format`"),
        ("cut", b"{\"format\": 1, \"tests\": [", "not a results file: EOF while parsing a list"),
        ("old", &old, "results format 99; this version reads format 2"),
    ];
    for (name, bytes, expected) in cases {
        let path = folder.write(name, bytes);
        let options = ReportOptions::parse_from(["report".as_ref(), path.as_os_str()]);
        let error = make_report(&options).expect_err("no results").to_string();
        assert!(error.contains(expected), "{name}: {error}");
        assert!(error.starts_with(&path.display().to_string()), "{name}: {error}");
        assert_eq!(error.lines().count(), 1, "{name}: {error}");
    }
    let missing = ReportOptions::parse_from(["report", "/no/such/results.json"]);
    let error = make_report(&missing).expect_err("no file").to_string();
    assert_eq!(error, "/no/such/results.json: No such file or directory (os error 2)");
}
