//! Large records that gc runs move: they are in memory from the read to the end of the write, and all workers may
//! collect at once, as when a path is left. Who has to wait is let move in the order of asking.

use std::collections::BTreeSet;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::limits::GC_LARGE_BYTES_MAX;

/// Large records that gc runs of all workers move.
#[derive(Clone, Default)]
pub(crate) struct AllMoving(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    bytes: usize,
    /// The numbers of those who wait. Bounds: a gc run waits for one record, so one a worker.
    waiting: BTreeSet<u64>,
    next_number: u64,
}

impl AllMoving {
    /// Lets a record of so many bytes be moved. None: others are to be moved first; ask again later, with the place
    /// that is noted in `place` then.
    pub(crate) fn admit(&self, bytes: usize, place: &mut Option<Place>) -> Option<Moving> {
        let mut state = self.0.lock();
        let number = place.as_ref().map(|place| place.number);
        let is_next = state.waiting.first().copied() == number;
        if is_next && (state.bytes == 0 || state.bytes + bytes <= GC_LARGE_BYTES_MAX) {
            state.bytes += bytes;
            drop(state);
            *place = None;
            return Some(Moving { bytes, of: self.clone() });
        }
        if number.is_none() {
            let number = state.next_number;
            state.next_number += 1;
            state.waiting.insert(number);
            *place = Some(Place { number, of: self.clone() });
        }
        None
    }
}

/// A place among those who wait, until this is dropped.
pub(crate) struct Place {
    number: u64,
    of: AllMoving,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.of.0.lock().waiting.remove(&self.number);
    }
}

/// A large record that is being moved, until this is dropped.
pub(crate) struct Moving {
    pub(crate) bytes: usize,
    of: AllMoving,
}

impl Drop for Moving {
    fn drop(&mut self) {
        self.of.0.lock().bytes -= self.bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: usize = GC_LARGE_BYTES_MAX;

    #[test]
    fn records_are_moved_up_to_the_bound_and_a_larger_one_alone() {
        let all = AllMoving::default();
        let half = all.admit(MOST / 2, &mut None).expect("nothing is moved");
        let rest = all.admit(MOST / 2, &mut None).expect("there is room");
        assert!(all.admit(1, &mut None).is_none(), "beyond the bound");
        drop(half);
        assert!(all.admit(MOST, &mut None).is_none(), "another is moved");
        drop(rest);
        let larger = all.admit(2 * MOST, &mut None).expect("nothing else is moved");
        assert!(all.admit(1, &mut None).is_none(), "beside a larger one");
        drop(larger);
        assert!(all.admit(1, &mut None).is_some());
    }

    #[test]
    fn who_waits_is_let_move_before_others_however_much_it_is() {
        let all = AllMoving::default();
        let one = all.admit(1, &mut None).expect("nothing is moved");
        let (mut larger, mut small) = (None, None);
        assert!(all.admit(2 * MOST, &mut larger).is_none(), "another is moved");
        assert!(all.admit(1, &mut small).is_none(), "another waits");
        drop(one);
        assert!(all.admit(1, &mut small).is_none() && all.admit(1, &mut None).is_none());
        let moving = all.admit(2 * MOST, &mut larger).expect("it is the first who waits");
        assert!(larger.is_none() && all.admit(1, &mut small).is_none());
        drop(moving);
        let moving = all.admit(1, &mut small).expect("it is the next");
        assert!(all.admit(2 * MOST, &mut larger).is_none());
        drop((moving, larger.take()));
        assert!(all.admit(MOST, &mut None).is_some(), "who has gone is not waited for");
    }
}
