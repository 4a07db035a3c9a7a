//! Keeps `docs/compatibility.md` true: its tables of commands are made from the command table.
//!
//! The text before the tables is written by hand.

use command::Group;

use crate::family::REGISTRY;
use crate::state::registry::Entry;

/// What stands before the tables in the page.
const HEADING: &str = "\n## Commands\n";
const INTRODUCTION: &str = "
Every command there is, with its arity as `COMMAND INFO` tells it and the version of Redis that
brought it. These tables are made from the command table; a test keeps them so
(`KELVIN_WRITE_DOCS=1 cargo test -p server` writes them anew).
";

/// The groups in the order of the page.
const GROUPS: &[(Group, &str)] = &[
    (Group::String, "Strings"),
    (Group::Set, "Sets"),
    (Group::SortedSet, "Sorted sets"),
    (Group::Geo, "Geographic indexes"),
    (Group::Hash, "Hashes"),
    (Group::List, "Lists"),
    (Group::Stream, "Streams"),
    (Group::Bitmap, "Bitmaps"),
    (Group::HyperLogLog, "HyperLogLogs"),
    (Group::Generic, "Keys"),
    (Group::Transactions, "Transactions"),
    (Group::PubSub, "Publish and subscribe"),
    (Group::Connection, "Connections"),
    (Group::Server, "Server"),
];

fn page(by_hand: &str) -> String {
    let mut page = format!("{by_hand}{HEADING}{INTRODUCTION}");
    for (group, title) in GROUPS {
        page.push_str(&format!(
            "\n### {title}\n\n| Command | Since | Arity | What it does |\n| --- | --- | --- | --- |\n"
        ));
        let entries = REGISTRY.in_order().filter(|entry| entry.spec.docs.group == *group);
        for entry in entries.filter(|entry| entry.subcommands.is_empty() || entry.spec.takes(1)) {
            page.push_str(&row(entry));
        }
    }
    page
}

fn row(entry: &Entry) -> String {
    let docs = &entry.spec.docs;
    let name = entry.spec.name.replace('|', " ");
    let syntax = format!("{name} {}", docs.syntax);
    // A bar would end the cell, in code too.
    let syntax = syntax.trim_end().replace('|', "\\|");
    format!("| `{syntax}` | {} | {} | {} |\n", docs.since, entry.spec.arity, docs.summary)
}

#[test]
fn the_page_in_docs_is_the_table() {
    let path = "../../docs/compatibility.md";
    let written = std::fs::read_to_string(path).expect("docs/compatibility.md");
    let (by_hand, _) = written.split_once(HEADING).expect("the page has a heading for the tables");
    let expected = page(by_hand);
    if std::env::var_os("KELVIN_WRITE_DOCS").is_some() {
        std::fs::write(path, &expected).expect("docs/ can be written");
        return;
    }
    assert!(written == expected, "run KELVIN_WRITE_DOCS=1 cargo test -p server");
}

#[test]
fn every_command_has_a_place_and_a_sentence() {
    for entry in &REGISTRY.entries {
        let docs = &entry.spec.docs;
        assert!(GROUPS.iter().any(|(group, _)| *group == docs.group), "{}", entry.spec.name);
        assert!(docs.summary.ends_with('.') && !docs.summary.contains('|'), "{}", entry.spec.name);
    }
}
