//! A worker thread: its runtime, its connections, its share of the tier.

use std::cell::RefCell;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;

use anyhow::Context;
use keyspace::{Cleared, Tally};
use tier::TierWorker;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::runtime::LocalOptions;
use tokio::sync::Notify;
use tokio::sync::mpsc::Receiver;
use tokio::task::spawn_local;

use crate::connection::Connection;
use crate::cron::{UPKEEP_EVERY, upkeep};
use crate::limits::{BUFFERS_KEPT_MAX, FREE_AT_ONCE_MAX, READ_BUFFER_BYTES};
use crate::listener::Accepted;
use crate::lookahead::Lookahead;
use crate::pulse::Pulse;
use crate::server::Server;
use crate::stats::WorkerStats;

/// What the connections of one thread share.
pub(crate) struct Worker {
    pub(crate) server: Arc<Server>,
    pub(crate) index: usize,
    pub(crate) tier: TierWorker,
    pub(crate) stats: Arc<WorkerStats>,
    /// What the batch under way has changed.
    pub(crate) tally: RefCell<Tally>,
    /// What its connections are about to look up.
    pub(crate) lookahead: Lookahead,
    /// Told after every round of upkeep: the only time that passes for a worker's tasks.
    pub(crate) beat: Notify,
    /// Tables that FLUSHALL has emptied, to be freed once no slot is held.
    cleared: RefCell<Vec<Cleared>>,
    /// Buffers that connections borrow while they have bytes to keep, so that 10,000 idle
    /// connections cost none.
    buffers: RefCell<Vec<Vec<u8>>>,
}

impl Worker {
    /// Keeps tables whose records are to be freed when the slots are unlocked.
    pub(crate) fn free_later(&self, tables: Vec<Cleared>) {
        self.cleared.borrow_mut().extend(tables);
    }

    /// Frees tables that were cleared, on a thread of its own: millions of records take seconds.
    /// No slot may be held.
    #[inline]
    pub(crate) fn free_cleared(&self) {
        if !self.cleared.borrow().is_empty() {
            self.start_freeing();
        }
    }

    #[cold]
    fn start_freeing(&self) {
        let tables = self.cleared.take();
        let keys: usize = tables.iter().map(Cleared::len).sum();
        let tier = self.server.tier.clone();
        let free = move || {
            let mut tally = Tally::default();
            for table in tables {
                table.free(&mut tally);
                tier.publish(&mut tally);
            }
        };
        if keys <= FREE_AT_ONCE_MAX {
            return free();
        }
        if let Err(error) = std::thread::Builder::new().name("free".into()).spawn(free) {
            // The tables went with the closure: freed, but still counted.
            tracing::error!(%error, "cannot start a thread to free a cleared database");
        }
    }
    /// An empty buffer to read into.
    pub(crate) fn take_buffer(&self) -> Vec<u8> {
        let kept = self.buffers.borrow_mut().pop();
        kept.unwrap_or_else(|| Vec::with_capacity(READ_BUFFER_BYTES))
    }

    /// Gives a buffer back. One that has grown is let go.
    pub(crate) fn give_buffer(&self, mut buffer: Vec<u8>) {
        let mut buffers = self.buffers.borrow_mut();
        if buffer.capacity() == READ_BUFFER_BYTES && buffers.len() < BUFFERS_KEPT_MAX {
            buffer.clear();
            buffers.push(buffer);
        }
    }
}

/// Runs a worker until the server stops. Errors: its runtime or its engine could not be made.
pub(crate) fn run(
    server: Arc<Server>,
    index: usize,
    accepted: Receiver<Accepted>,
) -> anyhow::Result<()> {
    // Without timers: see `pulse`.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .build_local(LocalOptions::default())
        .context("cannot make a worker's runtime")?;
    let tier = TierWorker::new(server.tier.clone(), index)?;
    let stats = server.stats[index].clone();
    let worker = Rc::new(Worker {
        server,
        index,
        tier,
        stats,
        tally: RefCell::default(),
        lookahead: Lookahead::default(),
        beat: Notify::new(),
        cleared: RefCell::default(),
        buffers: RefCell::default(),
    });
    runtime.block_on(serve(worker, accepted))
}

async fn serve(worker: Rc<Worker>, mut accepted: Receiver<Accepted>) -> anyhow::Result<()> {
    if let Some(fd) = worker.tier.wake_fd().context("cannot watch the flash device")? {
        let watched =
            crate::wake::watch(fd, Interest::READABLE).context("cannot watch the flash device")?;
        spawn_local(reap(worker.clone(), watched));
        let submitting = worker.clone();
        spawn_local(async move { submitting.tier.submitter().await });
    }
    let pulse = Pulse::new(UPKEEP_EVERY).context("cannot make a timer")?;
    spawn_local(upkeep(worker.clone(), pulse));
    loop {
        tokio::select! {
            biased;
            () = worker.server.stopped() => return Ok(()),
            new = accepted.recv() => match new {
                None => return Ok(()),
                Some(new) => start_connection(&worker, new),
            },
        }
    }
}

fn start_connection(worker: &Rc<Worker>, new: Accepted) {
    match Connection::new(worker.clone(), new) {
        Ok(connection) => {
            spawn_local(connection.serve());
        }
        Err(error) => tracing::warn!(%error, "cannot serve a connection"),
    }
}

/// Takes what flash has finished whenever its eventfd says so.
async fn reap(worker: Rc<Worker>, watched: AsyncFd<OwnedFd>) {
    loop {
        match watched.readable().await {
            Ok(mut ready) => {
                ready.clear_ready();
                worker.tier.reap();
            }
            Err(error) => {
                tracing::error!(%error, "lost sight of the flash device; stopping");
                return worker.server.shut_down();
            }
        }
    }
}
