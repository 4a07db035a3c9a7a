//! A simulated folder: in memory, deterministic from a seed, with all that a filesystem and a drive may do.
//!
//! What was written or renamed and not synced is pending. When the power goes, each pending change of names stays or
//! does not, as does each 512-byte sector of each pending write, whatever their order; a file may have its new length
//! with anything in the part that is missing. A sync that fails drops some of what was pending for good, though reads
//! still show it, as Linux does.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use parking_lot::Mutex;
use stdx::Random;

use super::storage::{Storage, StoredFile};

const SECTOR_BYTES: u64 = 512;

/// What is to go wrong. Operations are those that change something, counted from 0.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SimFaults {
    /// The power goes at this operation: it may take effect, and nothing works afterwards.
    pub(crate) power_off_at: Option<u64>,
    /// This operation fails with an I/O error. Part of it may take effect.
    pub(crate) fail_at: Option<u64>,
    /// Operations that fail so, of a thousand.
    pub(crate) failing: u64,
    /// Files can have so many bytes together; beyond it there is no space.
    pub(crate) bytes_max: Option<u64>,
}

/// The folder. Clones are the same one.
#[derive(Clone)]
pub(crate) struct SimFolder {
    state: Arc<Mutex<SimState>>,
    /// Called before each operation that changes something.
    before_change: fn(),
}

#[derive(Clone)]
struct SimState {
    files: Vec<SimFile>,
    names: BTreeMap<String, usize>,
    synced_names: BTreeMap<String, usize>,
    pending: Vec<Rename>,
    faults: SimFaults,
    operations: u64,
    failures: u64,
    is_off: bool,
    random: Random,
}

/// What a name stands for changes: a file gets one, loses one, or both.
#[derive(Clone)]
struct Rename {
    file: usize,
    from: Option<String>,
    to: Option<String>,
}

#[derive(Clone, Default)]
struct SimFile {
    bytes: Vec<u8>,
    synced: Vec<u8>,
    pending: Vec<Write>,
}

#[derive(Clone)]
struct Write {
    offset: u64,
    bytes: Vec<u8>,
}

fn put(target: &mut Vec<u8>, offset: u64, bytes: &[u8]) {
    let (start, end) = (offset as usize, offset as usize + bytes.len());
    if target.len() < end {
        target.resize(end, 0);
    }
    target[start..end].copy_from_slice(bytes);
}

fn apply_rename(names: &mut BTreeMap<String, usize>, rename: &Rename) {
    let Rename { file, from, to } = rename;
    if let Some(from) = from
        && names.get(from) == Some(file)
    {
        names.remove(from);
    }
    if let Some(to) = to {
        names.insert(to.clone(), *file);
    }
}

/// How likely what is pending stays when the power goes, in quarters: nothing, some, most or all of it.
#[derive(Clone, Copy)]
struct Luck(u64);

impl Luck {
    fn draw(random: &mut Random) -> Self {
        Self(random.below(5))
    }

    fn holds(self, random: &mut Random) -> bool {
        random.below(4) < self.0
    }
}

impl SimFile {
    /// What a loss of power leaves.
    fn lose_power(&mut self, random: &mut Random) {
        let luck = Luck::draw(random);
        let mut left = std::mem::take(&mut self.synced);
        for Write { offset, bytes } in self.pending.drain(..) {
            write_sectors(&mut left, offset, &bytes, || luck.holds(random));
        }
        if left.len() < self.bytes.len() && luck.holds(random) {
            let from = left.len();
            left.resize(self.bytes.len(), 0);
            if random.below(2) == 0 {
                random.fill(&mut left[from..]);
            }
        }
        self.synced = left.clone();
        self.bytes = left;
    }

    /// A sync that fails: what is lost of the pending changes is lost for good.
    fn fail_sync(&mut self, random: &mut Random) {
        let luck = Luck::draw(random);
        for Write { offset, bytes } in self.pending.drain(..) {
            write_sectors(&mut self.synced, offset, &bytes, || luck.holds(random));
        }
    }
}

/// Writes those sectors of `bytes` that stay.
fn write_sectors(target: &mut Vec<u8>, offset: u64, bytes: &[u8], mut stays: impl FnMut() -> bool) {
    let mut at = offset;
    let end = offset + bytes.len() as u64;
    while at < end {
        let sector_end = (at / SECTOR_BYTES + 1) * SECTOR_BYTES;
        let next = sector_end.min(end);
        if stays() {
            put(target, at, &bytes[(at - offset) as usize..(next - offset) as usize]);
        }
        at = next;
    }
}

impl SimFolder {
    pub(crate) fn new(seed: u64) -> Self {
        let state = SimState {
            files: Vec::new(),
            names: BTreeMap::new(),
            synced_names: BTreeMap::new(),
            pending: Vec::new(),
            faults: SimFaults::default(),
            operations: 0,
            failures: 0,
            is_off: false,
            random: Random::new(seed),
        };
        Self { state: Arc::new(Mutex::new(state)), before_change: || {} }
    }

    /// The power goes, if it has not, and comes back. There are no faults any more.
    pub(crate) fn lose_power(&self) {
        let state = &mut *self.state.lock();
        state.faults = SimFaults::default();
        state.is_off = false;
        let luck = Luck::draw(&mut state.random);
        let mut names = std::mem::take(&mut state.synced_names);
        for rename in state.pending.drain(..) {
            if luck.holds(&mut state.random) {
                apply_rename(&mut names, &rename);
            }
        }
        state.synced_names = names.clone();
        state.names = names;
        for file in &mut state.files {
            file.lose_power(&mut state.random);
        }
    }

    /// Changes the bytes of a file for good, whatever the journal wrote.
    #[cfg(any(test, feature = "fuzzing"))]
    pub(crate) fn overwrite(&self, name: &str, change: impl FnOnce(&mut Vec<u8>)) {
        let state = &mut *self.state.lock();
        let file = &mut state.files[state.names[name]];
        change(&mut file.bytes);
        file.synced = file.bytes.clone();
        file.pending.clear();
    }
}

#[cfg(any(test, feature = "simulation"))]
impl SimFolder {
    pub(crate) fn set_faults(&self, faults: SimFaults) {
        self.state.lock().faults = faults;
    }
}

#[cfg(feature = "simulation")]
impl SimFolder {
    /// The same with `before_change` called before each operation that changes something.
    pub(crate) fn pointed(self, before_change: fn()) -> Self {
        Self { before_change, ..self }
    }

    /// Another folder that is as this one is now.
    pub(crate) fn copy(&self) -> Self {
        let state = self.state.lock().clone();
        Self { state: Arc::new(Mutex::new(state)), before_change: self.before_change }
    }
}

#[cfg(test)]
impl SimFolder {
    /// Operations so far.
    pub(crate) fn operations(&self) -> u64 {
        self.state.lock().operations
    }

    /// Operations that a fault has hit.
    pub(crate) fn failures(&self) -> u64 {
        self.state.lock().failures
    }

    /// Whether the power is gone.
    pub(crate) fn is_off(&self) -> bool {
        self.state.lock().is_off
    }

    /// The bytes of a file that is there.
    pub(crate) fn bytes(&self, name: &str) -> Vec<u8> {
        let state = self.state.lock();
        state.files[state.names[name]].bytes.clone()
    }
}

impl SimState {
    /// Counts an operation. Errors: it fails, and takes effect as far as `partly` says.
    fn begin(&mut self) -> Begun {
        if self.is_off {
            return Begun::Off;
        }
        let number = self.operations;
        self.operations += 1;
        if self.faults.power_off_at == Some(number) {
            self.is_off = true;
            return Begun::Fails;
        }
        let fails =
            self.faults.fail_at == Some(number) || self.random.below(1000) < self.faults.failing;
        self.failures += u64::from(fails);
        if fails { Begun::Fails } else { Begun::Works }
    }

    /// Renames, or not, if it fails.
    fn rename(&mut self, rename: Rename) -> io::Result<()> {
        let begun = self.begin();
        if begun == Begun::Works || (begun == Begun::Fails && self.random.below(2) == 0) {
            apply_rename(&mut self.names, &rename);
            self.pending.push(rename);
        }
        begun.result()
    }

    fn find(&self, name: &str) -> io::Result<usize> {
        self.names.get(name).copied().ok_or(io::Error::from_raw_os_error(libc::ENOENT))
    }

    fn lacks_space(&self, more: u64) -> bool {
        let bytes: u64 = self.names.values().map(|&file| self.files[file].bytes.len() as u64).sum();
        self.faults.bytes_max.is_some_and(|most| bytes + more > most)
    }
}

/// What becomes of an operation.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Begun {
    Works,
    /// It may take effect in part.
    Fails,
    Off,
}

impl Begun {
    fn result(self) -> io::Result<()> {
        match self {
            Self::Works => Ok(()),
            Self::Fails | Self::Off => Err(io::Error::from_raw_os_error(libc::EIO)),
        }
    }
}

impl Storage for SimFolder {
    fn list(&self) -> io::Result<Vec<String>> {
        let state = self.state.lock();
        Ok(state.names.keys().cloned().collect())
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn StoredFile>> {
        (self.before_change)();
        let state = &mut *self.state.lock();
        if state.lacks_space(1) {
            state.failures += 1;
            return Err(io::Error::from_raw_os_error(libc::ENOSPC));
        }
        let file = state.files.len();
        state.files.push(SimFile::default());
        state.rename(Rename { file, from: None, to: Some(name.to_owned()) })?;
        Ok(Box::new(OpenFile { folder: self.clone(), file }))
    }

    fn open(&self, name: &str) -> io::Result<Box<dyn StoredFile>> {
        let file = self.state.lock().find(name)?;
        Ok(Box::new(OpenFile { folder: self.clone(), file }))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        (self.before_change)();
        let mut state = self.state.lock();
        let file = state.find(from)?;
        state.rename(Rename { file, from: Some(from.to_owned()), to: Some(to.to_owned()) })
    }

    fn keep(&self, name: &str, kept: &str) -> io::Result<()> {
        (self.before_change)();
        let mut state = self.state.lock();
        let file = state.find(name)?;
        state.rename(Rename { file, from: None, to: Some(kept.to_owned()) })
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        (self.before_change)();
        let mut state = self.state.lock();
        let file = state.find(name)?;
        state.rename(Rename { file, from: Some(name.to_owned()), to: None })
    }

    fn sync_folder(&self) -> io::Result<()> {
        (self.before_change)();
        let state = &mut *self.state.lock();
        let begun = state.begin();
        if begun == Begun::Works {
            state.synced_names = state.names.clone();
            state.pending.clear();
        }
        begun.result()
    }

    fn path(&self, name: &str) -> String {
        format!("sim/{name}")
    }
}

struct OpenFile {
    folder: SimFolder,
    file: usize,
}

impl StoredFile for OpenFile {
    fn size(&self) -> io::Result<u64> {
        Ok(self.folder.state.lock().files[self.file].bytes.len() as u64)
    }

    fn read_at(&self, offset: u64, target: &mut [u8]) -> io::Result<usize> {
        let state = self.folder.state.lock();
        let bytes = state.files[self.file].bytes.get(offset as usize..).unwrap_or_default();
        let read = bytes.len().min(target.len());
        target[..read].copy_from_slice(&bytes[..read]);
        Ok(read)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        (self.folder.before_change)();
        let state = &mut *self.folder.state.lock();
        let begun = state.begin();
        let grows =
            (offset + bytes.len() as u64).saturating_sub(state.files[self.file].bytes.len() as u64);
        let lacks_space = begun == Begun::Works && state.lacks_space(grows);
        let mut written = bytes;
        if begun == Begun::Fails || lacks_space {
            written = &bytes[..state.random.below(bytes.len() as u64 + 1) as usize];
        }
        if begun != Begun::Off {
            let file = &mut state.files[self.file];
            put(&mut file.bytes, offset, written);
            file.pending.push(Write { offset, bytes: written.to_vec() });
        }
        if lacks_space {
            state.failures += 1;
            return Err(io::Error::from_raw_os_error(libc::ENOSPC));
        }
        begun.result()
    }

    fn sync(&self) -> io::Result<()> {
        (self.folder.before_change)();
        let state = &mut *self.folder.state.lock();
        let begun = state.begin();
        let file = &mut state.files[self.file];
        match begun {
            Begun::Works => {
                for Write { offset, bytes } in file.pending.drain(..) {
                    put(&mut file.synced, offset, &bytes);
                }
            }
            // The power is gone: what was pending is lost or not later.
            Begun::Fails if state.is_off => {}
            Begun::Fails => file.fail_sync(&mut state.random),
            Begun::Off => {}
        }
        begun.result()
    }
}
