//! Values that lie beside one that is read from flash come to RAM with it.

mod support;

use resp::Frame;
use support::{Client, Server, show, text};

const KEYS: usize = 8_000;

fn key(index: usize) -> String {
    format!("key:{index:06}")
}

/// A value of a length that some others have, too, half of them such that they compress.
fn value(index: usize, round: usize) -> String {
    let len = 300 + index % 400;
    let piece = format!("{index:06}-{round}-");
    match index % 2 {
        0 => piece.repeat(len / piece.len() + 1),
        _ => (0..len)
            .map(|at| char::from(b'a' + ((index * 31 + at * at * 7 + round) % 26) as u8))
            .collect(),
    }
}

fn start(promote: &str) -> Server {
    let options = [
        ["--workers", "2"],
        ["--flash-segment-size", "1mb"],
        ["--tier-promote-neighbours", promote],
        ["--tier-compression-min-bytes", "300"],
    ];
    Server::kelvin_with_flash("64mb", &options.concat())
}

fn fill(client: &mut Client, keys: usize) {
    (0..keys).for_each(|index| client.send(&["SET", &key(index), &value(index, 0)]));
    (0..keys).for_each(|_| assert_eq!(client.read(), Frame::Simple(b"OK".to_vec())));
    demote(client, keys);
}

/// Writes values to flash in the order of their keys.
fn demote(client: &mut Client, keys: usize) {
    (0..keys).for_each(|index| client.send(&["TIER", "DEMOTE", &key(index)]));
    (0..keys).for_each(|_| drop(client.read()));
}

fn number(client: &mut Client, name: &str) -> u64 {
    let info = text(&client.call(&["INFO", "tiering"]));
    let line = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.unwrap_or_else(|| panic!("no {name}")).parse().expect("a number")
}

fn read_all(client: &mut Client, indices: impl Iterator<Item = usize> + Clone, round: usize) {
    for index in indices {
        assert_eq!(text(&client.call(&["GET", &key(index)])), value(index, round), "{index}");
    }
}

/// Keys that lie apart, so that nothing is read ahead.
fn apart() -> impl Iterator<Item = usize> + Clone {
    (0..KEYS / 2).step_by(101).chain((KEYS / 2..KEYS).rev().step_by(103))
}

#[test]
fn neighbours_come_with_what_is_read_and_are_what_was_written_last() {
    let server = start("always");
    let mut client = server.connect();
    fill(&mut client, KEYS);
    // What is dead on flash beside what lives is not brought back.
    for index in (0..KEYS).step_by(5) {
        client.call(&["SET", &key(index), &value(index, 1)]);
    }
    demote(&mut client, KEYS);
    for index in (0..KEYS).step_by(7) {
        client.call(&["DEL", &key(index)]);
    }
    assert_eq!(number(&mut client, "tier_values_clean"), 0);
    let read: Vec<usize> = apart().filter(|index| index % 7 != 0 && index % 5 != 0).collect();
    read_all(&mut client, read.iter().copied(), 0);
    let brought = number(&mut client, "tier_brought_along");
    assert!(brought > 2 * read.len() as u64, "{brought} with {}", read.len());
    assert_eq!(number(&mut client, "tier_promoted"), brought + read.len() as u64);
    assert_eq!(number(&mut client, "tier_read_flash"), read.len() as u64, "what was asked for");
    for index in 0..KEYS {
        let expected = match (index % 7, index % 5) {
            (0, _) => "_".to_owned(),
            (_, 0) => format!("${}", value(index, 1)),
            _ => format!("${}", value(index, 0)),
        };
        assert_eq!(show(&client.call(&["GET", &key(index)])), expected, "{index}");
    }
}

#[test]
fn what_is_brought_along_was_not_used() {
    let options = ["--maxmemory-policy", "allkeys-lfu", "--tier-promote-neighbours", "always"];
    let server = Server::kelvin_with_flash("64mb", &[&options[..], &["--workers", "1"]].concat());
    let mut client = server.connect();
    fill(&mut client, KEYS);
    let frequencies = |client: &mut Client| {
        let frequency = |index: usize| show(&client.call(&["OBJECT", "FREQ", &key(index)]));
        (0..KEYS).map(frequency).collect::<Vec<_>>()
    };
    let before = frequencies(&mut client);
    let read: Vec<usize> = apart().collect();
    read_all(&mut client, read.iter().copied(), 0);
    assert!(number(&mut client, "tier_brought_along") > 0);
    let behind = frequencies(&mut client);
    let changed = (0..KEYS).filter(|&index| before[index] != behind[index]);
    assert!(
        changed.clone().all(|index| read.contains(&index)),
        "{:?}",
        changed.collect::<Vec<_>>()
    );
}

#[test]
fn a_snapshot_brings_nothing_along() {
    let server = start("always");
    let mut client = server.connect();
    fill(&mut client, KEYS);
    assert_eq!(client.show("SAVE"), "+OK");
    assert_eq!(number(&mut client, "tier_brought_along"), 0);
    assert_eq!(number(&mut client, "tier_values_clean"), 0);
}

#[test]
fn a_sample_tells_whether_neighbours_are_worth_it() {
    const MANY: usize = 60_000;
    // Of all, any is read as often as a neighbour.
    for (promote, keys, comes) in
        [("auto", MANY / 12, true), ("auto", MANY, false), ("never", MANY / 12, false)]
    {
        let options = ["--tier-compression", "none", "--tier-promote-neighbours", promote];
        let options = [&options[..], &["--workers", "1", "--tier-read-ahead", "no"]].concat();
        let server = Server::kelvin_with_flash("128mb", &options);
        let mut client = server.connect();
        fill(&mut client, MANY);
        let mut random = stdx::Random::new(7);
        for _ in 0..200 {
            let batch: Vec<usize> = (0..100).map(|_| random.below(keys as u64) as usize).collect();
            batch.iter().for_each(|&index| client.send(&["GET", &key(index)]));
            for &index in &batch {
                assert_eq!(text(&client.read()), value(index, 0), "{index}");
            }
        }
        let brought = number(&mut client, "tier_brought_along");
        assert_eq!(brought > 0, comes, "{promote} of {keys}: {brought}");
    }
}
