//! Room for the requests of a batch, which workers lend to connections.

use keyspace::Key;
use resp::{ArgRange, Args};

use crate::limits::RANGES_KEPT_MAX;
use crate::state::registry::Entry;

/// One request, cut out of the input.
#[derive(Clone, Copy)]
pub(crate) struct Request {
    /// Its command; none when there is no such command.
    pub(crate) entry: Option<&'static Entry>,
    /// Its argument ranges within the batch's. Of one that was refused for its size, which has none:
    /// that size, in KiB.
    pub(crate) first: u32,
    pub(crate) count: u32,
    /// Slot and hash of its key, when it has exactly one.
    pub(crate) key: Option<(u32, u16, u64)>,
}

impl Request {
    /// The bytes that it announced, if it was refused for them, rounded down to KiB.
    #[inline]
    pub(crate) fn refused_bytes(&self) -> Option<u64> {
        (self.count == 0).then(|| u64::from(self.first) << 10)
    }

    /// The key of a request that has exactly one.
    #[inline]
    pub(crate) fn key<'a>(&self, args: Args<'a>) -> Option<Key<'a>> {
        let (index, slot, hash) = self.key?;
        Some(Key { bytes: args.get(index as usize)?, slot, hash })
    }
}

/// Room for parsed requests. Connections borrow it from their worker while they have some.
#[derive(Default)]
pub(crate) struct BatchLists {
    pub(crate) requests: Vec<Request>,
    pub(crate) ranges: Vec<ArgRange>,
    pub(crate) scratch: Vec<ArgRange>,
}

impl BatchLists {
    /// Empties it, and lets go of what a batch of very many arguments took.
    pub(crate) fn clear(&mut self) {
        self.requests.clear();
        for ranges in [&mut self.ranges, &mut self.scratch] {
            ranges.clear();
            if ranges.capacity() > RANGES_KEPT_MAX {
                ranges.shrink_to(RANGES_KEPT_MAX);
            }
        }
    }

    /// The requests in memory of their size.
    pub(crate) fn shrunk(&self) -> BatchLists {
        // A clone of a vector has no spare capacity.
        BatchLists {
            requests: self.requests.clone(),
            ranges: self.ranges.clone(),
            scratch: Vec::new(),
        }
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        self.requests.capacity() * size_of::<Request>()
            + (self.ranges.capacity() + self.scratch.capacity()) * size_of::<ArgRange>()
    }
}
