//! Random arguments: keys that collide, values of all sizes, numbers at every edge.

use super::random::Random;

/// Keys that most commands choose from: few, so that they meet.
const KEYS: usize = 28;
/// Keys that mostly hold hashes.
const HASHES: usize = 12;
/// Keys that mostly hold sets.
const SETS: usize = 10;
/// Keys that mostly hold lists.
const LISTS: usize = 10;
/// Keys that hold large lists, or large sets: some in one slot.
const LARGE_LISTS: &[&str] = &["largelist", "largelist{tag}", "{tag}largelist"];
const LARGE_SETS: &[&str] = &["largeset", "largeset{tag}", "{tag}largeset"];
/// Members of which large sets have some.
const MEMBERS_OF_LARGE: usize = 12_000;
/// Keys that mostly hold sorted sets.
const SORTED_SETS: usize = 10;
/// Keys that hold places.
const GEO_SETS: usize = 4;
/// Keys that hold sorted sets whose members all have the same score.
const LEX_SETS: usize = 5;
/// Keys that mostly hold streams.
const STREAMS: usize = 3;
/// Keys whose values together exceed the memory that Kelvin is given.
pub const WIDE_KEYS: usize = 20_000;
/// Bytes of their values.
const WIDE_BYTES_MAX: usize = 6_000;

/// Keys with something odd about them.
const ODD_KEYS: &[&[u8]] = &[
    b"",
    b"{tag}a",
    b"{tag}b",
    b"a key with spaces",
    b"\x00\xff\r\n",
    b"*",
    b"[k]?",
    b"back\\slash",
    b"none-such",
];

/// Numbers around the edges of what is allowed. None lies where an offset would make a value of
/// many megabytes.
pub const EDGES: &[&str] = &[
    "0",
    "-1",
    "1",
    "7",
    "+1",
    "-0",
    "007",
    " 1",
    "1 ",
    "",
    "x",
    "1.5",
    "0x10",
    "9223372036854775807",
    "-9223372036854775808",
    "9223372036854775808",
    "-9223372036854775809",
    "18446744073709551616",
    "4294967296",
    "-4294967296",
    "100000000000000000000000000000",
];

/// Numbers that no command takes for a time that is still to come.
pub const EDGES_OF_TIME: &[&str] = &[
    "0",
    "-1",
    "",
    "x",
    "1.5",
    "9223372036854775807",
    "-9223372036854775808",
    "9223372036854775808",
];

const FLOATS: &[&str] = &[
    "1.5",
    "-0.1",
    "3.0",
    "1e5",
    "-2.5e-3",
    "1e17",
    "123456789.987654321",
    "0.000000000000000001",
    "1e400",
    "inf",
    "-inf",
    "nan",
    "0x1p4",
    " 1",
    "1 ",
    "",
    "x",
    ".5",
    "5.",
    "+3",
    "1e4932",
];

/// IDs at the edges, and what is none.
const BAD_IDS: &[&str] = &[
    "",
    "x",
    "-",
    "+",
    "7-x",
    "-7",
    "007-+1",
    "7-1-1",
    "0-0",
    "18446744073709551616",
    "18446744073709551615-18446744073709551614",
    "9223372036854775807-9223372036854775808",
];

const PATTERNS: &[&str] = &["*", "k1*", "k?", "[^k]*", "k[0-5]", "\\*", "*tag*", "w0001?", "x", ""];
/// Names of databases that do not exist.
pub const BAD_DATABASES: &[&str] = &["16", "-1", "x", "", "1.0", "9999999999"];
const BIT_TYPES: &[&str] =
    &["u1", "i1", "u4", "i5", "u8", "i8", "u16", "i16", "u32", "i33", "u63", "i64"];
const BAD_BIT_TYPES: &[&str] = &["u64", "i65", "u0", "x8", "", "i"];

/// Arguments of a sort. Some sorts are several words.
pub fn write(sort: &str, random: &mut Random, words: &mut Vec<Vec<u8>>) {
    let mut push = |word: &str| words.push(word.as_bytes().to_vec());
    match sort {
        "key" => words.push(key(random)),
        "value" => words.push(value(random)),
        "unwatched-key" => push(&format!("unwatched{}", random.below(4))),
        "hash" => words.push(if random.chance(1, 12) { key(random) } else { hash_key(random) }),
        "list" => match random.below(12) {
            0 => words.push(key(random)),
            1 | 2 => push(random.pick(LARGE_LISTS)),
            _ => words.push(list_key(random)),
        },
        "small-list" => words.push(list_key(random)),
        "large-list" => push(random.pick(LARGE_LISTS)),
        "elements" => {
            let count = random.below(150);
            (0..=count).for_each(|_| words.push(element(random)));
        }
        "element" => words.push(element(random)),
        "field" => words.push(field(random)),
        "field-value" => words.push(field_value(random)),
        "set" => match random.below(12) {
            0 => words.push(key(random)),
            1 | 2 => push(random.pick(LARGE_SETS)),
            _ => words.push(set_key(random)),
        },
        "small-set" => words.push(set_key(random)),
        "large-set" => push(random.pick(LARGE_SETS)),
        "members" => {
            let count = random.below(150);
            let member = |random: &mut Random| random.below(MEMBERS_OF_LARGE) + 20_000;
            (0..=count).for_each(|_| push(&member(random).to_string()));
        }
        "member" => words.push(member(random)),
        "zset" => words.push(if random.chance(1, 12) { key(random) } else { zset_key(random) }),
        "zset-or-set" => {
            words.push(if random.chance(1, 4) { set_key(random) } else { zset_key(random) });
        }
        // Ranges of members are the same only where all scores are: no other command writes to these keys.
        "lexset" => push(&format!("lex{}", random.below(LEX_SETS))),
        "zmember" => {
            words.push(if random.chance(1, 3) { member(random) } else { few_members(random) })
        }
        "geo" => push(&format!("geo{}", random.below(GEO_SETS))),
        "position" => position(random, words),
        "placed-members" => {
            for number in 0..random.pick(&[20, 100, 300]) {
                position(random, words);
                words.push(format!("m{number}").into_bytes());
            }
        }
        "meters" => push(&meters(random)),
        "unit" => push(random.pick(&["m", "km", "KM", "ft", "mi", "km", "km", "km", "x"])),
        "score" => push(&score(random)),
        "scored-members" => {
            // So many at once that a listpack comes to its limit of 128, or beyond it.
            let first = random.below(300);
            let count = random.pick(&[20, 100, 127, 128, 129, 200, 600]);
            (first..first + count).for_each(|number| {
                push(&(number % 50).to_string());
                push(&number.to_string());
            });
        }
        "score-end" => {
            // None beyond the range of a double: Redis accepts it, but the SORT behind it in a pipeline then finds
            // an errno that is not its own, and refuses its numbers.
            let end = if random.chance(1, 5) {
                random.pick(&["-inf", "+inf", "inf", "", "(", " 1", "nan", "[1", "0x8"]).to_owned()
            } else {
                score(random)
            };
            push(&if random.chance(1, 3) { format!("({end}") } else { end });
        }
        "member-end" => {
            let mut end = match random.below(10) {
                0 => b"-".to_vec(),
                1 => b"+".to_vec(),
                2..6 => b"[".to_vec(),
                6..9 => b"(".to_vec(),
                _ => Vec::new(),
            };
            if random.chance(19, 20) && !matches!(end.as_slice(), b"-" | b"+") {
                end.extend(if random.chance(1, 3) { member(random) } else { few_members(random) });
            }
            words.push(end);
        }
        "stream" => {
            words.push(if random.chance(1, 40) { key(random) } else { stream_key(random) });
        }
        "even-stream" => push("even-stream"),
        "new-id" => push(&match random.below(100) {
            0..92 => "7-*".to_owned(),
            92..97 => format!("7-{}", random.below(400)),
            97..99 => format!("{}-*", random.below(12)),
            _ => random.pick(BAD_IDS).to_owned(),
        }),
        "id" => push(&id(random)),
        "id-end" => push(&match random.pick(&["-", "+", "(", "", ""]) {
            end @ ("-" | "+") => end.to_owned(),
            end => format!("{end}{}", id(random)),
        }),
        "group" => push(random.pick(&["g", "group", ""])),
        "consumer" => push(random.pick(&["alice", "bob", "carol", "", "a consumer"])),
        "entry-field" => push(random.pick(&["field", "field", "field", "f", "", "other"])),
        "entry-value" => words.push(match random.below(200) {
            0..199 => letters(random, 40),
            _ => value(random),
        }),
        "small-number" => push(&random.below(40).to_string()),
        "numbers" => {
            // So many at once that a set of integers comes to its limit of 512, or beyond it.
            let first = random.below(1_500);
            let count = random.pick(&[20, 100, 200, 511, 512, 513, 600]);
            (first..first + count).for_each(|number| push(&number.to_string()));
        }
        "hll" => push(&format!("hll{}", random.below(6))),
        "broken-hll" => push(&format!("broken{}", random.below(3))),
        "hll-offset" => {
            let last = if random.chance(1, 3) { 10 } else { 400 };
            push(&random.between(0, last).to_string());
        }
        "hll-bytes" => words.push(noise(random, 2)),
        "sortable" => push(&format!("sortable{}", random.below(4))),
        // Keys and hashes of the others: `k7`, `hash3`.
        "sort-by" => {
            push("BY");
            push(random.pick(&["k*", "hash*->f1", "hash*->f2", "k*->f", "none*", "*"]));
        }
        "sort-get" => {
            push("GET");
            push(random.pick(&[
                "#",
                "k*",
                "hash*->f1",
                "hash*->field7",
                "hash*",
                "fixed",
                "w0000*",
            ]));
        }
        "sort-limit" => {
            push("LIMIT");
            push(&random.between(-2, 8).to_string());
            push(&random.between(-1, 12).to_string());
        }
        "short-key" => push(&format!("short{}", random.below(6))),
        "short-value" => words.push(letters(random, 120)),
        "integer" => push(&integer(random)),
        "index" => push(&index(random)),
        "offset" => push(&offset(random, 3_000, 200_000)),
        "bit-offset" => push(&offset(random, 20_000, 1_000_000)),
        "float" => push(random.pick(FLOATS)),
        "pattern" => push(random.pick(PATTERNS)),
        "time" => push(random.pick(&["4000000000", "4100000000", "1000000", "1", "-5"])),
        "time-ms" => push(random.pick(&["4000000000000", "4100000000000", "1000000", "-5"])),
        "expiry" => {
            let (option, times): (_, &[&str]) = match random.below(4) {
                0 => ("EX", &["100000", "200000"]),
                1 => ("PX", &["100000000", "300000000"]),
                2 => ("EXAT", &["4000000000", "4100000000"]),
                _ => ("PXAT", &["4000000000000", "4100000000000"]),
            };
            push(option);
            push(random.pick(times));
        }
        "bit-type" => push(bit_type(random)),
        "bit-position" => push(&bit_position(random)),
        "bit-operation" => {
            let operation = random.pick(&["GET", "SET", "INCRBY"]);
            push(operation);
            push(bit_type(random));
            push(&bit_position(random));
            if operation != "GET" {
                push(&integer(random));
            }
        }
        other => panic!("there are no arguments of the sort {other}"),
    }
}

fn key(random: &mut Random) -> Vec<u8> {
    match random.below(100) {
        0..76 => format!("k{}", random.below(KEYS)).into_bytes(),
        76..88 => wide_key(random.below(WIDE_KEYS)),
        88..90 => hash_key(random),
        90..92 => set_key(random),
        92..94 => list_key(random),
        94 => random.pick(LARGE_LISTS).as_bytes().to_vec(),
        95 => random.pick(LARGE_SETS).as_bytes().to_vec(),
        96 => zset_key(random),
        97 => random.pick(ODD_KEYS).to_vec(),
        _ => vec![b'L'; 300],
    }
}

fn hash_key(random: &mut Random) -> Vec<u8> {
    format!("hash{}", random.below(HASHES)).into_bytes()
}

fn stream_key(random: &mut Random) -> Vec<u8> {
    format!("stream{}", random.below(STREAMS)).into_bytes()
}

/// An ID: mostly of those that entries have.
fn id(random: &mut Random) -> String {
    match random.below(100) {
        0..90 => format!("7-{}", random.below(600)),
        90..96 => format!("{}-{}", random.below(12), random.below(20)),
        96..98 => random.below(12).to_string(),
        _ => random.pick(BAD_IDS).to_owned(),
    }
}

fn set_key(random: &mut Random) -> Vec<u8> {
    format!("set{}", random.below(SETS)).into_bytes()
}

fn zset_key(random: &mut Random) -> Vec<u8> {
    format!("zset{}", random.below(SORTED_SETS)).into_bytes()
}

fn few_members(random: &mut Random) -> Vec<u8> {
    match random.below(3) {
        0 => random.below(300).to_string().into_bytes(),
        1 => format!("m{}", random.below(60)).into_bytes(),
        _ => vec![b'm'; 60 + random.below(8)],
    }
}

/// A longitude and a latitude: mostly in one region, some anywhere, few at an edge.
fn position(random: &mut Random, words: &mut Vec<Vec<u8>>) {
    let fraction = |random: &mut Random| random.below(1_000_000) as f64 / 1_000_000.0;
    let (longitude, latitude) = match random.below(20) {
        0..12 => (13.0 + fraction(random), 52.0 + fraction(random)),
        12..18 => (360.0 * fraction(random) - 180.0, 170.0 * fraction(random) - 85.0),
        // No two at one place: of members that are equally far Redis takes any.
        18 if random.chance(1, 2) => {
            (random.pick(&[-180.0, 180.0, 0.0, 179.9]), 170.0 * fraction(random) - 85.0)
        }
        18 => {
            let latitude = random.pick(&[0.0, 85.05112878, -85.05112878, 84.9]);
            (360.0 * fraction(random) - 180.0, latitude)
        }
        _ => (random.pick(&[181.0, -181.0, 0.0]), random.pick(&[86.0, -86.0, 85.06])),
    };
    words.push(longitude.to_string().into_bytes());
    words.push(latitude.to_string().into_bytes());
}

fn meters(random: &mut Random) -> String {
    match random.below(20) {
        0..10 => random.below(200).to_string(),
        10..15 => format!("{}.{}", random.below(3_000), random.below(1_000)),
        15..18 => random.pick(&["0", "5000", "10000", "20000", "25000"]).to_owned(),
        18 => random.pick(FLOATS).to_owned(),
        _ => random.pick(EDGES).to_owned(),
    }
}

fn score(random: &mut Random) -> String {
    match random.below(20) {
        0..10 => random.between(-10, 60).to_string(),
        10..14 => format!("{}.{}", random.between(-10, 60), random.below(1_000)),
        14 => "-0".to_owned(),
        15 => random.between(i64::MIN / 2, i64::MAX / 2).to_string(),
        16 => format!("{}e{}", random.between(-99, 99), random.between(-30, 30)),
        17 => random.pick(&["inf", "-inf", "1e17", "4611686018427387904"]).to_owned(),
        18 => random.pick(FLOATS).to_owned(),
        _ => random.pick(EDGES).to_owned(),
    }
}

/// A member: of a few that meet, or of many, integers or not.
fn member(random: &mut Random) -> Vec<u8> {
    match random.below(100) {
        0..50 => random.below(40).to_string().into_bytes(),
        50..65 => random.below(1_500).to_string().into_bytes(),
        65..85 => format!("m{}", random.below(30)).into_bytes(),
        85..92 => format!("member{}", random.below(1_000)).into_bytes(),
        92..97 => random.pick(EDGES).as_bytes().to_vec(),
        97..99 => random.pick(ODD_KEYS).to_vec(),
        _ => letters(random, 300),
    }
}

/// A field: of a few that meet, or of many, so that some hashes grow large.
fn field(random: &mut Random) -> Vec<u8> {
    match random.below(100) {
        0..70 => format!("f{}", random.below(30)).into_bytes(),
        70..95 => format!("field{}", random.below(2_000)).into_bytes(),
        95..98 => random.pick(ODD_KEYS).to_vec(),
        _ => letters(random, 300),
    }
}

fn field_value(random: &mut Random) -> Vec<u8> {
    match random.below(1000) {
        0..300 => integer(random).into_bytes(),
        300..350 => random.pick(FLOATS).as_bytes().to_vec(),
        350..900 => letters(random, 60),
        900..990 => letters(random, 600),
        _ => value(random),
    }
}

fn list_key(random: &mut Random) -> Vec<u8> {
    format!("list{}", random.below(LISTS)).into_bytes()
}

/// An element: mostly of a few that meet, some of them long.
fn element(random: &mut Random) -> Vec<u8> {
    match random.below(1000) {
        0..550 => format!("e{}", random.below(12)).into_bytes(),
        550..600 => vec![b'l'; 250 + random.below(10)],
        600..750 => integer(random).into_bytes(),
        750..900 => letters(random, 60),
        900..990 => letters(random, 600),
        _ => value(random),
    }
}

/// A key of the wide sort.
pub fn wide_key(index: usize) -> Vec<u8> {
    format!("w{index:05}").into_bytes()
}

/// A value of its size.
pub fn wide_value(random: &mut Random) -> Vec<u8> {
    noise(random, WIDE_BYTES_MAX)
}

fn value(random: &mut Random) -> Vec<u8> {
    match random.below(1000) {
        0..300 => integer(random).into_bytes(),
        300..340 => random.pick(FLOATS).as_bytes().to_vec(),
        340..360 => Vec::new(),
        360..600 => letters(random, 60),
        600..800 => letters(random, 2_000),
        800..900 => noise(random, 2_000),
        900..997 => wide_value(random),
        _ => noise(random, 400_000),
    }
}

/// Text that compresses well.
fn letters(random: &mut Random, bytes_max: usize) -> Vec<u8> {
    let len = random.below(bytes_max + 1);
    let mut seed = random.next();
    let letter = |_| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        b"abcd "[(seed >> 61) as usize % 5]
    };
    (0..len).map(letter).collect()
}

/// Bytes that do not compress.
fn noise(random: &mut Random, bytes_max: usize) -> Vec<u8> {
    let len = random.below(bytes_max + 1);
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        bytes.extend_from_slice(&random.next().to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}

fn integer(random: &mut Random) -> String {
    match random.below(10) {
        0..7 => random.between(-1_000, 12_000).to_string(),
        7 => random.between(i64::MIN / 2, i64::MAX / 2).to_string(),
        _ => random.pick(EDGES).to_owned(),
    }
}

fn index(random: &mut Random) -> String {
    match random.below(10) {
        0..5 => random.between(-10, 10).to_string(),
        5..9 => random.between(-3_000, 3_000).to_string(),
        _ => random.pick(EDGES).to_owned(),
    }
}

fn offset(random: &mut Random, usual_max: i64, rare_max: i64) -> String {
    match random.below(1000) {
        0..960 => random.between(0, usual_max).to_string(),
        960..963 => random.between(0, rare_max).to_string(),
        _ => random.pick(EDGES).to_owned(),
    }
}

fn bit_type(random: &mut Random) -> &'static str {
    if random.chance(1, 40) { random.pick(BAD_BIT_TYPES) } else { random.pick(BIT_TYPES) }
}

fn bit_position(random: &mut Random) -> String {
    match random.below(20) {
        0..10 => offset(random, 2_000, 20_000),
        10..19 => format!("#{}", random.between(0, 2_000)),
        // Redis 7.0 overflows on multiples beyond 64 bits.
        _ => format!("#{}", random.pick(&["-1", "x", "", "4294967296", "9223372036854775808"])),
    }
}
