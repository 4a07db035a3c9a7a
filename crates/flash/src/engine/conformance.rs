//! The suite that every engine passes: a model keyspace drives the engine through its seam and
//! compares.
//!
//! `Rig` does what the tier would do (append, overwrite, delete, read, collect, take failed writes
//! back into RAM), on several workers of one thread, with what is expected of each read noted when
//! it starts. What may go wrong is decided by the caller: without faults nothing may; with faults
//! no wrong byte may be served, and no record may be lost that was not reported.

pub(crate) mod kept;

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use rustix::event::{PollFd, PollFlags};
use stdx::Random;

use super::{Completion, Engine, EngineWorker, GcProgress, Liveness, Owner, ReadStart};
use crate::engine::fetched::FetchedRecord;
use crate::engine::neighbours::Neighbours;
use crate::error::{AppendError, EngineError};
use crate::limits::{WRITE_BUFFERS, WRITE_BUFFERS_MIN};
use crate::location::Location;
use crate::record::{Lane, OwnedRecord, Record, RecordMeta, record_size};

/// Steps without progress after which a wait is a hang.
const TURNS_MAX: usize = 100_000;

/// What a record holds: everything else follows from these.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
struct Value {
    version: u64,
    len: usize,
}

#[derive(Copy, Clone, Debug)]
struct Entry {
    value: Value,
    /// `None` while the value is in RAM only.
    at: Option<Location>,
}

/// The record of a key and its value.
fn make(key: u32, value: Value) -> OwnedRecord {
    let mut random = Random::new(u64::from(key) << 32 | value.version);
    let mut payload = Vec::with_capacity(value.len + 8);
    while payload.len() < value.len {
        payload.extend_from_slice(&random.next_u64().to_le_bytes());
    }
    payload.truncate(value.len);
    let meta = RecordMeta {
        slot: (key % 16_384) as u16,
        db: (key % 16) as u8,
        kind: value.version as u8,
        compressed: value.len % 2 == 1,
        expire_at_ms: value.version as i64,
    };
    OwnedRecord { meta, key: format!("key-{key}").into_bytes(), payload }
}

fn size_of(key: u32, value: Value) -> usize {
    record_size(format!("key-{key}").len(), value.len)
}

fn key_of(bytes: &[u8]) -> u32 {
    let text = std::str::from_utf8(bytes).expect("keys are text");
    text["key-".len()..].parse().expect("keys end in a number")
}

/// The keyspace that the engine's records belong to.
struct Keyspace {
    entries: RefCell<BTreeMap<u32, Entry>>,
    /// Of a thousand live records that a gc run meets, so many are said to be in RAM too, and
    /// so many are deleted while they are moved.
    in_ram: u16,
    /// Those, to be released.
    deleted: RefCell<Vec<(u32, Entry)>>,
    /// The record that was last said to live and has not been moved yet.
    found_live: Cell<Option<Location>>,
    random: RefCell<Random>,
}

impl Keyspace {
    fn chance(&self) -> u64 {
        self.random.borrow_mut().below(1000)
    }

    fn points_at(&self, key: u32, at: Location) -> bool {
        self.entries.borrow().get(&key).is_some_and(|entry| entry.at == Some(at))
    }
}

impl Owner for Keyspace {
    fn is_live(&self, record: &Record<'_>, at: Location) -> Liveness {
        let key = key_of(record.key);
        if !self.points_at(key, at) {
            return Liveness::Dead;
        }
        let mut entries = self.entries.borrow_mut();
        let entry = entries.get_mut(&key).expect("it points there");
        assert_eq!(make(key, entry.value).as_record().payload, record.payload);
        if self.chance() < u64::from(self.in_ram) {
            entry.at = None;
            return Liveness::Dropped;
        }
        let before = self.found_live.replace(Some(at));
        assert_ne!(before, Some(at), "asked again while there was no write buffer for it");
        Liveness::Live
    }

    fn relocate(&self, record: &Record<'_>, from: Location, to: Location) -> bool {
        let key = key_of(record.key);
        self.found_live.set(None);
        if !self.points_at(key, from) {
            return false;
        }
        if self.chance() < u64::from(self.in_ram) {
            // As if a client had deleted the key after gc asked.
            let old = self.entries.borrow_mut().remove(&key);
            self.deleted.borrow_mut().extend(old.map(|entry| (key, entry)));
            return false;
        }
        self.entries.borrow_mut().get_mut(&key).expect("it points there").at = Some(to);
        true
    }
}

/// What a read that is in flight must bring.
struct Expected {
    key: u32,
    value: Value,
}

/// The mix of a random run.
#[derive(Clone)]
pub(crate) struct Mix {
    pub(crate) keys: u64,
    pub(crate) steps: usize,
    /// Payload sizes: mostly up to the first, sometimes up to the second, rarely up to the third.
    pub(crate) lens: [u64; 3],
    pub(crate) resets: bool,
    /// Reads may fail: faults are about.
    pub(crate) may_fail: bool,
}

/// An engine, its workers, and the keyspace that it is compared with.
pub(crate) struct Rig {
    pub(crate) engine: Arc<dyn Engine>,
    workers: Vec<Box<dyn EngineWorker>>,
    keyspace: Keyspace,
    reads: HashMap<u64, Expected>,
    next_token: u64,
    next_version: u64,
    random: Random,
    may_fail: bool,
    /// Reads that failed.
    pub(crate) failed_reads: usize,
    /// Records that reads have brought beside those that were asked for, and that a key has.
    pub(crate) neighbours: usize,
    /// Records that came back because they could not be written.
    pub(crate) records_returned: usize,
    /// A checkpoint is under way.
    is_taking: bool,
    /// It, until it refers to all.
    taking: Option<kept::Taking>,
    /// The last that is in place.
    pub(crate) kept: Option<kept::Kept>,
}

impl Rig {
    pub(crate) fn new(engine: Arc<dyn Engine>, workers: usize, seed: u64) -> Self {
        let worker = |_| engine.worker().expect("a worker");
        let workers = (0..workers).map(worker).collect();
        let keyspace = Keyspace {
            entries: RefCell::default(),
            in_ram: 50,
            deleted: RefCell::default(),
            found_live: Cell::default(),
            random: RefCell::new(Random::new(seed ^ 1)),
        };
        Self {
            engine,
            workers,
            keyspace,
            reads: HashMap::new(),
            next_token: 0,
            next_version: 0,
            random: Random::new(seed),
            may_fail: false,
            failed_reads: 0,
            neighbours: 0,
            records_returned: 0,
            is_taking: false,
            taking: None,
            kept: None,
        }
    }

    /// A random run of the mix, and the check of everything at its end.
    pub(crate) fn run(&mut self, mix: &Mix) {
        self.run_unchecked(mix);
        self.check_all();
    }

    /// The same without the check.
    pub(crate) fn run_unchecked(&mut self, mix: &Mix) {
        self.may_fail = mix.may_fail;
        self.work(mix);
    }

    /// Its steps.
    fn work(&mut self, mix: &Mix) {
        for _ in 0..mix.steps {
            let key = self.random.below(mix.keys) as u32;
            let worker = self.random.below(self.workers.len() as u64) as usize;
            match self.random.below(1000) {
                0..400 => {
                    let len = self.random_len(mix);
                    self.put(worker, key, len);
                }
                400..450 => self.delete(key),
                450..800 => self.read(worker, key),
                800..850 => {
                    self.gc(worker);
                }
                850..985 => {
                    let most =
                        WRITE_BUFFERS - key as usize % (WRITE_BUFFERS - WRITE_BUFFERS_MIN + 1);
                    self.workers[worker].bound_write_buffers(most);
                    self.turn(worker);
                }
                985..998 => self.workers[worker].flush(),
                _ if mix.resets && self.random.below(4) == 0 => self.reset(),
                _ => self.read_blocking(worker, key),
            }
        }
    }

    fn random_len(&mut self, mix: &Mix) -> usize {
        let class = match self.random.below(100) {
            0..90 => 0,
            90..98 => 1,
            _ => 2,
        };
        self.random.below(mix.lens[class] + 1) as usize
    }

    /// Writes a new value of a key, as a demotion would.
    pub(crate) fn put(&mut self, worker: usize, key: u32, len: usize) {
        self.next_version += 1;
        let value = Value { version: self.next_version, len };
        let record = make(key, value);
        let lane = if len.is_multiple_of(3) { Lane::ShortLived } else { Lane::Demote };
        let owned = self.random.below(2) == 0;
        for _ in 0..TURNS_MAX {
            let appended = if owned {
                self.workers[worker].append_owned(lane, record.clone()).map_err(|(error, back)| {
                    assert_eq!(back, record, "handed back unchanged");
                    error
                })
            } else {
                self.workers[worker].append(lane, &record.as_record())
            };
            match appended {
                Ok(at) => return self.point(key, value, Some(at)),
                Err(AppendError::Busy) => self.wait(worker),
                // It stays in RAM as long as room comes only with a checkpoint.
                Err(AppendError::Full) if self.is_taking => {
                    return self.point(key, value, None);
                }
                Err(AppendError::Full) => self.make_room(worker),
                Err(AppendError::Failed(_)) => return self.point(key, value, None),
                Err(AppendError::TooLarge) => panic!("{len} bytes are within the limit"),
            }
        }
        panic!("no room for {len} bytes: {:?}", self.engine.stats());
    }

    /// Collects; where that finds nothing, evicts.
    fn make_room(&mut self, worker: usize) {
        for other in 0..self.workers.len() {
            self.turn(other);
            self.gc(other);
        }
        if self.gc(worker) != GcProgress::Idle {
            self.wait(worker);
        } else if self.engine.free_space().held_bytes > 0 {
            self.take_checkpoint();
        } else {
            let evicted = {
                let entries = self.keyspace.entries.borrow();
                let from = self.random.below(1 << 20) as u32 % (entries.len().max(1) as u32 * 2);
                entries.range(from..).chain(entries.iter()).next().map(|(&key, _)| key)
            };
            evicted.into_iter().for_each(|key| self.delete(key));
        }
    }

    /// Points a key at its new value and lets go of the old.
    fn point(&mut self, key: u32, value: Value, at: Option<Location>) {
        self.save_first(key);
        let old = self.keyspace.entries.borrow_mut().insert(key, Entry { value, at });
        self.let_go(key, old);
    }

    pub(crate) fn delete(&mut self, key: u32) {
        self.save_first(key);
        let old = self.keyspace.entries.borrow_mut().remove(&key);
        self.let_go(key, old);
    }

    fn let_go(&self, key: u32, old: Option<Entry>) {
        if let Some(Entry { value, at: Some(at) }) = old {
            self.engine.release(at, size_of(key, value));
        }
    }

    /// Starts a read of a key, if its value is on flash.
    pub(crate) fn read(&mut self, worker: usize, key: u32) {
        let entry = self.keyspace.entries.borrow().get(&key).copied();
        let Some(Entry { value, at: Some(at) }) = entry else { return };
        self.next_token += 1;
        let expected = Expected { key, value };
        for _ in 0..TURNS_MAX {
            let record = self.engine.identify(at);
            let (token, size) = (self.next_token, size_of(key, value));
            let started = match token % 2 {
                0 => self.workers[worker].read(record, size, token),
                _ => self.workers[worker].read_around(record, size, token),
            };
            match started {
                ReadStart::Ready(record) => return check(&expected, &record),
                ReadStart::Pending => {
                    self.reads.insert(self.next_token, expected);
                    return;
                }
                ReadStart::Failed(error) => return self.failed(&expected, &error),
                ReadStart::Busy => self.wait(worker),
            }
        }
        panic!("busy for ever");
    }

    fn read_blocking(&mut self, worker: usize, key: u32) {
        let entry = self.keyspace.entries.borrow().get(&key).copied();
        let Some(Entry { value, at: Some(at) }) = entry else { return };
        let expected = Expected { key, value };
        let read = (at, size_of(key, value));
        let of_one = self.workers[worker].read_blocking(read.0, read.1);
        // As many as several threads share, where the device has any.
        let of_many = self.workers[worker].read_all_blocking(&[read; 9]);
        assert_eq!(of_many.len(), 9);
        for result in of_many.into_iter().chain([of_one]) {
            match result {
                Ok(record) => check(&expected, &record),
                Err(error) => self.failed(&expected, &error),
            }
        }
    }

    fn failed(&mut self, expected: &Expected, error: &EngineError) {
        assert!(self.may_fail, "key-{} {:?}: {error}", expected.key, expected.value);
        self.failed_reads += 1;
    }

    /// One turn of a worker's loop.
    pub(crate) fn turn(&mut self, worker: usize) {
        let mut done = Vec::new();
        self.workers[worker].reap(&mut done);
        self.workers[worker].submit();
        for completion in done {
            match completion {
                Completion::Read { token, result } => {
                    let expected = self.reads.remove(&token).expect("a token once");
                    match result {
                        Ok(record) => check(&expected, &record),
                        Err(error) => self.failed(&expected, &error),
                    }
                }
                Completion::Neighbours(brought) => self.check_neighbours(&brought),
                Completion::WriteFailed { records, .. } => self.take_back(records),
            }
        }
    }

    /// What a read has brought beside what was asked for is what a key has, if the key's value is still that record.
    fn check_neighbours(&mut self, brought: &Neighbours) {
        let entries = self.keyspace.entries.borrow();
        for (id, record, _) in brought.records() {
            let key = key_of(record.key);
            if let Some(&Entry { value, at: Some(at) }) = entries.get(&key)
                && self.engine.identify(at) == id
            {
                assert_eq!(make(key, value).as_record().payload, record.payload);
                self.neighbours += 1;
            }
        }
    }

    /// Records that were not written go back to RAM, where they are still wanted.
    fn take_back(&mut self, records: Vec<(Location, Arc<OwnedRecord>)>) {
        assert!(self.may_fail, "no write may fail");
        self.records_returned += records.len();
        for (at, record) in records {
            let key = key_of(&record.key);
            if self.keyspace.points_at(key, at) {
                let mut entries = self.keyspace.entries.borrow_mut();
                let entry = entries.get_mut(&key).expect("it points there");
                assert_eq!(*record, make(key, entry.value), "what failed is what was appended");
                entry.at = None;
                self.engine.release(at, size_of(key, entry.value));
            }
        }
    }

    pub(crate) fn gc(&mut self, worker: usize) -> GcProgress {
        let progress = self.workers[worker].gc(&self.keyspace, 64 << 10);
        if progress == GcProgress::Idle {
            // A gc run that was given up asks for all of them again.
            self.keyspace.found_live.set(None);
        }
        for (key, entry) in self.keyspace.deleted.take() {
            self.let_go(key, Some(entry));
        }
        progress
    }

    /// Everything is forgotten; reads in flight may fail.
    pub(crate) fn reset(&mut self) {
        let keys: Vec<u32> = self.keyspace.entries.borrow().keys().copied().collect();
        keys.into_iter().for_each(|key| self.save_first(key));
        self.engine.reset();
        self.keyspace.entries.borrow_mut().clear();
        let may_fail = std::mem::replace(&mut self.may_fail, true);
        for worker in 0..self.workers.len() {
            self.settle(worker);
        }
        self.may_fail = may_fail;
    }

    /// Turns until nothing of a worker is in flight.
    pub(crate) fn settle(&mut self, worker: usize) {
        for _ in 0..TURNS_MAX {
            if self.workers[worker].in_flight() == 0 {
                return;
            }
            self.wait(worker);
        }
        panic!("operations in flight for ever");
    }

    /// A turn, after a sleep until there is something to reap.
    fn wait(&mut self, worker: usize) {
        self.workers[worker].submit();
        if self.workers[worker].in_flight() > 0 {
            let wake = self.workers[worker].wake_fd();
            rustix::event::poll(&mut [PollFd::new(&wake, PollFlags::IN)], None).expect("poll");
        }
        self.turn(worker);
    }

    /// Brings everything to flash.
    pub(crate) fn flush_all(&mut self) {
        for worker in 0..self.workers.len() {
            self.workers[worker].flush();
            self.settle(worker);
        }
    }

    /// Collects until there is nothing to do.
    pub(crate) fn gc_all(&mut self) {
        for worker in 0..self.workers.len() {
            for _ in 0..TURNS_MAX {
                let progress = self.gc(worker);
                self.settle(worker);
                if progress == GcProgress::Idle {
                    break;
                }
            }
        }
    }

    /// Reads every key on every worker, in RAM and on flash, and compares the accounts.
    pub(crate) fn check_all(&mut self) {
        for flushed in [false, true] {
            if flushed {
                self.flush_all();
            }
            let keys: Vec<u32> = self.keyspace.entries.borrow().keys().copied().collect();
            for worker in 0..self.workers.len() {
                keys.iter().for_each(|&key| self.read(worker, key));
                self.settle(worker);
                assert!(self.reads.is_empty() || worker + 1 < self.workers.len());
            }
            assert!(self.reads.is_empty(), "each read is answered");
        }
        self.check_accounts();
    }

    /// The engine's count of live bytes is the keyspace's.
    fn check_accounts(&self) {
        let entries = self.keyspace.entries.borrow();
        let on_flash = entries.iter().filter(|(_, entry)| entry.at.is_some());
        let live: usize = on_flash.map(|(&key, entry)| size_of(key, entry.value)).sum();
        let stats = self.engine.stats();
        assert_eq!(stats.live_bytes, live as u64, "{stats:?}");
        assert_eq!(self.engine.free_space().live_bytes, live as u64);
        assert_eq!(stats.used_bytes + stats.free_bytes, stats.capacity_bytes);
    }

    /// Deletes everything: all space must come back but that of open segments.
    pub(crate) fn check_all_space_comes_back(&mut self) {
        let keys: Vec<u32> = self.keyspace.entries.borrow().keys().copied().collect();
        keys.into_iter().for_each(|key| self.delete(key));
        self.flush_all();
        self.gc_all();
        let stats = self.engine.stats();
        let all = stats.capacity_bytes / stats.segment_bytes;
        assert_eq!(stats.live_bytes, 0);
        assert_eq!(stats.segments_free + stats.segments_open, all, "{stats:?}");
    }

    /// Keys whose values are on flash.
    pub(crate) fn keys_on_flash(&self) -> usize {
        self.keyspace.entries.borrow().values().filter(|entry| entry.at.is_some()).count()
    }
}

fn check(expected: &Expected, fetched: &FetchedRecord) {
    let record = make(expected.key, expected.value);
    assert_eq!(fetched.meta(), record.meta);
    assert_eq!(fetched.key(), record.key);
    assert!(fetched.payload() == record.payload, "wrong payload of key-{}", expected.key);
}
