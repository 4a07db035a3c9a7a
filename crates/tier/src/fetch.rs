//! Values on their way from flash: a group of reads that a connection awaits together.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use flash::{EngineError, FetchedRecord};
use keyspace::FlashRef;

use crate::compress::decompress;

/// A value that a command needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Want {
    /// Its place.
    pub at: FlashRef,
    /// Length of its key, which its size on flash depends on.
    pub key_len: u32,
    /// Length of the value itself.
    pub value_len: u32,
}

/// The values that a connection fetched, by place.
#[derive(Default)]
pub struct FetchedSet(Vec<(u64, Fetched)>);

enum Fetched {
    Stored(FetchedRecord),
    Unpacked(Vec<u8>),
    /// The key has moved on: look it up again.
    Gone,
    Failed(String),
}

impl FetchedSet {
    /// The value at `at`, if it was fetched.
    pub fn value(&self, at: FlashRef) -> Option<&[u8]> {
        match &self.find(at)?.1 {
            Fetched::Stored(record) => Some(record.payload()),
            Fetched::Unpacked(value) => Some(value),
            Fetched::Gone | Fetched::Failed(_) => None,
        }
    }

    /// Why the value at `at` could not be read.
    pub fn failure(&self, at: FlashRef) -> Option<&str> {
        match &self.find(at)?.1 {
            Fetched::Failed(text) => Some(text),
            _ => None,
        }
    }

    /// Places of this set, each once.
    pub fn places(&self) -> impl Iterator<Item = u64> {
        self.0.iter().map(|(units, _)| *units)
    }

    /// Whether nothing was fetched.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Lets go of everything.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    fn find(&self, at: FlashRef) -> Option<&(u64, Fetched)> {
        let index = self.0.binary_search_by_key(&at.units, |(units, _)| *units).ok()?;
        self.0.get(index)
    }

    pub(crate) fn push(&mut self, want: &Want, result: Result<FetchedRecord, EngineError>) {
        let fetched = match result {
            Ok(record) if !want.at.compressed => Fetched::Stored(record),
            Ok(record) => match decompress(record.payload(), want.value_len as usize) {
                Some(value) => Fetched::Unpacked(value),
                None => Fetched::Failed("compressed value does not unpack".into()),
            },
            Err(EngineError::Gone { .. }) => Fetched::Gone,
            Err(error) => Fetched::Failed(error.to_string()),
        };
        self.0.push((want.at.units, fetched));
    }

    /// Adds a value whose slot is held: that it is gone is a failure then, not a reason to look
    /// again.
    pub(crate) fn push_final(&mut self, want: &Want, result: Result<FetchedRecord, EngineError>) {
        self.push(want, result);
        for (_, fetched) in &mut self.0 {
            if let Fetched::Gone = fetched {
                *fetched = Fetched::Failed("its record is gone".into());
            }
        }
    }

    fn sort(&mut self) {
        self.0.sort_unstable_by_key(|(units, _)| *units);
    }
}

/// Reads that are awaited together.
#[derive(Default)]
pub(crate) struct Group {
    waiting: Cell<usize>,
    set: RefCell<FetchedSet>,
    waker: RefCell<Option<Waker>>,
}

impl Group {
    pub(crate) fn expect(&self, reads: usize) {
        self.waiting.set(reads);
    }

    /// Takes the result of one read; wakes the connection after the last.
    pub(crate) fn complete(&self, want: &Want, result: Result<FetchedRecord, EngineError>) {
        self.set.borrow_mut().push(want, result);
        self.waiting.set(self.waiting.get() - 1);
        if self.waiting.get() == 0
            && let Some(waker) = self.waker.borrow_mut().take()
        {
            waker.wake();
        }
    }
}

/// Resolves when every read of a group has ended.
pub(crate) struct GroupDone(pub(crate) Rc<Group>);

impl Future for GroupDone {
    type Output = FetchedSet;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<FetchedSet> {
        if self.0.waiting.get() > 0 {
            *self.0.waker.borrow_mut() = Some(cx.waker().clone());
            return Poll::Pending;
        }
        let mut set = self.0.set.take();
        set.sort();
        Poll::Ready(set)
    }
}
