//! Redis's serialization format (RDB): objects of every version to be read, those of Redis 7.0 to be written.
//!
//! The crate knows bytes alone: neither commands nor what a key is, and it opens no file. It reads from a [`Source`]
//! and hands over what it finds element by element ([`read_object`]); it writes into a buffer, or what a file is
//! written to.
//!
//! Architecture invariants:
//! - Whatever the input is, it is an [`Error`] or an object; nothing panics, and no element is handed over that
//!   the input does not hold.
//! - Nothing is allocated because the input says so: a buffer grows to what has been read, or to what a
//!   compressed string of that length can come to. [`measure`] tells beforehand how much that may be.
//!
//! Each file begins with the bytes that it knows:
//!
//! | file | bytes |
//! | --- | --- |
//! | `length.rs` | lengths |
//! | `text.rs` | strings: as they are, integers, compressed |
//! | `lzf.rs` | what is in a compressed string |
//! | `object.rs` | objects by their types, and which version brought which |
//! | `listpack.rs`, `ziplist.rs`, `zipmap.rs`, `intset.rs` | packed collections, which stand in a string |
//! | `stream.rs` | streams |
//! | `payload.rs` | what DUMP makes of an object |
//! | `file.rs` | files of all keys of a server |

#![forbid(unsafe_code)]

mod checksum;
mod error;
pub mod file;
mod hash;
mod intset;
mod length;
mod list;
mod listpack;
mod lzf;
mod measure;
mod object;
mod packed;
pub mod payload;
mod set;
mod sorted_set;
mod source;
mod stream;
mod stream_write;
mod text;
pub mod write;
mod ziplist;
mod zipmap;

pub use checksum::Checksum;
pub use error::Error;
pub use measure::{Claims, measure};
pub use object::{Dialect, Item, ObjectType, read_object};
pub use source::Source;
pub use stream::{EntriesRead, Entry, Head, StreamItem};
