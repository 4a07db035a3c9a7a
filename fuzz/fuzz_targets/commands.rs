//! Requests of all commands on keys, whatever their arguments are: replies are the same with values in RAM and on
//! flash, counters agree with a recount, and what is logged leads to the same data when it is run again.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| command::fuzzing::commands(input));
