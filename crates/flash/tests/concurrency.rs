//! Several threads on one log on files: each with its own worker, all over the same keys, with
//! gc runs, resets and changes of the size and of the paths under way. What a key holds is decided under its
//! lock, as in the keyspace; a read must bring what the key held when the read began.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use flash::{
    AppendError, Backend, Completion, Engine, EngineError, EngineWorker, Lane, Liveness, Location,
    LogConfig, Owner, ReadStart, Record, RecordMeta, open_log, record_size,
};
use rustix::event::{PollFd, PollFlags, Timespec};
use stdx::Random;

const THREADS: usize = 3;
const PATHS: usize = 3;
const SHARDS: usize = 64;
const KEYS: u64 = 3000;
const STEPS: usize = 30_000;
const SEGMENT_BYTES: u64 = 256 << 10;
const SEGMENTS: u64 = 96;

#[derive(Copy, Clone, Debug, PartialEq)]
struct Entry {
    at: Location,
    version: u64,
    len: usize,
}

impl Entry {
    fn size(&self) -> usize {
        record_size(8, self.len)
    }
}

type Shard = HashMap<u64, Entry>;

struct Keyspace(Vec<Mutex<Shard>>);

impl Keyspace {
    fn lock(&self, key: u64) -> MutexGuard<'_, Shard> {
        self.0[key as usize % SHARDS].lock().expect("no thread panicked")
    }
}

fn key_of(record: &Record<'_>) -> u64 {
    u64::from_le_bytes(record.key.try_into().expect("keys have 8 bytes"))
}

fn payload(key: u64, version: u64, len: usize) -> Vec<u8> {
    let mut random = Random::new(key << 32 ^ version);
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        bytes.extend_from_slice(&random.next_u64().to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}

impl Owner for Keyspace {
    fn is_live(&self, record: &Record<'_>, at: Location) -> Liveness {
        let key = key_of(record);
        match self.lock(key).get(&key) {
            Some(entry) if entry.at == at => Liveness::Live,
            _ => Liveness::Dead,
        }
    }

    fn relocate(&self, record: &Record<'_>, from: Location, to: Location) -> bool {
        let key = key_of(record);
        match self.lock(key).get_mut(&key) {
            Some(entry) if entry.at == from => {
                entry.at = to;
                true
            }
            _ => false,
        }
    }
}

/// One thread's work.
struct Client {
    engine: Arc<dyn Engine>,
    keyspace: Arc<Keyspace>,
    paths: Vec<PathBuf>,
    worker: Box<dyn EngineWorker>,
    random: Random,
    reads: HashMap<u64, (u64, Entry)>,
    next: u64,
    read_count: usize,
    gone: usize,
}

impl Client {
    fn new(
        thread: u64,
        engine: Arc<dyn Engine>,
        keyspace: Arc<Keyspace>,
        paths: Vec<PathBuf>,
    ) -> Self {
        Self {
            paths,
            worker: engine.worker().expect("a worker"),
            engine,
            keyspace,
            random: Random::new(thread),
            reads: HashMap::new(),
            next: 0,
            read_count: 0,
            gone: 0,
        }
    }

    fn run(&mut self, thread: u64) {
        for step in 0..STEPS {
            let key = self.random.below(KEYS);
            match self.random.below(100) {
                0..35 => self.put(key, thread << 40 | step as u64),
                35..85 => self.read(key),
                85..90 => drop(self.worker.gc(&*self.keyspace, 64 << 10)),
                90..91 => self.worker.flush(),
                _ => self.turn(Duration::ZERO),
            }
            if thread == 0 && step % 10_000 == 9_999 {
                self.reset();
            }
            if thread == 1 && step % 5_000 == 4_999 {
                let segments = SEGMENTS + self.random.below(64);
                self.engine.resize(segments * SEGMENT_BYTES).expect("resized");
            }
            if thread == 2 && step % 2_000 == 1_999 {
                self.change_paths();
            }
        }
        while self.worker.in_flight() > 0 {
            self.turn(Duration::from_secs(1));
        }
        assert!(self.reads.is_empty());
        assert!(self.read_count > STEPS / 10);
        assert!(self.gone < self.read_count / 10);
    }

    /// Some of the directories, and at least one; closes those that were left before.
    fn change_paths(&mut self) {
        while self.engine.give_space_back() {}
        let bits = 1 + self.random.below((1 << self.paths.len()) - 1);
        let paths = self.paths.iter().enumerate();
        let chosen = paths.filter(|(index, _)| bits >> index & 1 == 1);
        let chosen: Vec<PathBuf> = chosen.map(|(_, path)| path.clone()).collect();
        self.engine.set_paths(&chosen).expect("there is room");
        assert_eq!(self.engine.stats().paths, chosen.len() as u64);
    }

    fn put(&mut self, key: u64, version: u64) {
        let len = match self.random.below(200) {
            0 => self.random.below(400_000),
            1..10 => self.random.below(60_000),
            _ => self.random.below(3000),
        } as usize;
        let payload = payload(key, version, len);
        let key_bytes = key.to_le_bytes();
        let meta = RecordMeta::default();
        let record = Record { meta, key: &key_bytes, payload: &payload };
        for _ in 0..100_000 {
            let keyspace = Arc::clone(&self.keyspace);
            let mut shard = keyspace.lock(key);
            let appended = self.worker.append(Lane::Demote, &record);
            if let Ok(at) = appended {
                if let Some(old) = shard.insert(key, Entry { at, version, len }) {
                    self.engine.release(old.at, old.size());
                }
                return;
            }
            drop(shard);
            match appended {
                Err(AppendError::Full) => drop(self.worker.gc(&*keyspace, 1 << 20)),
                Err(AppendError::Busy) => {}
                other => panic!("{other:?}"),
            }
            self.turn(Duration::from_millis(1));
        }
        panic!("no room: {:?}", self.engine.stats());
    }

    fn read(&mut self, key: u64) {
        let keyspace = Arc::clone(&self.keyspace);
        let shard = keyspace.lock(key);
        let Some(&entry) = shard.get(&key) else { return };
        self.next += 1;
        // Under the lock, as the location cannot be given away meanwhile.
        let start = self.worker.read(self.engine.identify(entry.at), entry.size(), self.next);
        drop(shard);
        match start {
            ReadStart::Ready(record) => self.check(key, entry, record.payload()),
            ReadStart::Pending => drop(self.reads.insert(self.next, (key, entry))),
            ReadStart::Busy => self.turn(Duration::from_millis(1)),
            ReadStart::Failed(error) => panic!("{key} {entry:?}: {error}"),
        }
    }

    fn check(&mut self, key: u64, entry: Entry, found: &[u8]) {
        assert!(found == payload(key, entry.version, entry.len), "wrong bytes of {key} {entry:?}");
        self.read_count += 1;
    }

    fn turn(&mut self, sleep: Duration) {
        self.worker.submit();
        if !sleep.is_zero() {
            let timeout = Timespec::try_from(sleep).expect("short");
            let wake = self.worker.wake_fd();
            let _ = rustix::event::poll(&mut [PollFd::new(&wake, PollFlags::IN)], Some(&timeout));
        }
        let mut done = Vec::new();
        self.worker.reap(&mut done);
        for completion in done {
            let Completion::Read { token, result } = completion else { panic!("{completion:?}") };
            let (key, entry) = self.reads.remove(&token).expect("a token once");
            match result {
                Ok(record) => self.check(key, entry, record.payload()),
                // A reset may overtake a read of a large record.
                Err(EngineError::Gone { .. }) => self.gone += 1,
                Err(error) => panic!("{key} {entry:?}: {error}"),
            }
        }
    }

    /// Forgets everything, with all keys locked.
    fn reset(&mut self) {
        let mut shards: Vec<MutexGuard<'_, Shard>> =
            (0..SHARDS as u64).map(|shard| self.keyspace.lock(shard)).collect();
        self.engine.reset();
        shards.iter_mut().for_each(|shard| shard.clear());
    }
}

struct Directory(PathBuf);

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn run(backend: Backend, name: &str) {
    let path = std::env::temp_dir().join(format!("kelvin-flash-{name}-{}", std::process::id()));
    let paths: Vec<PathBuf> = (0..PATHS).map(|number| path.join(number.to_string())).collect();
    for path in &paths {
        std::fs::create_dir_all(path).expect("a temporary directory");
    }
    let _directory = Directory(path);
    let config = LogConfig {
        paths: paths[..1].to_vec(),
        flash_bytes: SEGMENTS * SEGMENT_BYTES,
        workers: THREADS,
        segment_bytes: Some(SEGMENT_BYTES),
        backend,
    };
    let engine = open_log(&config, None).expect("opens");
    let keyspace = Arc::new(Keyspace((0..SHARDS).map(|_| Mutex::default()).collect()));
    std::thread::scope(|scope| {
        for thread in 0..THREADS as u64 {
            let (engine, keyspace) = (Arc::clone(&engine), Arc::clone(&keyspace));
            let paths = paths.clone();
            scope.spawn(move || Client::new(thread, engine, keyspace, paths).run(thread));
        }
    });
    let stats = engine.stats();
    assert!(stats.gc_relocated > 0, "{stats:?}");
    // The workers are gone; what they appended is on flash.
    let mut worker = engine.worker().expect("a worker");
    let mut live = 0;
    for shard in &keyspace.0 {
        for (&key, entry) in shard.lock().expect("quiet").iter() {
            live += entry.size() as u64;
            let record = worker.read_blocking(entry.at, entry.size()).expect("read");
            assert!(record.payload() == payload(key, entry.version, entry.len));
        }
    }
    assert_eq!(stats.live_bytes, live, "{stats:?}");
}

#[test]
fn threads_share_a_log_with_the_best_backend() {
    run(Backend::Auto, "auto");
}

#[test]
fn threads_share_a_log_with_the_thread_pool() {
    run(Backend::Threads, "threads");
}
