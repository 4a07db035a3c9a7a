//! Bytes that may be an object of Redis's serialization format: an error, or an object that can be passed over,
//! of which no more is handed over than its bytes can hold.

#![no_main]

use libfuzzer_sys::fuzz_target;
use rdb::{Dialect, ObjectType, measure, read_object};

fuzz_target!(|bytes: &[u8]| {
    let [byte, dialect, object @ ..] = bytes else { return };
    let dialect = if dialect % 2 == 0 { Dialect::Redis } else { Dialect::Valkey };
    let Ok(object_type) = ObjectType::from_byte(*byte, dialect) else { return };
    let (mut source, mut passed) = (object, object);
    let mut items = 0usize;
    let read = read_object(&mut source, object_type, &mut |_| {
        items += 1;
        Ok(())
    });
    // A compressed string comes to 88 times its bytes at most, each of which is an item at most.
    assert!(items <= 100 * (bytes.len() + 10));
    let measured = measure(&mut passed, object_type);
    if read.is_ok() {
        assert!(measured.is_ok() && source.len() == passed.len());
    }
});
