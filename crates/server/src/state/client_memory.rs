//! What clients take: buffers, queued commands, values fetched for them; what one request may take;
//! and who goes when it is too much.
//!
//! Every connection reports its buffers when they have grown or shrunk by a step, so that many
//! clients that do not read their replies are stopped within a few steps, not at the next look at
//! all of them. What a request is about to take beside its buffers, such as values from flash, it
//! reserves before it takes it: the sum of all clients stays within `maxmemory-clients`, and the
//! budget makes room for it first.

use std::cmp::Reverse;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use rapidhash::RapidHashSet;
use tier::{Claim, Held, TierWorker};

use crate::config::MemoryShare;
use crate::limits::{
    BRAKE_SHIFT, CLIENT_STEP_BYTES, CLIENTS_SHARE_BYTES_MIN, CLIENTS_SHARE_SHIFT, CONNECTION_BYTES,
    CONNECTIONS_SHIFT, CROWD_BYTES_MIN, INPUTS_SHARE_SHIFT, READ_BUFFER_BYTES, RECOUNT_SHIFT,
    SMALL_INPUT_SHIFT, SMALL_SHARE_SHIFT, SMALL_SHIFT, STRANGERS_BYTES_MAX,
};
use crate::state::clients::Client;
use crate::state::clock::unix_ms;
use crate::state::reservation_queue::{Look, ReservationPlace, ReservationQueue};
use crate::state::server::Server;
use crate::state::worker::Worker;

/// Ticks of upkeep for which a connection with large buffers waits for others to be closed: a tenth of a
/// second when upkeep is idle. Not for ever, as clients that may not be closed can be what takes too
/// much.
const WAIT_TICKS_MAX: u32 = 20;
/// The same of one with small buffers, which waits only while much more is taken than may be: thousands of clients
/// are closed in less.
const BRAKE_TICKS_MAX: u32 = 200;
/// Between two counts of all clients while nothing is read from any.
const RECOUNT_EVERY_MS: u64 = 20;
/// A request that is arriving and has not got on for so long leaves its share to others.
const STALLED_FOR: Duration = Duration::from_millis(200);
/// Between two lines of the log about clients that were closed.
const LOG_EVERY_MS: u64 = 1000;

/// What all clients share to keep within their bounds.
pub(crate) struct ClientMemory {
    /// Memory of the machine; 0 when the kernel does not tell.
    machine_bytes: u64,
    /// Buffers of clients that have not authenticated.
    stranger_bytes: AtomicI64,
    /// Requests under way that reserved little and that reserved much, by [`Size`].
    reservations: [Reservations; Size::COUNT],
    /// Requests that are arriving and take more than a read buffer, by [`Size`].
    inputs: [LargeInputs; Size::COUNT],
    /// The sum at which all clients were counted last because they took too much.
    recounted_at: AtomicI64,
    recount: Mutex<()>,
    /// When all were counted last, Unix ms.
    recounted_ms: AtomicU64,
    /// Whether all took so much when one was counted last that even small clients are not read for a while.
    is_braking: AtomicBool,
    /// Clients closed since the log said so.
    unlogged: AtomicU64,
    logged_ms: AtomicU64,
}

/// Small and large requests do not wait for each other: each have a share of client memory, and a queue.
/// So a crowd of large ones, or one that cannot be served, keeps no small one waiting, and no stream of
/// small ones a large one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Size {
    Small,
    Large,
}

impl Size {
    const COUNT: usize = 2;

    /// The size of a request that is to have so many bytes of what all clients may take.
    fn of(limit: Option<u64>, bytes: u64) -> Size {
        match limit {
            Some(limit) if bytes > limit >> SMALL_SHIFT => Size::Large,
            _ => Size::Small,
        }
    }

    /// The size of a request that is arriving.
    fn of_input(limit: u64, bytes: u64) -> Size {
        if bytes > limit >> SMALL_INPUT_SHIFT { Size::Large } else { Size::Small }
    }
}

/// What requests of one size have reserved, and those that wait to reserve some.
#[derive(Default)]
struct Reservations {
    bytes: AtomicI64,
    queue: ReservationQueue,
}

/// Buffers of requests of one size that are arriving: all together within a share of what clients may take,
/// but for that of the oldest, so that one always gets on.
#[derive(Default)]
struct LargeInputs {
    bytes: AtomicI64,
    holders: Mutex<Holders>,
    queue: ReservationQueue,
}

/// Clients that have a large request which is arriving, the oldest first.
#[derive(Default)]
struct Holders {
    active: VecDeque<Holder>,
    /// Those that did not get on when the first of the queue looked. They leave the share to others, who go on
    /// within the limit of all clients.
    stalled: VecDeque<Holder>,
}

/// A client, and the bytes of the share that it has.
#[derive(Clone, Copy)]
struct Holder {
    id: u64,
    bytes: u64,
}

impl Holders {
    fn remove(&mut self, id: u64) {
        self.active.retain(|holder| holder.id != id);
        self.stalled.retain(|holder| holder.id != id);
    }

    /// Sets what a client has; a new one is the last.
    fn set(&mut self, id: u64, bytes: u64) {
        let mut holders = self.active.iter_mut().chain(&mut self.stalled);
        match holders.find(|holder| holder.id == id) {
            Some(holder) => holder.bytes = bytes,
            None => self.active.push_back(Holder { id, bytes }),
        }
    }

    /// Whether nobody else gets on, or came before this.
    fn is_oldest(&self, id: u64) -> bool {
        self.active.front().is_none_or(|oldest| oldest.id == id)
    }

    fn stalled_bytes(&self, but: u64) -> u64 {
        self.stalled.iter().filter(|holder| holder.id != but).map(|holder| holder.bytes).sum()
    }
}

impl LargeInputs {
    /// Looks which of them get on. Cost: linear in the clients.
    fn look(&self, server: &Server) {
        let mut idle = server.clients.all();
        idle.retain(|client| is_idle(server, client, STALLED_FOR));
        let idle: RapidHashSet<u64> = idle.iter().map(|client| client.id).collect();
        let mut holders = self.holders.lock();
        let Holders { active, stalled } = std::mem::take(&mut *holders);
        (holders.stalled, holders.active) =
            active.into_iter().chain(stalled).partition(|holder| idle.contains(&holder.id));
    }
}

impl ClientMemory {
    /// Of no clients yet.
    pub(crate) fn new() -> ClientMemory {
        ClientMemory {
            machine_bytes: machine_bytes(),
            stranger_bytes: AtomicI64::new(0),
            reservations: Default::default(),
            inputs: Default::default(),
            recounted_at: AtomicI64::new(0),
            recount: Mutex::new(()),
            recounted_ms: AtomicU64::new(0),
            is_braking: AtomicBool::new(false),
            unlogged: AtomicU64::new(0),
            logged_ms: AtomicU64::new(0),
        }
    }

    #[inline]
    fn is_braking(&self) -> bool {
        self.is_braking.load(Ordering::Relaxed)
    }

    /// Memory of the machine; 0 when the kernel does not tell.
    pub(crate) fn machine_bytes(&self) -> u64 {
        self.machine_bytes
    }

    /// The last place among the requests of its size that wait to reserve.
    pub(crate) fn wait_to_reserve(
        &self,
        server: &Server,
        client: &Client,
        amount: Amount,
    ) -> ReservationPlace<'_> {
        let bytes = amount.needs_free(server);
        self.reservations_of(server, amount).queue.join(client.id, bytes)
    }

    fn reservations_of(&self, server: &Server, amount: Amount) -> &Reservations {
        &self.reservations[amount.size(server) as usize]
    }
}

#[cfg(test)]
impl ClientMemory {
    pub(crate) fn brake(&self) {
        self.is_braking.store(true, Ordering::Relaxed);
    }

    pub(crate) fn has_large_inputs(&self) -> bool {
        let is_held = |holders: &Holders| holders.active.len() + holders.stalled.len() > 0;
        self.inputs.iter().any(|inputs| is_held(&inputs.holders.lock()))
    }
}

impl ReservationPlace<'_> {
    /// Waits until there may be memory to reserve. False: it has waited for as long as it may.
    pub(crate) async fn wait_to_reserve(&mut self, worker: &Worker) -> bool {
        self.wait(worker, |server, look| close_idle(server, &look)).await
    }

    /// Whether requests for so much wait here: a new limit may send them to another queue.
    pub(crate) fn is_for(&self, server: &Server, amount: Amount) -> bool {
        self.is_in(&server.client_memory.reservations_of(server, amount).queue)
    }
}

/// What a request asks for.
#[derive(Clone, Copy)]
pub(crate) struct Amount {
    /// Its values, or what is made of them: bytes that have to leave all clients within their limit.
    pub(crate) of_client: u64,
    /// Of that, what stays when it has run: the reply, until the client has read it; what the server keeps
    /// for it.
    pub(crate) stays: u64,
    /// Both, and what they take besides: bytes that the budget makes room for.
    pub(crate) in_all: u64,
}

/// A request that is arriving.
#[derive(Clone, Copy)]
pub(crate) struct Arriving {
    /// What its buffer is to take now.
    pub(crate) bytes: u64,
    /// How long it will be, about, as far as that is known.
    pub(crate) expected_bytes: u64,
}

impl Amount {
    fn size(&self, server: &Server) -> Size {
        Size::of(limit_bytes(server), self.in_all)
    }

    /// What has to come free beside what others hold: a large request goes on with its values beyond the limit.
    fn needs_free(&self, server: &Server) -> u64 {
        match self.size(server) {
            Size::Small => self.of_client,
            Size::Large => self.stays,
        }
    }
}

/// Bytes of one connection's buffers that are counted in the budget.
#[derive(Default)]
pub(crate) struct CountedBuffers {
    bytes: u64,
    /// Reserved for the request under way.
    reserved: u64,
    /// As a request of which size.
    reserved_as: Option<Size>,
    /// Of that, what the tier has let it have.
    claim: Option<Claim>,
    /// What it was let have for a large request that is arriving.
    input: u64,
    /// As one of which size.
    input_as: Option<Size>,
    /// Whether that was granted to the request under way, not left by one before.
    is_granted: bool,
    is_stranger: bool,
    /// The buffer for which memory was sought last.
    sought_bytes: usize,
    /// Ticks waited for memory.
    waited: u32,
}

impl CountedBuffers {
    /// Tells what the buffers take now; closes the largest clients when all together take too much.
    /// Cost: a comparison, unless the difference is a step.
    #[inline]
    pub(crate) fn update(&mut self, server: &Server, bytes: usize, is_stranger: bool) {
        let is_same = self.is_stranger == is_stranger;
        if self.bytes.abs_diff(bytes as u64) >= CLIENT_STEP_BYTES || !is_same {
            self.count(server, bytes as u64, is_stranger);
        }
    }

    #[cold]
    fn count(&mut self, server: &Server, bytes: u64, is_stranger: bool) {
        let grown = bytes as i64 - self.bytes as i64;
        let strange = |is_stranger: bool, bytes: u64| if is_stranger { bytes as i64 } else { 0 };
        let stranger_grown = strange(is_stranger, bytes) - strange(self.is_stranger, self.bytes);
        (self.bytes, self.is_stranger) = (bytes, is_stranger);
        let strangers = &server.client_memory.stranger_bytes;
        let stranger_bytes = match stranger_grown {
            0 => 0,
            grown => strangers.fetch_add(grown, Ordering::Relaxed) + grown,
        };
        let total = server.tier.budget.add_buffers(grown);
        if stranger_grown > 0 && stranger_bytes > STRANGERS_BYTES_MAX as i64 {
            keep_within_limit(server);
        } else if grown > 0 && limit_bytes(server).is_some_and(|limit| total > limit as i64) {
            // Before the recount, which takes some ms where there are thousands of clients.
            if is_too_much(server, false) {
                server.client_memory.is_braking.store(true, Ordering::Relaxed);
            }
            recount(server, total);
        }
    }

    /// Whether the connection must not fill its buffers further for a tick: all together take too
    /// much, and the clients that were closed for it have not let go of theirs yet. One whose buffers are
    /// small waits only where many such take too much together, and where nothing was read of it for that
    /// (`is_braked`). Cost: a comparison and a load for such a one.
    #[inline]
    pub(crate) fn must_wait(&mut self, server: &Server, is_braked: bool) -> bool {
        let may_wait = is_braked
            || self.bytes >= CROWD_BYTES_MIN
            || self.bytes > 0 && server.client_memory.is_braking();
        may_wait && self.is_crowded(server)
    }

    /// Whether only a little is to be read, and nothing more of an unfinished request before it has looked whether
    /// it must wait. Cost: a load.
    #[inline]
    pub(crate) fn must_brake(&self, server: &Server) -> bool {
        server.client_memory.is_braking()
            && self.waited <= self.wait_ticks_max()
            && is_too_much(server, false)
    }

    #[cold]
    fn is_crowded(&mut self, server: &Server) -> bool {
        let is_large = self.bytes >= CROWD_BYTES_MIN;
        let crowded = is_too_much(server, is_large);
        self.waited = if crowded { self.waited + 1 } else { 0 };
        if !crowded {
            server.client_memory.is_braking.store(false, Ordering::Relaxed);
        } else if !is_large {
            recount_again(server);
        }
        crowded && self.waited <= self.wait_ticks_max()
    }

    fn wait_ticks_max(&self) -> u32 {
        if self.bytes >= CROWD_BYTES_MIN { WAIT_TICKS_MAX } else { BRAKE_TICKS_MAX }
    }

    /// Whether memory is to be made for a large buffer, before it is filled: asked once for each size.
    #[inline]
    pub(crate) fn must_wait_for_buffer(&mut self, tier: &TierWorker, buffer_bytes: usize) -> bool {
        let has_grown = buffer_bytes > self.sought_bytes;
        self.sought_bytes = buffer_bytes;
        has_grown
            && buffer_bytes as u64 >= CROWD_BYTES_MIN
            && tier.must_wait_for(buffer_bytes as u64)
    }

    /// What the client takes in the budget, as it was last counted.
    pub(crate) fn held(&self) -> Held {
        Held { buffer_bytes: self.bytes, reserved_bytes: self.reserved }
    }

    /// Notes that memory was sought for a buffer of this size.
    pub(crate) fn note_sought(&mut self, buffer_bytes: usize) {
        self.sought_bytes = buffer_bytes;
    }

    /// Reserves memory for the values that the request under way holds and fetches, and for what is
    /// made of them, a reply or a part of the data set: in place of what it had reserved before, and
    /// if that leaves all clients within their limit. False: others must let go of theirs first, or
    /// came first.
    pub(crate) fn reserve_values(
        &mut self,
        server: &Server,
        client: &Client,
        amount: Amount,
    ) -> bool {
        // It has had its turn, and asks again for what it has learnt of meanwhile: if it had to let go of what it
        // has, requests that take turns would each begin anew. What it asks for first may be a part of
        // that, and the rest must not go to others until it is asked for. For much more it waits for
        // another turn, so that it does not come on top of what others were granted; since that is each
        // time twice as much, not for ever.
        if self.is_granted && amount.in_all / 2 <= self.reserved {
            self.set_reserved(server, client, amount.in_all.max(self.reserved));
            return true;
        }
        // It reserves before others of its size look, for else two workers would both find the same free.
        let queue = &server.client_memory.reservations_of(server, amount).queue;
        let goes = queue.try_pass(client.id, || {
            let may_reserve = match amount.size(server) {
                Size::Small => self.may_reserve_little(server, amount),
                Size::Large => self.may_reserve_much(server, client, amount),
            };
            if may_reserve {
                self.set_reserved(server, client, amount.in_all);
            }
            may_reserve
        });
        self.is_granted |= goes;
        goes
    }

    /// Beside large requests, small ones may take a share of their own.
    fn may_reserve_little(&self, server: &Server, amount: Amount) -> bool {
        let Some(limit) = limit_bytes(server) else { return true };
        let total = server.tier.budget.client_bytes() - self.reserved as i64;
        let of_others = self.others_reserved(server, Size::Small);
        total + amount.of_client as i64 <= limit as i64
            || of_others + amount.in_all as i64 <= (limit >> SMALL_SHARE_SHIFT) as i64
    }

    /// Large requests leave each other and what all clients hold within the limit. One goes on alone if only
    /// its values do not, since these are gone when it has run; what stays has to fit beside what others hold,
    /// or the largest client would be closed for it. Small requests are not in its way: they would be for ever.
    fn may_reserve_much(&self, server: &Server, client: &Client, amount: Amount) -> bool {
        let Some(limit) = limit_bytes(server) else { return true };
        let fits = |bytes: i64, more: u64| bytes + more as i64 <= limit as i64;
        let buffers = server.tier.budget.buffer_bytes();
        let of_others = self.others_reserved(server, Size::Large);
        // Without the buffers of others it has to fit, or it would wait for them in vain. Its own reply
        // is written while it waits.
        let written = client.output_capacity.load(Ordering::Relaxed);
        let fits_alone = |more| fits(self.bytes.saturating_sub(written) as i64, more);
        let fits_others = of_others <= 0 || fits(buffers + of_others, amount.of_client);
        fits_others && (fits(buffers, amount.stays) || !fits_alone(amount.stays))
    }

    /// What requests of this size have reserved, this one left out.
    fn others_reserved(&self, server: &Server, size: Size) -> i64 {
        let all = server.client_memory.reservations[size as usize].bytes.load(Ordering::Relaxed);
        let own = if self.reserved_as == Some(size) { self.reserved as i64 } else { 0 };
        all - own
    }

    /// Waits until the buffer of a large request that is arriving may grow to `bytes`: behind those
    /// that asked before, and while other clients leave it the memory. It grows in the end, and the
    /// largest clients are closed. Cost: some loads and locks when there is memory.
    /// One that becomes larger than was expected has its part of the share of small ones while it waits: many
    /// that do so would take much else.
    pub(crate) async fn wait_for_input(
        &mut self,
        worker: &Worker,
        client: &Client,
        arriving: Arriving,
    ) {
        let server = &*worker.server;
        let size = self.input_size(server, arriving);
        if !self.may_grow_input(server, client, arriving) {
            let inputs = &server.client_memory.inputs[size as usize];
            let mut place = inputs.queue.join(client.id, arriving.bytes);
            let look_at_clients = |server: &Server, look: Look| {
                inputs.look(server);
                close_idle(server, &look)
            };
            while !self.may_grow_input(server, client, arriving)
                && place.wait(worker, look_at_clients).await
            {}
            inputs.queue.begin_anew(arriving.bytes);
        }
        self.set_input(server, client, arriving);
    }

    /// One that was large stays so until it is let go of.
    fn input_size(&self, server: &Server, arriving: Arriving) -> Size {
        let bytes = arriving.bytes.max(arriving.expected_bytes);
        match (self.input_as, limit_bytes(server)) {
            (Some(Size::Large), _) => Size::Large,
            (_, Some(limit)) => Size::of_input(limit, bytes),
            (_, None) => Size::Small,
        }
    }

    /// Whether the buffer of a request that is arriving may grow at once.
    pub(crate) fn may_grow_input(
        &self,
        server: &Server,
        client: &Client,
        arriving: Arriving,
    ) -> bool {
        let Some(limit) = limit_bytes(server) else { return true };
        let (size, bytes) = (self.input_size(server, arriving), arriving.bytes);
        let inputs = &server.client_memory.inputs[size as usize];
        let own = if self.input_as == Some(size) { self.input as i64 } else { 0 };
        let (is_oldest, stalled_bytes) = {
            let holders = inputs.holders.lock();
            (holders.is_oldest(client.id), holders.stalled_bytes(client.id) as i64)
        };
        let of_others = inputs.bytes.load(Ordering::Relaxed) - own - stalled_bytes;
        let fits_share = of_others + bytes as i64 <= (limit >> INPUTS_SHARE_SHIFT) as i64;
        // The end of one that takes all it may is followed by a little.
        let bytes = bytes.min(limit) as i64;
        let budget = &server.tier.budget;
        let held = match size {
            // What large requests have reserved is not in its way.
            Size::Small => budget.buffer_bytes(),
            Size::Large => budget.client_bytes(),
        };
        let may_go = if own > 0 && is_oldest {
            true
        } else if inputs.queue.is_behind(client.id) {
            false
        } else {
            fits_share || is_oldest
        };
        may_go && held - self.bytes as i64 + bytes <= limit as i64
    }

    /// The buffer of a large request has been let go of. Cost: a comparison when there was none.
    #[inline]
    pub(crate) fn release_input(&mut self, server: &Server, client: &Client) {
        if self.input > 0 {
            self.leave_inputs(server, client);
        }
    }

    #[cold]
    fn leave_inputs(&mut self, server: &Server, client: &Client) {
        let Some(size) = self.input_as.take() else { return };
        let inputs = &server.client_memory.inputs[size as usize];
        let mut holders = inputs.holders.lock();
        holders.remove(client.id);
        inputs.bytes.fetch_sub(std::mem::take(&mut self.input) as i64, Ordering::Relaxed);
    }

    #[cold]
    fn set_input(&mut self, server: &Server, client: &Client, arriving: Arriving) {
        let (size, bytes) = (self.input_size(server, arriving), arriving.bytes);
        if self.input_as != Some(size) {
            self.leave_inputs(server, client);
        }
        let inputs = &server.client_memory.inputs[size as usize];
        let mut holders = inputs.holders.lock();
        self.input_as = Some(size);
        holders.set(client.id, bytes);
        let grown = bytes as i64 - self.input as i64;
        self.input = bytes;
        inputs.bytes.fetch_add(grown, Ordering::Relaxed);
    }

    /// Reserves memory for a copy of arguments, which count as the client's already.
    pub(crate) fn reserve_copy(&mut self, server: &Server, client: &Client, bytes: u64) {
        self.set_reserved(server, client, self.reserved + bytes);
    }

    /// Whether what is reserved was granted to the request under way.
    #[inline]
    pub(crate) fn is_granted(&self) -> bool {
        self.is_granted
    }

    /// Keeps what the tier let the request have until it is released.
    pub(crate) fn keep_claim(&mut self, claim: Option<Claim>) {
        self.claim = claim;
    }

    /// Keeps at most `bytes` of what was reserved.
    pub(crate) fn keep_reserved(&mut self, server: &Server, client: &Client, bytes: u64) {
        self.is_granted = false;
        self.claim = None;
        if self.reserved > bytes {
            self.set_reserved(server, client, bytes);
        }
    }

    /// What was reserved is free again. Cost: a comparison when nothing was.
    #[inline]
    pub(crate) fn release(&mut self, server: &Server, client: &Client) {
        self.keep_reserved(server, client, 0);
    }

    #[cold]
    fn set_reserved(&mut self, server: &Server, client: &Client, bytes: u64) {
        let of_size = |size: Size| &server.client_memory.reservations[size as usize].bytes;
        // The new before the old: at no time may others find it free.
        let size = (bytes > 0).then(|| Size::of(limit_bytes(server), bytes));
        let before = std::mem::replace(&mut self.reserved_as, size);
        if let Some(size) = size {
            of_size(size).fetch_add(bytes as i64, Ordering::Relaxed);
        }
        if let Some(size) = before {
            of_size(size).fetch_sub(self.reserved as i64, Ordering::Relaxed);
        }
        server.tier.budget.add_reserved(bytes as i64 - self.reserved as i64);
        self.reserved = bytes;
        client.reserved_bytes.store(bytes, Ordering::Relaxed);
    }

    /// The connection ends.
    pub(crate) fn end(&mut self, server: &Server, client: &Client) {
        self.release(server, client);
        self.release_input(server, client);
        if self.is_stranger {
            server.client_memory.stranger_bytes.fetch_sub(self.bytes as i64, Ordering::Relaxed);
        }
        server.tier.budget.add_buffers(-(std::mem::take(&mut self.bytes) as i64));
    }
}

/// What clients may take besides the connections by themselves, in bytes: `maxmemory-clients`, and less where
/// there are very many connections. None: there is no bound.
pub(crate) fn limit_bytes(server: &Server) -> Option<u64> {
    let limit = share_bytes(server)?;
    let beyond = connections_bytes(server).saturating_sub(limit >> CONNECTIONS_SHIFT);
    Some(limit - beyond.min(limit / 2))
}

/// What connections take by themselves.
pub(crate) fn connections_bytes(server: &Server) -> u64 {
    server.clients.count() * CONNECTION_BYTES
}

/// `maxmemory-clients` in bytes; none: there is no bound.
fn share_bytes(server: &Server) -> Option<u64> {
    let max_memory = server.config.maxmemory.load();
    match server.config.maxmemory_clients.load() {
        MemoryShare::Bytes(0) | MemoryShare::Percent(_) if max_memory == 0 => None,
        MemoryShare::Bytes(0) => {
            Some((max_memory >> CLIENTS_SHARE_SHIFT).max(CLIENTS_SHARE_BYTES_MIN))
        }
        MemoryShare::Bytes(bytes) => Some(bytes),
        MemoryShare::Percent(percent) => Some(max_memory / 100 * u64::from(percent)),
    }
}

/// What one request may take: as much as all clients together, and never less than a read buffer. Where
/// nothing bounds these, half of the machine's memory, so that no request alone ends the process.
pub(crate) fn request_bytes_max(server: &Server) -> u64 {
    let of_machine = || match server.client_memory.machine_bytes {
        0 => u64::MAX,
        bytes => bytes / 2,
    };
    limit_bytes(server).unwrap_or_else(of_machine).max(READ_BUFFER_BYTES as u64)
}

/// Whether all buffers together take so much that a large client waits, or even a small one.
fn is_too_much(server: &Server, is_large: bool) -> bool {
    let Some(limit) = limit_bytes(server) else { return false };
    let bearable = if is_large { limit } else { limit + (limit >> BRAKE_SHIFT) };
    server.tier.budget.buffer_bytes() > bearable as i64
}

/// Memory of the machine; 0 when the kernel does not tell.
fn machine_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let total = text.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let kib = total.and_then(|rest| rest.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}

/// Bytes that may still be fetched ahead for all clients.
pub(crate) fn bytes_free(server: &Server) -> u64 {
    let total = server.tier.budget.client_bytes().max(0) as u64;
    limit_bytes(server).map_or(u64::MAX, |limit| limit.saturating_sub(total))
}

/// Why a request that needs so many bytes is refused. One that `maxmemory` itself could not hold
/// gets Redis's text.
pub(crate) fn refusal(server: &Server, bytes: u64) -> String {
    let max_memory = server.config.maxmemory.load();
    if max_memory > 0 && bytes > max_memory {
        return "OOM command not allowed when used memory > 'maxmemory'.".to_owned();
    }
    let bytes_max = request_bytes_max(server);
    let bound = match limit_bytes(server) {
        Some(_) => "maxmemory-clients allows",
        None => "half of the machine's",
    };
    format!("ERR request needs more memory than {bound} ({bytes_max} bytes)")
}

/// Closes the largest clients if `total`, which all held when some were given messages, is too much. Cost: a
/// comparison.
#[inline]
pub(crate) fn check_pushed(server: &Server, total: i64) {
    if limit_bytes(server).is_some_and(|limit| total > limit as i64) {
        recount(server, total);
    }
}

/// Counts all clients anew, unless somebody does, or has since they took a step less.
fn recount(server: &Server, total: i64) {
    let memory = &server.client_memory;
    let step = limit_bytes(server).unwrap_or(0) as i64 >> RECOUNT_SHIFT;
    let last = memory.recounted_at.load(Ordering::Relaxed);
    if (last..last + step).contains(&total) {
        return;
    }
    if let Some(_alone) = memory.recount.try_lock() {
        memory.recounted_at.store(total, Ordering::Relaxed);
        keep_within_limit(server);
    }
}

/// Counts all clients anew if that was some time ago. While they were counted last some may have changed, and where
/// nobody is read nobody grows so that they would be counted again.
fn recount_again(server: &Server) {
    let memory = &server.client_memory;
    let last_ms = memory.recounted_ms.load(Ordering::Relaxed);
    if server.tier.clock().unix_ms() >= last_ms + RECOUNT_EVERY_MS
        && let Some(_alone) = memory.recount.try_lock()
    {
        keep_within_limit(server);
    }
}

/// Counts the buffers of all clients anew, tells the budget, and closes the largest while they
/// exceed `maxmemory-clients`, or the bound of those who have not authenticated. Cost: linear in
/// the clients.
pub(crate) fn keep_within_limit(server: &Server) {
    let mut clients = server.clients.all();
    let total: u64 = clients.iter().map(|client| client.memory_bytes()).sum();
    let now_ms = server.tier.clock().unix_ms();
    server.client_memory.recounted_ms.store(now_ms, Ordering::Relaxed);
    server.tier.budget.set_buffers(total as i64);
    // What those take who are on their way out is as good as free.
    clients.retain(|client| !client.is_killed());
    let sum = |clients: &[Arc<Client>]| -> u64 {
        clients.iter().map(|client| client.memory_bytes()).sum()
    };
    let (mut strangers, mut others): (Vec<_>, Vec<_>) =
        clients.into_iter().partition(|client| client.is_stranger.load(Ordering::Relaxed));
    let strange = sum(&strangers);
    let all = strange + sum(&others);
    let over = limit_bytes(server).map_or(0, |limit| all.saturating_sub(limit));
    let strangers_over = strange.saturating_sub(STRANGERS_BYTES_MAX);
    let closed = close_largest(&mut strangers, over.max(strangers_over));
    let count = closed.count + close_largest(&mut others, over.saturating_sub(closed.bytes)).count;
    server.totals.evicted_clients.fetch_add(count, Ordering::Relaxed);
    log_closed(server, count);
}

/// Closes the largest of the clients that have neither read nor sent much for a while, whoever waits included, and
/// for which nothing runs, until what others wait for in a queue fits: the first of them, and the rest as far as half
/// of what clients may take goes. Those with a read buffer or less stay: so do subscribers, and who watches keys.
/// Returns the bytes that they had. Cost: linear in the clients.
fn close_idle(server: &Server, look: &Look) -> u64 {
    let (Some(limit), Some(grace)) = (limit_bytes(server), look.grace) else { return 0 };
    let mut clients = server.clients.all();
    let total: u64 = clients.iter().map(|client| client.memory_bytes()).sum();
    clients.retain(|client| client.memory_bytes() > READ_BUFFER_BYTES as u64);
    clients.retain(|client| is_idle(server, client, grace));
    let bytes = look.bytes.min(limit / 2).max(look.first_bytes);
    // What those take who are on their way out is as good as free.
    let (gone, mut idle): (Vec<_>, Vec<_>) =
        clients.into_iter().partition(|client| client.is_killed());
    let free: u64 = gone.iter().map(|client| client.memory_bytes()).sum();
    let closed = close_largest(&mut idle, (total + bytes).saturating_sub(limit + free));
    server.totals.evicted_clients.fetch_add(closed.count, Ordering::Relaxed);
    log_closed(server, closed.count);
    closed.bytes
}

/// Whether a client has neither read nor sent much of anything large for so long, no batch of it has run, and none
/// waits or runs.
fn is_idle(server: &Server, client: &Client, time: Duration) -> bool {
    let progressed_ms = client.progressed_ms.load(Ordering::Relaxed);
    let is_served =
        client.is_served.load(Ordering::Relaxed) || client.is_blocked.load(Ordering::Relaxed);
    let now_ms = server.tier.clock().unix_ms();
    !is_served && now_ms >= progressed_ms + time.as_millis() as u64
}

struct Closed {
    count: u64,
    bytes: u64,
}

/// Closes the largest of these clients until `excess` bytes come free.
fn close_largest(clients: &mut [Arc<Client>], excess: u64) -> Closed {
    let mut closed = Closed { count: 0, bytes: 0 };
    if excess == 0 {
        return closed;
    }
    clients.sort_by_cached_key(|client| Reverse(client.memory_bytes()));
    for client in clients {
        let bytes = client.memory_bytes();
        if closed.bytes >= excess || bytes == 0 {
            break;
        }
        if !client.no_evict.load(Ordering::Relaxed) {
            client.kill();
            closed.bytes += bytes;
            closed.count += 1;
        }
    }
    closed
}

/// Says how many clients were closed: one line a second, however many there are.
fn log_closed(server: &Server, count: u64) {
    let memory = &server.client_memory;
    let unlogged = memory.unlogged.fetch_add(count, Ordering::Relaxed) + count;
    let (now_ms, last_ms) = (unix_ms(), memory.logged_ms.load(Ordering::Relaxed));
    if unlogged == 0 || now_ms < last_ms + LOG_EVERY_MS {
        return;
    }
    memory.logged_ms.store(now_ms, Ordering::Relaxed);
    let closed = memory.unlogged.swap(0, Ordering::Relaxed);
    tracing::warn!(closed, "closed the largest clients: maxmemory-clients");
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use keyspace::Keyspace;
    use tier::{Budget, Environment, Tier};

    use super::*;
    use crate::config::Config;
    use crate::state::registry::Registry;

    const MIB: u64 = 1 << 20;

    /// A server whose clients may take 8 MiB.
    fn server() -> Server {
        let config = Config::default();
        let options = [b"--maxmemory-clients".to_vec(), b"8mb".to_vec()];
        config.load_arguments(&options).expect("options that there are");
        let budget = Budget::new(0).expect("/proc");
        let environment = Environment::of_machine(None);
        let tier = Tier::new(Arc::new(Keyspace::default()), None, environment, budget, 1);
        let registry = Box::leak(Box::new(Registry::new(Vec::new())));
        Server::new(config, registry, Arc::new(tier))
    }

    fn twice(bytes: u64) -> Amount {
        Amount { of_client: bytes, stays: bytes, in_all: 2 * bytes }
    }

    fn client(server: &Server, buffer_bytes: u64) -> Arc<Client> {
        let client = Arc::new(Client { id: server.clients.next_id(), ..Client::default() });
        client.input_capacity.store(buffer_bytes, Ordering::Relaxed);
        server.clients.add(client.clone());
        client
    }

    #[test]
    fn what_requests_reserve_stays_within_the_limit_and_one_always_goes_on() {
        let server = server();
        let (one, other) = (client(&server, 0), client(&server, 0));
        let (mut first, mut second) = (CountedBuffers::default(), CountedBuffers::default());
        assert!(first.reserve_values(&server, &one, twice(10 * MIB)), "nobody else is under way");
        assert!(!second.reserve_values(&server, &other, twice(MIB)));
        let all = || server.tier.budget.client_bytes();
        assert_eq!(all(), 20 * MIB as i64, "a refusal leaves nothing");
        assert_eq!(one.reserved_bytes.load(Ordering::Relaxed), 20 * MIB);
        keep_within_limit(&server);
        assert_eq!(all(), 20 * MIB as i64, "counted anew");
        assert!(!one.is_killed(), "what was granted is no reason to close");
        first.keep_reserved(&server, &one, 3 * MIB);
        assert_eq!(all(), 3 * MIB as i64);
        assert!(second.reserve_values(&server, &other, twice(MIB)));
        second.reserve_copy(&server, &other, MIB);
        assert_eq!(all(), 6 * MIB as i64);
        first.end(&server, &one);
        second.end(&server, &other);
        assert_eq!(all(), 0);
    }

    #[test]
    fn of_two_workers_that_ask_for_the_same_memory_one_gets_it() {
        const ROUNDS: usize = 20_000;
        let server = server();
        let granted = AtomicUsize::new(0);
        // They spin, for else one would be done before the other is woken.
        let arrived = AtomicUsize::new(0);
        let meet = |count: usize| {
            arrived.fetch_add(1, Ordering::AcqRel);
            while arrived.load(Ordering::Acquire) < 2 * count {
                std::hint::spin_loop();
            }
        };
        let ask = || {
            let (client, mut counted) = (client(&server, 0), CountedBuffers::default());
            for round in 0..ROUNDS {
                meet(2 * round + 1);
                let goes = counted.reserve_values(&server, &client, twice(3 * MIB));
                // What has had its turn asks again, which must not show the other free memory.
                assert_eq!(goes, goes && counted.reserve_values(&server, &client, twice(3 * MIB)));
                granted.fetch_add(goes.into(), Ordering::Relaxed);
                meet(2 * round + 2);
                counted.release(&server, &client);
            }
        };
        std::thread::scope(|scope| {
            scope.spawn(ask);
            scope.spawn(ask);
        });
        assert_eq!(granted.into_inner(), ROUNDS);
    }

    #[test]
    fn who_was_granted_memory_keeps_it_and_waits_again_for_much_more() {
        let server = server();
        let (one, other) = (client(&server, 0), client(&server, 0));
        let (mut first, mut second) = (CountedBuffers::default(), CountedBuffers::default());
        assert!(first.reserve_values(&server, &one, twice(2 * MIB)));
        assert!(first.reserve_values(&server, &one, twice(MIB / 8)));
        assert_eq!(server.tier.budget.client_bytes(), 4 * MIB as i64, "it will ask for that again");
        let place = server.client_memory.reservations[Size::Large as usize].queue.join(other.id, 0);
        assert!(first.reserve_values(&server, &one, twice(4 * MIB)), "what has changed meanwhile");
        assert!(!first.reserve_values(&server, &one, twice(9 * MIB)), "another was first");
        drop(place);
        first.keep_reserved(&server, &one, MIB);
        assert!(!first.is_granted());
        assert!(second.reserve_values(&server, &other, twice(MIB)));
    }

    #[test]
    fn who_waits_to_reserve_is_not_passed_by_those_who_came_later() {
        let server = server();
        let clients: Vec<_> = (0..4).map(|_| client(&server, 0)).collect();
        let mut counted: Vec<_> = (0..4).map(|_| CountedBuffers::default()).collect();
        assert!(counted[0].reserve_values(&server, &clients[0], twice(3 * MIB)));
        assert!(!counted[1].reserve_values(&server, &clients[1], twice(7 * MIB)));
        let queue = &server.client_memory.reservations[Size::Large as usize].queue;
        let first = queue.join(clients[1].id, 0);
        assert!(!counted[2].reserve_values(&server, &clients[2], twice(MIB)), "it would fit");
        let second = queue.join(clients[2].id, 0);
        assert!(counted[3].reserve_values(&server, &clients[3], twice(MIB / 8)), "it is small");
        counted[3].release(&server, &clients[3]);
        counted[0].release(&server, &clients[0]);
        assert!(!counted[3].reserve_values(&server, &clients[3], twice(MIB)));
        assert!(counted[1].reserve_values(&server, &clients[1], twice(7 * MIB)));
        drop(first);
        assert!(!counted[3].reserve_values(&server, &clients[3], twice(MIB)));
        drop(second);
        counted[1].release(&server, &clients[1]);
        assert!(counted[3].reserve_values(&server, &clients[3], twice(MIB)));
    }

    #[test]
    fn small_requests_and_large_ones_are_in_no_way_of_each_other() {
        let server = server();
        let clients: Vec<_> = (0..11).map(|_| client(&server, 0)).collect();
        let mut counted: Vec<_> = (0..11).map(|_| CountedBuffers::default()).collect();
        assert!(counted[0].reserve_values(&server, &clients[0], twice(8 * MIB)));
        let mut reserve = |index: usize, bytes| {
            counted[index].reserve_values(&server, &clients[index], twice(bytes))
        };
        let small = (1..10).map(|index| reserve(index, MIB / 8)).filter(|&goes| goes).count();
        assert_eq!(small, 8, "they share 2 MiB");
        assert!(!reserve(10, MIB));
        counted[0].release(&server, &clients[0]);
        assert!(counted[10].reserve_values(&server, &clients[10], twice(8 * MIB)));
        for (counted, client) in counted.iter_mut().zip(&clients) {
            counted.end(&server, client);
        }
        let left = server.client_memory.reservations.each_ref();
        assert_eq!(left.map(|size| size.bytes.load(Ordering::Relaxed)), [0, 0]);
    }

    /// What was replied stays until it is read, and the largest client is closed if that is too much.
    #[test]
    fn what_stays_fits_beside_what_others_hold_and_values_need_not() {
        let server = server();
        let one = client(&server, 0);
        server.tier.budget.add_buffers(5 << 20);
        for (values, stays, goes) in [(7, 1, true), (7, 3, true), (7, 4, false), (9, 9, true)] {
            let (of_client, stays) = (values * MIB, stays * MIB);
            let amount = Amount { of_client, stays, in_all: of_client + stays };
            let mut counted = CountedBuffers::default();
            assert_eq!(counted.reserve_values(&server, &one, amount), goes, "{values} {stays}");
            counted.end(&server, &one);
        }
    }

    #[test]
    fn the_oldest_of_the_requests_that_arrive_may_take_what_others_leave() {
        let server = server();
        let of = |bytes| Arriving { bytes, expected_bytes: 0 };
        let clients: Vec<_> = (0..3).map(|_| client(&server, 0)).collect();
        let mut counted: Vec<_> = (0..3).map(|_| CountedBuffers::default()).collect();
        for (counted, client) in counted.iter_mut().zip(&clients).take(2) {
            assert!(counted.may_grow_input(&server, client, of(MIB / 2)));
            counted.set_input(&server, client, of(MIB / 2));
        }
        assert!(
            !counted[2].may_grow_input(&server, &clients[2], of(MIB / 2)),
            "the share is 1 MiB"
        );
        assert!(!counted[1].may_grow_input(&server, &clients[1], of(MIB)));
        assert!(counted[0].may_grow_input(&server, &clients[0], of(8 * MIB)), "the oldest");

        let inputs = &server.client_memory.inputs[Size::Large as usize];
        let place = inputs.queue.join(clients[2].id, 0);
        assert!(
            counted[0].may_grow_input(&server, &clients[0], of(8 * MIB)),
            "it waits for nobody"
        );
        let (small, mut buffers) = (client(&server, 0), CountedBuffers::default());
        let begun = Arriving { bytes: MIB / 8, expected_bytes: MIB / 2 };
        assert!(!buffers.may_grow_input(&server, &small, begun), "it will be large");
        assert!(buffers.may_grow_input(&server, &small, of(MIB / 4)), "it is small");
        buffers.set_input(&server, &small, of(MIB / 4));
        assert!(!buffers.may_grow_input(&server, &small, of(MIB / 2)));
        buffers.set_input(&server, &small, of(MIB / 2));
        assert_eq!(inputs.bytes.load(Ordering::Relaxed), MIB as i64 * 3 / 2, "now it is large");
        buffers.end(&server, &small);
        counted[0].release_input(&server, &clients[0]);
        assert!(counted[1].may_grow_input(&server, &clients[1], of(8 * MIB)), "the next");
        drop(place);
        counted[1].end(&server, &clients[1]);
        assert_eq!(inputs.bytes.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn strangers_go_first_and_have_a_bound_of_their_own() {
        let server = server();
        let known = client(&server, 5 * MIB);
        let strangers: Vec<_> = (1..=8).map(|bytes| client(&server, bytes * 100_000)).collect();
        for stranger in &strangers {
            stranger.is_stranger.store(true, Ordering::Relaxed);
        }
        keep_within_limit(&server);
        let stayed =
            |clients: &[Arc<Client>]| clients.iter().filter(|one| !one.is_killed()).count();
        assert!(!known.is_killed());
        assert_eq!(stayed(&strangers), 7, "3.6 MB and 5 MiB are more than 8 MiB: the largest goes");
        known.input_capacity.store(0, Ordering::Relaxed);
        let more: Vec<_> = (0..4).map(|_| client(&server, MIB)).collect();
        for stranger in &more {
            stranger.is_stranger.store(true, Ordering::Relaxed);
        }
        keep_within_limit(&server);
        assert_eq!(stayed(&more), 1, "strangers alone have less");
        assert_eq!(server.totals.evicted_clients.load(Ordering::Relaxed), 4);
    }
}
