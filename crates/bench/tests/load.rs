//! Whole loads against a server in this process that keeps keys in a map, and that can be told to
//! answer wrongly: the generator must see every fault and no others.

use bench::Options;
use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

/// What the server does wrong.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fault {
    None,
    /// One bit of the value of keys that end in 7.
    Bit,
    /// The last byte is missing from the value of keys that end in 7.
    Short,
    /// Keys that end in 7 are not found.
    Missing,
    /// GETs of keys that end in 7 are refused.
    Error,
    /// The connection closes at the first key that ends in 7.
    Close,
    /// Two replies to keys that end in 7.
    Twice,
    /// No reply at all, but noise, to keys that end in 7.
    Noise,
}

type Map = Arc<Mutex<HashMap<Vec<u8>, Vec<u8>>>>;

/// Starts a server; its threads end with their connections.
fn serve(map: &Map, fault: Fault) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port();
    let map = Arc::clone(map);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let map = Arc::clone(&map);
            // A load that has seen enough closes: that ends the thread.
            std::thread::spawn(move || answer(stream.expect("a stream"), &map, fault));
        }
    });
    port
}

fn answer(stream: TcpStream, map: &Map, fault: Fault) -> Option<()> {
    let mut output = stream.try_clone().ok()?;
    let mut input = BufReader::new(stream);
    loop {
        let words = read_request(&mut input)?;
        let key = &words[1];
        let odd = key.ends_with(b"7") && words[0] == b"GET";
        let reply = match (&words[0][..], fault) {
            (b"SET", _) => {
                map.lock().expect("a lock").insert(key.clone(), words[2].clone());
                b"+OK\r\n".to_vec()
            }
            (_, Fault::Missing) if odd => b"$-1\r\n".to_vec(),
            (_, Fault::Error) if odd => b"-ERR seven\r\n".to_vec(),
            (_, Fault::Noise) if odd => b"seven\r\n".to_vec(),
            (_, Fault::Close) if odd => return None,
            _ => {
                let mut value = map.lock().expect("a lock").get(key).cloned();
                if let (Some(value), Fault::Bit, true) = (&mut value, fault, odd) {
                    value[0] ^= 1;
                }
                if let (Some(value), Fault::Short, true) = (&mut value, fault, odd) {
                    value.pop();
                }
                let reply = encode(value);
                if fault == Fault::Twice && odd { reply.repeat(2) } else { reply }
            }
        };
        output.write_all(&reply).ok()?;
    }
}

fn encode(value: Option<Vec<u8>>) -> Vec<u8> {
    match value {
        Some(value) => [format!("${}\r\n", value.len()).as_bytes(), &value[..], b"\r\n"].concat(),
        None => b"_\r\n".to_vec(),
    }
}

fn read_request(input: &mut impl BufRead) -> Option<Vec<Vec<u8>>> {
    let count = read_head(input, b'*')?;
    (0..count)
        .map(|_| {
            let size = read_head(input, b'$')?;
            let mut word = vec![0; size + 2];
            input.read_exact(&mut word).ok()?;
            assert!(word.ends_with(b"\r\n"));
            word.truncate(size);
            Some(word)
        })
        .collect()
}

fn read_head(input: &mut impl BufRead, sign: u8) -> Option<usize> {
    let mut line = Vec::new();
    input.by_ref().take(32).read_until(b'\n', &mut line).ok()?;
    let digits = line.strip_suffix(b"\r\n")?.strip_prefix(&[sign])?;
    std::str::from_utf8(digits).ok()?.parse().ok()
}

/// Rows of the stats.
const SETS: usize = 0;
const GETS: usize = 1;

fn load(port: u16, line: &str) -> bench::Report {
    let words = format!("load -t 1 -p {port} --key-minimum 1 --key-maximum 1000 {line}");
    let options = Options::parse(words.split_whitespace()).expect("options");
    bench::run(&options).expect("a load")
}

#[test]
fn what_is_written_is_read_back_under_every_way_of_sending() {
    let ways = [
        "-d 512 -c 3 --pipeline 16",
        "-d 512 -c 3 --pipeline 16 --batch",
        "-d 512 -c 2 -t 2 --pipeline 3",
        "-d 0 -c 1",
        "-d 100000 -c 2 --pipeline 9",
        "--data-size-range 1-5000 -c 7 --pipeline 5",
        "-d 20 -c 5 --rate 100000 --pipeline 2",
        "-d 20 -c 5 --expiry 100 --key-prefix any:",
    ];
    for way in ways {
        let map = Map::default();
        let port = serve(&map, Fault::None);
        let written = load(port, &format!("{way} -n allkeys --ratio 1:0 --key-pattern P:P"));
        assert_eq!(written.stats().rows[SETS].count(), 1000, "{way}");
        assert!(written.is_flawless(), "{way}: {written}");
        assert_eq!(map.lock().expect("a lock").len(), 1000, "{way}");
        let read = load(port, &format!("{way} -n allkeys --ratio 0:1 --key-pattern P:P --verify"));
        assert_eq!(read.stats().rows[GETS].count(), 1000, "{way}");
        assert!(read.is_flawless(), "{way}: {read}");
        assert_eq!(read.stats().value_bytes_read, written.stats().value_bytes_written, "{way}");
    }
}

#[test]
fn every_fault_is_seen() {
    let fill = "-d 100 -c 1 -n allkeys --ratio 1:0 --key-pattern P:P";
    let read = "-d 100 -c 1 --pipeline 4 -n allkeys --ratio 0:1 --key-pattern P:P --verify";
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
        let port = serve(&Map::default(), fault);
        assert!(load(port, fill).is_flawless());
        let report = load(port, read);
        let stats = report.stats();
        let seen = [stats.wrong, stats.misses(), stats.errors, stats.connections_lost];
        assert_eq!(seen, expected, "{report}");
        assert_eq!(report.is_flawless(), fault == Fault::None);
    }
}

#[test]
fn a_reply_too_many_is_wrong_somewhere() {
    let port = serve(&Map::default(), Fault::Twice);
    assert!(load(port, "-d 9 -c 1 -n allkeys --ratio 1:0 --key-pattern P:P").is_flawless());
    let report = load(port, "-d 9 -c 1 -n allkeys --ratio 0:1 --key-pattern P:P --verify");
    assert!(!report.is_flawless());
}

#[test]
fn versions_tell_stale_values_from_fresh_ones() {
    let port = serve(&Map::default(), Fault::None);
    let fill = "-d 100 -c 2 -n allkeys --ratio 1:0 --key-pattern P:P";
    let read = "-d 100 -c 2 -n allkeys --ratio 0:1 --key-pattern P:P --verify --value-version 2";
    assert!(load(port, fill).is_flawless());
    assert!(load(port, &format!("{fill} --value-version 2 --key-maximum 400")).is_flawless());
    assert_eq!(load(port, read).stats().wrong, 600);
    assert!(load(port, &format!("{read} --accept-older")).is_flawless());
}

#[test]
fn time_and_counts_end_a_load() {
    let port = serve(&Map::default(), Fault::None);
    let timed = load(port, "--test-time 0.05 -c 2 --ratio 1:1");
    assert!(timed.stats().rows[SETS].count() > 0);
    let paced = load(port, "--test-time 0.05 -c 2 --ratio 1:0 --rate 1000");
    let sent = paced.stats().rows[SETS].count() + paced.stats().unsent;
    assert!((50..=52).contains(&sent), "{sent}");
    let counted = load(port, "-n 10 -c 3 --ratio 3:2");
    assert_eq!((counted.stats().rows[SETS].count(), counted.stats().rows[GETS].count()), (18, 12));
}

#[test]
fn no_server_is_an_error() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port();
    drop(listener);
    let words = format!("load -p {port} -n 1");
    let options = Options::parse(words.split_whitespace()).expect("options");
    assert!(bench::run(&options).is_err());
}
