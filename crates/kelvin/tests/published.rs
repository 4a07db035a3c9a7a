//! The published command lines, with fewer keys: each runs as it is written, `kelvin bench run`
//! against `kelvin server` with a tier, whose values are on flash when a line begins.

#[allow(dead_code, reason = "what arrives byte by byte is checked there")]
#[path = "../../bench/tests/support/lines.rs"]
mod lines;
mod support;

use std::process::Command;

use bench::Options;
use lines::{LINES, Line};
use serde_json::Value;
use support::Server;

/// Runs a line in the server's directory, for it may write files; returns what it counted.
fn run(server: &Server, line: &Line) -> Value {
    let port = server.port().to_string();
    let output = Command::new(env!("CARGO_BIN_EXE_kelvin"))
        .args(["bench", "run", "-s", "127.0.0.1", "-p", &port])
        .args(line.text.split_whitespace())
        .args(["--json-out-file", "result.json"])
        .current_dir(server.directory())
        .output()
        .expect("kelvin runs");
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {complaint}", line.text);
    let text = std::fs::read(server.directory().join("result.json")).expect("a result");
    serde_json::from_slice(&text).expect("JSON")
}

/// Requests of a row, of all runs together.
fn count(result: &Value, row: &str) -> u64 {
    let whole = |title: &str| title == "ALL STATS" || title.starts_with("AGGREGATED");
    let mut parts = result.as_object().expect("an object").iter();
    let (_, part) = parts.find(|(title, _)| whole(title)).expect("a part about all");
    part[row]["Count"].as_u64().expect("a count")
}

#[test]
fn what_is_published_runs_against_kelvin() {
    let server = Server::kelvin_with_flash("512mb", &["--maxmemory", "100mb"]);
    let mut client = server.connect();
    for line in LINES {
        client.call(&["TIER", "DEMOTE", "ALL"]);
        let result = run(&server, line);
        let words = ["load"].into_iter().chain(line.text.split_whitespace());
        let options = Options::parse(words).expect("options");
        line.assert_counts(&options, count(&result, "Totals"), count(&result, "Sets"));
        for flaw in ["errors", "wrong", "connections_lost"] {
            assert_eq!(result["kelvin"][flaw], 0, "{}: {flaw}", line.text);
        }
        // Lines that only read ask for keys of the fill before them.
        if line.sets_percent == 0 {
            assert_eq!(result["kelvin"]["missing"], 0, "{}", line.text);
        }
    }
}
