//! Hashes: the fields of one leaf, or of a tree of leaves by the hashes of their fields.

use std::ops::{ControlFlow, Range};

use keyspace::{Changed, Expiry, Key};
use smallvec::SmallVec;
use value::Kind;
use value::leaf::fields::{Fields, FieldsMut, SHAPE};
use value::leaf::rows::{ROWS_MAX, RowsBuilder};
use value::leaf::{Shape, fingerprint, split_by_hash};

use crate::collection::form::{HASH, order};
use crate::collection::place::{Path, Place};
use crate::collection::reader::TreeReader;
use crate::collection::tree::{LONG_BYTES, SINGLE_BYTES_MAX, Tree};
use crate::collection::{Found, PackedMax};
use crate::cx::Cx;
use crate::effect::Event;
use crate::error::{ColdValue, CommandError, CommandResult};

/// A value that is made of another one.
pub type NewValue = SmallVec<[u8; 32]>;

/// A field and its value.
type Field<'a> = (&'a [u8], &'a [u8]);

/// A hash to be read.
pub enum Hash<'a> {
    /// In one leaf.
    Leaf(Fields<'a>),
    /// In many.
    Tree(TreeReader<'a>),
}

impl Hash<'_> {
    /// How many fields, with those that have expired and were not removed yet.
    #[expect(clippy::len_without_is_empty, reason = "an empty hash is a key that does not exist")]
    pub fn len(&self) -> u64 {
        match self {
            Hash::Leaf(fields) => fields.len() as u64,
            Hash::Tree(tree) => tree.elements(),
        }
    }

    /// Bytes that all of it takes, about.
    pub fn byte_len(&self) -> u64 {
        match self {
            Hash::Leaf(fields) => fields.byte_len() as u64,
            Hash::Tree(tree) => tree.leaf_bytes(),
        }
    }

    /// Looks for the leaves of fields that are asked for next, so that all that are on flash are read
    /// together.
    ///
    /// Errors: [`CommandError::NotResident`].
    pub fn announce<'f>(&mut self, fields: impl Iterator<Item = &'f [u8]>) -> CommandResult {
        match self {
            Hash::Leaf(_) => Ok(()),
            Hash::Tree(tree) => tree.announce(fields.map(order)),
        }
    }

    /// The value of a field.
    ///
    /// Errors: [`CommandError::NotResident`].
    #[inline]
    pub fn get(&mut self, field: &[u8]) -> Result<Option<&[u8]>, CommandError> {
        Ok(self.leaf_of(field)?.get(field))
    }

    /// When a field expires: Unix milliseconds, 0 for never. None: it is not there.
    ///
    /// Errors: [`CommandError::NotResident`].
    pub fn expiry(&mut self, field: &[u8]) -> Result<Option<u64>, CommandError> {
        Ok(self.leaf_of(field)?.expiry(field))
    }

    #[inline]
    fn leaf_of(&mut self, field: &[u8]) -> Result<Fields<'_>, CommandError> {
        match self {
            Hash::Leaf(fields) => Ok(*fields),
            Hash::Tree(tree) => {
                let now_ms = tree.now_ms;
                Ok(Fields::at_time(tree.leaf(&order(field))?, now_ms))
            }
        }
    }

    /// The leaf that holds a field, if it is one of many and on flash alone.
    pub fn cold_leaf(&self, field: &[u8]) -> Option<ColdValue> {
        match self {
            Hash::Leaf(_) => None,
            Hash::Tree(tree) => tree.cold_leaf(&order(field)),
        }
    }

    /// A field, by its position, and its value. None: it has expired. Panics: there are fewer.
    ///
    /// Errors: [`CommandError::NotResident`].
    pub fn at(&mut self, position: u64) -> Result<Option<Field<'_>>, CommandError> {
        match self {
            Hash::Leaf(fields) => Ok(fields.at(position as usize)),
            Hash::Tree(tree) => {
                let now_ms = tree.now_ms;
                let (leaf, position) = tree.leaf_of_nth(position)?;
                Ok(Fields::at_time(leaf, now_ms).at(position))
            }
        }
    }

    /// Visits all fields and their values.
    ///
    /// Errors: [`CommandError::NotResident`], before the first.
    pub fn visit(
        &mut self,
        mut visit: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> CommandResult {
        let mut visit_leaf =
            |fields: Fields<'_>| fields.iter().try_for_each(|(field, value)| visit(field, value));
        match self {
            Hash::Leaf(fields) => {
                let _ = visit_leaf(*fields);
                Ok(())
            }
            Hash::Tree(tree) => {
                let now_ms = tree.now_ms;
                tree.visit(|leaf| visit_leaf(Fields::at_time(leaf, now_ms)))
            }
        }
    }

    /// The same, each with when it expires: Unix milliseconds, 0 for never.
    ///
    /// Errors: [`CommandError::NotResident`], before the first.
    pub fn visit_with_expiry(&mut self, mut visit: impl FnMut(&[u8], &[u8], u64)) -> CommandResult {
        let mut visit_leaf = |fields: Fields<'_>| {
            fields.iter_with_expiry().for_each(|(field, value, at_ms)| visit(field, value, at_ms));
        };
        match self {
            Hash::Leaf(fields) => {
                visit_leaf(*fields);
                Ok(())
            }
            Hash::Tree(tree) => {
                let now_ms = tree.now_ms;
                tree.visit(|leaf| {
                    visit_leaf(Fields::at_time(leaf, now_ms));
                    ControlFlow::Continue(())
                })
            }
        }
    }

    /// When the first of the fields that have not expired does: Unix milliseconds, 0 if none ever does. Cost: as
    /// [`Hash::live_len`].
    ///
    /// Errors: [`CommandError::NotResident`].
    pub fn first_live_expiry(&self) -> Result<u64, CommandError> {
        let mut first = 0;
        self.visit_ahead(|fields| {
            let times = fields.iter_with_expiry().map(|(_, _, at_ms)| at_ms);
            let of_leaf = times.filter(|&at_ms| at_ms > 0).min().unwrap_or(0);
            first =
                if first == 0 || of_leaf == 0 { first.max(of_leaf) } else { first.min(of_leaf) };
        })?;
        Ok(first)
    }

    /// How many fields have not expired: those that [`Hash::visit`] visits. Cost: a look at each leaf, which is
    /// no access, where fields expire.
    ///
    /// Errors: [`CommandError::NotResident`].
    pub fn live_len(&self) -> Result<u64, CommandError> {
        if let Hash::Tree(tree) = self
            && !tree.has_timers()
        {
            return Ok(tree.elements());
        }
        let mut count = 0;
        self.visit_ahead(|fields| count += fields.live_len() as u64)?;
        Ok(count)
    }

    /// The positions of the fields that have not expired. Cost: as [`Hash::live_len`], 8 bytes a field.
    ///
    /// Errors: [`CommandError::NotResident`].
    pub fn live_positions(&self) -> Result<Vec<u64>, CommandError> {
        let (mut positions, mut first) = (Vec::new(), 0);
        self.visit_ahead(|fields| {
            positions.extend(fields.live_positions().map(|position| first + position as u64));
            first += fields.len() as u64;
        })?;
        Ok(positions)
    }

    fn visit_ahead(&self, mut visit: impl FnMut(Fields<'_>)) -> CommandResult {
        match self {
            Hash::Leaf(fields) => {
                visit(*fields);
                Ok(())
            }
            Hash::Tree(tree) => tree.visit_ahead(|leaf| visit(Fields::at_time(leaf, tree.now_ms))),
        }
    }

    /// Looks for the leaves of fields by their positions, as [`Hash::announce`] does.
    ///
    /// Errors: [`CommandError::NotResident`].
    pub fn announce_nth(&mut self, positions: &[u64]) -> CommandResult {
        match self {
            Hash::Leaf(_) => Ok(()),
            Hash::Tree(tree) => tree.announce_nth(positions.iter().copied()),
        }
    }

    /// Visits the fields from a cursor on, about `count` of them and at least one leaf. Returns the next
    /// cursor, 0 at the end. One that is there from the first call to the last is visited, whatever
    /// changes meanwhile.
    ///
    /// Errors: [`CommandError::NotResident`], before the first.
    pub fn scan(
        &mut self,
        cursor: u64,
        count: usize,
        mut visit: impl FnMut(&[u8], &[u8]),
    ) -> Result<u64, CommandError> {
        match self {
            Hash::Leaf(fields) => {
                fields.iter().for_each(|(field, value)| visit(field, value));
                Ok(0)
            }
            Hash::Tree(tree) => {
                let now_ms = tree.now_ms;
                tree.scan(cursor, count, |leaf| {
                    let fields = Fields::at_time(leaf, now_ms);
                    fields.iter().for_each(|(field, value)| visit(field, value));
                })
            }
        }
    }
}

/// A hash to be changed. What had expired in a leaf is removed when that is changed, or all if there is but one.
pub struct HashMut<'a, 't> {
    form: FormMut<'a, 't>,
    packed_max: PackedMax,
    is_changed: bool,
    expiring: Expiring,
    removed: Removed,
}

/// Fields that were removed.
#[derive(Debug, Default)]
struct Removed {
    /// Because they had expired.
    expired: usize,
    /// These, if the journal listens.
    logged: Vec<Box<[u8]>>,
    /// By the command.
    asked: usize,
}

/// What becomes of fields that have expired where others are changed.
#[derive(Clone, Copy, Debug)]
struct Expiring {
    now_ms: u64,
    are_logged: bool,
    are_kept: bool,
}

impl Expiring {
    fn of(cx: &Cx<'_, '_>) -> Expiring {
        let are_logged = cx.effects.are_logged();
        Expiring { now_ms: cx.now_ms, are_logged, are_kept: cx.effects.keeps_expired }
    }

    fn remove(self, fields: &mut FieldsMut<'_>, removed: &mut Removed) {
        if self.are_kept {
            return;
        }
        if self.are_logged {
            removed.logged.extend(fields.fields().expired().map(Box::from));
        }
        removed.expired += fields.remove_expired();
    }
}

enum FormMut<'a, 't> {
    Leaf(&'a mut Kind, FieldsMut<'a>),
    Tree(&'a mut Tree<'t>),
}

/// When a field gets another expiry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExpiryCondition {
    /// Always.
    Always,
    /// If it has none.
    IfNone,
    /// If it has one.
    IfSome,
    /// If it has an earlier one. None is the latest.
    IfLater,
    /// If it has a later one, or none.
    IfEarlier,
}

impl ExpiryCondition {
    /// Whether a field with an expiry (0 for none) may get another one.
    pub fn is_met(self, old_ms: u64, new_ms: u64) -> bool {
        match self {
            ExpiryCondition::Always => true,
            ExpiryCondition::IfNone => old_ms == 0,
            ExpiryCondition::IfSome => old_ms != 0,
            ExpiryCondition::IfLater => old_ms != 0 && new_ms > old_ms,
            ExpiryCondition::IfEarlier => old_ms == 0 || new_ms < old_ms,
        }
    }
}

/// What came of a change of a field's expiry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExpiryChange {
    /// There is no such field.
    NoField,
    /// The condition is not met; where it is to be taken away, there is none.
    NotMet,
    /// It was changed.
    Changed,
    /// Its time has come: the field was removed.
    Removed,
}

impl HashMut<'_, '_> {
    /// Sets a field, which never expires then. Returns whether it is new.
    pub fn set(&mut self, field: &[u8], value: &[u8]) -> bool {
        self.put((field, value), false, |fields| fields.set(field, value))
    }

    /// Sets a field, which expires when it did before. Returns whether it is new.
    pub fn set_value(&mut self, field: &[u8], value: &[u8]) -> bool {
        self.put((field, value), true, |fields| fields.set_value(field, value))
    }

    fn put(
        &mut self,
        (field, value): Field<'_>,
        keeps_expiry: bool,
        put: impl FnOnce(&mut FieldsMut<'_>) -> bool,
    ) -> bool {
        let is_put = match &mut self.form {
            FormMut::Leaf(..) => None,
            FormMut::Tree(tree) => put_without_change(tree, (field, value), keeps_expiry),
        };
        let is_new = is_put.unwrap_or_else(|| self.change(field, put));
        self.unpack(field.len().max(value.len()));
        is_new
    }

    /// Notes that Redis would not keep the hash in a listpack, if it would not with an element of this length.
    fn unpack(&mut self, longest: usize) {
        match &mut self.form {
            FormMut::Leaf(kind, fields) => {
                if !self.packed_max.holds(fields.fields().len() as u64, longest) {
                    **kind = Kind::HASH;
                }
            }
            FormMut::Tree(tree) => unpack_tree(tree, self.packed_max, longest),
        }
    }

    /// Removes a field. Returns whether it was there.
    pub fn remove(&mut self, field: &[u8]) -> bool {
        let is_there = self.expiry(field).is_some();
        if is_there {
            self.change(field, |fields| fields.remove(field));
            self.removed.asked += 1;
        }
        is_there
    }

    /// Lets a field expire at a time: Unix milliseconds.
    pub fn expire(&mut self, field: &[u8], at_ms: u64, condition: ExpiryCondition) -> ExpiryChange {
        match self.expiry(field) {
            None => ExpiryChange::NoField,
            Some(old_ms) if !condition.is_met(old_ms, at_ms) => ExpiryChange::NotMet,
            Some(_) if at_ms <= self.expiring.now_ms => {
                self.remove(field);
                ExpiryChange::Removed
            }
            Some(_) => {
                self.change(field, |fields| fields.set_expiry(field, at_ms));
                ExpiryChange::Changed
            }
        }
    }

    /// Lets a field never expire.
    pub fn persist(&mut self, field: &[u8]) -> ExpiryChange {
        match self.expiry(field) {
            None => ExpiryChange::NoField,
            Some(0) => ExpiryChange::NotMet,
            Some(_) => {
                self.change(field, |fields| fields.set_expiry(field, 0));
                ExpiryChange::Changed
            }
        }
    }

    /// When a field expires, 0 for never. None: it is not there.
    fn expiry(&self, field: &[u8]) -> Option<u64> {
        match &self.form {
            FormMut::Leaf(_, fields) => fields.fields().expiry(field),
            FormMut::Tree(tree) if tree.is_gone() => None,
            FormMut::Tree(tree) => {
                let path = tree.place.find(tree.slot, &order(field));
                // The leaf where it stood may have been removed with its last field: it falls to a neighbour
                // then, which may be on flash.
                Fields::at_time(tree.leaf_in_ram(&path)?, self.expiring.now_ms).expiry(field)
            }
        }
    }

    /// Changes the leaf where a field stands.
    fn change<R>(&mut self, field: &[u8], change: impl FnOnce(&mut FieldsMut<'_>) -> R) -> R {
        self.is_changed = true;
        let tree = match &mut self.form {
            FormMut::Leaf(_, fields) => return change(fields),
            FormMut::Tree(tree) => tree,
        };
        let (expiring, removed) = (self.expiring, &mut self.removed);
        tree.change_leaf_at(&order(field), |leaf| {
            let mut fields = FieldsMut::at_time(leaf, expiring.now_ms);
            expiring.remove(&mut fields, removed);
            change(&mut fields)
        })
    }
}

/// Sets a field to a value as long as the one it has, where that stands, in a leaf of which no field expires; or puts a
/// long one, or one whose leaf is long, into a leaf of its own. Returns whether it is new; none: its leaf is to be
/// changed. Cost: no bookkeeping where nothing of the tree changes.
fn put_without_change(
    tree: &mut Tree<'_>,
    (field, value): Field<'_>,
    keeps_expiry: bool,
) -> Option<bool> {
    let order = order(field);
    let path = tree.find(&order);
    let leaf = tree.leaf_in_ram(&path).expect("invariant: the leaf was made resident");
    let fields = Fields::new(leaf);
    if let Some(place) = fields.lasting_value(field).filter(|place| place.len() == value.len()) {
        tree.write(&path, place.start, value);
        return Some(false);
    }
    let is_long = leaf.len() + field.len() + value.len() >= LONG_BYTES;
    if is_long && let Some(is_new) = put_apart(tree, &path, (field, value), keeps_expiry) {
        return Some(is_new);
    }
    tree.known.push(&order, path);
    None
}

/// Puts a field into a leaf of its own, beside the one where it belongs. Returns whether it is new; none: that leaf has no
/// other field, others that cannot be told apart, or this one and it has expired.
#[cold]
fn put_apart(
    tree: &mut Tree<'_>,
    path: &Path,
    (field, value): Field<'_>,
    keeps_expiry: bool,
) -> Option<bool> {
    let leaf = tree.leaf_in_ram(path)?;
    let (fields, hash) = (Fields::new(leaf), u64::from_be_bytes(order(field)));
    let old = fields.expiry(field);
    let (path, split) = match old {
        None => (path.clone(), split_by_hash(leaf, hash)?),
        Some(at_ms) if fields.len() == 1 || at_ms > 0 && at_ms <= tree.now_ms => return None,
        Some(_) => {
            let mut rest = leaf.to_vec();
            assert!(FieldsMut::new(&mut rest).remove(field), "it is there");
            let split = split_by_hash(&rest, hash)?;
            (tree.replace_leaf(path.clone(), rest), split)
        }
    };
    let mut new = SHAPE.empty().to_vec();
    let mut fields = FieldsMut::new(&mut new);
    fields.set(field, value);
    fields.set_expiry(field, old.filter(|_| keeps_expiry).unwrap_or(0));
    tree.put_apart(path, split, new);
    Some(old.is_none())
}

/// The same as [`HashMut::unpack`] of a tree. Cost: one look at the root.
fn unpack_tree(tree: &mut Tree<'_>, packed_max: PackedMax, longest: usize) {
    let root = tree.place.root(tree.slot);
    let unpacked = Kind::HASH.encoding();
    if root.encoding() != unpacked && !packed_max.holds(root.elements(), longest) {
        tree.set_encoding(unpacked);
    }
}

/// A field of a hash that is made at once.
#[derive(Clone, Copy, Debug)]
pub struct NewField<'a> {
    /// Its name.
    pub field: &'a [u8],
    /// Its value.
    pub value: &'a [u8],
    /// When it expires: Unix milliseconds, 0 for never.
    pub expire_at_ms: u64,
}

impl Cx<'_, '_> {
    /// Sets a key to a hash of these fields, one at least, which are all different, whatever the key held. It does
    /// not expire. `kind` is the encoding that is told.
    ///
    /// Errors: [`CommandError::OUT_OF_MEMORY`]; nothing is changed then.
    pub fn store_hash(
        &mut self,
        key: &Key<'_>,
        kind: Kind,
        fields: &[NewField<'_>],
    ) -> CommandResult {
        let expires = fields.iter().any(|new| new.expire_at_ms > 0);
        let shape = Shape { numbers: expires, ..SHAPE };
        let row_bytes = |new: &NewField<'_>| shape.row_bytes(&[new.field, new.value]);
        self.check_memory(shape.empty().len() + fields.iter().map(row_bytes).sum::<usize>())?;
        if fields.len() > ROWS_MAX {
            return Err(CommandError::OUT_OF_MEMORY);
        }
        let mut rows = RowsBuilder::new(shape);
        for new in fields {
            rows.push(fingerprint(new.field), new.expire_at_ms, &[new.field, new.value]);
        }
        let leaf = rows.into_leaf();
        let (len, first_ms) = (leaf.len(), Fields::new(&leaf).first_expiry());
        self.db(key).put_vec(key, kind.bits(), leaf, Expiry::Clear);
        self.set_timer(key, first_ms);
        if len > SINGLE_BYTES_MAX {
            self.grow(key, &HASH);
        }
        Ok(())
    }

    /// The hash of a key, counting as an access.
    ///
    /// Errors: [`CommandError::WRONG_TYPE`], [`CommandError::NotResident`].
    #[inline]
    pub fn read_hash<'s>(&'s mut self, key: &'s Key<'_>) -> Result<Option<Hash<'s>>, CommandError> {
        let now_ms = self.now_ms;
        match self.find_to_read(key, Kind::is_hash)? {
            Found::Missing => Ok(None),
            Found::Leaf(at) => {
                Ok(Some(Hash::Leaf(Fields::at_time(self.read_leaf(key, at)?, now_ms))))
            }
            Found::Tree(at) => Ok(Some(Hash::Tree(self.read_tree_of(self.place_at(key, at))))),
        }
    }

    /// Changes the hash of a key, an empty one if the key does not exist; it does not afterwards if the
    /// hash is empty. No other fields than `fields` are looked at or changed, but that expired ones are removed
    /// beside them, which is reported.
    ///
    /// Errors: as [`Cx::read_hash`]; nothing is changed then.
    pub fn edit_hash<'f, R>(
        &mut self,
        key: &Key<'_>,
        fields: impl Iterator<Item = &'f [u8]>,
        change: impl FnOnce(&mut HashMut<'_, '_>) -> R,
    ) -> Result<R, CommandError> {
        let (packed_max, expiring) = (self.encodings.hash(), Expiring::of(self));
        let found = self.find_to_edit(key, Kind::is_hash)?;
        let mut removed = Removed::default();
        let is_changed = false;
        let result = if let Found::Tree(at) = found {
            let place = self.place_at(key, at);
            let known = self.promote_leaves(place, fields.map(order))?;
            let mut tree = self.edit_tree_of(place, &HASH);
            tree.known = known;
            let form = FormMut::Tree(&mut tree);
            let mut hash = HashMut { form, packed_max, is_changed, expiring, removed };
            let result = change(&mut hash);
            let is_changed = hash.is_changed;
            removed = hash.removed;
            if is_changed {
                tree.settle();
            }
            result
        } else {
            let empty = (Kind::HASH_PACKED, &SHAPE.empty()[..]);
            self.edit_leaf((key, found), empty, &HASH, |kind, leaf| {
                let mut fields = FieldsMut::at_time(leaf, expiring.now_ms);
                expiring.remove(&mut fields, &mut removed);
                let form = FormMut::Leaf(kind, fields);
                let before = std::mem::take(&mut removed);
                let mut hash = HashMut { form, packed_max, is_changed, expiring, removed: before };
                let result = change(&mut hash);
                let is_changed = hash.is_changed || hash.removed.expired > 0;
                removed = hash.removed;
                if is_changed { Changed::Yes(result) } else { Changed::No(result) }
            })
        };
        self.report_expired(key, removed);
        Ok(result)
    }

    /// Gives a field of the hash of a key, an empty one if the key does not exist, the value that `change` makes of
    /// the one it has. It expires when it did before. The field is looked up once, and counts as read.
    ///
    /// Errors: as [`Cx::read_hash`], and those of `change`; nothing is changed then.
    pub fn change_field<R>(
        &mut self,
        key: &Key<'_>,
        field: &[u8],
        change: impl FnOnce(Option<&[u8]>, &mut NewValue) -> Result<R, CommandError>,
    ) -> Result<R, CommandError> {
        let found = self.find_to_read(key, Kind::is_hash)?;
        if let Found::Tree(at) = found {
            return self.change_field_of_tree(self.place_at(key, at), field, change);
        }
        if let Found::Leaf(_) = found {
            let read_flash = self.tally.read_flash;
            self.make_resident(key)?;
            self.tally.read_ram += u64::from(self.tally.read_flash == read_flash);
        }
        let (packed_max, expiring) = (self.encodings.hash(), Expiring::of(self));
        let now_ms = expiring.now_ms;
        let mut removed = Removed::default();
        let empty = (Kind::HASH_PACKED, &SHAPE.empty()[..]);
        let result = self.edit_leaf((key, found), empty, &HASH, |kind, leaf| {
            let mut new = NewValue::new();
            let result = match change(Fields::at_time(leaf, now_ms).get(field), &mut new) {
                Ok(result) => result,
                Err(error) => return Changed::No(Err(error)),
            };
            let mut fields = FieldsMut::at_time(leaf, now_ms);
            expiring.remove(&mut fields, &mut removed);
            let form = FormMut::Leaf(kind, fields);
            let before = std::mem::take(&mut removed);
            let is_changed = false;
            let mut hash = HashMut { form, packed_max, is_changed, expiring, removed: before };
            hash.set_value(field, &new);
            removed = hash.removed;
            Changed::Yes(Ok(result))
        });
        self.report_expired(key, removed);
        result
    }

    fn change_field_of_tree<R>(
        &mut self,
        place: Place<'_>,
        field: &[u8],
        change: impl FnOnce(Option<&[u8]>, &mut NewValue) -> Result<R, CommandError>,
    ) -> Result<R, CommandError> {
        let (packed_max, expiring) = (self.encodings.hash(), Expiring::of(self));
        let now_ms = expiring.now_ms;
        let order = order(field);
        let path = place.find(self.locked.slot(place.key.slot), &order);
        let read_flash = self.tally.read_flash;
        self.promote_leaf(place, &path)?;
        self.tally.read_ram += u64::from(self.tally.read_flash == read_flash);
        let mut tree = self.edit_tree_of(place, &HASH);
        let leaf = place.found_in_ram(tree.slot, &path);
        let leaf = leaf.expect("invariant: the leaf was made resident");
        let place_of_old = Fields::at_time(leaf, now_ms).place_of_value(field);
        let mut new = NewValue::new();
        let result = change(place_of_old.clone().map(|place| &leaf[place]), &mut new)?;
        let is_as_long = |place: &Range<usize>| place.len() == new.len();
        if let Some(place) = place_of_old.filter(is_as_long)
            && Fields::new(leaf).first_expiry() == 0
        {
            tree.write(&path, place.start, &new);
            unpack_tree(&mut tree, packed_max, field.len().max(new.len()));
            return Ok(result);
        }
        tree.known.push(&order, path);
        let form = FormMut::Tree(&mut tree);
        let removed = Removed::default();
        let mut hash = HashMut { form, packed_max, is_changed: false, expiring, removed };
        hash.set_value(field, &new);
        let removed = hash.removed;
        tree.settle();
        self.report_expired(&place.key, removed);
        Ok(result)
    }

    /// Reports the fields that had expired, and that the key has gone with them. Where the command has removed
    /// any itself, that is its to report.
    fn report_expired(&mut self, key: &Key<'_>, removed: Removed) {
        if removed.expired == 0 {
            return;
        }
        if !removed.logged.is_empty() {
            self.log_expired_fields(key, &removed.logged);
        }
        self.report(key, Event::HEXPIRED, removed.expired as u64);
        if removed.asked == 0 {
            self.report_if_gone(key);
        }
    }
}
