//! The journal on real files, with its thread.

use std::path::PathBuf;
use std::sync::Arc;
use std::task::{Wake, Waker};
use std::thread::Thread;
use std::time::Instant;

use super::super::header::HEADER_BYTES;
use super::super::names;
use super::super::tuning::Tuning;
use super::super::writer::Next;
use super::super::{
    Journal, JournalError, JournalOptions, Position, Recent, Recovery, SyncPolicy, TornTail,
};
use crate::limits::{JOURNAL_READ_BYTES, RECENT_RECORD_BYTES_MAX};

/// A folder of a test, removed in the end.
struct TestFolder(PathBuf);

impl TestFolder {
    fn new(test: &str) -> Self {
        let name = format!("kelvin-journal-{}-{test}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let _ = std::fs::remove_dir_all(&path);
        Self(path)
    }

    fn options(&self, sync: SyncPolicy) -> JournalOptions {
        JournalOptions { folder: self.0.clone(), sync, torn_tail: TornTail::Cut }
    }

    /// Opens the journal and returns what was in it.
    fn open(&self, sync: SyncPolicy) -> (Journal, Vec<Vec<u8>>) {
        let mut recovery = Recovery::open(self.options(sync)).expect("it opens");
        let mut records = Vec::new();
        while let Some(record) = recovery.read().expect("it is read") {
            records.push(record.payload.to_vec());
        }
        (recovery.start().expect("it starts"), records)
    }
}

impl Drop for TestFolder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

fn wait(journal: &Journal, position: Position) {
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    while journal.durable() < position {
        assert!(!journal.is_failing());
        journal.wake_when_durable(position, &waker);
        std::thread::park();
    }
}

#[test]
fn records_of_many_threads_come_back_in_the_order_of_each() {
    const THREADS: u32 = 4;
    const RECORDS: u32 = 200;
    let folder = TestFolder::new("threads");
    for sync in [SyncPolicy::Always, SyncPolicy::EverySecond, SyncPolicy::Never] {
        let (journal, before) = folder.open(sync);
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let journal = &journal;
                scope.spawn(move || {
                    for number in 0..RECORDS {
                        let payload = [thread.to_le_bytes(), number.to_le_bytes()].concat();
                        // Some are large.
                        let filling = vec![7; if number % 50 == 0 { 300_000 } else { 20 }];
                        let position = journal.append(&[&payload, &filling]);
                        if sync == SyncPolicy::Always {
                            wait(journal, position);
                        }
                    }
                });
            }
        });
        journal.close().expect("it is durable");
        drop(journal);
        let (journal, records) = folder.open(sync);
        let mut next = [0; THREADS as usize];
        for record in &records[before.len()..] {
            let number =
                |at: usize| u32::from_le_bytes(std::array::from_fn(|byte| record[at + byte]));
            let next = &mut next[number(0) as usize];
            assert_eq!(number(4), *next);
            *next += 1;
        }
        assert_eq!(next, [RECORDS; THREADS as usize]);
        drop(journal);
    }
}

#[test]
fn a_checkpoint_waits_for_the_writer() {
    let folder = TestFolder::new("checkpoint");
    let (journal, _) = folder.open(SyncPolicy::EverySecond);
    for number in 0..100_u32 {
        journal.append(&[&number.to_le_bytes()]);
    }
    let at = journal.begin_checkpoint();
    journal.append(&[b"behind"]);
    std::fs::write(journal.folder().join(Journal::snapshot_name(at)), "hundred").expect("written");
    journal.end_checkpoint(at, None).expect("it ends");
    assert_eq!(journal.status().snapshot_bytes, 7);
    drop(journal);
    let mut recovery = Recovery::open(folder.options(SyncPolicy::Always)).expect("it opens");
    let snapshot = recovery.snapshot().expect("there is one");
    assert_eq!(std::fs::read(snapshot).expect("it is there"), b"hundred");
    assert_eq!(recovery.checkpoint(), at);
    let record = recovery.read().expect("it is read").expect("there is one");
    assert_eq!(record.payload, b"behind");
    assert_eq!(recovery.read().expect("it is read"), None);
}

/// A value of hundreds of megabytes is not in memory for a checkpoint that reads recent records.
#[test]
fn long_records_are_passed_over_by_who_reads_recent_ones() {
    let folder = TestFolder::new("long");
    let (journal, _) = folder.open(SyncPolicy::Always);
    let long = vec![7; RECENT_RECORD_BYTES_MAX + 1];
    let last =
        [&b"one"[..], &long, b"two", &long, b"three"].map(|payload| journal.append(&[payload]));
    wait(&journal, last[4]);
    let mut recent = journal.recent(u64::MAX).expect("it is read");
    let mut found = Vec::new();
    while let Recent::Record { begin, payload } = recent.read().expect("it is read") {
        found.push((begin, payload.to_vec()));
        assert!(recent.window_bytes() <= JOURNAL_READ_BYTES);
    }
    let begins = [Position(0), last[1], last[3]];
    let payloads = [&b"one"[..], b"two", b"three"].map(<[u8]>::to_vec);
    let found_payloads: Vec<Vec<u8>> = found.iter().map(|(_, payload)| payload.clone()).collect();
    assert_eq!(found_payloads, payloads);
    assert!(found.iter().zip(begins).all(|((found, _), begin)| *found >= begin));
    assert_eq!(recent.read_to(), last[4]);
}

/// What a start gave up stands in the last segment still, and is whole behind a long record that is not.
#[test]
fn recent_records_end_where_a_start_has_cut() {
    let folder = TestFolder::new("cut");
    let (journal, _) = folder.open(SyncPolicy::Never);
    let long = vec![7; RECENT_RECORD_BYTES_MAX + 1];
    let ends = [&b"one"[..], &long, b"two"].map(|payload| journal.append(&[payload]).0);
    drop(journal);
    let path = folder.0.join(names::segment(1));
    let mut bytes = std::fs::read(&path).expect("a segment");
    // The mark that says that all is durable is not there.
    bytes.truncate(HEADER_BYTES + ends[2] as usize);
    bytes[HEADER_BYTES + ends[0] as usize + 100] ^= 1;
    std::fs::write(&path, &bytes).expect("it is written");
    let (journal, records) = folder.open(SyncPolicy::Never);
    assert_eq!(records, [b"one"]);
    let mut recent = journal.recent(u64::MAX).expect("it is read");
    let mut read = || match recent.read().expect("it is read") {
        Recent::Record { payload, .. } => Some(payload.to_vec()),
        Recent::End => None,
        Recent::Damage(error) => panic!("{error}"),
    };
    assert_eq!([read(), read()], [Some(b"one".to_vec()), None]);
    // Nor does it come back when the journal goes on elsewhere.
    let last = journal.append(&[b"three"]);
    journal.sync_soon();
    wait(&journal, last);
    recent.go_on(&journal).expect("it is read");
    let Recent::Record { payload, .. } = recent.read().expect("it is read") else { panic!() };
    assert_eq!(payload, b"three");
}

#[test]
fn a_folder_is_for_one_at_a_time() {
    let folder = TestFolder::new("lock");
    let (journal, _) = folder.open(SyncPolicy::Always);
    let second = Recovery::open(folder.options(SyncPolicy::Always)).err();
    assert_eq!(second, Some(JournalError::InUse { path: folder.0.display().to_string() }));
    drop(journal);
    folder.open(SyncPolicy::Always);
}

#[test]
fn a_folder_that_cannot_be_made_is_told() {
    let folder = TestFolder::new("nowhere");
    let options = JournalOptions {
        folder: folder.0.join("deep").join("deeper"),
        ..folder.options(SyncPolicy::Always)
    };
    let error = Recovery::open(options).err().expect("an error");
    assert!(error.to_string().contains("No such file or directory"), "{error}");
}

/// The files of the first version of the format, which must be read for ever, and are written so as long as it is.
#[test]
fn the_format_does_not_change() {
    let folder = TestFolder::new("golden");
    // As it is now: another clone, which is gone, may have compiled this.
    let folder_of_crate = std::env::var("CARGO_MANIFEST_DIR").expect("cargo says where it is");
    let golden = PathBuf::from(folder_of_crate).join("tests/journal-1");
    let records: [&[u8]; 4] = [b"one", b"two", b"three", b"a long one in two parts"];
    let tuning = Tuning { seed: 1, part_bytes_max: 16, chunk_bytes: 128, ..Tuning::new() };
    let storage = Arc::new(super::super::folder::Folder::open(&folder.0).expect("a folder"));
    let options = folder.options(SyncPolicy::Never);
    let mut recovery = Recovery::open_on(storage, options, tuning).expect("it opens");
    assert_eq!(recovery.read().expect("it is read"), None);
    let now = Instant::now();
    let (journal, mut writer) = recovery.finish(now).expect("it goes on");
    journal.append(&[records[0]]);
    let at = journal.begin_checkpoint();
    writer.step(now);
    let snapshot = Journal::snapshot_name(at);
    std::fs::write(journal.folder().join(&snapshot), records[0]).expect("written");
    journal.end_checkpoint(at, None).expect("it ends");
    for record in &records[1..] {
        journal.append(&[record]);
    }
    journal.shared.close();
    while writer.step(now) != Next::End {}
    drop((journal, writer));
    for name in ["manifest", "journal.000002", &snapshot] {
        let written = std::fs::read(folder.0.join(name)).expect("it is there");
        let golden = std::fs::read(golden.join(name)).unwrap_or_default();
        assert_eq!(written, golden, "{name}");
    }
    let (journal, found) = folder.open(SyncPolicy::Always);
    assert_eq!(found, records[1..]);
    drop(journal);
}
