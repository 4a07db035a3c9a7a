//! Threads of the server for single pieces of work that take long: fibers, each of which does one piece after another.
//!
//! A checkpoint of the journal has two: one walks over the keyspace, one writes the file.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use server::simulation::Job;

use crate::fiber::{Fiber, Pause, pause};

/// All of them.
#[derive(Default)]
pub(crate) struct Jobs {
    threads: Vec<JobThread>,
}

struct JobThread {
    fiber: Fiber,
    /// What it is to do next.
    job: Rc<RefCell<Option<Job>>>,
    /// Why the fiber stopped last.
    paused: Pause,
    /// When it has slept enough.
    due_us: u64,
    is_ending: Rc<Cell<bool>>,
}

impl Jobs {
    /// Has a piece of work begin.
    pub(crate) fn start(&mut self, job: Job, now_us: u64) {
        let idle = self.threads.iter().position(|thread| !thread.is_busy());
        let index = idle.unwrap_or_else(|| {
            self.threads.push(JobThread::new());
            self.threads.len() - 1
        });
        *self.threads[index].job.borrow_mut() = Some(job);
        self.run(index, now_us);
    }

    /// Goes on with one that is under way until it ends, waits or is stopped.
    pub(crate) fn run(&mut self, index: usize, now_us: u64) {
        let thread = &mut self.threads[index];
        thread.paused = thread.fiber.run().expect("it runs until it is ended");
        thread.due_us = match thread.paused {
            Pause::Sleeping(us) => now_us + us,
            _ => 0,
        };
    }

    /// Which are under way.
    pub(crate) fn busy(&self) -> impl Iterator<Item = usize> {
        let threads = self.threads.iter().enumerate();
        threads.filter(|(_, thread)| thread.is_busy()).map(|(index, _)| index)
    }

    /// Whether one does not sleep, and whether it waits for others.
    pub(crate) fn is_awake(&self, index: usize, now_us: u64) -> (bool, bool) {
        let thread = &self.threads[index];
        (thread.due_us <= now_us, thread.paused == Pause::Blocked)
    }

    /// When the next of those that sleep wakes up.
    pub(crate) fn next_due_us(&self) -> Option<u64> {
        let sleeping = self.threads.iter().filter(|thread| thread.due_us > 0);
        sleeping.map(|thread| thread.due_us).min()
    }

    /// Ends all. Shape: nothing is under way.
    pub(crate) fn end(&mut self) {
        self.threads.drain(..).for_each(JobThread::end);
    }
}

impl JobThread {
    fn new() -> JobThread {
        let job: Rc<RefCell<Option<Job>>> = Rc::default();
        let is_ending = Rc::<Cell<bool>>::default();
        let (own, ends) = (job.clone(), is_ending.clone());
        let body = move || {
            while !ends.get() {
                let job = own.borrow_mut().take();
                job.expect("it is run when there is one")();
                pause(Pause::Turn);
            }
        };
        JobThread { fiber: Fiber::new(body), job, paused: Pause::Turn, due_us: 0, is_ending }
    }

    fn is_busy(&self) -> bool {
        self.paused != Pause::Turn
    }

    fn end(mut self) {
        assert!(!self.is_busy());
        self.is_ending.set(true);
        assert_eq!(self.fiber.run(), None);
    }
}
