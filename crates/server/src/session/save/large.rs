//! Large values that the walk of a snapshot writes, a part at a time.

use std::sync::atomic::Ordering;

use command::collection::LeafAt;
use command::saved::{SavedTree, begin_string};
use flash::RecordId;
use keyspace::{Key, Stored, View};
use rdb::file::FileWriter;
use tier::{Background, FetchedSet, VALUE_OVERHEAD_BYTES, Want};
use value::Kind;

use super::{Saving, check_read, sorted};
use crate::limits::{
    ATTEMPTS_MAX, CHECKPOINT_OVERRUN_SHIFT, CHECKPOINT_WAIT_MAX, SAVED_BYTES_MAX, SAVED_LEAVES_MAX,
    SAVED_WINDOW_BYTES,
};
use crate::state::snapshot::{
    Failure, Snapshot, add_leaves, leaves_of_window, unwritten, wants_of,
};
use crate::state::snapshot_file::{FilePipe, SnapshotFile};

impl Saving<'_> {
    /// Writes a large value, a part at a time.
    pub(super) fn save_apart(
        &self,
        snapshot: &Snapshot,
        table: u8,
        key: &Key<'_>,
    ) -> Result<(), Failure> {
        let beside = || {
            let (file, pipe) =
                SnapshotFile::create(self.server, &self.dir, "-beside").map_err(unwritten)?;
            assert!(self.beside.set(file).is_ok(), "it is made once");
            Ok(FileWriter::part(pipe))
        };
        let mut file = snapshot.open_file(beside)?;
        let is_string = {
            let state = self.server.tier.keyspace.lock(key.slot);
            state.view(table, key).is_some_and(|view| Kind::from_bits(view.kind).is_string())
        };
        let result = match is_string {
            true => self.write_string(snapshot, (table, key), &mut file),
            false => self.write_tree(snapshot, (table, key), &mut file),
        };
        snapshot.close_file(file);
        result
    }

    fn write_string(
        &self,
        snapshot: &Snapshot,
        (table, key): (u8, &Key<'_>),
        file: &mut FileWriter<FilePipe>,
    ) -> Result<(), Failure> {
        let (mut string, mut object) = (SavedString::default(), Vec::new());
        loop {
            self.wait_for_drive(snapshot);
            if self.is_over(snapshot) {
                return Ok(());
            }
            let state = self.server.tier.keyspace.lock(key.slot);
            let Some(view) = state.view(table, key) else {
                // It has been evicted.
                return if string.has_begun() { Err(Failure::Overtaken) } else { Ok(()) };
            };
            let expire_at_ms = view.expire_at_ms;
            match string.next(self, key, &view)? {
                Part::Lacks(want) => {
                    // One that moves again and again is read while nobody can move it. Its memory is reserved by then.
                    let is_held = string.attempts >= ATTEMPTS_MAX;
                    let _held = is_held.then_some(state);
                    string.fetch(self, snapshot, want)?;
                }
                Part::First(len) => {
                    drop(state);
                    begin_string(&mut object, len);
                    snapshot.keys.fetch_add(1, Ordering::Relaxed);
                    let db = snapshot.database(table);
                    file.key(db, key.bytes, expire_at_ms, &object).map_err(unwritten)?;
                }
                Part::More => {
                    drop(state);
                    file.more(&string.window).map_err(unwritten)?;
                }
                Part::End => return Ok(()),
            }
        }
    }

    /// Memory for what is read. Errors: there is none, or the snapshot was ended meanwhile.
    pub(super) fn reserve(&self, snapshot: &Snapshot, bytes: u64) -> Result<Background, Failure> {
        let tier = &self.server.tier;
        let start = tier.clock().now();
        let may_overrun = self.may_overrun(bytes);
        if may_overrun && self.is_short.get() {
            return Ok(Background::soon(tier, bytes));
        }
        let waits = || !may_overrun || tier.clock().now() - start < CHECKPOINT_WAIT_MAX;
        let memory = Background::wait(tier, bytes, || waits() && !self.is_over(snapshot));
        if let Some(memory) = memory {
            return Ok(memory);
        }
        if may_overrun && !self.is_over(snapshot) {
            tracing::warn!(bytes, "a checkpoint that makes room on flash reads beyond maxmemory");
            self.is_short.set(true);
            return Ok(Background::small(tier, bytes));
        }
        let text = format!("there is no memory within maxmemory to read {bytes} bytes");
        Err(snapshot.failure().unwrap_or(Failure::Failed(text)))
    }

    /// Whether so much may be read at a time without memory for it: what could be demoted for it waits for the room on flash
    /// that comes with this very checkpoint.
    fn may_overrun(&self, bytes: u64) -> bool {
        self.engine.is_some()
            && bytes <= self.server.config.maxmemory.load() >> CHECKPOINT_OVERRUN_SHIFT
    }

    fn write_tree(
        &self,
        snapshot: &Snapshot,
        (table, key): (u8, &Key<'_>),
        file: &mut FileWriter<FilePipe>,
    ) -> Result<(), Failure> {
        let keyspace = &self.server.tier.keyspace;
        let mut out = Vec::new();
        let begun = {
            let state = keyspace.lock(key.slot);
            let expire_at_ms = state.view(table, key).map_or(0, |view| view.expire_at_ms);
            SavedTree::begin(&mut out, &state, table, key).map(|tree| (tree, expire_at_ms))
        };
        // It may have been evicted.
        let Some((mut tree, expire_at_ms)) = begun else { return Ok(()) };
        snapshot.keys.fetch_add(1, Ordering::Relaxed);
        file.key(snapshot.database(table), key.bytes, expire_at_ms, &out).map_err(unwritten)?;
        loop {
            out.clear();
            self.wait_for_drive(snapshot);
            if self.is_over(snapshot) {
                return Ok(());
            }
            let leaves = {
                let state = keyspace.lock(key.slot);
                if !tree.is_there(&state, table, key) {
                    return Err(Failure::Overtaken);
                }
                tree.next_leaves(&state, table, key, SAVED_LEAVES_MAX)
            };
            if leaves.is_empty() {
                break;
            }
            let mut rest = &leaves[..];
            while !rest.is_empty() {
                let window = self.window(snapshot, (table, key), &tree, rest)?;
                self.add_leaves((table, key), &mut tree, window.leaves, &mut out)?;
                file.more(&out).map_err(unwritten)?;
                out.clear();
                out.shrink_to(SAVED_WINDOW_BYTES);
                rest = &rest[window.leaves.len()..];
            }
        }
        tree.finish(&mut out);
        file.more(&out).map_err(unwritten)
    }

    /// The first of some leaves of a large collection, with memory to read them and to write them into a buffer. A
    /// single large one that is on flash waits for it, others that are a little: no more than a window of them comes to be
    /// resident.
    fn window<'l>(
        &self,
        snapshot: &Snapshot,
        (table, key): (u8, &Key<'_>),
        tree: &SavedTree,
        leaves: &'l [LeafAt],
    ) -> Result<Window<'l>, Failure> {
        let (leaves, bytes, is_cold) = {
            let state = self.server.tier.keyspace.lock(key.slot);
            if !tree.is_there(&state, table, key) {
                return Err(Failure::Overtaken);
            }
            let (leaves, bytes) = leaves_of_window(&state, leaves, SAVED_BYTES_MAX);
            (leaves, bytes, !wants_of(&state, &self.reader, leaves).is_empty())
        };
        let (tier, taken) = (&self.server.tier, 2 * bytes as u64);
        let memory = match is_cold {
            true if bytes > SAVED_BYTES_MAX => self.reserve(snapshot, taken)?,
            true => Background::soon(tier, taken),
            false => Background::small(tier, taken),
        };
        Ok(Window { leaves, _memory: memory })
    }

    /// Writes leaves, which are read with their slot unlocked.
    fn add_leaves(
        &self,
        (table, key): (u8, &Key<'_>),
        tree: &mut SavedTree,
        leaves: &[LeafAt],
        out: &mut Vec<u8>,
    ) -> Result<(), Failure> {
        let keyspace = &self.server.tier.keyspace;
        let mut fetched = FetchedSet::default();
        for attempt in 0.. {
            let state = keyspace.lock(key.slot);
            if !tree.is_there(&state, table, key) {
                return Err(Failure::Overtaken);
            }
            let mut wants = sorted(wants_of(&state, &self.reader, leaves));
            check_read(&wants, &fetched)?;
            wants.retain(|want| !fetched.has(want.record));
            // Leaves that move again and again are read while nobody can move them.
            let held = (wants.is_empty() || attempt >= ATTEMPTS_MAX).then_some(state);
            if !wants.is_empty() {
                fetched.extend(self.reader.fetch_now(wants));
            }
            if let Some(state) = held {
                return add_leaves(&state, (tree, leaves), (&self.reader, &fetched), out);
            }
        }
        unreachable!("attempts end")
    }
}

/// Leaves that are read and written together.
struct Window<'l> {
    leaves: &'l [LeafAt],
    /// What they take.
    _memory: Background,
}

/// A long string on its way to a file. Nobody changes it from the first to the last of it, but that it goes to flash
/// and comes from there.
#[derive(Default)]
struct SavedString {
    /// Its length, once it has begun.
    len: Option<usize>,
    /// How much of it was written.
    written: usize,
    /// What is to be written next.
    window: Vec<u8>,
    /// It, if it was read from flash, the record that it was read from, and the memory that it takes.
    fetched: FetchedSet,
    record: Option<RecordId>,
    memory: Option<Background>,
    attempts: u32,
}

/// What comes next of a long string.
enum Part {
    /// It is on flash, and is to be read.
    Lacks(Want),
    /// Its length.
    First(usize),
    /// What is in the window.
    More,
    /// Nothing.
    End,
}

impl SavedString {
    fn has_begun(&self) -> bool {
        self.len.is_some()
    }

    /// Its slot is held. Errors: it could not be read, or the key holds another value.
    fn next(
        &mut self,
        saving: &Saving<'_>,
        key: &Key<'_>,
        view: &View<'_>,
    ) -> Result<Part, Failure> {
        let len = view.value_len();
        match self.len.replace(len) {
            None => return Ok(Part::First(len)),
            Some(before) if before != len || !Kind::from_bits(view.kind).is_string() => {
                return Err(Failure::Overtaken);
            }
            Some(_) if self.written == len => return Ok(Part::End),
            Some(_) => {}
        }
        let read = self.record.and_then(|record| self.fetched.value(record));
        let value = match (read, view.stored) {
            // It is the same still, wherever it is by now.
            (Some(value), _) => value,
            (None, Stored::Hot(value) | Stored::Clean(value, _)) => value,
            (None, Stored::Cold(at, len)) => {
                let want = saving.server.tier.want(key, at, len);
                check_read(&[want], &self.fetched)?;
                return Ok(Part::Lacks(want));
            }
        };
        let end = len.min(self.written + SAVED_WINDOW_BYTES);
        self.window.clear();
        self.window.extend_from_slice(&value[self.written..end]);
        self.written = end;
        Ok(Part::More)
    }

    /// Reads it from flash, once there is memory for it.
    fn fetch(
        &mut self,
        saving: &Saving<'_>,
        snapshot: &Snapshot,
        want: Want,
    ) -> Result<(), Failure> {
        self.attempts += 1;
        self.fetched = FetchedSet::default();
        if self.memory.is_none() {
            let bytes = want.value_len as usize + VALUE_OVERHEAD_BYTES;
            self.memory = Some(saving.reserve(snapshot, bytes as u64)?);
        }
        self.fetched = saving.reader.fetch_now(vec![want]);
        self.record = Some(want.record);
        if let Some(memory) = self.memory.as_mut().filter(|_| self.fetched.has(want.record)) {
            memory.end_claim();
        }
        Ok(())
    }
}
