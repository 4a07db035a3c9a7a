//! Deterministic simulation of the server's concurrent core: several workers with their
//! connections, transactions and tiers over one keyspace and one flash log, all on one thread. A
//! seed decides who runs at every wait, at every lock of a slot and at every call of the flash
//! engine, what the drives do, and what the clients ask.
//!
//! What the clients saw must be strictly serializable (`checker`), everything must be answered, who
//! listens to channels must be told all in its order (`listener`), and at the end the counters must equal a recount (`audit`). A seed that fails does so each time.

#![deny(unsafe_code)]

mod audit;
mod checker;
mod client;
mod collection;
mod command;
mod engine;
mod fiber;
mod jobs;
mod journal;
mod limits;
mod listener;
mod machine;
mod memory;
mod model;
mod outcome;
mod profile;
mod reply;
mod runner;
mod stream;
mod tasks;
mod value;
mod wire;
mod world;

pub use outcome::Outcome;
pub use runner::{Seeds, Summary, name_seed_of_panics, run_seed, run_seeds};
pub use world::Failure;
