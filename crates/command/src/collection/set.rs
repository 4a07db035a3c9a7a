//! Sets.

use keyspace::{Expiry, Key, Stored};
use value::leaf::members::{Members, MembersMut, SHAPE, leaf_of};
use value::leaf::rows::ROWS_MAX;
use value::{Kind, parse_i64};

use crate::cx::Cx;
use crate::effect::Event;
use crate::error::{CommandError, CommandResult};

/// A set to be changed.
pub struct SetMut<'a> {
    kind: &'a mut Kind,
    members: MembersMut<'a>,
    integers_max: u64,
}

impl SetMut<'_> {
    /// The set to be read.
    pub fn members(&self) -> Members<'_> {
        self.members.members()
    }

    /// Adds a member. Returns whether it is new.
    pub fn add(&mut self, member: &[u8]) -> bool {
        let is_new = self.members.add(member);
        if is_new && *self.kind == Kind::SET_INTEGERS {
            let are_few = self.members().len() as u64 <= self.integers_max;
            if !are_few || parse_i64(member).is_none() {
                *self.kind = Kind::SET;
            }
        }
        is_new
    }

    /// Removes a member. Returns whether it was there.
    pub fn remove(&mut self, member: &[u8]) -> bool {
        self.members.remove(member)
    }

    /// Gives the set the kind of a new one with these members.
    pub fn renew_kind(&mut self) {
        *self.kind = kind_of(self.members().iter(), self.integers_max);
    }

    /// Removes the members at positions, which ascend. Panics: there are fewer members.
    pub fn remove_all_at(&mut self, positions: &[usize]) {
        self.members.remove_all_at(positions);
    }
}

impl Cx<'_, '_> {
    /// The set of a key, counting as an access.
    ///
    /// Errors: [`CommandError::WRONG_TYPE`], [`CommandError::NotResident`].
    #[inline]
    pub fn read_set(&mut self, key: &Key<'_>) -> Result<Option<Members<'_>>, CommandError> {
        let found = self.read_collection(key, Kind::is_set)?;
        Ok(found.map(|value| Members::new(value.bytes)))
    }

    /// The set of a key that [`Cx::read_set`] has found in the same run, which is no further access.
    pub fn set_again(&mut self, key: &Key<'_>) -> Option<Members<'_>> {
        self.leaf_again(key).map(Members::new)
    }

    /// A copy of the leaf of such a set.
    pub fn copy_set(&mut self, key: &Key<'_>) -> Option<Vec<u8>> {
        self.leaf_again(key).map(<[u8]>::to_vec)
    }

    fn leaf_again(&mut self, key: &Key<'_>) -> Option<&[u8]> {
        let fetched = self.fetched;
        match self.peek(key)?.stored {
            Stored::Hot(bytes) | Stored::Clean(bytes, _) => Some(bytes),
            Stored::Cold(at, _) => fetched.value(at),
        }
    }

    /// Changes the set of a key, an empty one if the key does not exist; it does not afterwards if the
    /// set is empty.
    ///
    /// Errors: as [`Cx::read_set`]; nothing is changed then.
    pub fn edit_set<R>(
        &mut self,
        key: &Key<'_>,
        change: impl FnOnce(&mut SetMut<'_>) -> R,
    ) -> Result<R, CommandError> {
        let integers_max = self.encodings.intset_entries_max();
        let empty = (Kind::SET_INTEGERS, &SHAPE.empty()[..]);
        self.edit(key, Kind::is_set, empty, |kind, leaf| {
            change(&mut SetMut { kind, members: MembersMut::new(leaf), integers_max })
        })
    }

    /// The kind of a new set with these members, which are all different.
    pub fn kind_of_set<'m>(&self, members: impl ExactSizeIterator<Item = &'m [u8]>) -> Kind {
        kind_of(members, self.encodings.intset_entries_max())
    }

    /// Sets a key to a set of members that are all different, whatever the key held; without members the
    /// key is removed. It does not expire. `event` is reported where there are members.
    ///
    /// Errors: [`CommandError::OUT_OF_MEMORY`]; nothing is changed then.
    pub fn store_set(
        &mut self,
        key: &Key<'_>,
        kind: Kind,
        members: &[&[u8]],
        event: Event,
    ) -> CommandResult {
        if members.is_empty() {
            self.remove(key);
            return Ok(());
        }
        let rows_bytes: usize = members.iter().map(|member| SHAPE.row_bytes(&[member])).sum();
        self.check_memory(SHAPE.empty().len() + rows_bytes)?;
        if members.len() > ROWS_MAX {
            return Err(CommandError::OUT_OF_MEMORY);
        }
        self.db(key).put_vec(key, kind.bits(), leaf_of(members), Expiry::Clear);
        self.report(key, event, 1);
        Ok(())
    }
}

fn kind_of<'m>(mut members: impl ExactSizeIterator<Item = &'m [u8]>, integers_max: u64) -> Kind {
    let are_few = members.len() as u64 <= integers_max;
    let is_intset = are_few && members.all(|member| parse_i64(member).is_some());
    if is_intset { Kind::SET_INTEGERS } else { Kind::SET }
}
