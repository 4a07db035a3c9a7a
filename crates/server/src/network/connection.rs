//! A connection: bytes in, batches of requests run, bytes out.
//!
//! Everything that has arrived is parsed and run, and the replies leave in one write, once the other
//! clients that are ready have run theirs. While a client does not take its replies its requests are
//! still read and run, as with Redis (clients that send a whole pipeline before they read depend on
//! it); what it leaves unread counts in the memory budget and is bounded by the output limits.

mod backlog;
mod buffers;
mod durable;
mod wait;
mod wait_for_keys;

use std::future::{Future, poll_fn};
use std::io;
use std::num::NonZeroU64;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, ready};

use resp::{Limits, Reply};
use tier::FetchedSet;

use self::backlog::Backlog;
use self::durable::Gate;
use self::wait::Wait;
use crate::execution::batch::Batch;
use crate::execution::dispatch::{Attempt, Pipeline};
use crate::execution::outcome::Outcome;
use crate::execution::watched_read::WatchedRead;
use crate::limits::{
    ARGS_MAX, BRAKED_READ_BYTES, INLINE_BYTES_MAX, INPUT_STEP_BYTES_MAX, OUTPUT_BUFFER_BYTES,
    PROGRESS_BYTES, PUSHED_BYTES_MAX, READ_BUFFER_BYTES, STRANGER_BYTES_MAX, TURN_REQUESTS_MAX,
    WRITE_BYTES_MAX, WRITE_EARLY_BYTES,
};
use crate::network::stream::Transport;
use crate::session::{Closing, Session};
use crate::state::client_memory::{CountedBuffers, limit_bytes};
use crate::state::clients::Client;
use crate::state::output_limit::close_if_over;
use crate::state::turn::Ticket;
use crate::state::worker::Worker;

/// A client's connection over a transport. Its task owns it.
pub(crate) struct Connection<T> {
    worker: Rc<Worker>,
    transport: T,
    session: Session,
    input: Vec<u8>,
    batch: Batch,
    reply: Reply,
    /// Bytes of `reply` that the socket has taken.
    written: usize,
    /// What is to be written in front of `reply`.
    backlog: Backlog,
    /// How much of both may be written.
    gate: Gate,
    /// Whether others have their turn in the midst of writing it.
    writes_on: bool,
    /// What it has taken of its worker's turns since all had run that it had sent, as far as was known.
    taken: u64,
    /// Whether it was heavy in what it had sent before.
    was_heavy: bool,
    /// Whether the socket was empty when it was last read.
    drained: bool,
    /// Since when it waits for its turn.
    ticket: Ticket,
    /// Whether it has a turn of its own, which what it takes does not spend.
    goes_alone: bool,
    /// What was used of the turn, and the length of the reply, when its requests were last begun to run.
    run_began: (u64, usize),
    /// Values fetched for the batch under way.
    fetched: FetchedSet,
    /// Of the request under way, that its reply, which ends `reply`, was read in windows.
    watched_read: Option<Box<WatchedRead>>,
    /// Memory that was reserved for the reply of the request under way.
    reply_granted: usize,
    /// Of that, what the request under way takes for copies which it holds while it runs.
    copies_bytes: u64,
    /// The capacity of the buffer of the replies that the request under way has had made resident.
    resident_reply: usize,
    /// A buffer for the large value that the request under way makes, with its pages.
    spare: Vec<u8>,
    /// Whether nothing more was read of an unfinished request, since clients take too much: it waits.
    is_braked: bool,
    /// Whether the input is in a buffer that a large request was let have, and that no read has found empty since.
    has_grown_input: bool,
    /// Bytes of an unfinished request that were there when it was last left.
    kept_bytes: usize,
    /// Buffers that it has, as the worker was told.
    buffers_noted: u8,
    /// Bytes of something large that have passed since its client was last noted to get on.
    moved_bytes: usize,
    /// Whether its batch has waited for reads from flash.
    is_late: bool,
    /// The measurement of memory at which it was last looked whether the client has gone.
    looked_at: u32,
    /// How often the request under way had to be run again, see [`Connection::count_attempt`].
    attempts: u32,
    /// Whether the request under way was run in windows, and something has changed meanwhile.
    has_read_in_vain: bool,
    /// The most values that a run of it has named.
    named_max: usize,
    /// Whether the request under way, having waited for memory, may run.
    memory_granted: Option<bool>,
    /// What the request under way needed, when there was no memory for it.
    refused_bytes: Option<NonZeroU64>,
    counted: CountedBuffers,
}

/// What the connection waits for.
enum Next {
    /// The socket.
    Io,
    /// The other clients that are ready, so that the keys of all are prefetched together.
    Turn,
    /// What the request under way needs; the client can be killed meanwhile.
    Wait(Wait),
}

/// What a batch found to do.
enum Start {
    /// Nothing whole has arrived.
    Nothing,
    /// To run at once.
    Run,
    /// To run when the other clients that are ready have read theirs.
    Turn,
}

impl<T: Transport> Connection<T> {
    /// A connection of a client that is registered already.
    pub(crate) fn new(worker: Rc<Worker>, transport: T, client: Arc<Client>) -> Connection<T> {
        worker.stats.connections.add(1);
        let session = Session::new(worker.clone(), client);
        Connection {
            worker,
            transport,
            reply: Reply::new(session.protocol),
            session,
            input: Vec::new(),
            batch: Batch::default(),
            written: 0,
            backlog: Backlog::default(),
            gate: Gate::default(),
            writes_on: false,
            taken: 0,
            was_heavy: false,
            drained: false,
            ticket: Ticket::default(),
            goes_alone: false,
            run_began: (0, 0),
            fetched: FetchedSet::default(),
            watched_read: None,
            reply_granted: 0,
            copies_bytes: 0,
            resident_reply: 0,
            spare: Vec::new(),
            is_braked: false,
            has_grown_input: false,
            kept_bytes: 0,
            buffers_noted: 0,
            moved_bytes: 0,
            attempts: 0,
            is_late: false,
            looked_at: 0,
            has_read_in_vain: false,
            named_max: 0,
            memory_granted: None,
            refused_bytes: None,
            counted: CountedBuffers::default(),
        }
    }

    /// Serves the client until it goes.
    #[expect(clippy::manual_async_fn, reason = "that would have room for its argument twice")]
    pub(crate) fn serve(mut self) -> impl Future<Output = ()> {
        async move {
            self.run().await;
            self.end();
        }
    }

    /// The connection ends.
    fn end(mut self) {
        let (worker, client) = (self.worker.clone(), self.session.client.clone());
        worker.give_buffer(std::mem::take(&mut self.input));
        worker.give_buffer(self.reply.take());
        self.note_buffers();
        self.counted.end(&worker.server, &client);
        drop(self.session);
        worker.server.clients.remove(client.id);
    }

    /// Reads, runs and answers requests until the client goes.
    async fn run(&mut self) {
        let client = self.session.client.clone();
        poll_fn(|cx| {
            client.set_waker(cx.waker());
            Poll::Ready(())
        })
        .await;
        let mut keeps_turn = false;
        while self.session.closing != Closing::Now {
            if !std::mem::take(&mut keeps_turn) && self.end_turn(&client).await.is_none() {
                break;
            }
            let answered = self.reply.len();
            match self.run_turn() {
                Next::Io => {
                    let is_large = self.reply.capacity() > READ_BUFFER_BYTES;
                    // One that has waited for the drive while few do is behind the others as it is.
                    let is_late = self.is_late && self.worker.tier.has_few_readers();
                    let may_wait = !is_large && !is_late && self.worker.has_buffers();
                    if self.reply.len() > answered && may_wait {
                        // The replies of all that are ready go out one after another: the first
                        // wakes the client's side, the others find it awake. A large one does not
                        // wait: what the client takes at once does not count as its memory.
                        tier::yield_once().await;
                    }
                    let mut is_woken = false;
                    let io = poll_fn(|cx| {
                        self.poll_io_in_turn(cx, std::mem::replace(&mut is_woken, true))
                    });
                    if io.await.is_err() {
                        break;
                    }
                    if !self.batch.is_done() {
                        // What is left of it runs now, not when it began.
                        self.renew_clock();
                    }
                }
                Next::Turn => {
                    tier::yield_once().await;
                    self.worker.prefetch.run(&self.worker.tier);
                    self.renew_clock();
                    // What it was given the turn for is still to run.
                    keeps_turn = self.goes_alone;
                }
                Next::Wait(wait) => {
                    if unless_killed(&client, pin!(self.wait(wait))).await.is_none() {
                        break;
                    }
                }
            }
            if client.is_killed() {
                break;
            }
        }
    }

    /// Waits for its turn if that is over. None when the client is killed first.
    async fn end_turn(&mut self, client: &Client) -> Option<()> {
        self.goes_alone = false;
        let is_heavy = self.was_heavy || self.worker.turn.is_heavy(self.taken);
        if self.worker.turn.is_over(is_heavy, &self.ticket) {
            // Before its memory is counted: it does not stand still.
            client.is_served.store(true, Ordering::Relaxed);
            self.note_large_reply();
            self.shrink_scarce_buffers();
            let (turn, ticket) = (&self.worker.turn, &mut self.ticket);
            let goes_alone = unless_killed(client, pin!(turn.end(is_heavy, ticket))).await;
            self.goes_alone = goes_alone?;
            client.is_served.store(false, Ordering::Relaxed);
            self.note_waited();
            // Its batch may be under way: what is left of it runs now, not when it began.
            self.renew_clock();
        }
        Some(())
    }

    /// Runs requests, and counts what that takes of the turn.
    fn run_turn(&mut self) -> Next {
        self.worker.tier.notice_reads();
        let (used, answered) = (self.worker.turn.used(), self.reply.len());
        self.run_began = (used, answered);
        let journaled = self.worker.journaled();
        let next = self.run_requests();
        self.gate.has_written |= self.worker.journaled() != journaled;
        self.note_buffers();
        self.taken += self.worker.turn.used() - used;
        if self.goes_alone {
            self.worker.turn.take_back(used);
        }
        self.take(self.reply.len().saturating_sub(answered));
        next
    }

    /// Counts bytes of the turn.
    fn take(&mut self, bytes: usize) {
        self.taken += bytes as u64;
        if !self.goes_alone {
            self.worker.turn.add(bytes);
        }
    }

    /// Counts a read that has brought so many bytes.
    fn take_read(&mut self, bytes: usize) {
        self.worker.stats.net_input_bytes.add(bytes as u64);
        self.worker.stats.reads.add(1);
        self.take(bytes);
        if !self.goes_alone && self.worker.lacks_waiting_buffers() {
            // Else one turn would lend a buffer to each of thousands of clients. Where there are few it would end
            // turns for nothing.
            self.worker.turn.add(self.worker.server.slices.read_cost_bytes);
        }
    }

    /// Takes the time for the requests to run next.
    fn renew_clock(&mut self) {
        self.session.now_ms = self.worker.server.tier.clock().unix_ms();
        self.session.client.last_seen_ms.store(self.session.now_ms, Ordering::Relaxed);
    }

    /// Runs requests until something must be awaited.
    fn run_requests(&mut self) -> Next {
        if std::mem::take(&mut self.writes_on) {
            return Next::Io;
        }
        // Between requests: one that is under way has values in hand that would be let go.
        let is_between = self.attempts == 0 && !self.counted.is_granted();
        let is_braked = std::mem::take(&mut self.is_braked);
        if is_between && self.counted.must_wait(&self.worker.server, is_braked) {
            return Next::Wait(Wait::Crowd);
        }
        if is_between && self.must_add_output() {
            return Next::Wait(Wait::Output);
        }
        // Where a reply is large, to write it gives the memory back.
        let only_reads = self.batch.is_done() && self.unwritten() == 0;
        if only_reads && self.counted.must_wait_for_buffer(&self.worker.tier, self.input.capacity())
        {
            return Next::Wait(Wait::Buffers);
        }
        loop {
            if self.batch.is_done() {
                match self.start_batch() {
                    Start::Nothing => return self.next_read(),
                    Start::Turn => return Next::Turn,
                    Start::Run => {}
                }
            }
            // Not before: the clients that wait for their turn would each hold one.
            if self.reply.capacity() == 0 {
                self.reply.give(self.worker.take_buffer());
            }
            while let Some(request) = self.batch.current() {
                if self.session.client.is_killed() {
                    // By another client, who is told so, or since all take too much: nothing runs after
                    // that but what is under way. The loop of `serve` ends.
                    self.worker.after_batch();
                    self.release_fetched();
                    return Next::Io;
                }
                self.take_own_pushes();
                match self.pipeline().dispatch(&request) {
                    Outcome::Done | Outcome::NotRun => {
                        if self.reply.has_gaps() {
                            self.worker.after_batch();
                            return Next::Wait(Wait::Reply);
                        }
                        self.end_request();
                        if self.worker.has_to_demote() {
                            self.worker.after_batch();
                            return Next::Wait(Wait::Demotion);
                        }
                    }
                    Outcome::Gather(lacked) => {
                        self.count_attempt(lacked.wants.len());
                        self.worker.after_batch();
                        return Next::Wait(Wait::Gather(lacked));
                    }
                    Outcome::Fetch(needed) => {
                        self.count_attempt(needed.named);
                        self.worker.after_batch();
                        return Next::Wait(Wait::Fetch(needed));
                    }
                    Outcome::InWindows => {
                        self.count_attempt(0);
                        self.worker.after_batch();
                        return Next::Wait(Wait::Windows);
                    }
                    Outcome::Memory => {
                        self.worker.after_batch();
                        return Next::Wait(Wait::Memory);
                    }
                    Outcome::Paused => {
                        self.worker.after_batch();
                        return Next::Wait(Wait::Pause);
                    }
                    Outcome::Saving(name) => {
                        self.worker.after_batch();
                        return Next::Wait(Wait::Saving(name));
                    }
                    Outcome::Waits => {
                        self.worker.after_batch();
                        return Next::Wait(Wait::Keys);
                    }
                    Outcome::Errand => {
                        self.worker.after_batch();
                        return Next::Wait(Wait::Errand);
                    }
                }
                if !self.batch.is_done() && self.must_pause() {
                    self.worker.after_batch();
                    return Next::Io;
                }
            }
            if self.finish_batch() {
                return Next::Io;
            }
        }
    }

    /// Whether in the midst of a batch something is to be written, or others are to have their turn: a
    /// few requests may take long.
    fn must_pause(&self) -> bool {
        let (used, answered) = self.run_began;
        let taken =
            self.worker.turn.used() - used + self.reply.len().saturating_sub(answered) as u64;
        self.unwritten() > WRITE_EARLY_BYTES || self.worker.turn.ends_batch(taken)
    }

    /// Counts a run of the request under way that came to nothing, unless it named more values than any before:
    /// one that reads many collections on flash finds what it needs by and by.
    fn count_attempt(&mut self, named: usize) {
        if self.attempts == 0 || named <= self.named_max {
            self.attempts += 1;
        }
        self.named_max = self.named_max.max(named);
    }

    /// Goes on to the next request.
    fn end_request(&mut self) {
        if self.fetched.longest() > self.worker.server.tier.large_value_bytes {
            self.pipeline().promote_large();
        }
        self.batch.advance();
        self.ticket.spend();
        self.session.end_asking();
        if self.session.transaction.is_uncounted() {
            // While what it was let have for that is still reserved.
            self.note_memory();
        }
        if self.attempts > 0 || self.counted.is_granted() {
            // The reply counts as a buffer from here on; values fetched ahead stay.
            self.note_large_reply();
            let bytes = self.fetched.memory_bytes();
            self.counted.keep_reserved(&self.worker.server, &self.session.client, bytes);
        }
        self.attempts = 0;
        self.named_max = 0;
        self.has_read_in_vain = false;
        self.memory_granted = None;
        self.refused_bytes = None;
        self.reply_granted = 0;
        self.copies_bytes = 0;
        self.resident_reply = 0;
        if self.spare.capacity() > 0 {
            self.spare = Vec::new();
        }
        if self.session.closing != Closing::No {
            self.batch.drop_rest();
        }
    }

    /// What to wait for when no whole request has arrived: a large one asks for its buffer first.
    fn next_read(&self) -> Next {
        let (len, capacity) = (self.input.len(), self.input.capacity());
        let is_idle = len == 0 || self.session.closing != Closing::No;
        if is_idle || !self.session.authenticated || self.unwritten() > 0 {
            return Next::Io;
        }
        let least = match self.batch.bytes_wanted() {
            // Arguments of which none is large.
            0 if len == capacity && len >= READ_BUFFER_BYTES => len + READ_BUFFER_BYTES,
            0 => return Next::Io,
            wanted => len + wanted,
        };
        let bytes_max = self.request_bytes_max();
        if least <= capacity.max(READ_BUFFER_BYTES) || limit_bytes(&self.worker.server).is_none() {
            return Next::Io;
        }
        let step = READ_BUFFER_BYTES.max(len.min(INPUT_STEP_BYTES_MAX));
        Next::Wait(Wait::Input((least + step).min(bytes_max).max(least)))
    }

    fn start_batch(&mut self) -> Start {
        if self.session.closing != Closing::No || self.input.is_empty() {
            return Start::Nothing;
        }
        let limits = self.limits();
        if self.parse(&limits) {
            if self.prefetch() {
                return Start::Turn;
            }
            self.renew_clock();
            return Start::Run;
        }
        self.renew_clock();
        self.drop_input();
        if let Some(error) = self.batch.error.take() {
            self.reply.protocol_error(&error);
            self.worker.stats.count_error(b"ERR");
            self.session.closing = Closing::AfterReplies;
        }
        Start::Nothing
    }

    /// Parses what has arrived, in room that the worker lends.
    fn parse(&mut self, limits: &Limits) -> bool {
        if !self.batch.has_lists() {
            self.batch.give_lists(self.worker.take_batch_lists());
        }
        let has_begun = self.batch.parse(&mut self.input, limits, self.worker.server.registry);
        self.is_late &= !has_begun;
        has_begun
    }

    fn limits(&self) -> Limits {
        Limits {
            bulk_bytes_max: self.worker.server.config.proto_max_bulk_len.load() as usize,
            inline_bytes_max: INLINE_BYTES_MAX,
            args_max: ARGS_MAX,
            request_bytes_max: self.request_bytes_max(),
            authenticated: self.session.authenticated,
        }
    }

    /// What its next request may take, less what its transaction has queued.
    fn request_bytes_max(&self) -> usize {
        // Without a limit for clients, `client-query-buffer-limit` bounds what arrives.
        let Some(limit) = limit_bytes(&self.worker.server) else { return usize::MAX };
        let queued = self.session.transaction.bytes() as u64;
        limit.saturating_sub(queued).max(READ_BUFFER_BYTES as u64) as usize
    }

    /// Has the worker prefetch what the batch will look up. True: it pays to let the other
    /// clients that are ready add theirs first.
    fn prefetch(&self) -> bool {
        let (worker, requests) = (&self.worker, self.batch.rest());
        let keyspace = &worker.server.tier.keyspace;
        let table = keyspace.table_of(self.session.db);
        for request in requests {
            let args = self.batch.args(request, &self.input);
            if let Some(key) = request.key(args) {
                let element = || request.entry?.element?.element(args);
                worker.prefetch.add(keyspace, table, &key, element);
            }
        }
        if requests.len() < TURN_REQUESTS_MAX && worker.prefetch.has_room() {
            return true;
        }
        worker.prefetch.run(&worker.tier);
        false
    }

    /// Ends a batch. True: there is something to write before more is run.
    fn finish_batch(&mut self) -> bool {
        self.worker.after_batch();
        self.worker.tier.end_batch(self.is_late);
        let client = &self.session.client;
        client.progressed_ms.store(self.session.now_ms, Ordering::Relaxed);
        self.release_fetched();
        self.drop_input();
        self.session.closing != Closing::No || self.unwritten() > WRITE_EARLY_BYTES
    }

    fn release_fetched(&mut self) {
        self.let_values_go();
        self.counted.release(&self.worker.server, &self.session.client);
    }

    /// The same as [`Connection::poll_io`]; a turn of its own ends when there is nothing to do. Whoever was
    /// woken to write more of a large reply waits for its turn if that is spent.
    fn poll_io_in_turn(&mut self, cx: &mut Context<'_>, is_woken: bool) -> Poll<io::Result<()>> {
        let is_over = is_woken && !self.goes_alone && self.worker.turn.is_spent();
        if is_over && self.unwritten() > READ_BUFFER_BYTES {
            self.writes_on = true;
            return Poll::Ready(Ok(()));
        }
        let result = self.poll_io(cx);
        self.note_buffers();
        self.goes_alone &= result.is_ready();
        result
    }

    /// Writes what there is to write and reads what there is to read. Ready when something was
    /// read, or when everything is written and the batch goes on; an error ends the connection.
    fn poll_io(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.session.client.is_killed() {
            return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
        }
        self.take_pushes();
        let wrote_all = match self.poll_write(cx) {
            Poll::Ready(result) => {
                result?;
                true
            }
            Poll::Pending => false,
        };
        if self.writes_on {
            return Poll::Ready(self.check_output_limit());
        }
        if self.session.closing != Closing::No {
            return match wrote_all {
                true => Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into())),
                false => Poll::Pending,
            };
        }
        self.check_output_limit()?;
        if wrote_all && self.session.client.pushes.bytes() > 0 {
            // The next of them when others have had their turn, and its requests.
            cx.waker().wake_by_ref();
        }
        if self.batch.error.is_some() || self.has_whole_request() {
            return Poll::Ready(Ok(()));
        }
        self.poll_read(cx)
    }

    /// Whether the last batch ended at its limit with more behind it.
    fn has_whole_request(&mut self) -> bool {
        if self.input.is_empty() || !self.batch.is_done() {
            return !self.batch.is_done();
        }
        let limits = self.limits();
        self.renew_clock();
        let found = self.parse(&limits);
        if found {
            self.prefetch();
        } else {
            // The parser goes on where it stopped, behind the empty requests that it took and what it
            // passed over.
            self.drop_input();
        }
        found || self.batch.error.is_some()
    }

    fn poll_write(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let result = self.write_some(cx);
        if result.is_pending() && !self.writes_on {
            // For as long as the client does not read, nothing is held for what follows.
            self.release_fetched();
            self.keep_output();
        }
        result
    }

    /// Removes what is written in front of a few replies that are not. Where more are made for as long as some are
    /// unwritten, since the client reads slowly or they wait for the journal, it would pile up. A buffer that was made
    /// ready for the reply under way stays. Cost: a copy of those replies, of no more bytes than are removed.
    fn drop_written(&mut self) {
        let rest = self.reply.len() - self.written;
        let is_worth_it = self.written >= READ_BUFFER_BYTES.max(rest);
        let may_move = self.resident_reply == 0 && !self.reply.has_gaps();
        if !is_worth_it || rest > 2 * WRITE_EARLY_BYTES || !may_move {
            return;
        }
        let mut buffer = self.reply.take();
        if buffer.capacity() > OUTPUT_BUFFER_BYTES {
            let kept = buffer[self.written..].to_vec();
            self.worker.give_buffer(std::mem::replace(&mut buffer, kept));
        } else {
            buffer.drain(..self.written);
        }
        self.reply.restore(buffer);
        self.written = 0;
        self.note_memory();
    }

    /// Keeps the end of what is written, if that is little, in memory of its size: who listens and does not
    /// read may do so for long.
    fn keep_output(&mut self) {
        let unwritten = self.unwritten();
        let is_idle = self.batch.is_done() && self.reply.capacity() >= READ_BUFFER_BYTES;
        if is_idle && unwritten <= READ_BUFFER_BYTES / 2 && self.backlog.unwritten() == 0 {
            let mut kept = Vec::with_capacity(unwritten);
            let buffer = self.reply.take();
            kept.extend_from_slice(&buffer[self.written..]);
            self.worker.give_buffer(buffer);
            self.reply.restore(kept);
            self.written = 0;
            self.note_memory();
        }
    }

    /// Writes what the client takes. Pending while it takes no more, or has taken its turn's part.
    fn write_some(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let result = self.write_on(cx);
        if result.is_pending() && !self.writes_on {
            self.drop_written();
        }
        result
    }

    /// The same, and keeps all of it until everything is written.
    fn write_on(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        assert!(
            self.watched_read.is_none(),
            "invariant: a reply is written when it is known to hold"
        );
        let mut sent = 0;
        while self.unwritten() > 0 {
            if sent >= WRITE_BYTES_MAX {
                self.writes_on = true;
                self.note_memory();
                return Poll::Pending;
            }
            let durable = match self.poll_durable(cx) {
                Poll::Ready(durable) => durable?,
                Poll::Pending => {
                    self.note_memory();
                    return Poll::Pending;
                }
            };
            let front = self.backlog.front();
            let bytes = front.unwrap_or_else(|| &self.reply.as_slice()[self.written..]);
            let bytes = &bytes[..bytes.len().min(durable).min(WRITE_BYTES_MAX)];
            let count = match self.transport.poll_write(cx, bytes) {
                Poll::Ready(result) => result?,
                Poll::Pending => {
                    self.note_memory();
                    return Poll::Pending;
                }
            };
            if count == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            match front {
                Some(_) => self.backlog.advance(count),
                None => self.written += count,
            }
            self.gate.advance(count);
            sent += count;
            self.take(count);
            if self.output_capacity() > READ_BUFFER_BYTES {
                self.note_moved(count);
            }
            self.worker.stats.net_output_bytes.add(count as u64);
            self.worker.stats.writes.add(1);
        }
        self.written = 0;
        self.gate = Gate::default();
        self.reply.clear();
        if self.reply.capacity() > 0 {
            self.worker.give_buffer(self.reply.take());
        }
        self.note_memory();
        Poll::Ready(Ok(()))
    }

    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.drained && self.input.is_empty() && self.taken > 0 {
            // What had come has run. Who was heavy in it still is when its next request is there
            // at once.
            self.was_heavy = self.worker.turn.is_heavy(self.taken);
            self.taken = 0;
        }
        if self.worker.turn.is_spent() && !self.goes_alone {
            // Others first: the turn is ended before the next requests.
            return Poll::Ready(Ok(()));
        }
        if self.counted.must_brake(&self.worker.server) {
            if !self.input.is_empty() {
                // A buffer that it was let have a moment ago would be asked for again, which may be why it brakes.
                if !self.has_grown_input {
                    self.keep_input();
                }
                self.is_braked = true;
                return Poll::Ready(Ok(()));
            }
            // What is small is served all the same.
            let small = Vec::with_capacity(BRAKED_READ_BYTES);
            self.worker.give_buffer(std::mem::replace(&mut self.input, small));
        } else {
            self.grow_input();
        }
        let result = self.transport.poll_read(cx, &mut self.input);
        if result.is_pending() {
            self.drained = true;
            self.ticket.spend();
            self.drop_input();
            if !self.input.is_empty() {
                self.keep_input();
            } else if self.unwritten() == 0 {
                self.was_heavy = false;
                self.taken = 0;
            }
        }
        let count = ready!(result)?;
        self.drained = self.input.len() < self.input.capacity();
        if count == 0 {
            return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
        }
        self.take_read(count);
        if self.input.capacity() > READ_BUFFER_BYTES || !self.session.authenticated {
            self.note_moved(count);
            self.note_memory();
        }
        let client = &self.session.client;
        client.input_bytes.store(self.input.len() as u64, Ordering::Relaxed);
        let mut bytes_max = self.worker.server.config.client_query_buffer_limit.load();
        if !self.session.authenticated {
            bytes_max = bytes_max.min(STRANGER_BYTES_MAX);
        }
        if self.input.len() as u64 > bytes_max {
            // Strangers must not be able to fill the log.
            if self.session.authenticated {
                tracing::warn!(
                    client = client.id,
                    "closing a client that exceeds the query buffer limit"
                );
            }
            return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
        }
        Poll::Ready(Ok(()))
    }

    /// Takes messages behind the replies that are not written yet, as long as these are few.
    fn take_pushes(&mut self) {
        let may_take = self.session.closing == Closing::No && self.backlog.unwritten() == 0;
        if may_take && self.session.client.pushes.bytes() > 0 {
            if self.reply.capacity() == 0 {
                self.reply.give(self.worker.take_buffer());
            }
            self.session.take_pushes(&mut self.reply, self.written + PUSHED_BYTES_MAX);
        }
    }

    /// Takes the messages that were on their way before the request to run: what it answers may say that
    /// no more come. One that runs again has had its own.
    fn take_own_pushes(&mut self) {
        if self.session.client.pushes.bytes() > 0 && self.attempts == 0 {
            self.session.take_pushes(&mut self.reply, usize::MAX);
        }
    }

    /// Bytes of replies that the client does not have.
    #[inline]
    fn unwritten(&self) -> usize {
        self.backlog.unwritten() + self.reply.len() - self.written
    }

    /// Bytes that the replies' buffers take.
    fn output_capacity(&self) -> usize {
        self.backlog.capacity() + self.reply.capacity()
    }

    fn check_output_limit(&mut self) -> io::Result<()> {
        let client = &self.session.client;
        let unread = self.unwritten() as u64 + client.pushes.bytes();
        let is_over = match unread {
            0 => {
                client.soft_since_ms.store(0, Ordering::Relaxed);
                false
            }
            _ => close_if_over(&self.worker.server, client, unread),
        };
        match is_over {
            true => Err(io::ErrorKind::ConnectionAborted.into()),
            false => Ok(()),
        }
    }

    /// Notes that a part of something large has passed: the client is not idle.
    #[cold]
    fn note_moved(&mut self, bytes: usize) {
        let now_ms = self.worker.server.tier.clock().unix_ms();
        let client = &self.session.client;
        client.moved_ms.store(now_ms, Ordering::Relaxed);
        self.moved_bytes = self.moved_bytes.saturating_add(bytes);
        if self.moved_bytes >= PROGRESS_BYTES {
            self.moved_bytes = 0;
            client.progressed_ms.store(now_ms, Ordering::Relaxed);
        }
    }

    /// The server kept the client waiting: it is not idle.
    fn note_waited(&mut self) {
        self.note_moved(PROGRESS_BYTES);
    }

    /// Counts replies that are to wait, if they take more than a buffer.
    fn note_large_reply(&mut self) {
        if self.reply.capacity() > READ_BUFFER_BYTES {
            self.note_memory();
        }
    }

    /// Shows the connection's memory to the register.
    fn note_memory(&mut self) {
        self.note_buffers();
        let client = &self.session.client;
        let unread = self.unwritten() as u64;
        client.output_bytes.store(unread, Ordering::Relaxed);
        client.output_capacity.store(self.output_capacity() as u64, Ordering::Relaxed);
        client.input_bytes.store(self.input.len() as u64, Ordering::Relaxed);
        let place_bytes = self.session.place.as_ref().map_or(0, |place| place.memory_bytes);
        let input_bytes = self.input.capacity() + self.batch.memory_bytes() + place_bytes;
        client.input_capacity.store(input_bytes as u64, Ordering::Relaxed);
        // After the register, which it looks at.
        let listens = client.subscription_bytes.load(Ordering::Relaxed) as usize;
        let transaction = &mut self.session.transaction;
        transaction.note_counted();
        let labels = client.label_bytes.load(Ordering::Relaxed) as usize;
        let queued = transaction.bytes() + transaction.watched_bytes() + listens + labels;
        if self.input.capacity() <= 2 * READ_BUFFER_BYTES {
            self.counted.release_input(&self.worker.server, client);
        }
        let bytes = self.output_capacity() + input_bytes + queued;
        self.counted.update(&self.worker.server, bytes, !self.session.authenticated);
    }

    /// What running its requests needs of the connection.
    fn pipeline(&mut self) -> Pipeline<'_> {
        let reply_bytes_free = self.worker.server.reply_bytes_free();
        let attempt = Attempt {
            number: self.attempts,
            reply_bytes_max: self.reply_granted + reply_bytes_free,
            reply_granted: self.reply_granted,
            leaves_gaps: self.reply_granted > reply_bytes_free,
            may_be_cut: !self.has_read_in_vain,
        };
        Pipeline {
            session: &mut self.session,
            batch: &self.batch,
            input: &self.input,
            reply: &mut self.reply,
            fetched: &mut self.fetched,
            spare: &mut self.spare,
            watched_read: &mut self.watched_read,
            attempt,
            memory_granted: self.memory_granted,
            refused_bytes: self.refused_bytes,
        }
    }
}

/// What came of a wait; none when the client is killed first: the wait ends there. It is pinned by the caller, as
/// it would be kept twice here.
async fn unless_killed<T>(
    client: &Client,
    mut wait: Pin<&mut impl Future<Output = T>>,
) -> Option<T> {
    poll_fn(|cx| match client.is_killed() {
        true => Poll::Ready(None),
        false => wait.as_mut().poll(cx).map(Some),
    })
    .await
}

#[cfg(test)]
mod tests;
