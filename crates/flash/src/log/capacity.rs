//! How large the log is and on which paths: changed while it runs.
//!
//! Every change goes the same way: the space plans what each path lacks of its share, the blocks
//! are reserved without a lock held, and then the plan is carried out, or nothing has changed.

use std::path::{Path, PathBuf};

use super::lifetime::STREAMS;
use super::segment::State;
use super::shared::Shared;
use super::space::{Blocks, FreeSegment, Plan};
use super::table::Home;
use crate::device::FileIndex;
use crate::error::EngineError;
use crate::limits::PATHS_MAX;

/// Free segments of a file that keep their blocks although nothing is in them, as a share of all:
/// they are written again soon.
const KEEP_WRITTEN_SHARE: usize = 16;

fn refused<T>(reason: String) -> Result<T, EngineError> {
    Err(EngineError::Settings(reason))
}

impl Shared {
    /// See `Engine::resize`.
    pub(crate) fn resize(&self, bytes: u64) -> Result<(), EngineError> {
        let _one_at_a_time = self.resizing.lock();
        let wanted = self.check_size(bytes)?;
        let (target, leaving) = {
            let space = self.space.lock();
            (space.target(), space.leaving())
        };
        let stays = |file: FileIndex| leaving >> file.0 & 1 == 0;
        // What a path lacks of its share does not keep the size from being lowered.
        self.share_out(wanted, &stays, wanted > target)
    }

    /// See `Engine::set_paths`.
    pub(crate) fn set_paths(&self, paths: &[PathBuf]) -> Result<(), EngineError> {
        let _one_at_a_time = self.resizing.lock();
        check_paths(paths)?;
        let leaving = self.space.lock().leaving();
        let (mut listed, mut added) = (Vec::new(), Vec::new());
        for path in paths {
            if let Some(file) = self.drives.find(path) {
                listed.push(file);
                continue;
            }
            match self.add_path(path) {
                Ok(file) => added.push(file),
                Err(error) => {
                    self.remove_paths(&added);
                    return Err(error);
                }
            }
        }
        let is_left = |file: &FileIndex| leaving >> file.0 & 1 == 1;
        let stay_count = listed.iter().filter(|file| !is_left(file)).count();
        let now_count = self.space.lock().files_open();
        if added.is_empty() && stay_count == listed.len() && stay_count == now_count {
            return Ok(());
        }
        let target = self.space.lock().target();
        let stays = |file: FileIndex| listed.contains(&file) || added.contains(&file);
        let shared_out = self.share_out(target, &stays, true);
        if shared_out.is_err() {
            self.remove_paths(&added);
        }
        shared_out
    }

    fn add_path(&self, path: &Path) -> Result<FileIndex, EngineError> {
        let file = self.drives.add(path, self.keeping.flash())?;
        if let Err(error) = self.label_added(file) {
            self.drives.remove(file);
            return Err(error);
        }
        self.space.lock().add_file(file);
        Ok(file)
    }

    /// Removes files that nothing was ever written to.
    fn remove_paths(&self, files: &[FileIndex]) {
        for &file in files {
            self.space.lock().close_file(file);
            self.drives.remove(file);
        }
    }

    /// Shares `target` segments out over the paths that stay. Errors: nothing has changed, and
    /// there are any only where `must_have_all`.
    pub(super) fn share_out(
        &self,
        target: usize,
        stays: &dyn Fn(FileIndex) -> bool,
        must_have_all: bool,
    ) -> Result<(), EngineError> {
        let Some(mut plan) = self.space.lock().plan(target, stays) else {
            return refused("no flash path would be left that takes writes".to_owned());
        };
        let made = match self.check_addresses(&plan).and_then(|()| self.reserve(&plan)) {
            Ok(()) => self.make(&plan),
            Err(error) => {
                self.space.lock().cancel(&mut plan);
                if must_have_all {
                    return Err(error);
                }
                Vec::new()
            }
        };
        let mut space = self.space.lock();
        plan.returning.iter().for_each(|free| self.set_states(&[free.segment], State::Free));
        let retired = space.carry_out(plan, made);
        self.set_states(&retired, State::Retired);
        self.publish(&space);
        Ok(())
    }

    /// Makes the new segments of a plan.
    fn make(&self, plan: &Plan) -> Vec<FreeSegment> {
        let mut made = Vec::new();
        for (file, numbers) in &plan.homes {
            for number in numbers.clone() {
                let home = Home { file: *file, number };
                let homeless = self.space.lock().take_homeless();
                let segment = match homeless {
                    Some(segment) => {
                        self.table.set_home(segment, home);
                        self.set_states(&[segment], State::Free);
                        segment
                    }
                    None => self.table.push(home, self.keeping.first_generation()),
                };
                made.push(FreeSegment { segment, file: *file, blocks: Blocks::Reserved });
            }
        }
        made
    }

    /// Errors: there are no locations for the new segments of a plan.
    fn check_addresses(&self, plan: &Plan) -> Result<(), EngineError> {
        let new: usize = plan.homes.iter().map(|(_, numbers)| numbers.len()).sum();
        let known = self.table.count() as usize - self.space.lock().homeless();
        let most = self.geometry.segments_max();
        if known + new > most {
            return refused(format!(
                "flash size too large to be shared out anew: {} segments, at most {most} can be \
                 addressed",
                known + new
            ));
        }
        Ok(())
    }

    /// Makes the segments of a plan writable.
    fn reserve(&self, plan: &Plan) -> Result<(), EngineError> {
        let segment_bytes = self.geometry.segment_bytes();
        let mut done = Vec::new();
        let mut reserve = |file, from, to| {
            self.drives.reserve(file, from, to)?;
            done.push((file, from, to - from));
            Ok(())
        };
        let returning = plan.returning.iter().try_for_each(|free| {
            let start = self.extent(free.segment, 0, 0).offset;
            reserve(free.file, start, start + segment_bytes)
        });
        let reserved = returning.and_then(|()| {
            plan.homes.iter().filter(|(_, numbers)| !numbers.is_empty()).try_for_each(
                |(file, numbers)| {
                    let (start, end) = (u64::from(numbers.start), u64::from(numbers.end));
                    reserve(*file, start * segment_bytes, end * segment_bytes)
                },
            )
        });
        if reserved.is_err() {
            for (file, offset, size) in done {
                if let Err(error) = self.drives.punch(file, offset, size) {
                    tracing::warn!(%error, "flash space not given back");
                }
            }
        }
        reserved
    }

    /// Errors: when a log of that size cannot work. Returns its segments.
    pub(super) fn check_size(&self, bytes: u64) -> Result<usize, EngineError> {
        let segment_bytes = self.geometry.segment_bytes();
        let segments = bytes / segment_bytes;
        let least = Self::segments_min(self.workers);
        if segments < least as u64 {
            let least_bytes = least as u64 * segment_bytes;
            return refused(format!(
                "flash size too small: {bytes} bytes, at least {least_bytes} are needed"
            ));
        }
        let most = self.geometry.segments_max();
        if segments > most as u64 {
            let most_bytes = most as u64 * segment_bytes;
            return refused(format!(
                "flash size too large: {bytes} bytes, at most {most_bytes} can be addressed"
            ));
        }
        Ok(segments as usize)
    }

    /// One piece of work for the janitor. False when there is none. Blocks; not for the data path.
    pub(crate) fn tidy_one(&self) -> bool {
        // A drive is not kept waiting for what takes long on others.
        self.close_one_left() || self.punch_one() || self.regain_one() || self.forget_again()
    }

    /// Removes the file of one path that is left and holds nothing any more. False when there is
    /// none.
    fn close_one_left(&self) -> bool {
        let _one_at_a_time = self.resizing.lock();
        let Some(file) = self.space.lock().left_file() else { return false };
        let path = self.drives.name(file);
        // First: once the path is no longer told to be draining, its drive may be taken away.
        self.drives.remove(file);
        let mut space = self.space.lock();
        space.close_left(file);
        self.publish(&space);
        drop(space);
        tracing::info!(path, "flash path is left: its file is removed");
        true
    }

    /// Tries whether a filesystem that was full has room again for one of the segments that gave
    /// their blocks back. False when it has not, or when there is none.
    fn regain_one(&self) -> bool {
        let Some(free) = self.space.lock().take_without_blocks() else { return false };
        let start = self.extent(free.segment, 0, 0).offset;
        let end = start + self.geometry.segment_bytes();
        let has_blocks = self.drives.reserve(free.file, start, end).is_ok();
        let mut space = self.space.lock();
        if space.give_tried(free, has_blocks) {
            self.set_states(&[free.segment], State::Free);
        }
        self.publish(&space);
        has_blocks
    }

    /// Gives the blocks of one segment that is free for long back to its filesystem. False when
    /// there is none.
    fn punch_one(&self) -> bool {
        let mut space = self.space.lock();
        let keep = (space.active() / KEEP_WRITTEN_SHARE).max(STREAMS.len() * self.workers);
        let keep = keep / space.files_open().max(1);
        let Some(free) = space.take_to_punch(keep) else { return false };
        self.table.get(free.segment).set_state(State::Retired);
        self.publish(&space);
        drop(space);
        let extent = self.extent(free.segment, 0, self.geometry.segment_bytes() as usize);
        let punched = self.drives.punch(extent.file, extent.offset, extent.size as u64);
        if let Err(error) = &punched {
            tracing::warn!(%error, "flash space not given back");
        }
        let mut space = self.space.lock();
        if space.give_punched(free) {
            self.table.get(free.segment).set_state(State::Free);
        }
        self.publish(&space);
        true
    }
}

/// Errors: none, too many, or the same twice.
pub(super) fn check_paths(paths: &[PathBuf]) -> Result<(), EngineError> {
    if paths.is_empty() || paths.len() > PATHS_MAX {
        return refused(format!("flash needs 1 to {PATHS_MAX} paths"));
    }
    for (index, path) in paths.iter().enumerate() {
        if paths[..index].contains(path) {
            return refused(format!("flash path {} is given twice", path.display()));
        }
    }
    Ok(())
}
