//! The published command lines, as they are written but with fewer keys, and what must come of them.

use bench::Options;

/// A line, the keys that it is scaled to, and what must arrive.
pub struct Line {
    pub text: &'static str,
    pub requests: Count,
    pub sets_percent: u64,
    /// Size of a value.
    pub data_size: usize,
}

/// How many requests arrive.
pub enum Count {
    /// Exactly so many on all connections.
    Exactly(u64),
    /// As many as the time lets.
    Some,
}

pub const LINES: &[Line] = &[
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
               --ratio=0:1 --key-pattern=P:P --test-time=1 -x 5",
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
        text: "-t 6 -c 5 --pipeline 4 --ratio 1:4 -d 100 --key-maximum 10000 --test-time 1",
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
               --key-stddev=512 --ratio=1:1 --distinct-client-seed --randomize --test-time=1 \
               --run-count=1 --out-file=test.out",
        requests: Count::Some,
        sets_percent: 50,
        data_size: 500,
    },
];

impl Line {
    /// Panics unless a load with these options may have sent so many requests, so many of them SETs.
    pub fn assert_counts(&self, options: &Options, requests: u64, sets: u64) {
        match self.requests {
            Count::Exactly(expected) => assert_eq!(requests, expected, "{}", self.text),
            Count::Some => assert!(requests > 0, "{}", self.text),
        }
        // Each connection ends somewhere inside a round of at most ten SETs and GETs.
        let connections = options.threads * options.clients;
        let slack = 10 * connections as u64 * u64::from(options.run_count);
        let expected = requests * self.sets_percent / 100;
        assert!(sets.abs_diff(expected) <= slack, "{}: {sets} of {requests}", self.text);
    }
}
