//! The journal's files with anything in them: no panic, and no record that was not appended.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| flash::fuzzing::journal(input));
