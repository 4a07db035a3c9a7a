//! Walks over values wherever they are: those in RAM are visited where they stand, those on flash
//! are read in batches.
//!
//! 1. A walk is no access: nothing is promoted, no frequency rises, no key expires by it.
//! 2. A slot is locked while its keys are looked at, and never across an await. So a walk over
//!    everything is no snapshot: what others change meanwhile is visited as it was or as it is, and
//!    a key that moves may be missed or come twice. While nobody writes, each comes once.
//! 3. A batch has bounds in keys and in bytes, whatever the size of the data set.

use keyspace::{DB_COUNT, Db, Key, SLOT_COUNT, ScanPosition, Stored, Tally, View};

use crate::background::Background;
use crate::fetch::{FetchedSet, VALUE_OVERHEAD_BYTES, Want, sort_wants};
use crate::tier::TierError;
use crate::worker::TierWorker;

/// Keys whose values are read from flash in one batch.
const BATCH_KEYS_MAX: usize = 256;
/// Bytes of values that are read from flash at a time: this part of `maxmemory`, 1/128, within bounds. One value may
/// exceed it.
const BATCH_SHIFT: u32 = 7;
const BATCH_BYTES_MIN: u64 = 256 << 10;
const BATCH_BYTES_MAX: u64 = 1 << 20;
/// A longer one is not read: whoever wants it reads it by itself.
const VISITED_BYTES_MAX: usize = 256 << 10;
/// Slots that one step passes before others get their turn.
const STEP_SLOTS_MAX: usize = 256;
/// Keys that it visits.
const STEP_KEYS_MAX: usize = 1024;
/// Bytes of values that it visits; one value may exceed it.
const STEP_BYTES_MAX: usize = 512 << 10;
/// How often a value is fetched that has moved when it arrives, before it is read with its slot
/// held.
const ATTEMPTS_MAX: u32 = 8;

/// A value that a walk has come to.
#[derive(Clone, Copy, Debug)]
pub struct FoundValue<'a> {
    /// The key's database.
    pub db: u8,
    /// The key.
    pub key: &'a [u8],
    /// Type and encoding.
    pub kind: u8,
    /// Unix milliseconds, 0 for none. The time may have come.
    pub expire_at_ms: u64,
    /// The value's bytes. None: it is long.
    pub value: Option<&'a [u8]>,
}

/// A value is on flash and cannot be read back.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot read the value of a key: {0}")]
pub struct UnreadableValue(pub String);

/// What is done with each value, its slot being locked.
type Visit<'a> = dyn FnMut(FoundValue<'_>) + 'a;

/// Where a walk over everything goes on.
#[derive(Clone, Copy)]
struct Place {
    slot: u16,
    table: u8,
    position: ScanPosition,
}

/// A key whose value is wanted.
struct Sought {
    db: u8,
    /// The table where it was found; none: that of the database at the time.
    table: Option<u8>,
    key: Box<[u8]>,
    /// How often its value has been fetched.
    attempts: u32,
}

/// What one step may still do.
struct Step {
    keys_left: usize,
    bytes_left: usize,
    /// What it found on flash.
    cold: Vec<Sought>,
}

impl TierWorker {
    /// Visits the values of all databases, expired keys that are still there included. After every
    /// batch it awaits `others`, which gives other tasks their turn; between two looks for memory, `pause`.
    ///
    /// Errors: a value cannot be read; the walk ends there.
    pub async fn visit_all(
        &self,
        visit: &mut Visit<'_>,
        others: impl AsyncFn(),
        pause: impl AsyncFn(),
    ) -> Result<(), UnreadableValue> {
        let databases = self.databases();
        let mut next = Some(Place { slot: 0, table: 0, position: ScanPosition::default() });
        while let Some(place) = next {
            let mut step = Step::new();
            next = self.visit_resident(place, &databases, &mut step, visit);
            self.visit_sought(step.cold, visit, &pause).await?;
            others().await;
        }
        Ok(())
    }

    /// Visits the values of some keys of a database, in no particular order; missing ones are
    /// passed over.
    ///
    /// Errors and turns of others: as [`TierWorker::visit_all`].
    pub async fn visit_keys(
        &self,
        db: u8,
        keys: &[Box<[u8]>],
        visit: &mut Visit<'_>,
        others: impl AsyncFn(),
        pause: impl AsyncFn(),
    ) -> Result<(), UnreadableValue> {
        for batch in keys.chunks(BATCH_KEYS_MAX) {
            let seek = |key| Sought { db, table: None, key, attempts: 0 };
            self.visit_sought(batch.iter().cloned().map(seek).collect(), visit, &pause).await?;
            others().await;
        }
        Ok(())
    }

    fn batch_bytes_max(&self) -> u64 {
        match self.tier.budget.max_bytes() {
            0 => BATCH_BYTES_MAX,
            bytes => (bytes >> BATCH_SHIFT).clamp(BATCH_BYTES_MIN, BATCH_BYTES_MAX),
        }
    }

    /// The database of each table.
    fn databases(&self) -> [u8; DB_COUNT] {
        let mut databases = [0; DB_COUNT];
        for db in 0..DB_COUNT as u8 {
            databases[usize::from(self.tier.keyspace.table_of(db))] = db;
        }
        databases
    }

    /// Visits values in RAM from `place` on and notes those on flash. Returns where to go on, none
    /// at the end.
    fn visit_resident(
        &self,
        mut place: Place,
        databases: &[u8; DB_COUNT],
        step: &mut Step,
        visit: &mut Visit<'_>,
    ) -> Option<Place> {
        let slot_end = (usize::from(place.slot) + STEP_SLOTS_MAX).min(SLOT_COUNT) as u16;
        while place.slot < slot_end && !step.is_done() {
            let slot = self.tier.keyspace.lock(place.slot);
            while usize::from(place.table) < DB_COUNT && !step.is_done() {
                let (db, table) = (databases[usize::from(place.table)], place.table);
                let more = slot.scan(table, place.position, |view| {
                    step.pass(db, table, view, visit);
                    step.is_done()
                });
                place.position = more.unwrap_or_default();
                place.table += u8::from(more.is_none());
            }
            if usize::from(place.table) == DB_COUNT {
                place = Place { slot: place.slot + 1, table: 0, position: ScanPosition::default() };
            }
        }
        (usize::from(place.slot) < SLOT_COUNT).then_some(place)
    }

    /// Visits the values of keys, fetching what is on flash.
    async fn visit_sought(
        &self,
        mut sought: Vec<Sought>,
        visit: &mut Visit<'_>,
        pause: &impl AsyncFn(),
    ) -> Result<(), UnreadableValue> {
        let (mut fetched, mut memory) = (FetchedSet::default(), None);
        while !sought.is_empty() {
            let wants = self.visit_fetched(&mut sought, &fetched, visit)?;
            if wants.is_empty() {
                continue;
            }
            // To hold read buffers while waiting for more could make all wait for ever.
            fetched.clear();
            self.buffers_released();
            drop(memory.take());
            memory = Some(self.reserve_for(&wants, pause).await?);
            fetched = self.fetch(wants).await;
        }
        Ok(())
    }

    /// Reserves memory for what is to be read, as [`TierWorker::reserve_to_read`] does.
    pub async fn reserve_for(
        &self,
        wants: &[Want],
        pause: &impl AsyncFn(),
    ) -> Result<Background, UnreadableValue> {
        let of_want = |want: &Want| want.value_len as u64 + VALUE_OVERHEAD_BYTES as u64;
        self.reserve_to_read(wants.iter().map(of_want).sum(), pause).await
    }

    /// Reserves so many bytes, and waits until they are there if they are more than a batch may take; `pause` waits
    /// between two looks. Errors: they cannot be had.
    pub async fn reserve_to_read(
        &self,
        bytes: u64,
        pause: &impl AsyncFn(),
    ) -> Result<Background, UnreadableValue> {
        if bytes <= 2 * self.batch_bytes_max() {
            return Ok(Background::small(&self.tier, bytes));
        }
        let reserved = Background::in_turns(&self.tier, bytes, pause).await;
        reserved.ok_or_else(|| UnreadableValue(TierError::OutOfMemory.to_string()))
    }

    /// Visits the keys whose values are at hand, and takes them off the list with the missing ones.
    /// Returns what to fetch for the others, as much as may be fetched at a time.
    fn visit_fetched(
        &self,
        sought: &mut Vec<Sought>,
        fetched: &FetchedSet,
        visit: &mut Visit<'_>,
    ) -> Result<Vec<Want>, UnreadableValue> {
        let (mut wants, mut bytes, bytes_max) = (Vec::new(), 0, self.batch_bytes_max());
        let mut rest = Vec::new();
        for mut one in sought.drain(..) {
            let Some(want) = self.visit_one(&one, fetched, visit)? else { continue };
            if bytes < bytes_max {
                bytes += u64::from(want.value_len);
                wants.push(want);
                one.attempts += 1;
            }
            rest.push(one);
        }
        *sought = rest;
        sort_wants(&mut wants);
        Ok(wants)
    }

    /// Visits the value of a key if it is at hand. Returns what to fetch when it is not.
    fn visit_one(
        &self,
        sought: &Sought,
        fetched: &FetchedSet,
        visit: &mut Visit<'_>,
    ) -> Result<Option<Want>, UnreadableValue> {
        let key = Key::new(&sought.key);
        let mut slot = self.tier.keyspace.lock(key.slot);
        let table = sought.table.unwrap_or_else(|| self.tier.keyspace.table_of(sought.db));
        // At the time 0 nothing has expired, and so nothing changes that had to be counted.
        let mut tally = Tally::default();
        let found = Db::new(&mut slot, table, 0, &mut tally).into_view(&key);
        let Some(view) = found else { return Ok(None) };
        if view.value_len() > VISITED_BYTES_MAX {
            visit(found_value(sought.db, &view, None));
            return Ok(None);
        }
        let (at, value_len) = match view.stored {
            Stored::Hot(value) | Stored::Clean(value, _) => {
                visit(found_value(sought.db, &view, Some(value)));
                return Ok(None);
            }
            Stored::Cold(at, value_len) => (at, value_len),
        };
        let want = self.tier.want(&key, at, value_len);
        let read_now;
        let fetched = if fetched.has(want.record) {
            fetched
        } else if sought.attempts < ATTEMPTS_MAX {
            return Ok(Some(want));
        } else {
            read_now = self.fetch_blocking(vec![want]);
            &read_now
        };
        if let Some(failure) = fetched.failure(want.record) {
            return Err(UnreadableValue(failure.to_owned()));
        }
        let value = fetched.value(want.record);
        let value = value.expect("invariant: what is had and has not failed is there");
        visit(found_value(sought.db, &view, Some(value)));
        Ok(None)
    }
}

impl Step {
    fn new() -> Step {
        Step { keys_left: STEP_KEYS_MAX, bytes_left: STEP_BYTES_MAX, cold: Vec::new() }
    }

    fn is_done(&self) -> bool {
        self.keys_left == 0 || self.bytes_left == 0 || self.cold.len() >= BATCH_KEYS_MAX
    }

    /// Visits a value, or notes that it is on flash.
    fn pass(&mut self, db: u8, table: u8, view: View<'_>, visit: &mut Visit<'_>) {
        self.keys_left = self.keys_left.saturating_sub(1);
        if view.value_len() > VISITED_BYTES_MAX {
            return visit(found_value(db, &view, None));
        }
        match view.stored {
            Stored::Hot(value) | Stored::Clean(value, _) => {
                self.bytes_left = self.bytes_left.saturating_sub(value.len());
                visit(found_value(db, &view, Some(value)));
            }
            Stored::Cold(..) => {
                let key = view.key.into();
                self.cold.push(Sought { db, table: Some(table), key, attempts: 0 });
            }
        }
    }
}

fn found_value<'a>(db: u8, view: &View<'a>, value: Option<&'a [u8]>) -> FoundValue<'a> {
    let View { key, kind, expire_at_ms, .. } = *view;
    FoundValue { db, key, kind, expire_at_ms, value }
}
