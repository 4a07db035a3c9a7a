//! A checkpoint of the journal that refers to values on flash, seen from the engine: it is closed when all references are
//! made, and ended when it is known whether a start will find it.

use std::io;
use std::sync::Arc;

use flash::{CheckpointEnd, Checkpoints, Engine, Journal, Position};

use crate::state::server::Server;

/// The engine whose values may stay where they are. None: there is none that keeps any, or they are to be written, or are this
/// time, of which the log tells.
pub(super) fn engine_to_refer_to<'a>(
    server: &'a Server,
    journal: &Journal,
) -> Option<&'a Arc<dyn Engine>> {
    let engine = server.tier.engine.as_ref().filter(|_| server.config.tier_persistence.load())?;
    match engine.checkpoints()?.prepare(journal.id()) {
        Ok(()) => Some(engine),
        Err(error) => {
            tracing::warn!(%error, "the checkpoint has all values itself, those on flash included");
            None
        }
    }
}

/// No checkpoint that a start will find refers to anything on flash any more.
pub(crate) fn forget_references(server: &Server) {
    let engine = server.tier.engine.as_ref();
    let Some(checkpoints) = engine.and_then(|engine| engine.checkpoints()) else { return };
    if let Err(error) = checkpoints.forget() {
        tracing::error!(%error, "flash files stay marked as kept for a journal: remove them by hand");
    }
}

/// A checkpoint of the engine. One that is dropped has failed.
pub(super) struct Referred<'a> {
    checkpoints: &'a dyn Checkpoints,
    pub(super) number: u64,
    end: CheckpointEnd,
}

impl<'a> Referred<'a> {
    pub(super) fn new(server: &'a Server, number: u64) -> Option<Referred<'a>> {
        let checkpoints = server.tier.engine.as_ref()?.checkpoints()?;
        Some(Referred { checkpoints, number, end: CheckpointEnd::Failed })
    }

    /// Has all that it refers to become durable. Returns what is to be kept of the flash with it.
    ///
    /// Errors: it is not.
    pub(super) fn close(&self, server: &Server, position: Position) -> io::Result<Vec<u8>> {
        let goes_on = || !server.is_stopping();
        self.checkpoints.close(self.number, position, &goes_on).map_err(io::Error::other)
    }

    /// Ends it: it is in place, or nobody knows.
    pub(super) fn end(mut self, is_in_place: bool) {
        self.end = if is_in_place { CheckpointEnd::InPlace } else { CheckpointEnd::Unknown };
    }
}

impl Drop for Referred<'_> {
    fn drop(&mut self) {
        self.checkpoints.end(self.number, self.end);
    }
}
