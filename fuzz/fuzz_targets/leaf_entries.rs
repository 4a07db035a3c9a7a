//! Bytes that may be a leaf of a stream, or a stream in one value: an error, or entries that can be read and
//! removed.

#![no_main]

use libfuzzer_sys::fuzz_target;
use value::StreamId;
use value::leaf::entries::{Entries, EntriesMut};
use value::leaf::stream::Packed;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(packed) = Packed::check(bytes) {
        assert!(packed.leaves().count() <= bytes.len());
    }
    let Ok(entries) = Entries::check(bytes) else { return };
    let ids: Vec<StreamId> = entries.iter().map(|entry| entry.id).collect();
    assert_eq!(ids.len(), entries.len() as usize);
    assert_eq!((entries.first(), entries.last()), (ids.first().copied(), ids.last().copied()));
    for entry in entries.iter() {
        assert_eq!(entry.iter().count(), entry.pairs);
    }
    let mut changed = bytes.to_vec();
    for id in ids.iter().step_by(2) {
        assert!(EntriesMut::new(&mut changed).remove(*id));
    }
    let left = Entries::check(&changed).expect("what is left is a leaf");
    assert!(left.iter().map(|entry| entry.id).eq(ids.iter().skip(1).step_by(2).copied()));
});
