//! What several crates need and the standard library lacks: the slot of a key, random numbers from
//! a seed, what hashes are keyed with, waits of a thread, and a standard output that may be closed or full.
//!
//! Invariant: nothing but the standard library is used here, so any crate may use this one.

#![forbid(unsafe_code)]

mod hash;
pub mod output;
mod random;
mod slot;
pub mod waiting;

pub use hash::{HashSecrets, fix_hash_seed, hash_secrets, keep_hash_secrets};
pub use random::{Random, mix};
pub use slot::{SLOT_COUNT, key_slot};
