//! Writes streams as Redis 7.0 does (`stream.rs` tells of their bytes).

use value::StreamId;

use crate::length;
use crate::listpack::ListpackBuilder;
use crate::stream::{ENTRY_VALUES, Head, READ_UNKNOWN, SAME_FIELDS_FLAG};
use crate::text;

const STREAM_LISTPACKS_2: u8 = 19;

/// Writes a stream: its nodes of entries, its head, its groups, each with its pending entries and consumers.
/// Lengths in front of what follows are for the caller to know.
pub struct StreamWriter<'o> {
    out: &'o mut Vec<u8>,
    /// Where the number of nodes is written. None: it stands there.
    nodes_at: Option<usize>,
    nodes: u32,
    node: Option<Node>,
    /// Entries of the node.
    entries: ListpackBuilder,
}

/// A node of entries under way.
struct Node {
    id: StreamId,
    count: i64,
    /// Names of the fields of the first entry, one behind another, and where each ends.
    names: Vec<u8>,
    ends: Vec<usize>,
}

impl Node {
    fn names(&self) -> impl Iterator<Item = &[u8]> {
        let starts = [0].into_iter().chain(self.ends.iter().copied());
        starts.zip(&self.ends).map(|(start, &end)| &self.names[start..end])
    }
}

/// Begins a stream of so many nodes, so that it need not be in memory as a whole.
pub fn begin_stream(out: &mut Vec<u8>, nodes: u64) {
    out.push(STREAM_LISTPACKS_2);
    length::write(out, nodes);
}

impl<'o> StreamWriter<'o> {
    /// Begins a stream.
    pub fn new(out: &'o mut Vec<u8>) -> StreamWriter<'o> {
        out.push(STREAM_LISTPACKS_2);
        let nodes_at = Some(length::write_later(out));
        StreamWriter { nodes_at, ..StreamWriter::resumed(out) }
    }

    /// Goes on with a stream that [`begin_stream`] has begun, behind a node or behind its entries.
    pub fn resumed(out: &'o mut Vec<u8>) -> StreamWriter<'o> {
        let entries = ListpackBuilder::default();
        StreamWriter { out, nodes_at: None, nodes: 0, node: None, entries }
    }

    /// Ends the node of the entries so far: the next begins one.
    pub fn end_node(&mut self) {
        let Some(node) = self.node.take() else { return };
        let mut listpack = ListpackBuilder::default();
        listpack.push_integer(node.count);
        listpack.push_integer(0);
        listpack.push_integer(node.ends.len() as i64);
        node.names().for_each(|name| listpack.push(name));
        listpack.push_integer(0);
        listpack.append(&self.entries);
        self.entries.clear();
        text::write_raw(self.out, &node.id.to_bytes());
        text::write_raw(self.out, listpack.finish());
        self.nodes += 1;
    }

    /// Adds an entry, of a greater ID than those before, with fields and values.
    pub fn entry<'p>(
        &mut self,
        id: StreamId,
        pairs: impl Iterator<Item = (&'p [u8], &'p [u8])> + Clone,
    ) {
        let node = self.node.get_or_insert_with(|| {
            let (mut names, mut ends) = (Vec::new(), Vec::new());
            for (name, _) in pairs.clone() {
                names.extend_from_slice(name);
                ends.push(names.len());
            }
            Node { id, count: 0, names, ends }
        });
        node.count += 1;
        let has_same = pairs.clone().map(|(name, _)| name).eq(node.names());
        let entries = &mut self.entries;
        entries.push_integer(if has_same { SAME_FIELDS_FLAG } else { 0 });
        entries.push_integer(id.ms.wrapping_sub(node.id.ms) as i64);
        entries.push_integer(id.seq.wrapping_sub(node.id.seq) as i64);
        let mut values = ENTRY_VALUES;
        if !has_same {
            entries.push_integer(pairs.clone().count() as i64);
            values += 1;
        }
        for (name, value) in pairs {
            if !has_same {
                entries.push(name);
                values += 1;
            }
            entries.push(value);
            values += 1;
        }
        entries.push_integer(values);
    }

    /// Ends the entries: writes what is known of the stream, and how many groups it has.
    pub fn head(&mut self, head: Head, groups: u64) {
        self.end_node();
        if let Some(at) = self.nodes_at {
            length::write_at(self.out, at, self.nodes);
        }
        let Head { length, last, first, max_deleted, added } = head;
        let ids = [last, first, max_deleted].into_iter().flat_map(|id| [id.ms, id.seq]);
        for number in [length].into_iter().chain(ids).chain([added, groups]) {
            length::write(self.out, number);
        }
    }

    /// Begins a group with so many pending entries.
    pub fn group(&mut self, name: &[u8], last: StreamId, read: Option<u64>, pending: u64) {
        text::write(self.out, name);
        for number in [last.ms, last.seq, read.unwrap_or(READ_UNKNOWN), pending] {
            length::write(self.out, number);
        }
    }

    /// Adds a pending entry of the group, in the order of IDs.
    pub fn pending(&mut self, id: StreamId, delivered_ms: u64, deliveries: u64) {
        self.out.extend(id.to_bytes());
        self.out.extend(delivered_ms.to_le_bytes());
        length::write(self.out, deliveries);
    }

    /// Begins so many consumers, behind the pending entries of the group.
    pub fn consumers(&mut self, consumers: u64) {
        length::write(self.out, consumers);
    }

    /// Begins a consumer with so many pending entries.
    pub fn consumer(&mut self, name: &[u8], seen_ms: u64, pending: u64) {
        text::write(self.out, name);
        self.out.extend(seen_ms.to_le_bytes());
        length::write(self.out, pending);
    }

    /// Adds a pending entry of the consumer, in the order of IDs.
    pub fn owned(&mut self, id: StreamId) {
        self.out.extend(id.to_bytes());
    }
}
