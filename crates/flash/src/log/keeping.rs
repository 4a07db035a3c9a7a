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

use std::collections::{HashMap, HashSet};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use parking_lot::Mutex;
use stdx::hash_secrets;

use super::epochs::CheckpointEnd;
use super::flush::FillMark;
use super::format::Block;
use super::shared::Shared;
use super::space::Blocks;
use super::state::{Holds, LogState, Referred, SegmentState};
use crate::device::FileIndex;
use crate::device::label::Label;
use crate::engine::Checkpoints;
use crate::error::EngineError;
use crate::location::{Location, RecordId};

/// What is known of the checkpoints beside their epochs.
#[derive(Default)]
pub(crate) struct Keeping {
    /// What the labels say but for the file; none: the files are not kept.
    label: Mutex<Option<Label>>,
    /// The number of the checkpoint by whose state it was opened.
    opened_by: OnceLock<u64>,
    /// How often the files were opened: generations count on from that.
    starts: AtomicU32,
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
        self.label_all(*label)?;
        Ok(*label)
    }

    fn sync_files(&self) -> Result<(), EngineError> {
        let _files_stay = self.resizing.lock();
        let synced = self.drives.files().into_iter().try_for_each(|file| self.drives.sync(file));
        synced.inspect_err(|_| self.keeping.is_unsure.store(true, Ordering::SeqCst))
    }

    fn state_of(&self, number: u64, marks: Vec<FillMark>, label: &Label) -> LogState {
        let _table_stays = self.resizing.lock();
        let space = self.space.lock();
        let homeless: HashSet<u32> = space.homeless_segments().iter().copied().collect();
        let unused = space.unused();
        let open: HashMap<_, _> = marks.into_iter().map(|mark| (mark.id.segment, mark)).collect();
        let segments = self.table.iter().map(|(index, segment)| {
            let (home, generation) = (self.table.home(index), segment.generation());
            let mark = open.get(&index).filter(|mark| mark.id.generation == generation);
            let holds = match segment.referred(number) {
                _ if homeless.contains(&index) => Holds::Homeless,
                0 => match unused.get(&index) {
                    Some(&(blocks, true)) => Holds::Retired(blocks),
                    Some(&(blocks, false)) => Holds::Unused(blocks),
                    None => Holds::Unused(Blocks::Written),
                },
                referred_bytes => {
                    let (used_bytes, blocks) = match mark {
                        Some(FillMark { end, blocks, .. }) => (*end, blocks.clone()),
                        None => (segment.used_bytes(), self.listed_blocks(index)),
                    };
                    let stream = segment.stream() as u8;
                    Holds::Records(Referred { stream, used_bytes, referred_bytes, blocks })
                }
            };
            SegmentState { home, generation, holds }
        });
        LogState {
            flash: label.flash,
            number,
            sequence: self.sequence.load(Ordering::Relaxed),
            segment_bytes: self.geometry.segment_bytes(),
            sector_bytes: self.drives.sector_bytes(),
            secrets: *hash_secrets(),
            segments: segments.collect(),
        }
    }

    /// The blocks of a full segment that has no footer.
    fn listed_blocks(&self, index: u32) -> Option<Vec<Block>> {
        self.table.get(index).pending.lock().written.clone()
    }
}

impl Checkpoints for Shared {
    fn prepare(&self) -> Result<(), EngineError> {
        if self.keeping.is_unsure.load(Ordering::SeqCst) {
            return refused(
                "a sync of the flash failed, so that nobody knows what is durable of it until the next start",
            );
        }
        let _files_stay = self.resizing.lock();
        let mut kept = self.keeping.label.lock();
        if kept.is_some() {
            return Ok(());
        }
        let flash = std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), 0);
        let starts = self.keeping.starts.load(Ordering::Relaxed);
        let label = Label { flash, checkpoint: 0, file: 0, starts, newest: 0 };
        self.label_all(label)?;
        *kept = Some(label);
        Ok(())
    }

    fn begin(&self) -> u64 {
        let failed = self.keeping.failed_writes.load(Ordering::SeqCst);
        self.keeping.failed_before.store(failed, Ordering::SeqCst);
        self.space.lock().epochs.begin()
    }

    fn opened_by(&self) -> Option<u64> {
        self.keeping.opened_by.get().copied()
    }

    fn may_refer(&self, at: Location, size: usize) -> bool {
        if size > self.geometry.segment_record_max() {
            return false;
        }
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

    fn close(&self, number: u64, goes_on: &dyn Fn() -> bool) -> Result<Vec<u8>, EngineError> {
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

    fn end(&self, number: u64, end: CheckpointEnd) {
        if end == CheckpointEnd::InPlace {
            let _files_stay = self.resizing.lock();
            let mut kept = self.keeping.label.lock();
            if let Some(label) = &mut *kept {
                label.checkpoint = number;
                if let Err(error) = self.label_all(*label) {
                    tracing::warn!(%error, "an older checkpoint than the last may be loaded by mistake");
                }
            }
        }
        let mut space = self.space.lock();
        space.epochs.end(number, end);
        self.give_unheld(&mut space);
    }

    fn forget(&self) -> Result<(), EngineError> {
        let _files_stay = self.resizing.lock();
        // Whatever comes of it: the next checkpoint labels all files anew.
        *self.keeping.label.lock() = None;
        self.drives.files().into_iter().try_for_each(|file| self.drives.remove_label(file))?;
        let mut space = self.space.lock();
        space.epochs.forget();
        self.give_unheld(&mut space);
        Ok(())
    }

    fn claim(&self, record: RecordId, size: usize) -> bool {
        let Some((index, _)) = self.split(record.at, size) else { return false };
        let segment = self.table.get(index);
        size <= self.geometry.segment_record_max()
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
mod tests;
