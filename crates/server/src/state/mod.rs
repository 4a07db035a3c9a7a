//! What connections share: the server, and each worker's side of it.

pub(crate) mod client_memory;
pub(crate) mod clients;
pub(crate) mod clock;
pub(crate) mod deadlines;
pub(crate) mod latency;
pub(crate) mod listening;
pub(crate) mod log;
pub(crate) mod monitor;
pub(crate) mod output_limit;
pub(crate) mod pause;
pub(crate) mod post;
pub(crate) mod prefetch;
pub(crate) mod pubsub;
pub(crate) mod push;
pub(crate) mod registry;
pub(crate) mod samples;
pub(crate) mod secrets;
pub(crate) mod server;
pub(crate) mod settings;
pub(crate) mod slices;
pub(crate) mod slowlog;
pub(crate) mod stats;
pub(crate) mod threads;
pub(crate) mod turn;
pub(crate) mod waiters;
pub(crate) mod worker;
