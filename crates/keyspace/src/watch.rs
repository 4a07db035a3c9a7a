//! WATCH: who wants to know that a key changed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Shared between a connection and the slots it watches: raised by the first change.
#[derive(Debug, Default)]
pub struct WatchFlag(AtomicBool);

impl WatchFlag {
    /// Marks a watched key as changed: the transaction will not run.
    pub fn raise(&self) {
        #[cfg(feature = "simulation")]
        crate::schedule::shared();
        self.0.store(true, Ordering::Release);
    }

    /// Whether a watched key changed.
    pub fn is_raised(&self) -> bool {
        let is_raised = self.0.load(Ordering::Acquire);
        #[cfg(feature = "simulation")]
        crate::schedule::shared();
        is_raised
    }
}

/// The watched keys of one slot. Few at any time, so a plain list serves.
#[derive(Default)]
pub(crate) struct Watchers(Vec<Watcher>);

struct Watcher {
    table: u8,
    key: Box<[u8]>,
    flag: Arc<WatchFlag>,
}

impl Watchers {
    /// Adds a watcher, once. Cost: linear in those that there are.
    pub(crate) fn add(&mut self, table: u8, key: &[u8], flag: &Arc<WatchFlag>) {
        let is_same = |watcher: &Watcher| {
            watcher.table == table && Arc::ptr_eq(&watcher.flag, flag) && *watcher.key == *key
        };
        if self.0.iter().any(is_same) {
            return;
        }
        self.0.push(Watcher { table, key: key.into(), flag: flag.clone() });
    }

    pub(crate) fn remove(&mut self, flag: &Arc<WatchFlag>) {
        self.0.retain(|watcher| !Arc::ptr_eq(&watcher.flag, flag));
    }

    pub(crate) fn changed(&self, table: u8, key: &[u8]) {
        for watcher in &self.0 {
            if watcher.table == table && *watcher.key == *key {
                watcher.flag.raise();
            }
        }
    }

    /// Exchanges two tables in what is watched.
    pub(crate) fn swap_tables(&mut self, one: u8, two: u8) {
        for watcher in &mut self.0 {
            watcher.table = match watcher.table {
                table if table == one => two,
                table if table == two => one,
                table => table,
            };
        }
    }

    /// The watched keys of a table, for changes that hit a whole table at once.
    pub(crate) fn keys(&self, table: u8) -> impl Iterator<Item = (&[u8], &WatchFlag)> {
        self.0.iter().filter(move |w| w.table == table).map(|w| (&*w.key, &*w.flag))
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
