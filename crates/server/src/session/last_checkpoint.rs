//! Before the server ends a checkpoint is taken where the journal is long, so that the next start is quick. It is no more
//! than that: one that fails, or takes too long, is done without.

use std::sync::Arc;
use std::time::{Duration, Instant};

use flash::Journal;
use tokio::sync::oneshot;
use tokio::sync::oneshot::error::TryRecvError;

use crate::session::save::start_save;
use crate::state::saves::Purpose;
use crate::state::server::Server;

/// Bytes of records from which on it is: they take a second or so to be run again.
const LONG_BYTES: u64 = 64 << 20;
/// The end waits no longer than this: who has sent a signal may send a stronger one.
const WAIT_MAX: Duration = Duration::from_secs(8);

/// Whether a checkpoint makes the next start quicker: values on flash stay there.
pub(crate) fn is_journal_long(server: &Server) -> bool {
    let bytes = |journal: &Journal| journal.status().bytes;
    let is_long = server.journaling.journal().is_some_and(|journal| bytes(journal) >= LONG_BYTES);
    is_long
        && server.config.tier_persistence.load()
        && server.tier.has_flash()
        && server.listening.is_logged()
}

/// Takes a checkpoint, while others are served, if the journal is long. `turn` waits between two looks.
pub(crate) async fn take_last_checkpoint(server: &Arc<Server>, turn: &impl AsyncFn()) {
    if !is_journal_long(server) {
        return;
    }
    tracing::info!("a checkpoint is taken first, so that the next start is quick");
    let (start, (sender, mut receiver)) = (Instant::now(), oneshot::channel());
    let done = move |is_saved| {
        // After too long nobody waits for it.
        let _ = sender.send(is_saved);
    };
    if !start_save(server, Purpose::Checkpoint, done).unwrap_or(false) {
        // Another snapshot is under way, or there is no thread.
        return;
    }
    while receiver.try_recv() == Err(TryRecvError::Empty) && start.elapsed() < WAIT_MAX {
        turn().await;
    }
}
