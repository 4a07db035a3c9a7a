//! Bytes that may be a leaf of a collection: an error, or rows that can be read one by one and changed.

#![no_main]

use libfuzzer_sys::fuzz_target;
use value::leaf::{Rows, RowsMut};

fuzz_target!(|bytes: &[u8]| {
    let Ok(rows) = Rows::check(bytes) else { return };
    for (index, row) in rows.iter().enumerate() {
        assert_eq!(rows.row(index), row);
    }
    let mut changed = bytes.to_vec();
    let half = rows.len() / 2;
    let right = RowsMut::new(&mut changed).split_off(half);
    RowsMut::new(&mut changed).append(Rows::new(&right));
    assert!(Rows::new(&changed).iter().eq(rows.iter()));
});
