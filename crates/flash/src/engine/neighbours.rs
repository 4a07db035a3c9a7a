//! What a read around records has brought: the records that were asked for, and those beside them.

use std::rc::Rc;

use crate::device::buffer::IoBuffer;
use crate::limits::RECORD_ALIGN;
use crate::location::{Location, RecordId};
use crate::record::{Header, Place, Record, verify};

/// Places that look like a record and are none, after which no more is looked for: to check one takes a pass over the
/// rest of what was read.
const MISTAKEN_MAX: usize = 8;

/// Records that were asked for, and those around them. Holds a read buffer: do not keep it.
pub struct Neighbours {
    buffer: Rc<IoBuffer>,
    /// Where its first byte lies.
    start: Location,
    generation: u64,
    /// The records that were asked for.
    asked: Vec<Location>,
}

impl Neighbours {
    pub(crate) fn new(
        buffer: Rc<IoBuffer>,
        start: Location,
        generation: u64,
        asked: Vec<Location>,
    ) -> Self {
        Self { buffer, start, generation, asked }
    }

    /// The records that are whole in what was read, each checked against its place, and whether it was asked for. Whether one
    /// lives still is the keyspace's to say.
    ///
    /// Cost: a CRC of each, and a look at each 16 bytes in front of the first.
    pub fn records(&self) -> impl Iterator<Item = (RecordId, Record<'_>, bool)> {
        let (mut offset, mut mistaken) = (0, 0);
        std::iter::from_fn(move || {
            while mistaken < MISTAKEN_MAX {
                let rest = self.buffer.bytes().get(offset..)?;
                let is_whole = |header: &Header| header.record_size() <= rest.len();
                let Some(header) = Header::decode(rest).ok().filter(is_whole) else {
                    offset += RECORD_ALIGN;
                    continue;
                };
                let at = Location::from_units(self.start.units() + (offset / RECORD_ALIGN) as u64);
                if verify(rest, Place { at, generation: self.generation }).is_err() {
                    mistaken += 1;
                    offset += RECORD_ALIGN;
                    continue;
                }
                offset += header.record_size();
                let id = RecordId { at, generation: self.generation };
                let (key, payload) = (&rest[header.key()], &rest[header.payload()]);
                return Some((
                    id,
                    Record { meta: header.meta, key, payload },
                    self.asked.contains(&at),
                ));
            }
            None
        })
    }
}

impl std::fmt::Debug for Neighbours {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Neighbours")
            .field("start", &self.start)
            .field("generation", &self.generation)
            .field("asked", &self.asked)
            .finish_non_exhaustive()
    }
}
