//! A record that was read: verified, and wherever its bytes happen to be.

use std::rc::Rc;
use std::sync::Arc;

use crate::device::buffer::IoBuffer;
use crate::location::Location;
use crate::record::{Header, OwnedRecord, RecordMeta};

/// A verified record. Its buffer returns to the worker's pool when it is dropped: do not keep it
/// for long.
pub struct FetchedRecord {
    at: Location,
    meta: RecordMeta,
    bytes: Bytes,
}

/// Where a fetched record's bytes are.
enum Bytes {
    /// In a read buffer of its own, from that byte on.
    Buffer(IoBuffer, usize, Header),
    /// In a read buffer that it shares with other records.
    Shared(Rc<IoBuffer>, usize, Header),
    /// Copied out of a write buffer.
    Heap(Rc<[u8]>, Header),
    /// A large record, assembled or still on its way to flash.
    Owned(Arc<OwnedRecord>),
}

impl FetchedRecord {
    /// The record that starts at `start` in a buffer. The caller has verified it.
    pub(crate) fn in_buffer(at: Location, header: Header, buffer: IoBuffer, start: usize) -> Self {
        Self { at, meta: header.meta, bytes: Bytes::Buffer(buffer, start, header) }
    }

    pub(crate) fn in_shared(
        at: Location,
        header: Header,
        buffer: Rc<IoBuffer>,
        start: usize,
    ) -> Self {
        Self { at, meta: header.meta, bytes: Bytes::Shared(buffer, start, header) }
    }

    pub(crate) fn copied(at: Location, header: Header, bytes: Rc<[u8]>) -> Self {
        Self { at, meta: header.meta, bytes: Bytes::Heap(bytes, header) }
    }

    pub(crate) fn owned(at: Location, record: Arc<OwnedRecord>) -> Self {
        Self { at, meta: record.meta, bytes: Bytes::Owned(record) }
    }

    /// A large record, to be kept: it has memory of its own.
    pub(crate) fn into_large(self) -> Arc<OwnedRecord> {
        match self.bytes {
            Bytes::Owned(record) => record,
            _ => unreachable!("invariant: a large record is read into memory of its own"),
        }
    }

    /// What is stored besides key and payload.
    pub fn meta(&self) -> RecordMeta {
        self.meta
    }

    /// The key.
    pub fn key(&self) -> &[u8] {
        match &self.bytes {
            Bytes::Buffer(buffer, start, header) => &buffer.bytes()[*start..][header.key()],
            Bytes::Shared(buffer, start, header) => &buffer.bytes()[*start..][header.key()],
            Bytes::Heap(bytes, header) => &bytes[header.key()],
            Bytes::Owned(record) => &record.key,
        }
    }

    /// The payload.
    pub fn payload(&self) -> &[u8] {
        match &self.bytes {
            Bytes::Buffer(buffer, start, header) => &buffer.bytes()[*start..][header.payload()],
            Bytes::Shared(buffer, start, header) => &buffer.bytes()[*start..][header.payload()],
            Bytes::Heap(bytes, header) => &bytes[header.payload()],
            Bytes::Owned(record) => &record.payload,
        }
    }

    /// Where it was read from.
    pub fn location(&self) -> Location {
        self.at
    }

    /// Whether it holds one of the worker's read buffers, which others may wait for.
    pub fn holds_buffer(&self) -> bool {
        matches!(self.bytes, Bytes::Buffer(..) | Bytes::Shared(..))
    }

    /// The payload of a large record that nobody else holds, without a copy. Errors: the record itself.
    pub fn into_large_payload(self) -> Result<Vec<u8>, FetchedRecord> {
        let Bytes::Owned(record) = self.bytes else { return Err(self) };
        match Arc::try_unwrap(record) {
            Ok(record) => Ok(record.payload),
            Err(record) => Err(FetchedRecord { bytes: Bytes::Owned(record), ..self }),
        }
    }

    /// The payload as a vector of its own; a large one is handed over without a copy where nobody
    /// else holds it.
    pub fn into_payload(self) -> Vec<u8> {
        match self.bytes {
            Bytes::Owned(record) => match Arc::try_unwrap(record) {
                Ok(record) => record.payload,
                Err(shared) => shared.payload.clone(),
            },
            _ => self.payload().to_vec(),
        }
    }
}

impl std::fmt::Debug for FetchedRecord {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FetchedRecord")
            .field("at", &self.at)
            .field("meta", &self.meta)
            .field("key_len", &self.key().len())
            .field("payload_len", &self.payload().len())
            .finish()
    }
}
