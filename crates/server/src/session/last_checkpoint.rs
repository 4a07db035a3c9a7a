//! Before the server ends a checkpoint is taken where the journal is long, so that the next start is quick. It is no more
//! than that: one that fails, or takes too long, is done without.

use std::sync::Arc;
use std::time::{Duration, Instant};

use flash::Journal;

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

/// Takes a checkpoint, while others are served, if the journal is long, or waits for the one that is under way. `turn` waits
/// between two looks.
pub(crate) async fn take_last_checkpoint(server: &Arc<Server>, turn: &impl AsyncFn()) {
    if !is_journal_long(server) {
        return;
    }
    tracing::info!("a checkpoint is taken first, so that the next start is quick");
    let start = Instant::now();
    if let Err(error) = start_save(server, Purpose::Checkpoint, drop) {
        tracing::error!(%error, "cannot start a thread for the checkpoint");
    }
    let is_under_way = || server.saves.purpose() == Some(Purpose::Checkpoint);
    while is_under_way() && start.elapsed() < WAIT_MAX {
        turn().await;
    }
}
