//! What has changed is appended to the journal while the slots of it are held, so that its records stand in the order
//! of the changes.

use command::{Cx, Effects, Record};
use resp::Args;

use crate::state::server::Server;
use crate::state::worker::Worker;

/// Appends what a run has changed, whose slots are held.
#[cold]
pub(super) fn journal_run(worker: &Worker, cx: &Cx<'_, '_>, args: Args<'_>) {
    let mut record = begin_record(worker, cx.now_ms);
    cx.effects.log(cx.db, args, &mut record);
    end_record(worker, record);
}

/// Begins a record of what happens at a time.
pub(super) fn begin_record<'r>(worker: &Worker, now_ms: u64) -> Record<'r> {
    Record::new(worker.take_record_buffer(), now_ms)
}

/// Appends a record, unless there is nothing in it. The slots of what it tells of are held.
pub(super) fn end_record(worker: &Worker, record: Record<'_>) {
    if !record.is_empty() {
        let position = worker.server.journaling.append(&record.pieces());
        worker.note_journaled(position);
    }
    worker.give_record_buffer(record.into_buffer());
}

/// Appends what has become of keys without a command, whose slots are held.
#[cold]
pub(super) fn journal_gone(server: &Server, effects: &Effects) {
    // Of the record: a replay finds by it that what has gone had expired.
    let time_ms = effects.time_of_gone(server.tier.clock().unix_ms());
    let mut record = Record::new(Vec::new(), time_ms);
    effects.log(0, Args::new(&[], &[]), &mut record);
    if !record.is_empty() {
        server.journaling.append(&record.pieces());
    }
}
