//! Whole files: all databases of a server, one key behind the other.
//!
//! ```text
//! "REDIS" and the version in 4 digits, or "VALKEY" and 3 digits
//! parts, each behind the byte that tells what it is:
//!   243  slots that are being imported (not read)
//!   244  keys of a slot: its number, keys, keys that expire
//!   245  functions: a string
//!   246  functions of a release candidate of Redis 7.0 (not read)
//!   247  something of a module: its id, 2, when, values (below)
//!   248  of the key to come: seconds without use
//!   249  of the key to come: frequency, 1 byte
//!   250  something about the file: two strings, name and value
//!   251  keys of the database, and those that expire
//!   252  of the key to come: expiry, Unix milliseconds, 8 bytes
//!   253  of the key to come: expiry, Unix seconds, 4 bytes
//!   254  the keys that follow are in this database
//!   else the type of a value (`object.rs`): key, value
//!   255  the end
//! from version 5 on: checksum of all in front, 8 bytes; 0: none was worked out
//! ```
//!
//! A program may write values of a type of its own, which is none of the format's: a string, which it alone knows to read
//! ([`FileReader::take_own`]). The value of a key that is a module's is of type 7.
//!
//! Numbers are lengths (`length.rs`) unless they say how many bytes they take; those have the low byte first. Values
//! of a module: each 1 and a number, 2 and a number, 3 and 4 bytes, 4 and 8 bytes, 5 and a string; 0 behind them.
//!
//! A file is read from front to back with no more of it in memory than a string takes, and the value under way is
//! the reader's to keep.

mod read;
mod write;

pub use read::{FileError, FileReader, KeyPart, OwnPart, Part, Short, Skipped};
pub use write::{FileWriter, own_value};

const MAGIC_REDIS: &[u8] = b"REDIS";
const MAGIC_VALKEY: &[u8] = b"VALKEY";
/// Bytes of what a file begins with, the version included.
const HEAD_BYTES: usize = 9;
/// Files have a checksum from this version on.
const SUMMED_FROM: u16 = 5;

const SLOT_INFO: u8 = 244;
const FUNCTION: u8 = 245;
const FUNCTION_OF_CANDIDATE: u8 = 246;
const MODULE_AUX: u8 = 247;
const IDLE: u8 = 248;
const FREQUENCY: u8 = 249;
const AUX: u8 = 250;
const RESIZE: u8 = 251;
const EXPIRE_MS: u8 = 252;
const EXPIRE_SECONDS: u8 = 253;
const DATABASE: u8 = 254;
const END: u8 = 255;

#[cfg(test)]
mod tests;
