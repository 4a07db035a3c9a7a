//! The server: sockets, connections, sessions, and the commands that need them.
//!
//! In reading order: [`run`] starts it; a `listener` accepts connections and hands each to a
//! `worker` thread; a `connection` moves bytes and runs batches of requests; `dispatch` decides
//! what a request may do; `transaction` is MULTI; `family/` holds the commands that need more
//! than the keyspace.

#![deny(unsafe_code)]

mod batch;
mod client_memory;
mod clients;
#[cfg(test)]
mod compatibility;
pub mod config;
mod connection;
mod cron;
mod digest;
mod dispatch;
mod errand;
mod family;
mod latency;
mod limits;
mod listener;
mod log;
mod lookahead;
mod monitor;
mod pause;
mod pulse;
mod secrets;
mod server;
mod session;
mod settings;
mod slowlog;
mod start;
mod stats;
mod stream;
mod supervisor;
mod table;
mod transaction;
mod wake;
mod worker;

pub use start::{StartError, run};
