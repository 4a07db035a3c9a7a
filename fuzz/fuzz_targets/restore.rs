//! Payloads of RESTORE, whatever they are, with a right checksum: an error, or a value that can be read, dumped,
//! copied and changed, in RAM and on flash alike.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| command::fuzzing::restore(input));
