use std::io::{self, Read};

use proptest::prelude::*;

use super::*;
use crate::checksum::Checksum;
use crate::error::Error;
use crate::object::{Item, read_object};
use crate::write;

/// What a file has, a line for each part.
fn shown(file: impl Read) -> Result<Vec<String>, FileError> {
    let mut reader = FileReader::new(file, 1 << 20)?;
    let mut lines = vec![format!("version {}", reader.version())];
    loop {
        match reader.next_part()? {
            Part::End => return Ok(lines),
            Part::Key(key) => {
                let mut line =
                    format!("{}:{}@{}", key.db, key.key.escape_ascii(), key.expire_at_ms);
                read_object(&mut reader, key.object_type, &mut |item| {
                    if let Item::String(text) | Item::Element(text) | Item::Member(text) = item {
                        line += &format!(" {}", text.escape_ascii());
                    }
                    Ok(())
                })
                .map_err(|error| reader.error(error))?;
                if let Some(idle) = key.idle_seconds {
                    line += &format!(" idle {idle}");
                }
                if let Some(frequency) = key.frequency {
                    line += &format!(" frequency {frequency}");
                }
                lines.push(line);
            }
            Part::Aux { name, value } => {
                lines.push(format!("{}={}", name.escape_ascii(), value.escape_ascii()));
            }
            Part::Size { keys, expiring } => lines.push(format!("size {keys} {expiring}")),
            Part::Skipped(what) => lines.push(format!("{what:?}")),
            Part::Own(part) => panic!("{part:?}"),
        }
    }
}

/// A file of these parts, with a right checksum.
fn file(head: &str, parts: &[&[u8]]) -> Vec<u8> {
    let mut bytes = [head.as_bytes(), &parts.concat(), &[END]].concat();
    let sum = Checksum::of(&bytes);
    bytes.extend(sum.to_le_bytes());
    bytes
}

/// Gives one byte at a time.
struct Slow<'a>(&'a [u8]);

impl Read for Slow<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let len = buffer.len().min(1);
        self.0.read(&mut buffer[..len])
    }
}

#[test]
fn every_part_is_read() {
    let parts: [&[u8]; 14] = [
        b"\xfa\x09redis-ver\x067.0.15",
        b"\xf5\x03lib",
        b"\xf7\x05\x02\x01\x01\x07\x02\x08\x03abcd\x04abcdefgh\x05\x02xy\x00",
        b"\xfe\x00",
        b"\xfb\x05\x01",
        b"\xf4\x03\x02\x01",
        b"\x00\x01a\x01v",
        b"\xfc\xe8\x03\x00\x00\x00\x00\x00\x00\x00\x01b\xc0\x07",
        b"\xfd\x02\x00\x00\x00\x00\x01c\x00",
        b"\xf8\x3f\x01\x01d\x02\x01x\x01y",
        b"\xfe\x0f",
        b"\xf9\xff\x00\x01e\x01v",
        b"\xfc\x00\x00\x00\x00\x00\x00\x00\x00\x00\x01f\x01v",
        b"\xfc\xff\xff\xff\xff\xff\xff\xff\xff\x00\x01g\x01v",
    ];
    let expected = [
        "version 10",
        "redis-ver=7.0.15",
        "Functions",
        "ModuleAux",
        "size 5 1",
        "0:a@0 v",
        "0:b@1000 7",
        "0:c@2000 ",
        "0:d@0 x y idle 63",
        "15:e@0 v frequency 255",
        "15:f@1 v",
        "15:g@1 v",
    ];
    let bytes = file("REDIS0010", &parts);
    assert_eq!(shown(&bytes[..]).expect("a file"), expected);
    assert_eq!(shown(Slow(&bytes)).expect("a file"), expected);
}

#[test]
fn versions_are_told_apart() {
    let key: &[u8] = b"\x00\x01a\x01v";
    for head in ["REDIS0001", "REDIS0004"] {
        // These have no checksum.
        let bytes = [head.as_bytes(), key, &[END]].concat();
        assert_eq!(shown(&bytes[..]).expect("a file").len(), 2, "{head}");
    }
    for head in ["REDIS0005", "REDIS0009", "REDIS0012", "VALKEY080", "REDIS0080"] {
        assert_eq!(shown(&file(head, &[key])[..]).expect("a file").len(), 2, "{head}");
    }
    let mut unsummed = file("REDIS0010", &[key]);
    let len = unsummed.len();
    unsummed[len - 8..].fill(0);
    assert_eq!(shown(&unsummed[..]).expect("a file").len(), 2);
    for (head, error) in [
        ("REDIS0000", Error::Unsupported("version", 0)),
        ("REDIS0013", Error::Unsupported("version", 13)),
        ("VALKEY081", Error::Unsupported("version", 81)),
        ("REDIS+010", Error::Malformed("file: its version is no number")),
        ("RUBIS0010", Error::Malformed("file: it is no RDB file")),
    ] {
        assert_eq!(shown(&file(head, &[key])[..]).expect_err(head).error, error);
    }
}

#[test]
fn errors_say_where() {
    let key: &[u8] = b"\x00\x01a\x01v";
    let too_long = Error::Unsupported("string of a length of", (1 << 20) + 1);
    let cases: [(&[u8], u64, Error); 9] = [
        (b"\x00\x80\x00\x10\x00\x01", 15, too_long),
        // As long as that once it is not compressed any more.
        (b"\x00\x01a\xc3\x6e\xe0\x80\x00\x10\x00\x01", 20, too_long),
        (b"\x07\x01a", 10, Error::Unsupported("value of a module: type", 7)),
        (b"\x08\x01a", 10, Error::Unsupported("object type", 8)),
        (b"\xf3", 10, Error::Unsupported("object type", 243)),
        (b"\xf6\x01a", 10, Error::Unsupported("functions: part", 246)),
        (b"\x00\xc5", 11, Error::Malformed("string")),
        (b"\xf7\x05\x01", 12, Error::Malformed("part of a module")),
        (b"\x00\x80\x7f\xff\xff\xff", 15, Error::Unsupported("string of a length of", 0x7fff_ffff)),
    ];
    for (part, offset, error) in cases {
        let found = shown(&file("REDIS0010", &[part])[..]).expect_err("no file");
        assert_eq!((found.offset, found.error), (offset, error));
    }
    let mut other = file("REDIS0010", &[key]);
    other[13] = b'w';
    let found = shown(&other[..]).expect_err("another checksum");
    assert_eq!((found.offset, found.error), (23, Error::Malformed("checksum")));
    assert_eq!(found.to_string(), "at byte 23: malformed checksum");
}

#[test]
fn no_part_of_a_file_is_a_file() {
    let bytes = file("REDIS0010", &[b"\xfe\x03\x00\x01a\x01v\xfc12345678\x01\x01b\x01\x01x"]);
    for len in 0..bytes.len() {
        let error = shown(&bytes[..len]).expect_err("it is cut");
        assert_eq!(error.error, Error::Short, "{len}");
        assert!(error.offset <= len as u64);
    }
}

#[test]
fn what_cannot_be_read_is_told() {
    struct Broken;
    impl Read for Broken {
        fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
            Err(io::Error::other("the drive is gone"))
        }
    }
    let file = (&b"REDIS0010"[..]).chain(Broken);
    let error = shown(file).expect_err("it is broken");
    assert_eq!(error.to_string(), "at byte 9: the drive is gone");
}

#[test]
fn what_is_written_is_read() {
    for has_checksum in [true, false] {
        let mut writer = FileWriter::new(Vec::new(), 10, has_checksum);
        writer.aux("redis-ver", "7.0.15").expect("a buffer");
        writer.size(0, 2, 1).expect("a buffer");
        let mut object = Vec::new();
        write::string(&mut object, b"v", false);
        writer.key(0, b"a", 0, &object).expect("a buffer");
        writer.key(0, b"12", 77, &object).expect("a buffer");
        object.clear();
        // One that is longer than the buffers of either.
        write::string(&mut object, &[b'x'; 900_000], false);
        writer.key(3, b"long", 0, &object[..2]).expect("a buffer");
        writer.more(&object[2..]).expect("a buffer");
        let len = writer.bytes();
        let file = writer.finish().expect("a buffer");
        assert_eq!(file.len() as u64, len + 9);
        let lines = shown(&file[..]).expect("a file");
        assert_eq!(
            lines[..5],
            ["version 10", "redis-ver=7.0.15", "size 2 1", "0:a@0 v", "0:12@77 v"]
        );
        assert_eq!(lines[5].len(), "3:long@0 ".len() + 900_000);
    }
}

#[test]
fn values_of_an_own_type_are_read_by_who_takes_them() {
    let mut object = Vec::new();
    own_value(&mut object, 200, b"\x00value");
    assert_eq!(object, b"\xc8\x06\x00value");
    let mut writer = FileWriter::new(Vec::new(), 10, true);
    writer.key(2, b"key", 77, &object).expect("a buffer");
    let file = writer.finish().expect("a buffer");
    let read = |own_type: Option<u8>| {
        let mut reader = FileReader::new(&file[..], 1 << 20).expect("a file");
        own_type.into_iter().for_each(|own_type| reader.take_own(own_type));
        let part = reader.next_part()?;
        reader.next_part().map(|end| (part, end))
    };
    let (db, key, expire_at_ms, value) = (2, b"key".to_vec(), 77, b"\x00value".to_vec());
    let part = Part::Own(OwnPart { db, key: key.into(), expire_at_ms, value: value.into() });
    assert_eq!(read(Some(200)).expect("a file"), (part, Part::End));
    for own_type in [None, Some(201)] {
        let error = read(own_type).expect_err("it is another's").error;
        assert_eq!(error, Error::Unsupported("object type", 200));
    }
    for len in 0..file.len() {
        let mut reader = FileReader::new(&file[..len.max(9)], 1 << 20).expect("a file");
        reader.take_own(200);
        let cut = reader.next_part().and_then(|_| reader.next_part());
        assert_eq!(cut.expect_err("it is cut").error, Error::Short, "{len}");
    }
}

#[test]
fn no_more_is_kept_than_a_string_takes() {
    let mut writer = FileWriter::new(Vec::new(), 10, true);
    let mut object = Vec::new();
    write::string(&mut object, &[b'x'; 100_000], false);
    for key in 0..100u32 {
        writer.key(0, &key.to_be_bytes(), 0, &object).expect("a buffer");
    }
    let file = writer.finish().expect("a buffer");
    let mut reader = FileReader::new(&file[..], 1 << 20).expect("a file");
    while let Part::Key(key) = reader.next_part().expect("a file") {
        read_object(&mut reader, key.object_type, &mut |_| Ok(())).expect("a value");
        assert!(reader.buffer_bytes() <= 1 << 20);
    }
}

#[test]
fn what_a_long_string_has_taken_is_given_back_before_the_next_key_is_read() {
    let mut writer = FileWriter::new(Vec::new(), 10, true);
    for (key, len) in [("long", 4 << 20), ("short", 10)] {
        let mut object = Vec::new();
        write::string(&mut object, &vec![b'x'; len], false);
        writer.key(0, key.as_bytes(), 0, &object).expect("a buffer");
    }
    let file = writer.finish().expect("a buffer");
    let mut reader = FileReader::new(&file[..], 8 << 20).expect("a file");
    let mut keys = 0;
    while let Part::Key(key) = reader.next_part().expect("a file") {
        assert!(reader.buffer_bytes() <= 1 << 20);
        read_object(&mut reader, key.object_type, &mut |_| Ok(())).expect("a value");
        keys += 1;
    }
    assert_eq!(keys, 2);
}

proptest! {
    #[test]
    fn anything_is_read_or_refused(bytes: Vec<u8>, at in 0usize..80, byte: u8) {
        let whole = [&b"REDIS0010"[..], &bytes].concat();
        prop_assert!(shown(&whole[..]).map_or_else(|error| error.offset, |_| 0) <= 1 << 20);
        let parts: [&[u8]; 4] = [
            b"\xfa\x09redis-ver\x067.0.15",
            b"\xf7\x05\x02\x01\x01\x07\x02\x08\x05\x02xy\x00",
            b"\xfe\x03\x00\x01a\x01v\xfc12345678\x01\x01b\x01\x01x",
            b"\x10\x01h\x12\x12\x00\x00\x00\x04\x00\x81f\x02\x81v\x02\x81n\x02\x0a\x01\xff",
        ];
        let mut changed = file("REDIS0010", &parts);
        let at = at % changed.len();
        changed[at] = byte;
        let _ = shown(&changed[..]);
    }
}
