//! Options from files, command lines and CONFIG SET: refused, or taken and told again by CONFIG REWRITE.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| server::config::fuzzing::config(input));
