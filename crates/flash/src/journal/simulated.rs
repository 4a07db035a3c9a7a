//! A journal in a simulation: on a simulated folder, with the time that the simulation says, and a writer that it runs.
//!
//! The server opens it, appends to it and waits for it as it does on a machine.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use stdx::Random;

use super::checkpoint::read_found;
use super::host::Host;
use super::queue::Wait;
use super::shared::Shared;
use super::sim::{SimFaults, SimFolder};
use super::simulated_files::SimFiles;
use super::tuning::Tuning;
use super::writer::{Next, Writer};
use super::{JournalError, JournalOptions, Recovery};

/// How small what is large on a machine is, so that a short history meets all that a long one does.
#[derive(Clone, Copy, Debug)]
pub struct SimJournalSizes {
    /// Bytes from which on a segment is left for the next.
    pub segment_bytes: u64,
    /// Bytes that are synced whatever the policy.
    pub sync_bytes: u64,
    /// Bytes that wait to become durable, beyond which writes wait.
    pub held_bytes_max: u64,
    /// Bytes of a piece of the buffer: longer records are pieces of their own.
    pub chunk_bytes: usize,
    /// Bytes of a record in the file, beyond which it is in parts.
    pub part_bytes_max: usize,
}

/// The journal's folder, and all that a journal on it needs from outside.
pub struct SimJournal {
    folder: SimFolder,
    sizes: SimJournalSizes,
    random: Random,
    host: Arc<SimHost>,
}

/// The time, and the writer of the journal that was opened.
pub(super) struct SimHost {
    began: Instant,
    now_us: AtomicU64,
    writer: Mutex<Option<(Writer, Arc<Shared>)>>,
}

impl SimHost {
    pub(super) fn now(&self) -> Instant {
        self.began + Duration::from_micros(self.now_us.load(Ordering::Relaxed))
    }

    /// Keeps a writer until the simulation takes it.
    pub(super) fn keep(&self, writer: Writer, shared: Arc<Shared>) {
        *self.writer.lock() = Some((writer, shared));
    }
}

impl SimJournal {
    /// An empty folder. `before_change` is called before each operation that changes something there.
    pub fn new(seed: u64, sizes: SimJournalSizes, before_change: fn()) -> Self {
        let folder = SimFolder::new(seed).pointed(before_change);
        Self::on(folder, sizes, Random::new(seed ^ 0x0DD), Instant::now(), 0)
    }

    fn on(
        folder: SimFolder,
        sizes: SimJournalSizes,
        random: Random,
        began: Instant,
        now_us: u64,
    ) -> Self {
        let host = SimHost { began, now_us: AtomicU64::new(now_us), writer: Mutex::default() };
        Self { folder, sizes, random, host: Arc::new(host) }
    }

    /// It is so many microseconds after the start.
    pub fn set_now(&self, us: u64) {
        self.host.now_us.store(us, Ordering::Relaxed);
    }

    /// Of a thousand operations that change something, so many fail from now on.
    pub fn set_failing(&self, failing: u64) {
        self.folder.set_faults(SimFaults { failing, ..SimFaults::default() });
    }

    /// Opens the journal: what starts the writer leaves it to [`SimJournal::take_writer`].
    ///
    /// Errors: those of [`Recovery::open`].
    pub fn open(&mut self, options: JournalOptions) -> Result<Recovery, JournalError> {
        let SimJournalSizes { segment_bytes, sync_bytes, held_bytes_max, .. } = self.sizes;
        let SimJournalSizes { chunk_bytes, part_bytes_max, .. } = self.sizes;
        let seed = self.random.next_u64();
        let tuning =
            Tuning { seed, segment_bytes, sync_bytes, held_bytes_max, chunk_bytes, part_bytes_max };
        let mut recovery = Recovery::open_on(Arc::new(self.folder.clone()), options, tuning)?;
        recovery.host = Host::Simulated(self.host.clone());
        Ok(recovery)
    }

    /// The writer of the journal that was started; none: there is none yet, or it was taken.
    pub fn take_writer(&self) -> Option<SimWriter> {
        let (writer, shared) = self.host.writer.lock().take()?;
        Some(SimWriter { writer, shared, host: self.host.clone(), wait: None })
    }

    /// The files of the folder, for who keeps others beside the journal there.
    pub fn files(&self) -> SimFiles {
        SimFiles::in_folder(self.folder.clone())
    }

    /// What the last checkpoint says of the flash; none: it refers to nothing there.
    ///
    /// Errors: the journal cannot be read.
    pub fn find_flash_state(&self) -> Result<Option<Vec<u8>>, JournalError> {
        let found = read_found(&self.folder)?;
        Ok(found.and_then(|(_, flash_state)| flash_state))
    }

    /// What a crash would leave of it now: the process is killed, or the power is lost as well. This one goes on.
    pub fn crash(&mut self, loses_power: bool) -> Self {
        let folder = self.folder.copy();
        folder.set_faults(SimFaults::default());
        if loses_power {
            folder.lose_power();
        }
        let random = Random::new(self.random.next_u64());
        let now_us = self.host.now_us.load(Ordering::Relaxed);
        Self::on(folder, self.sizes, random, self.host.began, now_us)
    }
}

/// The writer, which the simulation runs.
pub struct SimWriter {
    writer: Writer,
    shared: Arc<Shared>,
    host: Arc<SimHost>,
    /// None: it has not begun to wait.
    wait: Option<Wait>,
}

impl SimWriter {
    /// Whether it has something to do.
    pub fn is_due(&self) -> bool {
        let Some(wait) = self.wait else { return true };
        let queue = self.shared.queue.lock();
        let is_over = || queue.waits_until(wait).is_some_and(|until| self.host.now() >= until);
        queue.ends_wait(wait, &self.shared) || is_over()
    }

    /// Does what there is to do.
    pub fn step(&mut self) {
        self.wait = match self.writer.step(self.host.now()) {
            Next::Wait(wait) => Some(wait),
            Next::End => None,
        };
    }
}
