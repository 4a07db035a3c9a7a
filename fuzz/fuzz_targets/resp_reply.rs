//! The reply reader: whatever arrives, it does not panic; what it reads encodes to the same bytes;
//! and no part of a reply is a reply.

#![no_main]

use libfuzzer_sys::fuzz_target;
use resp::parse_frame;

fuzz_target!(|input: &[u8]| {
    let Ok(Some((frame, consumed))) = parse_frame(input) else {
        return;
    };
    assert!(consumed > 0 && consumed <= input.len());
    let mut encoded = Vec::new();
    frame.encode(&mut encoded);
    assert_eq!(encoded, &input[..consumed]);
    assert_eq!(parse_frame(&input[..consumed - 1]), Ok(None));
});
