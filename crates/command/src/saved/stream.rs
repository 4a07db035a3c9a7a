//! Streams on their way to a file: the leaves of entries, then those of rows.
//!
//! A file has the groups one behind the other, each with its pending entries and its consumers. Rows stand in nearly
//! that order (`value::leaf::stream_rows`): all groups first, then of each its consumers and its pending entries. So
//! what is in front is kept until it is written: the groups, and the consumers of one group.

use std::collections::VecDeque;

use rdb::write::{StreamWriter, begin_stream};
use value::StreamId;
use value::leaf::entries::{self, Entries, is_entries};
use value::leaf::rows::Rows;
use value::leaf::stream::Head;
use value::leaf::stream_rows::{Consumer, Group, Nack, RowName, name_of_key};

/// A stream that is being written.
pub(super) struct SavedStream {
    head: Head,
    first: StreamId,
    /// Whether the head is written.
    has_head: bool,
    /// Those that are not written, by their numbers once the head is.
    groups: VecDeque<(Vec<u8>, Group)>,
    group: Option<OpenGroup>,
}

/// A group of which the rows are being read. It is written, and so are its pending entries so far.
struct OpenGroup {
    number: u32,
    /// Those that are not written, by their numbers once the first is.
    consumers: VecDeque<(Vec<u8>, Consumer)>,
    /// Whether the number of consumers is written.
    has_consumers: bool,
}

impl SavedStream {
    /// Begins a stream of so many leaves of entries that are not empty.
    pub(super) fn begin(out: &mut Vec<u8>, head: Head, nodes: u64) -> SavedStream {
        begin_stream(out, nodes);
        let (first, groups) = (StreamId::MIN, VecDeque::new());
        SavedStream { head, first, has_head: false, groups, group: None }
    }

    /// Adds the next leaf.
    pub(super) fn add(&mut self, out: &mut Vec<u8>, leaf: &[u8]) {
        if *leaf == entries::EMPTY {
            return;
        }
        if !is_entries(leaf) {
            return Rows::new(leaf).iter().for_each(|row| self.add_row(out, row.first, row.second));
        }
        let leaf = Entries::new(leaf);
        if self.first == StreamId::MIN {
            self.first = leaf.first().unwrap_or(StreamId::MIN);
        }
        let mut writer = StreamWriter::resumed(out);
        leaf.iter().for_each(|entry| writer.entry(entry.id, entry.iter()));
        writer.end_node();
    }

    /// Ends the stream.
    pub(super) fn finish(mut self, out: &mut Vec<u8>) {
        self.write_head(out);
        self.open_group(out, None);
    }

    fn add_row(&mut self, out: &mut Vec<u8>, key: &[u8], value: &[u8]) {
        match name_of_key(key) {
            RowName::Group(name) => {
                self.groups.push_back((name.to_vec(), Group::from_bytes(value)));
            }
            RowName::Consumer(group, name) => {
                let consumer = (name.to_vec(), Consumer::from_bytes(value));
                self.open_group(out, Some(group)).consumers.push_back(consumer);
            }
            RowName::ConsumerName(..) | RowName::NextGroup => {}
            RowName::Pending(group, id) => {
                let nack = Nack::from_bytes(value);
                self.open_group(out, Some(group));
                StreamWriter::resumed(out).pending(id, nack.delivered_ms, nack.deliveries);
            }
            RowName::Owned(group, consumer, id) => {
                self.open_group(out, Some(group)).open_consumer(out, Some(consumer));
                StreamWriter::resumed(out).owned(id);
            }
        }
    }

    fn write_head(&mut self, out: &mut Vec<u8>) {
        if self.has_head {
            return;
        }
        self.has_head = true;
        self.groups.make_contiguous().sort_unstable_by_key(|(_, group)| group.number);
        let Head { length, last, max_deleted, added } = self.head;
        let head = rdb::Head { length, last, first: self.first, max_deleted, added };
        StreamWriter::resumed(out).head(head, self.groups.len() as u64);
    }

    /// Ends the groups in front of one, or all, and begins that one.
    fn open_group(&mut self, out: &mut Vec<u8>, number: Option<u32>) -> &mut OpenGroup {
        self.write_head(out);
        while self.group.as_ref().is_none_or(|group| Some(group.number) != number) {
            if let Some(group) = &mut self.group {
                group.open_consumer(out, None);
            }
            let Some((name, group)) = self.groups.pop_front() else { break };
            StreamWriter::resumed(out).group(&name, group.last, group.read, group.pending);
            let (number, consumers) = (group.number, VecDeque::new());
            self.group = Some(OpenGroup { number, consumers, has_consumers: false });
        }
        let none = || OpenGroup { number: 0, consumers: VecDeque::new(), has_consumers: true };
        self.group.get_or_insert_with(none)
    }
}

impl OpenGroup {
    /// Writes the consumers up to one, or all.
    fn open_consumer(&mut self, out: &mut Vec<u8>, number: Option<u32>) {
        let mut writer = StreamWriter::resumed(out);
        if !self.has_consumers {
            self.has_consumers = true;
            self.consumers.make_contiguous().sort_unstable_by_key(|(_, consumer)| consumer.number);
            writer.consumers(self.consumers.len() as u64);
        }
        let is_due = |consumer: &Consumer| number.is_none_or(|number| consumer.number <= number);
        while let Some((name, consumer)) = self.consumers.pop_front_if(|next| is_due(&next.1)) {
            writer.consumer(&name, consumer.seen_ms, consumer.pending);
        }
    }
}
