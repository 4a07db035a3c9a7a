//! COMMAND, compared with a real redis-server: for every command that both have, all that is told
//! of it must be the same.

mod support;

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::process::{Command, Stdio};

use resp::Frame;
use support::{Server, assert_same_replies, show, text};

/// Commands and subcommands that Redis 7.0 does not have.
const OURS: &[&str] = &[
    "client|no-touch",
    "client|setinfo",
    "hexpire",
    "hexpireat",
    "hexpiretime",
    "hgetdel",
    "hgetex",
    "hpersist",
    "hpexpire",
    "hpexpireat",
    "hpexpiretime",
    "hpttl",
    "hsetex",
    "httl",
    "tier",
];

#[test]
fn replies_are_those_of_redis() {
    assert_same_replies(
        &Server::kelvin(&[]),
        &Server::redis(&[]),
        &[
            "COMMAND FOO",
            "COMMAND COUNT x",
            "COMMAND HELP x",
            "COMMAND LIST FOO",
            "COMMAND LIST FILTERBY",
            "COMMAND LIST FILTERBY foo bar",
            "COMMAND LIST FILTERBY MODULE",
            "COMMAND LIST FILTERBY MODULE foo",
            "COMMAND LIST FILTERBY ACLCAT foo",
            "COMMAND LIST FILTERBY ACLCAT @transaction",
            "COMMAND LIST FILTERBY PATTERN foo bar",
            "COMMAND LIST FILTERBY PATTERN CONFIG|SE*",
            "COMMAND INFO foo config|get get|foo config|foo",
            "COMMAND DOCS foo",
            "COMMAND GETKEYS",
            "COMMAND GETKEYS GET",
            "COMMAND GETKEYS FOO a",
            "COMMAND GETKEYS GET a b",
            "COMMAND GETKEYS SET a b GET",
            "COMMAND GETKEYS MSET a b c d",
            "COMMAND GETKEYS CONFIG GET x",
            "COMMAND GETKEYS CONFIG FOO",
            "COMMAND GETKEYS OBJECT ENCODING x",
            "COMMAND GETKEYS MEMORY USAGE x",
            "COMMAND GETKEYS LCS a b",
            "COMMAND GETKEYS WATCH a b",
            "COMMAND GETKEYSANDFLAGS SET a b",
            "COMMAND GETKEYSANDFLAGS SET a GET",
            "COMMAND GETKEYSANDFLAGS SET a b GET",
            "COMMAND GETKEYSANDFLAGS MSET a b c d",
            "COMMAND GETKEYSANDFLAGS BITFIELD a",
            "COMMAND GETKEYSANDFLAGS BITFIELD a GET u8 1",
            "COMMAND GETKEYSANDFLAGS BITFIELD a GET u8 1 SET u8 1 1",
            "COMMAND GETKEYSANDFLAGS BITFIELD a INCRBY u8 1 1",
            "COMMAND GETKEYSANDFLAGS BITOP AND a b c",
            "COMMAND GETKEYSANDFLAGS COPY a b",
            "COMMAND GETKEYSANDFLAGS GETDEL a",
            "COMMAND GETKEYSANDFLAGS LCS a b",
            "COMMAND GETKEYSANDFLAGS PING",
            "COMMAND GETKEYSANDFLAGS FOO x",
        ],
    );
}

/// The entries of COMMAND INFO by name, subcommands too.
fn infos(frame: &Frame) -> BTreeMap<String, Vec<Frame>> {
    let mut found = BTreeMap::new();
    let (Frame::Array(entries) | Frame::Set(entries)) = frame else { panic!("{}", show(frame)) };
    for entry in entries {
        let Frame::Array(fields) = entry else { panic!("{}", show(entry)) };
        found.extend(infos(&fields[9]));
        let mut fields = fields[..9].to_vec();
        let Frame::Set(keys) = &mut fields[8] else { panic!("RESP3 has sets") };
        for key in keys {
            let Frame::Map(pairs) = key else { panic!("RESP3 has maps") };
            // Remarks for readers of Redis's source.
            pairs.retain(|(name, _)| text(name) != "notes");
        }
        found.insert(text(&fields[0]), fields);
    }
    found
}

#[test]
fn every_command_is_described_as_redis_describes_it() {
    let (kelvin, redis) = (Server::kelvin(&[]), Server::redis(&[]));
    let ask = |server: &Server| {
        let mut client = server.connect();
        client.call(&["HELLO", "3"]);
        infos(&client.call(&["COMMAND"]))
    };
    let (ours, theirs) = (ask(&kelvin), ask(&redis));
    assert!(ours.len() > 100, "{} commands", ours.len());
    let mut differences = Vec::new();
    for (name, fields) in &ours {
        match theirs.get(name) {
            Some(expected) if expected == fields => {}
            // They take WITHSCORE, as in Redis 7.2.
            Some(expected) if ["zrank", "zrevrank"].contains(&name.as_str()) => {
                assert_eq!(fields[2..], expected[2..], "{name}");
            }
            Some(expected) => {
                let (own, expected) =
                    (Frame::Array(fields.clone()), Frame::Array(expected.clone()));
                differences.push(format!("  kelvin {}\n  redis  {}", show(&own), show(&expected)));
            }
            None if OURS.iter().any(|own| name.starts_with(own)) => {}
            None => differences.push(format!("  {name} is not in Redis")),
        }
    }
    assert!(differences.is_empty(), "\n{}", differences.join("\n"));
}

fn map(frame: &Frame) -> BTreeMap<String, &Frame> {
    let Frame::Map(pairs) = frame else { panic!("{}", show(frame)) };
    pairs.iter().map(|(name, value)| (text(name), value)).collect()
}

/// An argument without its name and what depends on it: type, token, key specification, flags.
fn shape(argument: &Frame) -> String {
    let fields = map(argument);
    let field = |name: &str| fields.get(name).map(|value| show(value)).unwrap_or_default();
    let inner = fields.get("arguments").map(|inner| shapes(inner)).unwrap_or_default();
    let flags = field("flags");
    format!("{}{}{}{flags}({inner})", field("type"), field("token"), field("key_spec_index"))
}

fn shapes(arguments: &Frame) -> String {
    let Frame::Array(arguments) = arguments else { panic!("{}", show(arguments)) };
    arguments.iter().map(shape).collect::<Vec<_>>().join(" ")
}

/// Compares the docs of one command and of its subcommands.
fn compare_docs(name: &str, ours: &Frame, theirs: &Frame, differences: &mut Vec<String>) {
    /// Commands whose arguments this manual writes in another form than Redis 7.0's: with what came
    /// later, or more of the structure.
    const OTHER_ARGUMENTS: &[&str] = &[
        "bitcount",
        "bitop",
        "client|kill",
        "client|list",
        "command|getkeys",
        "command|getkeysandflags",
        "config|get",
        "geosearch",
        "geosearchstore",
        "psubscribe",
        "xinfo|stream",
        "xread",
        "xreadgroup",
        "xtrim",
        "zrank",
        "zrevrank",
    ];
    let (own, expected) = (map(ours), map(theirs));
    for field in ["since", "group"] {
        if own[field] != expected[field] {
            let (own, expected) = (show(own[field]), show(expected[field]));
            differences.push(format!("{name} {field}: kelvin {own}, redis {expected}"));
        }
    }
    let arguments = |docs: &BTreeMap<String, &Frame>| {
        docs.get("arguments").map(|arguments| shapes(arguments)).unwrap_or_default()
    };
    if arguments(&own) != arguments(&expected) && !OTHER_ARGUMENTS.contains(&name) {
        let (own, expected) = (arguments(&own), arguments(&expected));
        differences.push(format!("{name} arguments:\n  kelvin {own}\n  redis  {expected}"));
    }
    if let (Some(own), Some(expected)) = (own.get("subcommands"), expected.get("subcommands")) {
        let expected = map(expected);
        for (name, docs) in map(own) {
            if let Some(expected) = expected.get(&name) {
                compare_docs(&name, docs, expected, differences);
            }
        }
    }
}

#[test]
fn every_command_is_documented_in_redis_structure() {
    let (kelvin, redis) = (Server::kelvin(&[]), Server::redis(&[]));
    let ask = |server: &Server| {
        let mut client = server.connect();
        client.call(&["HELLO", "3"]);
        client.call(&["COMMAND", "DOCS"])
    };
    let (ours, theirs) = (ask(&kelvin), ask(&redis));
    let (ours, theirs) = (map(&ours), map(&theirs));
    let mut differences = Vec::new();
    for (name, docs) in &ours {
        assert!(map(docs).contains_key("summary"), "{name}");
        match theirs.get(name) {
            Some(expected) => compare_docs(name, docs, expected, &mut differences),
            None => assert!(OURS.contains(&name.as_str()), "{name} is not in Redis"),
        }
    }
    assert!(differences.is_empty(), "\n{}", differences.join("\n"));
}

#[test]
fn redis_cli_reads_the_documentation() {
    let server = Server::kelvin(&[]);
    // redis-cli asks for COMMAND DOCS when it starts to talk to a person, and answers HELP from it.
    let mut cli = Command::new("redis-cli")
        .args(["-p", &server.port().to_string()])
        .env("FAKETTY", "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("redis-cli is part of the test setup");
    let mut input = cli.stdin.take().expect("piped");
    input.write_all(b"HELP TIER LOCATE\nHELP GETEX\nquit\n").expect("redis-cli reads");
    drop(input);
    let mut shown = String::new();
    cli.stdout.take().expect("piped").read_to_string(&mut shown).expect("text");
    cli.wait().expect("it ends");
    let shown = without_colours(&shown);
    for expected in [
        "TIER LOCATE key",
        "Tells where the value of a key is.",
        "GETEX key [EX seconds|PX milliseconds|EXAT unix-time-seconds|PXAT \
         unix-time-milliseconds|PERSIST]",
    ] {
        assert!(shown.contains(expected), "no {expected:?} in:\n{shown}");
    }
}

/// A text without the escape sequences that colour it.
fn without_colours(text: &str) -> String {
    let mut parts = text.split("\x1b[");
    let mut plain = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        plain.push_str(part.split_once('m').map_or(part, |(_, rest)| rest));
    }
    plain
}

#[test]
fn lists_count_what_there_is() {
    let server = Server::kelvin(&[]);
    let mut client = server.connect();
    let Frame::Integer(count) = client.call(&["COMMAND", "COUNT"]) else { panic!("a number") };
    let Frame::Array(all) = client.call(&["COMMAND"]) else { panic!("an array") };
    let Frame::Array(named) = client.call(&["COMMAND", "INFO"]) else { panic!("an array") };
    let Frame::Array(names) = client.call(&["COMMAND", "LIST"]) else { panic!("an array") };
    assert_eq!(all.len() as i64, count);
    assert_eq!(named.len() as i64, count);
    let names: Vec<String> = names.iter().map(text).collect();
    assert_eq!(names.iter().filter(|name| !name.contains('|')).count() as i64, count);
    let at = |name: &str| names.iter().position(|other| other == name).expect("listed");
    assert!(at("config") < at("config|get"));
}

#[test]
fn what_is_missing_is_said_to_be_missing() {
    let page = "../../docs/compatibility.md";
    let page = std::fs::read_to_string(page).expect("the page");
    let (_, missing) = page.split_once("## What is not there yet").expect("a section");
    let (missing, _) = missing.split_once("## What differs").expect("the next section");
    let names = |server: &Server| {
        let Frame::Array(names) = server.connect().call(&["COMMAND", "LIST"]) else {
            panic!("an array")
        };
        let names = names.iter().map(text).filter(|name| !name.ends_with("|help"));
        names.collect::<Vec<_>>()
    };
    let (ours, theirs) = (names(&Server::kelvin(&[])), names(&Server::redis(&[])));
    for name in theirs {
        // Subcommands of a container that is missing as a whole need no mention.
        let container = name.split('|').next().expect("a first part").to_owned();
        let mention = if ours.contains(&container) { &name } else { &container };
        let mention = format!("`{}`", mention.to_uppercase().replace('|', " "));
        let is_there = ours.contains(&name);
        assert_eq!(missing.contains(&mention), !is_there, "{mention} in docs/compatibility.md");
    }
}
