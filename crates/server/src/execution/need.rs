//! The memory that a request needs before it can run, and what is fetched for it.

use command::Needs;
use keyspace::Key;
use resp::Args;
use tier::{VALUE_OVERHEAD_BYTES, Want, sort_wants};

use crate::execution::dispatch::{Pipeline, finish_reply};
use crate::execution::keys::keys_with_needs;
use crate::execution::outcome::Outcome;
use crate::limits::{FETCH_AHEAD_SHIFT, FETCH_BYTES_MAX};
use crate::session::cold::cold;
use crate::state::client_memory::{bytes_free, refusal, request_bytes_max};
use crate::state::registry::{Entry, Run, Verb};
use crate::state::server::Server;

/// What a request needs is more than it may take: more than so many bytes.
pub(super) struct TooMuch(pub(super) u64);

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

    /// What to fetch for a request, `wants` being all that it needs: keeps what it has of that, and
    /// adds the cold values of the requests that follow as far as memory allows, so that all reads
    /// of a pipeline fly together. Errors: what the request itself needs is more than it may take.
    ///
    /// So what a request has only grows from run to run. It runs again for a value that it did not
    /// name before, or that was written or moved meanwhile, and `ATTEMPTS_MAX` bounds how often.
    pub(super) fn wants_of_batch(&mut self, mut wants: Vec<Want>) -> Result<Vec<Want>, TooMuch> {
        let Pipeline { session, batch, input, fetched, .. } = self;
        let server = session.server();
        sort_wants(&mut wants);
        let mut bytes: u64 = wants.iter().map(value_bytes).sum();
        let own_max = request_bytes_max(server);
        if bytes > own_max {
            return Err(TooMuch(own_max));
        }
        fetched.keep(&wants);
        let (tier, keyspace) = (&server.tier, &*server.tier.keyspace);
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
                Some(key) if entry.spec.keys[0].needs == Needs::Value => bytes += add(&key),
                Some(_) => {}
                None => {
                    for (key, at) in keys_with_needs(entry, args) {
                        if bytes <= bytes_max && at.needs == Needs::Value {
                            bytes += add(&key);
                        }
                    }
                }
            }
        }
        wants.retain(|want| !fetched.has(want.record));
        sort_wants(&mut wants);
        Ok(wants)
    }
}
