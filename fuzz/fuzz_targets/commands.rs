//! Requests of all commands on keys, whatever their arguments are: replies are the same with values in RAM and on
//! flash, and counters agree with a recount.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| command::fuzzing::commands(input));
