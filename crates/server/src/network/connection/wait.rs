//! What a connection waits for in the midst of a request: values from flash, memory for what is made of
//! them, the buffer of a large request; and the large reply that is filled with what was fetched.

use std::future::{Future, poll_fn};
use std::mem::MaybeUninit;
use std::num::NonZeroU64;
use std::pin::pin;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::Duration;

use command::{Flags, Group, SPARE_BYTES_MIN};
use flash::RecordId;
use keyspace::Key;
use tier::{VALUE_OVERHEAD_BYTES, Want};

use super::Connection;
use crate::execution::gather::Gathering;
use crate::execution::need::{TooMuch, args_bytes, value_bytes};
use crate::execution::outcome::{Lacked, Needed};
use crate::execution::read_many::Progress;
use crate::execution::read_windows::{ReadWindows, Walked};
use crate::limits::{
    CLAIM_BYTES_MIN, ELEMENT_BYTES, ELEMENTS_MIN, FETCH_AHEAD_SHIFT, PREFAULT_BYTES,
    READ_BUFFER_BYTES,
};
use crate::network::prefault::prefault;
use crate::network::stream::Transport;
use crate::state::arriving_requests::Arriving;
use crate::state::client_eviction::close_waiting_for_memory;
use crate::state::client_memory::Amount;
use crate::state::registry::Entry;
use crate::state::worker::Worker;

/// How long a request waits for memory before clients are closed whose own are only arriving, and between two such looks.
const WAITING_CLOSED_EVERY: Duration = Duration::from_millis(500);
/// While a client waits it is looked whether it has gone, once in so many measurements of memory: six times a second.
const LEFT_LOOK_MEASURES: u64 = 8;

/// What a request needs before it runs.
pub(crate) enum Wait {
    /// What it needs to be looked for, besides this, and that.
    Gather(Lacked),
    /// Values from flash, or memory for what is made of values.
    Fetch(Needed),
    /// A large collection to be read in windows.
    Windows,
    /// Values that were fetched to be copied into its reply.
    Reply,
    /// Memory for a write.
    Memory,
    /// Memory of other clients, so that its input may grow to so many bytes.
    Input(usize),
    /// Memory for another buffer of replies, as the client leaves a full one unread.
    Output,
    /// Memory for its own large buffers; it goes on without, too, since they count as it is.
    Buffers,
    /// Something in the keys of the request under way.
    Keys,
    /// The end of CLIENT PAUSE, or the journal to take writes.
    Pause,
    /// A snapshot to save what this name holds, which it changes.
    Saving(Box<[u8]>),
    /// The buffers of clients that are on their way out, because all together took too much.
    Crowd,
    /// The values that the last request has worked on to be demoted.
    Demotion,
    /// What the request under way asked for (see [`Errand`]).
    Errand,
}

impl<T: Transport> Connection<T> {
    /// Waits for what the request under way needs. The client may be killed meanwhile: this is dropped
    /// then, and leaves nothing behind.
    #[expect(clippy::manual_async_fn, reason = "that would have room for its argument twice")]
    pub(super) fn wait(&mut self, wait: Wait) -> impl Future<Output = ()> {
        async move {
            // To hold read buffers while waiting could make all wait for ever. What a request that waits for
            // values keeps of those it has is in memory of its own.
            if !matches!(wait, Wait::Gather(_) | Wait::Fetch(_) | Wait::Windows | Wait::Reply) {
                self.release_fetched();
                self.reply_granted = 0;
            }
            // Before its memory is counted: it does not stand still.
            self.session.client.is_served.store(true, Ordering::Relaxed);
            if self.reply_granted == 0 {
                self.note_large_reply();
                self.shrink_scarce_buffers();
            }
            // What is rare is boxed, for else each idle connection would have room for it.
            match wait {
                Wait::Gather(lacked) => Box::pin(self.gather(lacked)).await,
                Wait::Fetch(needed) => _ = self.fetch(needed).await,
                Wait::Windows => Box::pin(self.read_windows()).await,
                Wait::Reply => Box::pin(self.fill_reply()).await,
                Wait::Memory => Box::pin(self.wait_for_memory()).await,
                Wait::Input(bytes) => Box::pin(self.grow_large_input(bytes)).await,
                Wait::Output => Box::pin(self.add_output()).await,
                Wait::Buffers => {
                    let bytes = self.input.capacity() as u64;
                    drop(self.worker.tier.wait_for_memory(bytes, self.counted.held()).await)
                }
                Wait::Errand => {
                    let errand = self.session.errand.take();
                    self.session.errand = Box::pin(errand.run(&self.worker)).await;
                }
                Wait::Keys => Box::pin(self.wait_for_keys()).await,
                Wait::Pause => {
                    self.give_memory_back();
                    self.session.client.is_blocked.store(true, Ordering::Relaxed);
                    let worker = self.worker.clone();
                    self.writing(worker.upkeep_tick.notified()).await;
                    self.session.client.is_blocked.store(false, Ordering::Relaxed);
                }
                Wait::Saving(name) => Box::pin(self.wait_for_snapshot(&name)).await,
                Wait::Demotion => {
                    Box::pin(self.worker.clone().demote_now()).await;
                    if self.batch.is_done() {
                        self.finish_batch();
                    }
                }
                Wait::Crowd => {
                    let worker = self.worker.clone();
                    self.writing(worker.upkeep_tick.notified()).await;
                }
            }
            self.session.client.is_served.store(false, Ordering::Relaxed);
            self.note_buffers();
            self.note_waited();
            // What waited runs at the time at which it runs, not at that of its arrival: an expiry is
            // counted from there, and a pause would not end else.
            self.renew_clock();
        }
    }

    /// Waits until a write may bring its arguments, which are copied into the data set.
    async fn wait_for_memory(&mut self) {
        let bytes = self.copied_bytes() + self.made_of_elements();
        self.counted.reserve_copy(&self.worker.server, &self.session.client, bytes);
        let is_granted = self.claim(bytes).await;
        self.memory_granted = Some(is_granted);
        let longest =
            |request| self.batch.args(&request, &self.input).iter().map(<[u8]>::len).max();
        if is_granted
            && !self.is_of_collections()
            && let Some(longest) = self.batch.current().and_then(longest)
        {
            self.make_spare(longest).await;
        }
    }

    /// Whether the request under way is a command of collections, which make nothing else of an argument than a copy of
    /// it in a leaf.
    fn is_of_collections(&self) -> bool {
        let entry = self.batch.current().and_then(|request| request.entry);
        entry.is_some_and(|entry| entry.spec.docs.group.is_of_collections())
    }

    /// Waits until a snapshot has come to what a name holds, or is over.
    async fn wait_for_snapshot(&mut self, name: &[u8]) {
        self.give_memory_back();
        let (worker, key) = (self.worker.clone(), Key::new(name));
        loop {
            self.writing(worker.upkeep_tick.notified()).await;
            match worker.server.saves.snapshot() {
                // Where very many are waited for it may have been left out.
                Some(snapshot) if !snapshot.has_come_to(&key) => snapshot.want(&key),
                _ => break,
            }
        }
    }

    /// Lets go of the memory that the request was let have, which others may need for it to go on. It asks again
    /// before it runs.
    fn give_memory_back(&mut self) {
        self.memory_granted = None;
        self.spare = Vec::new();
        self.counted.release(&self.worker.server, &self.session.client);
    }

    /// Bytes of arguments, or of those that a transaction has queued, that become part of the data set as the
    /// request under way runs.
    fn copied_bytes(&self) -> u64 {
        let Some(request) = self.batch.current() else { return 0 };
        match self.grows_data() {
            true => {
                let queued_bytes = self.session.transaction.bytes() as u64;
                args_bytes(self.batch.args(&request, &self.input)) + queued_bytes
            }
            false => 0,
        }
    }

    /// Whether the data set may grow by the request under way, or by those that a transaction has queued.
    fn grows_data(&self) -> bool {
        let entry = self.batch.current().and_then(|request| request.entry);
        entry.is_some_and(|entry| entry.spec.flags.has(Flags::DENYOOM))
            || self.session.transaction.has_flag(Flags::DENYOOM)
    }

    /// Bytes that a request which adds elements to a key takes to make a collection of them, beside the copy that
    /// becomes part of the data set: of very many its tables, and the leaf that is divided; of members of a sorted set
    /// copies by which their places are found.
    fn made_of_elements(&self) -> u64 {
        let Some(request) = self.batch.current() else { return 0 };
        let args = self.batch.args(&request, &self.input);
        let spec = request.entry.map(|entry| &entry.spec);
        let Some(spec) = spec.filter(|spec| spec.flags.has(Flags::DENYOOM)) else { return 0 };
        let is_sorted_set = matches!(spec.docs.group, Group::SortedSet | Group::Geo);
        match args.len() >= ELEMENTS_MIN && request.key(args).is_some() {
            true => args_bytes(args) + args.len() as u64 * ELEMENT_BYTES,
            false if is_sorted_set => args_bytes(args),
            false => 0,
        }
    }

    /// Waits until there is memory for what the request under way has reserved. False: there is none.
    async fn claim(&mut self, bytes: u64) -> bool {
        // One of an earlier run would be in its own way.
        self.counted.keep_claim(None);
        let worker = self.worker.clone();
        let start_ticks = worker.server.clock.raw();
        let grows_data = self.grows_data();
        let claim = match grows_data {
            true => worker.tier.claim_for_data(bytes),
            false => worker.tier.claim(bytes),
        };
        self.pipeline().count_turn(start_ticks);
        let claim = match claim {
            None => {
                let held = self.counted.held();
                let wait = async {
                    match grows_data {
                        true => worker.tier.wait_for_data(bytes, held).await,
                        false => worker.tier.wait_for_memory(bytes, held).await,
                    }
                };
                match bytes > CLAIM_BYTES_MIN {
                    true => self.writing(closing_waiting(&worker, bytes, wait)).await.ok(),
                    false => self.writing(wait).await.ok(),
                }
            }
            claim => claim,
        };
        let is_granted = claim.is_some();
        self.counted.keep_claim(claim);
        is_granted
    }

    /// Waits for a turn to reserve memory, in the order of arrival, with none reserved. Until that is
    /// released the request may reserve again. False: others do not let go of theirs.
    async fn wait_to_reserve(&mut self, amount: Amount) -> bool {
        let (worker, client) = (self.worker.clone(), self.session.client.clone());
        let server = &*worker.server;
        self.counted.release(server, &client);
        if self.resident_reply > 0 && self.reply.is_empty() {
            // Its pages are as much in the way of others as what was fetched.
            drop(self.reply.take());
            self.resident_reply = 0;
            self.note_memory();
        }
        loop {
            let mut place = server.client_memory.wait_to_reserve(server, &client, amount);
            while place.is_for(server, amount) {
                if self.counted.reserve_values(server, &client, amount) {
                    return true;
                }
                // Nobody waits for memory of one that waits itself. Counted anew each time, since replies before this one
                // are written meanwhile.
                let _held = server.tier.note_waiting(self.counted.held());
                if !self.writing(place.wait_to_reserve(&worker)).await {
                    return false;
                }
            }
        }
    }

    /// Waits between two requests, or for memory for one, and goes on to write meanwhile, messages included:
    /// clients that each wait with a large reply unwritten would wait for each other.
    pub(super) async fn writing<O>(&mut self, wait: impl Future<Output = O>) -> O {
        let mut wait = pin!(wait);
        let output = poll_fn(|cx| {
            let polled = wait.as_mut().poll(cx);
            if polled.is_pending() {
                self.take_pushes();
                if self.unwritten() > 0 {
                    self.write_meanwhile(cx);
                }
                self.end_if_left(cx);
            }
            polled
        })
        .await;
        self.session.client.is_served.store(true, Ordering::Relaxed);
        output
    }

    /// Ends the connection of a client that has gone, looked for now and then: clients that give up and ask again would
    /// else fill the queue with requests that nobody waits for. Not where it has sent anything but reads, as clients may that
    /// leave at once, nor while replies of it are unwritten, which tell whether it takes them.
    pub(super) fn end_if_left(&mut self, cx: &Context<'_>) {
        let measures = self.worker.server.tier.budget.measures();
        let client = &self.session.client;
        let is_due = (u64::from(measures) + client.id).is_multiple_of(LEFT_LOOK_MEASURES);
        if !is_due || std::mem::replace(&mut self.looked_at, measures) == measures {
            return;
        }
        if self.unwritten() == 0 && self.only_reads() && self.transport.has_hung_up() {
            client.kill();
            cx.waker().wake_by_ref();
        }
    }

    /// Whether all that has arrived are whole requests that only read.
    fn only_reads(&self) -> bool {
        let reads = |entry: &Entry| entry.spec.flags.has(Flags::READONLY);
        let rest = self.batch.rest();
        !rest.is_empty()
            && rest.iter().all(|request| request.entry.is_some_and(reads))
            && self.batch.parsed_bytes == self.input.len()
    }

    pub(super) fn write_meanwhile(&mut self, cx: &mut Context<'_>) {
        let client = self.session.client.clone();
        match self.write_some(cx) {
            // More messages may have come than were taken at once.
            Poll::Ready(Ok(())) if client.pushes.bytes() > 0 => cx.waker().wake_by_ref(),
            Poll::Ready(Ok(())) => {}
            // Whoever waits is told so, and the connection ends.
            Poll::Ready(Err(_)) => client.kill(),
            Poll::Pending if std::mem::take(&mut self.writes_on) => cx.waker().wake_by_ref(),
            Poll::Pending => {}
        }
        // A client that does not read is idle, though a request of it waits.
        let is_behind = self.unwritten() > 0;
        client.is_served.store(!is_behind, Ordering::Relaxed);
    }

    /// Has a buffer ready for a large value that the request under way makes.
    async fn make_spare(&mut self, bytes: usize) {
        if bytes >= SPARE_BYTES_MIN {
            self.spare = Vec::with_capacity(bytes);
            prefault_in_turns(&self.worker, self.spare.spare_capacity_mut()).await;
        }
    }

    /// Makes the buffer of a request that is arriving larger when other clients leave the memory for
    /// it.
    async fn grow_large_input(&mut self, bytes: usize) {
        let client = self.session.client.clone();
        let expected_bytes = self.batch.bytes_expected() as u64;
        let arriving = Arriving { bytes: bytes as u64, expected_bytes };
        if !self.counted.may_grow_input(&self.worker.server, &client, arriving) {
            // Very many may wait, each with a little.
            self.keep_input();
        }
        self.counted.wait_for_input(&self.worker, &client, arriving).await;
        let growth = bytes.saturating_sub(self.input.capacity()) as u64;
        self.input.reserve_exact(bytes - self.input.len());
        self.has_grown_input = true;
        self.note_memory();
        if self.batch.bytes_wanted() >= SPARE_BYTES_MIN {
            // A large argument takes it by and by, and then as much again for its copy in the data set:
            // to demote a large value takes memory, too, for its copy on the way to flash. It goes on
            // without as well, since it counts as it is.
            self.claim(2 * growth).await;
            self.counted.note_sought(self.input.capacity());
        }
    }

    /// Looks for what the request under way needs, and waits for that.
    async fn gather(&mut self, lacked: Lacked) {
        let worker = self.worker.clone();
        let mut gathering = Gathering::new(&worker, self.session.db, lacked);
        let mut alone = None;
        loop {
            let start_ticks = worker.server.clock.raw();
            let mut pipeline = self.pipeline();
            let is_over = pipeline.gather(&mut gathering);
            pipeline.count_turn(start_ticks);
            if is_over {
                break;
            }
            worker.turn.give_way().await;
            if alone.is_none() {
                // What is gathered counts only when it is known whole, so it must not be much of many.
                alone = worker.gathers.acquire().await.ok();
            }
        }
        drop(alone);
        let start_ticks = worker.server.clock.raw();
        let gathered = self.pipeline().gathered(gathering);
        self.pipeline().count_turn(start_ticks);
        match gathered {
            Ok(needed) => {
                let in_windows = needed.watch_bytes > 0;
                if self.fetch(needed).await && in_windows {
                    self.read_many().await;
                }
            }
            Err(TooMuch(bytes)) => self.refused_bytes = Some(bytes),
        }
    }

    /// Reads what was gathered in windows. When that fails, the request is run on all keys at once.
    async fn read_many(&mut self) {
        let worker = self.worker.clone();
        let slices = worker.server.slices;
        let alone = worker.gathers.acquire().await;
        let Some(mut read) = self.pipeline().begin_read_many() else { return };
        let progress = loop {
            worker.turn.give_way().await;
            let answered = self.reply.len();
            let progress = self.pipeline().read_window(&mut read);
            self.take(self.reply.len() - answered);
            if progress != Progress::More {
                break progress;
            }
        };
        // Whether it has succeeded is known, so nothing needs to be watched.
        while read.watched.unwatch(slices.gathered_keys_max) {
            worker.turn.give_way().await;
        }
        if progress == Progress::Failed {
            self.reply.truncate(read.watched.reply_from());
            while self.pipeline().take_back_uses(&mut read) {
                worker.turn.give_way().await;
            }
        } else {
            self.watched_read = Some(Box::new(read.watched));
        }
        drop(alone);
    }

    /// Reads a large collection in windows. When that fails, the request is run on all of it at once.
    async fn read_windows(&mut self) {
        let worker = self.worker.clone();
        let mut read = self.pipeline().begin_read_windows();
        let walked = loop {
            self.let_values_go();
            worker.turn.give_way().await;
            let mut walked = self.walk_window(&mut read);
            while let Walked::Lacks(wants) = walked {
                self.let_values_go();
                let more = worker.tier.fetch(wants).await;
                self.is_late |= more.has_waited();
                self.fetched.extend(more);
                walked = self.walk_window(&mut read);
            }
            if !matches!(walked, Walked::More) {
                break walked;
            }
        };
        self.let_values_go();
        if let Walked::Done = walked {
            read.watched.unwatch(1);
            self.watched_read = Some(Box::new(read.watched));
        } else {
            self.has_read_in_vain = true;
            self.reply.truncate(read.watched.reply_from());
            self.pipeline().take_back_walk(&read);
        }
    }

    fn walk_window(&mut self, read: &mut ReadWindows) -> Walked {
        let answered = self.reply.len();
        let walked = self.pipeline().walk_window(read);
        self.take(self.reply.len() - answered);
        walked
    }

    /// Lets go of what was fetched, and keeps the memory that was granted for the reply.
    pub(super) fn let_values_go(&mut self) {
        if !self.fetched.is_empty() {
            self.fetched.clear();
            self.worker.tier.buffers_released();
        }
    }

    /// Looks for what was fetched in the order in which it will be asked for, with nothing locked.
    async fn order_fetched(&mut self, order: &[RecordId]) {
        let keys_max = self.worker.server.slices.gathered_keys_max;
        for (index, records) in order.chunks(keys_max).enumerate() {
            if index > 0 {
                self.worker.turn.give_way().await;
            }
            let start_ticks = self.worker.server.clock.raw();
            self.fetched.push_order(records);
            self.pipeline().count_turn(start_ticks);
        }
    }

    /// Copies what was fetched into the reply that was left without, and ends the request.
    async fn fill_reply(&mut self) {
        let bytes_max = self.worker.server.slices.filled_bytes_max;
        while self.reply.has_gaps() {
            self.worker.turn.give_way().await;
            let value = |position| self.fetched.value_at(position);
            self.reply.fill(bytes_max, |position| {
                value(position).expect("invariant: the reply has a gap for it")
            });
            self.worker.turn.add(bytes_max);
        }
        // From here on the reply counts as a buffer.
        self.note_memory();
        self.end_request();
        self.worker.clone().demote_now().await;
        if self.batch.is_done() {
            self.finish_batch();
        }
        self.writes_on = true;
    }

    /// Fetches values once there is memory for them and for what is made of them: a reply, or a
    /// part of the data set. False: there was none yet, so that it asks again, or is refused.
    #[expect(clippy::manual_async_fn, reason = "that would have room for its argument twice")]
    pub(super) fn fetch(&mut self, mut needed: Needed) -> impl Future<Output = bool> {
        async move {
            let wanted = needed.wants.iter().map(value_bytes).sum::<u64>();
            let values = wanted + self.fetched.memory_bytes();
            // What a run has asked for its copies the next needs as well, whatever it lacks besides.
            if needed.is_for_copies {
                self.copies_bytes = self.copies_bytes.max(needed.reply_bytes);
            }
            needed.reply_bytes = needed.reply_bytes.max(self.copies_bytes);
            let made_bytes = needed.reply_bytes + needed.copy_bytes;
            self.worker.tier.buffers_released();
            // Until the memory is there: what has waited in vain runs again, and asks again.
            self.reply_granted = 0;
            let reply_bytes_free = self.worker.server.reply_bytes_free();
            let beside = made_bytes + needed.watch_bytes;
            if values > READ_BUFFER_BYTES as u64 || beside > reply_bytes_free as u64 {
                return Box::pin(self.fetch_large(needed, values)).await;
            }
            self.reply_granted = made_bytes as usize;
            // In the read buffers, which count already, and then in the buffer of the replies. What was granted
            // stays: a request that needs little first, such as a leaf of an index, and then much
            // again would be the last of the queue again, and where all do so none would ever run.
            // And so does what it was let have for its arguments.
            if !self.counted.is_granted() && self.memory_granted != Some(true) {
                self.counted.release(&self.worker.server, &self.session.client);
            }
            let fetched = self.worker.tier.fetch_for_client(needed.wants).await;
            self.is_late |= fetched.has_waited();
            self.fetched.extend(fetched);
            self.fetched.push_order(&needed.order);
            true
        }
    }

    /// The same of values that take `values` bytes, or of a large reply.
    async fn fetch_large(&mut self, needed: Needed, values: u64) -> bool {
        let Needed { wants, order, reply_bytes, copy_bytes, watch_bytes, .. } = needed;
        let made_bytes = reply_bytes + copy_bytes;
        let args_bytes = self.copied_bytes() + self.made_of_elements();
        let bytes = values + made_bytes + watch_bytes + args_bytes;
        // What the limit of clients is about: their bytes alone.
        let overhead = (wants.len() + self.fetched.len()) as u64 * VALUE_OVERHEAD_BYTES as u64;
        let of_client = made_bytes.max(values.saturating_sub(overhead));
        // Copies may be as large a reply in the end.
        let amount = Amount { of_client, stays: reply_bytes, in_all: bytes };
        if !self.counted.reserve_values(&self.worker.server, &self.session.client, amount) {
            // Two that wait for more would wait for each other for ever if they held some.
            self.release_fetched();
            drop((wants, order));
            if self.wait_to_reserve(amount).await {
                // The request runs again, and asks for all of it.
                self.attempts -= 1;
                self.named_max = 0;
            } else {
                self.refused_bytes = Some(NonZeroU64::MAX);
            }
            return false;
        }
        // Copies take the memory when they are made: a buffer of that size would take as much beside them.
        let reply_bytes = if self.copies_bytes > 0 { 0 } else { reply_bytes };
        if !self.claim_reserved(bytes, reply_bytes).await {
            self.counted.release(&self.worker.server, &self.session.client);
            self.refused_bytes = Some(NonZeroU64::MAX);
            return false;
        }
        self.reply_granted = made_bytes as usize;
        let longest = wants.iter().map(|want| u64::from(want.value_len)).max().unwrap_or(0);
        self.fetch_reserved(wants, &order).await;
        let copy_bytes = match self.is_of_collections() {
            // Leaves are copied one by one; among what is fetched are values for the requests behind it.
            true => longest.min(copy_bytes),
            false if copy_bytes == 0 => 0,
            // With what arguments may add to it.
            false => copy_bytes + self.copied_bytes(),
        };
        self.make_buffers(reply_bytes, copy_bytes).await;
        true
    }

    /// Waits until there is memory for what a large request has reserved. False: there is none.
    async fn claim_reserved(&mut self, bytes: u64, reply_bytes: u64) -> bool {
        let max_memory = self.worker.server.config.maxmemory.load();
        let is_small = bytes <= max_memory >> FETCH_AHEAD_SHIFT;
        let claimed = self.claimed_bytes(bytes, reply_bytes);
        self.worker.clone().turn.give_way().await;
        // What was claimed by a run before is resident, but for what is asked for again.
        self.counted.keep_claim(None);
        if claimed <= CLAIM_BYTES_MIN {
            return true;
        }
        if self.reply.capacity() != self.resident_reply {
            // What a run has written in vain is not resident while many wait.
            self.reply.shrink_to(READ_BUFFER_BYTES);
        }
        let mut is_granted = self.claim(claimed).await;
        let claimed_now = self.claimed_bytes(bytes, reply_bytes);
        if is_granted && claimed_now > claimed {
            // Meanwhile the reply before it was written, and its buffer let go.
            is_granted = self.claim(claimed_now).await;
        }
        if is_granted {
            // Its arguments are among that. If it came to wait for these as well, that claim would take the place
            // of this one, and the run would make its copies with none.
            self.memory_granted = self.memory_granted.or(Some(true));
        }
        is_granted || is_small
    }

    /// Fetches values for which there is memory.
    async fn fetch_reserved(&mut self, wants: Vec<Want>, order: &[RecordId]) {
        if wants.is_empty() {
            return;
        }
        let worker = self.worker.clone();
        worker.turn.give_way().await;
        let more = worker.tier.fetch(wants).await;
        self.is_late |= more.has_waited();
        worker.turn.give_way().await;
        let start_ticks = worker.server.clock.raw();
        self.fetched.extend(more);
        self.pipeline().count_turn(start_ticks);
        self.order_fetched(order).await;
    }

    /// Has the buffers of a large reply, and of a large value that a write makes, ready before it runs.
    async fn make_buffers(&mut self, reply_bytes: u64, copy_bytes: u64) {
        if reply_bytes > CLAIM_BYTES_MIN {
            self.reply.reserve(reply_bytes as usize);
            prefault_in_turns(&self.worker, self.reply.spare()).await;
            self.resident_reply = self.reply.capacity();
        }
        let entry = self.batch.current().and_then(|request| request.entry);
        if entry.is_some_and(|entry| entry.spec.flags.has(Flags::WRITE)) {
            self.make_spare(copy_bytes as usize).await;
        }
    }

    /// Of the bytes that the request under way needs, those that will be resident besides what is: not the
    /// values and the buffer of the reply that it holds from a run before. What was replied before
    /// and is not written yet moves to where the reply fits behind it.
    fn claimed_bytes(&self, bytes: u64, reply_bytes: u64) -> u64 {
        let others = bytes - self.fetched.memory_bytes() - reply_bytes;
        let capacity = self.reply.capacity();
        let spare = (capacity - self.reply.len()) as u64;
        let has_buffer = capacity == self.resident_reply && spare >= reply_bytes;
        others + if has_buffer { 0 } else { reply_bytes + self.reply.len() as u64 }
    }
}

/// Waits for memory of so many bytes, which are many. Where that takes long, clients whose requests have not arrived yet
/// are in the way.
async fn closing_waiting<O>(worker: &Worker, bytes: u64, wait: impl Future<Output = O>) -> O {
    let clock = worker.server.tier.clock();
    let mut since = clock.now();
    let look = || {
        let now = clock.now();
        if now >= since + WAITING_CLOSED_EVERY {
            since = now;
            close_waiting_for_memory(&worker.server, bytes, WAITING_CLOSED_EVERY);
        }
        true
    };
    with_ticks(worker, wait, look).await.expect("invariant: it always goes on")
}

/// Waits, and asks at each tick of upkeep whether that goes on. None: it does not.
pub(super) async fn with_ticks<O>(
    worker: &Worker,
    wait: impl Future<Output = O>,
    mut goes_on: impl FnMut() -> bool,
) -> Option<O> {
    let mut wait = pin!(wait);
    loop {
        let mut tick = pin!(worker.upkeep_tick.notified());
        let polled = poll_fn(|cx| match wait.as_mut().poll(cx) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending => tick.as_mut().poll(cx).map(|()| None),
        });
        match polled.await {
            Some(output) => return Some(output),
            None if goes_on() => {}
            None => return None,
        }
    }
}

/// Has the kernel give the pages of a large buffer, in turns with other clients: to meet them one by
/// one would hold these up, while slots are held.
pub(super) async fn prefault_in_turns(worker: &Worker, buffer: &mut [MaybeUninit<u8>]) {
    for piece in buffer.chunks_mut(PREFAULT_BYTES) {
        worker.turn.give_way().await;
        prefault(piece);
        worker.turn.add(piece.len());
    }
}
