//! A checkpoint of the journal that refers to values on flash, seen from the engine: it is closed when all references are
//! made, and ended when it is known whether a start will find it.

use std::io;
use std::sync::Arc;

use flash::{CheckpointEnd, Checkpoints, Engine, Journal, Position};

use crate::state::server::Server;

/// The engine whose values may stay where they are. None: there is none that keeps any, or they are to be written, or are this
/// time, of which the log tells.
pub(super) fn engine_to_refer_to(server: &Server, journal: &Journal) -> Option<Arc<dyn Engine>> {
    let stays = server.tier.has_flash() && !server.tier.drains();
    let may_refer = stays && server.config.tier_persistence.load();
    let engine = server.tier.engine().filter(|_| may_refer)?;
    let prepared = engine.checkpoints()?.prepare(journal.id());
    match prepared {
        Ok(()) => Some(engine),
        Err(error) => {
            tracing::warn!(%error, "the checkpoint has all values itself, those on flash included");
            None
        }
    }
}

/// No checkpoint that a start will find refers to anything on flash any more.
pub(crate) fn forget_references(server: &Server) {
    let engine = server.tier.engine();
    let Some(checkpoints) = engine.as_ref().and_then(|engine| engine.checkpoints()) else { return };
    if let Err(error) = checkpoints.forget() {
        tracing::error!(%error, "flash files stay marked as kept for a journal: remove them by hand");
    }
}

/// A checkpoint of the engine. One that is dropped has failed.
pub(super) struct Referred {
    engine: Arc<dyn Engine>,
    pub(super) number: u64,
    end: CheckpointEnd,
}

impl Referred {
    /// That with this number of an engine that takes some.
    pub(super) fn new(engine: Arc<dyn Engine>, number: u64) -> Referred {
        Referred { engine, number, end: CheckpointEnd::Failed }
    }

    fn checkpoints(&self) -> &dyn Checkpoints {
        self.engine.checkpoints().expect("invariant: it takes one")
    }

    /// Has all that it refers to become durable. Returns what is to be kept of the flash with it.
    ///
    /// Errors: it is not.
    pub(super) fn close(&self, server: &Server, position: Position) -> io::Result<Vec<u8>> {
        let goes_on = || !server.is_stopping();
        self.checkpoints().close(self.number, position, &goes_on).map_err(io::Error::other)
    }

    /// Ends it: it is in place, or nobody knows.
    pub(super) fn end(mut self, is_in_place: bool) {
        self.end = if is_in_place { CheckpointEnd::InPlace } else { CheckpointEnd::Unknown };
    }
}

impl Drop for Referred {
    fn drop(&mut self) {
        self.checkpoints().end(self.number, self.end);
    }
}
