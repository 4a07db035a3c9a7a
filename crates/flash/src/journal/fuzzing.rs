//! What the fuzz target `journal` runs: files of the journal with anything in them never panic, and what is read of them
//! was appended.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::header::{HEADER_BYTES, Header, Kind};
use super::names::{self, MANIFEST};
use super::record::{self, Part, Place, Unplaced};
use super::sim::SimFolder;
use super::storage::Storage;
use super::tuning::Tuning;
use super::writer::Next;
use super::{Journal, JournalError, JournalOptions, Position, Recovery, SyncPolicy, TornTail};

const SMALL: Tuning = Tuning {
    seed: 3,
    segment_bytes: 1_000,
    sync_bytes: 2_000,
    held_bytes_max: 6_000,
    chunk_bytes: 800,
    part_bytes_max: 300,
};

const RECORDS: u8 = 40;

/// One input of the fuzzer. The first byte chooses what is done with the rest.
pub(crate) fn journal(input: &[u8]) {
    let Some((&choice, bytes)) = input.split_first() else { return };
    match choice % 4 {
        0 => any_files(bytes),
        1 => right_records(bytes),
        _ => damaged(bytes),
    }
}

fn options() -> JournalOptions {
    let (sync, torn_tail) = (SyncPolicy::Never, TornTail::Cut);
    JournalOptions { folder: "sim".into(), sync, torn_tail }
}

fn put(folder: &SimFolder, name: &str, bytes: &[u8]) {
    let written = folder.create(name).and_then(|file| {
        file.write_at(0, bytes)?;
        file.sync()?;
        folder.sync_folder()
    });
    written.expect("nothing fails");
}

/// Reads all there is. Errors: it is refused.
fn read(folder: &SimFolder) -> Result<(Recovery, Vec<Vec<u8>>), JournalError> {
    let mut recovery = Recovery::open_on(Arc::new(folder.clone()), options(), SMALL)?;
    let mut records = Vec::new();
    let mut last = recovery.checkpoint();
    loop {
        let Some(record) = recovery.read()? else { return Ok((recovery, records)) };
        assert!(record.position > last && !record.payload.is_empty());
        last = record.position;
        records.push(record.payload.to_vec());
    }
}

/// What is read goes on, and is there when it is read again.
fn go_on(folder: &SimFolder, recovery: Recovery, mut records: Vec<Vec<u8>>) {
    let now = Instant::now();
    let Ok((journal, mut writer)) = recovery.finish(now) else { return };
    journal.append(&[b"another"]);
    records.push(b"another".to_vec());
    journal.shared.close();
    while writer.step(now) != Next::End {}
    assert_eq!(journal.durable(), journal.appended());
    drop((journal, writer));
    folder.lose_power();
    let (_, found) = read(folder).expect("what was written is read");
    assert_eq!(found, records);
}

/// A header with what the bytes say, and anything behind it; the manifest as well.
fn any_files(bytes: &[u8]) {
    let Some((&[kind, life, front], rest)) = bytes.split_first_chunk::<3>() else { return };
    let Some((numbers, rest)) = rest.split_first_chunk::<24>() else { return };
    let long = |at: usize| u64::from_le_bytes(std::array::from_fn(|byte| numbers[at + byte]));
    let (number, position, run) = (long(0), long(8), long(16));
    let folder = SimFolder::new(1);
    let header = Header { journal: 0, run, number, position, life: u32::from(life) << (kind & 24) };
    let (manifest, segment) = rest.split_at(usize::from(front).min(rest.len()));
    let segment = if kind & 1 == 0 {
        segment.to_vec()
    } else {
        [&header.encode(Kind::Segment)[..], segment].concat()
    };
    put(&folder, &names::segment(header.number), &segment);
    if kind & 2 != 0 {
        let encoded = Header { run: 0, ..header }.encode(Kind::Manifest);
        put(&folder, MANIFEST, if kind & 4 == 0 { &encoded } else { manifest });
        put(&folder, &Journal::snapshot_name(Position(header.position)), b"");
    }
    if let Ok((recovery, records)) = read(&folder) {
        go_on(&folder, recovery, records);
    }
}

/// Records of any lengths and parts, with right checksums, and marks among them of what is in front.
fn right_records(mut bytes: &[u8]) {
    let header = Header { journal: 1, run: 2, number: 1, position: 0, life: 0 };
    let mut file = header.encode(Kind::Segment).to_vec();
    let mut ends = vec![0];
    while let Some((&[length, flags], rest)) = bytes.split_first_chunk::<2>() {
        let position = |file: &Vec<u8>| (file.len() - HEADER_BYTES) as u64;
        let place = Place { run: 2, position: position(&file) };
        let (payload, rest) = rest.split_at(usize::from(length).min(rest.len()));
        bytes = rest;
        if flags & 7 == 0 || payload.is_empty() {
            let durable = ends[usize::from(length) % ends.len()];
            file.extend_from_slice(&record::encode_mark(durable, place));
            continue;
        }
        let part = if flags & 8 == 0 { Part::Last } else { Part::GoesOn };
        file.extend_from_slice(&Unplaced::new(&[payload], part).place(place));
        file.extend_from_slice(payload);
        if part == Part::Last {
            ends.push(position(&file));
        }
    }
    let folder = SimFolder::new(1);
    put(&folder, "journal.000001", &file);
    if let Ok((recovery, records)) = read(&folder) {
        go_on(&folder, recovery, records);
    }
}

fn payload(number: u8) -> Vec<u8> {
    vec![number; 1 + usize::from(number) * 20]
}

/// A journal that is overwritten in places: the bytes say where, and with what.
fn damaged(bytes: &[u8]) {
    let folder = SimFolder::new(1);
    let mut now = Instant::now();
    let (recovery, _) = read(&folder).expect("an empty folder");
    let (journal, mut writer) = recovery.finish(now).expect("nothing fails");
    for number in 0..RECORDS {
        journal.append(&[&payload(number)]);
        now += Duration::from_millis(6);
        writer.step(now);
    }
    drop((journal, writer));
    let segments = folder.list().expect("nothing fails");
    let mut rest = bytes;
    while let Some((&[which, high, low, length], tail)) = rest.split_first_chunk::<4>() {
        let damage = &tail[..usize::from(length).min(tail.len())];
        rest = &tail[damage.len()..];
        folder.overwrite(&segments[usize::from(which) % segments.len()], |bytes| {
            let from = (usize::from(high) << 8 | usize::from(low)) % (bytes.len() + 1);
            bytes.iter_mut().skip(from).zip(damage).for_each(|(byte, damage)| *byte = *damage);
            if length > 250 {
                bytes.truncate(from);
            }
        });
    }
    if let Ok((recovery, records)) = read(&folder) {
        let expected: Vec<_> = (0..RECORDS).map(payload).take(records.len()).collect();
        assert!(records == expected, "a prefix of what was appended");
        go_on(&folder, recovery, records);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(3_000))]
        #[test]
        fn files_with_anything_in_them_are_refused_or_read(
            input in prop::collection::vec(any::<u8>(), 0..300),
        ) {
            super::journal(&input);
        }
    }
}
