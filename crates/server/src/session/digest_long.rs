//! The digest of a value that is too long to be looked at in one go: a long string, or a large collection.
//!
//! It is read in windows, between which others have their turn. The key is watched meanwhile, as by WATCH; when it
//! changes, the digest is begun again, and in the end its slot is held until all is read.

use std::sync::Arc;

use command::collection::{LeafAt, leaves};
use keyspace::{Key, SlotState, Stored, View, WatchFlag};
use tier::{Background, FetchedSet, UnreadableValue, VALUE_OVERHEAD_BYTES, Want, sort_wants};
use value::Kind;
use value::digest::{Digest, LongText};

use crate::limits::{ATTEMPTS_MAX, DIGESTED_BYTES_MAX, DIGESTED_LEAVES_MAX};
use crate::session::digest::{others, pause};
use crate::state::worker::Worker;

/// Adds the value of a key of a database to a digest. None: there is none any more.
pub(super) async fn chain_long(
    worker: &Worker,
    digest: Digest,
    db: u8,
    key: &[u8],
) -> Result<Option<Digest>, UnreadableValue> {
    let key = Key::new(key);
    for attempt in 0..=ATTEMPTS_MAX {
        // Each time: SWAPDB may have changed it.
        let table = worker.server.tier.keyspace.table_of(db);
        let mut long = Long::watched(worker, table, key);
        match long.chain(digest, attempt == ATTEMPTS_MAX).await? {
            Chained::Whole(digest) => return Ok(Some(digest)),
            Chained::Missing => return Ok(None),
            Chained::Changed => others().await,
        }
    }
    unreachable!("nobody changes it while its slot is held")
}

enum Chained {
    Whole(Digest),
    Missing,
    /// Somebody has changed it meanwhile.
    Changed,
}

/// A long value, which is watched until this is dropped.
struct Long<'a> {
    worker: &'a Worker,
    table: u8,
    key: Key<'a>,
    changed: Arc<WatchFlag>,
    /// What was read of it last.
    fetched: FetchedSet,
    /// The memory that this takes.
    memory: Option<Background>,
}

impl Drop for Long<'_> {
    fn drop(&mut self) {
        let mut slot = self.worker.server.tier.keyspace.lock(self.key.slot);
        slot.unwatch(self.key.bytes, &self.changed);
    }
}

/// What is there of a long value.
enum Parts {
    /// The bytes of a value by itself.
    Value(usize),
    /// The leaves of a collection, and the memory that the list takes.
    Leaves { leaves: Vec<LeafAt>, _memory: Background },
}

/// What comes of a wish to look at a window.
enum Looked {
    /// It was added; so much of it.
    Added(usize),
    /// These are on flash.
    Lacks(Vec<Want>),
    Changed,
}

impl<'a> Long<'a> {
    fn watched(worker: &'a Worker, table: u8, key: Key<'a>) -> Long<'a> {
        let changed = Arc::default();
        worker.server.tier.keyspace.lock(key.slot).watch(table, key.bytes, &changed);
        Long { worker, table, key, changed, fetched: FetchedSet::default(), memory: None }
    }

    /// `is_held`: with its slot held from the first to the last.
    async fn chain(&mut self, digest: Digest, is_held: bool) -> Result<Chained, UnreadableValue> {
        if is_held {
            let (worker, bytes) = (self.worker, self.window_bytes_max());
            let pause = async || pause(worker).await;
            self.memory = Some(worker.tier.reserve_to_read(bytes, &pause).await?);
        }
        let Some((parts, mut sum)) = self.begin(digest, is_held)? else {
            return Ok(Chained::Missing);
        };
        if !is_held && !self.chain_in_turns(&parts, &mut sum).await? {
            return Ok(Chained::Changed);
        }
        Ok(Chained::Whole(sum.end()))
    }

    /// What is read of it at a time, at most, as it is now.
    fn window_bytes_max(&self) -> u64 {
        let slot = self.worker.server.tier.keyspace.lock(self.key.slot);
        let len = |table, key: &Key<'_>| slot.view(table, key).map_or(0, |view| view.value_len());
        let is_tree = |view: View<'_>| Kind::from_bits(view.kind).is_tree();
        let longest = match slot.view(self.table, &self.key).is_some_and(is_tree) {
            false => len(self.table, &self.key),
            true => {
                let leaves = leaves(&slot, self.table, &self.key);
                let longest = leaves.iter().map(|leaf| len(leaf.table(), &leaf.key())).max();
                longest.unwrap_or(0)
            }
        };
        let overhead = DIGESTED_LEAVES_MAX * VALUE_OVERHEAD_BYTES;
        (longest.max(DIGESTED_BYTES_MAX) + overhead) as u64
    }

    /// Begins, or does all of it with the slot held.
    fn begin(
        &mut self,
        mut digest: Digest,
        is_held: bool,
    ) -> Result<Option<(Parts, Sum)>, UnreadableValue> {
        let (tier, table, key) = (&self.worker.server.tier, self.table, self.key);
        let slot = tier.keyspace.lock(key.slot);
        let Some(view) = slot.view(table, &key) else { return Ok(None) };
        let (kind, expires) = (Kind::from_bits(view.kind), view.expire_at_ms != 0);
        let parts = if kind.is_tree() {
            let leaves = leaves(&slot, table, &key);
            let bytes = size_of_val(&leaves[..]) as u64;
            Parts::Leaves { leaves, _memory: Background::small(tier, bytes) }
        } else {
            Parts::Value(view.value_len())
        };
        digest.chain_type(kind);
        let mut sum = Sum { digest, kind, expires, text: LongText::default() };
        if is_held {
            self.chain_held(&slot, &parts, &mut sum)?;
        }
        Ok(Some((parts, sum)))
    }

    /// False: it has changed.
    async fn chain_in_turns(
        &mut self,
        parts: &Parts,
        sum: &mut Sum,
    ) -> Result<bool, UnreadableValue> {
        let (mut from, mut fetches) = (0, 0);
        while from < parts.len() {
            let looked = self.look_unlocked(parts, from, (sum, fetches == ATTEMPTS_MAX))?;
            match looked {
                Looked::Added(count) => (from, fetches) = (from + count, 0),
                Looked::Lacks(wants) => {
                    fetches += 1;
                    self.fetch(wants).await?;
                }
                Looked::Changed => return Ok(false),
            }
            others().await;
        }
        Ok(true)
    }

    /// Adds the next window, with its slot held meanwhile. What is on flash is read with it held if `is_held`: it has
    /// moved again and again, and the memory for it is there.
    fn look_unlocked(
        &mut self,
        parts: &Parts,
        from: usize,
        (sum, is_held): (&mut Sum, bool),
    ) -> Result<Looked, UnreadableValue> {
        let slot = self.worker.server.tier.keyspace.lock(self.key.slot);
        if self.changed.is_raised() {
            return Ok(Looked::Changed);
        }
        match self.look(&slot, parts, from, sum)? {
            Looked::Lacks(_) if is_held => {}
            looked => return Ok(looked),
        }
        // All of it, in place of what was read where it no longer is.
        self.fetched.clear();
        let Looked::Lacks(wants) = self.look(&slot, parts, from, sum)? else {
            unreachable!("its slot is held, and nothing was read");
        };
        self.fetched = self.worker.tier.fetch_blocking(wants);
        self.look(&slot, parts, from, sum)
    }

    fn chain_held(
        &mut self,
        slot: &SlotState,
        parts: &Parts,
        sum: &mut Sum,
    ) -> Result<(), UnreadableValue> {
        let mut from = 0;
        while from < parts.len() {
            match self.look(slot, parts, from, sum)? {
                Looked::Added(count) => from += count,
                Looked::Lacks(wants) => self.fetched = self.worker.tier.fetch_blocking(wants),
                Looked::Changed => unreachable!("its slot is held"),
            }
        }
        Ok(())
    }

    /// Adds the next window, if all of it is at hand.
    fn look(
        &self,
        slot: &SlotState,
        parts: &Parts,
        from: usize,
        sum: &mut Sum,
    ) -> Result<Looked, UnreadableValue> {
        match parts {
            Parts::Value(len) => self.look_at_value(slot, *len, from, sum),
            Parts::Leaves { leaves, .. } => self.look_at_leaves(slot, &leaves[from..], sum),
        }
    }

    fn look_at_value(
        &self,
        slot: &SlotState,
        len: usize,
        from: usize,
        sum: &mut Sum,
    ) -> Result<Looked, UnreadableValue> {
        let view = slot.view(self.table, &self.key).filter(|view| view.value_len() == len);
        let Some(view) = view else { return Ok(Looked::Changed) };
        let value = match self.bytes(&self.key, view.stored)? {
            Ok(value) => value,
            Err(want) => return Ok(Looked::Lacks(vec![want])),
        };
        if !sum.kind.is_string() {
            sum.digest.chain_elements(sum.kind, value);
            return Ok(Looked::Added(len));
        }
        let end = len.min(from + DIGESTED_BYTES_MAX);
        sum.text.add(&value[from..end]);
        Ok(Looked::Added(end - from))
    }

    fn look_at_leaves(
        &self,
        slot: &SlotState,
        leaves: &[LeafAt],
        sum: &mut Sum,
    ) -> Result<Looked, UnreadableValue> {
        let (mut lacked, mut found, mut bytes) = (Vec::new(), Vec::new(), 0);
        for leaf in leaves.iter().take(DIGESTED_LEAVES_MAX) {
            let Some(view) = slot.view(leaf.table(), &leaf.key()) else {
                return Ok(Looked::Changed);
            };
            bytes += view.value_len();
            if bytes > DIGESTED_BYTES_MAX && bytes > view.value_len() {
                break;
            }
            match self.bytes(&leaf.key(), view.stored)? {
                Ok(value) => found.push(value),
                Err(want) => lacked.push(want),
            }
        }
        if !lacked.is_empty() {
            return Ok(Looked::Lacks(lacked));
        }
        found.iter().for_each(|leaf| sum.digest.chain_elements(sum.kind, leaf));
        Ok(Looked::Added(found.len()))
    }

    /// A value, or what is to be read of it.
    fn bytes<'v>(
        &'v self,
        key: &Key<'_>,
        stored: Stored<'v>,
    ) -> Result<Result<&'v [u8], Want>, UnreadableValue> {
        let (at, len) = match stored {
            Stored::Hot(value) | Stored::Clean(value, _) => return Ok(Ok(value)),
            Stored::Cold(at, len) => (at, len),
        };
        let want = self.worker.server.tier.want(key, at, len);
        if let Some(failure) = self.fetched.failure(want.record) {
            return Err(UnreadableValue(failure.to_owned()));
        }
        Ok(self.fetched.value(want.record).ok_or(want))
    }

    /// Reads values, once there is memory for them.
    async fn fetch(&mut self, mut wants: Vec<Want>) -> Result<(), UnreadableValue> {
        // To hold read buffers while waiting for more could make all wait for ever.
        self.fetched.clear();
        self.memory = None;
        self.worker.tier.buffers_released();
        sort_wants(&mut wants);
        self.memory =
            Some(self.worker.tier.reserve_for(&wants, &async || pause(self.worker).await).await?);
        self.fetched = self.worker.tier.fetch(wants).await;
        Ok(())
    }
}

impl Parts {
    fn len(&self) -> usize {
        match self {
            Parts::Value(len) => *len,
            Parts::Leaves { leaves, .. } => leaves.len(),
        }
    }
}

/// A digest under way.
struct Sum {
    digest: Digest,
    kind: Kind,
    expires: bool,
    /// Of a string, what there is of it.
    text: LongText,
}

impl Sum {
    fn end(mut self) -> Digest {
        if self.kind.is_string() {
            self.digest.chain_long(self.text);
        }
        self.digest.end_value(self.expires);
        self.digest
    }
}

#[cfg(test)]
mod tests {
    use keyspace::{Db, Expiry};

    use super::*;
    use crate::state::client_memory::tests::server;

    #[test]
    fn a_value_that_was_read_with_its_slot_held_is_not_watched_any_more() {
        let worker = Worker::new(Arc::new(server()), 0).expect("a worker without flash");
        let (keyspace, key) = (&worker.server.tier.keyspace, Key::new(b"key"));
        let mut tally = worker.server.tier.tally();
        let mut slot = keyspace.lock(key.slot);
        Db::new(&mut slot, 0, 1, &mut tally).put(&key, 0, b"value", Expiry::Clear);
        drop(slot);
        worker.server.tier.add_tally(&mut tally);
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        let mut long = Long::watched(&worker, 0, key);
        let chained = runtime.block_on(long.chain(Digest::default(), true));
        assert!(matches!(chained, Ok(Chained::Whole(_))));
        drop(long);
        assert_eq!(keyspace.lock(key.slot).watchers(), 0);
    }
}
