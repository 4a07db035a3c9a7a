//! Threads for single pieces of work that take long.

use std::io;
#[cfg(feature = "simulation")]
use std::{collections::VecDeque, sync::Mutex};

/// A piece of work.
pub(crate) type Job = Box<dyn FnOnce() + Send>;

/// Which threads come first where there are more than cores.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Priority {
    /// It is like those that serve clients.
    Normal,
    /// Those that serve clients come first; it gets a tenth of a core that they want all of.
    Low,
}

/// The nice value of low priority.
const LOW_NICE: i32 = 10;

impl Priority {
    /// Sets that of this thread. One that may not set it goes on as it is.
    fn set(self) {
        if self == Priority::Low {
            // For Linux "the calling process" is the thread.
            let _ = rustix::process::setpriority_process(None, LOW_NICE);
        }
    }
}

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
    pub(crate) fn start(&self, name: &'static str, priority: Priority, job: Job) -> io::Result<()> {
        match self {
            Threads::System => {
                let run = move || {
                    priority.set();
                    job();
                };
                std::thread::Builder::new().name(name.into()).spawn(run).map(|_| ())
            }
            #[cfg(feature = "simulation")]
            Threads::Simulated(jobs) => {
                jobs.lock().expect("nobody panics with it").push_back(job);
                Ok(())
            }
        }
    }
}
