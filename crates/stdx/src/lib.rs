//! What several crates need and the standard library lacks: the slot of a key, random numbers from a seed, what hashes
//! are keyed with, the allocator's size classes, waits of a thread, hints to the CPU, and a standard output that may be
//! closed or full.
//!
//! Invariants: nothing but the standard library is used here, so any crate may use this one; `unsafe` lives in
//! `prefetch.rs` alone.

#![deny(unsafe_code)]

mod hash;
pub mod output;
#[allow(unsafe_code, reason = "the CPU's instruction is an intrinsic")]
pub mod prefetch;
mod random;
mod size_class;
mod slot;
pub mod waiting;

pub use hash::{HashSecrets, fix_hash_seed, hash_secrets, keep_hash_secrets};
pub use random::{Random, mix};
pub use size_class::size_class;
pub use slot::{SLOT_COUNT, key_slot};
