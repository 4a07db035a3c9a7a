//! How flash is switched on and off while the server runs: what those who do it, and the workers, tell each other.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use tokio::sync::watch;

use crate::config::FlashOptions;

/// How bringing all values back to RAM has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DrainEnd {
    /// There is no flash any more.
    Done,
    /// A client has set a path again, or the server stops.
    CalledOff,
    /// There was not enough memory.
    NoMemory,
    /// Walk after walk as many values were on flash as before: memory is so short that as many leave RAM as come back.
    NoProgress,
    /// A value could not be read.
    Unreadable,
    /// The checkpoint that is to take the place of one that refers to flash could not be taken.
    NoCheckpoint,
}

impl DrainEnd {
    /// As INFO has it.
    pub(crate) fn word(self) -> &'static str {
        match self {
            DrainEnd::Done => "done",
            DrainEnd::CalledOff => "called-off",
            DrainEnd::NoMemory => "no-memory",
            DrainEnd::NoProgress => "no-progress",
            DrainEnd::Unreadable => "unreadable",
            DrainEnd::NoCheckpoint => "no-checkpoint",
        }
    }
}

/// All values are being brought back to RAM.
#[derive(Default)]
pub(crate) struct Drain {
    is_called_off: AtomicBool,
}

impl Drain {
    pub(crate) fn call_off(&self) {
        self.is_called_off.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_called_off(&self) -> bool {
        self.is_called_off.load(Ordering::Relaxed)
    }
}

/// One for the server.
pub(crate) struct FlashChanges {
    told: watch::Sender<()>,
    /// Why a worker could not take its side of the engine.
    failure: Mutex<Option<String>>,
    /// The one under way.
    drain: Mutex<Option<Arc<Drain>>>,
    last_end: Mutex<Option<DrainEnd>>,
    /// The options when there was last acted on a path: what a drain that fails goes back to.
    options: Mutex<FlashOptions>,
}

impl Default for FlashChanges {
    fn default() -> FlashChanges {
        FlashChanges {
            told: watch::Sender::new(()),
            failure: Mutex::default(),
            drain: Mutex::default(),
            last_end: Mutex::default(),
            options: Mutex::default(),
        }
    }
}

impl FlashChanges {
    /// Has the workers look at what there is of flash now.
    pub(crate) fn tell(&self) {
        self.told.send_replace(());
    }

    /// Tells of each such time from now on.
    pub(crate) fn listen(&self) -> watch::Receiver<()> {
        self.told.subscribe()
    }

    /// Notes that a worker cannot go along.
    pub(crate) fn fail(&self, reason: String) {
        *self.failure.lock() = Some(reason);
    }

    /// Why one could not.
    pub(crate) fn take_failure(&self) -> Option<String> {
        self.failure.lock().take()
    }

    /// The drain under way.
    pub(crate) fn drain(&self) -> Option<Arc<Drain>> {
        self.drain.lock().clone()
    }

    /// Begins one, where none is under way.
    pub(crate) fn begin_drain(&self) -> Arc<Drain> {
        let drain = Arc::new(Drain::default());
        *self.drain.lock() = Some(drain.clone());
        drain
    }

    /// Ends it. None: it has not begun.
    pub(crate) fn end_drain(&self, end: Option<DrainEnd>) {
        let mut drain = self.drain.lock();
        *self.last_end.lock() = end;
        *drain = None;
    }

    /// How the last has ended.
    pub(crate) fn last_end(&self) -> Option<DrainEnd> {
        *self.last_end.lock()
    }

    /// Notes the options that were acted on.
    pub(crate) fn note_options(&self, options: FlashOptions) {
        *self.options.lock() = options;
    }

    /// Those that were noted last.
    pub(crate) fn options(&self) -> FlashOptions {
        self.options.lock().clone()
    }
}
