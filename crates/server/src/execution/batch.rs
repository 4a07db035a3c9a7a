//! The requests of a connection that have arrived and not run yet.

use command::find_keys;
use keyspace::Key;
use resp::{ArgRange, Args, Limits, ProtocolError, RequestParser};
use smallvec::SmallVec;

use crate::limits::BATCH_REQUESTS_MAX;
use crate::state::batch_lists::{BatchLists, Request};
use crate::state::registry::{Entry, Registry, Run};

/// Parsed requests over the connection's input.
#[derive(Default)]
pub(crate) struct Batch {
    parser: RequestParser,
    lists: BatchLists,
    /// The next request to run.
    next: usize,
    /// Bytes of input that the parsed requests take.
    pub(crate) parsed_bytes: usize,
    /// What stopped the parser for good; reported after the requests before it.
    pub(crate) error: Option<ProtocolError>,
}

impl Batch {
    /// Parses what has arrived. The batch must be used up. False: there is no whole request.
    pub(crate) fn parse(
        &mut self,
        input: &mut [u8],
        limits: &Limits,
        registry: &'static Registry,
    ) -> bool {
        assert!(self.is_done());
        self.lists.requests.clear();
        self.lists.ranges.clear();
        self.lists.scratch.clear();
        self.next = 0;
        self.parsed_bytes = 0;
        while self.lists.requests.len() < BATCH_REQUESTS_MAX && self.error.is_none() {
            let base = self.parsed_bytes;
            if base == input.len() {
                break;
            }
            match self.parser.parse(&mut input[base..], &mut self.lists.scratch, limits) {
                Ok(Some(consumed)) => {
                    self.parsed_bytes += consumed;
                    if let Some(bytes) = self.parser.take_refused() {
                        self.push_refused(bytes);
                    }
                    self.push(registry, &input[base..base + consumed], base);
                }
                Ok(None) => break,
                Err(error) => self.error = Some(error),
            }
            // Before it has authenticated, a client's next request may fall under other limits. An
            // empty one changes nothing, and nobody would come back for what follows it.
            if !limits.authenticated && !self.lists.requests.is_empty() {
                break;
            }
        }
        !self.lists.requests.is_empty()
    }

    fn push(&mut self, registry: &'static Registry, request: &[u8], base: usize) {
        let BatchLists { requests, ranges, scratch } = &mut self.lists;
        if scratch.is_empty() {
            return;
        }
        let args = Args::new(request, scratch);
        let entry = registry.find(args);
        let key = entry.and_then(|entry| single_key(entry, args));
        let first = ranges.len() as u32;
        let base = base as u32;
        ranges.extend(
            scratch.iter().map(|range| ArgRange { start: range.start + base, len: range.len }),
        );
        let count = scratch.len() as u32;
        requests.push(Request { entry, first, count, key });
    }

    #[cold]
    fn push_refused(&mut self, bytes: usize) {
        let first = u32::try_from(bytes >> 10).unwrap_or(u32::MAX);
        self.lists.requests.push(Request { entry: None, first, count: 0, key: None });
    }

    /// Whether there is room for requests, which takes memory.
    #[inline]
    pub(crate) fn has_lists(&self) -> bool {
        self.lists.requests.capacity() + self.lists.scratch.capacity() > 0
    }

    /// Gives it room.
    #[inline]
    pub(crate) fn give_lists(&mut self, lists: BatchLists) {
        self.lists = lists;
    }

    /// Takes the room away, emptied. The batch must be used up.
    #[inline]
    pub(crate) fn take_lists(&mut self) -> BatchLists {
        assert!(self.is_done());
        self.next = 0;
        let mut lists = std::mem::take(&mut self.lists);
        lists.clear();
        lists
    }

    /// Whether they have more room than what is parsed takes.
    pub(crate) fn has_loose_lists(&self) -> bool {
        let BatchLists { requests, ranges, scratch } = &self.lists;
        requests.capacity() > requests.len()
            || ranges.capacity() > ranges.len()
            || scratch.capacity() > 0
    }

    /// Moves what is parsed to memory of its size, and returns the room, emptied.
    pub(crate) fn shrink_lists(&mut self) -> BatchLists {
        let shrunk = self.lists.shrunk();
        let mut lists = std::mem::replace(&mut self.lists, shrunk);
        lists.clear();
        lists
    }

    /// Memory of parsed requests, and of what is known of the one that is arriving.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.parser.memory_bytes() + self.lists.memory_bytes()
    }

    /// The next request.
    #[inline]
    pub(crate) fn current(&self) -> Option<Request> {
        self.lists.requests.get(self.next).copied()
    }

    #[inline]
    pub(crate) fn advance(&mut self) {
        self.next += 1;
    }

    pub(crate) fn is_done(&self) -> bool {
        self.next >= self.lists.requests.len()
    }

    /// The requests from the next one on.
    pub(crate) fn rest(&self) -> &[Request] {
        &self.lists.requests[self.next..]
    }

    /// Forgets what has not run.
    pub(crate) fn drop_rest(&mut self) {
        self.next = self.lists.requests.len();
    }

    /// The arguments of a request.
    #[inline]
    pub(crate) fn args<'a>(&'a self, request: &Request, input: &'a [u8]) -> Args<'a> {
        let first = request.first as usize;
        // One that was refused has none.
        let ranges =
            self.lists.ranges.get(first..first + request.count as usize).unwrap_or_default();
        Args::new(input, ranges)
    }

    /// Bytes that a request under way still needs, when that is known.
    pub(crate) fn bytes_wanted(&self) -> usize {
        self.parser.bytes_wanted()
    }

    /// How long the request under way will be, about.
    pub(crate) fn bytes_expected(&self) -> usize {
        self.parser.bytes_expected()
    }
}

/// Hashes the key of a request with one key, ahead of its run, so that its cache lines can be on
/// their way.
#[inline]
fn single_key(entry: &Entry, args: Args<'_>) -> Option<(u32, u16, u64)> {
    let Run::Keys(_) = entry.run else { return None };
    let [spec] = entry.spec.keys else { return None };
    if let command::Begin::Index(index) = spec.begin
        && let command::Find::Range { last: 0, .. } = spec.find
    {
        let key = Key::new(args.get(index)?);
        return Some((index as u32, key.slot, key.hash));
    }
    let mut found = SmallVec::new();
    find_keys(entry.spec.keys, args, &mut found);
    let [at] = *found.as_slice() else { return None };
    let key = Key::new(&args[at.index]);
    Some((at.index as u32, key.slot, key.hash))
}
