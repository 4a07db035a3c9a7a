//! What is known of consumer groups: their consumers, and what is pending with these.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use value::StreamId;
use value::leaf::stream::Head;
use value::leaf::stream_rows::{
    Consumer, Group, KeyRange, Nack, consumer_key, consumer_keys, consumer_name, consumer_name_key,
    group_key, group_keys, group_name, id_of_key, owned_keys, pending_key, pending_keys,
};

use super::Stream;
use crate::error::{CommandError, CommandResult};

/// A group with its consumers.
pub struct WholeGroup {
    /// Its name.
    pub name: Vec<u8>,
    /// The group.
    pub group: Group,
    /// All consumers with their names.
    pub consumers: Vec<(Vec<u8>, Consumer)>,
}

/// How many entries were added up to an ID to a stream with such a head, as far as that can be told. `first` gives
/// the ID of its first entry.
///
/// Errors: those of `first`.
pub fn distance_from_first_ever<E>(
    head: &Head,
    id: StreamId,
    first: impl FnOnce() -> Result<StreamId, E>,
) -> Result<Option<u64>, E> {
    let Head { length, added, last, max_deleted } = *head;
    if added == 0 {
        return Ok(Some(0));
    }
    if id == last || (length == 0 && id < last) {
        return Ok(Some(added));
    }
    if id > last {
        return Ok(None);
    }
    let first = first()?;
    let is_whole = max_deleted == StreamId::MIN || max_deleted < first;
    Ok(match id.cmp(&first) {
        std::cmp::Ordering::Less if is_whole => Some(added.wrapping_sub(length)),
        std::cmp::Ordering::Equal if is_whole => Some(added.wrapping_sub(length).wrapping_add(1)),
        _ => None,
    })
}

impl Stream<'_> {
    /// A group. Errors: [`CommandError::NotResident`].
    pub fn group(&mut self, name: &[u8]) -> Result<Option<Group>, CommandError> {
        Ok(self.row(&group_key(name))?.map(|row| Group::from_bytes(&row)))
    }

    /// How many groups there are. Errors: [`CommandError::NotResident`].
    pub fn group_count(&mut self) -> Result<u64, CommandError> {
        let mut count = 0;
        self.visit_rows(&group_keys(), u64::MAX, |_, _| {
            count += 1;
            ControlFlow::Continue(())
        })?;
        Ok(count)
    }

    /// The groups that are wanted, with their names, in the order of these. All are asked about.
    ///
    /// Errors: [`CommandError::NotResident`].
    pub fn groups(
        &mut self,
        mut is_wanted: impl FnMut(&[u8], &Group) -> bool,
    ) -> Result<Vec<(Vec<u8>, Group)>, CommandError> {
        let mut groups = Vec::new();
        self.visit_rows(&group_keys(), u64::MAX, |key, value| {
            let (name, group) = (group_name(key), Group::from_bytes(value));
            if is_wanted(name, &group) {
                groups.push((name.to_vec(), group));
            }
            ControlFlow::Continue(())
        })?;
        Ok(groups)
    }

    /// A consumer. Errors: [`CommandError::NotResident`].
    pub fn consumer(
        &mut self,
        group: &Group,
        name: &[u8],
    ) -> Result<Option<Consumer>, CommandError> {
        let row = self.row(&consumer_key(group.number, name))?;
        Ok(row.map(|row| Consumer::from_bytes(&row)))
    }

    /// The consumers of a group that are wanted, with their names, in the order of these. All are asked about.
    ///
    /// Errors: [`CommandError::NotResident`].
    pub fn consumers(
        &mut self,
        group: &Group,
        mut is_wanted: impl FnMut(&[u8], &Consumer) -> bool,
    ) -> Result<Vec<(Vec<u8>, Consumer)>, CommandError> {
        let mut consumers = Vec::new();
        self.visit_rows(&consumer_keys(group.number), u64::MAX, |key, value| {
            let (name, consumer) = (consumer_name(key), Consumer::from_bytes(value));
            if is_wanted(name, &consumer) {
                consumers.push((name.to_vec(), consumer));
            }
            ControlFlow::Continue(())
        })?;
        Ok(consumers)
    }

    /// The names of consumers, by their numbers. Errors: [`CommandError::NotResident`].
    pub fn consumer_names(
        &mut self,
        group: &Group,
        consumers: &BTreeSet<u32>,
    ) -> Result<BTreeMap<u32, Vec<u8>>, CommandError> {
        let key = |consumer| consumer_name_key(group.number, consumer);
        self.announce_rows(consumers.iter().map(|&consumer| key(consumer)))?;
        let mut names = BTreeMap::new();
        for &consumer in consumers {
            let name = self.row(&key(consumer))?;
            let name = name.expect("invariant: what is pending with a consumer goes with it");
            names.insert(consumer, name);
        }
        Ok(names)
    }

    /// Looks for the consumers of groups, which are listed next. Errors: [`CommandError::NotResident`].
    pub fn announce_consumers(&mut self, groups: &[(Vec<u8>, Group)]) -> CommandResult {
        self.announce_ranges(
            groups.iter().map(|(_, group)| (consumer_keys(group.number), u64::MAX)),
        )
    }

    /// Looks for the first `count_max` pending entries of each group and of each consumer, which are listed next.
    ///
    /// Errors: [`CommandError::NotResident`].
    pub fn announce_listed(&mut self, groups: &[WholeGroup], count_max: u64) -> CommandResult {
        let consumers = |of: &WholeGroup| {
            let numbers = of.consumers.iter().filter(|(_, consumer)| consumer.pending > 0);
            numbers.map(|(_, consumer)| *consumer).collect::<Vec<Consumer>>()
        };
        let owned = groups.iter().flat_map(|of| {
            let number = of.group.number;
            let range =
                move |consumer: Consumer| owned_keys(number, consumer.number, StreamId::MIN);
            consumers(of).into_iter().map(range)
        });
        let pending = groups.iter().map(|of| pending_keys(of.group.number, StreamId::MIN));
        self.announce_ranges(pending.chain(owned).map(|range| (range, count_max)))?;
        let mut wanted: Vec<(KeyRange, u64)> = Vec::new();
        for of in groups {
            let consumers = consumers(of);
            let listed: u64 = consumers.iter().map(|one| one.pending.min(count_max)).sum();
            if listed >= of.group.pending {
                wanted.push((pending_keys(of.group.number, StreamId::MIN), u64::MAX));
                continue;
            }
            for consumer in consumers {
                let ids = self.owned((&of.group, &consumer), StreamId::MIN, count_max)?;
                wanted.extend(ids.into_iter().map(|id| (pending_keys(of.group.number, id), 1)));
            }
        }
        self.announce_ranges(wanted.into_iter())
    }

    /// Visits the pending entries of a group from an ID on, of which about `count_max` are wanted.
    ///
    /// Errors: [`CommandError::NotResident`].
    pub fn pending(
        &mut self,
        group: &Group,
        (from, count_max): (StreamId, u64),
        mut each: impl FnMut(StreamId, Nack) -> ControlFlow<()>,
    ) -> CommandResult {
        self.visit_rows(&pending_keys(group.number, from), count_max, |key, value| {
            each(id_of_key(key), Nack::from_bytes(value))
        })
    }

    /// The last of the pending entries of a group. Errors: [`CommandError::NotResident`].
    pub fn last_pending(&mut self, group: &Group) -> Result<Option<StreamId>, CommandError> {
        let last = self.last_row(&pending_keys(group.number, StreamId::MIN))?;
        Ok(last.map(|key| id_of_key(&key)))
    }

    /// The first entries that are pending with a consumer from an ID on, so many at most.
    ///
    /// Errors: [`CommandError::NotResident`].
    pub fn owned(
        &mut self,
        (group, consumer): (&Group, &Consumer),
        from: StreamId,
        count_max: u64,
    ) -> Result<Vec<StreamId>, CommandError> {
        let mut ids = Vec::new();
        let range = owned_keys(group.number, consumer.number, from);
        self.visit_rows(&range, count_max, |key, _| {
            if ids.len() as u64 == count_max {
                return ControlFlow::Break(());
            }
            ids.push(id_of_key(key));
            ControlFlow::Continue(())
        })?;
        Ok(ids)
    }

    /// A pending entry. Errors: [`CommandError::NotResident`].
    pub fn nack(&mut self, group: &Group, id: StreamId) -> Result<Option<Nack>, CommandError> {
        Ok(self.row(&pending_key(group.number, id))?.map(|row| Nack::from_bytes(&row)))
    }

    /// Looks for the leaves of pending entries that are asked for next.
    ///
    /// Errors: [`CommandError::NotResident`].
    pub fn announce_pending(&mut self, group: &Group, ids: &[StreamId]) -> CommandResult {
        self.announce_rows(ids.iter().map(|&id| pending_key(group.number, id)))
    }

    /// How many entries were added up to an ID, as far as that can be told: nothing must have been deleted
    /// in between.
    ///
    /// Errors: [`CommandError::NotResident`].
    pub fn distance_from_first_ever(&mut self, id: StreamId) -> Result<Option<u64>, CommandError> {
        let head = self.head();
        distance_from_first_ever(&head, id, || self.first_id())
    }

    /// Whether an entry was deleted between an ID and the last, as far as that is known, and others are left in
    /// front of it.
    ///
    /// Errors: [`CommandError::NotResident`].
    pub fn has_deleted_from(&mut self, id: StreamId) -> Result<bool, CommandError> {
        let Head { length, max_deleted, .. } = self.head();
        let may_have = length > 0 && max_deleted != StreamId::MIN && id <= max_deleted;
        Ok(may_have && self.first_id()? <= max_deleted)
    }

    /// How many entries a group has yet to read, as far as that can be told.
    ///
    /// Errors: [`CommandError::NotResident`].
    pub fn lag(&mut self, group: &Group) -> Result<Option<i64>, CommandError> {
        let added = self.head().added;
        if added == 0 {
            return Ok(Some(0));
        }
        let read = match group.read {
            Some(read) if !self.has_deleted_from(group.last)? => Some(read),
            _ => self.distance_from_first_ever(group.last)?,
        };
        Ok(read.map(|read| added.wrapping_sub(read) as i64))
    }
}
