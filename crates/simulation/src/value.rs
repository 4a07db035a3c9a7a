//! Values that clients write: each is unique, so that one which is read tells who wrote it.

use std::fmt;
use std::rc::Rc;

/// Bytes that are shown of a value.
const SHOWN_BYTES_MAX: usize = 24;

/// Immutable bytes that are cheap to copy and to compare.
#[derive(Clone)]
pub(crate) struct Value(Rc<Shared>);

struct Shared {
    bytes: Vec<u8>,
    hash: u64,
}

impl Value {
    pub(crate) fn new(bytes: Vec<u8>) -> Value {
        let hash = rapidhash::v3::rapidhash_v3(&bytes);
        Value(Rc::new(Shared { bytes, hash }))
    }

    /// A value that no other write brings: it names its writer and fills `len` bytes, with the same
    /// word again and again (it compresses) or not.
    pub(crate) fn unique(number: u64, len: usize, compresses: bool) -> Value {
        let mut bytes = format!("<{number}>").into_bytes();
        let mut state = number;
        while bytes.len() < len {
            if !compresses {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            }
            bytes.extend_from_slice(&state.to_le_bytes());
        }
        bytes.truncate(len.max(4));
        Value::new(bytes)
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0.bytes
    }

    pub(crate) fn hash(&self) -> u64 {
        self.0.hash
    }
}

impl PartialEq for Value {
    /// By 64 bits of hash: the checker compares large values over and over.
    fn eq(&self, other: &Value) -> bool {
        self.0.hash == other.0.hash && self.0.bytes.len() == other.0.bytes.len()
    }
}

impl Eq for Value {}

impl fmt::Debug for Value {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = self.bytes();
        let shown = bytes[..bytes.len().min(SHOWN_BYTES_MAX)].escape_ascii();
        match bytes.len() > SHOWN_BYTES_MAX {
            true => write!(out, "\"{shown}\"...{:x} ({} bytes)", self.hash(), bytes.len()),
            false => write!(out, "\"{shown}\""),
        }
    }
}
