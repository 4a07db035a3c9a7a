//! Objects of every type: those of redis-server 7.0.15 and of earlier and later ones are read, and what is written
//! is read.

use proptest::prelude::*;
use rdb::payload::{self, Payload, VERSION_7_0, VERSION_7_4};
use rdb::write::{
    HashWriter, ListWriter, SetWriter, SortedSetWriter, StreamWriter, integers, string,
};
use rdb::{Claims, Dialect, Error, Head, Item, ObjectType, StreamItem, measure, read_object};
use value::StreamId;

/// An item as text.
fn shown(item: Item<'_>) -> String {
    let text = |bytes: &[u8]| match bytes.len() {
        0..=40 => bytes.escape_ascii().to_string(),
        len => format!("{}*{len}", bytes[..1].escape_ascii()),
    };
    match item {
        Item::String(bytes) | Item::Element(bytes) | Item::Member(bytes) => text(bytes),
        Item::Scored(member, score) => format!("{}={score}", text(member)),
        Item::Field { field, value, expire_at_ms: 0 } => {
            format!("{}={}", text(field), text(value))
        }
        Item::Field { field, value, expire_at_ms } => {
            format!("{}={}@{expire_at_ms}", text(field), text(value))
        }
        Item::Stream(StreamItem::Entry(entry)) => {
            let pairs: Vec<String> =
                entry.pairs().map(|(field, value)| text(field) + "=" + &text(value)).collect();
            let begins = if entry.begins_node { "| " } else { "" };
            format!("{begins}{}-{} {}", entry.id.ms, entry.id.seq, pairs.join(" "))
        }
        Item::Stream(item) => format!("{item:?}"),
    }
}

fn read(object_type: ObjectType, bytes: &[u8]) -> Result<(Vec<String>, &[u8]), Error> {
    let (mut items, mut source) = (Vec::new(), bytes);
    let claims = measure(&mut &bytes[..], object_type);
    read_object(&mut source, object_type, &mut |item| {
        items.push(shown(item));
        Ok(())
    })?;
    assert!(claims.is_ok(), "what is read can be passed over: {claims:?}");
    Ok((items, source))
}

/// The items of a payload, one behind the other.
fn items(payload: &[u8]) -> Result<String, Error> {
    let (object_type, bytes) = Payload::check(payload)?.object()?;
    let (items, rest) = read(object_type, bytes)?;
    assert!(rest.is_empty(), "something is left");
    Ok(items.join(", "))
}

fn from_hex(hex: &str) -> Vec<u8> {
    let byte = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).expect("hexadecimal");
    (0..hex.len()).step_by(2).map(byte).collect()
}

/// Of redis-server 7.0.15.
const OF_REDIS_7_0: [(&str, &str); 10] = [
    ("00c17fff0a001760822854808480", "-129"),
    ("000568656c6c6f0a006372df766534200a", "hello"),
    ("00c30940c8016161e0bb000161610a001f99f72e01b20de3", "a*200"),
    (
        "120102c31b405b135b00000005008161020c018001f178ec03e04678e03c000148ff0a00fd79b97a08b86c0d",
        "a, 12, , -5000, x*70",
    ),
    ("0b140400000003000000feffffff01000000701101000a0030527df8cc311f3b", "-2, 1, 70000"),
    ("020101610a006296e97e44d21a6d", "a"),
    (
        "111d1d0000000600816202842d302e3505816102010181630283696e6604ff0a00d7eefe4c1100690b",
        "b=-0.5, a=1, c=inf",
    ),
    ("0501c3094041017878e034000178789a9999999999b93f0a001dbfe93660fd5915", "x*65=0.1"),
    ("1012120000000400816602817602816e020a01ff0a0045f842d8ea0693ca", "f=v, n=10"),
    ("04010166c3094041017878e034000178780a00f106d1071b265c18", "f=x*65"),
];

const STREAM_OF_REDIS_7_0: &str = "\
    13011000000000000000010000000000000001404d4d0000001f00030101010201816102816202000102010001000101\
    010201050103010001010103010401050100010401dfff020101816302817802060102010501dfff02817902817a0205\
    01ff03060001010102040201670600040300000000000000010000000000000001e80300000000000003000000000000\
    000500000000000000005fa5b80fa201000001000000000000000600000000000000005fa5b80fa2010000010205616c\
    6963655fa5b80fa201000002000000000000000100000000000000010000000000000005000000000000000003626f62\
    5fa5b80fa201000001000000000000000600000000000000000168060081ffffffffffffffff00000a005de428d563df\
    be37";

#[test]
fn payloads_of_redis_are_read() {
    for (hex, expected) in OF_REDIS_7_0 {
        assert_eq!(items(&from_hex(hex)).as_deref(), Ok(expected));
    }
}

#[test]
fn a_stream_of_redis_is_read() {
    let id = StreamId::new;
    let expected = [
        "| 1-1 a=1 b=2".into(),
        "5-0 c=x".into(),
        "6-0 a=y b=z".into(),
        format!(
            "{:?}",
            StreamItem::Head(Head {
                length: 3,
                last: id(6, 0),
                first: id(1, 1),
                max_deleted: id(1, 2),
                added: 4
            })
        ),
    ];
    let all = items(&from_hex(STREAM_OF_REDIS_7_0)).expect("a stream");
    assert!(all.starts_with(&expected.join(", ")), "{all}");
    assert!(all.contains("deliveries: 3"), "{all}");
    assert_eq!(all.matches("Owned").count(), 3);
    assert_eq!(all.matches("Consumer").count(), 2);
    assert!(all.contains("read: Unknown"), "{all}");
}

fn typed(byte: u8, dialect: Dialect, bytes: &[u8]) -> Result<String, Error> {
    let object_type = ObjectType::from_byte(byte, dialect)?;
    Ok(read(object_type, bytes)?.0.join(", "))
}

/// Forms that redis-server 7.0 does not write.
#[test]
fn other_forms_are_read() {
    let first_ms = 5_000u64.to_le_bytes();
    let never = (-1i64).to_le_bytes();
    let listpack = b"\x15\x15\0\0\0\x03\0\x81f\x02\x81v\x02\xf1\x88\x13\x03\xff";
    let listpack = [&[listpack.len() as u8 - 1][..], &{
        let mut bytes = listpack[1..].to_vec();
        let len = bytes.len() as u32;
        bytes[..4].copy_from_slice(&len.to_le_bytes());
        bytes
    }]
    .concat();
    let ziplist = b"\x0f\x0f\0\0\0\x0c\0\0\0\x02\0\x00\xf3\x02\xf6\xff";
    let cases: [(u8, Dialect, Vec<u8>, &str); 13] = [
        (1, Dialect::Redis, b"\x02\x01a\xc0\x05".to_vec(), "a, 5"),
        (3, Dialect::Redis, b"\x03\x01a\x031.5\x01b\xfe\x01c\xff".to_vec(), "a=1.5, b=inf, c=-inf"),
        (9, Dialect::Redis, b"\x09\x01\x01f\x01\x02v..\xff".to_vec(), "f=v"),
        (10, Dialect::Redis, ziplist.to_vec(), "2, 5"),
        (12, Dialect::Redis, ziplist.to_vec(), "2=5"),
        (13, Dialect::Redis, ziplist.to_vec(), "2=5"),
        (14, Dialect::Redis, [&b"\x02"[..], ziplist, ziplist].concat(), "2, 5, 2, 5"),
        (18, Dialect::Redis, b"\x01\x01\x03abc".to_vec(), "abc"),
        (22, Dialect::Redis, b"\x02\x00\x01f\x01v\x53\x88\x01g\x01w".to_vec(), "f=v, g=w@5000"),
        (
            22,
            Dialect::Valkey,
            [&b"\x02\x01f\x01v"[..], &never, b"\x01g\x01w", &first_ms].concat(),
            "f=v, g=w@5000",
        ),
        (23, Dialect::Redis, listpack.clone(), "f=v@5000"),
        (
            24,
            Dialect::Redis,
            [&first_ms[..], b"\x02\x00\x01f\x01v\x0b\x01g\x01w"].concat(),
            "f=v, g=w@5010",
        ),
        (25, Dialect::Redis, [&first_ms[..], &listpack].concat(), "f=v@5000"),
    ];
    for (byte, dialect, bytes, expected) in cases {
        assert_eq!(typed(byte, dialect, &bytes).as_deref(), Ok(expected), "type {byte}");
        for len in 0..bytes.len() {
            assert!(typed(byte, dialect, &bytes[..len]).is_err(), "type {byte}, {len} bytes");
        }
    }
    for (byte, dialect) in
        [(6, Dialect::Redis), (7, Dialect::Redis), (26, Dialect::Redis), (24, Dialect::Valkey)]
    {
        let unsupported = Err(Error::Unsupported("object type", byte.into()));
        assert_eq!(typed(byte, dialect, b""), unsupported);
    }
}

#[test]
fn lengths_that_nothing_stands_behind_are_refused_at_once() {
    let huge = [&b"\x81"[..], &(u64::MAX - 1).to_be_bytes()].concat();
    for byte in (1..=5).chain(9..=25) {
        let object_type = ObjectType::from_byte(byte, Dialect::Redis).expect("a type");
        let front: &[u8] = if byte >= 24 { &[0; 8] } else { b"" };
        let bytes = [front, &huge, b"\x01a\x01b"].concat();
        assert!(read_object(&mut &bytes[..], object_type, &mut |_| Ok(())).is_err());
        assert!(measure(&mut &bytes[..], object_type).is_err());
    }
}

#[test]
fn empty_collections_are_refused() {
    let cases: [(u8, &[u8]); 7] = [
        (1, b"\x00"),
        (2, b"\x00"),
        (4, b"\x00"),
        (5, b"\x00"),
        (18, b"\x00"),
        (11, b"\x08\x02\0\0\0\0\0\0\0"),
        (16, b"\x07\x07\0\0\0\0\0\xff"),
    ];
    for (byte, bytes) in cases {
        let error = typed(byte, Dialect::Redis, bytes).expect_err("it is empty");
        assert_eq!(error.to_string(), "malformed collection: it is empty");
    }
}

/// Only a long element has a node of its own.
#[test]
fn a_node_of_no_bytes_is_refused() {
    let read = typed(18, Dialect::Redis, b"\x01\x01\x00");
    assert_eq!(read, Err(Error::Malformed("node of a list")));
}

#[test]
fn what_compressed_strings_claim_is_told() {
    let (object_type, bytes) = (ObjectType::String, from_hex(OF_REDIS_7_0[2].0));
    let claims = measure(&mut &bytes[1..], object_type);
    assert_eq!(claims, Ok(Claims { bytes: 200, unpacked_bytes: 200 }));
}

#[test]
fn a_payload_is_refused_for_its_version_and_its_checksum() {
    let mut payload = Vec::new();
    string(&mut payload, b"v", true);
    let object = payload.clone();
    payload::finish(&mut payload, 0, VERSION_7_0);
    assert_eq!(items(&payload).as_deref(), Ok("v"));
    for at in 0..payload.len() {
        let mut wrong = payload.clone();
        wrong[at] ^= 1;
        assert!(Payload::check(&wrong).is_err(), "{at}");
        assert!(Payload::check(&payload[..at]).is_err(), "{at}");
    }
    for (version, is_known) in [(1, true), (12, true), (13, false), (80, true), (81, false)] {
        let mut payload = object.clone();
        payload::finish(&mut payload, 0, version);
        assert_eq!(Payload::check(&payload).is_ok(), is_known, "{version}");
    }
}

/// Bits of real payloads that are turned over, behind a right checksum: an error or an object.
#[test]
fn damaged_payloads_are_read_or_refused() {
    let payloads = OF_REDIS_7_0.iter().map(|(hex, _)| *hex).chain([STREAM_OF_REDIS_7_0]);
    let (mut read, mut refused) = (0, 0);
    for hex in payloads {
        let whole = from_hex(hex);
        let object = &whole[..whole.len() - payload::FOOTER_BYTES];
        for bit in 0..8 * object.len() {
            let mut wrong = object.to_vec();
            wrong[bit / 8] ^= 1 << (bit % 8);
            let Ok(object_type) = ObjectType::from_byte(wrong[0], Dialect::Redis) else { continue };
            match read_object(&mut &wrong[1..], object_type, &mut |_| Ok(())) {
                Ok(()) => read += 1,
                Err(_) => refused += 1,
            }
        }
        for len in 1..object.len() {
            let object_type = ObjectType::from_byte(object[0], Dialect::Redis).expect("a type");
            assert!(read_object(&mut &object[1..len], object_type, &mut |_| Ok(())).is_err());
        }
    }
    assert!(read > 100 && refused > 1_000, "{read} read, {refused} refused");
}

fn texts() -> impl Strategy<Value = Vec<Vec<u8>>> {
    let text = prop_oneof![
        any::<i64>().prop_map(|number| number.to_string().into_bytes()),
        prop::collection::vec(any::<u8>(), 0..40),
        (1usize..9_000).prop_map(|len| vec![b'x'; len]),
    ];
    prop::collection::vec(text, 1..60)
}

fn escaped(text: &[u8]) -> String {
    shown(Item::Element(text))
}

fn finished(mut object: Vec<u8>, version: u16) -> Result<String, Error> {
    payload::finish(&mut object, 0, version);
    items(&object)
}

proptest! {
    #[test]
    fn lists_come_back(texts in texts()) {
        let mut out = Vec::new();
        let mut writer = ListWriter::new(&mut out);
        texts.iter().for_each(|text| writer.push(text));
        writer.finish();
        let expected: Vec<String> = texts.iter().map(|text| escaped(text)).collect();
        prop_assert_eq!(finished(out, VERSION_7_0), Ok(expected.join(", ")));
    }

    #[test]
    fn strings_and_sets_come_back(texts in texts(), numbers in prop::collection::btree_set(any::<i64>(), 1..50)) {
        let mut out = Vec::new();
        let mut writer = SetWriter::new(&mut out, texts.len() as u64);
        texts.iter().for_each(|text| writer.push(text));
        let expected: Vec<String> = texts.iter().map(|text| escaped(text)).collect();
        prop_assert_eq!(finished(out, VERSION_7_0), Ok(expected.join(", ")));
        for compresses in [false, true] {
            let mut out = Vec::new();
            string(&mut out, &texts[0], compresses);
            prop_assert_eq!(finished(out, VERSION_7_0), Ok(escaped(&texts[0])));
        }
        let numbers: Vec<i64> = numbers.into_iter().collect();
        let mut out = Vec::new();
        integers(&mut out, &numbers);
        let expected: Vec<String> = numbers.iter().map(i64::to_string).collect();
        prop_assert_eq!(finished(out, VERSION_7_0), Ok(expected.join(", ")));
    }

    #[test]
    fn hashes_come_back(texts in texts(), first_ms in 1u64..1 << 40, later in 0u64..1 << 30) {
        for form in 0..3 {
            let (mut out, len) = (Vec::new(), texts.len() as u64);
            let mut writer = match form {
                0 => HashWriter::plain(&mut out, len),
                1 => HashWriter::packed(&mut out),
                _ => HashWriter::expiring(&mut out, len, first_ms),
            };
            let mut expected = Vec::new();
            for (at, text) in texts.iter().enumerate() {
                let value = &texts[(at + 1) % texts.len()];
                let at_ms = if form == 2 && at % 2 == 0 { first_ms + later } else { 0 };
                writer.push(text, value, at_ms);
                expected.push(shown(Item::Field { field: text, value, expire_at_ms: at_ms }));
            }
            writer.finish();
            let version = if form == 2 { VERSION_7_4 } else { VERSION_7_0 };
            prop_assert_eq!(finished(out, version), Ok(expected.join(", ")));
        }
    }

    #[test]
    fn sorted_sets_come_back(texts in texts(), scores in prop::collection::vec(
        prop_oneof![any::<f64>(), Just(-0.0), Just(f64::INFINITY), Just(f64::NEG_INFINITY),
            (-100i32..100).prop_map(f64::from)], 60)) {
        for packed in [false, true] {
            let mut out = Vec::new();
            let mut writer = match packed {
                false => SortedSetWriter::plain(&mut out, texts.len() as u64),
                true => SortedSetWriter::packed(&mut out),
            };
            let mut expected = Vec::new();
            for (text, score) in texts.iter().zip(&scores) {
                let score = if score.is_nan() { 1.5 } else { *score };
                writer.push(text, score);
                expected.push(shown(Item::Scored(text, score)));
            }
            writer.finish();
            prop_assert_eq!(finished(out, VERSION_7_0), Ok(expected.join(", ")));
        }
    }

    #[test]
    fn streams_come_back(texts in texts(), node in 1usize..9, step in 1u64..1 << 40) {
        let mut out = Vec::new();
        let mut writer = StreamWriter::new(&mut out);
        let (mut expected, mut ids) = (Vec::new(), Vec::new());
        for (at, text) in texts.iter().enumerate() {
            let id = StreamId::new(at as u64 / 3 * step + 1, u64::MAX / 2 + at as u64 * 7);
            let name: &[u8] = if at % 4 == 0 { b"other" } else { b"name" };
            let pairs = [(name, &text[..]), (b"2", b"")];
            if at % node == 0 {
                writer.end_node();
            }
            writer.entry(id, pairs.into_iter());
            let begins = if at % node == 0 { "| " } else { "" };
            let name = escaped(name);
            expected.push(format!("{begins}{}-{} {name}={} 2=", id.ms, id.seq, escaped(text)));
            ids.push(id);
        }
        let last = ids[ids.len() - 1];
        let head = Head {
            length: ids.len() as u64, last, first: ids[0], max_deleted: StreamId::MIN, added: 900,
        };
        writer.head(head, 1);
        expected.push(format!("{:?}", StreamItem::Head(head)));
        writer.group(b"g", last, None, 2);
        writer.pending(ids[0], step, 1);
        writer.pending(last.next().expect("a next one"), 7, u64::MAX);
        writer.consumers(1);
        writer.consumer(b"c", 5, 1);
        writer.owned(ids[0]);
        let all = finished(out, VERSION_7_0)?;
        prop_assert!(all.starts_with(&expected.join(", ")));
        prop_assert!(all.contains("deliveries: 18446744073709551615"));
        let owned = format!("{:?}", StreamItem::Owned(ids[0]));
        prop_assert!(all.ends_with(&owned));
    }

    #[test]
    fn anything_is_read_or_refused(byte in 0u8..26, valkey: bool, bytes: Vec<u8>) {
        let dialect = if valkey { Dialect::Valkey } else { Dialect::Redis };
        if let Ok(object_type) = ObjectType::from_byte(byte, dialect) {
            let _ = measure(&mut &bytes[..], object_type);
            let _ = read_object(&mut &bytes[..], object_type, &mut |_| Ok(()));
        }
    }
}
