//! A worker's turn: how much its clients may take of it before it looks for new events.
//!
//! Clients that are ready share a turn. Who finds it spent waits in one of three lines: for clients
//! that have taken little lately, for those of them that were passed, and for those that have taken
//! much. Each look for events lets one line go, in alternation (`ROTATION`): of the first its newest,
//! as far as a turn goes; those that find it spent again go to the second, which goes in order of
//! arrival; of the third only the first one, and what that takes does not spend the turn of others.
//! So a client that asks for little waits for one that asks for much, or two, not for all of them,
//! and nobody is passed by newer ones for long.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Poll, Waker};

use quanta::Clock;

use crate::limits::{GRANTED_AT_ONCE_MAX, TURN_BYTES_MAX, TURN_NANOS_MAX};

/// Fraction bits of what a tick of the clock counts for.
const TICK_SHIFT: u32 = 16;

/// The line of clients that have taken little, of those of them that were passed by newer ones, and of
/// those that have taken much.
const LITTLE: usize = 0;
const PASSED: usize = 1;
const MUCH: usize = 2;
/// Which line goes after which, without those that are empty.
const ROTATION: [usize; 4] = [LITTLE, PASSED, LITTLE, MUCH];

/// What the clients of a worker have taken since it looked for new events, and who waits for the next
/// look.
pub(crate) struct Turn {
    /// Bytes that were read and answered, and the time of runs as so many bytes.
    used: Cell<u64>,
    /// Bytes that a tick counts for, `TICK_SHIFT` bits of them behind the point.
    bytes_per_tick: u64,
    /// Bounds: one place for each connection.
    lines: [RefCell<VecDeque<Rc<Waiting>>>; 3],
    /// Where in `ROTATION` the next look begins.
    next: Cell<usize>,
    /// Whether one of those that wait makes the runtime look.
    has_looker: Cell<bool>,
}

#[derive(Default)]
struct Waiting {
    may_go: Cell<bool>,
    waker: Cell<Option<Waker>>,
}

/// A client's place in a line, which it leaves when this is dropped.
struct Place<'a> {
    turn: &'a Turn,
    line: usize,
    waiting: Rc<Waiting>,
}

/// Whoever makes the runtime look, until this is dropped.
struct Looker<'a>(&'a Turn);

impl Waiting {
    fn grant(self: &Rc<Waiting>) {
        self.may_go.set(true);
        self.wake();
    }

    fn wake(&self) {
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }
}

impl Turn {
    /// A turn of `TURN_BYTES_MAX` or `TURN_NANOS_MAX`, by this clock.
    pub(crate) fn new(clock: &Clock) -> Turn {
        const STRETCH: u64 = 1 << 20;
        let nanos = clock.delta_as_nanos(0, STRETCH);
        let bytes = nanos * TURN_BYTES_MAX / TURN_NANOS_MAX;
        Turn {
            used: Cell::new(0),
            bytes_per_tick: (bytes << TICK_SHIFT) / STRETCH,
            lines: Default::default(),
            next: Cell::new(0),
            has_looker: Cell::new(false),
        }
    }

    /// Counts bytes that were read, answered or written.
    #[inline]
    pub(crate) fn add(&self, bytes: usize) {
        self.used.set(self.used.get() + bytes as u64);
    }

    /// Counts ticks of the clock that a run took.
    #[inline]
    pub(crate) fn add_ticks(&self, ticks: u64) {
        let bytes = ticks.wrapping_mul(self.bytes_per_tick) >> TICK_SHIFT;
        self.used.set(self.used.get() + bytes);
    }

    /// What was taken of this turn, in bytes.
    #[inline]
    pub(crate) fn used(&self) -> u64 {
        self.used.get()
    }

    /// Takes back what was counted since [`Turn::used`] said this.
    #[inline]
    pub(crate) fn take_back(&self, used: u64) {
        self.used.set(used.min(self.used.get()));
    }

    /// Whether it is time to look for new events.
    #[inline]
    pub(crate) fn is_spent(&self) -> bool {
        self.used.get() > TURN_BYTES_MAX
    }

    /// Whether a client has to wait for its turn: it is spent, or others wait for theirs and this one
    /// has taken `much`.
    #[inline]
    pub(crate) fn is_over(&self, much: bool) -> bool {
        self.is_spent() || much && self.has_looker.get()
    }

    /// In the midst of something long: lets others have their turn if it is time.
    pub(crate) async fn pass(&self) {
        if self.is_over(true) {
            self.end(true).await;
        }
    }

    /// Waits for a turn that is not spent, or for one of its own, which is not counted, for a client
    /// that has taken `much`. Whether it is one of its own.
    #[cold]
    pub(crate) async fn end(&self, much: bool) -> bool {
        if much {
            self.join(MUCH).go().await;
            return true;
        }
        self.join(LITTLE).go().await;
        if !self.is_spent() {
            return false;
        }
        let place = self.join(PASSED);
        loop {
            place.go().await;
            if !self.is_spent() {
                return false;
            }
            place.waiting.may_go.set(false);
        }
    }

    /// Has one of those that wait make the runtime look.
    fn wake_looker(&self) {
        for line in &self.lines {
            if let Some(waiting) = line.borrow().iter().find(|waiting| !waiting.may_go.get()) {
                return waiting.wake();
            }
        }
    }

    fn join(&self, line: usize) -> Place<'_> {
        let waiting = Rc::new(Waiting::default());
        self.lines[line].borrow_mut().push_back(waiting.clone());
        Place { turn: self, line, waiting }
    }

    /// Lets those go whose turn it is: new events have been looked for.
    fn begin(&self) {
        self.used.set(0);
        for step in 0..ROTATION.len() {
            let at = (self.next.get() + step) % ROTATION.len();
            let line = self.lines[ROTATION[at]].borrow();
            if line.is_empty() {
                continue;
            }
            self.next.set(at + 1);
            match ROTATION[at] {
                LITTLE => line.iter().rev().take(GRANTED_AT_ONCE_MAX).for_each(Waiting::grant),
                PASSED => line.iter().take(GRANTED_AT_ONCE_MAX).for_each(Waiting::grant),
                _ => line.iter().take(1).for_each(Waiting::grant),
            }
            return;
        }
    }
}

impl Place<'_> {
    async fn go(&self) {
        while !self.waiting.may_go.get() {
            if self.turn.has_looker.get() {
                self.sleep().await;
                continue;
            }
            self.turn.has_looker.set(true);
            let _looker = Looker(self.turn);
            while !self.waiting.may_go.get() {
                // The runtime looks for events first, and wakes whoever they are for before us.
                tokio::task::yield_now().await;
                self.turn.begin();
            }
        }
    }

    /// Sleeps until it may go, or has to look itself.
    async fn sleep(&self) {
        poll_fn(|cx| {
            if self.waiting.may_go.get() || !self.turn.has_looker.get() {
                return Poll::Ready(());
            }
            self.waiting.waker.set(Some(cx.waker().clone()));
            Poll::Pending
        })
        .await;
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut line = self.turn.lines[self.line].borrow_mut();
        let is_this =
            |one: Option<&Rc<Waiting>>| one.is_some_and(|one| Rc::ptr_eq(one, &self.waiting));
        // Nearly always one of both.
        if is_this(line.front()) {
            line.pop_front();
        } else if is_this(line.back()) {
            line.pop_back();
        } else {
            line.retain(|one| !Rc::ptr_eq(one, &self.waiting));
        }
        drop(line);
        if !self.turn.has_looker.get() {
            self.turn.wake_looker();
        }
    }
}

impl Drop for Looker<'_> {
    fn drop(&mut self) {
        self.0.has_looker.set(false);
        self.0.wake_looker();
    }
}

#[cfg(test)]
mod tests {
    use tokio::runtime::LocalOptions;
    use tokio::task::spawn_local;

    use super::*;

    /// Clients that each take this part of a turn, again and again.
    const CLIENTS: usize = 64;
    const PART_OF_TURN: u64 = 20;
    const ROUNDS: usize = 200;

    #[test]
    fn nobody_is_passed_for_long_by_others_that_ask_for_as_little() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build_local(LocalOptions::default())
            .expect("a runtime");
        let turn = Rc::new(Turn::new(&Clock::new()));
        let served = Rc::new(Cell::new(0));
        let passed_by = runtime.block_on(async {
            let greedy = spawn_local(take_much(turn.clone()));
            let clients: Vec<_> =
                (0..CLIENTS).map(|_| spawn_local(serve(turn.clone(), served.clone()))).collect();
            let mut most = 0;
            for client in clients {
                most = most.max(client.await.expect("a client"));
            }
            greedy.abort();
            most
        });
        assert_eq!(served.get(), CLIENTS * ROUNDS);
        assert!(
            passed_by <= 4 * CLIENTS,
            "{passed_by} others were served between two of one's own"
        );
    }

    /// Serves a client that asks for much.
    async fn take_much(turn: Rc<Turn>) {
        loop {
            turn.end(true).await;
            tier::yield_once().await;
        }
    }

    /// Serves a client; how many others were served, at most, between two of its own.
    async fn serve(turn: Rc<Turn>, served: Rc<Cell<usize>>) -> usize {
        let (mut most, mut last) = (0, 0);
        for round in 0..ROUNDS {
            if turn.is_over(false) {
                turn.end(false).await;
            }
            turn.add((TURN_BYTES_MAX / PART_OF_TURN) as usize);
            served.set(served.get() + 1);
            if round > 0 {
                most = most.max(served.get() - last);
            }
            last = served.get();
            tier::yield_once().await;
        }
        most
    }
}
