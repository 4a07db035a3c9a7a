//! DUMP: a value in Redis's serialization format (crate `rdb`), as Redis 7.0 would write it.
//!
//! Redis 7.0 knows no fields that expire: a hash that has some is written as Redis 7.4 does, and Redis 7.0 refuses
//! it.

use std::ops::ControlFlow;

use keyspace::{Key, Stored};
use rdb::payload::{self, VERSION_7_0, VERSION_7_4};
use rdb::write::{
    self, HashWriter, ListWriter, PACKED_COLLECTION_BYTES_MAX, SetWriter, SortedSetWriter,
    StreamWriter,
};
use resp::{Args, Reply};
use value::leaf::branch::Root;
use value::{Kind, StreamId, parse_i64};

use super::room::check_stored;
use crate::cx::Cx;
use crate::error::{CommandError, CommandResult};
use crate::spec::{Command, Docs, Flags, Group, KeyFlags, KeySpec, Locks, Needs};

/// Bytes that an element takes beside what its leaf takes for it, at most.
const ELEMENT_BYTES: u64 = 12;
/// Bytes that an entry of a stream takes so.
const ENTRY_BYTES: u64 = 40;
/// Bytes around all of them.
const FRAME_BYTES: u64 = 128;

/// The rows of this file.
pub const COMMANDS: &[Command] = &[Command {
    name: "DUMP",
    arity: 2,
    flags: Flags::READONLY.and(Flags::REPLIES_VALUES),
    keys: &[KeySpec::at(1, KeyFlags::RO.and(KeyFlags::ACCESS), Needs::Value)],
    locks: Locks::Keys,
    docs: Docs {
        group: Group::Generic,
        since: "2.6.0",
        summary: "Returns the value of a key as RESTORE takes it.",
        complexity: "O(N) for a value of N bytes",
        syntax: "key",
    },
    run: dump,
}];

fn dump(cx: &mut Cx<'_, '_>, _args: Args<'_>, reply: &mut Reply) -> CommandResult {
    let key = cx.key(0);
    let Some(kind) = kind_of(cx, &key) else {
        // For the statistics.
        cx.read(&key)?;
        reply.null();
        return Ok(());
    };
    let dumped = match kind {
        _ if kind.is_string() => string(cx, &key, reply),
        _ if kind.is_list() => list(cx, &key, reply),
        _ if kind.is_set() => set(cx, &key, kind, reply),
        _ if kind.is_hash() => hash(cx, &key, kind, reply),
        _ if kind.is_sorted_set() => sorted_set(cx, &key, reply),
        _ => stream(cx, &key, reply),
    };
    match dumped? {
        None => reply.null(),
        Some((mut payload, version)) => {
            payload::finish(&mut payload, 0, version);
            reply.bulk(&payload);
        }
    }
    Ok(())
}

/// What a key holds, with the encoding that a root tells.
fn kind_of(cx: &mut Cx<'_, '_>, key: &Key<'_>) -> Option<Kind> {
    let view = cx.peek(key)?;
    let kind = Kind::from_bits(view.kind);
    Some(match view.stored {
        Stored::Hot(root) if kind.is_tree() => kind.with_encoding(Root::new(root).encoding()),
        _ => kind,
    })
}

/// An object and the version that knows it. None: all that there was has expired.
type Dumped = Result<Option<(Vec<u8>, u16)>, CommandError>;

/// A buffer for an object of so many bytes and elements.
///
/// Errors: [`CommandError::ReplyTooLong`] if there is no memory for it and for the reply that it is copied to.
fn buffer(
    key: &Key<'_>,
    (bytes, elements, element_bytes): (u64, u64, u64),
    reply_bytes_max: usize,
    reply: &Reply,
) -> Result<Vec<u8>, CommandError> {
    let bytes = bytes + element_bytes * elements + FRAME_BYTES;
    // As copies: a reply that is made ready beforehand would take as much as both.
    check_stored(key, 2 * bytes, reply_bytes_max, reply)?;
    Ok(Vec::with_capacity(bytes as usize))
}

fn string(cx: &mut Cx<'_, '_>, key: &Key<'_>, reply: &Reply) -> Dumped {
    let reply_bytes_max = cx.reply_bytes_max;
    let Some(bytes) = cx.read_string(key)? else { return Ok(None) };
    let mut out = buffer(key, (bytes.len() as u64, 1, ELEMENT_BYTES), reply_bytes_max, reply)?;
    write::string(&mut out, bytes, false);
    Ok(Some((out, VERSION_7_0)))
}

fn list(cx: &mut Cx<'_, '_>, key: &Key<'_>, reply: &Reply) -> Dumped {
    let reply_bytes_max = cx.reply_bytes_max;
    let Some(mut list) = cx.read_list(key)? else { return Ok(None) };
    let len = list.len();
    let mut out = buffer(key, (list.byte_len(), len, ELEMENT_BYTES), reply_bytes_max, reply)?;
    let mut writer = ListWriter::new(&mut out);
    let _ = list.visit(0..len, false, |_, element| {
        writer.push(element);
        ControlFlow::Continue(())
    })?;
    writer.finish();
    Ok(Some((out, VERSION_7_0)))
}

fn set(cx: &mut Cx<'_, '_>, key: &Key<'_>, kind: Kind, reply: &Reply) -> Dumped {
    let reply_bytes_max = cx.reply_bytes_max;
    let Some(mut set) = cx.read_set(key)? else { return Ok(None) };
    let len = set.len();
    let mut out = buffer(key, (set.byte_len(), len, ELEMENT_BYTES), reply_bytes_max, reply)?;
    if kind != Kind::SET_INTEGERS {
        let mut writer = SetWriter::new(&mut out, len);
        set.visit(|member| writer.push(member))?;
        return Ok(Some((out, VERSION_7_0)));
    }
    let mut integers: Vec<i64> = Vec::new();
    set.visit(|member| {
        integers.push(parse_i64(member).expect("invariant: the set has had integers alone"));
    })?;
    integers.sort_unstable();
    write::integers(&mut out, &integers);
    Ok(Some((out, VERSION_7_0)))
}

fn hash(cx: &mut Cx<'_, '_>, key: &Key<'_>, kind: Kind, reply: &Reply) -> Dumped {
    let (reply_bytes_max, may_expire) = (cx.reply_bytes_max, cx.has_expiring_elements(key));
    let Some(mut hash) = cx.read_hash(key)? else { return Ok(None) };
    let (bytes, len) = (hash.byte_len(), hash.len());
    let mut out = buffer(key, (bytes, 2 * len, ELEMENT_BYTES), reply_bytes_max, reply)?;
    let live = hash.live_len()?;
    if live == 0 {
        return Ok(None);
    }
    let first_ms = if may_expire { hash.first_live_expiry()? } else { 0 };
    let is_packed = kind == Kind::HASH_PACKED && bytes <= PACKED_COLLECTION_BYTES_MAX as u64;
    let mut writer = match first_ms {
        0 if is_packed => HashWriter::packed(&mut out),
        0 => HashWriter::plain(&mut out, live),
        first_ms => HashWriter::expiring(&mut out, live, first_ms),
    };
    hash.visit_with_expiry(|field, value, at_ms| writer.push(field, value, at_ms))?;
    writer.finish();
    Ok(Some((out, if first_ms == 0 { VERSION_7_0 } else { VERSION_7_4 })))
}

fn sorted_set(cx: &mut Cx<'_, '_>, key: &Key<'_>, reply: &Reply) -> Dumped {
    let reply_bytes_max = cx.reply_bytes_max;
    let Some(mut set) = cx.read_sorted_set(key)? else { return Ok(None) };
    let (bytes, len) = (set.byte_len(), set.len());
    let mut out = buffer(key, (bytes, 2 * len, ELEMENT_BYTES), reply_bytes_max, reply)?;
    let mut writer = match set.is_packed() && bytes <= PACKED_COLLECTION_BYTES_MAX as u64 {
        true => SortedSetWriter::packed(&mut out),
        false => SortedSetWriter::plain(&mut out, len),
    };
    set.visit(0..len, false, |member, score| {
        writer.push(member, score);
        ControlFlow::Continue(())
    })?;
    writer.finish();
    Ok(Some((out, VERSION_7_0)))
}

fn stream(cx: &mut Cx<'_, '_>, key: &Key<'_>, reply: &Reply) -> Dumped {
    let reply_bytes_max = cx.reply_bytes_max;
    let Some(mut stream) = cx.read_stream(key)? else { return Ok(None) };
    let head = stream.head();
    let size = (stream.byte_len(), head.length, ENTRY_BYTES);
    let mut out = buffer(key, size, reply_bytes_max, reply)?;
    stream.announce_all()?;
    let mut writer = StreamWriter::new(&mut out);
    stream.visit_leaves(|entries| {
        entries.iter().for_each(|entry| writer.entry(entry.id, entry.iter()));
        writer.end_node();
    })?;
    let groups = stream.groups(|_, _| true)?;
    let first = stream.first_id()?;
    let value::leaf::stream::Head { length, last, max_deleted, added } = head;
    let head = rdb::Head { length, last, first, max_deleted, added };
    writer.head(head, groups.len() as u64);
    for (name, group) in &groups {
        writer.group(name, group.last, group.read, group.pending);
        stream.pending(group, (StreamId::MIN, u64::MAX), |id, nack| {
            writer.pending(id, nack.delivered_ms, nack.deliveries);
            ControlFlow::Continue(())
        })?;
        let consumers = stream.consumers(group, |_, _| true)?;
        writer.consumers(consumers.len() as u64);
        for (name, consumer) in &consumers {
            writer.consumer(name, consumer.seen_ms, consumer.pending);
            let owned = stream.owned((group, consumer), StreamId::MIN, u64::MAX)?;
            owned.into_iter().for_each(|id| writer.owned(id));
        }
    }
    Ok(Some((out, VERSION_7_0)))
}

#[cfg(test)]
mod tests {
    use std::fmt::Write;

    use rdb::payload;

    use crate::harness::{Harness, check, check_events};

    /// A payload of these bytes, with a right footer, as an argument.
    fn payload_of(object: &[u8], version: u16) -> String {
        let mut bytes = object.to_vec();
        payload::finish(&mut bytes, 0, version);
        argument(&bytes)
    }

    fn argument(bytes: &[u8]) -> String {
        let mut text = String::from("\"");
        bytes.iter().for_each(|byte| write!(text, "\\x{byte:02x}").expect("a string"));
        text + "\""
    }

    /// What DUMP answers.
    fn dumped(server: &mut Harness, key: &str) -> Vec<u8> {
        let reply = server.run(&format!("DUMP {key}"));
        let (_, text) = reply.split_once(' ').unwrap_or_else(|| panic!("{key}: {reply}"));
        let (mut bytes, mut rest) = (Vec::new(), text.as_bytes());
        while let Some((&byte, behind)) = rest.split_first() {
            let (byte, behind) = match (byte, behind) {
                (b'\\', [b'x', hex @ ..]) => {
                    let text = std::str::from_utf8(&hex[..2]).expect("hexadecimal");
                    (u8::from_str_radix(text, 16).expect("hexadecimal"), &hex[2..])
                }
                (b'\\', [escaped, behind @ ..]) => {
                    let byte = match escaped {
                        b'n' => b'\n',
                        b'r' => b'\r',
                        b't' => b'\t',
                        other => *other,
                    };
                    (byte, behind)
                }
                (byte, behind) => (byte, behind),
            };
            bytes.push(byte);
            rest = behind;
        }
        // Spaces at the end are not shown.
        let (len, _) = reply[1..].split_once(' ').expect("a bulk");
        bytes.resize(len.parse().expect("a length"), b' ');
        bytes
    }

    #[test]
    fn errors_are_those_of_redis() {
        let string = payload_of(b"\x00\x01v", 10);
        let newer = payload_of(b"\x00\x01v", 13);
        let restore = |rest: &str| format!("RESTORE k {rest}");
        let wrong = "-ERR DUMP payload version or checksum are wrong";
        let bad = "-ERR Bad data format";
        let ok = "+OK";
        let cases = [
            ("DUMP k".to_owned(), "_"),
            (restore("0 x"), wrong),
            (restore(&format!("0 {newer}")), wrong),
            (restore(&format!("x {string}")), "-ERR value is not an integer or out of range"),
            (restore(&format!("-1 {string}")), "-ERR Invalid TTL value, must be >= 0"),
            (restore("0 x NONE"), "-ERR syntax error"),
            (restore("0 x IDLETIME"), "-ERR syntax error"),
            (restore("0 x IDLETIME 1 FREQ 1"), "-ERR syntax error"),
            (restore("0 x IDLETIME -1"), "-ERR Invalid IDLETIME value, must be >= 0"),
            (restore("0 x FREQ 256"), "-ERR Invalid FREQ value, must be >= 0 and <= 255"),
            (restore("0 x FREQ x"), "-ERR value is not an integer or out of range"),
            (restore(&format!("0 {}", payload_of(b"\x07", 10))), bad),
            (restore(&format!("0 {}", payload_of(b"", 10))), bad),
            (restore(&format!("0 {}", payload_of(b"\x02\x02\x01a\x01a", 10))), bad),
            (restore(&format!("0 {}", payload_of(b"\x04\x02\x01a\x01v\x01a\x01w", 10))), bad),
            (restore(&format!("0 {string}")), ok),
            (restore("x x"), "-BUSYKEY Target key name already exists."),
            (restore(&format!("5000 {string} REPLACE")), ok),
            ("PTTL k".to_owned(), ":5000"),
            ("GET k".to_owned(), "$1 v"),
            (restore(&format!("99999999999999 {string} REPLACE ABSTTL")), ok),
            ("PEXPIRETIME k".to_owned(), ":99999999999999"),
            (restore(&format!("0 {string} REPLACE")), ok),
            ("PTTL k".to_owned(), ":-1"),
            (restore(&format!("1 {string} ABSTTL")), "-BUSYKEY Target key name already exists."),
            (restore(&format!("1 {string} ABSTTL REPLACE")), ok),
            ("EXISTS k".to_owned(), ":0"),
            (restore(&format!("1 {string} ABSTTL")), ok),
            ("EXISTS k".to_owned(), ":0"),
        ];
        let cases: Vec<(&str, &str)> =
            cases.iter().map(|(line, reply)| (line.as_str(), *reply)).collect();
        check(&cases);
    }

    #[test]
    fn uses_are_kept() {
        for (options, uses) in [("", 1), (" FREQ 255", 3), (" FREQ 100", 1), (" IDLETIME 99", 0)] {
            let mut server = Harness::new(false);
            server.lfu = true;
            let string = payload_of(b"\x00\x01v", 10);
            assert_eq!(server.run(&format!("RESTORE k 0 {string}{options}")), "+OK");
            let expected = if options.is_empty() {
                server.run("OBJECT FREQ k")
            } else {
                format!(":{}", 85 * uses)
            };
            assert_eq!(server.run("OBJECT FREQ k"), expected, "{options}");
        }
    }

    #[test]
    fn events() {
        let list = payload_of(b"\x01\x01\x01v", 10);
        check_events(&[
            ("DUMP k", "keymiss k"),
            (&format!("RESTORE k 0 {list}"), "new k, restore k"),
            (&format!("RESTORE k 0 {list}"), ""),
            (&format!("RESTORE k 100 {list} REPLACE"), "new k, restore k"),
            (&format!("RESTORE k 1 {list} REPLACE ABSTTL"), "del k"),
            (&format!("RESTORE k 1 {list} REPLACE ABSTTL"), ""),
        ]);
    }

    /// How many elements a collection has.
    const SIZES: [usize; 5] = [1, 5, 130, 600, 3_000];

    /// Keys with values of every type and size, and how their values are shown.
    fn fill(server: &mut Harness) -> Vec<(String, Vec<String>)> {
        let text = |number: usize| match number % 7 {
            0 => format!("{number}"),
            1 => format!("\"\\x00\\xff{number}\""),
            2 if number % 100 == 9 => format!("{number}{}", "x".repeat(300)),
            _ => format!("element:{number}"),
        };
        let joined = |len: usize, word: &dyn Fn(usize) -> String| {
            (0..len).map(|number| format!(" {}", word(number))).collect::<String>()
        };
        let mut keys = Vec::new();
        for value in ["12", "-129", "70000", "99999999999999", "text", "''"] {
            let key = format!("string{}", keys.len());
            server.run(&format!("SET {key} {value}"));
            keys.push((key, vec!["GET".into()]));
        }
        server.run(&format!("SET long {}", "x".repeat(100_000)));
        keys.push(("long".into(), vec!["GET".into()]));
        for len in SIZES {
            server.run(&format!("RPUSH list{len}{}", joined(len, &text)));
            keys.push((format!("list{len}"), vec!["LRANGE * 0 -1".into()]));
            server.run(&format!("SADD set{len}{}", joined(len, &text)));
            server.run(&format!(
                "SADD ints{len}{}",
                joined(len, &|number| format!("{}", number * 977))
            ));
            for key in ["set", "ints"] {
                keys.push((
                    format!("{key}{len}"),
                    vec!["SORT * ALPHA".into(), "OBJECT ENCODING".into()],
                ));
            }
            server.run(&format!(
                "HSET hash{len}{}",
                joined(len, &|number| format!("{} v{number}", text(number)))
            ));
            keys.push((format!("hash{len}"), vec!["HLEN".into(), "OBJECT ENCODING".into()]));
            let score = |number: usize| match number % 5 {
                0 => "-inf".to_owned(),
                1 => "inf".to_owned(),
                2 => "-0".to_owned(),
                3 => format!("{number}.1"),
                _ => format!("{number}"),
            };
            server.run(&format!(
                "ZADD zset{len}{}",
                joined(len, &|number| format!("{} {}", score(number), text(number)))
            ));
            keys.push((
                format!("zset{len}"),
                vec!["ZRANGE * 0 -1 WITHSCORES".into(), "OBJECT ENCODING".into()],
            ));
            for number in 0..len {
                let field = if number % 10 == 3 { "other" } else { "field" };
                server.run(&format!(
                    "XADD stream{len} {}-{} {field} {} 2 3",
                    number / 3 + 1,
                    number % 3,
                    text(number)
                ));
            }
            server.run(&format!("XDEL stream{len} 2-1 900-0"));
            for group in ["g", "h"] {
                server.run(&format!("XGROUP CREATE stream{len} {group} 2-0"));
                server.run(&format!(
                    "XREADGROUP GROUP {group} alice COUNT {} STREAMS stream{len} >",
                    len / 2 + 1
                ));
                server.run(&format!(
                    "XREADGROUP GROUP {group} bob COUNT {} STREAMS stream{len} >",
                    len / 4 + 1
                ));
            }
            server.run(&format!("XACK stream{len} g 3-1 5-0"));
            keys.push((format!("stream{len}"), vec!["XINFO STREAM * FULL COUNT 0".into()]));
        }
        server.run("XADD empty MAXLEN 0 1-1 f v");
        keys.push(("empty".into(), vec!["XINFO STREAM * FULL COUNT 0".into()]));
        keys
    }

    #[test]
    fn values_of_every_type_and_size_come_back() {
        for demote in [false, true] {
            let mut server = Harness::new(demote);
            for (key, shown) in fill(&mut server) {
                let payload = dumped(&mut server, &key);
                for target in ["copy", "ints3000"] {
                    let line = format!("RESTORE {target} 0 {} REPLACE", argument(&payload));
                    assert_eq!(server.run(&line), "+OK", "{key}");
                    // Leaves of streams are no rows.
                    if !key.starts_with("stream") {
                        server.check_tree(target);
                    }
                    for command in &shown {
                        let of = |key: &str| match command.contains('*') {
                            true => command.replace('*', key),
                            false => format!("{command} {key}"),
                        };
                        let (mut before, mut after) =
                            (server.run(&of(&key)), server.run(&of(target)));
                        // Nodes of Redis are told by leaves, of which a removed entry leaves one behind.
                        for reply in [&mut before, &mut after] {
                            assert!(!reply.starts_with('-'), "{key}: {command}: {reply:.200}");
                        }
                        if key != "ints3000" || target != "ints3000" {
                            assert_eq!(before, after, "{key}: {command}");
                        }
                    }
                    if target == "copy" {
                        assert_eq!(dumped(&mut server, target).len(), payload.len(), "{key}");
                    }
                }
            }
            server.check_counts();
            for key in ["copy", "sorted"] {
                server.run(&format!("DEL {key}"));
            }
        }
    }

    #[test]
    fn fields_expire_when_they_did() {
        for demote in [false, true] {
            for len in [3, 900] {
                let mut server = Harness::new(demote);
                let fields: String = (0..len).map(|number| format!(" f{number} v")).collect();
                server.run(&format!("HSET h{fields}"));
                server.run("HPEXPIRE h 5000 FIELDS 1 f0");
                server.run("HPEXPIRE h 9000 FIELDS 1 f1");
                let payload = dumped(&mut server, "h");
                assert_eq!(payload[0], 24);
                let restored = format!("RESTORE copy 0 {} REPLACE", argument(&payload));
                assert_eq!(server.run(&restored), "+OK");
                server.check_tree("copy");
                assert_eq!(server.run("HPTTL copy FIELDS 3 f0 f1 f2"), "[:5000, :9000, :-1]");
                server.now_ms += 6_000;
                let later = dumped(&mut server, "h");
                assert_eq!(server.run(&format!("RESTORE later 0 {}", argument(&later))), "+OK");
                assert_eq!(server.run("HLEN later"), format!(":{}", len - 1));
                assert_eq!(server.run("HPTTL later FIELDS 2 f0 f1"), "[:-2, :3000]");
                server.run("HPERSIST later FIELDS 1 f1");
                assert_ne!(dumped(&mut server, "later")[0], 24);
                server.expire_fields();
                assert_eq!(server.run("HLEN copy"), format!(":{}", len - 1));
                server.check_counts();
                server.run("HPEXPIRE h 1 FIELDS 1 f2");
                server.run("DEL h copy later");
                server.check_empty();
            }
            let mut server = Harness::new(demote);
            server.run("HSET h f v");
            server.run("HPEXPIRE h 10 FIELDS 1 f");
            server.now_ms += 11;
            assert_eq!(server.run("DUMP h"), "_");
        }
    }

    /// Payloads with a bit turned over behind a right checksum, and cut off: an error, or a value that can be
    /// used.
    #[test]
    fn damaged_payloads_do_no_harm() {
        let mut server = Harness::new(false);
        let keys: Vec<String> = fill(&mut server).into_iter().map(|(key, _)| key).collect();
        let small =
            |key: &&String| key.ends_with('5') || key.ends_with("t1") || key.as_str() == "empty";
        let mut payloads: Vec<Vec<u8>> =
            keys.iter().filter(small).map(|key| dumped(&mut server, key)).collect();
        server.run("HSET h f v g w");
        server.run("HPEXPIRE h 5000 FIELDS 1 f");
        payloads.push(dumped(&mut server, "h"));
        payloads.push(b"\x00\xc3\x09\x40\xc8\x01aa\xe0\xbb\x00\x01aa".to_vec());
        let mut server = Harness::new(false);
        let mut outcomes = [0, 0];
        for payload in payloads {
            let object = &payload[..payload.len() - payload::FOOTER_BYTES];
            let mut damaged: Vec<Vec<u8>> =
                (0..object.len()).map(|len| object[..len].to_vec()).collect();
            for bit in 0..8 * object.len() {
                let mut wrong = object.to_vec();
                wrong[bit / 8] ^= 1 << (bit % 8);
                damaged.push(wrong);
            }
            for object in damaged {
                let reply = server.run(&format!("RESTORE k 0 {}", payload_of(&object, 12)));
                let is_made = reply == "+OK";
                outcomes[usize::from(is_made)] += 1;
                assert!(is_made || reply == "-ERR Bad data format", "{reply}");
                if is_made {
                    let again = dumped(&mut server, "k");
                    let line = format!("RESTORE k 0 {} REPLACE", argument(&again));
                    assert_eq!(server.run(&line), "+OK");
                    for line in [
                        "XADD k * f v",
                        "XREADGROUP GROUP g new STREAMS k >",
                        "SADD k 7",
                        "HSET k n 1",
                    ] {
                        server.run(line);
                    }
                }
                server.run("DEL k");
                server.check_empty();
            }
        }
        assert!(outcomes.iter().all(|&count| count > 500), "{outcomes:?}");
    }

    #[test]
    fn what_memory_has_no_room_for_is_refused() {
        let mut server = Harness::new(false);
        server.memory_bytes_max = 100_000;
        let oom = "-OOM command not allowed when used memory > 'maxmemory'.";
        // A string that is said to be a megabyte, of 3 bytes for 264.
        let copies = b"\xe0\xff\x00".repeat(3_971);
        let mut bomb = b"\x00\xc3\x80".to_vec();
        bomb.extend((copies.len() as u32 + 2).to_be_bytes());
        bomb.push(0x80);
        bomb.extend((1 + 264 * 3_971u32).to_be_bytes());
        bomb.extend(b"\x00a");
        bomb.extend(&copies);
        assert_eq!(server.run(&format!("RESTORE k 0 {}", payload_of(&bomb, 10))), oom);
        let members = (0..5_000u32).flat_map(|number| {
            let number = number as u16;
            [&b"\xc1"[..], &number.to_le_bytes()].concat()
        });
        let mut set = b"\x02\x53\x88".to_vec();
        set.extend(members);
        assert_eq!(server.run(&format!("RESTORE k 0 {}", payload_of(&set, 10))), oom);
        server.memory_bytes_max = 10_000_000;
        server.reply_bytes_free = 256;
        assert_eq!(server.run(&format!("RESTORE k 0 {}", payload_of(&bomb, 10))), "+OK");
        assert!(server.runs <= 3, "{} runs", server.runs);
        assert_eq!(server.run("STRLEN k"), ":1048345");
        assert_eq!(server.run(&format!("RESTORE s 0 {}", payload_of(&set, 10))), "+OK");
        assert_eq!(server.run("SCARD s"), ":5000");
    }
}
