//! Pure functions on values: numbers in text, bits, patterns, common subsequences, digests, estimates.
//!
//! The crate knows neither keys nor storage nor the protocol. What its functions take and give is
//! byte for byte what redis-server 7.0 takes and gives on x86-64; `tests/redis` compares them
//! with a real one.

#![forbid(unsafe_code)]

mod big;
mod float_text;

mod kind;

pub mod bitfield;
pub mod bits;
pub mod digest;
pub mod geo;
pub mod glob;
pub mod hyperloglog;
pub mod lcs;
pub mod leaf;
pub mod long_double;
pub mod number;
pub mod range;
pub mod stream_id;
pub mod string;

pub use kind::{KIND_BITS, Kind};
pub use number::parse_i64;
pub use stream_id::{NewId, StreamId};
