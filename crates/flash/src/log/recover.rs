//! A log that was there before is opened again, by what a checkpoint says of it.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;

use stdx::keep_hash_secrets;

use super::epochs::Epochs;
use super::lifetime::Stream;
use super::segment::{Segment, State};
use super::shared::Shared;
use super::space::{Blocks, FreeSegment, Recovered};
use super::state::{Holds, LogState, Referred};
use crate::device::FileIndex;
use crate::device::files::WAY_OUT;
use crate::device::label::Label;
use crate::error::EngineError;

fn refused<T>(reason: String) -> Result<T, EngineError> {
    Err(EngineError::Settings(format!("{reason}; {WAY_OUT}")))
}

/// A segment with a part of a record that is longer than one.
fn part_of_long(referred_bytes: u32) -> Referred {
    Referred { stream: Stream::Large as u8, used_bytes: 0, referred_bytes, blocks: None }
}

/// Looks whether a file is the one that the state refers to, by its label.
pub(super) fn check_label(
    name: &str,
    file: FileIndex,
    label: &Label,
    state: &LogState,
) -> Result<(), EngineError> {
    if (label.flash, label.file) != (state.flash, u32::from(file.0)) {
        return refused(format!("{name} is not the one that the journal refers to"));
    }
    if label.checkpoint > state.number {
        let (newest, number) = (label.checkpoint, state.number);
        return refused(format!(
            "{name} has been written since the journal was copied: its newest checkpoint is {newest}, that of the journal \
             {number}"
        ));
    }
    if label.newest < state.number {
        return refused(format!("{name} is a copy that is older than the journal"));
    }
    Ok(())
}

impl Shared {
    /// Takes in the segments of a log whose files are open, and gives it its size. Nobody works with it yet.
    ///
    /// Errors: with a text for the operator: they are not those of the state; another size does not go with it.
    pub(super) fn recover(&self, state: LogState, flash_bytes: u64) -> Result<(), EngineError> {
        self.check_size(flash_bytes)?;
        let starts = self.check_labels(&state)?;
        self.check_lengths(&state)?;
        if !keep_hash_secrets(state.secrets) {
            return Err(EngineError::Settings(
                "hashes are keyed with something else already".to_owned(),
            ));
        }
        let label = Label {
            flash: state.flash,
            journal: state.journal,
            checkpoint: state.number,
            position: state.position,
            file: 0,
            starts,
            newest: state.number,
        };
        self.label_all(label)?;
        self.keeping.go_on(label);
        self.give_unknown_space_back(&state)?;
        self.sequence.store(state.sequence, Ordering::Relaxed);
        let (files, first) = (self.drives.files(), self.keeping.first_generation());
        let mut space = self.space.lock();
        space.epochs = Epochs::behind(state.number);
        for one in state.segments {
            let is_referred = one.holds.is_referred();
            let generation = if is_referred { one.generation } else { first };
            let index = self.table.push(one.home, generation);
            let segment = self.table.get(index);
            let free = |blocks| FreeSegment { segment: index, file: one.home.file, blocks };
            let numbers = one.home.number + 1;
            if is_referred {
                space.recover(free(Blocks::Written), numbers, Recovered::Records);
            }
            match one.holds {
                Holds::Records(records) => self.recover_records(segment, records, State::Sealed),
                Holds::Long { bytes, rest } => {
                    space.spans.insert(index, rest);
                    self.recover_records(segment, part_of_long(bytes), State::Span);
                }
                Holds::LongRest => {
                    self.recover_records(segment, part_of_long(0), State::SpanPart);
                }
                // Of a path that was left since, perhaps.
                _ if !files.contains(&one.home.file) => {
                    segment.set_state(State::Retired);
                    space.recover_homeless(index);
                }
                Holds::Unused(blocks) => {
                    let blocks = self.blocks_now(index, blocks);
                    space.recover(free(blocks), numbers, Recovered::Unused);
                }
                Holds::Retired(blocks) => {
                    segment.set_state(State::Retired);
                    if blocks == Blocks::Punched {
                        self.punch_again(index);
                    }
                    space.recover(free(blocks), numbers, Recovered::Retired);
                }
                Holds::Homeless => {
                    segment.set_state(State::Retired);
                    space.recover_homeless(index);
                }
            }
        }
        drop(space);
        self.leave_room_for_gc(flash_bytes);
        self.resize_as_far_as_may_be(flash_bytes)
    }

    /// Gives the log its size. On a filesystem that is full it has what it had, which is enough to go on.
    fn resize_as_far_as_may_be(&self, bytes: u64) -> Result<(), EngineError> {
        let Err(error) = self.resize(bytes) else { return Ok(()) };
        let _one_at_a_time = self.resizing.lock();
        let wanted = self.check_size(bytes)?;
        self.share_out(wanted, &|_| true, false)?;
        if self.space.lock().active() < Self::segments_min(self.workers) {
            return Err(error);
        }
        tracing::warn!(%error, "flash is smaller than flash-size");
        Ok(())
    }

    /// The files are as long as the state knows: one that was larger behind the checkpoint would have space that nothing counts.
    fn give_unknown_space_back(&self, state: &LogState) -> Result<(), EngineError> {
        self.drives.files().into_iter().try_for_each(|file| {
            let of_file = state.segments.iter().filter(|one| one.home.file == file);
            let ends = of_file.map(|one| u64::from(one.home.number) + 1);
            self.drives.shorten(file, ends.max().unwrap_or(0) * state.segment_bytes)
        })
    }

    /// What the blocks of a segment are now in which nothing is: it may have been punched since.
    fn blocks_now(&self, index: u32, blocks: Blocks) -> Blocks {
        let bytes = self.geometry.segment_bytes();
        let extent = self.extent(index, 0, bytes as usize);
        let reserve =
            || self.drives.reserve_again(extent.file, extent.offset, extent.offset + bytes);
        let has_blocks = blocks != Blocks::Punched
            && reserve().unwrap_or_else(|error| {
                tracing::warn!(%error, "a segment of the flash may lack space");
                false
            });
        if has_blocks { blocks } else { Blocks::Punched }
    }

    /// Gives the blocks back that a segment may have got since: it was in use again, perhaps.
    fn punch_again(&self, index: u32) {
        let extent = self.extent(index, 0, self.geometry.segment_bytes() as usize);
        if let Err(error) = self.drives.punch(extent.file, extent.offset, extent.size as u64) {
            tracing::warn!(%error, "flash space not given back");
        }
    }

    fn recover_records(&self, segment: &Segment, records: Referred, state: State) {
        self.live_bytes.fetch_add(u64::from(records.referred_bytes), Ordering::Relaxed);
        segment.recover(records, state);
    }

    /// Has as many segments free as garbage collection needs where more are in use than there are to be: it could hardly
    /// bring the log down to its size without. As many of them as the filesystem has room for: the log has worked with
    /// less before.
    fn leave_room_for_gc(&self, flash_bytes: u64) {
        let is_used = |state| matches!(state, State::Sealed | State::Span | State::SpanPart);
        let used = self.table.iter().filter(|(_, segment)| is_used(segment.state()));
        let segments = (used.count() + Self::segments_min(self.workers)) as u64;
        let of_size = flash_bytes / self.geometry.segment_bytes();
        let mut more = segments.saturating_sub(of_size);
        while more > 0 {
            match self.resize((of_size + more) * self.geometry.segment_bytes()) {
                Ok(()) => return,
                Err(error) => tracing::warn!(%error, "little of the flash is free"),
            }
            more /= 2;
        }
    }

    /// Looks whether the files that are open are those of the state. Returns how often they were opened, with this time.
    fn check_labels(&self, state: &LogState) -> Result<u32, EngineError> {
        let files = self.drives.files();
        let referred = state.segments.iter().filter(|one| one.holds.is_referred());
        let wanted: BTreeSet<u16> = referred.map(|one| one.home.file.0).collect();
        let given = wanted.iter().filter(|&&file| files.contains(&FileIndex(file))).count();
        if given < wanted.len() {
            let paths = wanted.len();
            return refused(format!(
                "the journal refers to values on a flash path that is not given, or has no file any more: values are on \
                 {paths} paths, and files of {given} of them are here; one that was being left is needed until nothing \
                 is on it"
            ));
        }
        let mut starts = 0;
        for file in files {
            let name = self.drives.name(file);
            let Some(label) = self.drives.label(file)? else {
                return refused(format!("{name} has no label, so the journal refers to another"));
            };
            check_label(&name, file, &label, state)?;
            starts = starts.max(label.starts);
        }
        Ok(starts.wrapping_add(1))
    }

    /// Looks whether the files are as long as their segments with records need.
    fn check_lengths(&self, state: &LogState) -> Result<(), EngineError> {
        for file in self.drives.files() {
            let of_file = state.segments.iter().filter(|one| one.home.file == file);
            let with_records = of_file.filter(|one| one.holds.is_referred());
            let last = with_records.map(|one| u64::from(one.home.number) + 1).max().unwrap_or(0);
            let (wanted, bytes) = (last * state.segment_bytes, self.drives.file_bytes(file)?);
            if bytes < wanted {
                let name = self.drives.name(file);
                return refused(format!(
                    "{name} has {bytes} bytes, and the journal refers to {wanted}"
                ));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
