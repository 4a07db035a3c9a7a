//! The requests of a connection that have arrived and not run yet.

use command::find_keys;
use keyspace::Key;
use resp::{ArgRange, Args, Limits, ProtocolError, RequestParser};
use smallvec::SmallVec;

use crate::limits::{BATCH_REQUESTS_MAX, RANGES_KEPT_MAX};
use crate::state::registry::{Entry, Registry, Run};

/// One request, cut out of the input.
#[derive(Clone, Copy)]
pub(crate) struct Request {
    /// Its command; none when there is no such command.
    pub(crate) entry: Option<&'static Entry>,
    /// Its argument ranges within the batch's. Of one that was refused for its size, which has none:
    /// that size, in KiB.
    first: u32,
    count: u32,
    /// Slot and hash of its key, when it has exactly one.
    key: Option<(u32, u16, u64)>,
}

/// Parsed requests over the connection's input.
#[derive(Default)]
pub(crate) struct Batch {
    parser: RequestParser,
    requests: Vec<Request>,
    ranges: Vec<ArgRange>,
    scratch: Vec<ArgRange>,
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
        self.requests.clear();
        self.ranges.clear();
        self.scratch.clear();
        self.next = 0;
        self.parsed_bytes = 0;
        while self.requests.len() < BATCH_REQUESTS_MAX && self.error.is_none() {
            let base = self.parsed_bytes;
            if base == input.len() {
                break;
            }
            match self.parser.parse(&mut input[base..], &mut self.scratch, limits) {
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
            if !limits.authenticated && !self.requests.is_empty() {
                break;
            }
        }
        !self.requests.is_empty()
    }

    fn push(&mut self, registry: &'static Registry, request: &[u8], base: usize) {
        if self.scratch.is_empty() {
            return;
        }
        let args = Args::new(request, &self.scratch);
        let mut entry = registry.get(&args[0]);
        if let Some(container) = entry
            && !container.subcommands.is_empty()
            && let Some(name) = args.get(1)
        {
            entry = container.subcommand(name).or(entry);
        }
        let key = entry.and_then(|entry| single_key(entry, args));
        let first = self.ranges.len() as u32;
        let base = base as u32;
        self.ranges.extend(
            self.scratch.iter().map(|range| ArgRange { start: range.start + base, len: range.len }),
        );
        let count = self.scratch.len() as u32;
        self.requests.push(Request { entry, first, count, key });
    }

    #[cold]
    fn push_refused(&mut self, bytes: usize) {
        let first = u32::try_from(bytes >> 10).unwrap_or(u32::MAX);
        self.requests.push(Request { entry: None, first, count: 0, key: None });
    }

    /// Lets go of what a batch of very many arguments took. The batch must be used up.
    #[inline]
    pub(crate) fn shrink(&mut self) {
        if self.ranges.capacity() + self.scratch.capacity() > 2 * RANGES_KEPT_MAX {
            self.requests.clear();
            self.ranges.clear();
            self.scratch.clear();
            self.ranges.shrink_to(RANGES_KEPT_MAX);
            self.scratch.shrink_to(RANGES_KEPT_MAX);
            self.next = 0;
        }
    }

    /// Memory of what is known of a request under way.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.parser.memory_bytes()
    }

    /// The next request.
    #[inline]
    pub(crate) fn current(&self) -> Option<Request> {
        self.requests.get(self.next).copied()
    }

    #[inline]
    pub(crate) fn advance(&mut self) {
        self.next += 1;
    }

    pub(crate) fn is_done(&self) -> bool {
        self.next >= self.requests.len()
    }

    /// The requests from the next one on.
    pub(crate) fn rest(&self) -> &[Request] {
        &self.requests[self.next..]
    }

    /// Forgets what has not run.
    pub(crate) fn drop_rest(&mut self) {
        self.next = self.requests.len();
    }

    /// The arguments of a request.
    #[inline]
    pub(crate) fn args<'a>(&'a self, request: &Request, input: &'a [u8]) -> Args<'a> {
        let first = request.first as usize;
        // One that was refused has none.
        let ranges = self.ranges.get(first..first + request.count as usize).unwrap_or_default();
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
