//! What is written as an RDB object, or as a file of them, is read as it was, whatever it is.

#![no_main]

use libfuzzer_sys::fuzz_target;
use rdb::file::{FileReader, FileWriter, Part};
use rdb::write::{
    HashWriter, ListWriter, SetWriter, SortedSetWriter, StreamWriter, integers, string,
};
use rdb::{Dialect, Head, Item, ObjectType, StreamItem, measure, read_object};
use value::StreamId;

/// An element as the input spells it: a byte for its form, one for its length, and a piece that may be repeated.
fn next_text(bytes: &mut &[u8]) -> Option<Vec<u8>> {
    let (&[form, len], rest) = bytes.split_first_chunk::<2>()?;
    let (piece, rest) = rest.split_at(usize::from(len % 32).min(rest.len()));
    *bytes = rest;
    Some(match form % 8 {
        0..4 => piece.to_vec(),
        4 => piece.repeat(1 + usize::from(form)),
        5 => i64::from_le_bytes(wide(piece)).to_string().into_bytes(),
        6 => (i64::from_le_bytes(wide(piece)) >> (form >> 2)).to_string().into_bytes(),
        // As long as pieces of a listpack are that tell their lengths in other ways.
        _ => vec![form; [63, 64, 127, 128, 4_095, 4_096, 9_000, 16_384][usize::from(form >> 5)]],
    })
}

fn wide(piece: &[u8]) -> [u8; 8] {
    let mut wide = [0; 8];
    let len = piece.len().min(8);
    wide[..len].copy_from_slice(&piece[..len]);
    wide
}

/// What was written, as it is to be told.
type Told = Vec<(Vec<u8>, Vec<u8>, u64)>;

fuzz_target!(|input: &[u8]| {
    let Some((&choice, mut bytes)) = input.split_first() else { return };
    let mut texts = Vec::new();
    while let Some(text) = next_text(&mut bytes) {
        texts.push(text);
    }
    if texts.is_empty() {
        return;
    }
    let (mut object, mut expected) = (vec![0xaa; usize::from(choice >> 6)], Told::new());
    let start = object.len();
    write(choice, &texts, &mut object, &mut expected);
    let object = &object[start..];
    let object_type = ObjectType::from_byte(object[0], Dialect::Redis).expect("a type");
    let (mut source, mut told) = (&object[1..], Told::new());
    read_object(&mut source, object_type, &mut |item| {
        tell(item, &mut told);
        Ok(())
    })
    .expect("what was written is read");
    assert!(source.is_empty() && told == expected, "{}", object.escape_ascii());
    let mut source = &object[1..];
    measure(&mut source, object_type).expect("what is read can be passed over");
    assert!(source.is_empty());
    in_a_file(choice, object, &texts[0]);
});

fn write(choice: u8, texts: &[Vec<u8>], out: &mut Vec<u8>, expected: &mut Told) {
    let none = Vec::new;
    let pairs = || texts.iter().zip(texts.iter().rev());
    let first_ms = 1_000;
    let at_ms = |text: &Vec<u8>| if text.len() % 3 == 0 { 0 } else { first_ms + text.len() as u64 };
    match choice % 10 {
        0 | 1 => {
            string(out, &texts[0], choice % 10 == 1);
            expected.push((texts[0].clone(), none(), 0));
        }
        2 => {
            let mut writer = ListWriter::new(out);
            texts.iter().for_each(|text| writer.push(text));
            writer.finish();
            expected.extend(texts.iter().map(|text| (text.clone(), none(), 0)));
        }
        3 => {
            let mut writer = SetWriter::new(out, texts.len() as u64);
            texts.iter().for_each(|text| writer.push(text));
            expected.extend(texts.iter().map(|text| (text.clone(), none(), 0)));
        }
        4 => {
            let mut numbers: Vec<i64> =
                texts.iter().filter_map(|text| value::parse_i64(text)).chain([0]).collect();
            numbers.sort_unstable();
            numbers.dedup();
            integers(out, &numbers);
            expected.extend(numbers.iter().map(|number| (number.to_string().into(), none(), 0)));
        }
        5 | 6 => {
            let mut writer = match choice % 10 {
                5 => SortedSetWriter::plain(out, texts.len() as u64),
                _ => SortedSetWriter::packed(out),
            };
            for text in texts {
                let score = Some(f64::from_bits(u64::from_le_bytes(wide(text))));
                let score = score.filter(|score| !score.is_nan()).unwrap_or(-0.0);
                writer.push(text, score);
                expected.push((text.clone(), none(), score.to_bits()));
            }
            writer.finish();
        }
        7 | 8 => {
            let mut writer = match choice % 10 {
                7 if choice & 0x20 == 0 => HashWriter::plain(out, texts.len() as u64),
                7 => HashWriter::packed(out),
                _ => HashWriter::expiring(out, texts.len() as u64, first_ms),
            };
            for (field, value) in pairs() {
                let at_ms = if choice % 10 == 8 { at_ms(field) } else { 0 };
                writer.push(field, value, at_ms);
                expected.push((field.clone(), value.clone(), at_ms));
            }
            writer.finish();
        }
        _ => write_stream(choice, texts, out, expected),
    }
}

/// IDs that ascend, at most one a text.
fn ids_of(texts: &[Vec<u8>]) -> Vec<StreamId> {
    let mut ids = vec![StreamId::MIN];
    for text in texts {
        let last = ids[ids.len() - 1];
        let step = u64::from_le_bytes(wide(text)) >> (text.len() % 64);
        let next = match last.ms.checked_add(step) {
            Some(ms) if step > 0 => Some(StreamId::new(ms, step)),
            _ => last.next(),
        };
        ids.extend(next);
    }
    ids.split_off(1)
}

fn write_stream(choice: u8, texts: &[Vec<u8>], out: &mut Vec<u8>, expected: &mut Told) {
    let mut writer = StreamWriter::new(out);
    let ids = ids_of(texts);
    for (at, id) in ids.iter().enumerate() {
        let count = usize::from(choice >> 5).clamp(1, texts.len() - at);
        let pairs =
            texts[at..at + count].iter().map(|text| (&b"field"[..text.len() % 6], &text[..]));
        writer.entry(*id, pairs.clone());
        for (field, value) in pairs {
            expected.push((field.to_vec(), value.to_vec(), id.ms ^ id.seq));
        }
        if texts[at].len() % 5 == 0 {
            writer.end_node();
        }
    }
    let (first, last, length) = (ids[0], ids[ids.len() - 1], ids.len() as u64);
    writer.head(Head { length, last, first, max_deleted: last, added: u64::MAX }, 1);
    writer.group(&texts[0], last, None, 1);
    writer.pending(last, 7, u64::MAX);
    writer.consumers(1);
    writer.consumer(&texts[0], 9, 1);
    writer.owned(last);
    expected.push((b"head".to_vec(), Vec::new(), length));
    expected.push((texts[0].clone(), b"group".to_vec(), last.ms));
    expected.push((Vec::new(), b"pending".to_vec(), u64::MAX));
    expected.push((texts[0].clone(), b"consumer".to_vec(), 9));
    expected.push((Vec::new(), b"owned".to_vec(), last.seq));
}

fn tell(item: Item<'_>, told: &mut Told) {
    let none = Vec::new;
    match item {
        Item::String(text) | Item::Element(text) | Item::Member(text) => {
            told.push((text.to_vec(), none(), 0));
        }
        Item::Scored(member, score) => told.push((member.to_vec(), none(), score.to_bits())),
        Item::Field { field, value, expire_at_ms } => {
            told.push((field.to_vec(), value.to_vec(), expire_at_ms));
        }
        Item::Stream(StreamItem::Entry(entry)) => {
            for (field, value) in entry.pairs() {
                told.push((field.to_vec(), value.to_vec(), entry.id.ms ^ entry.id.seq));
            }
        }
        Item::Stream(StreamItem::Head(head)) => told.push((b"head".to_vec(), none(), head.length)),
        Item::Stream(StreamItem::Group { name, last, .. }) => {
            told.push((name.to_vec(), b"group".to_vec(), last.ms));
        }
        Item::Stream(StreamItem::Pending { deliveries, .. }) => {
            told.push((none(), b"pending".to_vec(), deliveries));
        }
        Item::Stream(StreamItem::Consumer { name, seen_ms }) => {
            told.push((name.to_vec(), b"consumer".to_vec(), seen_ms));
        }
        Item::Stream(StreamItem::Owned(id)) => told.push((none(), b"owned".to_vec(), id.seq)),
    }
}

/// The object stands in a file, behind a key.
fn in_a_file(choice: u8, object: &[u8], key: &[u8]) {
    let mut writer = FileWriter::new(Vec::new(), 10, choice & 0x40 == 0);
    let wrote = "a vector takes all";
    writer.aux("redis-ver", "7.0").expect(wrote);
    writer.size(u64::from(choice % 3), 1, 0).expect(wrote);
    writer.key(u64::from(choice % 3), key, u64::from(choice / 2), object).expect(wrote);
    let file = writer.finish().expect(wrote);
    let mut reader = FileReader::new(&file[..], 1 << 20).expect("a file");
    let mut keys = 0;
    loop {
        match reader.next_part().expect("what was written is read") {
            Part::Key(part) => {
                keys += 1;
                assert_eq!((&part.key[..], part.expire_at_ms), (key, u64::from(choice / 2)));
                read_object(&mut reader, part.object_type, &mut |_| Ok(())).expect("the object");
            }
            Part::End => break,
            _ => {}
        }
    }
    assert_eq!((keys, reader.offset()), (1, file.len() as u64));
}
