//! Commands that make a value, for one that is too large to be sent as a whole: those that Redis, too, writes into a
//! log that it rewrites.

use rdb::{EntriesRead, Item, StreamItem};
use value::StreamId;

use crate::link::Request;

/// Bytes of a command of several elements.
const COMMAND_BYTES: usize = 64 << 10;
/// Pending entries of a group, which are kept until their consumers are known.
const PENDING_MAX: usize = 4 << 20;

/// Something takes too much memory.
pub(crate) struct TooMuch(pub(crate) &'static str);

/// Makes commands of the items of a value.
pub(crate) struct Maker<'k> {
    key: &'k [u8],
    ready: Vec<Request>,
    ready_bytes: usize,
    /// A command that takes more elements.
    open: Option<Request>,
    group: Vec<u8>,
    consumer: Vec<u8>,
    /// When each was delivered, and how often.
    pending: Vec<(StreamId, u64, u64)>,
}

impl<'k> Maker<'k> {
    pub(crate) fn new(key: &'k [u8]) -> Maker<'k> {
        let (ready, open) = (Vec::new(), None);
        let (group, consumer, pending) = Default::default();
        Maker { key, ready, ready_bytes: 0, open, group, consumer, pending }
    }

    /// Bytes of the commands that were not taken.
    pub(crate) fn bytes(&self) -> usize {
        self.ready_bytes + self.open.as_ref().map_or(0, Request::bytes)
    }

    /// Takes the commands that are ready.
    pub(crate) fn take(&mut self) -> Vec<Request> {
        self.ready_bytes = 0;
        std::mem::take(&mut self.ready)
    }

    /// Has the last command be ready.
    pub(crate) fn finish(&mut self) {
        if let Some(open) = self.open.take() {
            self.push(open);
        }
    }

    pub(crate) fn add(&mut self, item: &Item<'_>) -> Result<(), TooMuch> {
        match *item {
            Item::String(text) => {
                let request = Request::of(&[b"SET", self.key, text]);
                self.push(request);
            }
            Item::Element(text) => self.add_words(b"RPUSH", &[text]),
            Item::Member(text) => self.add_words(b"SADD", &[text]),
            Item::Scored(text, score) => {
                self.add_words(b"ZADD", &[score.to_string().as_bytes(), text]);
            }
            Item::Field { field, value, expire_at_ms } => {
                self.add_words(b"HSET", &[field, value]);
                if expire_at_ms > 0 {
                    self.finish();
                    let mut request = Request::of(&[b"HPEXPIREAT", self.key]);
                    request.push_number(expire_at_ms);
                    [&b"FIELDS"[..], b"1", field].iter().for_each(|word| request.push(word));
                    self.push(request);
                }
            }
            Item::Stream(item) => self.add_to_stream(&item)?,
        }
        Ok(())
    }

    /// Adds words to a command, which is ready when it has enough.
    fn add_words(&mut self, name: &[u8], words: &[&[u8]]) {
        let key = self.key;
        let open = self.open.get_or_insert_with(|| Request::of(&[name, key]));
        words.iter().for_each(|word| open.push(word));
        if open.bytes() >= COMMAND_BYTES {
            self.finish();
        }
    }

    fn push(&mut self, request: Request) {
        self.ready_bytes += request.bytes();
        self.ready.push(request);
    }

    fn add_to_stream(&mut self, item: &StreamItem<'_>) -> Result<(), TooMuch> {
        let key = self.key;
        match *item {
            StreamItem::Entry(entry) => {
                let mut request = Request::of(&[b"XADD", key, id(entry.id).as_bytes()]);
                for (field, value) in entry.pairs() {
                    request.push(field);
                    request.push(value);
                }
                self.push(request);
            }
            StreamItem::Head(head) => {
                let last = id(head.last);
                if head.length == 0 && head.last > StreamId::MIN {
                    let last = last.as_bytes();
                    self.push(Request::of(&[b"XADD", key, b"MAXLEN", b"0", last, b"x", b"y"]));
                }
                if head.last > StreamId::MIN {
                    let (added, deleted) = (head.added.to_string(), id(head.max_deleted));
                    self.push(Request::of(&[
                        b"XSETID",
                        key,
                        last.as_bytes(),
                        b"ENTRIESADDED",
                        added.as_bytes(),
                        b"MAXDELETEDID",
                        deleted.as_bytes(),
                    ]));
                }
            }
            StreamItem::Group { name, last, read } => {
                self.pending.clear();
                self.group = name.to_vec();
                let last = id(last);
                let mut request = Request::of(&[b"XGROUP", b"CREATE", key, name, last.as_bytes()]);
                request.push(b"MKSTREAM");
                match read {
                    EntriesRead::Known(read) => {
                        request.push(b"ENTRIESREAD");
                        request.push_number(read);
                    }
                    EntriesRead::Unknown => {
                        request.push(b"ENTRIESREAD");
                        request.push(b"-1");
                    }
                    EntriesRead::NotStored => {}
                }
                self.push(request);
            }
            StreamItem::Pending { id, delivered_ms, deliveries } => {
                if self.pending.len() == PENDING_MAX {
                    return Err(TooMuch("a group of a stream has too many pending entries"));
                }
                self.pending.push((id, delivered_ms, deliveries));
            }
            StreamItem::Consumer { name, .. } => {
                self.consumer = name.to_vec();
                self.push(Request::of(&[b"XGROUP", b"CREATECONSUMER", key, &self.group, name]));
            }
            StreamItem::Owned(owned) => {
                let found = self.pending.binary_search_by_key(&owned, |&(id, ..)| id);
                let at =
                    found.map_err(|_| TooMuch("a consumer has an entry that is not pending"))?;
                let (_, delivered_ms, deliveries) = self.pending[at];
                let mut request = Request::of(&[b"XCLAIM", key, &self.group, &self.consumer, b"0"]);
                request.push(id(owned).as_bytes());
                request.push(b"TIME");
                request.push_number(delivered_ms);
                request.push(b"RETRYCOUNT");
                request.push_number(deliveries);
                request.push(b"JUSTID");
                request.push(b"FORCE");
                self.push(request);
            }
        }
        Ok(())
    }
}

fn id(id: StreamId) -> String {
    format!("{}-{}", id.ms, id.seq)
}
