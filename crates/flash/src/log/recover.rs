//! A log that was there before is opened again, by what a checkpoint says of it.

use std::sync::atomic::Ordering;

use stdx::keep_hash_secrets;

use super::epochs::Epochs;
use super::segment::State;
use super::shared::Shared;
use super::space::{Blocks, FreeSegment, Recovered};
use super::state::{Holds, LogState};
use crate::device::FileIndex;
use crate::device::files::WAY_OUT;
use crate::device::label::Label;
use crate::error::EngineError;

/// Segments that nothing refers to count on from the number of the start, shifted by this: what was written to them behind
/// the checkpoint, in a life of which the checkpoint knows nothing, must not be taken for what comes now. So many times a
/// segment can be opened in one life.
const STARTS_SHIFT: u32 = 20;

fn refused<T>(reason: String) -> Result<T, EngineError> {
    Err(EngineError::Settings(format!("{reason}; {WAY_OUT}")))
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
        let (flash, number) = (state.flash, state.number);
        let label = Label { flash, checkpoint: number, file: 0, starts, newest: number };
        self.label_all(label)?;
        self.keeping.go_on(label);
        self.sequence.store(state.sequence, Ordering::Relaxed);
        let files = self.drives.files();
        let mut space = self.space.lock();
        space.epochs = Epochs::behind(state.number);
        for one in state.segments {
            let index = self.table.push(one.home);
            let segment = self.table.get(index);
            let free = |blocks| FreeSegment { segment: index, file: one.home.file, blocks };
            let numbers = one.home.number + 1;
            segment.set_generation(starts << STARTS_SHIFT);
            match one.holds {
                Holds::Records(records) => {
                    let live = u64::from(records.referred_bytes);
                    self.live_bytes.fetch_add(live, Ordering::Relaxed);
                    segment.recover(one.generation, records);
                    space.recover(free(Blocks::Written), numbers, Recovered::Records);
                }
                // Of a path that was left since, perhaps.
                _ if !files.contains(&one.home.file) => {
                    segment.set_state(State::Retired);
                    space.recover_homeless(index);
                }
                Holds::Unused(blocks) => space.recover(free(blocks), numbers, Recovered::Unused),
                Holds::Retired(blocks) => {
                    segment.set_state(State::Retired);
                    space.recover(free(blocks), numbers, Recovered::Retired);
                }
                Holds::Homeless => {
                    segment.set_state(State::Retired);
                    space.recover_homeless(index);
                }
            }
        }
        drop(space);
        self.leave_room_for_gc(flash_bytes)?;
        self.resize(flash_bytes)
    }

    /// Has as many segments free as garbage collection needs where more are in use than there are to be: it could not bring the
    /// log down to its size without.
    fn leave_room_for_gc(&self, flash_bytes: u64) -> Result<(), EngineError> {
        let in_use = self.table.iter().filter(|(_, segment)| segment.state() == State::Sealed);
        let segments = in_use.count() + Self::segments_min(self.workers);
        let bytes = segments as u64 * self.geometry.segment_bytes();
        if bytes > flash_bytes { self.resize(bytes) } else { Ok(()) }
    }

    /// Looks whether the files that are open are those of the state. Returns how often they were opened, with this time.
    fn check_labels(&self, state: &LogState) -> Result<u32, EngineError> {
        let files = self.drives.files();
        let has_file = |file: FileIndex| files.contains(&file);
        let of_records = |holds: &Holds| matches!(holds, Holds::Records(_));
        let lacks_file =
            state.segments.iter().any(|one| of_records(&one.holds) && !has_file(one.home.file));
        if lacks_file {
            return refused(
                "the journal refers to values on a flash path that is not given, or has no file any more"
                    .to_owned(),
            );
        }
        let mut starts = 0;
        for file in files {
            let name = self.drives.name(file);
            let Some(label) = self.drives.label(file)? else {
                return refused(format!("{name} has no label, so the journal refers to another"));
            };
            if (label.flash, label.file) != (state.flash, u32::from(file.0)) {
                return refused(format!("{name} is not the one that the journal refers to"));
            }
            if label.checkpoint > state.number {
                let (newest, number) = (label.checkpoint, state.number);
                return refused(format!(
                    "{name} has been written since the journal was copied: its newest checkpoint is {newest}, that of the \
                     journal {number}"
                ));
            }
            if label.newest < state.number {
                return refused(format!("{name} is a copy that is older than the journal"));
            }
            starts = starts.max(label.starts);
        }
        Ok(starts.wrapping_add(1))
    }

    /// Looks whether the files are as long as their segments with records need.
    fn check_lengths(&self, state: &LogState) -> Result<(), EngineError> {
        for file in self.drives.files() {
            let of_file = state.segments.iter().filter(|one| one.home.file == file);
            let with_records = of_file.filter(|one| matches!(one.holds, Holds::Records(_)));
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
