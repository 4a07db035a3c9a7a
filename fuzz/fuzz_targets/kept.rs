//! What a checkpoint of the journal says of values on flash: states, labels and places are refused, or are what is written.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    flash::fuzzing::kept(input);
    command::fuzzing::placed(input);
});
