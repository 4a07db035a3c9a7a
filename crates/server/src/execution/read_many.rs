//! A read of very many keys (MGET), in windows between which other clients have their turn ([`WatchedRead`]).

use std::ops::Range;

use command::collection::Walk;
use command::{Flags, KeyAt, Waits, find_keys};
use keyspace::{Db, Key, PREFETCH_KEYS};
use smallvec::SmallVec;

use crate::execution::dispatch::Pipeline;
use crate::execution::gather::wants_many;
use crate::execution::handler_run::{Caller, HandlerRun, Part, Reads, run_locked};
use crate::execution::need::args_bytes;
use crate::execution::watched_read::WatchedRead;
use crate::limits::WATCHED_KEY_BYTES;
use crate::state::registry::Run;

/// A reply with the values of keys that are read in windows.
pub(crate) struct ReadMany {
    pub(crate) watched: WatchedRead,
    keys: SmallVec<[KeyAt; 4]>,
    /// How many of them have been read.
    read: usize,
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
        let watched = WatchedRead::new(worker, self.reply.len(), keys.len());
        Some(ReadMany { watched, keys, read: 0 })
    }

    /// Reads the next keys, as many as before others have their turn.
    pub(crate) fn read_window(&mut self, read: &mut ReadMany) -> Progress {
        let start_ticks = self.session.server().clock.raw();
        let progress = self.read_pieces(read);
        read.watched.add_ticks(start_ticks);
        self.count_turn(start_ticks);
        self.session.worker.after_batch();
        progress
    }

    fn read_pieces(&mut self, read: &mut ReadMany) -> Progress {
        let end = read.read + self.session.server().slices.gathered_keys_max;
        let end = end.min(read.keys.len());
        while read.read < end {
            let piece = read.read..end.min(read.read + PREFETCH_KEYS);
            if read.watched.has_changed() || self.read_locked(read, piece).is_none() {
                return Progress::Failed;
            }
        }
        match end == read.keys.len() {
            false => Progress::More,
            true if read.watched.holds() => Progress::Done,
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
        let worker = read.watched.worker().clone();
        let keyspace = &*worker.server.tier.keyspace;
        keys.iter().for_each(|key| keyspace.prefetch(key.slot));
        let mut locked = keyspace.lock_many(keys.iter().map(|key| key.slot).collect());
        let before = Reads::of(&worker.tally.borrow());
        let reply_from = read.watched.reply_from();
        let run = HandlerRun {
            handler,
            keys: &keys,
            part,
            args,
            fetched: self.fetched,
            reply_bytes_max: self.attempt.reply_bytes_max.saturating_add(reply_from),
            leaves_gaps: false,
            copies_large: false,
            spare: self.spare,
            is_write: false,
            waits: Waits::Never,
            walk: Walk::Whole,
            saved_bytes: None,
            record: None,
        };
        run_locked(Caller::of(self.session), &mut locked, run, self.reply).ok()?;
        read.watched.reads.take_from(&mut worker.tally.borrow_mut(), before);
        read.read = piece.end;
        keys.iter().try_for_each(|key| read.watched.watch(&mut locked, key, self.session))
    }

    /// Takes back uses of keys that a failed read has counted, for the run that follows counts them too: as
    /// many as before others have their turn. False: none is left.
    pub(crate) fn take_back_uses(&mut self, read: &mut ReadMany) -> bool {
        let Some(request) = self.batch.current() else { return false };
        let args = self.batch.args(&request, self.input);
        let worker = read.watched.worker();
        let keyspace = &*worker.server.tier.keyspace;
        let first = read.read.saturating_sub(self.session.server().slices.gathered_keys_max);
        if !self.session.no_touch {
            let mut tally = worker.tally.borrow_mut();
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
