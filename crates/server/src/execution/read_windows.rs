//! A read of a large collection (HGETALL, LRANGE and the like), in windows between which other clients have their
//! turn ([`WatchedRead`]). Leaves on flash are fetched for one window at a time, so what is fetched takes little
//! memory besides the reply, and the drive serves others in between.

use command::collection::{Walk, Window};
use command::{CommandError, Flags, Waits};
use keyspace::{Db, Key, SlotState};
use tier::{Want, sort_wants};

use crate::execution::dispatch::{Attempt, Pipeline, wants_of};
use crate::execution::handler_run::{Caller, HandlerRun, Part, Reads, run_locked};
use crate::execution::watched_read::WatchedRead;
use crate::limits::{ATTEMPTS_MAX, READ_BUFFER_BYTES};
use crate::state::registry::Run;
use crate::state::slices::Slices;

/// Windows that a walk has at least to be cut into them.
const WINDOWS_MIN: u64 = 2;

/// A reply with the elements of a collection that is read in windows.
pub(crate) struct ReadWindows {
    pub(crate) watched: WatchedRead,
    /// Where the next window begins: so many elements stand in front of it.
    next: u64,
    /// Whether the first has been read, which counts as a use of the key.
    has_begun: bool,
    /// Runs on this window that lacked values.
    attempts: u32,
}

/// How far a read has come.
pub(crate) enum Walked {
    /// There are windows left.
    More,
    /// The next window needs these values.
    Lacks(Vec<Want>),
    /// All was read, and the collection has not changed since.
    Done,
    /// It has changed, or there is no memory: the request is to be run on all of it at once.
    Failed,
}

/// How far a run of a command goes that was granted so much memory: in windows it is run on more than that, if it can
/// be. A reply that need not be asked for is not cut: very many clients would have one unfinished that nobody counts.
#[inline]
pub(super) fn first_walk(slices: &Slices, flags: Flags, attempt: Attempt) -> Walk<'static> {
    let is_granted = attempt.reply_granted > slices.reply_bytes_free;
    match is_granted && attempt.may_be_cut && flags.has(Flags::IN_WINDOWS) {
        true => Walk::UpTo(WINDOWS_MIN * slices.walked_bytes_max),
        false => Walk::Whole,
    }
}

impl Pipeline<'_> {
    /// Begins to read the collection of the request under way.
    pub(crate) fn begin_read_windows(&mut self) -> ReadWindows {
        self.reply.set_protocol(self.session.protocol);
        let watched = WatchedRead::new(self.session.worker.clone(), self.reply.len(), 1);
        ReadWindows { watched, next: 0, has_begun: false, attempts: 0 }
    }

    /// Reads the next window.
    pub(crate) fn walk_window(&mut self, read: &mut ReadWindows) -> Walked {
        let start_ticks = self.session.server().clock.raw();
        let walked = self.walk_locked(read).unwrap_or(Walked::Failed);
        read.watched.add_ticks(start_ticks);
        self.count_turn(start_ticks);
        self.session.worker.after_batch();
        walked
    }

    /// None: it has changed, or lacks too much, or failed.
    fn walk_locked(&mut self, read: &mut ReadWindows) -> Option<Walked> {
        let request = self.batch.current()?;
        let Run::Keys(handler) = request.entry?.run else { return None };
        let args = self.batch.args(&request, self.input);
        let key = request.key(args)?;
        let worker = read.watched.worker().clone();
        let server = &worker.server;
        let mut locked = server.tier.keyspace.lock_one(key.slot);
        if read.watched.has_changed() {
            return None;
        }
        let is_first = !read.has_begun;
        let reply_from = read.watched.reply_from();
        let bytes_max = self.attempt.reply_bytes_max.saturating_add(reply_from);
        let window = Window::new(read.next, server.slices.walked_bytes_max);
        let (length, before) = (self.reply.len(), Reads::of(&worker.tally.borrow()));
        let run = HandlerRun {
            handler,
            keys: std::slice::from_ref(&key),
            part: if is_first { Part::First(1) } else { Part::Later },
            args,
            fetched: self.fetched,
            // What the whole reply takes has been asked for.
            reply_bytes_max: if is_first { bytes_max } else { usize::MAX },
            leaves_gaps: false,
            copies_large: false,
            spare: self.spare,
            is_write: false,
            waits: Waits::Never,
            walk: Walk::Window(&window),
            saved_bytes: None,
            record: None,
        };
        let caller = Caller { large_leaves: None, ..Caller::of(self.session) };
        let frequency = frequency(caller, locked.slot(key.slot), &key);
        let result = run_locked(caller, &mut locked, run, self.reply);
        if !is_first {
            // It is one use of the key, however many windows there are.
            set_frequency(caller, locked.slot(key.slot), &key, frequency);
        }
        match result {
            Ok(()) => {}
            Err(CommandError::NotResident(missing)) => {
                self.reply.truncate(length);
                let mut wants = wants_of(&server.tier, &missing.values);
                sort_wants(&mut wants);
                return read.lacks(wants, |want| self.fetched.failure(want.record).is_some());
            }
            Err(_) => return None,
        }
        if self.reply.len() > bytes_max {
            return None;
        }
        read.watched.reads.take_from(&mut worker.tally.borrow_mut(), before);
        read.has_begun = true;
        if is_first {
            read.watched.watch(&mut locked, &key, self.session)?;
        } else {
            read.watched.reads.count_key_once();
        }
        read.attempts = 0;
        Some(match window.next() {
            Some(next) => {
                read.next = next;
                Walked::More
            }
            None if read.watched.holds() => Walked::Done,
            None => Walked::Failed,
        })
    }

    /// Takes back the use of the key that a failed read has counted, for the run that follows counts it too.
    pub(crate) fn take_back_walk(&self, read: &ReadWindows) {
        let Some(request) = self.batch.current() else { return };
        let Some(key) = request.key(self.batch.args(&request, self.input)) else { return };
        if read.has_begun && !self.session.no_touch {
            let worker = read.watched.worker();
            let keyspace = &worker.server.tier.keyspace;
            let table = keyspace.table_of(self.session.db);
            let mut tally = worker.tally.borrow_mut();
            Db::new(&mut keyspace.lock(key.slot), table, 0, &mut tally).take_back_access(&key);
        }
    }
}

/// How often a key was used lately.
fn frequency(caller: Caller<'_>, slot: &mut SlotState, key: &Key<'_>) -> u8 {
    let table = caller.worker.server.tier.keyspace.table_of(caller.db);
    let mut tally = caller.worker.tally.borrow_mut();
    Db::new(slot, table, caller.now_ms, &mut tally).frequency(key).unwrap_or(0)
}

fn set_frequency(caller: Caller<'_>, slot: &mut SlotState, key: &Key<'_>, frequency: u8) {
    let table = caller.worker.server.tier.keyspace.table_of(caller.db);
    let mut tally = caller.worker.tally.borrow_mut();
    Db::new(slot, table, caller.now_ms, &mut tally).set_frequency(key, frequency);
}

impl ReadWindows {
    /// What a window lacks. None: it cannot be fetched, or is more than read buffers hold, which count already, or
    /// has been fetched in vain too often.
    fn lacks(&mut self, wants: Vec<Want>, has_failed: impl Fn(&Want) -> bool) -> Option<Walked> {
        self.attempts += 1;
        let bytes: u64 = wants.iter().map(|want| u64::from(want.value_len)).sum();
        let fits = bytes <= 2 * READ_BUFFER_BYTES as u64;
        let may_go_on = self.attempts < ATTEMPTS_MAX && fits && !wants.iter().any(has_failed);
        may_go_on.then_some(Walked::Lacks(wants))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Thousands of clients would each have a reply that nobody counts, which a whole run writes at once.
    #[test]
    fn only_a_reply_that_was_granted_memory_is_cut() {
        let slices = Slices::default();
        let cut = |reply_granted, may_be_cut, flags| {
            let attempt = Attempt {
                number: 1,
                reply_bytes_max: usize::MAX,
                reply_granted,
                leaves_gaps: false,
                may_be_cut,
            };
            matches!(first_walk(&slices, flags, attempt), Walk::UpTo(_))
        };
        let free = slices.reply_bytes_free;
        assert!(cut(free + 1, true, Flags::IN_WINDOWS));
        assert!(!cut(free, true, Flags::IN_WINDOWS));
        assert!(!cut(free + 1, false, Flags::IN_WINDOWS));
        assert!(!cut(free + 1, true, Flags::READONLY));
    }
}
