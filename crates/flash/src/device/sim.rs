//! Simulated drives: in memory, deterministic from a seed, with every fault that a drive can have.
//!
//! One thread drives a simulated device. Operations complete in an order that the seed chooses,
//! some at each `reap`, and take effect when they complete. Faults are switched on and off while
//! the drives run.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;
use rustix::event::EventfdFlags;
use stdx::Random;

use super::buffer::{AlignedBuffer, IoBuffer, ReadPool};
use super::label::Label;
use super::{Device, Done, Drives, Errno, Extent, FileIndex};
use crate::error::EngineError;

/// Which faults happen. Shares are of a thousand operations, chosen by the seed.
#[derive(Clone, Debug, Default)]
pub struct SimFaults {
    /// The operation with this number, counted from 0 over all devices, fails with an I/O error.
    pub fail_operation: Option<u64>,
    /// Reads that fail with an I/O error, of a thousand.
    pub failed_reads: u16,
    /// Writes that fail with an I/O error, of a thousand. Part of the data may have been written.
    pub failed_writes: u16,
    /// Writes that are reported done and are not, of a thousand.
    pub lost_writes: u16,
    /// Writes that are reported done and are partly done, of a thousand.
    pub torn_writes: u16,
    /// Writes that are reported done and went to another sector, of a thousand.
    pub misdirected_writes: u16,
    /// Reads that bring one flipped bit, of a thousand.
    pub flipped_bits: u16,
    /// Operations that are held back, of a thousand, for up to `held_reaps_max` further reaps.
    pub held: u16,
    /// The same for reads alone.
    pub held_reads: u16,
    /// See `held`.
    pub held_reaps_max: u64,
    /// Reads that hand over all that is queued at once, as a full queue does, of a thousand.
    pub eager_reads: u16,
    /// Writes fail with "no space left".
    pub full: bool,
    /// So do writes and reservations of what has no space of its own: it was given back.
    pub full_where_punched: bool,
    /// Syncs fail with an I/O error.
    pub failed_syncs: bool,
    /// Labels of this file can be neither put on nor taken off.
    pub failed_labels_of: Option<u16>,
}

/// Simulated drives, as the test that owns them sees them. Clones are the same drives.
#[derive(Clone)]
pub struct SimDisk(Arc<Mutex<SimState>>);

struct SimState {
    files: Vec<SimFile>,
    /// Bytes that one file can hold; `None` is no bound.
    file_bytes_max: Option<u64>,
    sector_bytes: u32,
    /// Chunks of the pool of read buffers of each device, and bytes beside it; none: as many as usual.
    read_pool: Option<(usize, usize)>,
    random: Random,
    faults: SimFaults,
    operations: u64,
    failures: u64,
}

/// A data file. The directory of the first is named `sim0`, and so on.
#[derive(Clone, Default)]
struct SimFile {
    /// `None` once it was removed.
    directory: Option<String>,
    bytes: Vec<u8>,
    /// Where the sectors begin that were given back, and neither reserved nor written since.
    punched: BTreeSet<usize>,
    label: Option<Label>,
    /// What stood where something was written that is not durable, by the offset; none: nobody will lose power.
    unsynced: Option<BTreeMap<usize, Box<[u8]>>>,
    /// The same of what was written before a sync that failed.
    forsaken: BTreeMap<usize, Box<[u8]>>,
}

impl SimFile {
    fn in_directory(directory: String) -> SimFile {
        SimFile { directory: Some(directory), ..SimFile::default() }
    }

    /// Keeps what stands where something is about to be written.
    fn keep_durable(&mut self, start: usize, end: usize, sector: usize) {
        let Some(unsynced) = &mut self.unsynced else { return };
        for at in (start..end).step_by(sector) {
            let before = || self.bytes[at..(at + sector).min(end)].into();
            unsynced.entry(at).or_insert_with(before);
        }
    }

    /// Each write that is not durable is there or is not, by itself, sector by sector.
    fn lose_power(&mut self, random: &mut Random) {
        let unsynced = self.unsynced.iter_mut().flat_map(std::mem::take);
        // What was there before both is older.
        for (at, before) in unsynced.chain(std::mem::take(&mut self.forsaken)) {
            if random.below(2) == 0 {
                let end = at + before.len();
                // Where the file was made shorter that may not be so either.
                self.bytes.resize(self.bytes.len().max(end), 0);
                self.bytes[at..end].copy_from_slice(&before);
            }
        }
    }
}

/// Whether what has this chance in a thousand happens.
fn happens(random: &mut Random, of_a_thousand: u16) -> bool {
    of_a_thousand > 0 && random.below(1000) < u64::from(of_a_thousand)
}

impl SimDisk {
    /// Empty drives, one for each path of the log.
    pub fn new(seed: u64, paths: usize, sector_bytes: u32) -> Self {
        assert!(paths > 0);
        let file = |number| SimFile::in_directory(format!("sim{number}"));
        Self(Arc::new(Mutex::new(SimState {
            files: (0..paths).map(file).collect(),
            file_bytes_max: None,
            sector_bytes,
            read_pool: None,
            random: Random::new(seed),
            faults: SimFaults::default(),
            operations: 0,
            failures: 0,
        })))
    }

    /// Changes which faults happen from now on.
    pub fn set_faults(&self, faults: SimFaults) {
        self.0.lock().faults = faults;
    }

    /// Reads and writes that have completed, in all.
    pub fn operations(&self) -> u64 {
        self.0.lock().operations
    }

    /// Operations that a fault has hit, silently or not.
    pub fn failures(&self) -> u64 {
        self.0.lock().failures
    }

    /// Bounds the read buffers of the devices that are opened from now on: `chunks` of 64 KiB, and
    /// `heap_bytes` beside them.
    pub fn set_read_pool(&self, chunks: usize, heap_bytes: usize) {
        self.0.lock().read_pool = Some((chunks, heap_bytes));
    }

    /// Bounds the bytes that each file can hold.
    pub fn set_file_bytes_max(&self, bytes: u64) {
        self.0.lock().file_bytes_max = Some(bytes);
    }

    /// The directories that have a data file.
    pub fn directories(&self) -> Vec<String> {
        self.0.lock().files.iter().filter_map(|file| file.directory.clone()).collect()
    }

    /// Overwrites what is stored, as far as the drive reaches.
    pub fn overwrite(&self, path: usize, offset: usize, bytes: &[u8]) {
        let mut state = self.0.lock();
        let stored = state.files[path].bytes.iter_mut().skip(offset);
        stored.zip(bytes).for_each(|(stored, byte)| *stored = *byte);
    }

    /// From now on writes that were not synced are lost when the power goes.
    pub fn expect_power_loss(&self) {
        self.0.lock().files.iter_mut().for_each(|file| {
            file.unsynced.get_or_insert_default();
        });
    }

    /// The drives as they are found after a loss of power now. Whoever has these goes on as if nothing had happened.
    pub fn after_power_loss(&self) -> SimDisk {
        self.after_crash(true)
    }

    /// The same where the process was killed, if it does not lose power: all that had completed is there.
    pub fn after_crash(&self, loses_power: bool) -> SimDisk {
        let state = &mut *self.0.lock();
        let seed = state.random.next_u64();
        let mut random = Random::new(seed);
        let mut files = state.files.clone();
        if loses_power {
            files.iter_mut().for_each(|file| file.lose_power(&mut random));
        }
        Self(Arc::new(Mutex::new(SimState {
            files,
            file_bytes_max: state.file_bytes_max,
            sector_bytes: state.sector_bytes,
            read_pool: state.read_pool,
            random,
            faults: SimFaults::default(),
            operations: 0,
            failures: 0,
        })))
    }

    pub(crate) fn drives(&self) -> Arc<dyn Drives> {
        Arc::new(SimDrives(self.0.clone()))
    }
}

impl SimState {
    /// Counts an operation; true when it is to fail.
    fn fails(&mut self, of_a_thousand: u16) -> bool {
        let number = self.operations;
        self.operations += 1;
        let fails =
            self.faults.fail_operation == Some(number) || happens(&mut self.random, of_a_thousand);
        self.failures += u64::from(fails);
        fails
    }

    fn hits(&mut self, of_a_thousand: u16) -> bool {
        let hits = happens(&mut self.random, of_a_thousand);
        self.failures += u64::from(hits);
        hits
    }

    fn read(&mut self, extent: Extent, target: &mut [u8]) -> Result<(), Errno> {
        if self.fails(self.faults.failed_reads) {
            return Err(libc::EIO);
        }
        let file = &self.files[usize::from(extent.file.0)].bytes;
        let start = extent.offset as usize;
        let Some(source) = file.get(start..start + extent.size) else { return Err(libc::EIO) };
        target[..extent.size].copy_from_slice(source);
        if self.hits(self.faults.flipped_bits) {
            let bit = self.random.below(extent.size as u64 * 8) as usize;
            target[bit / 8] ^= 1 << (bit % 8);
        }
        Ok(())
    }

    fn write(&mut self, extent: Extent, source: &[u8]) -> Result<(), Errno> {
        let sectors = (extent.size / self.sector_bytes as usize) as u64;
        assert_eq!(sectors as usize * self.sector_bytes as usize, extent.size, "whole sectors");
        assert_eq!(extent.offset % u64::from(self.sector_bytes), 0, "whole sectors");
        let fails = self.fails(self.faults.failed_writes);
        let mut start = extent.offset as usize;
        let mut size = extent.size;
        let punched = &self.files[usize::from(extent.file.0)].punched;
        let has_space = punched.range(start..start + size).next().is_none();
        if self.faults.full || self.faults.full_where_punched && !has_space {
            self.failures += 1;
            return Err(libc::ENOSPC);
        }
        if self.hits(self.faults.lost_writes) {
            size = 0;
        }
        if fails || self.hits(self.faults.torn_writes) {
            size = self.random.below(sectors) as usize * self.sector_bytes as usize;
        }
        if self.hits(self.faults.misdirected_writes) {
            start += self.sector_bytes as usize;
        }
        let sector = self.sector_bytes as usize;
        let file = &mut self.files[usize::from(extent.file.0)];
        let end = (start + size).min(file.bytes.len());
        file.keep_durable(start, end, sector);
        file.bytes[start..end].copy_from_slice(&source[..end - start]);
        file.punched.retain(|at| !(start..end).contains(at));
        if fails { Err(libc::EIO) } else { Ok(()) }
    }
}

struct SimDrives(Arc<Mutex<SimState>>);

impl SimDrives {
    fn no_space(&self, file: FileIndex) -> Result<(), EngineError> {
        Err(EngineError::Settings(format!("not enough space for flash: sim{}", file.0)))
    }

    fn change_label(&self, file: FileIndex, label: Option<Label>) -> Result<(), EngineError> {
        let path = self.name(file);
        let mut state = self.0.lock();
        if state.faults.failed_labels_of == Some(file.0) {
            state.failures += 1;
            return Err(EngineError::Io {
                path,
                operation: "write of the label",
                errno: libc::EIO,
            });
        }
        state.files[usize::from(file.0)].label = label;
        Ok(())
    }
}

impl Drives for SimDrives {
    fn device(&self) -> Result<Box<dyn Device>, EngineError> {
        let flags = EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC;
        let wake = rustix::event::eventfd(0, flags).map_err(|errno| EngineError::Io {
            path: self.name(FileIndex(0)),
            operation: "device set-up",
            errno: errno.raw_os_error(),
        })?;
        Ok(Box::new(SimDevice {
            state: Arc::clone(&self.0),
            queued: Vec::new(),
            submitted: Vec::new(),
            wake,
            pool: match self.0.lock().read_pool {
                Some((chunks, heap_bytes)) => ReadPool::bounded(chunks, heap_bytes),
                None => ReadPool::new(),
            },
        }))
    }

    fn backend(&self) -> &'static str {
        "sim"
    }

    fn files(&self) -> Vec<FileIndex> {
        let state = self.0.lock();
        let files = state.files.iter().enumerate();
        files
            .filter_map(|(index, file)| file.directory.is_some().then_some(FileIndex(index as u16)))
            .collect()
    }

    fn find(&self, directory: &Path) -> Option<FileIndex> {
        let state = self.0.lock();
        let is_there = |file: &SimFile| file.directory.as_ref().map(Path::new) == Some(directory);
        let index = state.files.iter().position(is_there);
        index.map(|index| FileIndex(index as u16))
    }

    fn add(&self, directory: &Path, _flash: Option<u64>) -> Result<FileIndex, EngineError> {
        let files = &mut self.0.lock().files;
        let index = files.iter().position(|file| file.directory.is_none()).unwrap_or(files.len());
        let file = SimFile::in_directory(directory.display().to_string());
        if index == files.len() {
            files.push(file);
        } else {
            files[index] = file;
        }
        Ok(FileIndex(index as u16))
    }

    fn remove(&self, file: FileIndex) {
        self.0.lock().files[usize::from(file.0)] = SimFile::default();
    }

    fn name(&self, file: FileIndex) -> String {
        format!("sim{}", file.0)
    }

    fn sector_bytes(&self) -> u32 {
        self.0.lock().sector_bytes
    }

    fn reserve(&self, file: FileIndex, from: u64, to: u64) -> Result<(), EngineError> {
        let is_full = {
            let state = self.0.lock();
            state.faults.full || state.file_bytes_max.is_some_and(|most| to > most)
        };
        if is_full {
            return self.no_space(file);
        }
        match self.reserve_again(file, from, to)? {
            true => Ok(()),
            false => self.no_space(file),
        }
    }

    fn reserve_again(&self, file: FileIndex, from: u64, to: u64) -> Result<bool, EngineError> {
        let mut state = self.0.lock();
        let is_full = state.faults.full_where_punched;
        let file = &mut state.files[usize::from(file.0)];
        let range = from as usize..to as usize;
        if is_full && file.punched.range(range.clone()).next().is_some() {
            return Ok(false);
        }
        file.punched.retain(|at| !range.contains(at));
        file.bytes.resize(file.bytes.len().max(range.end), 0);
        Ok(true)
    }

    fn punch(&self, file: FileIndex, offset: u64, size: u64) -> Result<(), EngineError> {
        let mut state = self.0.lock();
        let sector = state.sector_bytes as usize;
        let file = &mut state.files[usize::from(file.0)];
        let (start, end) = (offset as usize, (offset + size) as usize);
        file.keep_durable(start, end, sector);
        file.bytes[start..end].fill(0);
        file.punched.extend((start..end).step_by(sector));
        Ok(())
    }

    fn sync(&self, file: FileIndex) -> Result<(), EngineError> {
        let path = self.name(file);
        let mut state = self.0.lock();
        let fails = state.faults.failed_syncs;
        state.failures += u64::from(fails);
        let file = &mut state.files[usize::from(file.0)];
        let unsynced = file.unsynced.as_mut().map(std::mem::take).unwrap_or_default();
        if !fails {
            unsynced.keys().for_each(|at| drop(file.forsaken.remove(at)));
            return Ok(());
        }
        for (at, before) in unsynced {
            file.forsaken.entry(at).or_insert(before);
        }
        Err(EngineError::Io { path, operation: "sync", errno: libc::EIO })
    }

    fn label(&self, file: FileIndex) -> Result<Option<Label>, EngineError> {
        Ok(self.0.lock().files[usize::from(file.0)].label)
    }

    fn set_label(&self, file: FileIndex, label: &Label) -> Result<(), EngineError> {
        self.change_label(file, Some(*label))
    }

    fn remove_label(&self, file: FileIndex) -> Result<(), EngineError> {
        self.change_label(file, None)
    }

    fn file_bytes(&self, file: FileIndex) -> Result<u64, EngineError> {
        Ok(self.0.lock().files[usize::from(file.0)].bytes.len() as u64)
    }

    fn shorten(&self, file: FileIndex, bytes: u64) -> Result<(), EngineError> {
        let mut state = self.0.lock();
        let sector = state.sector_bytes as usize;
        let file = &mut state.files[usize::from(file.0)];
        let end = file.bytes.len();
        if end > bytes as usize {
            file.keep_durable(bytes as usize, end, sector);
            file.bytes.truncate(bytes as usize);
            file.punched.retain(|&at| at < bytes as usize);
        }
        Ok(())
    }
}

struct SimDevice {
    state: Arc<Mutex<SimState>>,
    queued: Vec<SimOperation>,
    submitted: Vec<Submitted>,
    wake: OwnedFd,
    pool: ReadPool,
}

struct Submitted {
    operation: SimOperation,
    /// Reaps for which it is held back.
    held: u64,
}

enum SimOperation {
    Read { extent: Extent, buffer: IoBuffer, user: u64 },
    Write { extent: Extent, buffer: Arc<AlignedBuffer>, user: u64 },
}

impl SimOperation {
    fn run(self, state: &mut SimState) -> Done {
        match self {
            Self::Read { extent, mut buffer, user } => {
                let result = state.read(extent, buffer.bytes_mut());
                Done::Read { user, buffer, result }
            }
            Self::Write { extent, buffer, user } => {
                let result = state.write(extent, &buffer[..extent.size]);
                Done::Write { user, buffer, result }
            }
        }
    }
}

impl SimDevice {
    fn hand_over(&mut self, state: &mut SimState) {
        for operation in self.queued.drain(..) {
            let of_a_thousand = match operation {
                SimOperation::Read { .. } => state.faults.held + state.faults.held_reads,
                SimOperation::Write { .. } => state.faults.held,
            };
            let held = match happens(&mut state.random, of_a_thousand) {
                true => state.random.below(state.faults.held_reaps_max + 1),
                false => 0,
            };
            self.submitted.push(Submitted { operation, held });
        }
        self.signal();
    }

    fn signal(&self) {
        if !self.submitted.is_empty() {
            // The counter is far from full.
            let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
        }
    }
}

impl Device for SimDevice {
    fn read(&mut self, extent: Extent, buffer: IoBuffer, user: u64) {
        assert!(buffer.bytes().len() >= extent.size);
        self.queued.push(SimOperation::Read { extent, buffer, user });
        let state = self.state.clone();
        let state = &mut *state.lock();
        if happens(&mut state.random, state.faults.eager_reads) {
            self.hand_over(state);
        }
    }

    fn write(&mut self, extent: Extent, buffer: Arc<AlignedBuffer>, user: u64) {
        assert!(buffer.len() >= extent.size);
        self.queued.push(SimOperation::Write { extent, buffer, user });
    }

    fn submit(&mut self) {
        let state = self.state.clone();
        self.hand_over(&mut state.lock());
    }

    fn has_ended(&mut self) -> bool {
        self.submitted.iter().any(|one| one.held == 0)
    }

    fn reap(&mut self, done: &mut Vec<Done>) {
        let mut count = [0; 8];
        // EAGAIN when nothing was signalled.
        let _ = rustix::io::read(&self.wake, &mut count);
        let state = &mut *self.state.lock();
        let is_due = |one: &Submitted| one.held == 0;
        let due = self.submitted.iter().filter(|one| is_due(one)).count() as u64;
        let count = if due > 0 { 1 + state.random.below(due) } else { 0 };
        for left in (due - count..due).rev() {
            let nth = state.random.below(left + 1) as usize;
            let mut due = self.submitted.iter().enumerate().filter(|(_, one)| is_due(one));
            let (at, _) = due.nth(nth).expect("counted");
            done.push(self.submitted.swap_remove(at).operation.run(state));
        }
        for one in &mut self.submitted {
            one.held = one.held.saturating_sub(1);
        }
        self.signal();
    }

    fn read_now(&mut self, extent: Extent, buffer: &mut IoBuffer) -> Result<(), Errno> {
        self.state.lock().read(extent, buffer.bytes_mut())
    }

    fn wake_fd(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }

    fn in_flight(&self) -> usize {
        self.queued.len() + self.submitted.len()
    }

    fn pool(&self) -> &ReadPool {
        &self.pool
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_was_made_shorter_may_be_as_long_as_before() {
        let lens = (0..20).map(|seed| {
            let disk = SimDisk::new(seed, 1, 512);
            disk.expect_power_loss();
            let drives = disk.drives();
            drives.reserve(FileIndex(0), 0, 2_048).expect("there is room");
            drives.shorten(FileIndex(0), 1_024).expect("it can be");
            let found = disk.after_power_loss();
            found.drives().file_bytes(FileIndex(0)).expect("it is there")
        });
        let lens: BTreeSet<u64> = lens.collect();
        assert_eq!(lens, BTreeSet::from([1_024, 1_536, 2_048]));
    }
}
