//! The tasks of one simulated worker: polled one at a time, in an order that the seed chooses.

use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use stdx::Random;

use crate::fiber::{Fiber, Pause, pause};

type BoxedFuture = Pin<Box<dyn Future<Output = ()>>>;

/// A simulated worker thread with its tasks.
pub(crate) struct Thread {
    tasks: Rc<Tasks>,
    fiber: Fiber,
    /// Why the fiber stopped last.
    paused: Pause,
}

/// Tasks, as the fiber that polls them sees them.
struct Tasks {
    list: RefCell<Vec<Task>>,
    random: RefCell<Random>,
    is_ending: Cell<bool>,
}

struct Task {
    /// None while it is polled, and when it has ended.
    future: Option<BoxedFuture>,
    ready: Arc<Ready>,
}

struct Ready(AtomicBool);

impl Wake for Ready {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Thread {
    pub(crate) fn new(random: Random) -> Thread {
        let tasks = Rc::new(Tasks {
            list: RefCell::default(),
            random: RefCell::new(random),
            is_ending: Cell::new(false),
        });
        let own = tasks.clone();
        let body = move || {
            while !own.is_ending.get() {
                own.poll_one();
                pause(Pause::Turn);
            }
        };
        Thread { tasks, fiber: Fiber::new(body), paused: Pause::Turn }
    }

    /// Adds a task, which is ready.
    pub(crate) fn spawn(&self, future: impl Future<Output = ()> + 'static) {
        let ready = Arc::new(Ready(AtomicBool::new(true)));
        let task = Task { future: Some(Box::pin(future)), ready };
        let mut list = self.tasks.list.borrow_mut();
        match list.iter_mut().find(|task| task.is_over()) {
            Some(place) => *place = task,
            None => list.push(task),
        }
    }

    /// Whether it stopped in the middle of a task.
    pub(crate) fn is_in_task(&self) -> bool {
        self.paused != Pause::Turn
    }

    /// Whether the scheduler took the thread away from it.
    pub(crate) fn is_preempted(&self) -> bool {
        self.paused == Pause::Preempted
    }

    /// Whether it waits for a slot that another thread holds.
    pub(crate) fn is_blocked(&self) -> bool {
        self.paused == Pause::Blocked
    }

    /// Whether there is something to run.
    pub(crate) fn is_ready(&self) -> bool {
        self.is_in_task() || self.tasks.list.borrow().iter().any(Task::is_ready)
    }

    /// Goes on with the task under way, or with one that is ready, until it ends, waits or is
    /// stopped.
    pub(crate) fn run(&mut self) {
        self.paused = self.fiber.run().expect("invariant: a thread runs until it is ended");
    }

    /// Drops all tasks and ends the thread. Shape: it is in no task.
    pub(crate) fn end(mut self) {
        assert!(!self.is_in_task());
        self.tasks.list.borrow_mut().clear();
        self.tasks.is_ending.set(true);
        assert_eq!(self.fiber.run(), None);
    }
}

impl Tasks {
    fn poll_one(&self) {
        let Some((index, mut future, ready)) = self.take_ready() else { return };
        ready.0.store(false, Ordering::Relaxed);
        let waker = Waker::from(ready);
        if future.as_mut().poll(&mut Context::from_waker(&waker)).is_pending() {
            self.list.borrow_mut()[index].future = Some(future);
        }
    }

    fn take_ready(&self) -> Option<(usize, BoxedFuture, Arc<Ready>)> {
        let mut list = self.list.borrow_mut();
        let ready: Vec<usize> = (0..list.len()).filter(|index| list[*index].is_ready()).collect();
        if ready.is_empty() {
            return None;
        }
        let index = ready[self.random.borrow_mut().below(ready.len() as u64) as usize];
        let task = &mut list[index];
        Some((index, task.future.take()?, task.ready.clone()))
    }
}

impl Task {
    fn is_ready(&self) -> bool {
        self.future.is_some() && self.ready.0.load(Ordering::Relaxed)
    }

    /// The one that is being polled counts as over, but its place is kept by its handle.
    fn is_over(&self) -> bool {
        self.future.is_none() && Arc::strong_count(&self.ready) == 1
    }
}

/// Waits for the first of two.
pub(crate) async fn either(one: impl Future<Output = ()>, other: impl Future<Output = ()>) {
    let (mut one, mut other) = (pin!(one), pin!(other));
    poll_fn(|cx| match one.as_mut().poll(cx) {
        Poll::Ready(()) => Poll::Ready(()),
        Poll::Pending => other.as_mut().poll(cx),
    })
    .await;
}

/// Something that a task waits for, again and again.
#[derive(Default)]
pub(crate) struct Signal {
    is_given: Cell<bool>,
    waker: RefCell<Option<Waker>>,
}

impl Signal {
    /// Lets the task that waits go on, or that which waits next.
    pub(crate) fn give(&self) {
        self.is_given.set(true);
        if let Some(waker) = self.waker.borrow_mut().take() {
            waker.wake();
        }
    }

    /// Waits until it is given; takes it back.
    pub(crate) async fn taken(&self) {
        poll_fn(|cx| {
            if self.is_given.take() {
                return Poll::Ready(());
            }
            *self.waker.borrow_mut() = Some(cx.waker().clone());
            Poll::Pending
        })
        .await;
    }
}
