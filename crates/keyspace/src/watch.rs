//! WATCH: who wants to know that a key changed.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use smallvec::SmallVec;

use crate::key::KeyHashes;

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

/// The watched keys of one slot, found by their hash: one client may watch tens of thousands whose names share
/// a `{tag}`, and each write to the slot asks whether its key is among them.
#[derive(Default)]
pub(crate) struct Watchers {
    keys: HashMap<Box<[u8]>, OfKey, KeyHashes>,
    /// How many there are of all keys.
    len: usize,
}

/// Who watches a key: rarely more than one.
type OfKey = SmallVec<[Watcher; 1]>;

struct Watcher {
    flag: Arc<WatchFlag>,
    table: u8,
}

impl Watchers {
    /// Adds a watcher. False: it watches the key already. Cost: a look-up, and linear in those who watch the
    /// key.
    pub(crate) fn add(&mut self, table: u8, key: &[u8], flag: &Arc<WatchFlag>) -> bool {
        let watcher = Watcher { flag: flag.clone(), table };
        match self.keys.get_mut(key) {
            Some(of_key) => {
                steps::count(of_key.len());
                if of_key.iter().any(|other| other.is(flag) && other.table == table) {
                    return false;
                }
                of_key.push(watcher);
            }
            None => drop(self.keys.insert(key.into(), SmallVec::from_buf([watcher]))),
        }
        self.len += 1;
        true
    }

    /// Ends what `flag` watches under a name, in any table. Cost: as to add it.
    pub(crate) fn remove(&mut self, key: &[u8], flag: &Arc<WatchFlag>) {
        let Some(of_key) = self.keys.get_mut(key) else { return };
        let before = of_key.len();
        steps::count(before);
        of_key.retain(|watcher| !watcher.is(flag));
        self.len -= before - of_key.len();
        if of_key.is_empty() {
            self.keys.remove(key);
            self.shrink();
        }
    }

    /// Ends all that `flag` watches. Cost: linear in all watchers.
    pub(crate) fn remove_all(&mut self, flag: &Arc<WatchFlag>) {
        steps::count(self.len);
        self.keys.retain(|_, of_key| {
            of_key.retain(|watcher| !watcher.is(flag));
            !of_key.is_empty()
        });
        self.len = self.keys.values().map(SmallVec::len).sum();
        self.shrink();
    }

    /// Gives back the room of many that have gone.
    fn shrink(&mut self) {
        if self.keys.len() < self.keys.capacity() / 8 {
            self.keys.shrink_to_fit();
        }
    }

    pub(crate) fn changed(&self, table: u8, key: &[u8]) {
        let Some(of_key) = self.keys.get(key) else { return };
        steps::count(of_key.len());
        of_key.iter().filter(|watcher| watcher.table == table).for_each(|w| w.flag.raise());
    }

    /// Exchanges two tables in what is watched.
    pub(crate) fn swap_tables(&mut self, one: u8, two: u8) {
        for watcher in self.keys.values_mut().flatten() {
            watcher.table = match watcher.table {
                table if table == one => two,
                table if table == two => one,
                table => table,
            };
        }
    }

    /// The watched keys of a table, for changes that hit a whole table at once.
    pub(crate) fn keys(&self, table: u8) -> impl Iterator<Item = (&[u8], &WatchFlag)> {
        let all = self.keys.iter().flat_map(|(key, of_key)| of_key.iter().map(move |w| (key, w)));
        all.filter(move |(_, w)| w.table == table).map(|(key, w)| (&**key, &*w.flag))
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl Watcher {
    fn is(&self, flag: &Arc<WatchFlag>) -> bool {
        Arc::ptr_eq(&self.flag, flag)
    }
}

/// How many watchers were looked at, for tests.
mod steps {
    #[cfg(test)]
    thread_local! {
        pub(super) static COUNT: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
    }

    #[cfg_attr(not(test), inline(always))]
    pub(super) fn count(_looked_at: usize) {
        #[cfg(test)]
        COUNT.set(COUNT.get() + _looked_at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(number: usize) -> Vec<u8> {
        format!("{{tag}}{number}").into_bytes()
    }

    /// Watchers that are looked at while a client watches so many keys of a slot, each twice, another writes
    /// them, and the watch ends.
    fn steps_of(keys: usize) -> usize {
        let (mut watchers, flag) = (Watchers::default(), Arc::default());
        steps::COUNT.set(0);
        for number in 0..keys {
            assert!(watchers.add(0, &name(number), &flag));
            assert!(!watchers.add(0, &name(number), &flag));
        }
        assert_eq!(watchers.len(), keys);
        (0..keys).for_each(|number| watchers.changed(0, &name(number)));
        (0..keys).for_each(|number| watchers.remove(&name(number), &flag));
        assert!(watchers.is_empty() && watchers.keys.capacity() < 8);
        steps::COUNT.get()
    }

    #[test]
    fn the_keys_of_a_slot_are_watched_in_linear_time() {
        assert_eq!(steps_of(4_000), 4 * steps_of(1_000));
    }

    #[test]
    fn each_client_ends_its_own_watches() {
        let mut watchers = Watchers::default();
        let [one, two] = [(); 2].map(|()| Arc::new(WatchFlag::default()));
        for flag in [&one, &two] {
            assert!(watchers.add(0, b"a", flag) && watchers.add(1, b"a", flag));
            assert!(watchers.add(0, b"b", flag));
        }
        watchers.remove(b"a", &one);
        assert_eq!(watchers.len(), 4);
        watchers.changed(1, b"a");
        assert_eq!([&one, &two].map(|flag| flag.is_raised()), [false, true]);
        watchers.changed(0, b"b");
        assert!(one.is_raised());
        watchers.remove_all(&two);
        assert_eq!(watchers.keys(0).map(|(key, _)| key).collect::<Vec<_>>(), [b"b"]);
        watchers.remove(b"b", &one);
        assert!(watchers.is_empty());
    }
}
