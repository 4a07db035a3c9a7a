//! A stream that RESTORE has read: its leaves, before a key is made of them.

use keyspace::Key;
use rdb::{EntriesRead, Entry, Error, StreamItem};
use value::StreamId;
use value::leaf::entries::{EntriesMut, leaf_of};
use value::leaf::rows::RowsBuilder;
use value::leaf::stream::Head;
use value::leaf::stream_rows::{
    Consumer, Group, NEXT_GROUP_KEY, Nack, SHAPE, consumer_key, consumer_name_key, group_key,
    owned_key, pending_key,
};

use crate::collection::{NOBODY, StreamLeafMax, distance_from_first_ever};
use crate::cx::Cx;
use crate::error::CommandResult;

const MALFORMED: Error = Error::Malformed("group of a stream");

/// Rows of a leaf, which is divided as the tree is made.
const LEAF_ROWS: usize = 1 << 12;

/// A stream on its way to a key.
pub(crate) struct RestoredStream {
    leaf_max: StreamLeafMax,
    head: Head,
    first: StreamId,
    /// Those of entries, and once all is read those of rows.
    leaves: Vec<Vec<u8>>,
    rows: Vec<(Vec<u8>, Vec<u8>)>,
    groups: u32,
    group: Option<OpenGroup>,
}

/// A group of which not all is read.
struct OpenGroup {
    name: Vec<u8>,
    number: u32,
    last: StreamId,
    read: Option<u64>,
    /// In the order of IDs. The consumer is not known at first.
    pending: Vec<(StreamId, Nack)>,
    consumers: Vec<(Vec<u8>, Consumer)>,
}

impl RestoredStream {
    pub(super) fn new(leaf_max: StreamLeafMax) -> RestoredStream {
        let (head, leaves, rows) = Default::default();
        let first = StreamId::MIN;
        RestoredStream { leaf_max, head, first, leaves, rows, groups: 0, group: None }
    }

    /// Adds what comes next.
    ///
    /// Errors: it does not belong there.
    pub(super) fn add(&mut self, item: StreamItem<'_>) -> Result<(), Error> {
        match item {
            StreamItem::Entry(entry) => self.add_entry(&entry),
            StreamItem::Head(head) => {
                let rdb::Head { length, last, first, max_deleted, added } = head;
                self.head = Head { length, added, last, max_deleted };
                self.first = first;
                Ok(())
            }
            StreamItem::Group { name, last, read } => {
                self.close_group()?;
                let read = match read {
                    EntriesRead::Known(read) => Some(read),
                    EntriesRead::Unknown => None,
                    EntriesRead::NotStored => {
                        distance_from_first_ever(&self.head, last, || Ok(self.first))?
                    }
                };
                let (name, number) = (name.to_vec(), self.groups);
                let (pending, consumers) = Default::default();
                self.groups = number.checked_add(1).ok_or(MALFORMED)?;
                self.group = Some(OpenGroup { name, number, last, read, pending, consumers });
                Ok(())
            }
            StreamItem::Pending { id, delivered_ms, deliveries } => {
                let nack = Nack { consumer: NOBODY, delivered_ms, deliveries };
                self.open_group()?.pending.push((id, nack));
                Ok(())
            }
            StreamItem::Consumer { name, seen_ms } => {
                let consumers = &mut self.open_group()?.consumers;
                let number = u32::try_from(consumers.len()).map_err(|_| MALFORMED)?;
                let consumer = Consumer { number, pending: 0, seen_ms };
                consumers.push((name.to_vec(), consumer));
                Ok(())
            }
            StreamItem::Owned(id) => self.open_group()?.own(id),
        }
    }

    fn add_entry(&mut self, entry: &Entry<'_>) -> Result<(), Error> {
        let room = self
            .leaves
            .last_mut()
            .filter(|leaf| !entry.begins_node && !self.leaf_max.is_full(leaf, entry.byte_len()));
        match room {
            Some(leaf) => EntriesMut::new(leaf).push(entry.id, entry.pairs()),
            None => self.leaves.push(leaf_of(entry.id, entry.pairs())),
        }
        Ok(())
    }

    fn open_group(&mut self) -> Result<&mut OpenGroup, Error> {
        self.group.as_mut().ok_or(MALFORMED)
    }

    fn close_group(&mut self) -> Result<(), Error> {
        match self.group.take() {
            Some(group) => group.close(&mut self.rows),
            None => Ok(()),
        }
    }

    /// Makes leaves of the rows. Errors: two have the same name.
    pub(super) fn finish(&mut self) -> Result<(), Error> {
        self.close_group()?;
        if self.groups > 0 {
            self.rows.push((NEXT_GROUP_KEY.to_vec(), self.groups.to_le_bytes().to_vec()));
        }
        self.rows.sort_unstable();
        if self.rows.windows(2).any(|pair| pair[0].0 == pair[1].0) {
            return Err(MALFORMED);
        }
        let rows = std::mem::take(&mut self.rows);
        for some in rows.chunks(LEAF_ROWS) {
            let mut leaf = RowsBuilder::new(SHAPE);
            some.iter().for_each(|(key, value)| leaf.push(0, 0, &[key, value]));
            self.leaves.push(leaf.into_leaf());
        }
        Ok(())
    }

    /// Makes a key of it, whatever that held.
    ///
    /// Errors: [`crate::CommandError::OUT_OF_MEMORY`]; nothing is changed then.
    pub(super) fn store(self, cx: &mut Cx<'_, '_>, key: &Key<'_>) -> CommandResult {
        cx.store_stream(key, self.head, self.leaves)
    }
}

impl OpenGroup {
    /// Lets a pending entry be one of the last consumer.
    ///
    /// Errors: it is not pending, or one of another.
    fn own(&mut self, id: StreamId) -> Result<(), Error> {
        let at = self.pending.binary_search_by_key(&id, |(id, _)| *id).map_err(|_| MALFORMED)?;
        let (_, consumer) = self.consumers.last_mut().ok_or(MALFORMED)?;
        let nack = &mut self.pending[at].1;
        if nack.consumer != NOBODY {
            return Err(MALFORMED);
        }
        nack.consumer = consumer.number;
        consumer.pending += 1;
        Ok(())
    }

    /// Makes rows of it. Errors: an entry is pending with nobody.
    fn close(self, rows: &mut Vec<(Vec<u8>, Vec<u8>)>) -> Result<(), Error> {
        let OpenGroup { name, number, last, read, pending, consumers } = self;
        let group = Group {
            number,
            next_consumer: consumers.len() as u32,
            consumers: consumers.len() as u64,
            pending: pending.len() as u64,
            last,
            read,
        };
        rows.push((group_key(&name), group.to_bytes()));
        for (name, consumer) in consumers {
            rows.push((consumer_key(number, &name), consumer.to_bytes()));
            rows.push((consumer_name_key(number, consumer.number), name));
        }
        for (id, nack) in pending {
            if nack.consumer == NOBODY {
                return Err(MALFORMED);
            }
            rows.push((pending_key(number, id), nack.to_bytes()));
            rows.push((owned_key(number, nack.consumer, id), Vec::new()));
        }
        Ok(())
    }
}
