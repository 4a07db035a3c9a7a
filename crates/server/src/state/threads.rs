//! Threads for single pieces of work that take long.

use std::io;
#[cfg(feature = "simulation")]
use std::{collections::VecDeque, sync::Mutex};

/// A piece of work.
pub(crate) type Job = Box<dyn FnOnce() + Send>;

/// Where such work is done.
#[derive(Default)]
pub(crate) enum Threads {
    /// On a thread of its own.
    #[default]
    System,
    /// By the simulation, when it takes it.
    #[cfg(feature = "simulation")]
    Simulated(Mutex<VecDeque<Job>>),
}

impl Threads {
    /// Has `job` done. Errors: no thread could be had; the work is lost.
    pub(crate) fn start(&self, name: &'static str, job: Job) -> io::Result<()> {
        match self {
            Threads::System => std::thread::Builder::new().name(name.into()).spawn(job).map(|_| ()),
            #[cfg(feature = "simulation")]
            Threads::Simulated(jobs) => {
                jobs.lock().expect("nobody panics with it").push_back(job);
                Ok(())
            }
        }
    }
}
