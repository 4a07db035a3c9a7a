//! What a load sends, as a recording server sees it: keys, ratios, sizes, times to live, commands.

mod support;

use std::collections::HashMap;
use support::recorder::{Fault, Recorder, Request};
use support::{GETS, SETS, WAITS, load};

/// What arrives of a load.
fn arrivals(line: &str) -> Vec<Request> {
    let server = Recorder::start(Fault::None);
    let report = load(server.port, line);
    assert!(report.is_flawless(), "{line}: {report}");
    server.take()
}

/// Numbers of the keys of these requests.
fn keys<'a>(requests: impl IntoIterator<Item = &'a Request>) -> Vec<u64> {
    let number = |words: &Request| {
        let key = std::str::from_utf8(&words[1]).expect("a key");
        key.strip_prefix("memtier-").and_then(|digits| digits.parse().ok()).expect("a number")
    };
    requests.into_iter().map(number).collect()
}

fn mean_and_deviation(keys: &[u64]) -> (f64, f64) {
    let count = keys.len() as f64;
    let mean = keys.iter().map(|key| *key as f64).sum::<f64>() / count;
    let square = keys.iter().map(|key| (*key as f64 - mean).powi(2)).sum::<f64>() / count;
    (mean, square.sqrt())
}

fn named<'a>(requests: &'a [Request], name: &'a str) -> impl Iterator<Item = &'a Request> {
    requests.iter().filter(move |words| words[0] == name.as_bytes())
}

#[test]
fn uniform_keys_cover_the_range_evenly() {
    let line = "-c 2 --pipeline 50 -n 20000 --key-minimum 1 --key-maximum 1000 \
                --distinct-client-seed";
    let keys = keys(&arrivals(line));
    assert_eq!(keys.len(), 40_000);
    // Chi-square over ten bins of 4,000: 99.99 % of samples lie below 33.7.
    let mut bins = [0_f64; 10];
    for key in &keys {
        bins[((key - 1) / 100) as usize] += 1.0;
    }
    let chi: f64 = bins.iter().map(|bin| (bin - 4000.0).powi(2) / 4000.0).sum();
    assert!(chi < 33.7, "{chi} {bins:?}");
}

#[test]
fn gaussian_keys_have_their_centre_and_width() {
    let cases = [
        ("--key-median 7000 --key-stddev 500", 7000.0, 500.0),
        ("--key-stddev 1000", 5000.0, 1000.0),
        ("--key-stddev 300 --randomize", 5000.0, 300.0),
    ];
    for (line, centre, width) in cases {
        let line = format!(
            "-c 4 --pipeline 50 -n 5000 --key-minimum 0 --key-maximum 10000 --key-pattern G:G \
             --ratio 1:1 --distinct-client-seed {line}"
        );
        let requests = arrivals(&line);
        for name in ["SET", "GET"] {
            let keys = keys(named(&requests, name));
            assert_eq!(keys.len(), 10_000, "{line}");
            let (mean, deviation) = mean_and_deviation(&keys);
            // Five standard errors of the mean and of the deviation of 10,000 draws.
            assert!((mean - centre).abs() < width * 0.05, "{line}: {mean}");
            assert!((deviation - width).abs() < width * 0.036, "{line}: {deviation}");
        }
    }
}

#[test]
fn zipf_keys_follow_their_exponent() {
    for exponent in [0.8, 1.0, 1.5] {
        let line = format!(
            "-c 1 --pipeline 50 -n 40000 --key-minimum 1 --key-maximum 1000 --key-pattern Z:Z \
             --key-zipf-exp {exponent}"
        );
        let mut seen = HashMap::new();
        for key in keys(&arrivals(&line)) {
            *seen.entry(key).or_insert(0.0) += 1.0;
        }
        let norm: f64 = (1..=1000).map(|rank| f64::from(rank).powf(-exponent)).sum();
        for rank in [1_u64, 2, 3, 5, 10] {
            let expected = 40_000.0 * (rank as f64).powf(-exponent) / norm;
            let deviation = (seen[&rank] - expected) / expected.sqrt();
            assert!(deviation.abs() < 5.0, "{exponent} {rank}: {}", seen[&rank]);
        }
    }
}

#[test]
fn sequential_keys_are_walked_whole_by_each_connection_and_parallel_ones_in_parts() {
    let server = Recorder::start(Fault::None);
    let range = "-c 2 -t 2 --key-minimum 1 --key-maximum 100 --ratio 1:0";
    load(server.port, &format!("{range} -n 100 --key-pattern S:S"));
    for requests in server.take_by_connection() {
        assert_eq!(keys(&requests), (1..=100).collect::<Vec<u64>>());
    }
    load(server.port, &format!("{range} -n allkeys --key-pattern P:P"));
    let by_connection = server.take_by_connection();
    assert_eq!(by_connection.len(), 4);
    let mut all = Vec::new();
    for requests in by_connection {
        let keys = keys(&requests);
        assert!(keys.windows(2).all(|pair| pair[1] == pair[0] + 1), "{keys:?}");
        all.extend(keys);
    }
    all.sort_unstable();
    assert_eq!(all, (1..=100).collect::<Vec<u64>>());
}

#[test]
fn connections_draw_the_same_keys_unless_they_have_seeds_of_their_own() {
    for (line, same) in [("", true), ("--distinct-client-seed", false)] {
        let server = Recorder::start(Fault::None);
        load(server.port, &format!("-c 3 -n 50 {line}"));
        let sequences: Vec<Vec<u64>> =
            server.take_by_connection().iter().map(|requests| keys(requests)).collect();
        assert_eq!(sequences[0] == sequences[1], same, "{line}");
        assert_eq!(sequences[1] == sequences[2], same, "{line}");
    }
}

#[test]
fn requests_come_in_the_order_of_their_ratio() {
    let requests = arrivals("-c 1 -n 30 --ratio 2:3 --key-maximum 100");
    let letters: String = requests.iter().map(|words| words[0][0] as char).collect();
    assert_eq!(letters, "SSGGG".repeat(6));
}

#[test]
fn sizes_are_as_asked_for() {
    let sizes = |line: &str| -> Vec<usize> {
        let line = format!("-c 1 -n 4000 --pipeline 50 --ratio 1:0 --key-maximum 1000000 {line}");
        arrivals(&line).iter().map(|words| words[2].len()).collect()
    };
    assert!(sizes("-d 100").iter().all(|size| *size == 100));
    assert!(sizes("").iter().all(|size| *size == 32));
    let ranged = sizes("--data-size-range 10-29");
    assert!(ranged.iter().all(|size| (10..=29).contains(size)));
    let mean = ranged.iter().sum::<usize>() as f64 / ranged.len() as f64;
    // A uniform size has a deviation of 5.8: five standard errors are 0.46.
    assert!((mean - 19.5).abs() < 0.46, "{mean}");
    let listed = sizes("--data-size-list 8:1,64:3");
    let long = listed.iter().filter(|size| **size == 64).count();
    assert!(listed.iter().all(|size| [8, 64].contains(size)));
    // Three quarters of 4,000, give or take five deviations of 27.
    assert!((2863..=3137).contains(&long), "{long}");
}

#[test]
fn values_are_random_but_for_the_share_that_compresses() {
    for (line, share) in [("-R", 0.0), ("--data-compressibility 0.4", 0.4)] {
        let line = format!("-c 1 -n 10 -d 10000 --ratio 1:0 --key-pattern S:S {line}");
        for words in arrivals(&line) {
            let value = &words[2];
            let tail = value.iter().rev().take_while(|byte| **byte == value[9999]).count();
            let expected = (10_000.0 * share) as usize;
            assert!(tail.abs_diff(expected.max(1)) < 10, "{line}: {tail}");
        }
    }
}

#[test]
fn times_to_live_come_from_their_range() {
    let requests = arrivals("-c 1 -n 2000 --pipeline 50 --ratio 1:0 --expiry-range 60-69");
    let mut seen = [0; 10];
    for words in &requests {
        assert_eq!(words[0], b"SETEX");
        let seconds: usize = String::from_utf8_lossy(&words[2]).parse().expect("seconds");
        seen[seconds - 60] += 1;
    }
    assert!(seen.iter().all(|count| (130..=270).contains(count)), "{seen:?}");
}

#[test]
fn several_keys_are_read_at_once() {
    let server = Recorder::start(Fault::None);
    let fill = "--key-maximum 99 -c 1 -n allkeys --ratio 1:0 --key-pattern P:P";
    assert!(load(server.port, fill).is_flawless());
    server.take();
    let line = "-c 1 -n 3 --ratio 0:10 --multi-key-get 4 --key-maximum 199 --key-pattern S:S";
    let report = load(server.port, line);
    let requests = server.take();
    let counts: Vec<usize> = requests.iter().map(|words| words.len() - 1).collect();
    assert_eq!(counts, [4, 4, 2]);
    assert_eq!(requests[2][2], b"memtier-9");
    let row = &report.stats().rows[GETS];
    assert_eq!((row.count(), row.hits, row.misses), (3, 10, 0));
}

#[test]
fn waits_follow_sets() {
    let line = "-c 1 -n 40 --ratio 1:1 --wait-ratio 2:1 --num-slaves 1-3 --wait-timeout 5-5";
    let server = Recorder::start(Fault::None);
    let report = load(server.port, line);
    let requests = server.take();
    let waits: Vec<&Request> = named(&requests, "WAIT").collect();
    let rows = report.stats().rows;
    assert_eq!(rows[WAITS].count(), waits.len() as u64);
    assert_eq!(rows[SETS].count().div_ceil(2), rows[WAITS].count());
    for words in waits {
        assert!(words[1].len() == 1 && (b'1'..=b'3').contains(&words[1][0]));
        assert_eq!(words[2], b"5");
    }
}

#[test]
fn any_command_is_sent_with_keys_and_values() {
    let server = Recorder::start(Fault::None);
    let words = [
        "load",
        "-p",
        &server.port.to_string(),
        "-t",
        "1",
        "-c",
        "1",
        "-n",
        "9",
        "-d",
        "4",
        "--key-prefix",
        "k",
        "--command",
        "HSET __key__ 'a field' __data__",
        "--command-ratio",
        "2",
        "--command-key-pattern",
        "S",
        "--command",
        "PING",
    ];
    let options = bench::Options::parse(words).expect("options");
    let report = bench::run(&options).expect("a load");
    let requests = server.take();
    let names: Vec<&[u8]> = requests.iter().map(|words| &words[0][..]).collect();
    assert_eq!(names, [&b"HSET"[..], b"HSET", b"PING"].repeat(3));
    let first = &requests[0];
    assert_eq!((&first[1][..], &first[2][..], first[3].len()), (&b"k0"[..], &b"a field"[..], 4));
    assert_eq!(requests[1][1], b"k1");
    assert_eq!(report.labels, ["Hsets", "Pings"]);
    let counts: Vec<u64> = report.stats().rows.iter().map(|row| row.count()).collect();
    assert_eq!(counts, [6, 3]);
}

#[test]
fn a_connection_says_who_it_is_first() {
    let cases: [(&str, &[&str]); 5] = [
        ("-a secret", &["AUTH secret"]),
        ("-a me:secret --select-db 3", &["AUTH me secret", "SELECT 3"]),
        ("--protocol resp3", &["HELLO 3"]),
        ("-P resp2 -a secret", &["HELLO 2 AUTH default secret"]),
        ("", &[]),
    ];
    for (line, expected) in cases {
        let server = Recorder::start(Fault::None);
        load(server.port, &format!("-c 1 -n 1 {line}"));
        let requests = server.take();
        let greeting: Vec<String> = requests[..requests.len() - 1]
            .iter()
            .map(|words| String::from_utf8_lossy(&words.join(&b' ')).into_owned())
            .collect();
        assert_eq!(greeting, expected, "{line}");
    }
}

#[test]
fn connections_are_made_anew_after_their_interval() {
    let server = Recorder::start(Fault::None);
    load(server.port, "-c 2 -n 25 --pipeline 4 --reconnect-interval 10");
    let mut counts: Vec<usize> =
        server.take_by_connection().iter().map(|requests| requests.len()).collect();
    counts.sort_unstable();
    assert_eq!(counts, [5, 5, 10, 10, 10, 10]);
}
