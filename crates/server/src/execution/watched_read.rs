//! A reply that is read in pieces, between which other clients have their turn.
//!
//! Only the slots of a piece are held at a time, so a value may change after it was read. Therefore each key is
//! watched from then on, as by WATCH. When all has been read and nothing has changed, the reply is what a run
//! that holds every slot would answer at that moment. If something has changed, such a run follows. This is
//! optimistic concurrency control (Kung and Robinson, "On optimistic methods for concurrency control", 1981).

use std::rc::Rc;
use std::sync::Arc;

use keyspace::{Db, Key, Locked, WatchFlag};

use crate::execution::handler_run::{Caller, Reads};
use crate::limits::WATCHERS_MAX;
use crate::session::Session;
use crate::state::worker::Worker;

/// What is known of such a reply. Its keys are watched until this is dropped.
pub(crate) struct WatchedRead {
    worker: Rc<Worker>,
    /// Where the reply begins.
    reply_from: usize,
    /// Raised when a key that is watched changes.
    changed: Arc<WatchFlag>,
    /// The slots in which keys are watched.
    watched: Vec<u16>,
    /// When the first key that was read expires, Unix ms.
    expires_ms: u64,
    pub(super) reads: Reads,
    /// Ticks of the clock that its pieces took.
    ticks: u64,
}

impl WatchedRead {
    /// A reply that begins at `reply_from`, of so many keys.
    pub(super) fn new(worker: Rc<Worker>, reply_from: usize, keys: usize) -> WatchedRead {
        WatchedRead {
            worker,
            reply_from,
            changed: Arc::default(),
            watched: Vec::with_capacity(keys),
            expires_ms: u64::MAX,
            reads: Reads::default(),
            ticks: 0,
        }
    }

    pub(super) fn worker(&self) -> &Rc<Worker> {
        &self.worker
    }

    /// Where the reply begins.
    pub(crate) fn reply_from(&self) -> usize {
        self.reply_from
    }

    /// Ticks of the clock that its pieces took.
    pub(crate) fn ticks(&self) -> u64 {
        self.ticks
    }

    /// Counts the time since as that of a piece.
    pub(super) fn add_ticks(&mut self, start_ticks: u64) {
        self.ticks += self.worker.server.clock.raw() - start_ticks;
    }

    /// Counts what was read, once the reply is known to hold.
    pub(super) fn count_reads(&self, session: &Session) {
        self.reads.give_to(Caller::of(session), &mut session.worker.tally.borrow_mut());
    }

    /// Whether a key that is watched has changed. With its slot held that is what it is until the slot is let go.
    pub(super) fn has_changed(&self) -> bool {
        self.changed.is_raised()
    }

    /// Whether what was read of all keys is what they hold now.
    pub(super) fn holds(&self) -> bool {
        let clock = self.worker.server.tier.clock();
        !self.has_changed() && clock.unix_ms() < self.expires_ms
    }

    /// Watches a key that was read. None: its slot has too many that are watched.
    pub(super) fn watch(
        &mut self,
        locked: &mut Locked<'_>,
        key: &Key<'_>,
        session: &Session,
    ) -> Option<()> {
        // SWAPDB would need the slot: nobody exchanges tables now, and watched keys follow theirs.
        let table = locked.keyspace().table_of(session.db);
        let slot = locked.slot(key.slot);
        if slot.watchers() >= WATCHERS_MAX {
            return None;
        }
        if slot.may_have_volatile() {
            let mut tally = self.worker.tally.borrow_mut();
            let mut db = Db::new(slot, table, session.now_ms, &mut tally);
            let expire_at_ms = db.peek(key).map_or(0, |view| view.expire_at_ms);
            if expire_at_ms != 0 {
                self.expires_ms = self.expires_ms.min(expire_at_ms);
            }
            self.worker.server.tier.tell(&mut tally);
        }
        locked.slot(key.slot).watch(table, key.bytes, &self.changed);
        self.watched.push(key.slot);
        Some(())
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
}

impl Drop for WatchedRead {
    fn drop(&mut self) {
        self.unwatch(usize::MAX);
    }
}
