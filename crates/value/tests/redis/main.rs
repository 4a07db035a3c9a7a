//! Compares the crate with a real redis-server, on random input from a seed.
//!
//! A test makes requests, says what the crate takes the replies to be, and compares them all.
//! Failures name the request.

mod server;

use std::ops::Range;

use resp::{DoubleText, Frame};
use stdx::Random;
use value::bitfield::{self, IntegerType, Overflow};
use value::{bits, glob, lcs, long_double, number, string};

use server::Redis;

const SEED: u64 = 20_260_725;

/// Requests that go out together, so that neither side's buffers fill up.
const BATCH_SIZE: usize = 200;

/// Requests, each with the reply that is expected of it, if it matters.
#[derive(Default)]
struct Script {
    requests: Vec<Vec<Vec<u8>>>,
    expected: Vec<Option<Frame>>,
}

impl Script {
    fn add(&mut self, words: &[&[u8]], expected: Option<Frame>) {
        self.requests.push(words.iter().map(|word| word.to_vec()).collect());
        self.expected.push(expected);
    }

    fn run(self, test: &str) {
        let mut redis = Redis::start(test);
        let batches = self.requests.chunks(BATCH_SIZE).zip(self.expected.chunks(BATCH_SIZE));
        for (requests, expected) in batches {
            let replies = redis.call_all(requests);
            for ((request, expected), reply) in requests.iter().zip(expected).zip(replies) {
                if let Some(expected) = expected {
                    assert_eq!(show(expected), show(&reply), "{}", show_request(request));
                }
            }
        }
    }
}

fn show(frame: &Frame) -> String {
    let mut bytes = Vec::new();
    frame.encode(&mut bytes);
    bytes.escape_ascii().to_string()
}

fn show_request(request: &[Vec<u8>]) -> String {
    let words: Vec<String> = request.iter().map(|word| word.escape_ascii().to_string()).collect();
    words.join(" ")
}

fn bulk(bytes: &[u8]) -> Option<Frame> {
    Some(Frame::Bulk(bytes.to_vec()))
}

fn error(text: &str) -> Option<Frame> {
    Some(Frame::Error(text.as_bytes().to_vec()))
}

fn integer(number: u64) -> Frame {
    Frame::Integer(number.cast_signed())
}

/// A number of the range.
fn within(random: &mut Random, range: Range<i64>) -> i64 {
    range.start + random.below((range.end - range.start) as u64) as i64
}

fn one_of<T: Copy>(random: &mut Random, choices: &[T]) -> T {
    choices[random.below(choices.len() as u64) as usize]
}

/// Corners of the syntax and of the ranges.
const ODD_NUMBERS: &[&str] = &[
    "inf",
    "-inf",
    "nan",
    "infinity",
    "",
    " 1",
    "1 ",
    "1e",
    "0x",
    "0x1p",
    "-",
    ".",
    "5.",
    ".5",
    "1e4932",
    "1.18973149535723176502e4932",
    "3.6e-4951",
    "1e-4951",
    "-0",
    "0x1p-16445",
    "0x1p-16446",
    "18446744073709551615",
    "9223372036854775807",
    "-9223372036854775808",
    "9223372036854775808",
    "1\0",
    "1,5",
    "1_000",
    "0e99999",
    "00012",
    "1e+5",
    "1E5",
    "0X1P5",
    "0x.8",
    "0x.",
    "INF",
];

/// Text that is a number, or nearly.
fn random_number(random: &mut Random) -> String {
    let digits = |random: &mut Random, len_max: usize| -> String {
        let len = random.between(0, len_max as u64);
        (0..len)
            .map(|_| char::from(random.between(u64::from(b'0'), u64::from(b'9')) as u8))
            .collect()
    };
    let sign = one_of(random, &["", "-", "+", ""]);
    match within(random, 0..12) {
        0 => format!("{sign}{}", digits(random, 22)),
        1 => format!("{sign}{}.{}", digits(random, 4), digits(random, 4)),
        2 => format!("{sign}{}.{}", digits(random, 30), digits(random, 30)),
        3 => format!(
            "{sign}{}.{}e{}",
            digits(random, 3),
            digits(random, 20),
            within(random, -40..40)
        ),
        4 => format!("{sign}{}e{}", digits(random, 20), within(random, -5100..5100)),
        5 => format!(
            "{sign}0x{:x}.{:x}p{}",
            random.next_u64() as u16,
            random.next_u64(),
            within(random, -90..90)
        ),
        6 => format!(
            "{sign}0x{:x}p{}",
            u128::from(random.next_u64()) << 64 | u128::from(random.next_u64()),
            within(random, -16_700..16_500)
        ),
        7 => format!("{sign}{:e}", f64::from_bits(random.next_u64())),
        8 => format!("{sign}{}", f64::from(random.fraction() as f32)),
        9 => format!("{}", random.next_u64() as i64 >> within(random, 0..64)),
        10 => format!(
            "{sign}{}.{}5",
            within(random, 0..100),
            "0".repeat(within(random, 10..22) as usize)
        ),
        _ => one_of(random, ODD_NUMBERS).to_owned(),
    }
}

#[test]
fn increments_floats() {
    let mut random = Random::new(SEED);
    let mut script = Script::default();
    for _ in 0..6000 {
        let (value, step) = (random_number(&mut random), random_number(&mut random));
        script.add(&[b"SET", b"k", value.as_bytes()], None);
        let expected = match long_double::increment(value.as_bytes(), step.as_bytes()) {
            Ok(sum) => bulk(sum.as_bytes()),
            Err(failure) => error(&failure.to_string()),
        };
        script.add(&[b"INCRBYFLOAT", b"k", step.as_bytes()], expected);
    }
    script.run("increments_floats");
}

#[test]
fn reads_and_prints_doubles() {
    let mut random = Random::new(SEED);
    let mut script = Script::default();
    for _ in 0..6000 {
        let text = random_number(&mut random);
        let request: [&[u8]; 4] = [b"ZADD", b"z", text.as_bytes(), b"m"];
        script.add(&[b"DEL", b"z"], None);
        match number::parse_f64(text.as_bytes()) {
            Some(score) => {
                script.add(&request, Some(Frame::Integer(1)));
                script.add(&[b"ZSCORE", b"z", b"m"], bulk(DoubleText::new(score).as_bytes()));
            }
            None => script.add(&request, error("ERR value is not a valid float")),
        }
    }
    script.run("reads_and_prints_doubles");
}

#[test]
fn reads_integers_and_names_encodings() {
    let mut random = Random::new(SEED);
    let mut script = Script::default();
    for _ in 0..3000 {
        let text = random_number(&mut random)
            + &"x".repeat((within(&mut random, 0..40) / 35 * 40) as usize);
        script.add(&[b"SET", b"k", text.as_bytes()], None);
        let encoding = string::encoding_of(text.as_bytes()).name();
        script.add(&[b"OBJECT", b"ENCODING", b"k"], bulk(encoding.as_bytes()));
        let expected = match number::parse_i64(text.as_bytes()) {
            Some(number) => Some(Frame::Integer(number)),
            None => error("ERR value is not an integer or out of range"),
        };
        script.add(&[b"INCRBY", b"k", b"0"], expected);
    }
    script.run("reads_integers");
}

#[test]
fn matches_globs() {
    let mut random = Random::new(SEED);
    let mut script = Script::default();
    for _ in 0..6000 {
        let mut text = |alphabet: &[u8], len_max: usize| -> Vec<u8> {
            let len = random.between(0, len_max as u64);
            (0..len).map(|_| one_of(&mut random, alphabet)).collect()
        };
        let (pattern, key) = (text(b"ab*?[]^-\\c\xff\x80A", 9), text(b"abc-]^A\xff\x80", 6));
        if pattern == b"*" {
            // To Redis that is not a pattern but all keys, even the empty one.
            continue;
        }
        script.add(&[b"FLUSHDB"], None);
        script.add(&[b"SET", &key, b""], None);
        let matched = glob::matches(&pattern, &key, glob::Case::Sensitive);
        let found = if matched { vec![Frame::Bulk(key)] } else { Vec::new() };
        script.add(&[b"KEYS", &pattern], Some(Frame::Array(found)));
    }
    script.run("matches_globs");
}

/// Bytes with long runs of equal bits.
fn random_bytes(random: &mut Random, len_max: usize) -> Vec<u8> {
    let len = random.between(0, len_max as u64);
    let filler = one_of(random, &[0, 0xff]);
    (0..len).map(|_| if random.below(8) == 0 { random.next_u64() as u8 } else { filler }).collect()
}

#[test]
fn counts_and_finds_bits() {
    let mut random = Random::new(SEED);
    let mut script = Script::default();
    for _ in 0..3000 {
        let bytes = random_bytes(&mut random, 60);
        let (start, end) = (within(&mut random, -520..520), within(&mut random, -520..520));
        let (start_text, end_text) = (format!("{start}"), format!("{end}"));
        let (start_text, end_text) = (start_text.as_bytes(), end_text.as_bytes());
        let bit = random.below(2) == 1;
        let bit_text: &[u8] = if bit { b"1" } else { b"0" };
        script.add(&[b"SET", b"k", &bytes], None);
        let in_bytes = bits::clamp_range(start, end, bytes.len() as u64);
        let slice =
            in_bytes.map_or(&[][..], |(first, last)| &bytes[first as usize..=last as usize]);
        script.add(&[b"GETRANGE", b"k", start_text, end_text], bulk(slice));
        for (unit, unit_bits) in [(&b"BYTE"[..], 8), (b"BIT", 1)] {
            let len = bytes.len() as u64 * 8 / unit_bits;
            let widen = |(first, last)| (first * unit_bits, (last + 1) * unit_bits - 1);
            let range = bits::clamp_range(start, end, len).map(widen);
            let count = range.map_or(0, |(first, last)| bits::count_range(&bytes, first, last));
            script.add(&[b"BITCOUNT", b"k", start_text, end_text, unit], Some(integer(count)));
            let range = bits::clamp_range_of_bitpos(start, end, len).map(widen);
            let found = range.and_then(|(first, last)| bits::find(&bytes, bit, first, last));
            let found = Frame::Integer(found.map_or(-1, u64::cast_signed));
            script.add(&[b"BITPOS", b"k", bit_text, start_text, end_text, unit], Some(found));
        }
        script.add(&[b"BITCOUNT", b"k"], Some(integer(bits::count(&bytes))));
        let offset = random.below(600);
        let present = Frame::Integer(bits::get_bit(&bytes, offset).into());
        script.add(&[b"GETBIT", b"k", offset.to_string().as_bytes()], Some(present));
    }
    script.run("counts_and_finds_bits");
}

#[test]
fn combines_bits() {
    let mut random = Random::new(SEED);
    let mut script = Script::default();
    let operations = [
        (bits::Operation::And, &b"AND"[..]),
        (bits::Operation::Or, b"OR"),
        (bits::Operation::Xor, b"XOR"),
        (bits::Operation::Not, b"NOT"),
    ];
    for _ in 0..1500 {
        let (operation, name) = one_of(&mut random, &operations);
        let count = if operation == bits::Operation::Not { 1 } else { within(&mut random, 1..5) };
        let sources: Vec<Vec<u8>> = (0..count).map(|_| random_bytes(&mut random, 90)).collect();
        let keys: Vec<Vec<u8>> = (0..count).map(|index| format!("k{index}").into_bytes()).collect();
        let mut request: Vec<&[u8]> = vec![b"BITOP", name, b"result"];
        for (key, source) in keys.iter().zip(&sources) {
            script.add(&[b"SET", key, source], None);
            request.push(key);
        }
        let mut result = sources[0].clone();
        if operation == bits::Operation::Not {
            bits::invert(&mut result);
        }
        sources[1..].iter().for_each(|source| bits::combine_with(operation, &mut result, source));
        script.add(&request, Some(integer(result.len() as u64)));
        script.add(
            &[b"GET", b"result"],
            if result.is_empty() { Some(Frame::NullBulk) } else { bulk(&result) },
        );
    }
    script.run("combines_bits");
}

#[test]
fn keeps_integers_in_bit_fields() {
    let mut random = Random::new(SEED);
    let mut script = Script::default();
    let overflows =
        [(Overflow::Wrap, &b"WRAP"[..]), (Overflow::Saturate, b"SAT"), (Overflow::Fail, b"FAIL")];
    let mut bytes: Vec<u8> = Vec::new();
    for _ in 0..6000 {
        let sign = one_of(&mut random, &['i', 'u']);
        let kind = format!("{sign}{}", within(&mut random, 0..66));
        let hash = one_of(&mut random, &["", "#"]);
        let offset = format!("{hash}{}", within(&mut random, -1..150));
        let number = random.next_u64() as i64 >> within(&mut random, 0..64);
        let (overflow, overflow_name) = one_of(&mut random, &overflows);
        let name: &[u8] = one_of(&mut random, &[&b"GET"[..], b"SET", b"INCRBY"]);
        let number_text = number.to_string();
        let mut request: Vec<&[u8]> = vec![
            b"BITFIELD",
            b"k",
            b"OVERFLOW",
            overflow_name,
            name,
            kind.as_bytes(),
            offset.as_bytes(),
        ];
        if name != b"GET" {
            request.push(number_text.as_bytes());
        }
        let Some(kind) = IntegerType::parse(kind.as_bytes()) else {
            script.add(&request, error(bitfield::INVALID_TYPE));
            continue;
        };
        let Some(offset) = bitfield::parse_offset(offset.as_bytes(), Some(kind), 512 << 20) else {
            script.add(&request, error(bitfield::INVALID_OFFSET));
            continue;
        };
        let before = bitfield::get(&bytes, offset, kind);
        let (after, reply) = match name {
            b"GET" => (None, Some(before)),
            b"SET" => {
                let after = kind.fit(number, overflow);
                (after, after.map(|_| before))
            }
            _ => {
                let after = kind.add(before, number, overflow);
                (after, after)
            }
        };
        // Redis makes room for the integer even if it then changes nothing.
        if name != b"GET" {
            let needed = bitfield::bytes_needed(kind, offset) as usize;
            bytes.resize(bytes.len().max(needed), 0);
        }
        if let Some(after) = after {
            bitfield::set(&mut bytes, offset, kind, after);
        }
        let reply = reply.map_or(Frame::NullBulk, Frame::Integer);
        script.add(&request, Some(Frame::Array(vec![reply])));
        script.add(
            &[b"GET", b"k"],
            if bytes.is_empty() { Some(Frame::NullBulk) } else { bulk(&bytes) },
        );
    }
    script.run("bit_fields");
}

#[test]
fn finds_common_subsequences() {
    let mut random = Random::new(SEED);
    let mut script = Script::default();
    let range_frame = |range: std::ops::Range<usize>| {
        Frame::Array(vec![integer(range.start as u64), integer(range.end as u64 - 1)])
    };
    for _ in 0..2000 {
        let letters = &b"abcdef"[..random.between(1, 6) as usize];
        let mut text = || -> Vec<u8> {
            let len = within(&mut random, 0..60);
            (0..len).map(|_| one_of(&mut random, letters)).collect()
        };
        let (left, right) = (text(), text());
        let len_min = random.below(4) as usize;
        script.add(&[b"SET", b"l", &left], None);
        script.add(&[b"SET", b"r", &right], None);
        let found = lcs::find(&left, &right, 512 << 20).unwrap();
        script.add(&[b"LCS", b"l", b"r"], bulk(&found.text));
        let len = integer(lcs::length(&left, &right, 512 << 20).unwrap() as u64);
        script.add(&[b"LCS", b"l", b"r", b"LEN"], Some(len.clone()));
        let matches = found.matches.iter().filter(|run| run.len >= len_min).map(|run| {
            Frame::Array(vec![
                range_frame(run.left()),
                range_frame(run.right()),
                integer(run.len as u64),
            ])
        });
        let reply = Frame::Array(vec![
            Frame::Bulk(b"matches".to_vec()),
            Frame::Array(matches.collect()),
            Frame::Bulk(b"len".to_vec()),
            len,
        ]);
        let len_min = len_min.to_string();
        let request: [&[u8]; 7] =
            [b"LCS", b"l", b"r", b"IDX", b"WITHMATCHLEN", b"MINMATCHLEN", len_min.as_bytes()];
        script.add(&request, Some(reply));
    }
    script.run("common_subsequences");
}

#[test]
fn refuses_subsequences_of_long_strings() {
    let (left, right) = (vec![b'a'; 511], vec![b'b'; 511]);
    let longer = vec![b'a'; 512];
    let mut script = Script::default();
    script.add(&[b"CONFIG", b"SET", b"proto-max-bulk-len", b"1mb"], None);
    script.add(&[b"SET", b"l", &left], None);
    script.add(&[b"SET", b"longer", &longer], None);
    script.add(&[b"SET", b"r", &right], None);
    for (key, string) in [(&b"l"[..], &left), (b"longer", &longer)] {
        let expected = match lcs::length(string, &right, 1 << 20) {
            Ok(len) => Some(integer(len as u64)),
            Err(failure) => error(&failure.to_string()),
        };
        script.add(&[b"LCS", key, b"r", b"LEN"], expected);
    }
    script.run("long_strings");
}
