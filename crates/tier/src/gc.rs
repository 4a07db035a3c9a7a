//! Garbage collection of the flash log: how much, and what the keyspace answers gc.

use std::cell::RefCell;
use std::sync::atomic::Ordering;

use flash::{GcProgress, Liveness, Location, Owner, Record, RecordMeta};
use keyspace::{DB_COUNT, Db, Evictable, Key, Stored, Tally};

use crate::controller::evicts_from_flash;
use crate::policy::EvictionPolicy;
use crate::tier::Tier;
use crate::worker::TierWorker;

/// Bytes that one step deals with at most.
const STEP_BYTES_MAX: u64 = 1 << 20;
/// Bytes that are collected for each byte written when no segment is free; the fewer are missing,
/// the less. It settles where gc gives as much room as writing takes: at 1.3 bytes a byte when
/// a quarter of what is collected lives, at four when it is three quarters.
const PACE_MAX: u64 = 8;

impl TierWorker {
    /// One bounded step of gc. False: there is nothing to collect.
    pub(crate) fn gc(&self) -> bool {
        self.gc_some(STEP_BYTES_MAX)
    }

    /// Collects in step with what was written, so that writers pay for the room they take little
    /// by little and free segments do not run out.
    pub(crate) fn gc_for(&self, written_bytes: u64) {
        let Some(space) = self.tier.free_space() else { return };
        let missing = space.gc_below_bytes.saturating_sub(space.free_bytes);
        let wanted = written_bytes * PACE_MAX * missing / space.gc_below_bytes.max(1);
        if wanted > 0 {
            self.gc_some(wanted.min(STEP_BYTES_MAX));
        }
    }

    /// Which keys a gc run evicts rather than move their values, and whether it spares those that
    /// were used: none while dead records make room enough.
    fn evicts_from_flash(&self) -> Option<(Evictable, bool)> {
        let space = self.tier.free_space()?;
        let policy = self.tier.settings.policy();
        let which = self.tier.evictable(policy)?;
        if self.tier.drains() || !self.gc_evicts.get() && !evicts_from_flash(&space) {
            return None;
        }
        // Where most keys must stay, whole segments would be copied for the few that may go; and a
        // segment is not in the order of expiry.
        let may_go = which == Evictable::All || self.tier.counters.is_mostly_volatile();
        (may_go && policy != EvictionPolicy::VolatileTtl).then(|| (which, policy.is_by_use()))
    }

    fn gc_some(&self, bytes: u64) -> bool {
        let mut side = self.engine.borrow_mut();
        let Some(engine) = &mut *side else { return false };
        let owner = KeyspaceOwner {
            tier: &self.tier,
            tally: RefCell::default(),
            evicts: self.evicts_from_flash(),
        };
        let unwritten_bytes = engine.unwritten_bytes();
        let progress = engine.gc(&owner, bytes as usize);
        self.count_unwritten(&**engine, unwritten_bytes);
        // What was begun so ends so: half a segment of copies would free nothing.
        let goes_on = progress == GcProgress::Working && owner.evicts.is_some();
        self.gc_evicts.set(goes_on);
        drop(side);
        self.tier.add_tally(&mut owner.tally.borrow_mut());
        self.want_submit();
        progress != GcProgress::Idle
    }
}

struct KeyspaceOwner<'a> {
    tier: &'a Tier,
    tally: RefCell<Tally>,
    /// Which keys go instead of being moved, and whether only those that were not used.
    evicts: Option<(Evictable, bool)>,
}

impl Owner for KeyspaceOwner<'_> {
    fn expect(&self, records: &[(RecordMeta, &[u8])]) {
        self.tier.hints_of(records.iter().copied(), 0);
    }

    fn evicts(&self) -> bool {
        self.evicts.is_some()
    }

    fn is_live(&self, record: &Record<'_>, at: Location) -> Liveness {
        let key = Key::in_slot(record.key, record.meta.slot);
        let mut slot = self.tier.keyspace.lock(key.slot);
        let mut tally = self.tally.borrow_mut();
        // A leaf of a large collection does not go alone.
        if let Some((which, by_frequency)) = self.evicts
            && usize::from(record.meta.db) < DB_COUNT
        {
            let (table, units) = (record.meta.db, at.units());
            tally.noting = self.tier.noting();
            if slot.evict_cold(table, &key, units, which, by_frequency, &mut tally) {
                // With its slot held, as all that is evicted.
                self.tier.counters.evicted.fetch_add(1, Ordering::Relaxed);
                self.tier.tell(&mut tally);
                return Liveness::Dropped;
            }
        }
        let mut db = Db::new(&mut slot, record.meta.db, 0, &mut tally);
        match db.peek(&key).map(|view| view.stored) {
            Some(Stored::Cold(place, _)) if place.units == at.units() => Liveness::Live,
            Some(Stored::Clean(_, place)) if place.units == at.units() => {
                db.forget_copy(&key, place);
                Liveness::Dropped
            }
            _ => Liveness::Dead,
        }
    }

    fn relocate(&self, record: &Record<'_>, from: Location, to: Location) -> bool {
        let key = Key::in_slot(record.key, record.meta.slot);
        let mut slot = self.tier.keyspace.lock(key.slot);
        let mut tally = self.tally.borrow_mut();
        let mut db = Db::new(&mut slot, record.meta.db, 0, &mut tally);
        db.relocate(&key, from.units(), to.units())
    }
}
