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

use crate::compress::decompress;
use crate::worker::TierWorker;

/// Values of a set that stay in the read buffers they came in; others are copied out of theirs, so
/// that a large set takes no more memory than its values, and no buffers from others.
const BUFFERED_MAX: usize = 32;

/// What a fetched value takes beside itself, at most: its place in the set, of which there are two
/// while values are added, and in the queue of reads; its want; the header of an allocation.
pub const VALUE_OVERHEAD_BYTES: usize = 256;

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

/// Values of a set that a search by halves finds; those of a larger one have an index.
const SEARCHED_MAX: usize = 64;

/// The values that a connection fetched.
#[derive(Default)]
pub struct FetchedSet {
    /// Sorted by record.
    values: Vec<(RecordId, Fetched)>,
    /// Their positions, of a large set.
    index: RapidHashMap<RecordId, u32>,
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
    pub fn value(&self, record: RecordId) -> Option<&[u8]> {
        match &self.find(record)?.1 {
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

    /// Lets go of everything.
    pub fn clear(&mut self) {
        self.values.clear();
        self.index = RapidHashMap::default();
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

    /// Adds what was fetched since. Of a record that is in both, the later one counts.
    pub fn extend(&mut self, more: FetchedSet) {
        if more.is_empty() {
            return;
        }
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
        if self.index.is_empty() {
            let position = self.values.binary_search_by_key(&record, |(id, _)| *id).ok()?;
            return self.values.get(position);
        }
        self.values.get(*self.index.get(&record)? as usize)
    }

    /// Notes where the values are, after they have changed.
    fn set_index(&mut self) {
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
        FetchedSet { values, index: RapidHashMap::default() }
    }

    fn put(&mut self, index: u32, want: &Want, result: Result<FetchedRecord, EngineError>) {
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

    /// The value of a key whose slot is held: that it is gone is a failure then, not a reason to
    /// look again.
    pub(crate) fn of_held(want: &Want, result: Result<FetchedRecord, EngineError>) -> FetchedSet {
        let mut set = FetchedSet::for_wants(std::slice::from_ref(want));
        set.put(0, want, result);
        if let Fetched::Gone = set.values[0].1 {
            set.values[0].1 = Fetched::Failed("its record is gone".into());
        }
        set
    }
}

/// Reads that are awaited together.
pub(crate) struct Group {
    waiting: Cell<usize>,
    set: RefCell<FetchedSet>,
    waker: RefCell<Option<Waker>>,
    /// Nobody awaits it any more: what its reads bring is let go at once.
    is_abandoned: Cell<bool>,
}

impl Group {
    /// `wants` are sorted by record.
    pub(crate) fn new(wants: &[Want]) -> Group {
        Group {
            waiting: Cell::new(wants.len()),
            set: RefCell::new(FetchedSet::for_wants(wants)),
            waker: RefCell::default(),
            is_abandoned: Cell::new(false),
        }
    }

    /// Takes the result of one read, the `index`-th of `wants`; wakes the connection after the
    /// last.
    pub(crate) fn complete(
        &self,
        index: u32,
        want: &Want,
        result: Result<FetchedRecord, EngineError>,
    ) {
        if !self.is_abandoned.get() {
            self.set.borrow_mut().put(index, want, result);
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
