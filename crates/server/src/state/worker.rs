//! What the connections of one worker thread share.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use flash::EngineError;
use flash::Position;
use keyspace::{DetachedTable, Tally};
use tier::{Freeing, TierWorker};
use tokio::sync::{Notify, Semaphore};

use crate::limits::{
    BUFFERS_KEPT_MAX, BUFFERS_KEPT_MIN, BUFFERS_LENT_MAX, BUFFERS_SHIFT, FREE_AT_ONCE_MAX,
    READ_BUFFER_BYTES, RECORD_BUFFER_BYTES_MAX,
};
use crate::state::batch_lists::BatchLists;
use crate::state::client_memory::limit_bytes;
use crate::state::clients::Client;
use crate::state::cold_fields::ColdFields;
use crate::state::deadlines::Deadlines;
use crate::state::prefetch::PrefetchQueue;
use crate::state::server::Server;
use crate::state::stats::WorkerStats;
use crate::state::turn::Turn;

/// One worker of the server. It needs no runtime: `network` runs it in one.
pub(crate) struct Worker {
    pub(crate) server: Arc<Server>,
    pub(crate) index: usize,
    pub(crate) tier: TierWorker,
    pub(crate) stats: Arc<WorkerStats>,
    /// What the batch under way has changed.
    pub(crate) tally: RefCell<Tally>,
    /// What its connections are about to look up.
    pub(crate) prefetch: PrefetchQueue,
    /// Told after every round of upkeep: the only time that passes for a worker's tasks.
    pub(crate) upkeep_tick: Notify,
    /// Tables that a FLUSH has detached, to be freed once no slot is held.
    detached: RefCell<Vec<DetachedTable>>,
    /// Slots whose values are to be demoted behind the command under way.
    to_demote: RefCell<Vec<u16>>,
    /// Buffers that connections borrow while they have bytes to keep, so that 10,000 idle
    /// connections cost none.
    buffers: RefCell<Vec<Vec<u8>>>,
    /// Spare ones to keep.
    buffers_kept_max: Cell<usize>,
    /// How many of them connections have.
    buffers_lent: Cell<usize>,
    /// Room for requests that connections borrow while they have some.
    batch_lists: RefCell<Vec<BatchLists>>,
    pub(crate) turn: Turn,
    /// When its clients that wait give up.
    pub(crate) deadlines: Deadlines,
    /// Hashes on flash in which fields have expired.
    pub(crate) cold_fields: ColdFields,
    /// Held by the one request that gathers needs in several windows.
    pub(crate) gathers: Semaphore,
    /// Where the last record of the journal ends that a client of it has made.
    journaled: Cell<Position>,
    /// What the next record is made in.
    record_buffer: Cell<Vec<u8>>,
}

impl Worker {
    /// Worker `index` of the server. Errors: its side of the flash engine could not be made.
    pub(crate) fn new(server: Arc<Server>, index: usize) -> Result<Rc<Worker>, EngineError> {
        let tier = TierWorker::new(server.tier.clone(), index)?;
        let stats = server.stats[index].clone();
        let turn = Turn::new(&server.clock, &server.slices);
        Ok(Rc::new(Worker {
            server,
            index,
            tier,
            stats,
            tally: RefCell::default(),
            prefetch: PrefetchQueue::default(),
            upkeep_tick: Notify::new(),
            detached: RefCell::default(),
            to_demote: RefCell::default(),
            buffers: RefCell::default(),
            buffers_kept_max: Cell::new(BUFFERS_KEPT_MIN),
            buffers_lent: Cell::new(0),
            batch_lists: RefCell::default(),
            turn,
            deadlines: Deadlines::default(),
            cold_fields: ColdFields::default(),
            gathers: Semaphore::new(1),
            journaled: Cell::default(),
            record_buffer: Cell::default(),
        }))
    }

    /// Adds what the batch under way has changed so far to the shared counters, for a command that
    /// reads them.
    pub(crate) fn count_changes(&self) {
        self.server.tier.add_tally(&mut self.tally.borrow_mut());
    }

    /// Ends a batch, or a part of one before a wait: what it has changed counts, a little is
    /// demoted when memory is short, and detached tables are freed. No slot may be held.
    #[inline]
    pub(crate) fn after_batch(&self) {
        self.tier.after_batch(&mut self.tally.borrow_mut());
        self.free_detached();
    }

    /// Publishes a message, and returns how many clients it was for. To be called when a command has run,
    /// with or without slots locked. Cost: a load when nobody listens to anything.
    #[inline]
    pub(crate) fn publish(&self, channel: &[u8], message: &[u8]) -> usize {
        self.server.pubsub.publish(&self.server, Some(self.index), channel, message)
    }

    /// Keeps tables whose records are to be freed when the slots are unlocked.
    pub(crate) fn free_later(&self, tables: Vec<DetachedTable>) {
        self.detached.borrow_mut().extend(tables);
    }

    /// Frees tables that were detached, on a thread of its own: millions of records take seconds.
    #[inline]
    fn free_detached(&self) {
        if !self.detached.borrow().is_empty() {
            self.start_freeing();
        }
    }

    #[cold]
    fn start_freeing(&self) {
        let tables = self.detached.take();
        let keys: usize = tables.iter().map(DetachedTable::len).sum();
        let tier = self.server.tier.clone();
        let freeing = Freeing::new(&tier);
        let free = move || {
            let _freeing = freeing;
            let mut tally = Tally::default();
            for table in tables {
                table.free(&mut tally);
                tier.add_tally(&mut tally);
            }
        };
        if keys <= FREE_AT_ONCE_MAX {
            return free();
        }
        if let Err(error) = self.server.threads.start("free", Box::new(free)) {
            // The tables went with the closure: freed, but still counted.
            tracing::error!(%error, "cannot start a thread to free a flushed database");
        }
    }

    /// Whether what a command has worked on is to be demoted behind it (`DEBUG DEMOTE-AFTER-COMMAND`).
    #[inline]
    pub(crate) fn demotes_after_command(&self) -> bool {
        self.server.demotes_after_command.load(Ordering::Relaxed)
    }

    /// Keeps slots that a command has worked on, to be demoted behind it.
    #[cold]
    pub(crate) fn demote_later(&self, slots: impl Iterator<Item = u16>) {
        self.to_demote.borrow_mut().extend(slots);
    }

    /// Whether there are such slots.
    #[inline]
    pub(crate) fn has_to_demote(&self) -> bool {
        !self.to_demote.borrow().is_empty()
    }

    /// Demotes them. No slot may be held.
    pub(crate) async fn demote_now(&self) {
        if !self.has_to_demote() {
            return;
        }
        let mut slots = self.to_demote.take();
        slots.sort_unstable();
        slots.dedup();
        let demoted = self.tier.demote_slots(slots.into_iter()).await;
        if let Some(reason) = demoted.stopped {
            tracing::warn!(?reason, "values stay in RAM behind a command");
        }
    }

    /// Has a client's connection look around: there is something for it.
    pub(crate) fn tell(&self, client: &Arc<Client>) {
        if client.worker == self.index {
            return client.wake();
        }
        let post = &self.server.posts[client.worker];
        post.add(client.clone());
        post.tell();
    }

    /// Where the last record of the journal ends that a client of it has made.
    pub(crate) fn journaled(&self) -> Position {
        self.journaled.get()
    }

    pub(crate) fn note_journaled(&self, position: Position) {
        self.journaled.set(position);
    }

    /// A buffer to make a record of the journal in.
    pub(crate) fn take_record_buffer(&self) -> Vec<u8> {
        self.record_buffer.take()
    }

    /// Gives it back. One that has grown much is let go.
    pub(crate) fn give_record_buffer(&self, buffer: Vec<u8>) {
        if buffer.capacity() <= RECORD_BUFFER_BYTES_MAX {
            self.record_buffer.set(buffer);
        }
    }

    /// Whether connections have so many buffers that one which only keeps the start of a request
    /// is to give its own back.
    pub(crate) fn lacks_buffers(&self) -> bool {
        self.buffers_lent.get() > BUFFERS_LENT_MAX
    }

    /// Whether connections have so many buffers that one whose request waits is to give its own back.
    #[inline]
    pub(crate) fn lacks_waiting_buffers(&self) -> bool {
        let lent = self.buffers_lent.get();
        lent > BUFFERS_LENT_MAX.min(self.server.slices.waiting_buffers_max)
            && lent > self.waiting_buffers_max()
    }

    /// Buffers that connections may keep while their requests wait.
    fn waiting_buffers_max(&self) -> usize {
        self.server.slices.waiting_buffers_max.min(self.buffers_share())
    }

    /// Keeps as many spare buffers from now on as come to its share, which follows the settings and how many
    /// connections there are.
    pub(crate) fn fit_buffers(&self) {
        let kept_max = self.buffers_share().clamp(BUFFERS_KEPT_MIN, BUFFERS_KEPT_MAX);
        self.buffers_kept_max.set(kept_max);
        self.buffers.borrow_mut().truncate(kept_max);
    }

    /// How many buffers come to the worker's share of a part of what clients may take. Cost: some loads and a division.
    fn buffers_share(&self) -> usize {
        let server = &*self.server;
        let workers = server.tier.workers as u64;
        let share = limit_bytes(server).map_or(u64::MAX, |limit| limit >> BUFFERS_SHIFT);
        (share / (READ_BUFFER_BYTES as u64 * workers)) as usize
    }

    /// Whether connections have no more buffers than a worker keeps at most: another one may hold its reply
    /// while others run.
    pub(crate) fn has_buffers(&self) -> bool {
        self.buffers_lent.get() <= BUFFERS_KEPT_MAX
    }

    /// A connection has so many buffers more, or less.
    pub(crate) fn note_lent(&self, count: i32) {
        let lent = self.buffers_lent.get().checked_add_signed(count as isize);
        self.buffers_lent.set(lent.expect("invariant: each tells of its own"));
    }

    /// How many buffers connections have.
    #[cfg(test)]
    pub(crate) fn buffers_lent(&self) -> usize {
        self.buffers_lent.get()
    }

    /// How many spare ones there are.
    #[cfg(test)]
    pub(crate) fn buffers_kept(&self) -> usize {
        self.buffers.borrow().len()
    }

    /// An empty buffer to read into.
    pub(crate) fn take_buffer(&self) -> Vec<u8> {
        let kept = self.buffers.borrow_mut().pop();
        kept.unwrap_or_else(|| Vec::with_capacity(READ_BUFFER_BYTES))
    }

    /// Room for the requests of a batch.
    #[inline]
    pub(crate) fn take_batch_lists(&self) -> BatchLists {
        self.batch_lists.borrow_mut().pop().unwrap_or_default()
    }

    /// Gives it back.
    #[inline]
    pub(crate) fn give_batch_lists(&self, lists: BatchLists) {
        let mut kept = self.batch_lists.borrow_mut();
        if kept.len() < BUFFERS_KEPT_MAX {
            kept.push(lists);
        }
    }

    /// Gives a buffer back. One that has grown is let go.
    pub(crate) fn give_buffer(&self, mut buffer: Vec<u8>) {
        let mut buffers = self.buffers.borrow_mut();
        if buffer.capacity() == READ_BUFFER_BYTES && buffers.len() < self.buffers_kept_max.get() {
            buffer.clear();
            buffers.push(buffer);
        }
    }
}
