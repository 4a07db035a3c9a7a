//! Values that were hot before a start come back to RAM, hottest first, as long as memory is free.
//!
//! A load leaves values on flash, with the frequency that the checkpoint has of each: the hit ratio would recover only as
//! each is asked for. Nothing is demoted for them, and few are read at a time, so that reads of clients wait for few.

use std::sync::atomic::Ordering;

use keyspace::{DB_COUNT, Db, Key, SLOT_COUNT, ScanPosition, Stored, Tally};

use crate::background::Background;
use crate::fetch::{FetchedSet, VALUE_OVERHEAD_BYTES, Want, sort_wants};
use crate::limits::{
    READ_BACK_BYTES_MAX, READ_BACK_ENTRIES_MAX, READ_BACK_PAUSES_MAX, READ_BACK_VALUES_MAX,
};
use crate::worker::TierWorker;

/// Frequencies of values that are read back, the hottest first.
const FREQUENCIES: [u8; 3] = [3, 2, 1];

/// What was read back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadBack {
    /// Values.
    pub values: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// Where the walk goes on.
#[derive(Clone, Copy, Default)]
struct Place {
    slot: u16,
    table: u8,
    position: ScanPosition,
}

/// A value that is on flash.
struct Found {
    slot: u16,
    table: u8,
    key: Box<[u8]>,
    want: Want,
}

/// What one step has found.
#[derive(Default)]
struct Batch {
    found: Vec<Found>,
    bytes: u64,
}

impl Batch {
    fn add(&mut self, found: Found) {
        self.bytes += u64::from(found.want.value_len) + VALUE_OVERHEAD_BYTES as u64;
        self.found.push(found);
    }

    fn is_full(&self) -> bool {
        self.found.len() >= READ_BACK_VALUES_MAX || self.bytes >= READ_BACK_BYTES_MAX
    }
}

impl TierWorker {
    /// Brings values back to RAM that are on flash and were used lately, where memory is free, as long as it `goes_on`. After
    /// every batch it awaits `others`; where memory is not free `pause`, a thousand times in all, for a load may leave
    /// what comes free by itself. A value that cannot be read stays where it is: whoever asks for it is told.
    pub async fn read_back(
        &self,
        goes_on: impl Fn() -> bool,
        others: impl AsyncFn(),
        pause: impl AsyncFn(),
    ) -> ReadBack {
        let (mut all, mut pauses) = (ReadBack::default(), 0);
        for frequency in FREQUENCIES {
            let mut next = Some(Place::default());
            while let Some(place) = next {
                while goes_on() && !self.tier.has_free_memory() && pauses < READ_BACK_PAUSES_MAX {
                    pauses += 1;
                    pause().await;
                }
                if !goes_on() || !self.tier.has_free_memory() {
                    return all;
                }
                let (batch, more) = self.find_used(place, frequency);
                self.bring_back(batch, &mut all).await;
                others().await;
                next = more;
            }
        }
        all
    }

    /// Finds values on flash that were used so often lately. Returns where to go on, none at the end.
    fn find_used(&self, mut place: Place, frequency: u8) -> (Batch, Option<Place>) {
        let mut batch = Batch::default();
        let mut entries_left = READ_BACK_ENTRIES_MAX;
        while !batch.is_full() && entries_left > 0 {
            let slot = self.tier.keyspace.lock(place.slot);
            while usize::from(place.table) < DB_COUNT && !batch.is_full() && entries_left > 0 {
                let table = place.table;
                let more =
                    slot.scan_used(table, place.position, (frequency, entries_left), |view| {
                        if let Stored::Cold(at, value_len) = view.stored
                            && u64::from(value_len) <= READ_BACK_BYTES_MAX
                        {
                            let want = self.tier.want_at(at, view.key.len() as u32, value_len);
                            batch.add(Found {
                                slot: place.slot,
                                table,
                                key: view.key.into(),
                                want,
                            });
                        }
                        batch.is_full()
                    });
                entries_left = entries_left.saturating_sub(slot.len(table).max(1));
                place.position = more.unwrap_or_default();
                place.table += u8::from(more.is_none());
            }
            drop(slot);
            if usize::from(place.table) == DB_COUNT {
                place = Place { slot: place.slot + 1, ..Place::default() };
            }
            if usize::from(place.slot) == SLOT_COUNT {
                return (batch, None);
            }
        }
        (batch, Some(place))
    }

    /// Reads values, and puts those into RAM that are where they were.
    async fn bring_back(&self, batch: Batch, all: &mut ReadBack) {
        let Batch { found, bytes } = batch;
        if found.is_empty() {
            return;
        }
        let _memory = Background::small(&self.tier, bytes);
        let mut wants: Vec<Want> = found.iter().map(|found| found.want).collect();
        sort_wants(&mut wants);
        let fetched = self.fetch(wants).await;
        let mut tally = Tally::default();
        let mut values = 0;
        for found in &found {
            if self.put_back(found, &fetched, &mut tally) {
                values += 1;
                all.bytes += u64::from(found.want.value_len);
            }
        }
        all.values += values;
        self.tier.add_tally(&mut tally);
        for counter in [&self.tier.counters.promoted, &self.tier.counters.read_back] {
            counter.fetch_add(values, Ordering::Relaxed);
        }
        drop(fetched);
        self.buffers_released();
    }

    fn put_back(&self, found: &Found, fetched: &FetchedSet, tally: &mut Tally) -> bool {
        let tier = &*self.tier;
        if fetched.failure(found.want.record).is_some() {
            return false;
        }
        let mut slot = tier.keyspace.lock(found.slot);
        // At the time 0 nothing has expired, and so nothing changes that had to be counted.
        let mut db = Db::new(&mut slot, found.table, 0, tally);
        db.promote_with(&Key::in_slot(&found.key, found.slot), |at, _| {
            fetched.value(tier.record_id(at)).map(Box::from)
        })
    }
}
