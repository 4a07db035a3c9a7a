//! The segmented log: the default engine.

mod config;

pub use config::{Backend, LogConfig};
