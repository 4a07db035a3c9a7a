//! Sides of flash that only read: those of drains and snapshots.

use flash::{Location, ReadStart, record_size};
use keyspace::{Db, Expiry, Key, Stored, Tally};

use crate::EvictionPolicy;
use crate::test_machine::{MIB, Machine};

#[test]
fn a_reader_keeps_no_blocks_that_were_read_ahead() {
    const KEYS: u32 = 20_000;
    let machine = Machine::new(8 * MIB, 64 * MIB, EvictionPolicy::NoEviction);
    let name = |number: u32| format!("key:{number}");
    for number in 0..KEYS {
        machine.write(&name(number), &[b'v'; 500], Expiry::Clear).expect("room");
    }
    let reader = crate::TierWorker::reader(machine.worker.tier.clone()).expect("a reader");
    let mut side = reader.engine.borrow_mut();
    let side = side.as_mut().expect("there is flash");
    let mut done = Vec::new();
    let mut read = 0;
    for number in 0..KEYS {
        let name = name(number);
        let key = Key::new(name.as_bytes());
        let mut slot = machine.tier().keyspace.lock(key.slot);
        let mut tally = Tally::default();
        let mut db = Db::new(&mut slot, 0, 1, &mut tally);
        let Some(Stored::Cold(place, _)) = db.peek(&key).map(|view| view.stored) else { continue };
        let at = Location::from_units(place.units);
        let size = record_size(name.len(), place.stored_len as usize);
        match side.read(side.identify(at), size, 0) {
            ReadStart::Pending => {
                while done.is_empty() {
                    side.submit();
                    side.reap(&mut done);
                }
                done.clear();
            }
            ReadStart::Ready(_) => {}
            other => panic!("{other:?}"),
        }
        read += 1;
        assert_eq!(side.block_cache_bytes(), 0, "behind {read}");
    }
    assert!(read > KEYS / 2, "{read}");
}
