//! The server: sockets, connections, sessions, and the commands that need them.
//!
//! In reading order: [`run`] starts it; in `network` a listener accepts connections and hands each
//! to the event loop of a worker thread, and a connection moves bytes and runs batches of requests;
//! `execution` decides what a request may do and runs it; `family` holds the commands that need
//! more than the keyspace; `session` is what is known of a client, and `state` what all share.
//! ARCHITECTURE.md lists these layers, whose imports go one way.

#![deny(unsafe_code)]

pub mod check;
pub mod config;
mod execution;
mod family;
mod limits;
mod network;
mod session;
#[cfg(feature = "simulation")]
pub mod simulation;
mod start;
mod state;

pub use start::{StartError, run};
