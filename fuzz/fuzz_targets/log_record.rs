//! The flash log's records, headers and footers, and a whole log on a drive that brings anything:
//! no panic, and no record that was not written.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| flash::fuzzing::log_record(input));
