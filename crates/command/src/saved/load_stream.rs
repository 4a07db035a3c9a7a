//! Streams on their way from a file: entries leaf by leaf, then the rows of groups.
//!
//! A file has of each group all pending entries, and behind them the consumers, each with the IDs of those that it
//! has. So pending entries are put as nobody's, and given to their consumers later.

use keyspace::Key;
use rdb::{EntriesRead, Entry, Error, StreamItem};
use value::StreamId;
use value::leaf::entries::{EntriesMut, leaf_of};
use value::leaf::stream::Head;
use value::leaf::stream_rows::{
    Consumer, Group, NEXT_GROUP_KEY, Nack, consumer_key, consumer_name_key, group_key, pending_key,
};

use super::load::PieceMax;
use crate::collection::{NOBODY, NewRows, StreamLeafMax, distance_from_first_ever};
use crate::cx::Cx;
use crate::error::CommandResult;

const MALFORMED: Error = Error::Malformed("group of a stream");
/// Bytes that a row takes beside its own: in a piece, and among what is changed.
const ROW_BYTES: u64 = 192;

/// A piece of a stream.
pub(super) enum StreamPiece {
    /// All that comes in front of the groups, or as much of it as is no large piece.
    Begin(Head, Vec<Vec<u8>>),
    /// More leaves of entries, and the head with these.
    Entries(Head, Vec<Vec<u8>>),
    /// Rows of groups.
    Rows(NewRows),
}

impl StreamPiece {
    /// Makes a key of it, or adds it to that. Errors: as [`super::Piece::put`].
    pub(super) fn put(&mut self, cx: &mut Cx<'_, '_>, key: &Key<'_>) -> CommandResult {
        match self {
            StreamPiece::Begin(head, leaves) => cx.store_stream(key, *head, std::mem::take(leaves)),
            StreamPiece::Entries(head, leaves) => cx.append_leaves(key, *head, leaves),
            StreamPiece::Rows(rows) => cx.add_rows(key, rows),
        }
    }
}

/// A stream that is read, and cut into pieces.
pub(super) struct StreamCutter {
    leaf_max: StreamLeafMax,
    max: PieceMax,
    /// As the pieces say that were given away, and then as the file does.
    head: Head,
    first: StreamId,
    leaves: Vec<Vec<u8>>,
    /// Bytes of all leaves but the last.
    leaf_bytes: u64,
    has_begun: bool,
    rows: NewRows,
    row_bytes: u64,
    groups: u32,
    group: Option<OpenGroup>,
}

/// A group of which not all is read.
struct OpenGroup {
    name: Vec<u8>,
    group: Group,
    /// Pending entries that are nobody's so far.
    free: u64,
    consumer: Option<(Vec<u8>, Consumer)>,
}

impl StreamCutter {
    pub(super) fn new(leaf_max: StreamLeafMax, max: PieceMax) -> StreamCutter {
        StreamCutter {
            leaf_max,
            max,
            head: Head::default(),
            first: StreamId::MIN,
            leaves: Vec::new(),
            leaf_bytes: 0,
            has_begun: false,
            rows: NewRows::default(),
            row_bytes: 0,
            groups: 0,
            group: None,
        }
    }

    /// Takes what comes next. Returns a piece when there is one, with the bytes that it takes.
    ///
    /// Errors: it does not belong there.
    pub(super) fn add(
        &mut self,
        item: StreamItem<'_>,
    ) -> Result<Option<(StreamPiece, u64)>, Error> {
        match item {
            StreamItem::Entry(entry) => return Ok(self.add_entry(&entry)),
            StreamItem::Head(head) => {
                let rdb::Head { length, last, first, max_deleted, added } = head;
                self.head = Head { length, added, last, max_deleted };
                self.first = first;
                return Ok(Some(self.take_leaves()));
            }
            StreamItem::Group { name, last, read } => {
                self.close_group()?;
                self.group = Some(self.new_group(name, last, read)?);
            }
            StreamItem::Pending { id, delivered_ms, deliveries } => {
                let open = self.group.as_mut().ok_or(MALFORMED)?;
                open.group.pending += 1;
                open.free += 1;
                let row = pending_key(open.group.number, id);
                let nack = Nack { consumer: NOBODY, delivered_ms, deliveries };
                self.push_row(row, nack.to_bytes());
            }
            StreamItem::Consumer { name, seen_ms } => {
                self.close_consumer()?;
                let open = self.group.as_mut().ok_or(MALFORMED)?;
                let number = open.group.next_consumer;
                open.group.next_consumer = number.checked_add(1).ok_or(MALFORMED)?;
                open.group.consumers += 1;
                let consumer = Consumer { number, pending: 0, seen_ms };
                open.consumer = Some((name.to_vec(), consumer));
            }
            StreamItem::Owned(id) => {
                let open = self.group.as_mut().ok_or(MALFORMED)?;
                let (_, consumer) = open.consumer.as_mut().ok_or(MALFORMED)?;
                consumer.pending += 1;
                open.free = open.free.checked_sub(1).ok_or(MALFORMED)?;
                self.rows.owned.push((open.group.number, consumer.number, id));
                self.row_bytes += 2 * ROW_BYTES;
            }
        }
        let rows = self.rows.rows.len() + self.rows.owned.len();
        let is_full = self.max.is_full(self.row_bytes, rows, false);
        Ok(is_full.then(|| self.take_rows()))
    }

    /// The last piece, if there is one. Errors: an entry is pending with nobody.
    pub(super) fn finish(mut self) -> Result<Option<(StreamPiece, u64)>, Error> {
        self.close_group()?;
        if self.groups > 0 {
            self.push_row(NEXT_GROUP_KEY.to_vec(), self.groups.to_le_bytes().to_vec());
        }
        Ok((self.row_bytes > 0).then(|| self.take_rows()))
    }

    fn add_entry(&mut self, entry: &Entry<'_>) -> Option<(StreamPiece, u64)> {
        let room = self
            .leaves
            .last_mut()
            .filter(|leaf| !entry.begins_node && !self.leaf_max.is_full(leaf, entry.byte_len()));
        let mut piece = None;
        match room {
            Some(leaf) => EntriesMut::new(leaf).push(entry.id, entry.pairs()),
            None => {
                self.leaf_bytes += self.leaves.last().map_or(0, Vec::len) as u64;
                piece = (self.leaf_bytes >= self.max.bytes).then(|| self.take_leaves());
                self.leaves.push(leaf_of(entry.id, entry.pairs()));
            }
        }
        self.head.length += 1;
        (self.head.added, self.head.last) = (self.head.length, entry.id);
        piece
    }

    fn take_leaves(&mut self) -> (StreamPiece, u64) {
        let (head, leaves) = (self.head, std::mem::take(&mut self.leaves));
        let bytes = leaves.iter().map(|leaf| 2 * leaf.len() as u64).sum();
        self.leaf_bytes = 0;
        match std::mem::replace(&mut self.has_begun, true) {
            false => (StreamPiece::Begin(head, leaves), bytes),
            true => (StreamPiece::Entries(head, leaves), bytes),
        }
    }

    fn new_group(
        &mut self,
        name: &[u8],
        last: StreamId,
        read: EntriesRead,
    ) -> Result<OpenGroup, Error> {
        let read = match read {
            EntriesRead::Known(read) => Some(read),
            EntriesRead::Unknown => None,
            EntriesRead::NotStored => {
                distance_from_first_ever(&self.head, last, || Ok::<_, Error>(self.first))?
            }
        };
        let number = self.groups;
        self.groups = number.checked_add(1).ok_or(MALFORMED)?;
        let group = Group { number, next_consumer: 0, consumers: 0, pending: 0, last, read };
        Ok(OpenGroup { name: name.to_vec(), group, free: 0, consumer: None })
    }

    fn close_consumer(&mut self) -> Result<(), Error> {
        let Some(open) = &mut self.group else { return Ok(()) };
        let Some((name, consumer)) = open.consumer.take() else { return Ok(()) };
        let group = open.group.number;
        self.push_row(consumer_key(group, &name), consumer.to_bytes());
        self.push_row(consumer_name_key(group, consumer.number), name);
        Ok(())
    }

    fn close_group(&mut self) -> Result<(), Error> {
        self.close_consumer()?;
        let Some(open) = self.group.take() else { return Ok(()) };
        if open.free > 0 {
            return Err(MALFORMED);
        }
        self.push_row(group_key(&open.name), open.group.to_bytes());
        Ok(())
    }

    fn push_row(&mut self, key: Vec<u8>, value: Vec<u8>) {
        self.row_bytes += 2 * (key.len() + value.len()) as u64 + ROW_BYTES;
        self.rows.rows.push((key, value));
    }

    fn take_rows(&mut self) -> (StreamPiece, u64) {
        let bytes = std::mem::take(&mut self.row_bytes);
        (StreamPiece::Rows(std::mem::take(&mut self.rows)), bytes)
    }
}
