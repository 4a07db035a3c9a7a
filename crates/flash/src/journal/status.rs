//! What is told of the journal.

use std::collections::BTreeSet;
use std::time::Duration;

use super::error::JournalError;
use super::{Journal, Position, SyncPolicy};

/// How the journal is.
#[derive(Clone, Debug)]
pub struct JournalStatus {
    /// Why the last write or sync failed; none when it did not.
    pub error: Option<JournalError>,
    /// When it syncs.
    pub sync: SyncPolicy,
    /// Where the next record begins.
    pub appended: Position,
    /// Up to where it is durable.
    pub durable: Position,
    /// Since when there is something that is not.
    pub behind: Duration,
    /// A sync is under way.
    pub is_syncing: bool,
    /// The last checkpoint.
    pub checkpoint: Position,
    /// Bytes of its snapshot.
    pub snapshot_bytes: u64,
    /// Bytes of the segments in front of it that stay, as it refers to records in them.
    pub kept_bytes: u64,
    /// Bytes of the records behind it.
    pub bytes: u64,
    /// Segments.
    pub segments: usize,
}

/// What the writer and checkpoints note for it.
#[derive(Debug, Default)]
pub(super) struct Facts {
    pub(super) error: Option<JournalError>,
    pub(super) segments: BTreeSet<u64>,
    pub(super) checkpoint: u64,
    pub(super) snapshot_bytes: u64,
    pub(super) kept_bytes: u64,
}

impl Journal {
    /// How it is.
    pub fn status(&self) -> JournalStatus {
        let shared = &self.shared;
        let facts = shared.facts.lock();
        // In this order: what is durable was appended.
        let (durable, appended) = (self.durable(), self.appended());
        JournalStatus {
            error: facts.error.clone(),
            sync: shared.sync_policy(),
            appended,
            durable,
            behind: self.behind(),
            is_syncing: shared.is_syncing(),
            checkpoint: Position(facts.checkpoint),
            snapshot_bytes: facts.snapshot_bytes,
            kept_bytes: facts.kept_bytes,
            bytes: appended.0.saturating_sub(facts.checkpoint),
            segments: facts.segments.len(),
        }
    }
}
