//! Whole loads against a server in this process that can be told to answer wrongly: the generator
//! must see every fault and no others.

mod support;

use std::sync::atomic::Ordering;
use std::time::Duration;
use support::recorder::{Fault, Recorder};
use support::{GETS, SETS, load, options, until};

/// A thousand keys.
const KEYS: &str = "--key-minimum 1 --key-maximum 1000";

#[test]
fn what_is_written_is_read_back_under_every_way_of_sending() {
    let ways = [
        "-d 512 -c 3 --pipeline 16",
        "-d 512 -c 3 --pipeline 16 --batch",
        "-d 512 -c 2 -t 2 --pipeline 3",
        "-d 0 -c 1",
        "-d 100000 -c 2 --pipeline 9",
        "--data-size-range 1-5000 -c 7 --pipeline 5",
        "--data-size-list 1:1,3000:2 -c 7 --pipeline 5",
        "-d 1000 --data-compressibility 0.5 -c 2",
        "-d 20 -c 5 --rate 100000 --pipeline 2",
        "-d 20 -c 5 --rate-limiting 10000 --pipeline 2",
        "-d 20 -c 5 --reconnect-interval 7 --pipeline 3",
        "-d 20 -c 5 --expiry 100 --key-prefix any:",
        "-d 20 -c 5 --cluster-mode",
        "-d 20 -c 2 --protocol resp3 --select-db 3 -a me:secret",
    ];
    for way in ways {
        let server = Recorder::start(Fault::None);
        let way = format!("{KEYS} {way} -n allkeys --key-pattern P:P");
        let written = load(server.port, &format!("{way} --ratio 1:0"));
        assert_eq!(written.stats().rows[SETS].count(), 1000, "{way}");
        assert!(written.is_flawless(), "{way}: {written}");
        assert_eq!(server.key_count(), 1000, "{way}");
        let read = load(server.port, &format!("{way} --ratio 0:1 --verify"));
        assert_eq!(read.stats().rows[GETS].count(), 1000, "{way}");
        assert_eq!(read.stats().rows[GETS].hits, 1000, "{way}");
        assert!(read.is_flawless(), "{way}: {read}");
        assert_eq!(read.stats().value_bytes_read, written.stats().value_bytes_written, "{way}");
    }
}

#[test]
fn every_fault_is_seen() {
    let fill = format!("{KEYS} -d 100 -c 1 -n allkeys --ratio 1:0 --key-pattern P:P");
    let read = format!(
        "{KEYS} -d 100 -c 1 --pipeline 4 -n allkeys --ratio 0:1 --key-pattern P:P --verify"
    );
    // Of a thousand keys a hundred end in 7.
    let cases = [
        (Fault::None, [0, 0, 0, 0]),
        (Fault::Bit, [100, 0, 0, 0]),
        (Fault::Short, [100, 0, 0, 0]),
        (Fault::Missing, [0, 100, 0, 0]),
        (Fault::Error, [0, 0, 100, 0]),
        (Fault::Close, [0, 0, 0, 1]),
        (Fault::Noise, [0, 0, 0, 1]),
    ];
    for (fault, expected) in cases {
        let server = Recorder::start(fault);
        assert!(load(server.port, &fill).is_flawless());
        let report = load(server.port, &read);
        let stats = report.stats();
        let seen = [stats.wrong, stats.misses(), stats.errors, stats.connections_lost];
        assert_eq!(seen, expected, "{report}");
        assert_eq!(report.is_flawless(), fault == Fault::None);
        assert_eq!(report.cut_short().is_some(), stats.connections_lost > 0);
        assert_eq!(report.to_string().contains("PARTIAL RESULT"), stats.connections_lost > 0);
    }
}

#[test]
fn a_reply_too_many_is_wrong_somewhere() {
    let server = Recorder::start(Fault::Twice);
    let line = format!("{KEYS} -d 9 -c 1 -n allkeys --key-pattern P:P");
    assert!(load(server.port, &format!("{line} --ratio 1:0")).is_flawless());
    assert!(!load(server.port, &format!("{line} --ratio 0:1 --verify")).is_flawless());
}

#[test]
fn versions_tell_stale_values_from_fresh_ones() {
    let server = Recorder::start(Fault::None);
    let line = format!("{KEYS} -d 100 -c 2 -n allkeys --key-pattern P:P");
    let (fill, read) = (format!("{line} --ratio 1:0"), format!("{line} --ratio 0:1"));
    let read = format!("{read} --verify --value-version 2");
    assert!(load(server.port, &fill).is_flawless());
    let fresh = load(server.port, &format!("{fill} --value-version 2 --key-maximum 400"));
    assert!(fresh.is_flawless());
    assert_eq!(load(server.port, &read).stats().wrong, 600);
    assert!(load(server.port, &format!("{read} --accept-older")).is_flawless());
}

#[test]
fn time_and_counts_end_a_load() {
    let server = Recorder::start(Fault::None);
    let timed = load(server.port, &format!("{KEYS} --test-time 1 -c 2 --ratio 1:1"));
    assert!(timed.stats().rows[SETS].count() > 0);
    let paced = load(server.port, &format!("{KEYS} --test-time 0.05 -c 2 --ratio 1:0 --rate 1000"));
    let sent = paced.stats().rows[SETS].count() + paced.stats().unsent;
    assert!((50..=52).contains(&sent), "{sent}");
    let counted = load(server.port, &format!("{KEYS} -n 10 -c 3 --ratio 3:2"));
    let rows = counted.stats().rows;
    assert_eq!((rows[SETS].count(), rows[GETS].count()), (18, 12));
    let repeated = load(server.port, &format!("{KEYS} -n 10 -c 3 --ratio 3:2 -x 4"));
    assert_eq!(repeated.runs.len(), 4);
    assert_eq!(repeated.stats().totals().count(), 120);
}

#[test]
fn what_is_sent_to_warm_up_is_not_counted() {
    // A machine that is busy may let the shorter times pass before the load begins.
    let (report, by_connection) = [0.05, 0.5, 5.0, 50.0]
        .into_iter()
        .map(|seconds| {
            let server = Recorder::start(Fault::None);
            let line = format!("{KEYS} -c 2 -n 5 --ratio 1:0 --key-pattern S:S");
            let report = load(server.port, &format!("{line} --warm-up {seconds}"));
            (report, server.take_by_connection())
        })
        .find(|(_, by_connection)| by_connection.iter().all(|requests| requests.len() > 5))
        .expect("more is sent than is counted");
    // What was in flight when counting began counts as well.
    let count = report.stats().rows[SETS].count();
    assert!((10..=12).contains(&count), "{count}");
    // The load itself begins with the first key again.
    for requests in by_connection {
        let last: Vec<&[u8]> =
            requests[requests.len() - 5..].iter().map(|words| &words[1][..]).collect();
        let expected: Vec<String> = (1..=5).map(|key| format!("memtier-{key}")).collect();
        assert_eq!(last, expected.iter().map(String::as_bytes).collect::<Vec<_>>());
    }
}

#[test]
fn a_limited_rate_is_kept() {
    let server = Recorder::start(Fault::None);
    let report = load(server.port, "-c 2 -n 100 --rate-limiting 200 --pipeline 4");
    // The last of 100 requests at 200 a second goes 495 ms after the first, of which a client that
    // was held up may make good 100 ms.
    assert!(report.seconds() > 0.39, "{}", report.seconds());
    assert_eq!(report.stats().totals().count(), 200);
}

#[test]
fn the_open_loop_shows_a_stall_that_the_closed_loop_hides() {
    let stalled = |line: &str| {
        let pause = Duration::from_millis(500);
        let server = Recorder::start(Fault::Stall { after: 2000, pause });
        let report = load(server.port, &format!("{KEYS} -c 2 -n 5000 {line}"));
        assert!(report.is_flawless(), "{report}");
        let totals = report.stats().totals();
        (totals.percentile_ns(99.9) as f64 / 1e6, totals.latency_ns_max as f64 / 1e6)
    };
    let (closed, closed_max) = stalled("");
    let (open, _) = stalled("--rate 4000 --pipeline 64");
    assert!(closed_max >= 500.0, "{closed_max}");
    assert!(closed < 250.0, "{closed}");
    assert!(open >= 400.0, "{open}");
}

#[test]
fn no_server_is_an_error() {
    // A port that the system handed out and has back may be another test's.
    let error = bench::run(&options(1, "-n 1")).expect_err("no server");
    assert!(error.to_string().starts_with("cannot connect to 127.0.0.1:"), "{error}");
}

#[test]
fn an_interrupt_keeps_what_was_measured() {
    let server = Recorder::start(Fault::None);
    let control = bench::Control::default();
    let options = options(server.port, "-t 1 -c 2 --test-time 600");
    let report = std::thread::scope(|scope| {
        let loading = scope.spawn(|| bench::run_watched(&options, &control).expect("a load"));
        // A connection sends on when it has its reply: one of the two has been measured then.
        until("requests come", || server.request_count() > 2);
        control.interrupted.store(true, Ordering::Relaxed);
        loading.join().expect("a report")
    });
    assert_eq!(report.cut_short(), Some("interrupted"));
    assert!(report.stats().totals().count() > 0);
    assert!(!report.is_flawless());
}
