//! A worker thread's event loop: its runtime, and the tasks that run in it.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use anyhow::Context;
use tier::ReadBack;
use tokio::runtime::LocalOptions;
use tokio::sync::mpsc::Receiver;
use tokio::sync::oneshot;
use tokio::task::spawn_local;

use crate::execution::field_expiry::expire_cold_fields;
use crate::execution::upkeep::{UPKEEP_EVERY, Upkeep};
use crate::network::closing::Closing;
use crate::network::connection::Connection;
use crate::network::deadline_timer::DeadlineTimer;
use crate::network::flash_tasks::{FlashTasks, follow_flash};
use crate::network::listener::Accepted;
use crate::network::stream::Stream;
use crate::network::time_slice;
use crate::network::upkeep_timer::UpkeepTimer;
use crate::session::load::{NotLoaded, load_at_start};
use crate::state::server::Server;
use crate::state::worker::Worker;

/// Who waits for the snapshot's file to be loaded.
pub(crate) type LoadedSender = oneshot::Sender<Result<(), NotLoaded>>;

/// Runs a worker until the server stops. It loads the snapshot's file if `loaded` is to be told of that.
///
/// Errors: its runtime or its engine could not be made.
pub(crate) fn run(
    server: Arc<Server>,
    index: usize,
    accepted: Receiver<Accepted>,
    loaded: Option<LoadedSender>,
) -> anyhow::Result<()> {
    if let Err(error) = time_slice::ask_for_shortest() {
        tracing::debug!(%error, "a worker has the usual time slice");
    }
    // Without timers: see `upkeep_timer`.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .build_local(LocalOptions::default())
        .context("cannot make a worker's runtime")?;
    let worker = Worker::new(server, index)?;
    runtime.block_on(serve(worker, accepted, loaded))
}

async fn serve(
    worker: Rc<Worker>,
    mut accepted: Receiver<Accepted>,
    loaded: Option<LoadedSender>,
) -> anyhow::Result<()> {
    let flash = FlashTasks::start(&worker).context("cannot watch the flash device")?;
    spawn_local(follow_flash(worker.clone(), worker.server.flash_changes.listen(), flash));
    let timer = UpkeepTimer::new(UPKEEP_EVERY).context("cannot make a timer")?;
    spawn_local(upkeep(worker.clone(), timer));
    spawn_local(expire_cold_fields(worker.clone()));
    let post = worker.clone();
    spawn_local(async move { post.server.posts[post.index].run().await });
    let deadline_timer = DeadlineTimer::new().context("cannot make a timer")?;
    spawn_local(deadlines(worker.clone(), deadline_timer));
    let closing = Rc::new(Closing::default());
    let closes = closing.clone();
    spawn_local(async move { closes.run().await });
    if let Some(sender) = loaded {
        let loading = worker.clone();
        spawn_local(async move {
            let loaded = load_at_start(&loading).await;
            let is_loaded = loaded.is_ok();
            // Whoever waited may have been told to stop.
            let _ = sender.send(loaded);
            if is_loaded {
                read_back(&loading).await;
            }
        });
    }
    loop {
        tokio::select! {
            biased;
            () = worker.server.stopped() => return Ok(()),
            new = accepted.recv() => match new {
                None => return Ok(()),
                Some(new) => start_connection(&worker, &closing, new),
            },
        }
    }
}

/// Has values come back to RAM that were hot before the start.
async fn read_back(worker: &Worker) {
    let goes_on = || worker.server.config.tier_read_back.load();
    if worker.server.saves.loaded_places.load(Ordering::Relaxed) == 0 || !goes_on() {
        return;
    }
    let start = Instant::now();
    let pause = async || worker.upkeep_tick.notified().await;
    let read_back = worker.tier.read_back(goes_on, tokio::task::yield_now, pause);
    let ReadBack { values, bytes } = read_back.await;
    let seconds = start.elapsed().as_secs_f64();
    tracing::info!(values, bytes, seconds, "values that were hot are back in RAM");
}

fn start_connection(worker: &Rc<Worker>, closing: &Rc<Closing>, new: Accepted) {
    let Accepted { socket, client } = new;
    match Stream::new(socket, closing.clone()) {
        Ok(stream) => {
            spawn_local(Connection::new(worker.clone(), stream, client).serve());
        }
        Err(error) => {
            worker.server.clients.remove(client.id);
            tracing::warn!(%error, "cannot serve a connection");
        }
    }
}

/// Does the worker's upkeep, at once again while it is urgent.
async fn upkeep(worker: Rc<Worker>, timer: UpkeepTimer) {
    let mut upkeep = Upkeep::new(worker.clone());
    loop {
        if upkeep.round() {
            tokio::task::yield_now().await;
            continue;
        }
        let due = tokio::select! {
            tick = timer.tick() => tick,
            () = worker.tier.upkeep_due() => Ok(()),
        };
        if let Err(error) = due {
            tracing::error!(%error, "lost the timer; stopping");
            return worker.server.shut_down();
        }
    }
}

/// Wakes clients whose time to wait is over.
async fn deadlines(worker: Rc<Worker>, timer: DeadlineTimer) {
    if let Err(error) = timer.run(&worker).await {
        tracing::error!(%error, "lost the timer; stopping");
        worker.server.shut_down();
    }
}
