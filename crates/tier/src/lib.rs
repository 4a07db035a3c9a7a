//! The tier: which values are in RAM and which on flash, so that one memory budget holds.
//!
//! It joins the keyspace, which knows places but does no I/O, to the flash engine, which knows
//! bytes but no keys. It depends on no runtime: its futures are woken by [`TierWorker::reap`] and
//! [`TierWorker::submitter`], which the server drives from its event loop.
//!
//! Invariants:
//! 1. A value leaves RAM only after the engine has taken a copy of it (served from the engine's
//!    write buffer until it is on flash), and comes back if that copy cannot be written.
//! 2. No slot is locked while anything is awaited.
//! 3. Demotion, gc and eviction run in bounded slices.

#![forbid(unsafe_code)]

mod background;
mod budget;
mod checkpoints;
mod compress;
mod controller;
mod copy;
mod counters;
mod defrag;
mod demote;
mod drain;
mod environment;
mod evict;
mod fetch;
mod flash_switch;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod gc;
mod hand;
mod limits;
#[cfg(test)]
mod memory_tests;
mod neighbours;
mod policy;
mod probation;
mod process_memory;
mod read_back;
#[cfg(test)]
mod reader_tests;
mod regions;
#[cfg(test)]
mod test_machine;
mod tier;
mod upkeep;
mod wait;
mod walk;
mod worker;

pub use background::{Background, Counted};
pub use budget::{Budget, MemoryUse};
pub use copy::Copier;
pub use counters::{Counters, KeyspaceCounts};
pub use demote::{Demoted, StopReason};
pub use drain::DrainRoom;
pub use environment::{Clock, Environment, Listener, ResidentSource};
pub use fetch::{FetchedSet, VALUE_OVERHEAD_BYTES, Want, sort_wants};
pub use flash_switch::FlashChange;
pub use policy::{EvictionPolicy, PromoteNeighbours, Promotion, Settings};
pub use process_memory::AllocatorStats;
pub use read_back::ReadBack;
pub use tier::{Freeing, Pressure, Tier, TierError};
pub use wait::{Claim, Held, WaitingHeld, yield_once};
pub use walk::{FoundValue, UnreadableValue};
pub use worker::TierWorker;
