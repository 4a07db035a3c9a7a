//! Requests that wait for what other clients hold of client memory, in the order in which they came.

use std::collections::VecDeque;
use std::time::Duration;

use parking_lot::Mutex;

use crate::state::server::Server;
use crate::state::worker::Worker;

/// How long a request waits for what others hold: replies to be read, requests to arrive. All that wait in
/// one queue do so at the same time, not one after another.
const OTHERS_WAIT_MAX: Duration = Duration::from_secs(10);
/// How long the first waits before clients are closed that do not read or send anything. One that reads
/// slowly seems to do nothing until a third of its socket's buffer, some MiB, is free.
pub(super) const IDLE_WAIT_MAX: Duration = Duration::from_secs(4);
/// Between two looks for such clients.
const IDLE_LOOK_EVERY: Duration = Duration::from_millis(200);

/// Who came first goes first. Whoever waits here holds nothing reserved, so no two can wait for each other.
#[derive(Default)]
pub(super) struct ReservationQueue(Mutex<Line>);

#[derive(Default)]
struct Line {
    /// The clients. Bounds: one place for each.
    ids: VecDeque<u64>,
    /// Since when no request could go on, whichever was the first.
    stuck_since: Option<Duration>,
}

impl Line {
    fn is_behind(&self, id: u64) -> bool {
        self.ids.front().is_some_and(|&first| first != id)
    }
}

/// A client's place in a queue, which it leaves when this is dropped.
pub(crate) struct ReservationPlace<'a> {
    queue: &'a ReservationQueue,
    id: u64,
    looked_at: Duration,
}

impl ReservationQueue {
    /// Takes the last place.
    pub(super) fn join(&self, id: u64) -> ReservationPlace<'_> {
        self.0.lock().ids.push_back(id);
        ReservationPlace { queue: self, id, looked_at: Duration::ZERO }
    }

    /// Whether somebody else is first.
    pub(super) fn is_behind(&self, id: u64) -> bool {
        self.0.lock().is_behind(id)
    }

    /// A request went on though nothing came free for it: those behind it wait anew.
    pub(super) fn begin_anew(&self) {
        self.0.lock().stuck_since = None;
    }

    /// Lets a client that is not behind others go on if `reserve` does so for it, while nobody else of this queue
    /// looks for memory. `reserve` must not use the queue, whose lock is held.
    pub(super) fn try_pass(&self, id: u64, reserve: impl FnOnce() -> bool) -> bool {
        let mut line = self.0.lock();
        let goes = !line.is_behind(id) && reserve();
        if goes {
            line.stuck_since = None;
        }
        goes
    }
}

impl ReservationPlace<'_> {
    /// Whether it is one of that queue.
    pub(super) fn is_in(&self, queue: &ReservationQueue) -> bool {
        std::ptr::eq(self.queue, queue)
    }

    /// Waits for what others may let go of. When the first has waited for a while, `close_idle` closes
    /// clients that do nothing for theirs, such as to read a reply. False: the queue has been stuck for as
    /// long as it may; each that comes to be the first meanwhile is refused as well unless it can go on.
    pub(super) async fn wait(&mut self, worker: &Worker, close_idle: impl Fn(&Server)) -> bool {
        let now = worker.server.tier.clock().now();
        if let Some(stuck) = self.stuck_for(now) {
            if stuck >= OTHERS_WAIT_MAX {
                return false;
            }
            if stuck >= IDLE_WAIT_MAX && now >= self.looked_at + IDLE_LOOK_EVERY {
                self.looked_at = now;
                close_idle(&worker.server);
            }
        }
        worker.upkeep_tick.notified().await;
        true
    }

    /// How long the queue has been stuck. None: this is not its first.
    fn stuck_for(&self, now: Duration) -> Option<Duration> {
        let mut line = self.queue.0.lock();
        let is_first = !line.is_behind(self.id);
        is_first.then(|| now.saturating_sub(*line.stuck_since.get_or_insert(now)))
    }
}

impl Drop for ReservationPlace<'_> {
    fn drop(&mut self) {
        let mut line = self.queue.0.lock();
        line.ids.retain(|&id| id != self.id);
        if line.ids.is_empty() {
            line.stuck_since = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_that_come_to_be_the_first_of_a_stuck_queue_have_waited_as_long_as_it() {
        let seconds = Duration::from_secs;
        let queue = ReservationQueue::default();
        let (first, second) = (queue.join(1), queue.join(2));
        assert_eq!(first.stuck_for(seconds(5)), Some(seconds(0)));
        assert_eq!(second.stuck_for(seconds(6)), None, "it is behind");
        assert_eq!(first.stuck_for(seconds(15)), Some(seconds(10)));
        drop(first);
        assert_eq!(second.stuck_for(seconds(16)), Some(seconds(11)));
        // One goes on, and those behind it wait anew.
        let third = queue.join(3);
        assert!(!queue.try_pass(3, || true) && !queue.try_pass(2, || false));
        assert!(queue.try_pass(2, || true));
        drop(second);
        assert_eq!(third.stuck_for(seconds(17)), Some(seconds(0)));
        drop(third);
        assert_eq!(queue.join(4).stuck_for(seconds(40)), Some(seconds(0)), "nobody was there");
    }
}
