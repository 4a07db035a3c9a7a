//! Streams that groups of consumers read: each group is given every entry once, each consumer entries in the
//! order of their IDs, and in the end all are acknowledged.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use resp::Frame;
use stdx::Random;

use crate::support::{Client, show, text};
use crate::{Run, call, integer, items, padded, texts, transaction, words};

const STREAMS: usize = 3;
const PRODUCERS: usize = 3;
const GROUPS: [&str; 2] = ["one", "two"];
/// Of each group.
const CONSUMERS: usize = 4;
const VALUE_BYTES: usize = 60;
/// Entries that a consumer has been given before it acknowledges some.
const PENDING_MAX: u64 = 200;
/// The stream whose entries go with their acknowledgement; one group reads it.
const DELETED: usize = 0;

/// An ID, as the two numbers that it is.
type Id = (u64, u64);
/// The entries of each stream, each with the value that it has.
type Entries = [BTreeMap<Id, String>; STREAMS];

pub fn check(run: &Run) -> String {
    let mut client = run.server.connect();
    for (stream, group) in (0..STREAMS).flat_map(|stream| GROUPS.map(|group| (stream, group))) {
        if reads(group, stream) {
            let created = client.show(&format!("XGROUP CREATE stream-{stream} {group} 0 MKSTREAM"));
            assert_eq!(created, "+OK");
        }
    }
    let is_added = &AtomicBool::new(false);
    let (added, delivered) = thread::scope(|scope| {
        let consumers = GROUPS.map(|group| {
            let consumers = (0..CONSUMERS).map(|index| {
                scope.spawn(move || run.guard(|| consume(run, group, index, is_added)))
            });
            consumers.collect::<Vec<_>>()
        });
        let producers: Vec<_> = (0..PRODUCERS)
            .map(|index| scope.spawn(move || run.guard(|| produce(run, index))))
            .collect();
        let added: Vec<_> = producers.into_iter().map(|producer| producer.join()).collect();
        is_added.store(true, Ordering::Release);
        let delivered = consumers.map(|consumers| {
            let consumers: Vec<_> = consumers.into_iter().map(|consumer| consumer.join()).collect();
            joined(consumers.into_iter().map(|entries| entries.expect("a consumer")))
        });
        (joined(added.into_iter().map(|entries| entries.expect("a producer"))), delivered)
    });
    assert!(!run.has_failed(), "another part failed");
    for (group, delivered) in GROUPS.iter().zip(&delivered) {
        for stream in (0..STREAMS).filter(|stream| reads(group, *stream)) {
            let (delivered, added) = (&delivered[stream], &added[stream]);
            assert_eq!(delivered.len(), added.len(), "group {group} of stream {stream}");
            assert!(delivered == added, "group {group} of stream {stream}: not what was added");
            let pending = client.line(&format!("XPENDING stream-{stream} {group}"));
            assert_eq!(show(&pending), "[:0 _ _ _]", "group {group} of stream {stream}");
        }
    }
    for (stream, added) in added.iter().enumerate() {
        let left = if stream == DELETED { 0 } else { added.len() };
        assert_eq!(client.show(&format!("XLEN stream-{stream}")), format!(":{left}"));
    }
    let count = added.iter().map(BTreeMap::len).sum::<usize>();
    format!("{count} entries added to streams, each delivered to every group once and acknowledged")
}

fn reads(group: &str, stream: usize) -> bool {
    stream != DELETED || group == GROUPS[0]
}

/// All entries together. Panics: when two have the same ID.
fn joined(parts: impl Iterator<Item = Entries>) -> Entries {
    let mut all = Entries::default();
    for (stream, entries) in parts.flat_map(|part| part.into_iter().enumerate()) {
        for (id, value) in entries {
            let twice = all[stream].insert(id, value);
            assert!(twice.is_none(), "stream {stream}: {id:?} is there twice");
        }
    }
    all
}

fn produce(run: &Run, producer: usize) -> Entries {
    let mut client = run.server.connect();
    let mut random = Random::new(producer as u64);
    let mut added = Entries::default();
    let mut number = 0;
    while run.goes_on() {
        let mut add = || {
            let stream = random.below(STREAMS as u64) as usize;
            number += 1;
            let value = padded(&format!("{producer}:{number}"), VALUE_BYTES);
            (stream, value.clone(), words(&format!("XADD stream-{stream} * value {value}")))
        };
        let first = add();
        let entries = if first.0 == DELETED { vec![first, add()] } else { vec![first] };
        let replies = match &entries[..] {
            [(_, _, request)] => vec![call(&mut client, request)],
            several => {
                let requests: Vec<_> =
                    several.iter().map(|(.., request)| request.clone()).collect();
                transaction(&mut client, &requests)
            }
        };
        for ((stream, value, _), reply) in entries.into_iter().zip(replies) {
            insert(&mut added[stream], id_of(&text(&reply)), value);
        }
    }
    added
}

/// Adds an entry behind all others.
fn insert(entries: &mut BTreeMap<Id, String>, id: Id, value: String) {
    let last = entries.last_key_value().map(|(id, _)| *id);
    assert!(last < Some(id), "{id:?} comes after {last:?}");
    entries.insert(id, value);
}

/// Reads as a consumer of a group, and acknowledges what it is given, until there is no more.
fn consume(run: &Run, group: &str, index: usize, is_added: &AtomicBool) -> Entries {
    let mut client = run.server.connect();
    let mut random = Random::new(index as u64);
    let mut given = Entries::default();
    let mut pending = Vec::new();
    let streams: Vec<usize> = (0..STREAMS).filter(|stream| reads(group, *stream)).collect();
    let names: Vec<String> = streams.iter().map(|stream| format!("stream-{stream}")).collect();
    let news = vec![">"; streams.len()].join(" ");
    while !run.has_failed() {
        let is_last = is_added.load(Ordering::Acquire);
        let (count, wait) = (random.between(1, 20), random.between(1, 200));
        let names = names.join(" ");
        let read = client.line(&format!(
            "XREADGROUP GROUP {group} c{index} COUNT {count} BLOCK {wait} STREAMS {names} {news}"
        ));
        if show(&read) == "_" {
            if is_last {
                break;
            }
            continue;
        }
        for (stream, id, value) in entries_of(read) {
            insert(&mut given[stream], id, value);
            pending.push((stream, id));
        }
        if pending.len() as u64 > random.between(1, PENDING_MAX) {
            acknowledge(&mut client, group, &mut random, &mut pending);
        }
    }
    while !pending.is_empty() && !run.has_failed() {
        acknowledge(&mut client, group, &mut random, &mut pending);
    }
    given
}

/// Acknowledges some of what is pending, in any order.
fn acknowledge(
    client: &mut Client,
    group: &str,
    random: &mut Random,
    pending: &mut Vec<(usize, Id)>,
) {
    for _ in 0..random.between(1, pending.len() as u64) {
        let (stream, (time, number)) =
            pending.swap_remove(random.below(pending.len() as u64) as usize);
        let id = format!("{time}-{number}");
        let done = words(&format!("XACK stream-{stream} {group} {id}"));
        if stream == DELETED {
            let replies =
                transaction(client, &[done, words(&format!("XDEL stream-{stream} {id}"))]);
            assert!(replies.iter().all(|reply| integer(reply) == 1), "{replies:?}");
        } else {
            assert_eq!(integer(&call(client, &done)), 1, "{id} was pending");
        }
    }
}

/// Stream, ID and value of all entries that were read.
fn entries_of(read: Frame) -> Vec<(usize, Id, String)> {
    let mut found = Vec::new();
    for stream in items(read) {
        let [name, entries] =
            <[Frame; 2]>::try_from(items(stream)).expect("a name and its entries");
        let number = text(&name).strip_prefix("stream-").and_then(|number| number.parse().ok());
        for entry in items(entries) {
            let [id, fields] = <[Frame; 2]>::try_from(items(entry)).expect("an ID and its fields");
            let [_, value] = <[String; 2]>::try_from(texts(fields)).expect("a field and its value");
            found.push((number.expect("a stream's number"), id_of(&text(&id)), value));
        }
    }
    found
}

fn id_of(text: &str) -> Id {
    let (time, number) = text.split_once('-').expect("an ID");
    (time.parse().expect("a time"), number.parse().expect("a number"))
}
