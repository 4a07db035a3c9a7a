//! Values of every type that transactions change together: whoever reads them in a transaction sees all of them
//! of one version, and whoever reads one of them sees the whole of it.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use resp::Frame;
use stdx::Random;

use crate::support::{Client, show};
use crate::{Run, call, padded, texts, transaction, unpadded, words};

/// Bundles of values that change together, each with a value of every type.
const BUNDLES: u64 = 3;
/// Elements of each collection: enough that it is a tree.
const ELEMENTS: usize = 60;
const ELEMENT_BYTES: usize = 90;
const WRITERS: u64 = 3;
const READERS: u64 = 2;

pub fn check(run: &Run) -> String {
    let (writes, reads) = (AtomicUsize::new(0), AtomicUsize::new(0));
    thread::scope(|scope| {
        for seed in 0..WRITERS {
            let writes = &writes;
            scope.spawn(move || run.guard(|| write(run, seed, writes)));
        }
        for seed in 0..READERS {
            let reads = &reads;
            scope.spawn(move || run.guard(|| read(run, seed, reads)));
        }
    });
    format!("{writes:?} changes of values of all types together, {reads:?} reads of them")
}

fn write(run: &Run, seed: u64, writes: &AtomicUsize) {
    let mut client = run.server.connect();
    let mut random = Random::new(seed);
    let mut version = 0;
    while run.goes_on() {
        version += 1;
        let bundle = random.below(BUNDLES);
        let requests = match random.below(8) {
            0 => vec![words(&format!(
                "DEL string-{bundle} many-{bundle} hash-{bundle} members-{bundle} scores-{bundle} log-{bundle}"
            ))],
            _ => write_all(bundle, &format!("{seed}:{version}")),
        };
        for reply in transaction(&mut client, &requests) {
            assert!(!matches!(reply, Frame::Error(_)), "{}", show(&reply));
        }
        writes.fetch_add(1, Ordering::Relaxed);
    }
}

/// Requests that give every value of a bundle this version.
fn write_all(bundle: u64, version: &str) -> Vec<Vec<String>> {
    let element = padded(version, ELEMENT_BYTES);
    let with = |line: String, words_of: &dyn Fn(usize) -> Vec<String>| {
        let mut request = words(&line);
        (0..ELEMENTS).for_each(|index| request.extend(words_of(index)));
        request
    };
    vec![
        words(&format!("SET string-{bundle} {element}")),
        // The new ones come in front of the old ones, which are cut off.
        with(format!("LPUSH many-{bundle}"), &|_| vec![element.clone()]),
        words(&format!("LTRIM many-{bundle} 0 {}", ELEMENTS - 1)),
        with(format!("HSET hash-{bundle}"), &|index| {
            vec![format!("field-{index}"), element.clone()]
        }),
        words(&format!("DEL members-{bundle}")),
        with(format!("SADD members-{bundle}"), &|index| {
            vec![padded(&format!("{version}:{index}"), ELEMENT_BYTES)]
        }),
        with(format!("ZADD scores-{bundle}"), &|index| {
            vec![score(version).to_string(), padded(&format!("member-{index}"), ELEMENT_BYTES)]
        }),
        words(&format!("XADD log-{bundle} MAXLEN ~ {} * version {element}", 10 * ELEMENTS)),
    ]
}

/// A version as a number.
fn score(version: &str) -> u64 {
    let (writer, number) = version.split_once(':').expect("a writer and a number");
    let [writer, number] = [writer, number].map(|part| part.parse::<u64>().expect("a number"));
    number * WRITERS + writer
}

/// How each value of a bundle is read.
fn reads_of(bundle: u64) -> [Vec<String>; 6] {
    [
        format!("GET string-{bundle}"),
        format!("LRANGE many-{bundle} 0 -1"),
        format!("HGETALL hash-{bundle}"),
        format!("SMEMBERS members-{bundle}"),
        format!("ZRANGE scores-{bundle} 0 -1 WITHSCORES"),
        format!("XREVRANGE log-{bundle} + - COUNT 1"),
    ]
    .map(|line| words(&line))
}

fn read(run: &Run, seed: u64, count: &AtomicUsize) {
    let mut client = run.server.connect();
    let mut random = Random::new(100 + seed);
    while run.goes_on() {
        let requests = reads_of(random.below(BUNDLES));
        if random.below(3) == 0 {
            read_one(&mut client, &requests, random.below(requests.len() as u64) as usize);
        } else {
            let replies = transaction(&mut client, &requests);
            let versions =
                replies.into_iter().enumerate().map(|(kind, reply)| version_of(kind, reply));
            let versions: Vec<_> = versions.collect();
            let is_one = versions.iter().all(|version| *version == versions[0]);
            assert!(is_one, "values of different versions: {versions:?}");
        }
        count.fetch_add(1, Ordering::Relaxed);
    }
}

fn read_one(client: &mut Client, requests: &[Vec<String>], kind: usize) {
    let reply = call(client, &requests[kind]);
    version_of(kind, reply);
}

/// The version of a value as a number, none when it is not there. Panics: when parts of it are of others.
fn version_of(kind: usize, reply: Frame) -> Option<u64> {
    let version_in = |text: &str| -> u64 {
        let text = unpadded(text);
        // Members of sets are numbered besides.
        let end = text.match_indices(':').nth(1).map_or(text.len(), |(at, _)| at);
        score(&text[..end])
    };
    let found: Vec<u64> = match (kind, reply) {
        (0, Frame::Bulk(value)) => vec![version_in(&String::from_utf8_lossy(&value))],
        (0, null) => {
            assert_eq!(show(&null), "_");
            Vec::new()
        }
        (1 | 3, elements) => texts(elements).iter().map(|element| version_in(element)).collect(),
        (2, fields) => texts(fields).chunks(2).map(|pair| version_in(&pair[1])).collect(),
        (4, scores) => {
            texts(scores).chunks(2).map(|pair| pair[1].parse().expect("a whole number")).collect()
        }
        (_, entries) => {
            let entry = crate::items(entries).pop();
            let fields = entry.and_then(|entry| crate::items(entry).pop());
            fields.into_iter().map(|fields| version_in(&texts(fields)[1])).collect()
        }
    };
    let expected = if matches!(kind, 0 | 5) { 1 } else { ELEMENTS };
    assert!(found.is_empty() || found.len() == expected, "{} of {expected} elements", found.len());
    assert!(
        found.iter().all(|version| *version == found[0]),
        "a value of several versions: {found:?}"
    );
    found.first().copied()
}
