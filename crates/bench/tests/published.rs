//! The published command lines, with fewer keys: each runs as it is written against the recording
//! server, which checks what arrives, and against redis-server. (crates/kelvin/tests/published.rs
//! runs them against Kelvin.)

mod support;

use support::lines::LINES;
use support::real::Real;
use support::recorder::{Fault, Recorder};
use support::{GETS, SETS, options};

#[test]
fn what_is_published_arrives_as_it_is_written() {
    for line in LINES {
        let server = Recorder::start(Fault::None);
        let report = bench::run(&options(server.port, line.text)).expect(line.text);
        assert!(report.is_flawless(), "{}: {report}", line.text);
        let mut requests = server.take();
        requests.retain(|words| words[0] != b"CLUSTER");
        let sets: Vec<_> = requests.iter().filter(|words| words[0] == b"SET").collect();
        assert_eq!(requests.len() as u64, report.stats().totals().count(), "{}", line.text);
        line.assert_counts(&report.options, requests.len() as u64, sets.len() as u64);
        assert!(sets.iter().all(|words| words[2].len() == line.data_size), "{}", line.text);
        let (low, high) = (report.options.key_minimum, report.options.key_maximum);
        for words in &requests {
            let digits = words[1].strip_prefix(b"memtier-").expect("the prefix");
            let key: u64 = String::from_utf8_lossy(digits).parse().expect("a number");
            assert!((low..=high).contains(&key), "{}: {key}", line.text);
        }
    }
}

#[test]
fn what_is_published_runs_against_redis() {
    let server = Real::start(&[]);
    for line in LINES {
        let report = bench::run(&options(server.port, line.text)).expect(line.text);
        assert!(report.is_flawless(), "{}: {report}", line.text);
        let counts = |row: usize| report.stats().rows[row].count();
        line.assert_counts(&report.options, counts(SETS) + counts(GETS), counts(SETS));
    }
}

#[test]
fn every_kind_of_command_runs_against_redis() {
    let lines = [
        "-P resp3 -n 100 --ratio 1:1 --select-db 2",
        "-P resp2 -n 100 --multi-key-get 5 --ratio 1:10",
        "-n 100 --ratio 1:1 --wait-ratio 1:1 --num-slaves 0-0 --wait-timeout 1-2",
        "-n 100 --ratio 1:0 --expiry-range 10-20 --data-size-list 1:1,1000:1",
        "-n 100 --reconnect-interval 9 --pipeline 4",
        "-n 100 --rate-limiting 5000",
        "-P resp3 -n 100 --key-prefix h --command HGETALL\u{a0}__key__",
    ];
    let server = Real::start(&[]);
    for line in lines {
        let words = format!("load -p {} -c 2 -t 2 {line}", server.port);
        // A hard space stands for one inside a word.
        let words = words.split(' ').map(|word| word.replace('\u{a0}', " "));
        let report = bench::run(&bench::Options::parse(words).expect(line)).expect(line);
        assert!(report.is_flawless(), "{line}: {report}");
        assert_eq!(report.stats().totals().count(), 400, "{line}");
    }
}
