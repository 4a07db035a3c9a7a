//! Garbage collection of the flash log: how much, and what the keyspace answers the collector.

use std::cell::RefCell;

use flash::{CollectProgress, Liveness, Location, Owner, Record};
use keyspace::{Db, Key, Keyspace, Stored, Tally};

use crate::worker::TierWorker;

/// Bytes that one step reads at most.
const STEP_BYTES_MAX: usize = 1 << 20;

impl TierWorker {
    /// One bounded step of collection. False: there is nothing to collect.
    pub(crate) fn collect(&self) -> bool {
        let Some(engine) = &self.engine else { return false };
        let owner = KeyspaceOwner { keyspace: &self.tier.keyspace, tally: RefCell::default() };
        let progress = engine.borrow_mut().collect(&owner, STEP_BYTES_MAX);
        self.tier.publish(&mut owner.tally.borrow_mut());
        self.want_submit();
        progress != CollectProgress::Idle
    }
}

struct KeyspaceOwner<'a> {
    keyspace: &'a Keyspace,
    tally: RefCell<Tally>,
}

impl Owner for KeyspaceOwner<'_> {
    fn is_live(&self, record: &Record<'_>, at: Location) -> Liveness {
        let key = Key::new(record.key);
        let mut slot = self.keyspace.lock(key.slot);
        let mut tally = self.tally.borrow_mut();
        let mut db = Db::new(&mut slot, record.meta.db, 0, &mut tally);
        match db.peek(&key).map(|view| view.stored) {
            Some(Stored::Cold(place, _)) if place.units == at.units() => Liveness::Live,
            Some(Stored::Clean(_, place)) if place.units == at.units() => {
                db.forget_copy(&key, place);
                Liveness::InRam
            }
            _ => Liveness::Dead,
        }
    }

    fn relocate(&self, record: &Record<'_>, from: Location, to: Location) -> bool {
        let key = Key::new(record.key);
        let mut slot = self.keyspace.lock(key.slot);
        let mut tally = self.tally.borrow_mut();
        let mut db = Db::new(&mut slot, record.meta.db, 0, &mut tally);
        db.relocate(&key, from.units(), to.units())
    }
}
