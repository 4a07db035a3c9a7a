//! The Redis serialization protocol, version 2 and 3: requests in, replies out.
//!
//! The crate knows bytes, not commands. In reading order:
//! - [`RequestParser`] cuts requests out of what a client has sent, without copying them, and
//!   [`Args`] shows one request's arguments;
//! - [`Reply`] is the output buffer that a command writes its answer to;
//! - [`Frame`] and [`parse_frame`] read replies, for clients: tests, benchmarks, comparisons.
//!
//! Nothing that arrives from the network panics here: it yields a [`ProtocolError`], whose text
//! is byte for byte what Redis answers before it closes the connection.

#![forbid(unsafe_code)]

mod args;
mod double;
mod error;
mod frame;
mod inline;
mod integer;
mod reply;
mod request;

pub use args::{ArgRange, Args};
pub use double::DoubleText;
pub use error::ProtocolError;
pub use frame::{FRAME_DEPTH_MAX, Frame, parse_frame};
pub use inline::{UnbalancedQuotes, split_words};
pub use reply::{Protocol, Reply};
pub use request::{Limits, RequestParser};
