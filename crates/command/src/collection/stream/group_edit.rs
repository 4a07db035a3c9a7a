//! What a command changes of a consumer group.

use std::collections::{BTreeSet, HashMap};
use std::ops::ControlFlow;

use value::StreamId;
use value::leaf::stream_rows::{
    Consumer, Group, NEXT_GROUP_KEY, Nack, consumer_key, consumer_name_key, group_key, group_keys,
    id_of_key, owned_key, owned_keys, pending_key,
};

use super::{RowEdits, Stream};
use crate::error::{CommandError, CommandResult};

/// When an entry was delivered, and how often.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// Unix milliseconds of the last time.
    pub at_ms: u64,
    /// How often.
    pub count: u64,
}

/// A group as a command changes it, one step after another; [`GroupEdit::finish`] gives what comes of it.
#[derive(Debug)]
pub struct GroupEdit {
    name: Vec<u8>,
    group: Group,
    is_changed: bool,
    /// Those that were met.
    consumers: Vec<KnownConsumer>,
    /// Where these stand, by their numbers.
    positions: HashMap<u32, usize>,
    edits: RowEdits,
}

#[derive(Debug)]
struct KnownConsumer {
    name: Vec<u8>,
    consumer: Consumer,
    is_changed: bool,
    is_gone: bool,
}

impl GroupEdit {
    /// Bytes that a pending entry takes while a command notes what becomes of it, at most about: three rows that
    /// are set or go, of 100 bytes each, and what was read of it.
    pub const NOTED_BYTES: usize = 384;

    /// A group to be changed. None: there is none of that name. Errors: [`CommandError::NotResident`].
    pub fn open(stream: &mut Stream<'_>, name: &[u8]) -> Result<Option<GroupEdit>, CommandError> {
        let group = stream.group(name)?;
        Ok(group.map(|group| GroupEdit {
            name: name.to_vec(),
            group,
            is_changed: false,
            consumers: Vec::new(),
            positions: HashMap::new(),
            edits: RowEdits::default(),
        }))
    }

    /// What makes a group, which is not there yet.
    ///
    /// Errors: [`CommandError::NotResident`]; [`CommandError::OUT_OF_MEMORY`] when all numbers of groups are
    /// used.
    pub fn create(
        stream: &mut Stream<'_>,
        name: &[u8],
        (last, read): (StreamId, Option<u64>),
    ) -> Result<RowEdits, CommandError> {
        let number = stream.row(NEXT_GROUP_KEY)?.map_or(0, |row| {
            u32::from_le_bytes(row.as_slice().try_into().expect("invariant: 4 bytes"))
        });
        let next = number.checked_add(1).ok_or(CommandError::OUT_OF_MEMORY)?;
        let group = Group { number, next_consumer: 0, consumers: 0, pending: 0, last, read };
        let mut edits = RowEdits::default();
        edits.set(group_key(name), group.to_bytes());
        edits.set(NEXT_GROUP_KEY.to_vec(), next.to_le_bytes().to_vec());
        Ok(edits)
    }

    /// What removes the group's own row, and that of the stream's next group with the last one. The others are
    /// the caller's to remove ([`crate::Cx::remove_rows`]).
    ///
    /// Errors: [`CommandError::NotResident`].
    pub fn destroy(stream: &mut Stream<'_>, name: &[u8]) -> Result<RowEdits, CommandError> {
        let mut others = 0;
        stream.visit_rows(&group_keys(), 2, |_, _| {
            others += 1;
            if others < 2 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        let mut edits = RowEdits::default();
        edits.remove(group_key(name));
        if others == 1 {
            edits.remove(NEXT_GROUP_KEY.to_vec());
        }
        Ok(edits)
    }

    /// The group as it is now.
    pub fn group(&self) -> &Group {
        &self.group
    }

    /// Sets the last ID that was delivered, and how many entries were read.
    pub fn set_last(&mut self, last: StreamId, read: Option<u64>) {
        (self.group.last, self.group.read, self.is_changed) = (last, read, true);
    }

    /// The position among the consumers that were met of one with this name. Errors:
    /// [`CommandError::NotResident`].
    pub fn find(
        &mut self,
        stream: &mut Stream<'_>,
        name: &[u8],
    ) -> Result<Option<usize>, CommandError> {
        let is_it = |known: &KnownConsumer| !known.is_gone && known.name == name;
        if let Some(at) = self.consumers.iter().position(is_it) {
            return Ok(Some(at));
        }
        let found = stream.consumer(&self.group, name)?;
        Ok(found.map(|consumer| self.meet(name.to_vec(), consumer, false)))
    }

    fn meet(&mut self, name: Vec<u8>, consumer: Consumer, is_changed: bool) -> usize {
        self.positions.insert(consumer.number, self.consumers.len());
        self.consumers.push(KnownConsumer { name, consumer, is_changed, is_gone: false });
        self.consumers.len() - 1
    }

    /// Makes a consumer, which is not there yet. Returns its position.
    ///
    /// Errors: [`CommandError::OUT_OF_MEMORY`] when all numbers of consumers are used.
    pub fn create_consumer(&mut self, name: &[u8], now_ms: u64) -> Result<usize, CommandError> {
        let number = self.group.next_consumer;
        self.group.next_consumer = number.checked_add(1).ok_or(CommandError::OUT_OF_MEMORY)?;
        self.group.consumers += 1;
        self.is_changed = true;
        self.edits.set(consumer_name_key(self.group.number, number), name.to_vec());
        let consumer = Consumer { number, pending: 0, seen_ms: now_ms };
        Ok(self.meet(name.to_vec(), consumer, true))
    }

    /// The consumer of a name, made if there is none, who is seen now; and whether it is new.
    ///
    /// Errors: those of [`GroupEdit::find`] and [`GroupEdit::create_consumer`].
    pub fn see(
        &mut self,
        stream: &mut Stream<'_>,
        name: &[u8],
        now_ms: u64,
    ) -> Result<(usize, bool), CommandError> {
        match self.find(stream, name)? {
            None => Ok((self.create_consumer(name, now_ms)?, true)),
            Some(at) => {
                self.consumers[at].consumer.seen_ms = now_ms;
                self.consumers[at].is_changed = true;
                Ok((at, false))
            }
        }
    }

    /// A consumer at a position.
    pub fn consumer(&self, at: usize) -> &Consumer {
        &self.consumers[at].consumer
    }

    /// A pending entry as it is now. Errors: [`CommandError::NotResident`].
    pub fn nack(
        &mut self,
        stream: &mut Stream<'_>,
        id: StreamId,
    ) -> Result<Option<Nack>, CommandError> {
        match self.edits.get(&pending_key(self.group.number, id)) {
            Some(row) => Ok(row.map(Nack::from_bytes)),
            None => stream.nack(&self.group, id),
        }
    }

    /// Pending entries as they are now, of which the consumers are met: what changes of them is known without
    /// a look at one leaf after another. None: the entry of this ID is not pending.
    ///
    /// Errors: [`CommandError::NotResident`].
    pub fn nacks(
        &mut self,
        stream: &mut Stream<'_>,
        ids: &[StreamId],
    ) -> Result<Vec<Option<Nack>>, CommandError> {
        stream.announce_pending(&self.group, ids)?;
        let nacks = ids.iter().map(|&id| self.nack(stream, id));
        let nacks = nacks.collect::<Result<Vec<Option<Nack>>, CommandError>>()?;
        self.meet_owners(stream, nacks.iter().flatten())?;
        Ok(nacks)
    }

    /// Meets the consumers of pending entries, as far as they have not been met.
    ///
    /// Errors: [`CommandError::NotResident`].
    pub fn meet_owners<'n>(
        &mut self,
        stream: &mut Stream<'_>,
        nacks: impl Iterator<Item = &'n Nack>,
    ) -> CommandResult {
        let owners = nacks.map(|nack| nack.consumer);
        let unmet: BTreeSet<u32> =
            owners.filter(|owner| !self.positions.contains_key(owner)).collect();
        if unmet.is_empty() {
            return Ok(());
        }
        let names = stream.consumer_names(&self.group, &unmet)?;
        let number = self.group.number;
        stream.announce_rows(names.values().map(|name| consumer_key(number, name)))?;
        for name in names.into_values() {
            let found = stream.consumer(&self.group, &name)?;
            self.meet(name, found.expect("invariant: a consumer with a name"), false);
        }
        Ok(())
    }

    /// The first entries that are pending with the consumer at a position from an ID on, so many at most.
    ///
    /// Errors: [`CommandError::NotResident`].
    pub fn owned(
        &mut self,
        stream: &mut Stream<'_>,
        (at, from): (usize, StreamId),
        count_max: u64,
    ) -> Result<Vec<StreamId>, CommandError> {
        let consumer = self.consumers[at].consumer;
        let range = owned_keys(self.group.number, consumer.number, from);
        let (mut set, mut gone): (Vec<StreamId>, Vec<StreamId>) = Default::default();
        for (key, is_set) in self.edits.of(&range) {
            let changed = if is_set { &mut set } else { &mut gone };
            changed.push(id_of_key(key));
        }
        let wanted = count_max.saturating_add(gone.len() as u64);
        let mut ids = stream.owned((&self.group, &consumer), from, wanted)?;
        ids.retain(|id| gone.binary_search(id).is_err());
        if !set.is_empty() {
            ids.append(&mut set);
            ids.sort_unstable();
            ids.dedup();
        }
        ids.truncate(usize::try_from(count_max).unwrap_or(usize::MAX));
        Ok(ids)
    }

    /// Lets an entry be pending with the consumer at a position, whoever had it.
    ///
    /// Errors: [`CommandError::NotResident`].
    pub fn assign(
        &mut self,
        stream: &mut Stream<'_>,
        id: StreamId,
        (before, to): (Option<Nack>, usize),
        delivery: Delivery,
    ) -> CommandResult {
        let number = self.consumers[to].consumer.number;
        if before.is_none_or(|nack| nack.consumer != number) {
            match before {
                Some(nack) => self.disown(stream, id, nack)?,
                None => self.group.pending += 1,
            }
            self.is_changed = true;
            self.consumers[to].consumer.pending += 1;
            self.consumers[to].is_changed = true;
            self.edits.set(owned_key(self.group.number, number, id), Vec::new());
        }
        let nack =
            Nack { consumer: number, delivered_ms: delivery.at_ms, deliveries: delivery.count };
        self.edits.set(pending_key(self.group.number, id), nack.to_bytes());
        Ok(())
    }

    /// Lets an entry be pending no more. Errors: [`CommandError::NotResident`].
    pub fn acknowledge(
        &mut self,
        stream: &mut Stream<'_>,
        id: StreamId,
        nack: Nack,
    ) -> CommandResult {
        self.disown(stream, id, nack)?;
        self.group.pending -= 1;
        self.is_changed = true;
        self.edits.remove(pending_key(self.group.number, id));
        Ok(())
    }

    fn disown(&mut self, stream: &mut Stream<'_>, id: StreamId, nack: Nack) -> CommandResult {
        self.meet_owners(stream, [nack].iter())?;
        let at = self.positions[&nack.consumer];
        self.consumers[at].consumer.pending -= 1;
        self.consumers[at].is_changed = true;
        self.edits.remove(owned_key(self.group.number, nack.consumer, id));
        Ok(())
    }

    /// Removes the consumer at a position, with what is pending with it. Returns how many entries that is.
    ///
    /// Errors: [`CommandError::NotResident`].
    pub fn delete_consumer(
        &mut self,
        stream: &mut Stream<'_>,
        at: usize,
    ) -> Result<u64, CommandError> {
        let (consumer, group) = (self.consumers[at].consumer, self.group.number);
        for id in stream.owned((&self.group, &consumer), StreamId::MIN, u64::MAX)? {
            self.edits.remove(pending_key(group, id));
            self.edits.remove(owned_key(group, consumer.number, id));
        }
        self.edits.remove(consumer_name_key(group, consumer.number));
        self.edits.remove(consumer_key(group, &self.consumers[at].name));
        self.group.consumers -= 1;
        self.group.pending -= consumer.pending;
        self.is_changed = true;
        self.consumers[at].is_gone = true;
        Ok(consumer.pending)
    }

    /// What changes, in rows.
    pub fn finish(self) -> RowEdits {
        let GroupEdit { name, group, is_changed, consumers, mut edits, .. } = self;
        if is_changed {
            edits.set(group_key(&name), group.to_bytes());
        }
        for known in consumers.iter().filter(|known| known.is_changed && !known.is_gone) {
            edits.set(consumer_key(group.number, &known.name), known.consumer.to_bytes());
        }
        edits
    }
}
