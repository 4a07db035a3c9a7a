//! Reads of large collections, which come in windows, while others change them and their leaves go to flash.

mod support;

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use resp::Frame;
use stdx::Random;
use support::kept::field;
use support::{Client, Server, show, text};

const ELEMENTS: u64 = 6_000;
/// Elements that are changed together, far from each other, so that several windows lie between them.
const TOGETHER: u64 = 12;
const LASTS: Duration = Duration::from_secs(6);
const PAUSE_MS_MAX: u64 = 60;

fn element(number: u64) -> String {
    format!("e{number:06}-{}", "x".repeat(60 + number as usize % 60))
}

fn fill(client: &mut Client) {
    for start in (0..ELEMENTS).step_by(100) {
        let numbers = start..start + 100;
        let (mut hset, mut sadd) =
            (vec!["HSET".to_owned(), "h".into()], vec!["SADD".to_owned(), "s".into()]);
        let (mut rpush, mut zadd) =
            (vec!["RPUSH".to_owned(), "l".into()], vec!["ZADD".to_owned(), "z".into()]);
        for number in numbers {
            hset.extend([element(number), "0".into()]);
            sadd.push(element(number));
            rpush.push(if is_changed(number) { "0".into() } else { element(number) });
            zadd.extend([format!("{number}"), element(number)]);
        }
        for words in [hset, sadd, rpush, zadd] {
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            client.call(&words);
        }
    }
    client.line("SADD s mark-0");
}

fn is_changed(number: u64) -> bool {
    number.is_multiple_of(ELEMENTS / TOGETHER)
}

fn changed() -> impl Iterator<Item = u64> {
    (0..ELEMENTS).filter(|number| is_changed(*number))
}

/// Changes some elements of each collection, all of one at once, to say the same.
fn change(client: &mut Client, round: u64) {
    let value = round.to_string();
    let fields: Vec<String> =
        changed().flat_map(|number| [element(number), value.clone()]).collect();
    let words = ["HSET", "h"].into_iter().chain(fields.iter().map(String::as_str));
    assert_eq!(show(&client.call(&words.collect::<Vec<_>>())), ":0");
    client.line("MULTI");
    for number in changed() {
        client.line(&format!("LSET l {number} {value}"));
    }
    client.line(&format!("SREM s mark-{}", round - 1));
    client.line(&format!("SADD s mark-{round}"));
    // At the end, at the head and at the end of a range again.
    let score = if round.is_multiple_of(2) { 0 } else { ELEMENTS };
    for number in changed() {
        client.line(&format!("ZADD z {}.5 {}", score + number % 7, element(number)));
    }
    assert!(matches!(client.line("EXEC"), Frame::Array(_)));
}

fn items(client: &mut Client, line: &str) -> Vec<String> {
    match client.line(line) {
        Frame::Array(items) => items.iter().map(text).collect(),
        other => panic!("{line}: {}", show(&other)),
    }
}

/// Reads all collections whole. Panics: one is not as it was at any time.
fn check(client: &mut Client) {
    let fields = items(client, "HGETALL h");
    assert_eq!(fields.len() as u64, 2 * ELEMENTS);
    let mut pairs: Vec<(&str, &str)> =
        fields.chunks(2).map(|pair| (&*pair[0], &*pair[1])).collect();
    pairs.sort_unstable();
    assert!(pairs.iter().zip(0..).all(|((field, _), number)| *field == element(number)));
    let together: Vec<&str> = changed().map(|number| pairs[number as usize].1).collect();
    assert!(together.iter().all(|value| *value == together[0]), "{together:?}");

    let list = items(client, "LRANGE l 0 -1");
    let together: Vec<&String> = changed().map(|number| &list[number as usize]).collect();
    assert!(together.iter().all(|value| *value == together[0]), "{together:?}");
    let rest = list.iter().zip(0..).filter(|(_, number)| !is_changed(*number));
    assert!(rest.into_iter().all(|(value, number)| *value == element(number)));

    let members = items(client, "SMEMBERS s");
    assert_eq!(members.len() as u64, ELEMENTS + 1);
    assert_eq!(members.iter().filter(|member| member.starts_with("mark-")).count(), 1);

    for line in ["ZRANGE z 0 -1 WITHSCORES", "ZRANGE z 0 -1 REV WITHSCORES"] {
        let ranked = items(client, line);
        let scores: Vec<f64> =
            ranked.iter().skip(1).step_by(2).map(|score| score.parse().expect("a score")).collect();
        let is_sorted = scores
            .is_sorted_by(|one, two| if line.contains("REV") { one >= two } else { one <= two });
        assert!(is_sorted, "{line}");
        let mut members: Vec<&String> = ranked.iter().step_by(2).collect();
        members.sort_unstable();
        assert!(
            members.iter().zip(0..).all(|(member, number)| **member == element(number)),
            "{line}"
        );
    }
}

fn read_while_others_write(workers: &str) {
    let options = ["--maxmemory", "48mb", "--workers", workers, "--tier-promotion", "access"];
    let server = Server::kelvin_with_flash("256mb", &options);
    fill(&mut server.connect());
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let (mut client, mut random) = (server.connect(), Random::new(1));
            let mut round = 0;
            while !is_over.load(Ordering::Relaxed) {
                round += 1;
                change(&mut client, round);
                thread::sleep(Duration::from_millis(random.below(PAUSE_MS_MAX)));
            }
        });
        scope.spawn(|| {
            let mut client = server.connect();
            while !is_over.load(Ordering::Relaxed) {
                assert!(matches!(client.line("TIER DEMOTE ALL"), Frame::Integer(_)));
                thread::sleep(Duration::from_millis(7));
            }
        });
        let readers = [(), (), ()].map(|()| {
            scope.spawn(|| {
                let (mut client, start) = (server.connect(), Instant::now());
                while start.elapsed() < LASTS {
                    check(&mut client);
                }
            })
        });
        let read = readers.map(|reader| reader.join());
        is_over.store(true, Ordering::Relaxed);
        read.into_iter().for_each(|read| read.expect("it reads what there was"));
    });
    check(&mut server.connect());
}

#[test]
fn a_long_walk_reads_what_there_is_at_one_moment_with_two_workers() {
    read_while_others_write("2");
}

#[test]
fn a_long_walk_reads_what_there_is_at_one_moment_with_four_workers() {
    read_while_others_write("4");
}

#[test]
fn a_long_walk_counts_as_one_use_of_its_key() {
    let server = Server::kelvin_with_flash(
        "256mb",
        &["--maxmemory", "64mb", "--maxmemory-policy", "allkeys-lfu"],
    );
    let mut client = server.connect();
    fill(&mut client);
    let hits = |client: &mut Client| field(client, "stats", "keyspace_hits");
    for demote in [false, true] {
        for line in ["HGETALL h", "SMEMBERS s", "LRANGE l 0 -1", "ZRANGE z 0 -1"] {
            if demote {
                client.line("TIER DEMOTE ALL");
            }
            let before = hits(&mut client);
            client.line(line);
            assert_eq!(hits(&mut client) - before, 1, "{line}");
        }
    }
    // As of a key that is read in one run.
    client.line("HSET small field value");
    for demote in [false, true] {
        for key in ["h", "small"] {
            assert_eq!(client.show(&format!("COPY {key} {key}-new REPLACE")), ":1");
        }
        if demote {
            client.line("TIER DEMOTE ALL");
        }
        let [long, short] = ["h-new", "small-new"].map(|key| {
            client.line(&format!("HGETALL {key}"));
            client.show(&format!("OBJECT FREQ {key}"))
        });
        assert_eq!(long, short, "{demote}");
    }
}
