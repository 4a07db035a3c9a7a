//! The leaf of a hash: fields with their values, in the order in which they were added.
//!
//! A leaf with fields that expire has a number for each: when, in Unix milliseconds, 0 for never. Other
//! leaves need none, and take nothing for it. What has expired is as good as gone for everybody who says what
//! time it is, and is removed by whoever changes the leaf next.

use std::ops::Range;

use crate::leaf::fingerprint;
use crate::leaf::rows::{Damaged, Rows, RowsMut, Shape};

/// The rows of a hash of which no field expires: field and value.
pub const SHAPE: Shape = Shape { parts: 2, fingerprints: true, ..Shape::NOTHING };

/// A hash to be read.
#[derive(Clone, Copy, Debug)]
pub struct Fields<'a> {
    rows: Rows<'a>,
    /// Fields that expire by then are not there. 0: all are.
    now_ms: u64,
}

impl<'a> Fields<'a> {
    /// The hash in a leaf, with what has expired and was not removed yet. Panics, there or later: the bytes are
    /// none.
    #[inline]
    pub fn new(leaf: &'a [u8]) -> Fields<'a> {
        Fields::at_time(leaf, 0)
    }

    /// The hash in a leaf, at a time. Panics likewise.
    #[inline]
    pub fn at_time(leaf: &'a [u8], now_ms: u64) -> Fields<'a> {
        Fields { rows: Rows::new(leaf), now_ms }
    }

    /// The hash in bytes from elsewhere, likewise with all fields. Cost: linear in them.
    ///
    /// Errors: they are none.
    pub fn check(bytes: &'a [u8]) -> Result<Fields<'a>, Damaged> {
        let rows = Rows::check(bytes)?;
        let shape = rows.shape();
        // Times of expiry are whole numbers.
        let is_hash = shape == Shape { numbers: shape.numbers, ..SHAPE };
        if is_hash { Ok(Fields { rows, now_ms: 0 }) } else { Err(Damaged) }
    }

    /// How many fields, with those that have expired and were not removed yet.
    #[inline]
    #[expect(clippy::len_without_is_empty, reason = "an empty hash is a key that does not exist")]
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// How many fields have not expired. Cost: none where no field expires.
    #[inline]
    pub fn live_len(&self) -> usize {
        match self.rows.shape().numbers {
            false => self.len(),
            true => self.live_positions().count(),
        }
    }

    /// The positions of the fields that have not expired.
    pub fn live_positions(self) -> impl Iterator<Item = usize> + use<'a> {
        (0..self.len()).filter(move |&row| self.is_live(row))
    }

    /// Bytes that all of it takes.
    pub fn byte_len(&self) -> usize {
        self.rows.byte_len()
    }

    /// The fields that have expired and were not removed yet. Cost: none where no field expires.
    pub fn expired(self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let rows = if self.rows.shape().numbers { 0..self.len() } else { 0..0 };
        rows.filter(move |&row| !self.is_live(row)).map(move |row| self.rows.row(row).first)
    }

    #[inline]
    fn is_live(&self, row: usize) -> bool {
        let expire_at_ms = self.rows.number(row);
        expire_at_ms == 0 || expire_at_ms > self.now_ms
    }

    #[inline]
    fn find(&self, field: &[u8]) -> Option<usize> {
        self.rows.find(fingerprint(field), field).filter(|&row| self.is_live(row))
    }

    /// The value of a field.
    #[inline]
    pub fn get(&self, field: &[u8]) -> Option<&'a [u8]> {
        Some(&self.rows.bytes()[self.place_of_value(field)?])
    }

    /// Where in the leaf the value of a field stands.
    #[inline]
    pub fn place_of_value(&self, field: &[u8]) -> Option<Range<usize>> {
        let (row, place) = self.rows.find_with_second(fingerprint(field), field)?;
        self.is_live(row).then_some(place)
    }

    /// Where in the leaf the value of a field stands, if no field of the leaf expires. None: it is not there, or
    /// some do.
    #[inline]
    pub fn lasting_value(&self, field: &[u8]) -> Option<Range<usize>> {
        if self.rows.shape().numbers {
            return None;
        }
        self.place_of_value(field)
    }

    /// When a field expires: Unix milliseconds, 0 for never. None: it is not there.
    pub fn expiry(&self, field: &[u8]) -> Option<u64> {
        Some(self.rows.number(self.find(field)?))
    }

    /// When the first of all fields expires, or has expired: Unix milliseconds, 0 if none ever does. Cost: none
    /// where no field expires, else a pass over the times.
    #[inline]
    pub fn first_expiry(&self) -> u64 {
        if !self.rows.shape().numbers {
            return 0;
        }
        self.rows.numbers().filter(|&at_ms| at_ms > 0).min().unwrap_or(0)
    }

    /// A field, by its position, and its value. None: it has expired. Panics: there are fewer.
    pub fn at(&self, position: usize) -> Option<(&'a [u8], &'a [u8])> {
        let row = self.rows.row(position);
        self.is_live(position).then_some((row.first, row.second))
    }

    /// All fields that have not expired, and their values.
    pub fn iter(&self) -> impl Iterator<Item = (&'a [u8], &'a [u8])> + use<'a> {
        self.iter_with_expiry().map(|(field, value, _)| (field, value))
    }

    /// The same, each with when it expires: Unix milliseconds, 0 for never.
    pub fn iter_with_expiry(&self) -> impl Iterator<Item = (&'a [u8], &'a [u8], u64)> + use<'a> {
        let now_ms = self.now_ms;
        let live = self.rows.iter().filter(move |row| row.number == 0 || row.number > now_ms);
        live.map(|row| (row.first, row.second, row.number))
    }
}

/// A hash to be changed, at a time. What has expired is not there, but stays until it is removed.
pub struct FieldsMut<'a> {
    rows: RowsMut<'a>,
    now_ms: u64,
}

impl<'a> FieldsMut<'a> {
    /// The hash in a leaf, with what has expired. Panics, there or later: the bytes are none.
    pub fn new(leaf: &'a mut Vec<u8>) -> FieldsMut<'a> {
        FieldsMut::at_time(leaf, 0)
    }

    /// The hash in a leaf, at a time. Panics likewise.
    pub fn at_time(leaf: &'a mut Vec<u8>, now_ms: u64) -> FieldsMut<'a> {
        FieldsMut { rows: RowsMut::new(leaf), now_ms }
    }

    /// The hash to be read.
    pub fn fields(&self) -> Fields<'_> {
        Fields { rows: self.rows.rows(), now_ms: self.now_ms }
    }

    /// Sets a field, which never expires then. Returns whether it is new.
    pub fn set(&mut self, field: &[u8], value: &[u8]) -> bool {
        let Some(row) = self.put(field, value) else { return true };
        if self.rows.rows().number(row) > 0 {
            self.rows.set_number(row, 0);
            self.drop_numbers();
        }
        false
    }

    /// Sets a field, which expires when it did before. Returns whether it is new.
    pub fn set_value(&mut self, field: &[u8], value: &[u8]) -> bool {
        self.put(field, value).is_none()
    }

    /// Sets a field. Returns where it stands; none: it is new.
    fn put(&mut self, field: &[u8], value: &[u8]) -> Option<usize> {
        let fingerprint = fingerprint(field);
        let found = self.rows.rows().find(fingerprint, field);
        let expired = found.filter(|&row| !self.fields().is_live(row));
        if let Some(row) = expired {
            self.rows.remove(row..row + 1);
            self.drop_numbers();
        } else if let Some(row) = found {
            self.rows.set_second(row, value);
            return Some(row);
        }
        self.rows.push(fingerprint, 0, &[field, value]);
        None
    }

    /// Lets a field expire at a time: Unix milliseconds, 0 for never. Nothing happens if it is not there.
    pub fn set_expiry(&mut self, field: &[u8], at_ms: u64) {
        let Some(row) = self.fields().find(field) else { return };
        if at_ms > 0 {
            self.rows.have_numbers(true);
            self.rows.set_number(row, at_ms);
        } else if self.rows.rows().number(row) > 0 {
            self.rows.set_number(row, 0);
            self.drop_numbers();
        }
    }

    /// Removes a field. Returns whether it was there.
    pub fn remove(&mut self, field: &[u8]) -> bool {
        let Some(row) = self.fields().find(field) else { return false };
        self.rows.remove(row..row + 1);
        self.drop_numbers();
        true
    }

    /// Removes the fields that have expired. Returns how many.
    pub fn remove_expired(&mut self) -> usize {
        if !self.rows.rows().shape().numbers {
            return 0;
        }
        let before = self.fields().len();
        for row in (0..before).rev() {
            if !self.fields().is_live(row) {
                self.rows.remove(row..row + 1);
            }
        }
        self.drop_numbers();
        before - self.fields().len()
    }

    /// Takes the numbers away if no field expires.
    fn drop_numbers(&mut self) {
        if self.fields().first_expiry() == 0 {
            self.rows.have_numbers(false);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::leaf::divide_by_hash;

    #[test]
    fn fields_are_set_and_removed_and_keep_their_order() {
        let mut leaf = SHAPE.empty().to_vec();
        let mut fields = FieldsMut::new(&mut leaf);
        for number in 0..300 {
            assert!(fields.set(format!("f{number}").as_bytes(), b"v"));
            assert!(!fields.set(format!("f{number}").as_bytes(), format!("{number}").as_bytes()));
        }
        assert!(fields.remove(b"f7") && !fields.remove(b"f7") && !fields.remove(b"none"));
        let fields = Fields::check(&leaf).expect("a hash");
        assert_eq!(fields.len(), 299);
        assert_eq!(fields.get(b"f7"), None);
        let expected = (0..300).filter(|&number| number != 7);
        for ((field, value), number) in fields.iter().zip(expected) {
            assert_eq!(field, format!("f{number}").as_bytes());
            assert_eq!(value, format!("{number}").as_bytes());
            assert_eq!(fields.get(field), Some(value));
        }
        for other in [Shape { parts: 1, ..SHAPE }, Shape { numbers: true, narrow: true, ..SHAPE }] {
            assert!(Fields::check(&other.empty()).is_err());
        }
    }

    type Listed = BTreeMap<Vec<u8>, (Vec<u8>, u64)>;

    fn listed(leaf: &[u8]) -> Listed {
        let fields = Fields::check(leaf).expect("a hash");
        let with_time = |(field, value): (&[u8], &[u8])| {
            let at_ms = fields.expiry(field).expect("it is there");
            (field.to_vec(), (value.to_vec(), at_ms))
        };
        fields.iter().map(with_time).collect()
    }

    fn leaf_of(listed: &Listed) -> Vec<u8> {
        let mut leaf = SHAPE.empty().to_vec();
        let mut fields = FieldsMut::new(&mut leaf);
        for (field, (value, at_ms)) in listed {
            fields.set(field, value);
            fields.set_expiry(field, *at_ms);
        }
        leaf
    }

    fn some_fields(name: &'static str) -> impl Strategy<Value = Listed> {
        let part = prop::collection::vec(any::<u8>(), 0..300);
        let time = prop_oneof![2 => Just(0u64), 1 => 1..100u64];
        let field = (0..1_000u32).prop_map(move |number| format!("{name}{number}").into_bytes());
        prop::collection::btree_map(field, (part, time), 0..20)
    }

    proptest! {
        #[test]
        fn leaves_are_joined_and_divided_with_their_times(
            one in some_fields("a"), two in some_fields("b"), now_ms in 0..120u64,
        ) {
            let (left, right) = (leaf_of(&one), leaf_of(&two));
            prop_assert_eq!(listed(&left), one.clone());
            let both: Listed = one.clone().into_iter().chain(two.clone()).collect();
            let leaves = [&left, &right].map(|leaf| Rows::new(leaf));
            let joined = Rows::concat(leaves.into_iter()).expect("a leaf");
            prop_assert_eq!(listed(&joined), both.clone());
            let mut appended = left.clone();
            RowsMut::new(&mut appended).append(Rows::new(&right));
            prop_assert_eq!(&appended, &joined);
            let first = |listed: &Listed| {
                listed.values().map(|(_, at_ms)| *at_ms).filter(|&at_ms| at_ms > 0).min()
            };
            prop_assert_eq!(Fields::new(&joined).first_expiry(), first(&both).unwrap_or(0));
            if let Some((below, above, _)) = divide_by_hash(&joined) {
                let parts = listed(&below).into_iter().chain(listed(&above)).collect::<Listed>();
                prop_assert_eq!(parts, both.clone());
            }
            let mut left = joined.clone();
            let removed = FieldsMut::at_time(&mut left, now_ms).remove_expired();
            let live: Listed =
                both.into_iter().filter(|(_, (_, at_ms))| *at_ms == 0 || *at_ms > now_ms).collect();
            prop_assert_eq!(Fields::at_time(&joined, now_ms).live_len(), live.len());
            prop_assert_eq!(removed, Fields::new(&joined).len() - live.len());
            prop_assert_eq!(Rows::new(&left).shape().numbers, first(&live).is_some());
            prop_assert_eq!(listed(&left), live);
        }
    }

    /// Against a map, with the time going on.
    #[test]
    fn fields_expire() {
        let mut leaf = SHAPE.empty().to_vec();
        let mut model: BTreeMap<Vec<u8>, (Vec<u8>, u64)> = BTreeMap::new();
        let (mut now_ms, mut seed) = (1_000u64, 7u64);
        let mut next = |below: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 33) % below
        };
        let mut leaves_without_numbers = 0;
        for _ in 0..20_000 {
            now_ms += next(3);
            model.retain(|_, (_, at_ms)| *at_ms == 0 || *at_ms > now_ms);
            let (field, value) = (format!("f{}", next(12)), format!("v{}", next(1_000)));
            let (field, value) = (field.as_bytes(), value.as_bytes());
            let mut fields = FieldsMut::at_time(&mut leaf, now_ms);
            match next(7) {
                0 | 1 => {
                    let is_new = model.insert(field.to_vec(), (value.to_vec(), 0)).is_none();
                    assert_eq!(fields.set(field, value), is_new);
                }
                2 => {
                    let at_ms = model.get(field).map_or(0, |(_, at_ms)| *at_ms);
                    let is_new = model.insert(field.to_vec(), (value.to_vec(), at_ms)).is_none();
                    assert_eq!(fields.set_value(field, value), is_new);
                }
                3 => assert_eq!(fields.remove(field), model.remove(field).is_some()),
                4 => {
                    fields.remove_expired();
                }
                _ => {
                    let at_ms = if next(4) == 0 { 0 } else { now_ms + 1 + next(40) };
                    fields.set_expiry(field, at_ms);
                    model.entry(field.to_vec()).and_modify(|found| found.1 = at_ms);
                }
            }
            let fields = Fields { now_ms, ..Fields::check(&leaf).expect("a hash") };
            let listed: BTreeMap<Vec<u8>, Vec<u8>> =
                fields.iter().map(|(field, value)| (field.to_vec(), value.to_vec())).collect();
            let expected: BTreeMap<Vec<u8>, Vec<u8>> =
                model.iter().map(|(field, (value, _))| (field.clone(), value.clone())).collect();
            assert_eq!(listed, expected);
            assert_eq!(fields.live_len(), model.len());
            for (field, (value, at_ms)) in &model {
                assert_eq!(fields.get(field), Some(&value[..]));
                assert_eq!(fields.expiry(field), Some(*at_ms));
            }
            let all = (0..fields.len()).filter_map(|position| fields.at(position)).count();
            assert_eq!(all, model.len());
            let first = model.values().map(|(_, at_ms)| *at_ms).filter(|&at_ms| at_ms > 0).min();
            let found = fields.first_expiry();
            assert!(found == first.unwrap_or(0) || fields.len() > model.len());
            leaves_without_numbers += usize::from(!Rows::new(&leaf).shape().numbers);
        }
        assert!((100..19_000).contains(&leaves_without_numbers), "{leaves_without_numbers}");
    }
}
