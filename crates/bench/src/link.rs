//! One connection: the requests it has in flight, and the check of what comes back.
//!
//! ```text
//! send -> [output] -> stream ... stream -> [input] -> receive -> Stats
//!            \-> pending, when the stream takes no more
//! ```
//! Invariants: at most `pipeline` requests are in flight, not counting ASKING; nothing is sent while
//! bytes are pending; replies are matched to requests in order.

use crate::buffer::{Buffer, Writer};
use crate::cluster::{Redirect, SlotMap};
use crate::command::{Role, Source};
use crate::epoll::{Epoll, Interest};
use crate::keys::KeyPicker;
use crate::plan::{Checking, Plan, VERSIONS_MAX};
use crate::reply::{Event, Malformed, Parser};
use crate::session::{OpenError, open};
use crate::stats::{Replies, Stats};
use crate::stream::Stream;
use crate::target::Address;
use crate::values::Values;
use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::num::NonZeroU64;
use std::os::fd::AsFd;
use stdx::Random;

/// Bytes that one read takes at most.
const INPUT_BYTES: usize = 256 << 10;
/// Requests are handed to the stream when so many bytes of them are together.
const OUTPUT_BYTES: usize = 256 << 10;
/// A request is sent elsewhere no more often.
const REDIRECTS_MAX: u8 = 16;
/// What stands for the command of an ASKING, which is no request of the load.
const ASKING: u16 = u16::MAX;

const _: () = assert!(VERSIONS_MAX == u64::BITS);

/// What a thread needs to serve any of its connections.
pub struct Kit<'a> {
    /// What to do.
    pub plan: &'a Plan,
    /// What has happened.
    pub stats: Stats,
    /// When counting began, in nanoseconds from the start.
    pub begin_ns: u64,
    /// Waits for all connections.
    pub epoll: Epoll,
    /// Who has which slot, in a cluster.
    pub map: Option<SlotMap>,
    /// Requests that were sent elsewhere, until their client takes them.
    pub redirected: Vec<(Redirect, Flight)>,
    /// Room to put a key together.
    pub key_text: Vec<u8>,
    values: Values,
    input: Vec<u8>,
    output: Buffer,
}

impl<'a> Kit<'a> {
    /// Prepares the buffers of one thread.
    ///
    /// Errors: the system's, when it has no more file descriptors.
    pub fn new(plan: &'a Plan) -> io::Result<Self> {
        Ok(Self {
            plan,
            stats: Stats::new(plan.labels.len()),
            begin_ns: 0,
            epoll: Epoll::new()?,
            map: plan.cluster.clone(),
            redirected: Vec::new(),
            key_text: Vec::new(),
            values: Values::new(plan.sizes.clone(), plan.compressible),
            input: vec![0; INPUT_BYTES],
            output: Buffer::with_capacity(2 * OUTPUT_BYTES),
        })
    }

    fn count_sent(&mut self, row: usize, bytes: usize, now_ns: u64) {
        if bytes > 0 {
            self.stats.rows[row].sent(bytes as u64, now_ns - self.begin_ns);
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
    /// A further connection could not be made.
    #[error("cannot connect to {address}: {source}")]
    Open {
        /// The server, or a node.
        address: String,
        /// Why.
        source: OpenError,
    },
}

/// A request on its way.
#[derive(Debug, Clone, Copy)]
pub struct Flight {
    /// When it was sent or, on schedule, should have been; none when it was not sent yet.
    pub sent_ns: Option<NonZeroU64>,
    /// Number of its key.
    pub key: u64,
    /// Keys that it reads, for MGET.
    pub keys: u32,
    /// Index of its command in the plan.
    pub command: u16,
    /// How often it was sent elsewhere.
    pub redirects: u8,
    /// Whether the node is to be told that it was sent here.
    pub asking: bool,
}

/// What requests are made with, of the client that they belong to.
pub struct Maker<'a> {
    /// By command.
    pub pickers: &'a mut [KeyPicker],
    /// For numbers.
    pub random: &'a mut Random,
}

/// A connection to the server, or to a node of a cluster.
pub struct Link {
    /// Where it leads.
    address: Address,
    stream: Stream,
    parser: Parser,
    in_flight: VecDeque<Flight>,
    pending: Vec<u8>,
    /// Which versions the value that is arriving can still be: bit n is n versions back.
    candidates: u64,
    /// When the last reply came or, if later, the first request in flight was sent.
    progress_ns: u64,
    /// Bytes of the reply that is arriving.
    partial_bytes: u64,
    /// Requests since it was made.
    sent: u64,
    /// What to call it when it is ready.
    token: usize,
    interest: Interest,
}

/// Replies of one read that are counted in the same row and took equally long.
struct Run {
    row: usize,
    replies: Replies,
}

impl Link {
    /// Connects to `address`, and waits for replies as `token`.
    ///
    /// Errors: [`Lost::Open`].
    pub fn open(kit: &Kit<'_>, address: &Address, token: usize) -> Result<Self, Lost> {
        let lost = |source| Lost::Open { address: address.to_string(), source };
        let stream = open(&kit.plan.target, address).map_err(lost)?;
        kit.epoll.add(stream.as_fd(), token, Interest::Read)?;
        Ok(Self {
            address: address.clone(),
            stream,
            parser: Parser::default(),
            in_flight: VecDeque::with_capacity(kit.plan.pipeline),
            pending: Vec::new(),
            candidates: 0,
            progress_ns: 0,
            partial_bytes: 0,
            sent: 0,
            token,
            interest: Interest::Read,
        })
    }

    /// How many requests it can take now.
    pub fn room(&self, plan: &Plan) -> usize {
        if self.is_pending() || (plan.batch && !self.in_flight.is_empty()) {
            return 0;
        }
        let worn = usize::try_from(plan.reconnect_interval - self.sent).unwrap_or(usize::MAX);
        plan.pipeline.saturating_sub(self.in_flight.len()).min(worn)
    }

    /// Whether it is to be made anew now: it has served its interval, and all is answered.
    pub fn is_worn(&self, plan: &Plan) -> bool {
        self.sent >= plan.reconnect_interval && self.in_flight.is_empty() && !self.is_pending()
    }

    /// Whether all that was sent is answered.
    pub fn is_idle(&self) -> bool {
        self.in_flight.is_empty()
    }

    /// Whether bytes wait for the socket to take them.
    pub fn is_pending(&self) -> bool {
        !self.pending.is_empty() || self.stream.has_unsent()
    }

    /// For how long, at `now_ns`, it has waited for the next reply.
    pub fn waited_ns(&self, now_ns: u64) -> u64 {
        if self.in_flight.is_empty() { 0 } else { now_ns.saturating_sub(self.progress_ns) }
    }

    /// Sends requests as `next` gives them, no more than there is room for; returns how many.
    ///
    /// Errors: [`Lost`], and then the connection is of no more use.
    #[inline]
    pub fn send(
        &mut self,
        kit: &mut Kit<'_>,
        maker: &mut Maker<'_>,
        now_ns: u64,
        mut next: impl FnMut(&mut Maker<'_>) -> Option<Flight>,
    ) -> Result<usize, Lost> {
        let room = self.room(kit.plan);
        let mut count = 0;
        // Bytes of requests that are counted in the same row, counted together.
        let (mut row, mut bytes) = (0, 0);
        kit.output.clear();
        while count < room {
            let Some(flight) = next(maker) else { break };
            if self.in_flight.is_empty() {
                self.progress_ns = now_ns;
            }
            let command_row = kit.plan.commands[usize::from(flight.command)].row;
            if command_row != row {
                kit.count_sent(row, std::mem::take(&mut bytes), now_ns);
                row = command_row;
            }
            let start = kit.output.len();
            self.append(kit, maker, flight, now_ns);
            bytes += kit.output.len() - start;
            count += 1;
            if kit.output.len() >= OUTPUT_BYTES {
                self.write(kit.output.as_slice())?;
                kit.output.clear();
                if self.is_pending() {
                    break;
                }
            }
        }
        kit.count_sent(row, bytes, now_ns);
        self.write(kit.output.as_slice())?;
        Ok(count)
    }

    #[inline(always)]
    fn append(&mut self, kit: &mut Kit<'_>, maker: &mut Maker<'_>, flight: Flight, now_ns: u64) {
        if flight.asking {
            self.append_asking(kit, flight);
        }
        let index = usize::from(flight.command);
        let mut source = Source {
            keys: &mut maker.pickers[index],
            values: &kit.values,
            version: kit.plan.value_version,
            random: maker.random,
        };
        let command = &kit.plan.commands[index];
        let write =
            |output: &mut Writer<'_>| command.write(flight.key, flight.keys, &mut source, output);
        let bytes = kit.output.append(write);
        kit.stats.value_bytes_written += bytes;
        self.sent += 1;
        let sent_ns = flight.sent_ns.or(NonZeroU64::new(now_ns));
        self.in_flight.push_back(Flight { sent_ns, asking: false, ..flight });
    }

    #[cold]
    fn append_asking(&mut self, kit: &mut Kit<'_>, flight: Flight) {
        kit.output.append(|output| output.bytes(b"*1\r\n$6\r\nASKING\r\n"));
        self.in_flight.push_back(Flight { command: ASKING, ..flight });
    }

    fn write(&mut self, mut bytes: &[u8]) -> Result<(), Lost> {
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
        match self.stream.flush() {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
            outcome => outcome?,
        }
        let pending = std::mem::take(&mut self.pending);
        self.write(&pending)?;
        if self.pending.is_empty() {
            // Keep the buffer: what was too much once is likely to be again.
            self.pending = pending;
            self.pending.clear();
        }
        Ok(())
    }

    /// Watches for what it waits for: replies always, room when bytes are pending.
    ///
    /// Errors: [`Lost`], the system's.
    pub fn watch(&mut self, epoll: &Epoll) -> Result<(), Lost> {
        let interest = if self.is_pending() { Interest::ReadWrite } else { Interest::Read };
        if interest != self.interest {
            epoll.modify(self.stream.as_fd(), self.token, interest)?;
            self.interest = interest;
        }
        Ok(())
    }

    /// Reads once, and counts the replies that have come; `clock` tells the time afterwards.
    /// Returns that time. Redirected requests are left in the kit.
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
        let mut run = Run { row: 0, replies: Replies::default() };
        let mut replies = 0;
        while !input.is_empty() {
            let (used, event) = self.parser.next(input)?;
            input = &input[used..];
            self.partial_bytes += used as u64;
            let Some(event) = event else { continue };
            let Some(flight) = self.in_flight.front().copied() else {
                return Err(Lost::Unasked);
            };
            let mut redirect = None;
            let end = match event {
                Event::Bulk { size, offset, bytes, end } => {
                    let piece = Piece { size, offset, bytes, end };
                    count_value(kit, &mut self.candidates, flight, piece);
                    end
                }
                Event::Null => {
                    count_miss(kit, flight);
                    true
                }
                Event::Error(text) => {
                    redirect = count_error(kit, flight, text, &self.address);
                    true
                }
                Event::Status => true,
            };
            if !end || !self.parser.is_between_replies() {
                continue;
            }
            self.in_flight.pop_front();
            replies += 1;
            let bytes = std::mem::take(&mut self.partial_bytes);
            if let Some(redirect) = redirect {
                kit.redirected.push((redirect, flight));
            } else if flight.command != ASKING {
                run.count(kit, flight, bytes, now_ns);
            }
        }
        if replies > 0 {
            run.close(kit, now_ns);
            let waited_ns = now_ns.saturating_sub(self.progress_ns);
            kit.stats.stall_ns_max = kit.stats.stall_ns_max.max(waited_ns);
            self.progress_ns = now_ns;
        }
        Ok(())
    }
}

/// Whether the flight is a request that reads values.
#[inline]
fn reads(plan: &Plan, flight: Flight) -> Option<usize> {
    let command = plan.commands.get(usize::from(flight.command))?;
    (command.role == Role::Read).then_some(command.row)
}

#[inline]
fn count_value(kit: &mut Kit<'_>, candidates: &mut u64, flight: Flight, piece: Piece<'_>) {
    let Some(row) = reads(kit.plan, flight) else { return };
    kit.stats.value_bytes_read += piece.bytes.len() as u64;
    if kit.plan.checking != Checking::Nothing {
        check(kit, candidates, flight, piece);
    }
    if piece.end {
        kit.stats.rows[row].hits += 1;
    }
}

fn count_miss(kit: &mut Kit<'_>, flight: Flight) {
    if let Some(row) = reads(kit.plan, flight) {
        kit.stats.rows[row].misses += 1;
    }
}

/// Counts an error reply, unless it is a redirection to obey.
#[cold]
fn count_error(
    kit: &mut Kit<'_>,
    flight: Flight,
    text: &[u8],
    address: &Address,
) -> Option<Redirect> {
    let redirect = kit.map.as_ref().and_then(|_| Redirect::parse(text, address));
    let command = kit.plan.commands.get(usize::from(flight.command));
    if let (Some(redirect), Some(command)) = (redirect, command)
        && flight.redirects < REDIRECTS_MAX
    {
        let row = &mut kit.stats.rows[command.row];
        *(if redirect.once { &mut row.asked } else { &mut row.moved }) += 1;
        return Some(redirect);
    }
    kit.stats.errors += 1;
    kit.stats.note_error(&String::from_utf8_lossy(text));
    None
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
    fn count(&mut self, kit: &mut Kit<'_>, flight: Flight, bytes: u64, now_ns: u64) {
        let row = kit.plan.commands[usize::from(flight.command)].row;
        let latency_ns = now_ns.saturating_sub(flight.sent_ns.map_or(now_ns, NonZeroU64::get));
        if self.row != row || self.replies.latency_ns != latency_ns {
            self.close(kit, now_ns);
        }
        self.row = row;
        self.replies.latency_ns = latency_ns;
        self.replies.count += 1;
        self.replies.received_bytes += bytes;
    }

    fn close(&mut self, kit: &mut Kit<'_>, now_ns: u64) {
        if self.replies.count > 0 {
            kit.stats.rows[self.row].received(self.replies, now_ns - kit.begin_ns);
            self.replies = Replies::default();
        }
    }
}
