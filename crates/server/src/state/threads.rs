//! Threads for single pieces of work that take long.

#[cfg(feature = "simulation")]
use std::collections::VecDeque;
use std::future::Future;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

use parking_lot::{Mutex, MutexGuard};

/// A piece of work.
pub type Job = Box<dyn FnOnce() + Send>;

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

/// Waits with the thread, which serves nobody, for what others do.
pub(crate) fn wait_for<R>(future: impl Future<Output = R>) -> R {
    let mut future = pin!(future);
    let waker = Waker::from(Arc::new(Unparks(thread::current())));
    let mut cx = Context::from_waker(&waker);
    loop {
        if let Poll::Ready(result) = future.as_mut().poll(&mut cx) {
            return result;
        }
        if !stdx::waiting::let_others_run() {
            thread::park();
        }
    }
}

struct Unparks(Thread);

impl Wake for Unparks {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Locks what in a simulation a fiber may hold that is stopped.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    while stdx::waiting::is_simulated() {
        if let Some(guard) = mutex.try_lock() {
            return guard;
        }
        stdx::waiting::let_others_run();
    }
    mutex.lock()
}

impl Threads {
    /// Has `job` done. Errors: no thread could be had; the work is lost.
    pub(crate) fn start(&self, name: &'static str, job: Job) -> io::Result<()> {
        match self {
            Threads::System => thread::Builder::new().name(name.into()).spawn(job).map(|_| ()),
            #[cfg(feature = "simulation")]
            Threads::Simulated(jobs) => {
                jobs.lock().push_back(job);
                Ok(())
            }
        }
    }
}
