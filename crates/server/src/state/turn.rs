//! A worker's turn: how much its clients may take of it before it looks for new events.
//!
//! Clients that are ready share a turn. Who finds it spent waits in one of three lines: for light
//! clients, which have taken little lately, for those of them that newer ones have overtaken, and for
//! heavy clients. Each look for events lets one line go, in alternation (`ROTATION`): of the first its
//! newest, as far as a turn goes, while all others of it go to the second, as do those that find the
//! turn spent again; the second goes in order of arrival; of the third only the first one, and what
//! that runs and writes does not spend the turn of others. So whoever is new waits for one heavy
//! client, not for all of them; and a third of the looks is for those that have waited longest alone,
//! whose requests come before those that the look finds.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Poll, Waker};

use quanta::Clock;

use crate::limits::{
    BATCH_TURNS_SHIFT, CROWDED_TURN_SHIFT, HEAVY_PART_SHIFT, TURN_BYTES_MAX, TURN_NANOS_MAX,
};
use crate::state::slices::Slices;

/// Fraction bits of what a tick of the clock counts for.
const TICK_SHIFT: u32 = 16;

/// The lines of light clients, of those of them that newer ones have overtaken, and of heavy clients.
const LIGHT: usize = 0;
const OVERTAKEN: usize = 1;
const HEAVY: usize = 2;
/// Which line goes after which, without those that are empty.
const ROTATION: [usize; 3] = [LIGHT, OVERTAKEN, HEAVY];

/// What is counted besides those that are let go from each line: light clients that newer ones have
/// overtaken, and those that found the turn spent again.
const PASSED: usize = 3;
const BEHIND: usize = 4;
/// Numbers that are counted.
#[cfg(feature = "simulation")]
pub(crate) const COUNTS: usize = 5;

/// A ticket that is later than any.
const EVERYBODY: u64 = u64::MAX;

/// Since when a client waits for its turn, in the order of all that wait: what it keeps until a request
/// of it has run.
#[derive(Default)]
pub(crate) struct Ticket(Option<u64>);

/// What the clients of a worker have taken since it looked for new events, and who waits for the next
/// look.
pub(crate) struct Turn {
    /// Bytes that were read and answered, and the time of runs as so many bytes.
    used: Cell<u64>,
    /// Bytes that a turn lasts.
    bytes_max: u64,
    /// Light clients that go on after one look.
    granted_at_once_max: usize,
    /// Bytes that a tick counts for, `TICK_SHIFT` bits of them behind the point.
    bytes_per_tick: u64,
    clock: Clock,
    /// Ticks that a turn of a heavy client's own lasts, where there is no crowd.
    own_ticks_max: u64,
    /// When the last turn of a client of its own began, in ticks.
    own_since: Cell<u64>,
    /// By their tickets' numbers. Bounds: one place for each connection.
    lines: [RefCell<BTreeMap<u64, Rc<Waiting>>>; 3],
    next_ticket: Cell<u64>,
    /// Where in `ROTATION` the next look begins.
    next: Cell<usize>,
    /// Whether one of those that wait makes the runtime look.
    has_looker: Cell<bool>,
    /// The last ticket of those that the turn is for: a look for the overtaken is for them
    /// alone, any other for everybody.
    last_ticket: Cell<u64>,
    #[cfg(feature = "simulation")]
    counts: [Cell<u64>; COUNTS],
}

struct Waiting {
    /// The line that it is in.
    line: Cell<usize>,
    may_go: Cell<bool>,
    waker: Cell<Option<Waker>>,
}

/// A client's place in a line, which it leaves when this is dropped.
struct Place<'a> {
    turn: &'a Turn,
    ticket: u64,
    waiting: Rc<Waiting>,
}

/// Whoever makes the runtime look, until this is dropped.
struct Looker<'a>(&'a Turn);

impl Waiting {
    fn wake(&self) {
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }
}

impl Ticket {
    /// A request of the client has run, or it has none: when it asks again, it is as new as others.
    #[inline]
    pub(crate) fn spend(&mut self) {
        self.0 = None;
    }
}

impl Turn {
    /// Turns as long as these slices say, in bytes or in time by this clock.
    pub(crate) fn new(clock: &Clock, slices: &Slices) -> Turn {
        const STRETCH: u64 = 1 << 20;
        let nanos = clock.delta_as_nanos(0, STRETCH);
        let bytes = nanos * TURN_BYTES_MAX / TURN_NANOS_MAX;
        Turn {
            used: Cell::new(0),
            bytes_max: slices.turn_bytes_max,
            granted_at_once_max: slices.granted_at_once_max,
            bytes_per_tick: (bytes << TICK_SHIFT) / STRETCH,
            clock: clock.clone(),
            own_ticks_max: slices.own_turn_nanos_max * STRETCH / nanos,
            own_since: Cell::new(0),
            lines: Default::default(),
            next_ticket: Cell::new(0),
            next: Cell::new(0),
            has_looker: Cell::new(false),
            last_ticket: Cell::new(EVERYBODY),
            #[cfg(feature = "simulation")]
            counts: Default::default(),
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
        self.used.get() > self.bytes_max
    }

    /// Whether a client that has taken so much since all that it had sent has run is heavy.
    #[inline]
    pub(crate) fn is_heavy(&self, taken: u64) -> bool {
        taken > self.bytes_max >> HEAVY_PART_SHIFT
    }

    /// Whether a client has to wait for its turn: it is spent, or it is that of clients that have waited
    /// longer, or others wait for theirs and this one is heavy.
    #[inline]
    pub(crate) fn is_over(&self, is_heavy: bool, ticket: &Ticket) -> bool {
        let is_for_others = ticket.0.unwrap_or(EVERYBODY) > self.last_ticket.get();
        self.is_spent() || is_for_others || is_heavy && self.has_looker.get()
    }

    /// Whether a batch that has taken so much in one go has to let others have their turn before its next
    /// request.
    #[inline]
    pub(crate) fn ends_batch(&self, taken: u64) -> bool {
        taken > self.bytes_max << BATCH_TURNS_SHIFT
    }

    /// Begins a turn of everybody.
    #[cfg(test)]
    pub(crate) fn renew(&self) {
        self.used.set(0);
        self.last_ticket.set(EVERYBODY);
    }

    /// Whether a heavy client waits.
    #[cfg(test)]
    pub(crate) fn is_waited_for_by_heavy(&self) -> bool {
        !self.lines[HEAVY].borrow().is_empty()
    }

    /// In the midst of something long: lets others have their turn, unless the last turn that a heavy
    /// client was given has not lasted yet: what is done in hundreds of small steps would not end for
    /// seconds if others came after each.
    pub(crate) async fn give_way(&self) {
        let is_waited_for = self.is_spent() || self.has_looker.get();
        if is_waited_for && self.own_ticks() >= self.own_ticks_max() {
            self.end(true, &mut Ticket::default()).await;
        }
    }

    /// Ticks since the last turn of a client of its own began.
    fn own_ticks(&self) -> u64 {
        self.clock.raw().wrapping_sub(self.own_since.get())
    }

    /// Ticks that such a turn lasts.
    fn own_ticks_max(&self) -> u64 {
        let waiting = |line: usize| self.lines[line].borrow().len();
        let is_crowded = waiting(LIGHT) + waiting(OVERTAKEN) > self.granted_at_once_max;
        if is_crowded { self.own_ticks_max << CROWDED_TURN_SHIFT } else { self.own_ticks_max }
    }

    /// Waits for a turn that is not spent or, for a heavy client, for one of its own. Whether it is one of
    /// its own. A light client that comes back with its ticket, since the turn was spent before a request
    /// of it could run, has its place again.
    #[cold]
    pub(crate) async fn end(&self, is_heavy: bool, ticket: &mut Ticket) -> bool {
        if is_heavy {
            self.join(HEAVY, self.new_ticket()).go().await;
            self.own_since.set(self.clock.raw());
            return true;
        }
        let (line, number) = match ticket.0 {
            Some(number) => (OVERTAKEN, number),
            None => (LIGHT, self.new_ticket()),
        };
        ticket.0 = Some(number);
        let place = self.join(line, number);
        loop {
            place.go().await;
            if !self.is_spent() {
                return false;
            }
            place.waiting.may_go.set(false);
            place.fall_behind();
        }
    }

    fn new_ticket(&self) -> u64 {
        self.next_ticket.replace(self.next_ticket.get() + 1)
    }

    /// Has one of those that wait make the runtime look.
    fn wake_looker(&self) {
        for line in &self.lines {
            if let Some(waiting) = line.borrow().values().find(|waiting| !waiting.may_go.get()) {
                return waiting.wake();
            }
        }
    }

    fn join(&self, line: usize, ticket: u64) -> Place<'_> {
        let waiting = Rc::new(Waiting {
            line: Cell::new(line),
            may_go: Cell::new(false),
            waker: Cell::new(None),
        });
        let before = self.lines[line].borrow_mut().insert(ticket, waiting.clone());
        assert!(before.is_none(), "invariant: who holds a ticket waits once");
        Place { turn: self, ticket, waiting }
    }

    /// Lets those go whose turn it is: new events have been looked for.
    fn begin(&self) {
        self.used.set(0);
        self.last_ticket.set(EVERYBODY);
        for step in 0..ROTATION.len() {
            let at = (self.next.get() + step) % ROTATION.len();
            let mut line = self.lines[ROTATION[at]].borrow_mut();
            if line.is_empty() {
                continue;
            }
            self.next.set(at + 1);
            match ROTATION[at] {
                LIGHT => {
                    self.overtake_oldest(&mut line);
                    line.values().rev().for_each(|waiting| self.grant(waiting));
                }
                OVERTAKEN => {
                    for (&ticket, waiting) in line.iter().take(self.granted_at_once_max) {
                        self.last_ticket.set(ticket);
                        self.grant(waiting);
                    }
                }
                _ => line.values().take(1).for_each(|waiting| self.grant(waiting)),
            }
            return;
        }
    }

    /// Counts a client for the simulation, which is to know that it comes to every line.
    #[cfg(feature = "simulation")]
    fn count(&self, what: usize) {
        self.counts[what].set(self.counts[what].get() + 1);
    }

    #[cfg(not(feature = "simulation"))]
    fn count(&self, _what: usize) {}

    /// How many were let go from each line, were overtaken, and found the turn spent again.
    #[cfg(feature = "simulation")]
    pub(crate) fn counts(&self) -> [u64; COUNTS] {
        self.counts.each_ref().map(Cell::get)
    }

    fn grant(&self, waiting: &Waiting) {
        waiting.may_go.set(true);
        self.count(waiting.line.get());
        waiting.wake();
    }

    /// Moves those light clients that may not go with the newest to the line of the overtaken.
    fn overtake_oldest(&self, light: &mut BTreeMap<u64, Rc<Waiting>>) {
        let mut overtaken = self.lines[OVERTAKEN].borrow_mut();
        while light.len() > self.granted_at_once_max {
            let (ticket, waiting) = light.pop_first().expect("invariant: it is not empty");
            waiting.line.set(OVERTAKEN);
            self.count(PASSED);
            overtaken.insert(ticket, waiting);
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
                // The runtime looks for events first, and wakes whoever they are for before this one,
                // unless something else wakes it: then new clients are seen at the next look.
                tokio::task::yield_now().await;
                self.turn.begin();
            }
        }
    }

    /// Goes to the line of the overtaken, where its ticket gives it its place.
    fn fall_behind(&self) {
        let line = self.waiting.line.replace(OVERTAKEN);
        if line != OVERTAKEN {
            self.turn.count(BEHIND);
            let waiting = self.turn.lines[line].borrow_mut().remove(&self.ticket);
            let waiting = waiting.expect("invariant: it is in its line");
            self.turn.lines[OVERTAKEN].borrow_mut().insert(self.ticket, waiting);
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
        let line = self.waiting.line.get();
        let waiting = self.turn.lines[line].borrow_mut().remove(&self.ticket);
        assert!(waiting.is_some(), "invariant: it is in its line");
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
    use std::future::Future;
    use std::pin::Pin;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::task::{Context, Wake};

    use stdx::Random;
    use tokio::runtime::LocalOptions;
    use tokio::task::spawn_local;

    use super::*;

    const ROUNDS: usize = 200;

    /// How many others are served, at most, before a client of so many is served, where each takes this
    /// part of a turn, again and again, beside a heavy one.
    fn passed_by(clients: usize, part_of_turn: u64) -> usize {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build_local(LocalOptions::default())
            .expect("a runtime");
        let turn = Rc::new(Turn::new(&Clock::new(), &Slices::default()));
        let served = Rc::new(Cell::new(0));
        let most = runtime.block_on(async {
            let greedy = spawn_local(serve_heavy(turn.clone()));
            let serve = || spawn_local(serve(turn.clone(), served.clone(), part_of_turn));
            let serving: Vec<_> = (0..clients).map(|_| serve()).collect();
            let mut most = 0;
            for client in serving {
                most = most.max(client.await.expect("a client"));
            }
            greedy.abort();
            most
        });
        assert_eq!(served.get(), clients * ROUNDS);
        most
    }

    #[test]
    fn nobody_is_passed_for_long_by_others_that_ask_for_as_little() {
        // As many as are granted at once, and many more; of which few run in a turn, or most do.
        for (clients, part_of_turn) in [(64, 20), (300, 50), (300, 3), (1000, 20)] {
            let others = passed_by(clients, part_of_turn);
            assert!(
                others <= 6 * clients,
                "{others} others were served while one of {clients} waited, {part_of_turn} a turn"
            );
        }
    }

    #[test]
    fn a_long_work_of_small_steps_takes_few_looks_beside_crowds() {
        const STEPS: u64 = 300;
        const STEP_NANOS: u64 = 20_000;
        const GREEDY: u64 = 10;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build_local(LocalOptions::default())
            .expect("a runtime");
        let (clock, time) = Clock::mock();
        time.increment(TURN_NANOS_MAX);
        let turn = Rc::new(Turn::new(&clock, &Slices::default()));
        let served = Rc::new(Cell::new(0));
        runtime.block_on(async {
            let serve = || spawn_local(serve(turn.clone(), served.clone(), 20));
            let small: Vec<_> = (0..100).map(|_| serve()).collect();
            let long = || {
                let (turn, time) = (turn.clone(), time.clone());
                spawn_local(async move {
                    for _ in 0..STEPS {
                        turn.give_way().await;
                        time.increment(STEP_NANOS);
                    }
                })
            };
            let long: Vec<_> = (0..GREEDY).map(|_| long()).collect();
            for work in long {
                work.await.expect("it ends");
            }
            small.into_iter().for_each(|client| client.abort());
        });
        // Each look of three serves 21 small ones, if not for one of those that work long.
        let turns = GREEDY * (STEPS * STEP_NANOS / TURN_NANOS_MAX + 2);
        assert!(served.get() as u64 <= turns * 3 * 21, "{} were served first", served.get());
    }

    #[test]
    fn the_newest_goes_first() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build_local(LocalOptions::default())
            .expect("a runtime");
        let turn = Rc::new(Turn::new(&Clock::new(), &Slices::default()));
        let served = Rc::new(RefCell::new(Vec::new()));
        turn.add(TURN_BYTES_MAX as usize + 1);
        runtime.block_on(async {
            let serve = |number| {
                let (turn, served) = (turn.clone(), served.clone());
                spawn_local(async move {
                    turn.end(false, &mut Ticket::default()).await;
                    served.borrow_mut().push(number);
                    turn.add(TURN_BYTES_MAX as usize + 1);
                })
            };
            // The first looks, and is up before those that it wakes.
            for client in [0, 1, 2, 3].map(serve) {
                client.await.expect("a client");
            }
        });
        // By the next look, the rest in order of arrival.
        assert_eq!(*served.borrow(), [0, 3, 1, 2]);
    }

    /// A client that is polled by hand.
    struct Polled {
        serving: Pin<Box<dyn Future<Output = ()>>>,
        wakeups: Arc<Wakeups>,
    }

    #[derive(Default)]
    struct Wakeups(AtomicBool);

    impl Wake for Wakeups {
        fn wake(self: Arc<Self>) {
            self.0.store(true, Ordering::Relaxed);
        }
    }

    /// Serves a few clients, of which some go, wherever they are: one that looks, that sleeps in a line, or
    /// that was let go and has not run yet. How many were served to their end.
    fn serve_but_those_that_go(random: &mut Random) -> usize {
        const CLIENTS: u64 = 8;
        const SERVED_EACH: usize = 5;
        let slices = Slices { turn_bytes_max: 100, granted_at_once_max: 2, ..Slices::default() };
        let turn = Rc::new(Turn::new(&Clock::mock().0, &slices));
        let served = Rc::new(Cell::new(0));
        let mut clients: Vec<Polled> = (0..CLIENTS)
            .map(|_| {
                let (turn, served, bytes) =
                    (turn.clone(), served.clone(), random.below(150) as usize);
                let is_heavy = random.below(4) == 0;
                let serving = async move {
                    let mut ticket = Ticket::default();
                    for _ in 0..SERVED_EACH {
                        while turn.is_over(is_heavy, &ticket)
                            && !turn.end(is_heavy, &mut ticket).await
                        {
                            tier::yield_once().await;
                        }
                        ticket.spend();
                        turn.add(bytes);
                        tier::yield_once().await;
                    }
                    served.set(served.get() + 1);
                };
                Polled { serving: Box::pin(serving), wakeups: Arc::new(Wakeups(true.into())) }
            })
            .collect();
        let mut gone = 0;
        while !clients.is_empty() {
            let is_awake = |one: &Polled| one.wakeups.0.load(Ordering::Relaxed);
            let awake: Vec<usize> =
                (0..clients.len()).filter(|at| is_awake(&clients[*at])).collect();
            assert!(!awake.is_empty(), "{} wait for ever", clients.len());
            if random.below(40) == 0 {
                clients.swap_remove(random.below(clients.len() as u64) as usize);
                gone += 1;
                continue;
            }
            let at = awake[random.below(awake.len() as u64) as usize];
            let Polled { serving, wakeups } = &mut clients[at];
            wakeups.0.store(false, Ordering::Relaxed);
            let waker = Waker::from(wakeups.clone());
            if serving.as_mut().poll(&mut Context::from_waker(&waker)).is_ready() {
                clients.swap_remove(at);
            }
        }
        assert_eq!(served.get() + gone, CLIENTS as usize);
        served.get()
    }

    #[test]
    fn all_are_served_but_those_that_go_meanwhile() {
        let mut random = Random::new(7);
        let served: usize = (0..2_000).map(|_| serve_but_those_that_go(&mut random)).sum();
        assert!(served > 2_000, "{served} were served");
    }

    /// Serves a heavy client.
    async fn serve_heavy(turn: Rc<Turn>) {
        loop {
            turn.end(true, &mut Ticket::default()).await;
            tier::yield_once().await;
        }
    }

    /// Serves a client, as a connection does; how many others were served, at most, before one of its own.
    async fn serve(turn: Rc<Turn>, served: Rc<Cell<usize>>, part_of_turn: u64) -> usize {
        let (mut most, mut last, mut ticket) = (0, 0, Ticket::default());
        for _ in 0..ROUNDS {
            while turn.is_over(false, &ticket) {
                turn.end(false, &mut ticket).await;
                // Others that are ready read their requests first.
                tier::yield_once().await;
            }
            ticket.spend();
            turn.add((TURN_BYTES_MAX / part_of_turn) as usize + 1);
            served.set(served.get() + 1);
            most = most.max(served.get() - last);
            last = served.get();
            // It is answered, and asks again.
            tier::yield_once().await;
        }
        most
    }
}
