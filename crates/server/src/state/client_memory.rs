//! What clients take: buffers, queued commands, values fetched for them; and what one request may take.
//!
//! Every connection reports its buffers when they have grown or shrunk by a step, so that many
//! clients that do not read their replies are stopped within a few steps, not at the next look at
//! all of them. What a request is about to take beside its buffers, such as values from flash, it
//! reserves before it takes it: the sum of all clients stays within `maxmemory-clients`, and the
//! budget makes room for it first.

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use tier::{Claim, Held, TierWorker};

use crate::config::MemoryShare;
use crate::limits::{
    AHEAD_SHIFT, BRAKE_SHIFT, CLIENT_STEP_BYTES, CLIENTS_SHARE_BYTES_MIN, CLIENTS_SHARE_SHIFT,
    CONNECTION_BYTES, CONNECTIONS_SHIFT, CROWD_BYTES_MIN, MEASURED_BYTES, READ_BUFFER_BYTES,
    SMALL_INPUT_SHIFT, SMALL_SHARE_SHIFT, SMALL_SHIFT, STRANGERS_BYTES_MAX,
};
use crate::state::arriving_requests::{Arriving, ArrivingRequests, ArrivingShare};
use crate::state::client_eviction::{
    Evictions, close_idle, keep_within_limit, recount, recount_again,
};
use crate::state::clients::Client;
use crate::state::reservation_queue::{ReservationPlace, ReservationQueue};
use crate::state::server::Server;
use crate::state::worker::Worker;

/// Ticks of upkeep for which a connection with large buffers waits for others to be closed: a tenth of a
/// second when upkeep is idle. Not for ever, as clients that may not be closed can be what takes too
/// much.
const WAIT_TICKS_MAX: u32 = 20;
/// The same of one with small buffers, which waits only while much more is taken than may be: thousands of clients
/// are closed in less.
const BRAKE_TICKS_MAX: u32 = 200;

/// What all clients share to keep within their bounds.
pub(crate) struct ClientMemory {
    /// Memory of the machine; 0 when the kernel does not tell.
    machine_bytes: u64,
    /// Buffers of clients that have not authenticated.
    stranger_bytes: AtomicI64,
    /// Requests under way that reserved little and that reserved much, by [`Size`].
    reservations: [Reservations; Size::COUNT],
    /// Requests that are arriving and take more than a read buffer, by [`Size`].
    pub(super) inputs: [ArrivingRequests; Size::COUNT],
    /// Counts of all clients, and those that were closed.
    pub(super) evictions: Evictions,
    /// Whether all took so much when one was counted last that even small clients are not read for a while.
    is_braking: AtomicBool,
    /// What buffers took when resident memory was measured for them last, or they had shrunk since.
    measured_at: AtomicI64,
}

/// Small and large requests do not wait for each other: each have a share of client memory, and a queue.
/// So a crowd of large ones, or one that cannot be served, keeps no small one waiting, and no stream of
/// small ones a large one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Size {
    Small,
    Large,
}

impl Size {
    pub(super) const COUNT: usize = 2;

    /// The size of a request that is to have so many bytes of what all clients may take.
    fn of(limit: Option<u64>, bytes: u64) -> Size {
        match limit {
            Some(limit) if bytes > limit >> SMALL_SHIFT => Size::Large,
            _ => Size::Small,
        }
    }

    /// The size of a request that is arriving.
    pub(super) fn of_input(limit: u64, bytes: u64) -> Size {
        if bytes > limit >> SMALL_INPUT_SHIFT { Size::Large } else { Size::Small }
    }
}

/// What requests of one size have reserved, and those that wait to reserve some.
#[derive(Default)]
struct Reservations {
    bytes: AtomicI64,
    queue: ReservationQueue,
}

impl ClientMemory {
    /// Of no clients yet.
    pub(crate) fn new() -> ClientMemory {
        ClientMemory {
            machine_bytes: machine_bytes(),
            stranger_bytes: AtomicI64::new(0),
            reservations: Default::default(),
            inputs: Default::default(),
            evictions: Evictions::default(),
            is_braking: AtomicBool::new(false),
            measured_at: AtomicI64::new(0),
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

    /// The clients that wait for buffers of arriving requests, but for those whose turn is next: the large ones behind
    /// the small ones, each in the order of their arrival.
    pub(super) fn waiting_inputs(&self) -> Vec<u64> {
        self.inputs.iter().flat_map(ArrivingRequests::waiting).collect()
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
        self.inputs.iter().any(ArrivingRequests::is_held)
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
    input: ArrivingShare,
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
        } else if grown > 0
            && let Some(limit) = limit_bytes(server)
        {
            measure_grown(server, limit, total);
            // Before the recount, which takes some ms where there are thousands of clients.
            if !server.client_memory.is_braking() && is_too_much(server, false) {
                server.client_memory.is_braking.store(true, Ordering::Relaxed);
            }
            if total > limit as i64 {
                recount(server, total);
            }
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
        let is_beyond = |limit| server.tier.budget.buffer_bytes() > limit as i64;
        let crowded = is_too_much(server, is_large);
        self.waited = if crowded { self.waited + 1 } else { 0 };
        if !crowded {
            server.client_memory.is_braking.store(false, Ordering::Relaxed);
        } else if !is_large && limit_bytes(server).is_some_and(is_beyond) {
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

    /// Waits until the buffer of a large request that is arriving may grow ([`ArrivingShare::wait`]).
    pub(crate) async fn wait_for_input(
        &mut self,
        worker: &Worker,
        client: &Client,
        arriving: Arriving,
    ) {
        self.input.wait(worker, client, arriving, self.bytes).await;
    }

    /// Whether the buffer of a request that is arriving may grow at once.
    pub(crate) fn may_grow_input(
        &self,
        server: &Server,
        client: &Client,
        arriving: Arriving,
    ) -> bool {
        self.input.may_grow(server, client, arriving, self.bytes)
    }

    /// The buffer of a large request has been let go of. Cost: a comparison when there was none.
    #[inline]
    pub(crate) fn release_input(&mut self, server: &Server, client: &Client) {
        self.input.release(server, client);
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
/// there are very many connections, or keys leave less. None: there is no bound.
pub(crate) fn limit_bytes(server: &Server) -> Option<u64> {
    let limit = share_bytes(server)?.min(room_beside_keys(server));
    let beyond = connections_bytes(server).saturating_sub(limit >> CONNECTIONS_SHIFT);
    Some(limit - beyond.min(limit / 2))
}

/// What keys leave to clients, or the least that these may take: with none the first that asks would be closed.
fn room_beside_keys(server: &Server) -> u64 {
    server.tier.budget.room_beside_keys().max(CLIENTS_SHARE_BYTES_MIN)
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

/// Measures resident memory when buffers, which take `total` now, have grown by a step since it was measured so, if they
/// take much: in the time between two measurements of upkeep they may grow by all that clients may take. Cost: a load.
fn measure_grown(server: &Server, limit: u64, total: i64) {
    let measured_at = &server.client_memory.measured_at;
    let step = total - measured_at.load(Ordering::Relaxed);
    if step.abs() >= MEASURED_BYTES {
        measured_at.store(total, Ordering::Relaxed);
        if step > 0 && total > (limit >> BRAKE_SHIFT) as i64 {
            server.tier.measure_resident();
        }
    }
}

/// Whether all buffers together take so much that a large client waits, or even a small one: more than they may, or
/// more than values have left RAM for.
fn is_too_much(server: &Server, is_large: bool) -> bool {
    let Some(limit) = limit_bytes(server) else { return false };
    let bearable = if is_large { limit } else { limit + (limit >> BRAKE_SHIFT) };
    let budget = &server.tier.budget;
    let bytes = budget.buffer_bytes();
    // Where nothing goes to flash, writes wait for keys to go, and nothing that is read makes any go.
    let is_ahead = || {
        let ahead_max = (budget.max_bytes() >> AHEAD_SHIFT) as i64;
        server.tier.has_flash() && (budget.over_limit() > ahead_max || budget.is_overrun())
    };
    bytes > bearable as i64 || bytes > (limit >> BRAKE_SHIFT) as i64 && is_ahead()
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

/// Why a request that needs so many bytes is refused. One that `maxmemory` itself could not hold, or has no room for
/// beside keys, gets Redis's text.
pub(crate) fn refusal(server: &Server, bytes: u64) -> String {
    let max_memory = server.config.maxmemory.load();
    let is_for_keys =
        share_bytes(server).is_some_and(|share| bytes <= share) && bytes > room_beside_keys(server);
    if max_memory > 0 && bytes > max_memory || is_for_keys {
        return "OOM command not allowed when used memory > 'maxmemory'.".to_owned();
    }
    let bytes_max = request_bytes_max(server);
    let bound = match limit_bytes(server) {
        Some(_) => "maxmemory-clients allows",
        None => "half of the machine's",
    };
    format!("ERR request needs more memory than {bound} ({bytes_max} bytes)")
}

#[cfg(test)]
pub(crate) mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicUsize;

    use keyspace::Keyspace;
    use tier::{Budget, Environment, Tier};

    use super::*;
    use crate::config::Config;
    use crate::state::registry::tests::KEY_COMMANDS;

    pub(crate) const MIB: u64 = 1 << 20;

    /// A server whose clients may take 8 MiB.
    pub(crate) fn server() -> Server {
        let config = Config::default();
        let options = [b"--maxmemory-clients".to_vec(), b"8mb".to_vec()];
        config.load_arguments(&options).expect("options that there are");
        let budget = Budget::new(0).expect("/proc");
        let environment = Environment::of_machine(None);
        let tier = Tier::new(Arc::new(Keyspace::default()), None, environment, budget, 1);
        Server::new(config, &KEY_COMMANDS, Arc::new(tier))
    }

    fn twice(bytes: u64) -> Amount {
        Amount { of_client: bytes, stays: bytes, in_all: 2 * bytes }
    }

    pub(crate) fn client(server: &Server, buffer_bytes: u64) -> Arc<Client> {
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
}
