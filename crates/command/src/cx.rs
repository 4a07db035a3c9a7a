//! What a handler sees: its keys, the locked slots, the time, the limits.

use keyspace::{Db, DetachedTable, Expiry, FlashRef, Key, Keyspace, Locked, Stored, Tally, View};

use resp::Reply;

use crate::collection::{ColdLeaves, Encodings, Walk};
use crate::effect::{Classes, Effects, Event};
use crate::error::{ColdValue, CommandError, CommandResult, NotResident};
use crate::wait::Waits;
use value::Kind;

/// A value from so many bytes on is made in a buffer whose pages are there already.
pub const SPARE_BYTES_MIN: usize = 1 << 20;

/// Values that were fetched from flash for this run.
pub trait Fetched {
    /// The (uncompressed) value that lies at `at`, if it was fetched.
    fn value(&self, at: FlashRef) -> Option<&[u8]>;

    /// The same, and its number if a reply is to leave a gap for it ([`Reply::bulk_later`]).
    fn value_for_reply(&self, at: FlashRef) -> Option<(&[u8], Option<u32>)> {
        self.value(at).map(|value| (value, None))
    }
}

/// Nothing was fetched: the first run of every command.
pub struct NothingFetched;

impl Fetched for NothingFetched {
    fn value(&self, _at: FlashRef) -> Option<&[u8]> {
        None
    }
}

/// What a command may ask about the whole data set, which no locked slot can tell.
pub trait Statistics {
    /// Keys of a physical table (see [`Keyspace::table_of`]), expired ones not yet removed
    /// included, as last added: without what the run's own [`Tally`] still holds.
    fn keys(&self, table: u8) -> u64;
}

/// Limits that clients may change, asked for by the few commands that come near them.
pub trait Limits {
    /// Longest string (`proto-max-bulk-len`).
    fn string_bytes_max(&self) -> usize;
    /// Longest string that memory has room for while others are served.
    fn memory_bytes_max(&self) -> usize;
    /// Whether `maxmemory-policy` is one that counts uses (LFU).
    fn counts_uses(&self) -> bool;
    /// Whether the checksum of a payload is looked at (`DEBUG SET-SKIP-CHECKSUM-VALIDATION`).
    fn checks_sums(&self) -> bool;
}

/// A value that a handler reads.
#[derive(Clone, Copy, Debug)]
pub struct Value<'a> {
    /// Type and encoding.
    pub kind: Kind,
    /// Unix milliseconds, 0 for none.
    pub expire_at_ms: u64,
    /// The bytes.
    pub bytes: &'a [u8],
    /// Its number, if a reply is to leave a gap for the bytes.
    pub source: Option<u32>,
}

impl Value<'_> {
    /// Writes the value of a key into a reply that may come to `reply_bytes_max`.
    ///
    /// Errors: [`CommandError::ReplyTooLong`], of which nothing is written.
    #[inline(always)]
    pub fn write(&self, key: &Key<'_>, reply_bytes_max: usize, reply: &mut Reply) -> CommandResult {
        if reply.full_len() + self.bytes.len() > reply_bytes_max {
            return Err(CommandError::too_long(key));
        }
        match self.source {
            None => reply.bulk(self.bytes),
            Some(source) => reply.bulk_later(self.bytes.len(), source),
        }
        Ok(())
    }
}

/// The context of one run of a command.
pub struct Cx<'a, 'k> {
    /// The slots it holds.
    pub locked: &'a mut Locked<'k>,
    /// Its keys, hashed, in the order of its key specifications.
    pub keys: &'a [Key<'a>],
    /// Length of the array that the reply begins with. None: an earlier run, on the keys in front of these or on
    /// the window in front of this one, has begun it ([`crate::Flags::BY_KEY`], [`crate::Flags::IN_WINDOWS`]).
    pub array_len: Option<usize>,
    /// The selected database.
    pub db: u8,
    /// The time, Unix milliseconds: the same for a whole transaction.
    pub now_ms: u64,
    /// Counters.
    pub tally: &'a mut Tally,
    /// Values from flash.
    pub fetched: &'a dyn Fetched,
    /// Figures of the whole data set.
    pub statistics: &'a dyn Statistics,
    /// Limits of encodings.
    pub encodings: &'a dyn Encodings,
    /// Other limits.
    pub limits: &'a dyn Limits,
    /// Whether reads leave the frequency of keys as it is (CLIENT NO-TOUCH).
    pub no_touch: bool,
    /// Tables that the command has detached. Whoever runs it frees them with [`DetachedTable::free`] once the
    /// slots are unlocked, so that nobody waits for it.
    pub detached: Vec<DetachedTable>,
    /// Bytes of the reply up to which there is memory for it.
    pub reply_bytes_max: usize,
    /// A buffer for the large value that the command makes, if any: its pages are there, so that
    /// nobody waits for the kernel with slots held.
    pub spare: &'a mut Vec<u8>,
    /// Leaves of large collections that were read from flash. Whoever runs the command may put them back
    /// into RAM.
    pub cold_leaves: ColdLeaves,
    /// A random number of this run, for commands that choose at random.
    pub random: u64,
    /// Whether it may wait for something to be there.
    pub waits: Waits,
    /// How far a walk over a large collection goes.
    pub walk: Walk<'a>,
    /// What it does to keys.
    pub effects: Effects,
}

impl<'a, 'k> Cx<'a, 'k> {
    /// The `index`-th key of the command.
    #[inline]
    pub fn key(&self, index: usize) -> Key<'a> {
        self.keys[index]
    }

    /// Whether this run begins the reply: no other was on a window in front of this one.
    #[inline]
    pub fn begins_reply(&self) -> bool {
        self.array_len.is_some()
    }

    /// Whether a string may be made so long. Errors: [`CommandError::OUT_OF_MEMORY`].
    #[inline]
    pub fn check_memory(&self, len: usize) -> Result<(), CommandError> {
        if len > self.limits.memory_bytes_max() { Err(CommandError::OUT_OF_MEMORY) } else { Ok(()) }
    }

    /// Reports what has been done to a key of the selected database: the event that Redis tells of, and how
    /// many changes the statistics count for it. In the order of Redis, behind the change itself.
    #[inline]
    pub fn report(&mut self, key: &Key<'_>, event: Event, changes: u64) {
        self.report_in(self.db, key, event, changes);
    }

    /// The same for a key of any database.
    #[inline]
    pub fn report_in(&mut self, db: u8, key: &Key<'_>, event: Event, changes: u64) {
        self.effects.changes += changes;
        if self.is_heard() {
            let notes = &mut self.tally.notes;
            self.effects.note(self.locked.keyspace(), notes, (db, key, event));
        }
    }

    /// Counts a hit or a miss of what a command that writes is about to read, and reports a miss: [`Cx::read`] does
    /// for those that do not write.
    #[inline]
    pub fn count_read(&mut self, key: &Key<'_>) {
        if !self.effects.counts_reads {
            let exists = self.exists(key);
            self.count_lookup(key, exists);
        }
    }

    /// Whether anybody listens to what is reported.
    #[inline]
    pub fn is_heard(&self) -> bool {
        self.effects.listened.has_events()
    }

    /// Reports that a collection is gone with its last element, if it is, behind the removal of that.
    #[inline]
    pub fn report_if_gone(&mut self, key: &Key<'_>) {
        if self.is_heard() && !self.exists(key) {
            self.report(key, Event::DEL, 0);
        }
    }

    /// Counts a key that was looked up to be read without its value ([`Cx::peek`]), and reports it if it does not
    /// exist.
    #[inline]
    pub fn count_lookup(&mut self, key: &Key<'_>, exists: bool) {
        self.count_quiet_lookup(exists);
        if !exists && self.effects.listened.has(Classes::KEY_MISS) {
            self.report(key, Event::KEY_MISS, 0);
        }
    }

    /// The same without a report.
    #[inline]
    pub fn count_quiet_lookup(&mut self, exists: bool) {
        let count = if exists { &mut self.tally.found } else { &mut self.tally.missed };
        *count += 1;
    }

    /// Has the reads that follow count nothing: of keys that this run has counted.
    #[inline]
    pub fn end_counting_reads(&mut self) {
        self.effects.counts_reads = false;
    }

    /// Has the look-ups of several keys, which come next, wait for memory together.
    pub fn prefetch(&self, keys: &[Key<'_>]) {
        let table = self.keyspace().table_of(self.db);
        self.locked.prefetch_keys(table, keys);
    }

    /// The keyspace, for walks over slots.
    pub fn keyspace(&self) -> &'k Keyspace {
        self.locked.keyspace()
    }

    /// Keys of a database. Cost: none; counters.
    pub fn key_count(&self, db: u8) -> u64 {
        let table = self.keyspace().table_of(db);
        let not_added = self.tally.keys[table as usize];
        self.statistics.keys(table).saturating_add_signed(not_added)
    }

    /// The selected database, in the slot of `key`.
    #[inline]
    pub fn db(&mut self, key: &Key<'_>) -> Db<'_> {
        self.db_at(self.db, key)
    }

    /// Another database, in the slot of `key`.
    #[inline]
    pub fn db_at(&mut self, db: u8, key: &Key<'_>) -> Db<'_> {
        let table = self.locked.keyspace().table_of(db);
        Db::new(self.locked.slot(key.slot), table, self.now_ms, self.tally)
    }

    /// What is known of a key, without its value and without counting as an access.
    #[inline]
    pub fn peek(&mut self, key: &Key<'_>) -> Option<View<'_>> {
        self.db(key).into_view(key)
    }

    /// Whether a key exists.
    pub fn exists(&mut self, key: &Key<'_>) -> bool {
        self.peek(key).is_some()
    }

    /// The value of a key, counting as an access unless the client said NO-TOUCH.
    ///
    /// Errors: [`CommandError::NotResident`] when it is on flash and was not fetched.
    #[inline]
    pub fn read(&mut self, key: &Key<'_>) -> Result<Option<Value<'_>>, CommandError> {
        let (fetched, no_touch, counts) = (self.fetched, self.no_touch, self.effects.counts_reads);
        if counts && self.effects.listened.has(Classes::KEY_MISS) && !self.exists(key) {
            self.report(key, Event::KEY_MISS, 0);
        }
        let db = self.db(key);
        let found =
            if no_touch { db.into_quiet_read(key, counts) } else { db.into_read(key, counts) };
        let Some((view, tally)) = found else { return Ok(None) };
        let (bytes, source) = match view.stored {
            Stored::Hot(bytes) | Stored::Clean(bytes, _) => {
                tally.read_ram += 1;
                (bytes, None)
            }
            Stored::Cold(at, len) => match fetched.value_for_reply(at) {
                Some(value) => {
                    tally.read_flash += 1;
                    value
                }
                None => return Err(not_resident(key, at, len)),
            },
        };
        let kind = Kind::from_bits(view.kind);
        Ok(Some(Value { kind, expire_at_ms: view.expire_at_ms, bytes, source }))
    }

    /// The bytes of a string key, counting as an access.
    ///
    /// Errors: [`CommandError::WRONG_TYPE`], [`CommandError::NotResident`].
    #[inline]
    pub fn read_string(&mut self, key: &Key<'_>) -> Result<Option<&[u8]>, CommandError> {
        match self.read(key)? {
            None => Ok(None),
            Some(value) if value.kind.is_string() => Ok(Some(value.bytes)),
            Some(_) => Err(CommandError::WRONG_TYPE),
        }
    }

    /// Puts the value of a key into RAM if it was fetched, so that it can be changed.
    ///
    /// Errors: [`CommandError::NotResident`].
    pub fn make_resident(&mut self, key: &Key<'_>) -> Result<(), CommandError> {
        let Some(Stored::Cold(at, len)) = self.peek(key).map(|view| view.stored) else {
            return Ok(());
        };
        let Some(bytes) = self.fetched.value(at) else { return Err(not_resident(key, at, len)) };
        let copy = self.copy(bytes);
        let promoted = self.db(key).promote(key, at, copy.into_boxed_slice());
        assert!(promoted, "the slot is locked, so the value is where it was");
        self.tally.read_flash += 1;
        Ok(())
    }

    /// The buffer for the large value that the command makes; an empty one if there is none.
    pub fn take_spare(&mut self) -> Vec<u8> {
        std::mem::take(self.spare)
    }

    /// An empty buffer that has room for so many bytes: that for the large value, if it is large enough.
    pub fn take_room(&mut self, bytes: usize) -> Vec<u8> {
        let spare = self.take_spare();
        if spare.capacity() >= bytes {
            return spare;
        }
        // Not beside the other.
        drop(spare);
        let mut room = Vec::new();
        room.reserve_exact(bytes);
        room
    }

    pub(crate) fn copy(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut copy = self.take_room(bytes.len());
        copy.extend_from_slice(bytes);
        copy
    }

    /// Sets a string, whether the key exists or not, which is the caller's to report. Its encoding follows from the bytes, as when
    /// a client SETs it.
    #[inline]
    pub fn set_string(&mut self, key: &Key<'_>, bytes: &[u8], expiry: Expiry) {
        let kind = Kind::of_string(bytes);
        if self.spare.capacity() > 0 && bytes.len() >= SPARE_BYTES_MIN {
            let copy = self.copy(bytes);
            return self.set_string_vec(key, kind, copy, expiry);
        }
        self.db(key).put(key, kind.bits(), bytes, expiry);
    }

    /// The same from a buffer that it takes over, with the given kind.
    pub fn set_string_vec(&mut self, key: &Key<'_>, kind: Kind, bytes: Vec<u8>, expiry: Expiry) {
        self.db(key).put_vec(key, kind.bits(), bytes, expiry);
    }

    /// Changes a value that [`Cx::read`] or [`Cx::make_resident`] has found. Cost: a long value is
    /// not copied. Panics: if the key is missing or cold.
    pub fn update<R>(
        &mut self,
        key: &Key<'_>,
        change: impl FnOnce(&mut Kind, &mut Vec<u8>) -> R,
    ) -> Result<R, CommandError> {
        self.make_resident(key)?;
        let result = self.db(key).update(key, |bits, bytes| {
            let mut kind = Kind::from_bits(*bits);
            let result = change(&mut kind, bytes);
            *bits = kind.bits();
            result
        });
        Ok(result.expect("invariant: the handler found the key before it changes it"))
    }

    /// The bytes of a value that exists, to be changed in place (same length).
    pub fn value_mut(&mut self, key: &Key<'_>) -> Result<&mut [u8], CommandError> {
        self.make_resident(key)?;
        let table = self.locked.keyspace().table_of(self.db);
        let db = Db::new(self.locked.slot(key.slot), table, self.now_ms, self.tally);
        Ok(db.into_value_mut(key).expect("invariant: the handler found the key before"))
    }

    /// Removes a key, and reports that. False: it did not exist.
    pub fn remove(&mut self, key: &Key<'_>) -> bool {
        let removed = self.db(key).remove(key);
        if removed {
            self.report(key, Event::DEL, 1);
        }
        removed
    }
}

#[cold]
pub(crate) fn not_resident(key: &Key<'_>, at: FlashRef, value_len: u32) -> CommandError {
    let value = ColdValue { at, key_len: key.bytes.len() as u32, value_len };
    let values = smallvec::smallvec![value];
    CommandError::NotResident(Box::new(NotResident {
        key: key.bytes.into(),
        values,
        reply_bytes: 0,
        is_to_save: false,
    }))
}
