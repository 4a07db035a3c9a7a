//! One connection: the requests it has in flight, and the check of what comes back.
//!
//! ```text
//! issue -> [output] -> socket ... socket -> [input] -> receive -> Stats
//!             \-> pending, when the socket takes no more
//! ```
//! Invariants: at most `pipeline` requests are in flight; nothing is issued while bytes are
//! pending; replies are matched to requests in order.

use crate::keys::KeyPicker;
use crate::plan::{Address, Checking, Plan, Until, VERSIONS_MAX};
use crate::reply::{Event, Malformed, Parser};
use crate::request::{Kind, Templates};
use crate::stats::{Replies, Stats};
use crate::values::Values;
use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

/// Bytes that one read takes at most.
const INPUT_BYTES: usize = 256 << 10;
/// Requests are handed to the socket when so many bytes of them are together.
const OUTPUT_BYTES: usize = 256 << 10;

const _: () = assert!(VERSIONS_MAX == u64::BITS);

/// What a thread needs to serve any of its connections.
pub struct Kit<'a> {
    /// What to do.
    pub plan: &'a Plan,
    /// What has happened.
    pub stats: Stats,
    templates: Templates,
    values: Values,
    input: Vec<u8>,
    output: Vec<u8>,
}

impl<'a> Kit<'a> {
    /// Prepares the templates and buffers of one thread.
    pub fn new(plan: &'a Plan) -> Self {
        Self {
            plan,
            stats: Stats::new(plan.labels().len()),
            templates: Templates::new(plan),
            values: Values::new(plan.sizes),
            input: vec![0; INPUT_BYTES],
            output: Vec::with_capacity(2 * OUTPUT_BYTES),
        }
    }
}

/// Why a connection is given up.
#[derive(Debug, thiserror::Error)]
pub enum Lost {
    /// The system said so.
    #[error("connection lost: {0}")]
    System(#[from] io::Error),
    /// The server closed it.
    #[error("the server closed the connection")]
    Closed,
    /// The server sent what is no reply.
    #[error(transparent)]
    Malformed(#[from] Malformed),
    /// The server sent more replies than it got requests.
    #[error("the server sent a reply that nothing had asked for")]
    Unasked,
    /// The server did not answer for too long.
    #[error("no reply for two minutes")]
    Silent,
}

/// When requests count as sent, in nanoseconds from the start: the first at `first_ns`, each next
/// one `step_ns` later.
#[derive(Debug, Clone, Copy)]
pub struct Schedule {
    /// When the first was, or should have been, sent.
    pub first_ns: f64,
    /// Time between two.
    pub step_ns: f64,
}

/// A client of the server.
pub struct Connection {
    stream: Stream,
    parser: Parser,
    in_flight: VecDeque<Flight>,
    pending: Vec<u8>,
    set_keys: KeyPicker,
    get_keys: KeyPicker,
    /// Place in the round of SETs and GETs.
    round: u32,
    /// Requests still to send.
    left: u64,
    /// Which versions the value that is arriving can still be: bit n is n versions back.
    candidates: u64,
    /// When the last reply came or, if later, the first request in flight was sent.
    progress_ns: u64,
}

#[derive(Debug, Clone, Copy)]
struct Flight {
    sent_ns: u64,
    key: u64,
    kind: Kind,
}

/// Replies of one read to one kind of request that took equally long.
struct Run {
    kind: Kind,
    replies: Replies,
}

impl Connection {
    /// Connects to the server as connection `index` of the load.
    ///
    /// Errors: the system's.
    pub fn new(plan: &Plan, index: u64) -> io::Result<Self> {
        let connections = plan.connections() as u64;
        let picker = |pattern, salt: u64| {
            let parallel = pattern == crate::arguments::Pattern::Parallel;
            let range = if parallel { plan.keys.part(index, connections) } else { plan.keys };
            let seed = plan.seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ (index << 1 | salt);
            KeyPicker::new(pattern, range, &plan.shape, seed)
        };
        Ok(Self {
            stream: Stream::connect(&plan.address)?,
            parser: Parser::default(),
            in_flight: VecDeque::with_capacity(plan.pipeline),
            pending: Vec::new(),
            set_keys: picker(plan.patterns.set, 0),
            get_keys: picker(plan.patterns.get, 1),
            round: 0,
            left: match plan.until {
                Until::Requests(count) => count,
                Until::Time(_) => u64::MAX,
                Until::AllKeys if plan.keys.count() >= connections => {
                    plan.keys.part(index, connections).count()
                }
                Until::AllKeys => 1,
            },
            candidates: 0,
            progress_ns: 0,
        })
    }

    /// The socket, to wait for.
    pub fn socket(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }

    /// How many requests it can take now.
    pub fn room(&self, plan: &Plan) -> usize {
        if !self.pending.is_empty() || (plan.batch && !self.in_flight.is_empty()) {
            return 0;
        }
        let room = plan.pipeline - self.in_flight.len();
        room.min(usize::try_from(self.left).unwrap_or(usize::MAX))
    }

    /// Sends no new requests.
    pub fn stop(&mut self) {
        self.left = 0;
    }

    /// Whether all is sent and answered.
    pub fn is_done(&self) -> bool {
        self.left == 0 && self.in_flight.is_empty()
    }

    /// Whether bytes wait for the socket to take them.
    pub fn is_pending(&self) -> bool {
        !self.pending.is_empty()
    }

    /// For how long, at `now_ns`, it has waited for the next reply.
    pub fn waited_ns(&self, now_ns: u64) -> u64 {
        if self.in_flight.is_empty() { 0 } else { now_ns.saturating_sub(self.progress_ns) }
    }

    /// Sends up to `count` requests, no more than there is room for; returns how many.
    ///
    /// Errors: [`Lost`], and then the connection is of no more use.
    pub fn issue(
        &mut self,
        kit: &mut Kit<'_>,
        count: usize,
        schedule: Schedule,
        now_ns: u64,
    ) -> Result<usize, Lost> {
        let count = count.min(self.room(kit.plan));
        if count > 0 && self.in_flight.is_empty() {
            self.progress_ns = now_ns;
        }
        kit.output.clear();
        for index in 0..count {
            let sent_ns = schedule.first_ns + index as f64 * schedule.step_ns;
            self.append_request(kit, sent_ns as u64, now_ns);
            if kit.output.len() >= OUTPUT_BYTES || index + 1 == count {
                self.send(&kit.output)?;
                kit.output.clear();
                if self.is_pending() {
                    return Ok(index + 1);
                }
            }
        }
        Ok(count)
    }

    #[inline]
    fn append_request(&mut self, kit: &mut Kit<'_>, sent_ns: u64, now_ns: u64) {
        let start = kit.output.len();
        let ratio = kit.plan.ratio;
        let kind = if self.round < ratio.sets { Kind::Set } else { Kind::Get };
        self.round += 1;
        if self.round >= ratio.sets + ratio.others {
            self.round = 0;
        }
        let key = match kind {
            Kind::Set => {
                let key = self.set_keys.pick();
                let value = kit.values.of(key, kit.plan.value_version);
                kit.stats.value_bytes_written += value.size() as u64;
                kit.templates.append_set(key, value, &kit.values, &mut kit.output);
                key
            }
            Kind::Get => {
                let key = self.get_keys.pick();
                kit.templates.append_get(key, &mut kit.output);
                key
            }
        };
        kit.stats.rows[kind as usize].sent((kit.output.len() - start) as u64, now_ns);
        self.left -= 1;
        self.in_flight.push_back(Flight { sent_ns, key, kind });
    }

    fn send(&mut self, mut bytes: &[u8]) -> Result<(), Lost> {
        while !bytes.is_empty() {
            match self.stream.write(bytes) {
                Ok(0) => return Err(Lost::Closed),
                Ok(sent) => bytes = &bytes[sent..],
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.pending.extend_from_slice(bytes);
                    return Ok(());
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Sends what is pending, as far as the socket takes it.
    ///
    /// Errors: [`Lost`], and then the connection is of no more use.
    pub fn flush(&mut self) -> Result<(), Lost> {
        let pending = std::mem::take(&mut self.pending);
        self.send(&pending)?;
        if self.pending.is_empty() {
            // Keep the buffer: what was too much once is likely to be again.
            self.pending = pending;
            self.pending.clear();
        }
        Ok(())
    }

    /// Reads once, and counts the replies that have come; `clock` tells the time afterwards.
    /// Returns that time.
    ///
    /// Errors: [`Lost`], and then the connection is of no more use.
    pub fn receive(&mut self, kit: &mut Kit<'_>, clock: impl Fn() -> u64) -> Result<u64, Lost> {
        let size = match self.stream.read(&mut kit.input) {
            Ok(0) => return Err(Lost::Closed),
            Ok(size) => size,
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
                ) =>
            {
                return Ok(clock());
            }
            Err(error) => return Err(error.into()),
        };
        let now_ns = clock();
        // The buffer leaves the kit for the loop, which counts into the kit.
        let input = std::mem::take(&mut kit.input);
        let outcome = self.take_replies(&input[..size], kit, now_ns);
        kit.input = input;
        outcome.map(|()| now_ns)
    }

    fn take_replies(
        &mut self,
        mut input: &[u8],
        kit: &mut Kit<'_>,
        now_ns: u64,
    ) -> Result<(), Lost> {
        let mut run = Run { kind: Kind::Get, replies: Replies::default() };
        let mut bytes = 0;
        while !input.is_empty() {
            let (used, event) = self.parser.next(input)?;
            input = &input[used..];
            bytes += used as u64;
            let Some(event) = event else { continue };
            let Some(flight) = self.in_flight.front().copied() else {
                return Err(Lost::Unasked);
            };
            let end = match event {
                Event::Bulk { size, offset, bytes, end } => {
                    kit.stats.value_bytes_read += bytes.len() as u64;
                    if kit.plan.checking != Checking::Nothing {
                        let piece = Piece { size, offset, bytes, end };
                        check(kit, &mut self.candidates, flight, piece);
                    }
                    if end {
                        kit.stats.rows[Kind::Get as usize].hits += 1;
                    }
                    end
                }
                Event::Null => {
                    kit.stats.rows[Kind::Get as usize].misses += 1;
                    true
                }
                Event::Error(text) => {
                    kit.stats.errors += 1;
                    kit.stats.note_error(&String::from_utf8_lossy(text));
                    true
                }
                Event::Status => true,
            };
            if end {
                self.in_flight.pop_front();
                run.count(&mut kit.stats, flight, std::mem::take(&mut bytes), now_ns);
            }
        }
        if run.replies.count > 0 {
            run.close(&mut kit.stats, now_ns);
            let waited_ns = now_ns.saturating_sub(self.progress_ns);
            kit.stats.stall_ns_max = kit.stats.stall_ns_max.max(waited_ns);
            self.progress_ns = now_ns;
        }
        Ok(())
    }
}

/// A piece of a value as it arrives.
#[derive(Clone, Copy)]
struct Piece<'a> {
    size: usize,
    offset: usize,
    bytes: &'a [u8],
    end: bool,
}

/// Compares a piece of a value with the versions that it can be of, and drops those that it cannot.
fn check(kit: &mut Kit<'_>, candidates: &mut u64, flight: Flight, piece: Piece<'_>) {
    let Checking::Values { version_min, .. } = kit.plan.checking else { return };
    let newest = kit.plan.value_version;
    if piece.offset == 0 {
        // A shift by 63 - n keeps n + 1 bits: the newest version and n older ones.
        *candidates = u64::MAX >> (VERSIONS_MAX - 1 - (newest - version_min));
    }
    let mut untried = *candidates;
    while untried != 0 {
        let back = untried.trailing_zeros();
        untried &= untried - 1;
        let value = kit.values.of(flight.key, newest - back);
        if value.size() == piece.size && kit.values.matches(value, piece.offset, piece.bytes) {
            if piece.end {
                return;
            }
        } else {
            *candidates &= !(1 << back);
        }
    }
    if piece.end {
        kit.stats.wrong += 1;
        let (prefix, key) = (&kit.plan.key_prefix, flight.key);
        kit.stats.note_error(&format!("wrong value of {prefix}{key}, {} bytes", piece.size));
    }
}

impl Run {
    #[inline]
    fn count(&mut self, stats: &mut Stats, flight: Flight, bytes: u64, now_ns: u64) {
        let latency_ns = now_ns.saturating_sub(flight.sent_ns);
        let same = self.kind == flight.kind && self.replies.latency_ns == latency_ns;
        if self.replies.count > 0 && !same {
            self.close(stats, now_ns);
        }
        self.kind = flight.kind;
        self.replies.latency_ns = latency_ns;
        self.replies.count += 1;
        self.replies.received_bytes += bytes;
    }

    fn close(&mut self, stats: &mut Stats, now_ns: u64) {
        stats.rows[self.kind as usize].received(self.replies, now_ns);
        self.replies = Replies::default();
    }
}

enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Stream {
    fn connect(address: &Address) -> io::Result<Self> {
        match address {
            Address::Tcp(host, port) => {
                let stream = TcpStream::connect((host.as_str(), *port))?;
                stream.set_nodelay(true)?;
                stream.set_nonblocking(true)?;
                Ok(Self::Tcp(stream))
            }
            Address::Unix(path) => {
                let stream = UnixStream::connect(path)?;
                stream.set_nonblocking(true)?;
                Ok(Self::Unix(stream))
            }
        }
    }

    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(stream) => stream.as_fd(),
            Self::Unix(stream) => stream.as_fd(),
        }
    }

    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.read(bytes),
            Self::Unix(stream) => stream.read(bytes),
        }
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.write(bytes),
            Self::Unix(stream) => stream.write(bytes),
        }
    }
}
