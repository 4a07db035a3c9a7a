//! What a worker's event loop does for flash: tasks that come and go with it.

use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::watch::Receiver;
use tokio::task::{JoinHandle, spawn_local};

use crate::network::wake::watch;
use crate::state::worker::Worker;

/// The tasks that drive a worker's side of the engine; none where there is no flash. They end when this is dropped.
#[derive(Default)]
pub(crate) struct FlashTasks(Vec<JoinHandle<()>>);

impl FlashTasks {
    /// Starts them, if the worker has its side. Errors: no more file descriptors.
    pub(crate) fn start(worker: &Rc<Worker>) -> io::Result<FlashTasks> {
        let Some(fd) = worker.tier.wake_fd()? else { return Ok(FlashTasks::default()) };
        let watched = watch(fd, Interest::READABLE)?;
        let submitting = worker.clone();
        Ok(FlashTasks(vec![
            spawn_local(reap(worker.clone(), watched)),
            spawn_local(async move { submitting.tier.submitter().await }),
        ]))
    }
}

impl Drop for FlashTasks {
    fn drop(&mut self) {
        self.0.iter().for_each(JoinHandle::abort);
    }
}

/// Takes the worker's side of flash that is switched on, and lets go of that of one that is switched off.
pub(crate) async fn follow_flash(
    worker: Rc<Worker>,
    mut changes: Receiver<()>,
    mut tasks: FlashTasks,
) {
    loop {
        // What was told before somebody listened as well.
        if let Err(reason) = follow(&worker, &mut tasks).await {
            worker.server.flash_changes.fail(reason);
        }
        if changes.changed().await.is_err() {
            return;
        }
    }
}

/// Errors: the worker's side, or what watches it, could not be made.
async fn follow(worker: &Rc<Worker>, tasks: &mut FlashTasks) -> Result<(), String> {
    while worker.tier.is_engine_changed() {
        let followed = worker.tier.follow_engine().map_err(|error| error.to_string())?;
        let Some(change) = followed else {
            worker.upkeep_tick.notified().await;
            continue;
        };
        *tasks = FlashTasks::start(worker).map_err(|error| error.to_string())?;
        worker.tier.note_followed(change);
    }
    Ok(())
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
