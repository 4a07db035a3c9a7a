//! A read of very many keys (MGET), in windows between which other clients have their turn.
//!
//! Only the slots of a few keys are held at a time, so a value may change after it was read. Therefore
//! each key is watched from then on, as by WATCH. When all have been read and none has changed, the
//! reply is what a run that holds every slot would answer at that moment. If one has changed, such a run
//! follows. This is optimistic concurrency control (Kung and Robinson, "On optimistic methods for
//! concurrency control", 1981).

use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

use command::{Flags, KeyAt, Waits, find_keys};
use keyspace::{Db, Key, Locked, PREFETCH_KEYS, WatchFlag};
use smallvec::SmallVec;

use crate::execution::dispatch::Pipeline;
use crate::execution::gather::wants_many;
use crate::execution::handler_run::{Caller, HandlerRun, Part, Reads, run_locked};
use crate::execution::need::args_bytes;
use crate::limits::{WATCHED_KEY_BYTES, WATCHERS_MAX};
use crate::session::Session;
use crate::state::registry::Run;
use crate::state::worker::Worker;

/// A reply that is read in windows. Its keys are watched until this is dropped.
pub(crate) struct ReadMany {
    worker: Rc<Worker>,
    /// Where the reply begins.
    reply_from: usize,
    keys: SmallVec<[KeyAt; 4]>,
    /// How many of them have been read.
    read: usize,
    /// Raised when one of those changes.
    changed: Arc<WatchFlag>,
    /// The slots in which keys are watched.
    watched: Vec<u16>,
    /// When the first value that was read expires, Unix ms.
    expires_ms: u64,
    reads: Reads,
    /// Ticks of the clock that its windows took.
    ticks: u64,
}

/// How far a read has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// There are keys left.
    More,
    /// All keys were read, and none has changed since.
    Done,
    /// A key has changed, or a value or memory is missing: the request is to be run on all keys at once.
    Failed,
}

impl ReadMany {
    /// Where the reply begins.
    pub(crate) fn reply_from(&self) -> usize {
        self.reply_from
    }

    /// Ticks of the clock that its windows took.
    pub(crate) fn ticks(&self) -> u64 {
        self.ticks
    }

    /// Counts what was read, once the reply is known to hold.
    pub(super) fn count_reads(&self, session: &Session) {
        self.reads.give_to(Caller::of(session), &mut session.worker.tally.borrow_mut());
    }

    /// Ends the watch of so many keys. False: none is watched any more.
    pub(crate) fn unwatch(&mut self, keys_max: usize) -> bool {
        let keyspace = &self.worker.server.tier.keyspace;
        let kept = self.watched.len().saturating_sub(keys_max);
        for slot in self.watched.drain(kept..) {
            keyspace.lock(slot).unwatch_all(&self.changed);
        }
        kept > 0
    }

    /// Whether what was read of all keys is what they hold now.
    fn holds(&self) -> bool {
        let clock = self.worker.server.tier.clock();
        !self.changed.is_raised() && clock.unix_ms() < self.expires_ms
    }
}

impl Drop for ReadMany {
    fn drop(&mut self) {
        self.unwatch(usize::MAX);
    }
}

impl Pipeline<'_> {
    /// Memory, in bytes, that the request under way takes besides its reply if it is read in windows.
    /// None: it cannot be.
    pub(super) fn watch_bytes(&self, keys: usize) -> Option<u64> {
        let request = self.batch.current()?;
        let args = self.batch.args(&request, self.input);
        let is_by_key = request.entry?.spec.flags.has(Flags::BY_KEY);
        let is_long = wants_many(self.session.server(), request.entry?, args);
        (is_by_key && is_long).then(|| keys as u64 * WATCHED_KEY_BYTES + args_bytes(args))
    }

    /// Begins to read the request under way.
    pub(crate) fn begin_read_many(&mut self) -> Option<ReadMany> {
        let request = self.batch.current()?;
        let mut keys = SmallVec::new();
        let args = self.batch.args(&request, self.input);
        find_keys(request.entry?.spec.keys, args, &mut keys);
        self.fetched.rewind();
        self.reply.set_protocol(self.session.protocol);
        let worker = self.session.worker.clone();
        Some(ReadMany {
            reply_from: self.reply.len(),
            watched: Vec::with_capacity(keys.len()),
            keys,
            read: 0,
            changed: Arc::default(),
            expires_ms: u64::MAX,
            reads: Reads::default(),
            ticks: 0,
            worker,
        })
    }

    /// Reads the next keys, as many as before others have their turn.
    pub(crate) fn read_window(&mut self, read: &mut ReadMany) -> Progress {
        let start_ticks = self.session.server().clock.raw();
        let progress = self.read_pieces(read);
        read.ticks += self.session.server().clock.raw() - start_ticks;
        self.count_turn(start_ticks);
        self.session.worker.after_batch();
        progress
    }

    fn read_pieces(&mut self, read: &mut ReadMany) -> Progress {
        let end = read.read + self.session.server().slices.gathered_keys_max;
        let end = end.min(read.keys.len());
        while read.read < end {
            let piece = read.read..end.min(read.read + PREFETCH_KEYS);
            if read.changed.is_raised() || self.read_locked(read, piece).is_none() {
                return Progress::Failed;
            }
        }
        match end == read.keys.len() {
            false => Progress::More,
            true if read.holds() => Progress::Done,
            true => Progress::Failed,
        }
    }

    /// Reads and watches these keys, with their slots held. None: a value is missing, or memory, or a
    /// slot has too many watched keys.
    fn read_locked(&mut self, read: &mut ReadMany, piece: Range<usize>) -> Option<()> {
        let request = self.batch.current()?;
        let Run::Keys(handler) = request.entry?.run else { return None };
        let args = self.batch.args(&request, self.input);
        let part = if piece.start == 0 { Part::First(read.keys.len()) } else { Part::Later };
        let keys = read.keys[piece.clone()].iter();
        let keys = keys.filter_map(|at| Some(Key::new(args.get(at.index)?)));
        let keys: SmallVec<[Key<'_>; PREFETCH_KEYS]> = keys.collect();
        let worker = read.worker.clone();
        let keyspace = &*worker.server.tier.keyspace;
        keys.iter().for_each(|key| keyspace.prefetch(key.slot));
        let mut locked = keyspace.lock_many(keys.iter().map(|key| key.slot).collect());
        let before = Reads::of(&worker.tally.borrow());
        let run = HandlerRun {
            handler,
            keys: &keys,
            part,
            args,
            fetched: self.fetched,
            reply_bytes_max: self.attempt.reply_bytes_max.saturating_add(read.reply_from),
            leaves_gaps: false,
            copies_large: false,
            spare: self.spare,
            is_write: false,
            waits: Waits::Never,
            saved_bytes: None,
            record: None,
        };
        run_locked(Caller::of(self.session), &mut locked, run, self.reply).ok()?;
        read.reads.take_from(&mut worker.tally.borrow_mut(), before);
        read.read = piece.end;
        keys.iter().try_for_each(|key| self.watch(read, &mut locked, key))
    }

    /// Watches a key that was read. None: its slot has too many that are watched.
    fn watch(&self, read: &mut ReadMany, locked: &mut Locked<'_>, key: &Key<'_>) -> Option<()> {
        // SWAPDB would need the slot: nobody exchanges tables now, and watched keys follow theirs.
        let table = locked.keyspace().table_of(self.session.db);
        let slot = locked.slot(key.slot);
        if slot.watchers() >= WATCHERS_MAX {
            return None;
        }
        if slot.may_have_volatile() {
            let mut tally = read.worker.tally.borrow_mut();
            let mut db = Db::new(slot, table, self.session.now_ms, &mut tally);
            let expire_at_ms = db.peek(key).map_or(0, |view| view.expire_at_ms);
            if expire_at_ms != 0 {
                read.expires_ms = read.expires_ms.min(expire_at_ms);
            }
            read.worker.server.tier.tell(&mut tally);
        }
        locked.slot(key.slot).watch(table, key.bytes, &read.changed);
        read.watched.push(key.slot);
        Some(())
    }

    /// Takes back uses of keys that a failed read has counted, for the run that follows counts them too: as
    /// many as before others have their turn. False: none is left.
    pub(crate) fn take_back_uses(&mut self, read: &mut ReadMany) -> bool {
        let Some(request) = self.batch.current() else { return false };
        let args = self.batch.args(&request, self.input);
        let keyspace = &*read.worker.server.tier.keyspace;
        let first = read.read.saturating_sub(self.session.server().slices.gathered_keys_max);
        if !self.session.no_touch {
            let mut tally = read.worker.tally.borrow_mut();
            for key in read.keys[first..read.read].iter().filter_map(|at| args.get(at.index)) {
                let key = Key::new(key);
                let mut slot = keyspace.lock(key.slot);
                let table = keyspace.table_of(self.session.db);
                Db::new(&mut slot, table, 0, &mut tally).take_back_access(&key);
            }
        }
        read.read = first;
        first > 0
    }
}
