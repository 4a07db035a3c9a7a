//! What runs the writer and tells the time: threads and the clock of the machine, or a simulation.

use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Instant;

use super::shared::Shared;
#[cfg(feature = "simulation")]
use super::simulated::SimHost;
use super::writer::{Next, Writer};

#[derive(Clone, Default)]
pub(super) enum Host {
    #[default]
    Machine,
    #[cfg(feature = "simulation")]
    Simulated(Arc<SimHost>),
}

impl Host {
    pub(super) fn now(&self) -> Instant {
        match self {
            Self::Machine => Instant::now(),
            #[cfg(feature = "simulation")]
            Self::Simulated(host) => host.now(),
        }
    }

    /// Has the writer run: on a thread of its own, if that is returned. Errors: there is none to be had.
    pub(super) fn run(
        &self,
        writer: Writer,
        shared: &Arc<Shared>,
    ) -> io::Result<Option<JoinHandle<()>>> {
        match self {
            Self::Machine => {
                let shared = shared.clone();
                let thread = std::thread::Builder::new().name("journal".into());
                thread.spawn(move || run(writer, &shared)).map(Some)
            }
            #[cfg(feature = "simulation")]
            Self::Simulated(host) => {
                host.keep(writer, shared.clone());
                Ok(None)
            }
        }
    }
}

/// The thread's life.
fn run(mut writer: Writer, shared: &Shared) {
    let _ends = shared.ends();
    loop {
        match writer.step(Instant::now()) {
            Next::Wait(wait) => shared.queue.wait(wait, shared),
            Next::End => return,
        }
    }
}
