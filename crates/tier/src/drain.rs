//! All values come back to RAM, and their copies on flash are let go of, so that flash can be switched off.
//!
//! A thread of its own goes from slot to slot, as often as it takes: others may write to slots that it has passed, and what
//! is written where memory is short for a moment still goes to flash. It reads few values at a time, for reads of clients wait
//! behind them, and asks before each time whether there is memory: nothing is demoted or evicted for it.

use flash::{Location, record_size};
use keyspace::{Db, Key, ScanPosition, SlotState, Stored, TABLE_COUNT, Tally};

use crate::background::Background;
use crate::fetch::{FetchedSet, VALUE_OVERHEAD_BYTES, Want, sort_wants};
use crate::limits::{DRAIN_ENTRIES_MAX, READ_BACK_BYTES_MAX, READ_BACK_VALUES_MAX};
use crate::tier::Tier;
use crate::worker::TierWorker;

/// What a value takes in RAM besides its bytes: what its record grows by, rounded.
const RECORD_BYTES: i64 = 24;

/// Memory for all values that are on flash alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DrainRoom {
    /// About what they will take.
    pub wanted_bytes: i64,
    /// What is free, without any value leaving RAM.
    pub free_bytes: i64,
}

impl DrainRoom {
    /// Whether they fit.
    pub fn is_enough(&self) -> bool {
        self.wanted_bytes <= self.free_bytes
    }
}

/// Where the walk goes on in a slot.
#[derive(Clone, Copy, Default)]
struct Place {
    table: u8,
    position: ScanPosition,
}

/// A value with a copy on flash; none is wanted of one that is in RAM as well.
struct Found {
    table: u8,
    key: Box<[u8]>,
    want: Option<Want>,
}

/// What one step has found.
#[derive(Default)]
struct Batch {
    found: Vec<Found>,
    reads: usize,
    bytes: u64,
}

impl Batch {
    fn add(&mut self, found: Found) {
        if let Some(want) = &found.want {
            self.reads += 1;
            self.bytes += u64::from(want.value_len) + VALUE_OVERHEAD_BYTES as u64;
        }
        self.found.push(found);
    }

    fn is_full(&self) -> bool {
        self.reads >= READ_BACK_VALUES_MAX || self.bytes >= READ_BACK_BYTES_MAX
    }
}

impl Tier {
    /// Whether all values would fit into RAM.
    pub fn drain_room(&self) -> DrainRoom {
        let [bytes, count] = [&self.counters.cold_bytes, &self.counters.cold_count]
            .map(|gauge| gauge.load(std::sync::atomic::Ordering::Relaxed).max(0));
        DrainRoom {
            wanted_bytes: bytes + RECORD_BYTES * count,
            free_bytes: (-self.budget.over_watermark()).max(0),
        }
    }

    /// Whether values of so many bytes may come back: they are in memory twice for a moment, and none is demoted for them.
    pub fn has_room_to_drain(&self, bytes: u64) -> bool {
        self.budget.over_watermark() + 2 * bytes as i64 <= 0 && !self.budget.is_full_with(bytes)
    }
}

impl TierWorker {
    /// Brings the values of a slot back to RAM that are on flash, and lets go of the copies of all. `may_take` is asked for each
    /// few, by their bytes, with nothing held.
    ///
    /// Errors: those of `may_take`; a value that cannot be read, by `unreadable`.
    pub fn drain_slot<E>(
        &self,
        slot: u16,
        may_take: &impl Fn(u64) -> Result<(), E>,
        unreadable: impl Fn(&str) -> E,
    ) -> Result<(), E> {
        let mut next = Some(Place::default());
        while let Some(place) = next {
            let (batch, more) = self.find_copies(slot, place);
            may_take(batch.bytes)?;
            self.take_back(slot, batch).map_err(|failure| unreadable(&failure))?;
            next = more;
        }
        Ok(())
    }

    /// Finds some values of a slot that have copies on flash. Returns where to go on, none at the end.
    fn find_copies(&self, number: u16, mut place: Place) -> (Batch, Option<Place>) {
        let mut batch = Batch::default();
        let mut passed = 0;
        let slot = self.tier.keyspace.lock(number);
        while usize::from(place.table) < TABLE_COUNT && !batch.is_full() {
            if passed >= DRAIN_ENTRIES_MAX {
                return (batch, Some(place));
            }
            let table = place.table;
            let more = slot.scan(table, place.position, |view| {
                passed += 1;
                let want = match view.stored {
                    Stored::Hot(_) => return passed >= DRAIN_ENTRIES_MAX,
                    Stored::Clean(..) => None,
                    Stored::Cold(at, len) => {
                        Some(self.tier.want_at(at, view.key.len() as u32, len))
                    }
                };
                batch.add(Found { table, key: view.key.into(), want });
                batch.is_full() || passed >= DRAIN_ENTRIES_MAX
            });
            place.position = more.unwrap_or_default();
            place.table += u8::from(more.is_none());
        }
        let is_end = usize::from(place.table) == TABLE_COUNT;
        (batch, (!is_end).then_some(place))
    }

    /// Reads values, and puts those into RAM that are where they were.
    ///
    /// Errors: one cannot be read.
    fn take_back(&self, number: u16, batch: Batch) -> Result<(), String> {
        let Batch { found, bytes, .. } = batch;
        if found.is_empty() {
            return Ok(());
        }
        let _memory = Background::small(&self.tier, bytes);
        let mut wants: Vec<Want> = found.iter().filter_map(|found| found.want).collect();
        sort_wants(&mut wants);
        let fetched = self.fetch_now(wants);
        let mut tally = Tally::default();
        let mut slot = self.tier.keyspace.lock(number);
        let back = found.iter().try_for_each(|found| {
            let key = Key::in_slot(&found.key, number);
            self.let_go(&mut slot, (found.table, &key), &fetched, &mut tally)
        });
        drop(slot);
        self.tier.add_tally(&mut tally);
        back
    }

    /// Has a value in RAM alone, if it was read or is there as well. Where it has moved it stays as it is.
    ///
    /// Errors: it cannot be read.
    fn let_go(
        &self,
        slot: &mut SlotState,
        (table, key): (u8, &Key<'_>),
        fetched: &FetchedSet,
        tally: &mut Tally,
    ) -> Result<(), String> {
        let tier = &*self.tier;
        // At the time 0 nothing has expired, and so nothing changes that had to be counted.
        let mut db = Db::new(slot, table, 0, tally);
        let (at, is_back) = match db.peek(key).map(|view| view.stored) {
            None | Some(Stored::Hot(_)) => return Ok(()),
            Some(Stored::Clean(_, at)) => (at, db.forget_copy(key, at)),
            Some(Stored::Cold(at, _)) => {
                let record = tier.record_id(at);
                if let Some(failure) = fetched.failure(record) {
                    return Err(failure.to_owned());
                }
                (at, fetched.value(record).is_some_and(|value| db.restore(key, at, value)))
            }
        };
        if is_back && let Some(engine) = &*tier.flash.engine() {
            let size = record_size(key.bytes.len(), at.stored_len as usize);
            engine.release(Location::from_units(at.units), size);
        }
        Ok(())
    }
}
