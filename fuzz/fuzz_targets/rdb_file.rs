//! Bytes that may be an RDB file: an error that says where, or parts that are all of them.

#![no_main]

use libfuzzer_sys::fuzz_target;
use rdb::file::{FileReader, Part};
use rdb::read_object;

fuzz_target!(|bytes: &[u8]| {
    let Ok(mut reader) = FileReader::new(bytes, 1 << 20) else { return };
    let mut parts = 0;
    loop {
        let part = reader.next_part();
        parts += 1;
        let read = match part {
            Ok(Part::Key(key)) => read_object(&mut reader, key.object_type, &mut |_| Ok(())),
            Ok(Part::End) | Err(_) => break,
            Ok(_) => Ok(()),
        };
        if read.is_err() {
            break;
        }
    }
    assert!(reader.offset() <= bytes.len() as u64);
    assert!(parts <= bytes.len());
});
