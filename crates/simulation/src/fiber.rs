//! Fibers: the simulated threads. Each has its own stack, one runs at a time, and the scheduler says
//! which. The crate's only `unsafe` lines.
//!
//! A worker of the server runs on a fiber, so it can be stopped in the middle of a request, where
//! it is about to lock a slot or to ask the flash engine for something, as the system may stop a
//! thread anywhere.

use std::cell::{Cell, RefCell};
use std::ptr::NonNull;
use std::rc::Rc;

use corosensei::stack::DefaultStack;
use corosensei::{Coroutine, CoroutineResult, Yielder};
use stdx::Random;

use crate::limits::{POINTS_MAX, STACK_BYTES};

/// Why a fiber let others run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pause {
    /// It has done a piece of work; there may be more.
    Turn,
    /// The scheduler took the thread away from it.
    Preempted,
    /// It waits for what others do: for a slot that one holds, for instance.
    Blocked,
    /// It waits for so many microseconds.
    Sleeping(u64),
}

type Handle = NonNull<Yielder<(), Pause>>;

thread_local! {
    /// The fiber that runs.
    static CURRENT: Cell<Option<Handle>> = const { Cell::new(None) };
    /// When the fiber that runs is to be stopped.
    static PREEMPTION: RefCell<Preemption> = RefCell::new(Preemption::never());
}

/// Chooses where fibers are stopped.
pub(crate) struct Preemption {
    random: Random,
    /// One of so many points, on average; 0: none.
    one_in: u64,
    points_left: u64,
    /// Points that the fiber which runs has passed since it went on.
    passed: u64,
}

impl Preemption {
    /// Fibers stop only where they say so.
    pub(crate) fn never() -> Preemption {
        Preemption { random: Random::new(0), one_in: 0, points_left: u64::MAX, passed: 0 }
    }

    pub(crate) fn new(random: Random, one_in: u64) -> Preemption {
        let mut preemption = Preemption { random, one_in, points_left: 0, passed: 0 };
        preemption.draw();
        preemption
    }

    /// In force for all fibers of this thread from now on.
    pub(crate) fn install(self) {
        PREEMPTION.with(|preemption| *preemption.borrow_mut() = self);
    }

    fn draw(&mut self) {
        self.points_left = match self.one_in {
            0 => u64::MAX,
            one_in => self.random.below(2 * one_in),
        };
    }

    fn pass(&mut self) {
        self.passed += 1;
        assert!(self.passed < POINTS_MAX, "a livelock: {POINTS_MAX} points without a wait");
    }

    fn is_due(&mut self) -> bool {
        self.pass();
        if self.points_left > 0 {
            self.points_left -= 1;
            return false;
        }
        self.draw();
        true
    }
}

/// A simulated thread.
pub(crate) struct Fiber {
    coroutine: Option<Coroutine<(), Pause, (), DefaultStack>>,
    handle: Rc<Cell<Option<Handle>>>,
}

impl Fiber {
    /// A fiber that will run `body`.
    pub(crate) fn new(body: impl FnOnce() + 'static) -> Fiber {
        let handle: Rc<Cell<Option<Handle>>> = Rc::default();
        let own = handle.clone();
        let stack = DefaultStack::new(STACK_BYTES).expect("memory for a stack");
        let coroutine = Coroutine::with_stack(stack, move |yielder: &Yielder<(), Pause>, ()| {
            own.set(Some(NonNull::from(yielder)));
            CURRENT.set(own.get());
            body();
        });
        Fiber { coroutine: Some(coroutine), handle }
    }

    /// Lets it run until it pauses; none: it has ended.
    pub(crate) fn run(&mut self) -> Option<Pause> {
        let coroutine = self.coroutine.as_mut()?;
        CURRENT.set(self.handle.get());
        PREEMPTION.with(|preemption| preemption.borrow_mut().passed = 0);
        let result = coroutine.resume(());
        CURRENT.set(None);
        match result {
            CoroutineResult::Yield(pause) => Some(pause),
            CoroutineResult::Return(()) => {
                self.coroutine = None;
                None
            }
        }
    }
}

impl Drop for Fiber {
    /// What stands on the stack of a fiber that has not ended cannot be unwound safely: it is left.
    fn drop(&mut self) {
        std::mem::forget(self.coroutine.take());
    }
}

/// Whether a fiber runs.
pub(crate) fn is_inside() -> bool {
    CURRENT.get().is_some()
}

/// Lets other fibers run. Outside of fibers it does nothing.
#[allow(unsafe_code, reason = "the yielder is reached from deep inside the server's code")]
pub(crate) fn pause(why: Pause) {
    let Some(handle) = CURRENT.get() else { return };
    // SAFETY: the handle points to the yielder of the fiber that runs now, on whose stack we are:
    // `run` sets it before the fiber goes on and takes it away when it stops, and a yielder lives as
    // long as its fiber's body.
    unsafe { handle.as_ref() }.suspend(why);
}

/// A point at which the fiber that runs may be stopped.
pub(crate) fn point() {
    if CURRENT.get().is_some() && PREEMPTION.with(|preemption| preemption.borrow_mut().is_due()) {
        pause(Pause::Preempted);
    }
}

/// A point at which to stop the fiber would show nothing.
pub(crate) fn pass() {
    PREEMPTION.with(|preemption| preemption.borrow_mut().pass());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fibers_take_turns_and_end() {
        let seen: Rc<RefCell<Vec<u32>>> = Rc::default();
        let fiber = |number: u32| {
            let seen = seen.clone();
            Fiber::new(move || {
                for turn in 0..3 {
                    seen.borrow_mut().push(10 * number + turn);
                    pause(Pause::Turn);
                }
            })
        };
        let mut fibers = [fiber(1), fiber(2)];
        while fibers.iter_mut().map(|fiber| fiber.run()).filter(Option::is_some).count() > 0 {}
        assert_eq!(*seen.borrow(), [10, 20, 11, 21, 12, 22]);
        pause(Pause::Turn);
    }

    #[test]
    fn preemption_follows_from_the_seed() {
        let stops = |seed| {
            Preemption::new(Random::new(seed), 5).install();
            let mut fiber = Fiber::new(|| (0..100).for_each(|_| point()));
            let stops = std::iter::from_fn(|| fiber.run()).count();
            Preemption::never().install();
            stops
        };
        assert_eq!(stops(1), stops(1));
        assert!((5..60).contains(&stops(1)));
    }
}
