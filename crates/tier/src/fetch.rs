//! Values on their way from flash: a group of reads that a connection awaits together.
//!
//! No slot is held while they are awaited, so meanwhile a key may change, its record die, and the
//! place be written anew. Therefore wants and fetched values go by the name of the record (place and
//! generation of the segment), taken each time with the slot locked: the record that a locked slot
//! points at lives, so its segment was not freed since it was written, and its name is the one it
//! had when it was wanted. A value of any other name is not this key's, and neither is an error.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use flash::{EngineError, FetchedRecord, RecordId};
use keyspace::FlashRef;
use rapidhash::RapidHashMap;
use stdx::prefetch::prefetch;

use crate::compress::decompress;
use crate::worker::TierWorker;

/// Values of a set that stay in the read buffers they came in; others are copied out of theirs, so
/// that a large set takes no more memory than its values, and no buffers from others.
const BUFFERED_MAX: usize = 32;

/// What a fetched value takes beside itself, at most: its place in the set, of which there are two
/// while values are added, in its index and in its order; its want, in a list that may have grown by half;
/// the gap that a reply leaves for it; the header of an allocation.
pub const VALUE_OVERHEAD_BYTES: usize = 320;

/// A value that a command needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Want {
    /// Its place.
    pub at: FlashRef,
    /// Which of the records that lie there over time.
    pub record: RecordId,
    /// Length of its key, which its size on flash depends on.
    pub key_len: u32,
    /// Length of the value itself.
    pub value_len: u32,
}

/// Sorts what is to be fetched, each record once.
pub fn sort_wants(wants: &mut Vec<Want>) {
    wants.sort_unstable_by_key(|want| want.record);
    wants.dedup_by_key(|want| want.record);
}

/// Values, and bytes of them, that are read together while their slots are held.
const READ_HELD_MAX: usize = 512;
const READ_HELD_BYTES: usize = 2 << 20;

/// Values whose cache lines are on their way, of those that will be asked for.
const PREFETCH_AHEAD: usize = 16;

/// Values of a set that a search by halves finds; those of a larger one have an index.
const SEARCHED_MAX: usize = 64;

/// The values that a connection fetched.
#[derive(Default)]
pub struct FetchedSet {
    /// Sorted by record.
    values: Vec<(RecordId, Fetched)>,
    /// Their positions, of a large set.
    index: RapidHashMap<RecordId, u32>,
    /// Length of the longest.
    longest: usize,
    /// The records in the order in which they will be asked for, with their positions: to look for each
    /// in the index of a large set costs two cache misses.
    order: Vec<(RecordId, u32)>,
    /// How far they were asked for.
    asked: Cell<usize>,
    /// The position that a search by halves has found last.
    found: Cell<usize>,
    /// Whether some were not at hand when they were asked for.
    pub(crate) has_waited: bool,
}

enum Fetched {
    /// Its read has not ended; a set that a connection holds has none of these.
    Pending,
    Stored(FetchedRecord),
    /// In memory of its own.
    Owned(Vec<u8>),
    /// The key has moved on: look it up again.
    Gone,
    Failed(String),
}

impl FetchedSet {
    /// The value of a record, if it was fetched.
    #[inline]
    pub fn value(&self, record: RecordId) -> Option<&[u8]> {
        self.value_at(self.position(record)?)
    }

    /// Notes the order in which records will be asked for, one after another.
    pub fn push_order(&mut self, records: &[RecordId]) {
        for &record in records {
            self.order.extend(self.position_in_index(record).map(|position| (record, position)));
        }
    }

    /// Begins the order again, for another run.
    #[inline]
    pub fn rewind(&self) {
        self.asked.set(0);
    }

    /// The position of a record in the set, if it is there. It stays until the set is changed.
    pub fn position(&self, record: RecordId) -> Option<u32> {
        let asked = self.asked.get();
        match self.order.get(asked) {
            Some(&(expected, position)) if expected == record => {
                self.asked.set(asked + 1);
                if let Some(&(_, soon)) = self.order.get(asked + PREFETCH_AHEAD) {
                    // Its fields may lie in two lines.
                    let soon = self.values.as_ptr().wrapping_add(soon as usize);
                    prefetch(soon);
                    prefetch(soon.cast::<u8>().wrapping_add(size_of::<(RecordId, Fetched)>() - 1));
                }
                Some(position)
            }
            _ => self.position_in_index(record),
        }
    }

    fn position_in_index(&self, record: RecordId) -> Option<u32> {
        if self.index.is_empty() {
            return self.search(record);
        }
        self.index.get(&record).copied()
    }

    /// Searches by halves; what was written together, and is asked for in that order, is there at once.
    #[inline]
    fn search(&self, record: RecordId) -> Option<u32> {
        let found = self.found.get();
        let is_at = |at: &usize| self.values.get(*at).is_some_and(|(id, _)| *id == record);
        let position = [found, found + 1].into_iter().find(is_at);
        let by_halves = || self.values.binary_search_by_key(&record, |(id, _)| *id).ok();
        let position = position.or_else(by_halves)?;
        self.found.set(position);
        Some(position as u32)
    }

    /// The value of the record at a position, if it was fetched.
    #[inline]
    pub fn value_at(&self, position: u32) -> Option<&[u8]> {
        match &self.values.get(position as usize)?.1 {
            Fetched::Stored(record) => Some(record.payload()),
            Fetched::Owned(value) => Some(value),
            Fetched::Pending | Fetched::Gone | Fetched::Failed(_) => None,
        }
    }

    /// Whether the value of a record was fetched, or could not be.
    pub fn has(&self, record: RecordId) -> bool {
        self.value(record).is_some() || self.failure(record).is_some()
    }

    /// Why a record could not be read.
    pub fn failure(&self, record: RecordId) -> Option<&str> {
        match &self.find(record)?.1 {
            Fetched::Failed(text) => Some(text),
            _ => None,
        }
    }

    /// Length of the longest value that was fetched since the set was cleared.
    #[inline]
    pub fn longest(&self) -> usize {
        self.longest
    }

    /// Takes the value of a record out of the set if it is longer than so many bytes and nobody else holds
    /// it.
    pub fn take_longer(&mut self, record: RecordId, bytes: usize) -> Option<Vec<u8>> {
        let position = self.position(record)?;
        let fetched = &mut self.values[position as usize].1;
        match std::mem::replace(fetched, Fetched::Gone) {
            Fetched::Owned(value) if value.len() > bytes => return Some(value),
            Fetched::Stored(stored) if stored.payload().len() > bytes => {
                match stored.into_large_payload() {
                    Ok(value) => return Some(value),
                    Err(stored) => *fetched = Fetched::Stored(stored),
                }
            }
            other => *fetched = other,
        }
        None
    }

    /// How many values it has.
    pub fn len(&self) -> usize {
        self.values.len()
    }

    /// Whether nothing was fetched.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// Memory that it takes, in bytes. Cost: linear in the values.
    pub fn memory_bytes(&self) -> u64 {
        let values = self.values.iter().map(|(_, fetched)| match fetched {
            Fetched::Stored(record) => record.payload().len(),
            Fetched::Owned(value) => value.len(),
            Fetched::Failed(text) => text.len(),
            Fetched::Pending | Fetched::Gone => 0,
        });
        (values.sum::<usize>() + self.values.len() * VALUE_OVERHEAD_BYTES) as u64
    }

    /// Lets go of everything. The places of a small set are kept for the next; those of a large one would stay with each
    /// connection that ever had one, and count as nobody's.
    pub fn clear(&mut self) {
        let mut values = std::mem::take(&mut self.values);
        values.clear();
        if values.capacity() > SEARCHED_MAX {
            values = Vec::new();
        }
        *self = FetchedSet { values, ..FetchedSet::default() };
    }

    /// Lets go of all but the values of `wants` (sorted), and of all read buffers: for a command
    /// that waits for more. To hold buffers while waiting could make all wait for ever.
    pub fn keep(&mut self, wants: &[Want]) {
        self.values.retain_mut(|(record, fetched)| {
            let is_wanted = wants.binary_search_by_key(record, |want| want.record).is_ok();
            if let Fetched::Stored(stored) = fetched
                && is_wanted
                && stored.holds_buffer()
            {
                *fetched = Fetched::Owned(stored.payload().to_vec());
            }
            is_wanted && !matches!(fetched, Fetched::Gone)
        });
        self.set_index();
    }

    /// Whether the device had to be waited for.
    pub fn has_waited(&self) -> bool {
        self.has_waited
    }

    /// Adds what was fetched since. Of a record that is in both, the later one counts.
    pub fn extend(&mut self, more: FetchedSet) {
        if more.is_empty() {
            return;
        }
        self.longest = self.longest.max(more.longest);
        self.values.retain(|(record, _)| more.find(*record).is_none());
        if self.values.is_empty() {
            self.values = more.values;
        } else {
            self.values.extend(more.values);
            self.values.sort_unstable_by_key(|(record, _)| *record);
        }
        self.set_index();
    }

    fn find(&self, record: RecordId) -> Option<&(RecordId, Fetched)> {
        self.values.get(self.position(record)? as usize)
    }

    /// Notes where the values are, after they have changed.
    fn set_index(&mut self) {
        self.order = Vec::new();
        self.index = RapidHashMap::default();
        if self.values.len() > SEARCHED_MAX {
            let positions = self.values.iter().zip(0..);
            self.index = positions.map(|((record, _), position)| (*record, position)).collect();
        }
    }

    /// A set with a place for each of `wants`, which are sorted.
    fn for_wants(wants: &[Want]) -> FetchedSet {
        assert!(wants.is_sorted_by(|one, two| one.record < two.record));
        let values = wants.iter().map(|want| (want.record, Fetched::Pending)).collect();
        FetchedSet { values, ..FetchedSet::default() }
    }

    fn put(&mut self, index: u32, want: &Want, result: Result<FetchedRecord, EngineError>) {
        self.longest = self.longest.max(want.value_len as usize);
        self.values[index as usize].1 = match result {
            Ok(record) if !want.at.compressed && self.values.len() <= BUFFERED_MAX => {
                Fetched::Stored(record)
            }
            Ok(record) if !want.at.compressed => Fetched::Owned(record.into_payload()),
            Ok(record) => match decompress(record.payload(), want.value_len as usize) {
                Some(value) => Fetched::Owned(value),
                None => Fetched::Failed("compressed value does not unpack".into()),
            },
            Err(EngineError::Gone { .. }) => Fetched::Gone,
            Err(error) => Fetched::Failed(error.for_client()),
        };
    }

    /// The values of keys whose slots are held, `wants` being sorted: that one is gone is a failure then,
    /// not a reason to look again.
    pub(crate) fn of_held(
        wants: &[Want],
        read: impl Fn(&[Want]) -> Vec<Result<FetchedRecord, EngineError>>,
    ) -> FetchedSet {
        let mut set = FetchedSet::for_wants(wants);
        let mut index = 0;
        while (index as usize) < wants.len() {
            let some = read_together(&wants[index as usize..]);
            for (want, result) in some.iter().zip(read(some)) {
                set.put(index, want, result);
                let fetched = &mut set.values[index as usize].1;
                if let Fetched::Gone = fetched {
                    *fetched = Fetched::Failed("its record is gone".into());
                }
                index += 1;
            }
        }
        set.set_index();
        set
    }
}

/// The first of the wants, those that are read together while their slots are held: what comes stands in read
/// buffers beside what the set has.
fn read_together(wants: &[Want]) -> &[Want] {
    let mut bytes = 0;
    let fits = |want: &&Want| {
        bytes += want.at.stored_len as usize;
        bytes <= READ_HELD_BYTES
    };
    let count = wants.iter().take(READ_HELD_MAX).take_while(fits).count();
    &wants[..count.max(1)]
}

/// Reads that are awaited together.
pub(crate) struct Group {
    wants: Vec<Want>,
    waiting: Cell<usize>,
    set: RefCell<FetchedSet>,
    waker: RefCell<Option<Waker>>,
    /// Whether what lies beside its values may come to RAM with them.
    pub(crate) may_bring: bool,
    /// Nobody awaits it any more: what its reads bring is let go at once.
    is_abandoned: Cell<bool>,
}

impl Group {
    /// `wants` are sorted by record.
    pub(crate) fn new(wants: Vec<Want>, may_bring: bool) -> Group {
        Group {
            waiting: Cell::new(wants.len()),
            set: RefCell::new(FetchedSet::for_wants(&wants)),
            wants,
            waker: RefCell::default(),
            may_bring,
            is_abandoned: Cell::new(false),
        }
    }

    /// Whether reads of it have not ended.
    pub(crate) fn is_waiting(&self) -> bool {
        self.waiting.get() > 0
    }

    pub(crate) fn wants(&self) -> &[Want] {
        &self.wants
    }

    /// Takes the result of one read, the `index`-th of `wants`; wakes the connection after the
    /// last.
    pub(crate) fn complete(&self, index: u32, result: Result<FetchedRecord, EngineError>) {
        if !self.is_abandoned.get() {
            self.set.borrow_mut().put(index, &self.wants[index as usize], result);
        }
        self.waiting.set(self.waiting.get() - 1);
        if self.waiting.get() == 0
            && let Some(waker) = self.waker.borrow_mut().take()
        {
            waker.wake();
        }
    }
}

/// Resolves when every read of a group has ended. Dropped before, it calls them off.
pub(crate) struct GroupDone<'a> {
    pub(crate) group: Rc<Group>,
    pub(crate) worker: &'a TierWorker,
}

impl Future for GroupDone<'_> {
    type Output = FetchedSet;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<FetchedSet> {
        if self.group.waiting.get() > 0 {
            *self.group.waker.borrow_mut() = Some(cx.waker().clone());
            return Poll::Pending;
        }
        Poll::Ready(self.group.set.take())
    }
}

impl Drop for GroupDone<'_> {
    fn drop(&mut self) {
        if self.group.waiting.get() > 0 {
            self.group.is_abandoned.set(true);
            self.group.set.take();
            self.worker.forget_queued(&self.group);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use flash::Location;

    use super::*;

    #[test]
    fn a_set_that_is_cleared_keeps_its_places_unless_they_were_many() {
        let cleared = |places: usize| {
            let mut set =
                FetchedSet { values: Vec::with_capacity(places), ..FetchedSet::default() };
            set.order.reserve(places);
            set.clear();
            (set.values.capacity(), set.order.capacity())
        };
        assert_eq!(cleared(SEARCHED_MAX), (SEARCHED_MAX, 0));
        assert_eq!(cleared(SEARCHED_MAX + 1), (0, 0));
    }

    #[test]
    fn a_search_finds_what_a_look_at_all_finds_whatever_was_found_before() {
        let mut random = stdx::Random::new(3);
        let record =
            |units: u64| RecordId { at: Location::from_units(units), generation: 1 + units % 2 };
        let mut set = FetchedSet::default();
        for _ in 0..200 {
            let count = random.below(SEARCHED_MAX as u64);
            let places: BTreeSet<u64> = (0..count).map(|_| random.below(100)).collect();
            // What was found last may lie beyond the end.
            set.values = places.iter().map(|&units| (record(units), Fetched::Pending)).collect();
            set.values.sort_unstable_by_key(|(id, _)| *id);
            let mut next = 0;
            for _ in 0..40 {
                next =
                    if random.below(3) == 0 { random.below(100) } else { next + random.below(3) };
                let wanted = record(next);
                let expected = set.values.iter().position(|(id, _)| *id == wanted);
                assert_eq!(set.search(wanted).map(|at| at as usize), expected);
            }
        }
    }
}
