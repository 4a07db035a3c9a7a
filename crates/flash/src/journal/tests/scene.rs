//! A journal on a simulated folder, driven step by step, and all that is known of what must be in it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use stdx::Random;

use super::super::checkpoint::read_found;
use super::super::sim::SimFolder;
use super::super::storage::Storage;
use super::super::tuning::Tuning;
use super::super::writer::{Next, Writer};
use super::super::{
    Journal, JournalError, JournalOptions, Position, Recent, RecentRecords, Recovery, SyncPolicy,
    TornTail,
};

/// Sizes with which a short history meets segments, chunks and parts.
pub(super) const SMALL: Tuning = Tuning {
    seed: 5,
    segment_bytes: 3_000,
    sync_bytes: 2_500,
    held_bytes_max: 6_000,
    chunk_bytes: 1_600,
    part_bytes_max: 900,
};

pub(super) fn options() -> JournalOptions {
    let (sync, torn_tail) = (SyncPolicy::EverySecond, TornTail::Cut);
    JournalOptions { folder: "sim".into(), sync, torn_tail }
}

/// A record as it was appended, and where it ends.
type Appended = (u64, Vec<u8>);

pub(super) struct Scene {
    pub(super) folder: SimFolder,
    pub(super) random: Random,
    pub(super) now: Instant,
    pub(super) journal: Option<(Journal, Writer)>,
    /// All records, as long as they may be there.
    pub(super) records: Vec<Appended>,
    /// Up to where they must be there.
    pub(super) durable: u64,
    serial: u64,
    /// Checkpoints are numbered, as what they say of the flash is, by which a start opens that.
    checkpoints: u64,
    /// Whether some of them refer to recent records.
    keeps_recent: bool,
    /// The number of the one by which it was opened last: older ones must not be found any more.
    pub(super) opened_by: u64,
}

impl Scene {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            folder: SimFolder::new(seed),
            random: Random::new(seed ^ 0x5CE4E),
            now: Instant::now(),
            journal: None,
            records: Vec::new(),
            durable: 0,
            serial: 0,
            checkpoints: 0,
            keeps_recent: false,
            opened_by: 0,
        }
    }

    /// One whose checkpoints refer to recent records now and then.
    pub(super) fn keeping(seed: u64) -> Self {
        Self { keeps_recent: true, ..Self::new(seed) }
    }

    pub(super) fn journal(&self) -> &Journal {
        &self.journal.as_ref().expect("it is open").0
    }

    /// Opens the journal, and looks whether all is there that must be, and nothing that may not.
    pub(super) fn open(&mut self) -> Result<(), JournalError> {
        assert!(self.journal.is_none());
        let recovery = self.recover()?;
        self.journal = Some(recovery.finish(self.now)?);
        self.durable = self.journal().durable().0;
        Ok(())
    }

    /// The same, up to the end of what is read.
    pub(super) fn recover(&mut self) -> Result<Recovery, JournalError> {
        let state = read_found(&self.folder)?.and_then(|(_, state)| state);
        let of_state = state.map(|bytes| number_of(&bytes));
        let opened_by = of_state.unwrap_or(0);
        assert!(opened_by >= self.opened_by, "{opened_by} is found behind {}", self.opened_by);
        self.opened_by = opened_by;
        let tuning = Tuning { seed: self.random.next_u64(), ..SMALL };
        let mut recovery = Recovery::open_on(Arc::new(self.folder.clone()), options(), tuning)?;
        let snapshot =
            recovery.snapshot().map(|_| read_snapshot(&self.folder, recovery.checkpoint()));
        let of_snapshot = snapshot.as_ref().map(|snapshot| snapshot.state);
        assert_eq!(of_snapshot, of_state, "the flash is as the snapshot needs it");
        if let Some(snapshot) = &snapshot {
            check_kept(&recovery, snapshot)?;
        }
        let mut found = snapshot.map(|snapshot| snapshot.records).unwrap_or_default();
        assert!(found.iter().all(|(end, _)| *end <= recovery.checkpoint().0));
        while let Some(record) = recovery.read()? {
            found.push((record.position.0, record.payload.to_vec()));
        }
        assert!(found.len() <= self.records.len(), "more than was appended");
        for (index, (found, appended)) in found.iter().zip(&self.records).enumerate() {
            assert!(found == appended, "record {index} is another: {found:?} {appended:?}");
        }
        let lost = &self.records[found.len()..];
        let first_lost = lost.first().map_or(u64::MAX, |(end, _)| *end);
        assert!(first_lost > self.durable, "{first_lost} is lost, durable was {}", self.durable);
        self.records = found;
        Ok(recovery)
    }

    /// Appends a record of so many bytes, in pieces.
    pub(super) fn append(&mut self, bytes: usize) -> Position {
        self.serial += 1;
        let mut payload = self.serial.to_le_bytes().to_vec();
        payload.resize(bytes.max(8), 0);
        self.random.fill(&mut payload[8..]);
        let (front, back) = payload.split_at(self.random.below(payload.len() as u64) as usize);
        let end = self.journal().append(&[front, back]);
        self.records.push((end.0, payload));
        end
    }

    /// The writer works once. What it has published must stay.
    pub(super) fn step(&mut self) -> Next {
        let (journal, writer) = self.journal.as_mut().expect("it is open");
        let next = writer.step(self.now);
        assert!(journal.durable() <= journal.appended());
        assert!(journal.durable().0 >= self.durable);
        self.durable = journal.durable().0;
        next
    }

    pub(super) fn pass(&mut self, time: Duration) {
        self.now += time;
    }

    /// Takes a checkpoint. False: something failed.
    pub(super) fn checkpoint(&mut self) -> bool {
        let bytes_max = if self.keeps_recent { self.random.below(9_000) } else { 1 };
        // Half of them.
        let keeps = bytes_max.is_multiple_of(2);
        let mut recent = keeps.then(|| self.journal().recent(bytes_max).ok()).flatten();
        let at = self.journal().begin_checkpoint();
        let records = self.records.clone();
        for _ in 0..self.random.below(3) {
            self.append(50);
        }
        self.step();
        self.checkpoints += 1;
        let state = self.checkpoints.to_le_bytes();
        if self.journal().await_checkpoint_segment(at).is_err() {
            return false;
        }
        let kept_from = recent.as_mut().and_then(|recent| first_of(recent, self.journal()));
        let kept = recent.and_then(|recent| recent.first()).filter(|_| kept_from.is_some());
        let snapshot =
            Snapshot { state: self.checkpoints, kept_from: kept_from.unwrap_or(at.0), records };
        write_snapshot(&self.folder, at, &snapshot).is_ok()
            && self.journal().put_flash_state(at, &state).is_ok()
            && self.journal().end_checkpoint(at, kept).is_ok()
    }

    /// Ends the journal as a server does that is told to. False: something failed.
    pub(super) fn close(&mut self) -> bool {
        self.journal().shared.close();
        while self.step() != Next::End {}
        let (journal, _) = self.journal.take().expect("it is open");
        journal.close().is_ok()
    }

    /// The process ends where it is.
    pub(super) fn kill(&mut self) {
        self.journal = None;
    }

    /// The process ends, and the power goes.
    pub(super) fn lose_power(&mut self) {
        self.kill();
        self.folder.lose_power();
    }
}

/// What a snapshot has.
struct Snapshot {
    /// What it says of the flash to which it refers.
    state: u64,
    /// Where the records begin that stay with it.
    kept_from: u64,
    records: Vec<Appended>,
}

/// Where the first of the recent records begins. None: there is none, or it cannot be read.
fn first_of(recent: &mut RecentRecords, journal: &Journal) -> Option<u64> {
    recent.go_on(journal).ok()?;
    match recent.read().ok()? {
        Recent::Record { begin, .. } => Some(begin.0),
        Recent::Damage(_) | Recent::End => None,
    }
}

/// Looks whether all records are there that stay with a snapshot.
fn check_kept(recovery: &Recovery, snapshot: &Snapshot) -> Result<(), JournalError> {
    let mut recent = recovery.kept_records();
    recent.go_to(Position(snapshot.kept_from));
    for (end, kept) in snapshot.records.iter().filter(|(end, _)| *end > snapshot.kept_from) {
        match recent.read()? {
            Recent::Record { begin, payload } => {
                assert!(payload == kept && begin.0 < *end, "another record than that up to {end}");
            }
            other => panic!("{other:?} in place of the record up to {end}"),
        }
    }
    Ok(())
}

/// Writes a snapshot as a server does.
fn write_snapshot(folder: &SimFolder, at: Position, snapshot: &Snapshot) -> std::io::Result<()> {
    let mut bytes = [snapshot.state.to_le_bytes(), snapshot.kept_from.to_le_bytes()].concat();
    for (end, payload) in &snapshot.records {
        bytes.extend_from_slice(&end.to_le_bytes());
        bytes.extend_from_slice(&(payload.len() as u64).to_le_bytes());
        bytes.extend_from_slice(payload);
    }
    let file = folder.create("temp-7.rdb")?;
    file.write_at(0, &bytes)?;
    file.sync()?;
    folder.rename("temp-7.rdb", &Journal::snapshot_name(at))?;
    folder.sync_folder()
}

fn number_of(state: &[u8]) -> u64 {
    u64::from_le_bytes(state.try_into().expect("a whole state"))
}

fn read_snapshot(folder: &SimFolder, at: Position) -> Snapshot {
    let bytes = folder.bytes(&Journal::snapshot_name(at));
    let mut rest = &bytes[..];
    let number = |rest: &mut &[u8]| {
        let (number, back) = rest.split_first_chunk().expect("a whole snapshot");
        *rest = back;
        u64::from_le_bytes(*number)
    };
    let (state, kept_from) = (number(&mut rest), number(&mut rest));
    let mut records = Vec::new();
    while !rest.is_empty() {
        let end = number(&mut rest);
        let bytes = number(&mut rest);
        let (payload, back) = rest.split_at(bytes as usize);
        records.push((end, payload.to_vec()));
        rest = back;
    }
    Snapshot { state, kept_from, records }
}
