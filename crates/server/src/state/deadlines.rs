//! When clients of a worker give up that wait for keys.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::sync::Notify;

use crate::state::clients::Client;

/// The clients of a worker that wait no longer than until some time, by that time. Bounds: one for each
/// connection.
#[derive(Default)]
pub(crate) struct Deadlines {
    /// By Unix milliseconds and the clients' ids.
    due: RefCell<BTreeMap<(u64, u64), Arc<Client>>>,
    /// Told when the first one has changed.
    pub(crate) changed: Notify,
}

/// A client's deadline, which is forgotten when this is dropped.
pub(crate) struct DueAt<'a> {
    deadlines: &'a Deadlines,
    key: (u64, u64),
}

impl Deadlines {
    /// Has a client woken at a time, Unix milliseconds.
    pub(crate) fn add(&self, at_ms: u64, client: &Arc<Client>) -> DueAt<'_> {
        let key = (at_ms, client.id);
        let is_first = self.first_ms().is_none_or(|first_ms| at_ms < first_ms);
        self.due.borrow_mut().insert(key, client.clone());
        if is_first {
            self.changed.notify_one();
        }
        DueAt { deadlines: self, key }
    }

    /// The next one, Unix milliseconds.
    pub(crate) fn first_ms(&self) -> Option<u64> {
        self.due.borrow().keys().next().map(|(at_ms, _)| *at_ms)
    }

    /// Wakes those whose time has come. Cost: next to nothing when there are none.
    pub(crate) fn wake_due(&self, now_ms: u64) {
        let mut due = self.due.borrow_mut();
        while let Some(first) = due.first_entry()
            && first.key().0 <= now_ms
        {
            first.remove().wake();
        }
    }
}

impl DueAt<'_> {
    /// Whether the client was woken since its time had come. The clock may have been set back since, and
    /// nobody would wake it again.
    pub(crate) fn has_come(&self) -> bool {
        !self.deadlines.due.borrow().contains_key(&self.key)
    }
}

impl Drop for DueAt<'_> {
    fn drop(&mut self) {
        self.deadlines.due.borrow_mut().remove(&self.key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_whose_time_has_come_are_forgotten() {
        let deadlines = Deadlines::default();
        let client = |id| Arc::new(Client { id, ..Client::default() });
        let (one, two) = (client(1), client(2));
        let later = deadlines.add(20, &one);
        let earlier = deadlines.add(10, &two);
        let same = deadlines.add(10, &one);
        assert_eq!(deadlines.first_ms(), Some(10));
        drop(same);
        deadlines.wake_due(9);
        assert_eq!(deadlines.first_ms(), Some(10));
        assert!(!earlier.has_come());
        deadlines.wake_due(10);
        assert_eq!(deadlines.first_ms(), Some(20));
        assert!(earlier.has_come() && !later.has_come());
        drop(earlier);
        assert_eq!(deadlines.first_ms(), Some(20));
    }
}
