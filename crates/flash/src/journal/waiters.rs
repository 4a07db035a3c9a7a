//! Those who wait for the journal: to be durable up to a position, or to have room.

use std::collections::BTreeMap;
use std::task::Waker;

use parking_lot::Mutex;
use smallvec::SmallVec;

use super::shared::Shared;

#[derive(Default)]
pub(crate) struct Waiters {
    waiting: Mutex<Waiting>,
}

#[derive(Default)]
struct Waiting {
    durable: BTreeMap<u64, SmallVec<[Waker; 1]>>,
    room: Vec<Waker>,
}

impl Waiters {
    /// Has `waker` called when the journal is durable up to `position`, or fails. False: it was called at once.
    pub(crate) fn wait_for_durable(&self, position: u64, waker: &Waker, shared: &Shared) -> bool {
        let mut waiting = self.waiting.lock();
        // With the lock held: what is published later finds it.
        if shared.durable() >= position || shared.is_failing() {
            drop(waiting);
            waker.wake_by_ref();
            return false;
        }
        let wakers = waiting.durable.entry(position).or_default();
        if !wakers.iter().any(|one| one.will_wake(waker)) {
            wakers.push(waker.clone());
        }
        true
    }

    /// Has `waker` called when there is room, or the journal fails.
    pub(crate) fn wait_for_room(&self, waker: &Waker, shared: &Shared) {
        let mut waiting = self.waiting.lock();
        if shared.has_room() || shared.is_failing() {
            drop(waiting);
            waker.wake_by_ref();
        } else if !waiting.room.iter().any(|one| one.will_wake(waker)) {
            waiting.room.push(waker.clone());
        }
    }

    /// Calls those for whom the journal is durable or has room now, or all when it fails.
    pub(crate) fn wake(&self, shared: &Shared) {
        let mut waiting = self.waiting.lock();
        let is_failing = shared.is_failing();
        let room = if is_failing || shared.has_room() {
            std::mem::take(&mut waiting.room)
        } else {
            Vec::new()
        };
        let durable = if is_failing {
            std::mem::take(&mut waiting.durable)
        } else {
            let later = waiting.durable.split_off(&(shared.durable() + 1));
            std::mem::replace(&mut waiting.durable, later)
        };
        drop(waiting);
        for waker in durable.into_values().flatten().chain(room) {
            waker.wake();
        }
    }
}
