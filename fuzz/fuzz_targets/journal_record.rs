//! Records of the journal: whatever the bytes are, what is read of them is read again when it is written.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| command::fuzzing::journal_record(input));
