//! Compressed values on flash: what was compressed comes back, and anything else is told.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| tier::fuzzing::compression(input));
