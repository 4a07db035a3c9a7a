//! What the fuzz targets `log_record` and `journal` run: bytes from a drive, whatever they are, never panic and
//! never pass for a record that was not written. Compiled with the feature `fuzzing` only, because
//! the formats are nobody else's business.

use crate::device::label::Label;
use crate::device::sim::SimDisk;
use crate::engine::{Completion, EngineWorker, GcProgress, Liveness, Owner, ReadStart};
use crate::limits::{RECORD_ALIGN, SEGMENT_BYTES_MIN};
use crate::location::Location;
use crate::log::format::{
    FOOTER_BYTES, Footer, Part, SegmentId, decode_segment_header, encode_segment_header,
    next_record,
};
use crate::log::state::LogState;
use crate::log::{Backend, LogConfig, open_sim};
use crate::record::{
    self, Lane, PieceChecker, Place, RECORD_HEADER_BYTES, Record, RecordMeta, record_size,
};

/// One input of the target `journal`.
pub fn journal(input: &[u8]) {
    crate::journal::fuzzing::journal(input);
}

/// What a checkpoint says of the flash, and labels of its files, with right checksums: refused, or they are written as they
/// were read.
pub fn kept(input: &[u8]) {
    let mut bytes = input.to_vec();
    // Both have theirs in the same place.
    if bytes.len() > 12 {
        let checksum = crc_fast::crc32_iscsi(&bytes[12..]);
        bytes[8..12].copy_from_slice(&checksum.to_le_bytes());
    }
    if let Ok(state) = LogState::decode(&bytes) {
        assert_eq!(state.encode(), bytes);
    }
    if let Ok(label) = Label::decode(&bytes) {
        assert_eq!(Label::decode(&label.encode()), Ok(label));
    }
}

/// One input of the target `log_record`. The first byte chooses what is fed with the rest.
pub fn log_record(input: &[u8]) {
    let Some((&choice, bytes)) = input.split_first() else { return };
    // A whole log takes a thousand times as long as a decoder.
    match choice % 16 {
        0..6 => decoders(bytes),
        6..11 => corrected_record(bytes),
        11..15 => corrected_footer(bytes),
        _ => damaged_log(bytes),
    }
}

fn place(generation: u64) -> Place {
    Place { at: Location::from_units(77), generation }
}

/// All decoders on the bytes as they are.
fn decoders(bytes: &[u8]) {
    let whole = record::verify(bytes, place(1));
    if let Ok(mut pieces) = PieceChecker::new(bytes, place(1))
        && let Some(body) = bytes.get(RECORD_HEADER_BYTES..pieces.header().bytes_len())
    {
        let (front, back) = body.split_at(body.len() / 2);
        pieces.add(front);
        pieces.add(back);
        let is_long_enough = bytes.len() >= pieces.header().record_size();
        assert_eq!(pieces.finish().is_ok() && is_long_enough, whole.is_ok());
    }
    let _ = decode_segment_header(bytes);
    let mut footer = bytes.to_vec();
    footer.resize(FOOTER_BYTES, 0);
    let _ = Footer::decode(&footer, SegmentId { segment: 0, generation: 0 }, 1 << 20);
    walk(bytes);
}

/// Walks over a block as a gc run does.
fn walk(block: &[u8]) {
    let mut from = 0;
    while let Some((at, header)) = next_record(block, from) {
        assert!(at >= from && at + header.record_size() <= block.len());
        assert!(header.payload().end <= at + header.record_size());
        from = at
            + if record::verify(&block[at..], place(0)).is_ok() {
                header.record_size()
            } else {
                RECORD_ALIGN
            };
    }
}

/// A record with the fields that the bytes say and a right checksum comes back as it is.
fn corrected_record(bytes: &[u8]) {
    let Some((fields, rest)) = bytes.split_first_chunk::<16>() else { return };
    let meta = RecordMeta {
        slot: u16::from_le_bytes([fields[0], fields[1]]) % 16_384,
        db: fields[2],
        kind: fields[3],
        compressed: fields[4] % 2 == 1,
        expire_at_ms: i64::from_le_bytes(fields[5..13].try_into().expect("8 bytes")),
    };
    let key_len = usize::from(fields[13]).min(rest.len());
    let (key, payload) = rest.split_at(key_len);
    let place = place(u64::from(fields[14]));
    let mut encoded = vec![fields[15]; record_size(key.len(), payload.len())];
    record::encode(&Record { meta, key, payload }, 5, place, &mut encoded);
    let header = record::verify(&encoded, place).expect("encoded");
    assert_eq!(header.meta, meta);
    assert_eq!(&encoded[header.key()], key);
    assert_eq!(&encoded[header.payload()], payload);
    assert_eq!(next_record(&encoded, 0).map(|(at, _)| at), Some(0));
    walk(&encoded[RECORD_ALIGN..]);
}

/// A footer of any content with a right checksum does not panic, and what it lists lies in the
/// segment.
fn corrected_footer(bytes: &[u8]) {
    let id = SegmentId { segment: 3, generation: 9 };
    let mut footer = vec![0; FOOTER_BYTES];
    Footer::default().encode(id, &mut footer);
    let content = bytes.len().min(FOOTER_BYTES - 24);
    footer[24..24 + content].copy_from_slice(&bytes[..content]);
    let count = u32::from_le_bytes([footer[24], footer[25], footer[26], footer[27]]) as usize;
    let end = count.saturating_mul(8).saturating_add(48).min(FOOTER_BYTES);
    let checksum = crc_fast::crc32_iscsi(&footer[12..end]);
    footer[8..12].copy_from_slice(&checksum.to_le_bytes());
    if let Ok(footer) = Footer::decode(&footer, id, 1 << 20) {
        for block in footer.blocks {
            assert!(u64::from(block.offset) + u64::from(block.size) <= (1 << 20) - 4096);
        }
    }
    let mut header = [0; 64];
    let part = Part { first: 3, number: 0 };
    encode_segment_header(id, part, &mut header);
    assert_eq!(decode_segment_header(&header), Ok((id, part)));
}

/// Everything is live, and relocated.
struct KeepAll;

impl Owner for KeepAll {
    fn is_live(&self, record: &Record<'_>, _at: Location) -> Liveness {
        check(record.key, record.payload);
        Liveness::Live
    }

    fn relocate(&self, _record: &Record<'_>, _from: Location, _to: Location) -> bool {
        true
    }
}

const KEYS: u8 = 60;

fn payload_of(key: u8) -> Vec<u8> {
    // Some are large, and one is larger than a segment.
    let len = match key {
        0 => 100_000,
        key if key % 10 == 0 => 30_000,
        key => usize::from(key) * 40,
    };
    vec![key; len]
}

fn check(key: &[u8], payload: &[u8]) {
    assert!(key.len() == 1 && key[0] < KEYS, "a key that was written");
    assert!(payload == payload_of(key[0]), "the payload that was written");
}

/// A log whose drive is overwritten in places: the bytes say where, and with what.
fn damaged_log(bytes: &[u8]) {
    let disk = SimDisk::new(1, 1, 512);
    let config = LogConfig {
        paths: Vec::new(),
        flash_bytes: 24 * SEGMENT_BYTES_MIN,
        workers: 1,
        segment_bytes: Some(SEGMENT_BYTES_MIN),
        backend: Backend::Auto,
    };
    let engine = open_sim(&disk, &config).expect("opens");
    let mut worker = engine.worker().expect("a worker");
    let mut places = Vec::new();
    for key in 0..KEYS {
        let payload = payload_of(key);
        let record = Record { meta: RecordMeta::default(), key: &[key], payload: &payload };
        let at = worker.append(Lane::Demote, &record).expect("there is room");
        settle(&mut *worker);
        places.push((at, record_size(1, payload.len())));
    }
    worker.flush();
    settle(&mut *worker);
    let mut rest = bytes;
    while let Some((&[high, low, len, ..], tail)) = rest.split_first_chunk::<4>() {
        let damage = &tail[..usize::from(len).min(tail.len())];
        disk.overwrite(0, usize::from(high) << 12 | usize::from(low) << 4, damage);
        rest = &tail[damage.len()..];
    }
    for (token, &(at, size)) in places.iter().enumerate() {
        match worker.read(engine.identify(at), size, token as u64) {
            ReadStart::Ready(record) => check(record.key(), record.payload()),
            ReadStart::Pending | ReadStart::Failed(_) => {}
            ReadStart::Busy => settle(&mut *worker),
        }
    }
    settle(&mut *worker);
    // A flash size below what is used makes it collect.
    engine.resize(14 * SEGMENT_BYTES_MIN).expect("enough");
    for &(at, size) in places.iter().step_by(2) {
        engine.release(at, size);
    }
    for _ in 0..100 {
        if worker.gc(&KeepAll, 1 << 20) == GcProgress::Idle {
            break;
        }
        settle(&mut *worker);
    }
}

fn settle(worker: &mut dyn EngineWorker) {
    let mut done = Vec::new();
    loop {
        worker.submit();
        worker.reap(&mut done);
        for completion in done.drain(..) {
            if let Completion::Read { result: Ok(record), .. } = completion {
                check(record.key(), record.payload());
            }
        }
        if worker.in_flight() == 0 {
            return;
        }
    }
}
