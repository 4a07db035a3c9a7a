//! The memory that a request needs before it can run, and what is fetched for it.

use std::num::NonZeroU64;

use flash::RecordId;
use keyspace::{Key, SlotState};
use rapidhash::RapidHashSet;
use resp::Args;
use tier::{FetchedSet, TierWorker, VALUE_OVERHEAD_BYTES, Want, sort_wants};

use crate::execution::dispatch::{Pipeline, finish_reply};
use crate::execution::keys::keys_with_needs;
use crate::execution::outcome::{Needed, Outcome};
use crate::limits::{CLAIM_BYTES_MIN, FETCH_AHEAD_SHIFT, FETCH_BYTES_MAX, REPLY_OVERHEAD_BYTES};
use crate::session::cold::{Extent, cold, extent};
use crate::state::client_memory::{bytes_free, refusal, request_bytes_max};
use crate::state::registry::{Entry, Run, Verb};
use crate::state::server::Server;
use crate::state::worker::Worker;

/// What a request needs is more than it may take: more than so many bytes.
pub(crate) struct TooMuch(pub(crate) NonZeroU64);

/// What is known so far of what a request needs.
pub(crate) struct NeededOf<'a> {
    tier: &'a TierWorker,
    pub(crate) needed: Needed,
    /// Keys that were looked at.
    pub(crate) keys_seen: usize,
    /// Whether one of them has a collection in many leaves, or another large value.
    pub(crate) names_large: bool,
    /// Records that are wanted: of those that several keys or commands name, each counts once.
    seen: RapidHashSet<RecordId>,
    /// Memory of its cold values.
    bytes: u64,
    bytes_max: u64,
}

impl NeededOf<'_> {
    pub(crate) fn new(worker: &Worker) -> NeededOf<'_> {
        let bytes_max = request_bytes_max(&worker.server);
        let (needed, seen) = Default::default();
        NeededOf {
            tier: &worker.tier,
            needed,
            keys_seen: 0,
            names_large: false,
            seen,
            bytes: 0,
            bytes_max,
        }
    }

    /// Adds what a command needs of a key: its value if it is on flash and wanted, or was fetched for it
    /// before; and memory for what is made of a value that it wants, if it `replies` with it the reply.
    pub(crate) fn add(
        &mut self,
        slot: &SlotState,
        table: u8,
        (key, needs, replies): (&Key<'_>, command::Needs, bool),
        fetched: &FetchedSet,
    ) {
        self.keys_seen += 1;
        let Some(extent) = extent(self.tier, slot, table, key) else { return };
        let Extent { want, len, is_tree } = extent;
        self.names_large |= is_tree || len > CLAIM_BYTES_MIN;
        let is_wanted = needs == command::Needs::Value;
        if is_wanted && replies {
            self.needed.reply_bytes += len + REPLY_OVERHEAD_BYTES;
        } else if is_wanted && want.is_some() {
            self.needed.copy_bytes = self.needed.copy_bytes.max(len);
        }
        if let Some(want) = want.filter(|want| is_wanted || fetched.has(want.record)) {
            self.add_want(want);
        }
    }

    pub(crate) fn add_want(&mut self, want: Want) {
        if self.seen.insert(want.record) {
            self.bytes += value_bytes(&want);
            self.needed.wants.push(want);
        }
    }

    /// Adds memory for copies, of which it is not known how large they are, as far as a request may take it.
    pub(crate) fn add_copies(&mut self, bytes: u64) {
        let left = self.bytes_max.saturating_sub(self.bytes + self.needed.reply_bytes);
        let copies = self.needed.copy_bytes.saturating_add(bytes);
        self.needed.copy_bytes = copies.min(left).max(self.needed.copy_bytes);
    }

    /// Adds what it takes to read the request in windows, if there may be as much.
    pub(crate) fn add_watches(&mut self, bytes: u64) {
        if self.needed.reply_bytes + bytes <= self.bytes_max {
            self.needed.watch_bytes = bytes;
        }
    }

    /// Whether that is more than a request may take, however much more there is.
    pub(crate) fn are_too_much(&mut self) -> bool {
        let values = self.bytes - overhead(&self.needed.wants);
        self.needed.is_too_much = values.max(self.needed.reply_bytes) > self.bytes_max;
        self.needed.is_too_much
    }
}

/// What values that are fetched take beside themselves. The limit of clients is about their bytes alone.
pub(crate) fn overhead(wants: &[Want]) -> u64 {
    wants.len() as u64 * VALUE_OVERHEAD_BYTES as u64
}

/// Memory of a value that is fetched.
pub(crate) fn value_bytes(want: &Want) -> u64 {
    u64::from(want.value_len.max(want.at.stored_len)) + VALUE_OVERHEAD_BYTES as u64
}

/// Bytes of all arguments.
pub(crate) fn args_bytes(args: Args<'_>) -> u64 {
    args.iter().map(|arg| arg.len() as u64).sum()
}

/// Bytes beyond which no more values are fetched for the requests that follow.
fn fetch_bytes_max(server: &Server) -> u64 {
    let max_memory = server.config.maxmemory.load();
    let part = if max_memory == 0 { u64::MAX } else { max_memory >> FETCH_AHEAD_SHIFT };
    part.min(FETCH_BYTES_MAX as u64).min(bytes_free(server) / 4)
}

impl Pipeline<'_> {
    /// Answers that a request needs more memory than it may take. Nothing of it has run.
    #[cold]
    pub(super) fn refuse_for_memory(
        &mut self,
        entry: Option<&'static Entry>,
        bytes: u64,
    ) -> Outcome {
        let (session, reply) = (&mut *self.session, &mut *self.reply);
        let length = reply.len();
        let text = refusal(session.server(), bytes);
        reply.set_protocol(session.protocol);
        let is_exec = entry.is_some_and(|entry| matches!(entry.run, Run::Transaction(Verb::Exec)));
        if is_exec {
            session.discard();
            let reason = text.strip_prefix("ERR ").unwrap_or(&text);
            reply.error(format!("EXECABORT Transaction discarded because of: {reason}"));
        } else {
            session.transaction.fail();
            reply.error(&text);
        }
        let stats = &session.worker.stats;
        stats.count_error(text.as_bytes());
        if let Some(entry) = entry {
            stats.commands[entry.index].rejected.add(1);
        }
        finish_reply(session, reply, length);
        Outcome::NotRun
    }

    /// What a request needs, together with what is fetched for those behind it: keeps what it has of that, and
    /// adds the cold values of the requests that follow as far as memory allows, so that all reads
    /// of a pipeline fly together. Errors: what the request itself needs is more than it may take.
    ///
    /// So what a request has only grows from run to run. It runs again for values that it did not name before,
    /// or that were written or moved meanwhile, and `ATTEMPTS_MAX` bounds how often it may name no more than
    /// before.
    pub(super) fn needs_of_batch(&mut self, mut needed: Needed) -> Result<Needed, TooMuch> {
        let mut wants = std::mem::take(&mut needed.wants);
        let Pipeline { session, batch, input, fetched, .. } = self;
        let server = session.server();
        sort_wants(&mut wants);
        let mut bytes: u64 = wants.iter().map(value_bytes).sum();
        let own_max = request_bytes_max(server);
        // Its arguments stay until the reply is there.
        let args = batch.current().map_or(0, |request| args_bytes(batch.args(&request, input)));
        let of_client = args + (bytes - overhead(&wants)).max(needed.reply_bytes);
        if needed.is_too_much || of_client > own_max {
            let own_max = NonZeroU64::new(own_max).expect("invariant: at least a read buffer");
            return Err(TooMuch(own_max));
        }
        let (tier, keyspace) = (&session.worker.tier, &*server.tier.keyspace);
        let mut add = |key: &Key<'_>| {
            let slot = keyspace.lock(key.slot);
            let want = cold(tier, &slot, keyspace.table_of(session.db), key);
            wants.extend(want);
            want.as_ref().map_or(0, value_bytes)
        };
        let bytes_max = fetch_bytes_max(server);
        for request in batch.rest().iter().skip(1) {
            let Some(entry) = request.entry else { continue };
            let args = batch.args(request, input);
            if bytes > bytes_max || !entry.spec.takes(args.len()) {
                break;
            }
            match request.key(args) {
                Some(key) if entry.spec.keys[0].needs == command::Needs::Value => {
                    bytes += add(&key)
                }
                Some(_) => {}
                None => {
                    for (key, at) in keys_with_needs(entry, args) {
                        if bytes <= bytes_max && at.needs == command::Needs::Value {
                            bytes += add(&key);
                        }
                    }
                }
            }
        }
        sort_wants(&mut wants);
        fetched.keep(&wants);
        wants.retain(|want| !fetched.has(want.record));
        Ok(Needed { wants, ..needed })
    }
}
