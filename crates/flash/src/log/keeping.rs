//! Checkpoints that refer to records, seen from the log: files that are kept, segments that are held, what is brought to the
//! drives before a checkpoint counts, and what it says of the log.
//!
//! Invariants:
//! 1. A checkpoint that a start may find refers to records that are as they were: their segments are held when they are
//!    freed (`epochs`).
//! 2. It counts only when all of these are durable. A write or a sync that failed meanwhile makes it fail. After a sync that
//!    failed nobody knows what the drive has of all that was written before, so no checkpoint of this process refers to
//!    anything any more.
//! 3. The labels of the files say so before anything is held for the first checkpoint; which is the newest whose records are
//!    there, before it can be in place; and, once it is, that an older one must not be loaded any more, before anything is
//!    written over that it referred to.

use std::collections::HashMap;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use parking_lot::Mutex;
use stdx::hash_secrets;

use super::epochs::CheckpointEnd;
use super::flush::FillMark;
use super::segment::{Segment, State};
use super::shared::Shared;
use super::space::{Blocks, Space};
use super::state::{Holds, LogState, Referred, SegmentState};
use crate::device::FileIndex;
use crate::device::label::Label;
use crate::engine::Checkpoints;
use crate::error::EngineError;
use crate::journal::Position;
use crate::location::{Location, RecordId};

/// While a checkpoint is taken that will bring room, segments are kept back from new records so that some last until then: seven
/// eighths of what is free, but no more than of an eighth of what does not live. Six of the seven are handed out in step with the
/// walk, and the last one when the checkpoint has ended.
const KEPT_BACK_SPARE_SHARE: u64 = 8;
const KEPT_BACK_EIGHTHS: u64 = 7;

/// So many checkpoints may fail in a row for want of labels before one refers to nothing.
const FAILED_LABELS_MAX: u32 = 2;

/// What is known of the checkpoints beside their epochs.
#[derive(Default)]
pub(crate) struct Keeping {
    /// What the labels say but for the file; none: the files are not kept.
    label: Mutex<Option<Label>>,
    /// The number of the checkpoint by whose state it was opened.
    opened_by: OnceLock<u64>,
    /// How often the files were opened.
    starts: AtomicU32,
    /// Checkpoints in a row that have failed for want of labels.
    failed_labels: AtomicU32,
    /// Labels were to be taken off, and one may be on still.
    is_forgetting: AtomicBool,
    /// Where in the journal the checkpoint is that was closed last.
    closed_at: AtomicU64,
    /// A checkpoint has begun.
    is_under_way: AtomicBool,
    /// Segments that were kept back when the checkpoint began, and that are now.
    kept_back_at_first: AtomicU64,
    pub(super) kept_back: AtomicU64,
    /// A sync has failed.
    is_unsure: AtomicBool,
    failed_writes: AtomicU64,
    /// How many had failed when the checkpoint began.
    failed_before: AtomicU64,
}

impl Keeping {
    pub(crate) fn note_failed_write(&self) {
        self.failed_writes.fetch_add(1, Ordering::SeqCst);
    }

    /// The number in the labels, if there are any.
    pub(super) fn flash(&self) -> Option<u64> {
        self.label.lock().map(|label| label.flash)
    }

    /// From where the generations of segments count on: what was written to them behind the checkpoint, in a life of which
    /// that knows nothing, must not be taken for what comes now.
    pub(super) fn first_generation(&self) -> u64 {
        u64::from(self.starts.load(Ordering::Relaxed)) << 32
    }

    /// Begins at a random number of starts: a process that opens one log after another does not meet in one what it has noted
    /// of another.
    pub(super) fn begin_anywhere(&self) {
        let random = std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), 0);
        self.starts.store(random as u32, Ordering::Relaxed);
    }

    /// Has the files kept that were opened by the state of a checkpoint.
    pub(super) fn go_on(&self, label: Label) {
        *self.label.lock() = Some(label);
        self.starts.store(label.starts, Ordering::Relaxed);
        let is_first = self.opened_by.set(label.checkpoint).is_ok();
        assert!(is_first, "a log is opened once");
    }
}

fn refused<T>(reason: &str) -> Result<T, EngineError> {
    Err(EngineError::Settings(reason.to_owned()))
}

impl Shared {
    /// Puts the same label on all files.
    pub(super) fn label_all(&self, label: Label) -> Result<(), EngineError> {
        let label_one = |file: FileIndex| {
            let label = Label { file: file.0.into(), ..label };
            self.drives.set_label(file, &label)
        };
        self.drives.files().into_iter().try_for_each(label_one)
    }

    /// Has a file that was added kept as the others are.
    pub(super) fn label_added(&self, file: FileIndex) -> Result<(), EngineError> {
        let Some(label) = *self.keeping.label.lock() else { return Ok(()) };
        self.drives.set_label(file, &Label { file: file.0.into(), ..label })
    }

    /// Says that all is durable that a checkpoint refers to: files that do not say so are older than it.
    fn announce(&self, number: u64) -> Result<Label, EngineError> {
        let _files_stay = self.resizing.lock();
        let mut kept = self.keeping.label.lock();
        let Some(label) = &mut *kept else { return refused("the flash is not kept any more") };
        label.newest = number;
        match self.label_all(*label) {
            Ok(()) => self.keeping.failed_labels.store(0, Ordering::Relaxed),
            Err(error) => {
                self.keeping.failed_labels.fetch_add(1, Ordering::Relaxed);
                return Err(error);
            }
        }
        Ok(*label)
    }

    fn sync_files(&self) -> Result<(), EngineError> {
        let _files_stay = self.resizing.lock();
        let synced = self.drives.files().into_iter().try_for_each(|file| self.drives.sync(file));
        synced.inspect_err(|_| self.keeping.is_unsure.store(true, Ordering::SeqCst))
    }

    fn state_of(&self, number: u64, marks: Vec<FillMark>, label: &Label) -> LogState {
        let _table_stays = self.resizing.lock();
        LogState {
            flash: label.flash,
            number,
            sequence: self.sequence.load(Ordering::Relaxed),
            segment_bytes: self.geometry.segment_bytes(),
            sector_bytes: self.drives.sector_bytes(),
            secrets: *hash_secrets(),
            journal: label.journal,
            position: self.keeping.closed_at.load(Ordering::Relaxed),
            segments: self.segment_states(number, marks),
        }
    }

    fn segment_states(&self, number: u64, marks: Vec<FillMark>) -> Vec<SegmentState> {
        let (unused, spans) = {
            let space = self.space.lock();
            (space.unused(), space.spans.clone())
        };
        let unused: HashMap<u32, Holds> = unused.into_iter().collect();
        let marks: HashMap<u32, FillMark> =
            marks.into_iter().map(|mark| (mark.id.segment, mark)).collect();
        let state = |(index, segment): (u32, &Segment)| {
            let holds = match (segment.referred(number), spans.get(&index)) {
                (0, _) => unused.get(&index).cloned().unwrap_or(Holds::Unused(Blocks::Written)),
                (bytes, Some(rest)) => Holds::Long { bytes, rest: rest.clone() },
                (bytes, None) => Holds::Records(records_of(segment, bytes, marks.get(&index))),
            };
            SegmentState { home: self.table.home(index), generation: segment.generation(), holds }
        };
        let mut states: Vec<SegmentState> = self.table.iter().map(state).collect();
        let rest_of = |state: &SegmentState| match &state.holds {
            Holds::Long { rest, .. } => rest.clone(),
            _ => Vec::new(),
        };
        for index in states.iter().flat_map(rest_of).collect::<Vec<u32>>() {
            states[index as usize].holds = Holds::LongRest;
        }
        states
    }
}

impl Shared {
    /// Nothing is held any more: there is no label by which a start would find a checkpoint.
    fn let_go_of_all(&self) {
        self.keeping.is_forgetting.store(false, Ordering::Relaxed);
        let mut space = self.space.lock();
        space.epochs.forget();
        self.keep_back(&mut space, 0);
        self.give_needless(&mut space);
    }

    /// Keeps segments back for a checkpoint, from its beginning.
    fn keep_room_back(&self, space: &mut Space) {
        let free = self.free_segments.load(Ordering::Relaxed);
        let short = free.min(self.spare_segments() / KEPT_BACK_SPARE_SHARE);
        // Else nobody waits for it: what finds no room is refused, or has keys evicted.
        let is_waited_for = self.checkpoint_comes.load(Ordering::Relaxed) && space.held() > 0;
        let kept_back = if is_waited_for { short * KEPT_BACK_EIGHTHS / 8 } else { 0 };
        self.keeping.kept_back_at_first.store(kept_back, Ordering::Relaxed);
        self.keep_back(space, kept_back);
    }

    /// Lets new records have free segments but for so many.
    fn keep_back(&self, space: &mut Space, segments: u64) {
        space.kept_back = segments as usize;
        self.keeping.kept_back.store(segments, Ordering::Relaxed);
    }

    /// Shape: files neither come nor go meanwhile.
    fn take_labels_off(&self) -> Result<(), EngineError> {
        self.drives.files().into_iter().try_for_each(|file| self.drives.remove_label(file))?;
        self.let_go_of_all();
        Ok(())
    }

    /// Tries again to take labels off that could not be. False: there are none, or it is still so.
    pub(super) fn forget_again(&self) -> bool {
        let _files_stay = self.resizing.lock();
        // Not those that were drawn anew since.
        self.keeping.is_forgetting.load(Ordering::Relaxed) && self.take_labels_off().is_ok()
    }
}

/// What a segment holds to whose records a checkpoint refers. `mark`: how far it was filled, if it was open then.
fn records_of(segment: &Segment, referred_bytes: u32, mark: Option<&FillMark>) -> Referred {
    let (used_bytes, blocks) = match mark {
        Some(FillMark { id, end, blocks }) if id.generation == segment.generation() => {
            (*end, blocks.clone())
        }
        // Those of a full segment without a footer.
        _ => (segment.used_bytes(), segment.pending.lock().written.clone()),
    };
    Referred { stream: segment.stream() as u8, used_bytes, referred_bytes, blocks }
}

impl Checkpoints for Shared {
    fn prepare(&self, journal: u64) -> Result<(), EngineError> {
        if self.keeping.is_unsure.load(Ordering::SeqCst) {
            return refused(
                "a sync of the flash failed, so that nobody knows what is durable of it until the next start",
            );
        }
        let _files_stay = self.resizing.lock();
        let mut kept = self.keeping.label.lock();
        if kept.is_some() {
            // One that does without has them taken off, which takes no space.
            return match self.keeping.failed_labels.load(Ordering::Relaxed) < FAILED_LABELS_MAX {
                true => Ok(()),
                false => refused("its labels cannot be written"),
            };
        }
        let flash = std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), 0);
        let starts = self.keeping.starts.load(Ordering::Relaxed);
        let label =
            Label { flash, journal, checkpoint: 0, position: 0, file: 0, starts, newest: 0 };
        self.label_all(label)?;
        self.keeping.failed_labels.store(0, Ordering::Relaxed);
        *kept = Some(label);
        // No file has the label any more by which another checkpoint would be found.
        self.let_go_of_all();
        Ok(())
    }

    fn keep_room(&self) {
        self.keep_room_back(&mut self.space.lock());
    }

    fn release_room(&self) {
        let mut space = self.space.lock();
        if !self.keeping.is_under_way.load(Ordering::Relaxed) {
            self.keep_back(&mut space, 0);
        }
    }

    fn begin(&self) -> u64 {
        let failed = self.keeping.failed_writes.load(Ordering::SeqCst);
        self.keeping.failed_before.store(failed, Ordering::SeqCst);
        let mut space = self.space.lock();
        let number = space.epochs.begin();
        self.publish(&space);
        self.keeping.is_under_way.store(true, Ordering::Relaxed);
        self.keep_room_back(&mut space);
        number
    }

    fn set_progress(&self, done: u32, of: u32) {
        let keeping = &self.keeping;
        let at_first = keeping.kept_back_at_first.load(Ordering::Relaxed);
        let left = u64::from(of - done.min(of));
        let kept_back = at_first / KEPT_BACK_EIGHTHS
            + at_first * (KEPT_BACK_EIGHTHS - 1) / KEPT_BACK_EIGHTHS * left / u64::from(of.max(1));
        if kept_back < keeping.kept_back.load(Ordering::Relaxed) {
            self.keep_back(&mut self.space.lock(), kept_back);
        }
    }

    fn opened_by(&self) -> Option<u64> {
        self.keeping.opened_by.get().copied()
    }

    fn may_refer(&self, at: Location, size: usize) -> bool {
        let Some((index, offset)) = self.split(at, size) else { return false };
        let segment = self.table.get(index);
        let end = u64::from(offset) + size as u64;
        let is_lost =
            || segment.pending.lock().lost.iter().any(|lost| lost.range.contains(&offset));
        end <= u64::from(segment.flushed()) || !is_lost()
    }

    fn refer(&self, number: u64, at: Location, size: usize) -> Option<RecordId> {
        if !self.may_refer(at, size) {
            return None;
        }
        let segment = self.table.get(self.geometry.split(at).0);
        segment.refer(number, size as u32);
        Some(RecordId { at, generation: segment.generation() })
    }

    fn close(
        &self,
        number: u64,
        position: Position,
        goes_on: &dyn Fn() -> bool,
    ) -> Result<Vec<u8>, EngineError> {
        self.keeping.closed_at.store(position.0, Ordering::Relaxed);
        self.space.lock().epochs.close(number);
        let marks = self.flush_all(goes_on)?;
        let failed = self.keeping.failed_writes.load(Ordering::SeqCst);
        if failed != self.keeping.failed_before.load(Ordering::SeqCst) {
            return refused("a write to flash failed");
        }
        self.sync_files()?;
        let label = self.announce(number)?;
        Ok(self.state_of(number, marks, &label).encode())
    }

    fn set_comes(&self, comes: bool) {
        self.set_checkpoint_comes(comes);
    }

    fn end(&self, number: u64, end: CheckpointEnd) {
        if end == CheckpointEnd::InPlace {
            let _files_stay = self.resizing.lock();
            let mut kept = self.keeping.label.lock();
            if let Some(label) = &mut *kept {
                label.checkpoint = number;
                label.position = self.keeping.closed_at.load(Ordering::Relaxed);
                if let Err(error) = self.label_all(*label) {
                    tracing::warn!(%error, "an older checkpoint than the last may be loaded by mistake");
                }
            }
        }
        let mut space = self.space.lock();
        space.epochs.end(number, end);
        self.keeping.is_under_way.store(false, Ordering::Relaxed);
        self.keep_back(&mut space, 0);
        self.give_needless(&mut space);
    }

    fn forget(&self) -> Result<(), EngineError> {
        let _files_stay = self.resizing.lock();
        // Whatever comes of it: the next checkpoint labels all files anew.
        *self.keeping.label.lock() = None;
        self.keeping.is_forgetting.store(true, Ordering::Relaxed);
        self.take_labels_off()
    }

    fn claim(&self, record: RecordId, size: usize) -> bool {
        let Some((index, _)) = self.split(record.at, size) else { return false };
        let segment = self.table.get(index);
        let is_long = size > self.geometry.segment_record_max();
        is_long == (segment.state() == State::Span)
            && segment.generation() == record.generation
            && segment.claim(size as u32)
    }

    fn end_claims(&self) -> Result<(), EngineError> {
        match self.table.iter().all(|(_, segment)| segment.unclaimed() == 0) {
            true => Ok(()),
            false => refused("the checkpoint refers to less than what it says of the flash"),
        }
    }
}

#[cfg(test)]
mod file_tests;
#[cfg(test)]
mod tests;
