//! Requests that wait for what other clients hold of client memory, in the order in which they came.

use std::collections::VecDeque;
use std::time::Duration;

use parking_lot::Mutex;

use crate::state::server::Server;
use crate::state::worker::Worker;

/// How long a request waits for what others hold: replies to be read, requests to arrive. All that wait in
/// one queue do so at the same time, not one after another.
const OTHERS_WAIT_MAX: Duration = Duration::from_secs(10);
/// How long requests have waited before clients are closed that neither read nor send anything, and how long these
/// have done nothing. One that reads slowly seems to do nothing until a third of its socket's buffer, some MiB, is
/// free.
const IDLE_WAIT_MAX: Duration = Duration::from_secs(4);
/// Where requests go on waiting, that time is halved each time that so much has passed: others that do nothing may
/// have come in the place of those that were closed.
const GRACE_HALVED_EVERY: Duration = Duration::from_secs(2);
/// But it is never less: what is on its way in sockets' buffers takes a while to be read.
pub(super) const GRACE_MIN: Duration = Duration::from_secs(2);
/// Between two looks for such clients, and how long the first has been stuck then.
const IDLE_LOOK_EVERY: Duration = Duration::from_millis(200);

/// Who came first goes first. Whoever waits here holds nothing reserved, so no two can wait for each other.
#[derive(Default)]
pub(super) struct ReservationQueue(Mutex<Line>);

#[derive(Default)]
struct Line {
    /// The clients, and what they wait for in bytes. Bounds: one place for each.
    waiting: VecDeque<(u64, u64)>,
    /// Since when somebody has waited, unless some went on for whom nobody had to be closed.
    crowded_since: Option<Duration>,
    /// What clients had that were closed, and nobody has gone on with yet, in bytes.
    closed_bytes: u64,
    /// Since when no request could go on, whichever was the first.
    stuck_since: Option<Duration>,
}

impl Line {
    fn is_behind(&self, id: u64) -> bool {
        self.waiting.front().is_some_and(|&(first, _)| first != id)
    }

    /// A request for so many bytes goes on.
    fn pass(&mut self, bytes: u64) {
        self.stuck_since = None;
        if self.closed_bytes < bytes {
            self.crowded_since = None;
        }
        self.closed_bytes = self.closed_bytes.saturating_sub(bytes);
    }
}

/// A client's place in a queue, which it leaves when this is dropped.
pub(crate) struct ReservationPlace<'a> {
    queue: &'a ReservationQueue,
    id: u64,
    looked_at: Duration,
}

/// A queue whose first cannot go on.
#[derive(Debug, PartialEq, Eq)]
struct Stuck {
    time: Duration,
    /// How long somebody has waited in it.
    crowded: Duration,
    /// What its first waits for, and what all do, in bytes.
    first_bytes: u64,
    bytes: u64,
}

impl Stuck {
    /// How long a client must have done nothing to be closed now. None: nobody is to be closed yet.
    fn grace(&self) -> Option<Duration> {
        let halved = self.crowded.checked_sub(IDLE_WAIT_MAX)?.div_duration_f32(GRACE_HALVED_EVERY);
        Some((IDLE_WAIT_MAX / (1 << (halved as u32).min(8))).max(GRACE_MIN))
    }
}

/// What the first of a queue that is stuck may do about clients that do nothing.
pub(super) struct Look {
    /// Those that have done nothing for so long may be closed. None: not yet.
    pub(super) grace: Option<Duration>,
    /// What the first of the queue waits for, and what all do, in bytes.
    pub(super) first_bytes: u64,
    pub(super) bytes: u64,
}

impl ReservationQueue {
    /// Takes the last place, to wait for so many bytes.
    pub(super) fn join(&self, id: u64, bytes: u64) -> ReservationPlace<'_> {
        self.0.lock().waiting.push_back((id, bytes));
        ReservationPlace { queue: self, id, looked_at: Duration::ZERO }
    }

    /// Whether somebody else is first.
    pub(super) fn is_behind(&self, id: u64) -> bool {
        self.0.lock().is_behind(id)
    }

    /// The clients that wait behind the first, in the order of their arrival.
    pub(super) fn behind_first(&self) -> Vec<u64> {
        self.0.lock().waiting.iter().skip(1).map(|&(id, _)| id).collect()
    }

    /// A request for so many bytes went on by itself: those behind it wait anew.
    pub(super) fn begin_anew(&self, bytes: u64) {
        self.0.lock().pass(bytes);
    }

    /// Lets a client that is not behind others go on if `reserve` does so for it, while nobody else of this queue
    /// looks for memory. `reserve` must not use the queue, whose lock is held.
    pub(super) fn try_pass(&self, id: u64, reserve: impl FnOnce() -> bool) -> bool {
        let mut line = self.0.lock();
        let goes = !line.is_behind(id) && reserve();
        if goes {
            let bytes = line.waiting.front().map_or(0, |&(_, bytes)| bytes);
            line.pass(bytes);
        }
        goes
    }
}

impl ReservationPlace<'_> {
    /// Whether it is one of that queue.
    pub(super) fn is_in(&self, queue: &ReservationQueue) -> bool {
        std::ptr::eq(self.queue, queue)
    }

    /// Waits for what others may let go of. Now and then the first has `look` deal with clients that do nothing for
    /// theirs, such as to read a reply, which returns the bytes of those that it closed. False: the queue has been stuck for as long as it may; each that comes to be
    /// the first meanwhile is refused as well unless it can go on.
    pub(super) async fn wait(
        &mut self,
        worker: &Worker,
        look: impl Fn(&Server, Look) -> u64,
    ) -> bool {
        let now = worker.server.tier.clock().now();
        if let Some(stuck) = self.stuck(now) {
            if stuck.time >= OTHERS_WAIT_MAX {
                return false;
            }
            if stuck.time >= IDLE_LOOK_EVERY && now >= self.looked_at + IDLE_LOOK_EVERY {
                self.looked_at = now;
                let Stuck { first_bytes, bytes, .. } = stuck;
                let look_at = Look { grace: stuck.grace(), first_bytes, bytes };
                let closed_bytes = look(&worker.server, look_at);
                self.queue.0.lock().closed_bytes += closed_bytes;
            }
        }
        worker.upkeep_tick.notified().await;
        true
    }

    /// None: this is not the first of the queue.
    fn stuck(&self, now: Duration) -> Option<Stuck> {
        let mut line = self.queue.0.lock();
        let is_first = !line.is_behind(self.id);
        is_first.then(|| Stuck {
            time: now.saturating_sub(*line.stuck_since.get_or_insert(now)),
            crowded: now.saturating_sub(*line.crowded_since.get_or_insert(now)),
            first_bytes: line.waiting.front().map_or(0, |&(_, bytes)| bytes),
            bytes: line.waiting.iter().map(|&(_, bytes)| bytes).sum(),
        })
    }
}

impl Drop for ReservationPlace<'_> {
    fn drop(&mut self) {
        let mut line = self.queue.0.lock();
        line.waiting.retain(|&(id, _)| id != self.id);
        if line.waiting.is_empty() {
            *line = Line::default();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn stuck_for(place: &ReservationPlace<'_>, at: u32) -> Option<u64> {
        place.stuck(at * SECOND).map(|stuck| stuck.time.as_secs())
    }

    #[test]
    fn all_that_come_to_be_the_first_of_a_stuck_queue_have_waited_as_long_as_it() {
        let queue = ReservationQueue::default();
        let (first, second) = (queue.join(1, 0), queue.join(2, 0));
        assert_eq!(stuck_for(&first, 5), Some(0));
        assert_eq!(stuck_for(&second, 6), None, "it is behind");
        assert_eq!(stuck_for(&first, 15), Some(10));
        drop(first);
        assert_eq!(stuck_for(&second, 16), Some(11));
        // One goes on, and those behind it wait anew.
        let third = queue.join(3, 0);
        assert!(!queue.try_pass(3, || true) && !queue.try_pass(2, || false));
        assert!(queue.try_pass(2, || true));
        drop(second);
        assert_eq!(stuck_for(&third, 17), Some(0));
        drop(third);
        assert_eq!(stuck_for(&queue.join(4, 0), 40), Some(0), "nobody was there");
    }

    #[test]
    fn who_does_nothing_is_closed_sooner_where_others_go_on_waiting() {
        let queue = ReservationQueue::default();
        let mut first = queue.join(1, 5);
        let grace = |place: &ReservationPlace<'_>, at| {
            place.stuck(at * SECOND).and_then(|stuck| stuck.grace()).map(|grace| grace.as_secs())
        };
        assert_eq!([0, 3, 4, 5].map(|at| grace(&first, at)), [None, None, Some(4), Some(4)]);
        // Others that do nothing go on, one after another, with what was closed for them.
        for id in 2..5 {
            let next = queue.join(id, 5);
            queue.0.lock().closed_bytes += 5;
            assert!(queue.try_pass(id - 1, || true));
            assert_eq!(first.stuck(5 * SECOND).map(|stuck| stuck.bytes), Some(10));
            first = next;
        }
        assert_eq!([6, 8, 60].map(|at| grace(&first, at)), [Some(2); 3]);
        let next = queue.join(9, 5);
        assert!(queue.try_pass(4, || true), "others have let go of theirs");
        drop(first);
        assert_eq!([61, 66].map(|at| grace(&next, at)), [None, Some(4)]);
        drop(next);
        assert_eq!(grace(&queue.join(10, 5), 70), None, "nobody waited");
    }
}
