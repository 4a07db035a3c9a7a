//! New values in the order in which they leave RAM: one chunk after the other, and within a chunk by groups of keys.
//!
//! Clients that write parts of the keys side by side, as a parallel import does, leave a few values of each in a row. Whoever
//! walks over one of these parts alone would read a block of flash for each row. With groups put together, each part has one
//! long row in a chunk. Walks that go side by side, as the writers did, use all of a chunk before they go on to the next, and
//! find it in the block cache.

use std::collections::{HashMap, VecDeque};

use keyspace::NewValue;
use rapidhash::fast::RandomState;

use super::Limit;

/// Values of a chunk, at most: they are put in order at once, while clients wait.
const CHUNK_VALUES_MAX: usize = 16_384;

#[derive(Default)]
pub(super) struct Queue {
    chunks: VecDeque<Chunk>,
    len: usize,
}

/// Values that were written within a moment.
#[derive(Default)]
struct Chunk {
    values: VecDeque<NewValue>,
    /// Of all that were added.
    bytes: usize,
    /// Whether the first is to leave: they stand in their final order, and no more are added.
    is_closed: bool,
}

impl Queue {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Adds a value, to a new chunk where the last one is as large as may be.
    pub(super) fn push(&mut self, value: NewValue, chunk: Limit) {
        let values_max = chunk.values.min(CHUNK_VALUES_MAX);
        let is_full = |last: &Chunk| last.bytes >= chunk.bytes || last.values.len() >= values_max;
        if self.chunks.back().is_none_or(|last| last.is_closed || is_full(last)) {
            if let Some(full) = self.chunks.back_mut() {
                full.values.shrink_to_fit();
            }
            self.chunks.push_back(Chunk::default());
        }
        if let Some(last) = self.chunks.back_mut() {
            last.values.push_back(value);
            last.bytes += value.bytes();
            self.len += 1;
        }
    }

    /// Puts values back that were popped last, in front of the others.
    pub(super) fn put_back(&mut self, first: Vec<NewValue>) {
        self.len += first.len();
        self.chunks.push_front(Chunk { values: first.into(), bytes: 0, is_closed: true });
    }

    /// Takes the value that is to leave first.
    pub(super) fn pop(&mut self) -> Option<NewValue> {
        self.chunks.front_mut()?.close();
        self.pop_oldest()
    }

    /// Takes the first value as they stand: the oldest, where none of its chunk has been popped.
    pub(super) fn pop_oldest(&mut self) -> Option<NewValue> {
        let first = self.chunks.front_mut()?;
        let value = first.values.pop_front();
        if first.values.is_empty() {
            self.chunks.pop_front();
        }
        self.len -= usize::from(value.is_some());
        value
    }
}

impl Chunk {
    /// Puts the values of each group side by side, the first time that it is called. Groups stand in the order in which their
    /// first values came, so that values alone in their groups stay in order. A counting sort: linear in the values.
    fn close(&mut self) {
        if std::mem::replace(&mut self.is_closed, true) {
            return;
        }
        let (group_of, counts) = self.count_groups();
        let mut next: Vec<u32> = counts
            .iter()
            .scan(0, |end, count| Some(std::mem::replace(end, *end + count)))
            .collect();
        let mut order = vec![0; group_of.len()];
        for (at, &group) in (0..).zip(&group_of) {
            order[next[group as usize] as usize] = at;
            next[group as usize] += 1;
        }
        self.values = order.iter().map(|&at: &u32| self.values[at as usize]).collect();
    }

    /// Numbers groups as they come. Returns the number of each value's, and how many values each has.
    fn count_groups(&self) -> (Vec<u32>, Vec<u32>) {
        let mut numbers = HashMap::with_hasher(RandomState::default());
        let mut counts: Vec<u32> = Vec::new();
        let group_of = self.values.iter().map(|value| {
            let next = counts.len() as u32;
            let number = *numbers.entry(value.group()).or_insert(next);
            if number == next {
                counts.push(0);
            }
            counts[number as usize] += 1;
            number
        });
        (group_of.collect(), counts)
    }
}

#[cfg(test)]
mod tests {
    use keyspace::{Db, Expiry, Key, SlotState, Tally};

    use super::*;

    /// New values of these keys, of 100 bytes each.
    fn new_values<K: AsRef<[u8]>>(keys: impl IntoIterator<Item = K>) -> Vec<NewValue> {
        let new_value = |key: K| {
            let (mut slot, mut tally) = (SlotState::default(), Tally::default());
            let key = Key::new(key.as_ref());
            Db::new(&mut slot, 0, 1_000, &mut tally).put(&key, 1, &[b'v'; 100], Expiry::Clear);
            tally.new_values[0]
        };
        keys.into_iter().map(new_value).collect()
    }

    const ANY: Limit = Limit { bytes: usize::MAX, values: usize::MAX };
    const THREE_VALUES: Limit = Limit { bytes: 300, values: 100 };

    fn pop_all(queue: &mut Queue) -> Vec<NewValue> {
        std::iter::from_fn(|| queue.pop()).collect()
    }

    #[test]
    fn values_of_a_group_leave_side_by_side_and_groups_in_the_order_of_their_first() {
        // Two clients that write their parts in pipelines of two, and keys without a number.
        let keys = ["a:1000", "a:1001", "one", "b:7000", "b:7001", "a:1002", "two", "b:7002"];
        let grouped = ["a:1000", "a:1001", "a:1002", "one", "b:7000", "b:7001", "b:7002", "two"];
        let mut queue = Queue::default();
        new_values(keys).into_iter().for_each(|value| queue.push(value, ANY));
        assert_eq!(pop_all(&mut queue), new_values(grouped));
        assert_eq!((queue.len(), queue.chunks.len()), (0, 0));
    }

    #[test]
    fn a_chunk_ends_at_its_bytes_and_when_some_of_it_has_left() {
        let mut queue = Queue::default();
        let all = new_values(["a:1000", "b:1000", "a:1001", "b:1001", "a:1002", "a:1003"]);
        all[..5].iter().for_each(|&value| queue.push(value, THREE_VALUES));
        let first: Vec<NewValue> = (0..4).filter_map(|_| queue.pop()).collect();
        assert_eq!(first, [all[0], all[2], all[1], all[3]]);
        queue.push(all[5], THREE_VALUES);
        assert_eq!(queue.chunks.len(), 2, "the last has begun to leave");
        assert_eq!(pop_all(&mut queue), all[4..]);
    }

    #[test]
    fn values_that_are_put_back_leave_first_and_in_their_order() {
        let mut queue = Queue::default();
        let all = new_values(["a:1000", "b:1000", "a:1001", "b:1001"]);
        all.iter().for_each(|&value| queue.push(value, ANY));
        let first: Vec<NewValue> = (0..3).filter_map(|_| queue.pop()).collect();
        queue.put_back(first.clone());
        assert_eq!(queue.len(), 4);
        assert_eq!(pop_all(&mut queue), [&first[..], &all[3..]].concat());
    }

    #[test]
    fn a_chunk_ends_at_its_values_too() {
        let mut queue = Queue::default();
        let all = new_values(["a:1000", "b:1000", "a:1001"]);
        all.iter().for_each(|&value| queue.push(value, Limit { values: 2, ..ANY }));
        assert_eq!(pop_all(&mut queue), all);
    }

    #[test]
    fn the_oldest_are_forgotten_whatever_their_group() {
        let mut queue = Queue::default();
        let all = new_values(["a:1000", "b:1000", "a:1001", "b:1001"]);
        all.iter().for_each(|&value| queue.push(value, ANY));
        assert_eq!(queue.pop_oldest(), Some(all[0]));
        assert_eq!(queue.pop_oldest(), Some(all[1]));
        assert_eq!((queue.len(), pop_all(&mut queue)), (2, all[2..].to_vec()));
    }

    #[test]
    fn all_that_were_added_leave_however_they_are_mixed() {
        const COUNT: usize = 3 * CHUNK_VALUES_MAX;
        let mut random = stdx::Random::new(5);
        let all = new_values((0..COUNT).map(|number| format!("{}:{number}", number % 7)));
        let (mut queue, mut left) = (Queue::default(), Vec::new());
        for (number, &value) in all.iter().enumerate() {
            queue.push(value, ANY);
            assert!(queue.chunks.iter().all(|chunk| chunk.values.len() <= CHUNK_VALUES_MAX));
            // Some are popped while the last chunk is still growing, and put back.
            if number % 4_000 == 3_999 && random.below(2) == 0 {
                let some: Vec<NewValue> = (0..1_000).filter_map(|_| queue.pop()).collect();
                let back = random.below(500) as usize;
                left.extend_from_slice(&some[..back]);
                queue.put_back(some[back..].to_vec());
            }
        }
        assert_eq!(queue.len(), COUNT - left.len());
        left.extend(pop_all(&mut queue));
        assert_eq!((queue.len(), queue.chunks.len()), (0, 0));
        let hashes = |values: &[NewValue]| {
            let hashes = values.iter().map(|value| value.hint().hash);
            hashes.collect::<std::collections::BTreeSet<_>>()
        };
        assert_eq!((left.len(), hashes(&left)), (COUNT, hashes(&all)));
    }
}
