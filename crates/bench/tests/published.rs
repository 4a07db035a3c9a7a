//! The published command lines, with fewer keys: each runs as it is written against the recording
//! server, which checks what arrives, and against redis-server.

mod support;

use support::options;
use support::real::Real;
use support::recorder::{Fault, Recorder};

/// A line, the keys that it is scaled to, and what must arrive: requests, SETs, size of a value.
struct Line {
    text: &'static str,
    requests: Count,
    sets_percent: u64,
    data_size: usize,
}

/// How many requests arrive.
enum Count {
    /// Exactly so many on all connections.
    Exactly(u64),
    /// As many as the time lets.
    Some,
}

const LINES: &[Line] = &[
    // A: fill.
    Line {
        text: "--cluster-mode --pipeline=8 -c 1 -t 64 --key-maximum=6400 -n allkeys \
               --data-size=512 --ratio=1:0 --key-pattern=P:P",
        requests: Count::Exactly(6401),
        sets_percent: 100,
        data_size: 512,
    },
    // A: GET, max RAM hit.
    Line {
        text: "--cluster-mode --pipeline=8 -c 1 -t 64 --key-maximum=1000 --data-size=512 \
               --ratio=0:1 --key-pattern=P:P --test-time=0.2 -x 5",
        requests: Count::Some,
        sets_percent: 0,
        data_size: 512,
    },
    // A: GET, min RAM hit: without -n each connection sends memtier's 10,000.
    Line {
        text: "--cluster-mode --pipeline=8 -c 1 -t 64 --key-maximum=6000 --data-size=512 \
               --ratio=0:1 --key-pattern=P:P",
        requests: Count::Exactly(640_000),
        sets_percent: 0,
        data_size: 512,
    },
    // A: SET, max RAM hit.
    Line {
        text: "--cluster-mode --pipeline=8 -c 1 -t 64 --key-maximum=1500 -n allkeys \
               --data-size=512 --ratio=1:0 --key-pattern=P:P -x 4",
        requests: Count::Exactly(4 * 1501),
        sets_percent: 100,
        data_size: 512,
    },
    // A: SET, min RAM hit.
    Line {
        text: "--cluster-mode --pipeline=8 -c 1 -t 64 --key-maximum=6000 -n allkeys \
               --data-size=512 --ratio=1:0 --key-pattern=P:P",
        requests: Count::Exactly(6001),
        sets_percent: 100,
        data_size: 512,
    },
    // A: 70/30, max and min.
    Line {
        text: "--cluster-mode --pipeline=8 -c 1 -t 64 --key-maximum=15000 -n allkeys \
               --data-size=512 --ratio=3:7 --key-pattern=P:P -x 4",
        requests: Count::Exactly(4 * 15_001),
        sets_percent: 30,
        data_size: 512,
    },
    Line {
        text: "--cluster-mode --pipeline=8 -c 1 -t 64 --key-maximum=60000 -n allkeys \
               --data-size=512 --ratio=3:7 --key-pattern=P:P",
        requests: Count::Exactly(60_001),
        sets_percent: 30,
        data_size: 512,
    },
    // A: Gaussian sweep; only P divides the keys among the connections.
    Line {
        text: "--cluster-mode --pipeline=8 -c 1 -t 8 --key-maximum=5999 -n allkeys \
               --data-size=512 --ratio=3:7 --key-pattern=G:G --key-stddev=600 \
               --distinct-client-seed",
        requests: Count::Exactly(8 * 6000),
        sets_percent: 30,
        data_size: 512,
    },
    // B: 80/20 of 100 B.
    Line {
        text: "--pipeline=8 -c 4 -t 2 --key-maximum=10000 -d 100 --ratio=1:4 -n 1000",
        requests: Count::Exactly(8000),
        sets_percent: 20,
        data_size: 100,
    },
    // C.
    Line {
        text: "-t 6 -c 5 --pipeline 4 --ratio 1:4 -d 100 --key-maximum 10000 --test-time 0.3",
        requests: Count::Some,
        sets_percent: 20,
        data_size: 100,
    },
    // D: fill, centre, load.
    Line {
        text: "--key-maximum=7500 -n allkeys -d 500 --key-pattern=P:P --ratio=1:0 \
               --hide-histogram",
        requests: Count::Exactly(7501),
        sets_percent: 100,
        data_size: 500,
    },
    Line {
        text: "--key-minimum=2725 --key-maximum=4775 -n allkeys --key-pattern=P:P --ratio=0:1 \
               --hide-histogram",
        requests: Count::Exactly(2051),
        sets_percent: 0,
        data_size: 32,
    },
    Line {
        text: "--pipeline=11 -c 20 -t 1 -d 500 --key-maximum=7500 --key-pattern=G:G \
               --key-stddev=512 --ratio=1:1 --distinct-client-seed --randomize --test-time=0.3 \
               --run-count=1 --out-file=test.out",
        requests: Count::Some,
        sets_percent: 50,
        data_size: 500,
    },
];

#[test]
fn what_is_published_arrives_as_it_is_written() {
    for line in LINES {
        let server = Recorder::start(Fault::None);
        let report = bench::run(&options(server.port, line.text)).expect(line.text);
        assert!(report.is_flawless(), "{}: {report}", line.text);
        let mut requests = server.take();
        requests.retain(|words| words[0] != b"CLUSTER");
        let sets: Vec<_> = requests.iter().filter(|words| words[0] == b"SET").collect();
        let counted = report.stats().totals().count();
        assert_eq!(requests.len() as u64, counted, "{}", line.text);
        if let Count::Exactly(expected) = line.requests {
            assert_eq!(counted, expected, "{}", line.text);
        }
        // Each connection ends somewhere inside a round of SETs and GETs.
        let slack = 10 * report.options.threads * report.options.clients * report.runs.len();
        let expected = counted * line.sets_percent / 100;
        assert!(sets.len().abs_diff(expected as usize) <= slack, "{}", line.text);
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
        if let Count::Exactly(expected) = line.requests {
            assert_eq!(report.stats().totals().count(), expected, "{}", line.text);
        }
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
