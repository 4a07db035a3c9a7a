//! A client's transaction: what MULTI has queued and WATCH watches.

use std::sync::Arc;

use command::Flags;
use keyspace::{Key, Keyspace, Locked, Tally, WatchFlag};
use resp::{ArgRange, Args};
use tier::Tier;

use crate::limits::{WATCHED_KEY_BYTES, WATCHED_STEP_BYTES};
use crate::state::registry::Entry;

/// A connection's transaction: open or not, what it queued, what it watches.
#[derive(Default)]
pub(crate) struct Transaction {
    pub(crate) is_open: bool,
    /// A command could not be queued: EXEC will refuse.
    pub(crate) has_failed: bool,
    pub(crate) queued: Vec<Queued>,
    pub(crate) bytes: usize,
    pub(crate) flags: u32,
    /// Flags that every queued command has.
    pub(crate) common_flags: Option<u32>,
    pub(crate) flag: Option<Arc<WatchFlag>>,
    pub(crate) watched: Vec<Watched>,
    /// What it takes to watch them.
    pub(crate) watched_bytes: usize,
    /// What of that was counted as the client's.
    counted_bytes: usize,
}

/// A command that waits for EXEC.
pub(crate) struct Queued {
    pub(crate) entry: &'static Entry,
    pub(crate) buffer: Box<[u8]>,
    pub(crate) ranges: Box<[ArgRange]>,
}

/// A key that a client watches.
pub(crate) struct Watched {
    pub(crate) db: u8,
    pub(crate) key: Box<[u8]>,
}

/// The transaction would take more memory than it may.
pub(crate) struct TooLarge;

impl Transaction {
    #[inline]
    pub(crate) fn is_open(&self) -> bool {
        self.is_open
    }

    pub(crate) fn len(&self) -> usize {
        self.queued.len()
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn watched_count(&self) -> usize {
        self.watched.len()
    }

    /// What it takes to watch its keys.
    pub(crate) fn watched_bytes(&self) -> usize {
        self.watched_bytes
    }

    /// Notes that what it watches is counted as the client's.
    pub(crate) fn note_counted(&mut self) {
        self.counted_bytes = self.watched_bytes;
    }

    /// Whether it watches so much more, or less, than was counted that this is to be counted anew.
    #[inline]
    pub(crate) fn is_uncounted(&self) -> bool {
        self.watched_bytes.abs_diff(self.counted_bytes) >= WATCHED_STEP_BYTES
    }

    pub(crate) fn has_flag(&self, flag: Flags) -> bool {
        self.flags & flag.0 != 0
    }

    /// Whether a queued command needs the data.
    pub(crate) fn is_refused_while_loading(&self) -> bool {
        self.common_flags.is_some_and(|flags| flags & Flags::LOADING.0 == 0)
    }

    /// Makes an open transaction's EXEC refuse.
    #[inline]
    pub(crate) fn fail(&mut self) {
        self.has_failed |= self.is_open;
    }

    /// Keeps a command for EXEC.
    pub(crate) fn queue(
        &mut self,
        entry: &'static Entry,
        args: Args<'_>,
        bytes_max: usize,
    ) -> Result<(), TooLarge> {
        let size: usize = args.iter().map(<[u8]>::len).sum();
        let bytes = self.bytes + size + args.len() * size_of::<ArgRange>() + size_of::<Queued>();
        if bytes > bytes_max {
            return Err(TooLarge);
        }
        self.bytes = bytes;
        let mut buffer = Vec::with_capacity(size);
        let ranges = args.iter().map(|arg| {
            let start = buffer.len() as u32;
            buffer.extend_from_slice(arg);
            ArgRange { start, len: arg.len() as u32 }
        });
        let ranges = ranges.collect();
        self.flags |= entry.spec.flags.0;
        self.common_flags = Some(self.common_flags.unwrap_or(u32::MAX) & entry.spec.flags.0);
        self.queued.push(Queued { entry, buffer: buffer.into(), ranges });
        Ok(())
    }

    pub(crate) fn discard(&mut self) {
        self.is_open = false;
        self.has_failed = false;
        self.queued.clear();
        self.queued.shrink_to(64);
        self.bytes = 0;
        self.flags = 0;
        self.common_flags = None;
    }

    pub(crate) fn watch(
        &mut self,
        tier: &Tier,
        db: u8,
        key: &Key<'_>,
        now_ms: u64,
        tally: &mut Tally,
    ) {
        let flag = self.flag.get_or_insert_default();
        let mut slot = tier.keyspace.lock(key.slot);
        let table = tier.keyspace.table_of(db);
        tally.noting = tier.noting();
        // A key that has expired goes before the watch begins: its removal is no change.
        keyspace::Db::new(&mut slot, table, now_ms, tally).peek(key);
        tier.tell(tally);
        if slot.watch(table, key.bytes, flag) {
            self.watched_bytes += watched_key_bytes(key.bytes);
            self.watched.push(Watched { db, key: key.bytes.into() });
        }
    }

    pub(crate) fn unwatch(&mut self, keyspace: &Keyspace) {
        let Some(flag) = self.flag.take() else { return };
        self.watched_bytes = 0;
        for watched in std::mem::take(&mut self.watched) {
            let slot = Key::new(&watched.key).slot;
            keyspace.lock(slot).unwatch(&watched.key, &flag);
        }
    }

    /// The slots of what is watched.
    pub(crate) fn watched_slots(&self) -> impl Iterator<Item = u16> {
        self.watched.iter().map(|watched| Key::new(&watched.key).slot)
    }

    /// Whether a watched key has changed, or expired, since the watch began. The slots of all watched
    /// keys are held, so the answer stays true until they are let go.
    pub(crate) fn is_disturbed(
        &self,
        locked: &mut Locked<'_>,
        now_ms: u64,
        tally: &mut Tally,
    ) -> bool {
        for watched in &self.watched {
            // Removes the key, and raises the flag with it, when its time has come.
            let key = Key::new(&watched.key);
            let table = locked.keyspace().table_of(watched.db);
            keyspace::Db::new(locked.slot(key.slot), table, now_ms, tally).peek(&key);
        }
        self.has_changed_keys()
    }

    /// Whether a watched key is known to have changed since the watch began.
    pub(crate) fn has_changed_keys(&self) -> bool {
        self.flag.as_ref().is_some_and(|flag| flag.is_raised())
    }
}

/// What it takes to watch a key: its name stands with the client and in its slot.
pub(crate) fn watched_key_bytes(key: &[u8]) -> usize {
    2 * key.len() + WATCHED_KEY_BYTES as usize
}

impl Queued {
    pub(crate) fn args(&self) -> Args<'_> {
        Args::new(&self.buffer, &self.ranges)
    }
}
