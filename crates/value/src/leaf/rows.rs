//! The leaf of lists, sets, hashes and sorted sets: rows of one or two parts, kept by column.
//!
//! ```text
//! offset 0  shape: parts of a row, 1 or 2 (bits 0-1), has fingerprints (bit 2), has numbers (bit 3),
//!           has long parts (bit 4), numbers take 8 bytes shifted right by so much (bits 5-6), and as few as
//!           hold them all (bit 7)
//!        1  rows, 3 bytes
//!        4  fingerprints, a byte a row                        if it has them
//!        .  numbers, 1, 2, 4 or 8 bytes a row                 if it has them
//!        .  lengths, a byte a part; 255: a long part
//!        .  parts, one behind another; a long one begins with its length in 4 bytes
//! ```
//!
//! A list has rows of an element; a set, of a member with its fingerprint; a hash, of a field with its
//! fingerprint and a value; a branch, of a bound with its child for a number. A row of one 16-byte part is
//! 17 bytes.
//!
//! Where a part begins is the sum of the lengths in front of it, which the CPU adds up 16 or 32 at a
//! time, as it compares fingerprints: so a row needs neither an offset nor a walk over those before it.

mod builder;

use std::fmt;
use std::ops::Range;

use crate::leaf::gaps::{self, Gaps};

pub use self::builder::RowsBuilder;

/// Bytes in front of the columns.
pub const HEAD_BYTES: usize = 4;
/// Most rows of a leaf.
pub const ROWS_MAX: usize = (1 << 24) - 1;

const PARTS_MASK: u8 = 0b11;
const FINGERPRINTS_SHIFT: u32 = 2;
const FINGERPRINTS_BIT: u8 = 1 << FINGERPRINTS_SHIFT;
const NUMBERS_BIT: u8 = 1 << 3;
const LONG_BIT: u8 = 1 << 4;
const NARROW_SHIFT: u32 = 5;
const NARROW_MASK: u8 = 0b11 << NARROW_SHIFT;
const NARROW_BIT: u8 = 1 << 7;

const NUMBER_BYTES: usize = 8;
/// Bytes that a row takes in the columns of fingerprints and of numbers follow from the bits without a branch.
const _: () =
    assert!(FINGERPRINTS_BIT >> FINGERPRINTS_SHIFT == 1 && NUMBERS_BIT as usize == NUMBER_BYTES);
/// The length byte of a part that is as long or longer.
const LONG: u8 = 255;
const LONG_LEN_BYTES: usize = 4;

/// What the rows of a leaf have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Parts of a row: 1 or 2.
    pub parts: usize,
    /// Whether a row has a fingerprint of its first part.
    pub fingerprints: bool,
    /// Whether a row has a number.
    pub numbers: bool,
    /// Whether numbers take no more bytes than the largest of them needs: 1, 2, 4 or 8.
    pub narrow: bool,
}

/// Rows of one part and nothing else.
const PART_ALONE: Shape = Shape { parts: 1, ..Shape::NOTHING };

impl Shape {
    /// Rows that have nothing yet.
    pub const NOTHING: Shape =
        Shape { parts: 0, fingerprints: false, numbers: false, narrow: false };

    fn bits(self) -> u8 {
        assert!((self.parts == 1 || self.parts == 2) && (self.numbers || !self.narrow));
        let fingerprints = if self.fingerprints { FINGERPRINTS_BIT } else { 0 };
        let numbers = if self.numbers { NUMBERS_BIT } else { 0 };
        let narrow = if self.narrow { NARROW_BIT | NARROW_MASK } else { 0 };
        self.parts as u8 | fingerprints | numbers | narrow
    }

    /// Bytes of a leaf without rows.
    pub fn empty(self) -> [u8; HEAD_BYTES] {
        [self.bits(), 0, 0, 0]
    }

    /// Bytes that a row of these parts takes, at most.
    pub fn row_bytes(self, parts: &[&[u8]]) -> usize {
        let columns = usize::from(self.fingerprints) + usize::from(self.numbers) * NUMBER_BYTES;
        columns + parts.iter().map(|part| 1 + encoded_len(part.len())).sum::<usize>()
    }
}

/// Bytes that the fingerprint of a row takes in a leaf of these bits.
#[inline]
fn fingerprint_bytes(bits: u8) -> usize {
    usize::from(bits >> FINGERPRINTS_SHIFT & 1)
}

/// Bytes that the number of a row takes in a leaf of these bits.
#[inline]
fn number_bytes(bits: u8) -> usize {
    usize::from(bits & NUMBERS_BIT) >> narrow_of(bits)
}

/// How far [`NUMBER_BYTES`] is shifted right in a leaf of these bits.
#[inline]
fn narrow_of(bits: u8) -> u8 {
    (bits & NARROW_MASK) >> NARROW_SHIFT
}

/// The most that it may be shifted for a number.
#[inline]
fn narrow_for(number: u64) -> u8 {
    match number {
        0..=0xff => 3,
        0x100..=0xffff => 2,
        0x1_0000..=0xffff_ffff => 1,
        _ => 0,
    }
}

/// A number of 1, 2, 4 or 8 bytes. Panics: it has another length.
#[inline]
fn read_number(bytes: &[u8]) -> u64 {
    match *bytes {
        [one] => one.into(),
        [one, two] => u16::from_le_bytes([one, two]).into(),
        [one, two, three, four] => u32::from_le_bytes([one, two, three, four]).into(),
        _ => u64::from_le_bytes(bytes.try_into().expect("invariant: 8 bytes")),
    }
}

/// The sum of lengths. Cost: six instructions for each eight of them, which a sum of numbers as wide as an address
/// takes for each two.
#[inline]
fn sum(lengths: &[u8]) -> usize {
    const LANES: u64 = 0x00ff_00ff_00ff_00ff;
    /// Words of which the sums of bytes fit into lanes of 16 bits.
    const WORDS_MAX: usize = 128;
    let (words, rest) = lengths.as_chunks::<8>();
    let mut sum: usize = rest.iter().map(|&len| usize::from(len)).sum();
    for words in words.chunks(WORDS_MAX) {
        let lanes = words.iter().fold(0, |lanes, word| {
            let word = u64::from_le_bytes(*word);
            lanes + (word & LANES) + (word >> 8 & LANES)
        });
        sum += (0..4).map(|lane| usize::from((lanes >> (16 * lane)) as u16)).sum::<usize>();
    }
    sum
}

/// Bytes that a part takes beside its length byte.
fn encoded_len(len: usize) -> usize {
    if len < LONG as usize { len } else { len + LONG_LEN_BYTES }
}

/// Bytes that are no leaf of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Damaged;

impl fmt::Display for Damaged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not a leaf of rows")
    }
}

impl std::error::Error for Damaged {}

/// One row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row<'a> {
    /// Its first part.
    pub first: &'a [u8],
    /// Its second part; empty if rows have one.
    pub second: &'a [u8],
    /// Its number; 0 if rows have none.
    pub number: u64,
}

/// A leaf to be read.
#[derive(Clone, Copy)]
pub struct Rows<'a> {
    bytes: &'a [u8],
}

impl<'a> Rows<'a> {
    /// A leaf that this process has made. Panics, there or later: it is no leaf.
    #[inline]
    pub fn new(bytes: &'a [u8]) -> Rows<'a> {
        debug_assert!(Rows::check(bytes).is_ok(), "{}", bytes.escape_ascii());
        Rows { bytes }
    }

    /// A leaf from elsewhere. Cost: linear in its parts.
    ///
    /// Errors: it is none.
    pub fn check(bytes: &'a [u8]) -> Result<Rows<'a>, Damaged> {
        let shape = *bytes.first().ok_or(Damaged)?;
        let numbers_are_known = match shape & NARROW_BIT {
            0 => narrow_of(shape) == 0,
            _ => shape & NUMBERS_BIT != 0,
        };
        let is_known = numbers_are_known && matches!(shape & PARTS_MASK, 1 | 2);
        if !is_known || bytes.len() < HEAD_BYTES {
            return Err(Damaged);
        }
        let rows = Rows { bytes };
        let mut at = rows.parts_start();
        let lengths = bytes.get(rows.lengths_start()..at).ok_or(Damaged)?;
        for &len in lengths {
            if len == LONG {
                let long = bytes.get(at..at + LONG_LEN_BYTES).ok_or(Damaged)?;
                let long = u32::from_le_bytes([long[0], long[1], long[2], long[3]]);
                if shape & LONG_BIT == 0 || long < u32::from(LONG) {
                    return Err(Damaged);
                }
                at += LONG_LEN_BYTES + long as usize;
            } else {
                at += usize::from(len);
            }
        }
        if at == bytes.len() { Ok(rows) } else { Err(Damaged) }
    }

    /// How many rows.
    #[inline]
    pub fn len(&self) -> usize {
        Rows::count(self.bytes)
    }

    /// How many rows a leaf has that these bytes begin with. Panics: they are fewer than its head.
    #[inline]
    pub(crate) fn count(bytes: &[u8]) -> usize {
        u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]) as usize >> 8
    }

    /// Whether there is none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of the leaf.
    #[inline]
    pub fn byte_len(&self) -> usize {
        self.bytes.len()
    }

    /// Bytes of the leaf if each number took 8.
    pub fn byte_len_max(&self) -> usize {
        let narrower =
            usize::from(self.shape().numbers) * NUMBER_BYTES - number_bytes(self.bytes[0]);
        self.byte_len() + self.len() * narrower
    }

    /// Bytes that one of its rows takes.
    pub fn row_bytes(&self, row: &Row<'_>) -> usize {
        let (bits, shape) = (self.bytes[0], self.shape());
        let parts = [row.first, row.second];
        let parts = parts[..shape.parts].iter().map(|part| 1 + encoded_len(part.len()));
        fingerprint_bytes(bits) + number_bytes(bits) + parts.sum::<usize>()
    }

    /// What its rows have.
    #[inline]
    pub fn shape(&self) -> Shape {
        let bits = self.bytes[0];
        Shape {
            parts: usize::from(bits & PARTS_MASK),
            fingerprints: bits & FINGERPRINTS_BIT != 0,
            numbers: bits & NUMBERS_BIT != 0,
            narrow: bits & NARROW_BIT != 0,
        }
    }

    /// What the rows have, and how many there are.
    #[inline]
    fn head(&self) -> (u8, usize) {
        let head = self.bytes.first_chunk().expect("invariant: a leaf has a head");
        (head[0], u32::from_le_bytes(*head) as usize >> 8)
    }

    #[inline]
    fn numbers_start(&self) -> usize {
        let (bits, count) = self.head();
        HEAD_BYTES + count * fingerprint_bytes(bits)
    }

    #[inline]
    fn lengths_start(&self) -> usize {
        let (bits, count) = self.head();
        HEAD_BYTES + count * (fingerprint_bytes(bits) + number_bytes(bits))
    }

    #[inline]
    fn parts_start(&self) -> usize {
        let (bits, count) = self.head();
        let parts = usize::from(bits & PARTS_MASK);
        HEAD_BYTES + count * (fingerprint_bytes(bits) + number_bytes(bits) + parts)
    }

    /// Where the `index`-th part begins, with its long length if it has one; they are counted over all
    /// rows.
    #[inline]
    fn part_start(&self, index: usize) -> usize {
        self.part_start_after((0, self.parts_start()), index)
    }

    /// The same, from a part in front of it, or itself, and its place.
    #[inline]
    fn part_start_after(&self, (from, start): (usize, usize), index: usize) -> usize {
        let lengths = &self.bytes[self.lengths_start()..][from..index];
        if self.bytes[0] & LONG_BIT == 0 {
            return start + sum(lengths);
        }
        lengths.iter().fold(start, |at, &len| at + self.stored_len(len, at))
    }

    /// Bytes that the part at `at` takes, whose length byte is `len`.
    #[inline]
    fn stored_len(&self, len: u8, at: usize) -> usize {
        if len < LONG { usize::from(len) } else { LONG_LEN_BYTES + self.long_len(at) }
    }

    fn long_len(&self, at: usize) -> usize {
        let long = &self.bytes[at..at + LONG_LEN_BYTES];
        u32::from_le_bytes([long[0], long[1], long[2], long[3]]) as usize
    }

    /// The part at `at`, whose length byte is `len`.
    #[inline]
    fn part_at(&self, len: u8, at: usize) -> &'a [u8] {
        if len < LONG {
            return &self.bytes[at..at + usize::from(len)];
        }
        &self.bytes[at + LONG_LEN_BYTES..][..self.long_len(at)]
    }

    #[inline]
    fn part(&self, index: usize) -> &'a [u8] {
        let at = self.part_start(index);
        self.part_at(self.bytes[self.lengths_start() + index], at)
    }

    /// The first part of a row. Panics: there is no such row.
    #[inline]
    pub fn first(&self, row: usize) -> &'a [u8] {
        assert!(row < self.len());
        self.part(row * self.shape().parts)
    }

    /// The second part of a row. Panics: there is no such row, or rows have one part.
    #[inline]
    pub fn second(&self, row: usize) -> &'a [u8] {
        assert!(row < self.len() && self.shape().parts == 2);
        self.part(row * 2 + 1)
    }

    /// The number of a row; 0 if rows have none. Panics: there is no such row.
    #[inline]
    pub fn number(&self, row: usize) -> u64 {
        assert!(row < self.len());
        if !self.shape().numbers {
            return 0;
        }
        let width = number_bytes(self.bytes[0]);
        read_number(&self.bytes[self.numbers_start() + row * width..][..width])
    }

    /// The fingerprint of a row. Panics: there is no such row, or rows have none.
    pub(crate) fn fingerprint(&self, row: usize) -> u8 {
        assert!(row < self.len() && self.shape().fingerprints);
        self.bytes[HEAD_BYTES + row]
    }

    /// The numbers of all rows, of which each has its 8 bytes. Panics: rows have none, or narrow ones.
    pub(crate) fn numbers(&self) -> impl ExactSizeIterator<Item = u64> + use<'a> {
        assert!(self.shape().numbers && !self.shape().narrow);
        self.number_column().as_chunks().0.iter().map(|number| u64::from_le_bytes(*number))
    }

    /// The numbers as they stand there, in little endian.
    #[inline]
    fn number_column(&self) -> &'a [u8] {
        &self.bytes[self.numbers_start()..self.lengths_start()]
    }

    /// How many rows stand in front of the first of which the number is not `is_before`; those of which it is stand
    /// in front of all others. Panics: rows have no numbers.
    #[inline]
    pub(crate) fn partition_by_number(&self, is_before: impl Fn(u64) -> bool) -> usize {
        assert!(self.shape().numbers);
        let column = self.number_column();
        match number_bytes(self.bytes[0]) {
            1 => column.partition_point(|number| is_before((*number).into())),
            2 => partition(column.as_chunks::<2>().0, is_before),
            4 => partition(column.as_chunks::<4>().0, is_before),
            _ => partition(column.as_chunks::<8>().0, is_before),
        }
    }

    /// The bytes of the leaf.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Where the number of a row stands, in little endian.
    pub(crate) fn number_start(&self, row: usize) -> usize {
        self.numbers_start() + row * number_bytes(self.bytes[0])
    }

    /// A row. Panics: there is no such row.
    pub fn row(&self, row: usize) -> Row<'a> {
        self.iter_from(row).next().expect("a row that exists")
    }

    /// The row whose first part is `first`, which has this fingerprint. Cost: a pass over the
    /// fingerprints, and one over the lengths in front of the last row that may be it.
    #[inline]
    pub fn find(&self, fingerprint: u8, first: &[u8]) -> Option<usize> {
        self.find_all(fingerprint, first).next()
    }

    /// The rows whose first part is `first`, which has this fingerprint. Cost: as for the first of them.
    #[inline]
    pub fn find_all<'f>(
        &self,
        fingerprint: u8,
        first: &'f [u8],
    ) -> impl Iterator<Item = usize> + use<'a, 'f> {
        self.find_all_with_start(fingerprint, first).map(|(row, _)| row)
    }

    /// The first of these rows, and where its second part stands. Panics: rows have one part.
    #[inline]
    pub(crate) fn find_with_second(
        &self,
        fingerprint: u8,
        first: &[u8],
    ) -> Option<(usize, Range<usize>)> {
        assert!(self.shape().parts == 2);
        let (row, first_start) = self.find_all_with_start(fingerprint, first).next()?;
        let mut start = first_start + encoded_len(first.len());
        let mut len = usize::from(self.bytes[self.lengths_start() + 2 * row + 1]);
        if len == usize::from(LONG) {
            (start, len) = (start + LONG_LEN_BYTES, self.long_len(start));
        }
        Some((row, start..start + len))
    }

    /// The rows whose first part is `first`, each with where that begins.
    #[inline]
    fn find_all_with_start<'f>(
        &self,
        fingerprint: u8,
        first: &'f [u8],
    ) -> impl Iterator<Item = (usize, usize)> + use<'a, 'f> {
        let rows = *self;
        assert!(rows.shape().fingerprints);
        let (count, parts) = (rows.len(), rows.shape().parts);
        let fingerprints = &rows.bytes[HEAD_BYTES..HEAD_BYTES + count];
        let lengths = &rows.bytes[rows.lengths_start()..];
        let len = first.len().min(usize::from(LONG)) as u8;
        let mut seen = (0, rows.parts_start());
        memchr::Memchr::new(fingerprint, fingerprints).filter_map(move |row| {
            let index = row * parts;
            if lengths[index] != len {
                return None;
            }
            seen = (index, rows.part_start_after(seen, index));
            (rows.part_at(len, seen.1) == first).then_some((row, seen.1))
        })
    }

    /// The rows whose only part is `part`, where all parts are as long. Cost: a pass over the fingerprints.
    #[inline]
    pub fn find_all_short<const N: usize>(
        &self,
        fingerprint: u8,
        part: [u8; N],
    ) -> impl Iterator<Item = usize> + use<'a, N> {
        assert!(self.shape().fingerprints);
        let fingerprints = &self.bytes[HEAD_BYTES..HEAD_BYTES + self.len()];
        let parts: &[[u8; N]] = self.bytes[self.parts_start()..].as_chunks().0;
        memchr::Memchr::new(fingerprint, fingerprints)
            .filter(move |&row| parts.get(row) == Some(&part))
    }

    /// Offsets of bytes that a look-up comes to behind the fingerprints if the first row of this fingerprint is
    /// the one: of lengths, of its number, and of its parts, if all rows are about as long. None: there is no such
    /// row.
    #[inline]
    pub fn likely_places(&self, fingerprint: u8) -> Option<[usize; 5]> {
        assert!(self.shape().fingerprints);
        let count = self.len();
        let row = memchr::memchr(fingerprint, &self.bytes[HEAD_BYTES..HEAD_BYTES + count])?;
        let (lengths, parts) = (self.lengths_start(), self.parts_start());
        let row_bytes = (self.byte_len() - parts) / count;
        let start = parts + row * row_bytes;
        let its_length = lengths + row * self.shape().parts;
        let number = if self.shape().numbers { self.number_start(row) } else { lengths };
        Some([lengths, its_length, number, start, start + row_bytes])
    }

    /// The last row within a range whose part is `order` or less, of rows of one part in order; the first of
    /// the range counts as less.
    pub(crate) fn find_last_at_most(&self, order: &[u8], within: Range<usize>) -> usize {
        assert!(self.shape().parts == 1);
        let lengths = self.lengths_start();
        let (mut low, mut high) = ((within.start, self.part_start(within.start)), within.end);
        while high - low.0 > 1 {
            let middle = low.0 + (high - low.0) / 2;
            // Lengths are added up from the row that is known to be less.
            let start = self.part_start_after(low, middle);
            let part = self.part_at(self.bytes[lengths + middle], start);
            if part <= order { low = (middle, start) } else { high = middle }
        }
        low.0
    }

    /// All rows.
    pub fn iter(&self) -> Iter<'a> {
        self.iter_from(0)
    }

    /// A leaf of the rows of several, which have the same shape, but for numbers: where some have them, those
    /// of the others are 0. None: there is no leaf, or more than [`ROWS_MAX`] rows. Cost: one pass.
    pub fn concat<'l>(leaves: impl Iterator<Item = Rows<'l>>) -> Option<Vec<u8>> {
        let leaves: Vec<Rows<'l>> = leaves.collect();
        let head = leaves.iter().map(|leaf| leaf.bytes[0]).reduce(bits_of_both)?;
        let mut columns: [Vec<u8>; 4] = Default::default();
        let mut count = 0;
        for leaf in leaves {
            count += leaf.len();
            leaf.extend_numbers(head, &mut columns[1]);
            let parts = [
                (0, HEAD_BYTES..leaf.numbers_start()),
                (2, leaf.lengths_start()..leaf.parts_start()),
                (3, leaf.parts_start()..leaf.byte_len()),
            ];
            for (column, place) in parts {
                columns[column].extend_from_slice(&leaf.bytes[place]);
            }
        }
        if count > ROWS_MAX {
            return None;
        }
        let mut whole = vec![head];
        whole.extend_from_slice(&(count as u32).to_le_bytes()[..HEAD_BYTES - 1]);
        columns.iter().for_each(|column| whole.extend_from_slice(column));
        Some(whole)
    }

    /// A leaf of those rows that `is_wanted`, by their positions. Cost: a pass to find them, and one over each column.
    pub fn select(&self, is_wanted: impl Fn(usize) -> bool) -> Vec<u8> {
        let (shape, lengths) = (self.shape(), &self.bytes[self.lengths_start()..]);
        // The wanted rows, each with where its parts stand.
        let mut wanted: Vec<(usize, Range<usize>)> = Vec::with_capacity(self.len());
        let (mut start, mut parts_bytes) = (self.parts_start(), 0);
        for row in 0..self.len() {
            let of_row = &lengths[row * shape.parts..(row + 1) * shape.parts];
            let end = of_row.iter().fold(start, |at, &len| at + self.stored_len(len, at));
            if is_wanted(row) {
                parts_bytes += end - start;
                wanted.push((row, start..end));
            }
            start = end;
        }
        let bits = self.bytes[0];
        let row_bytes = fingerprint_bytes(bits) + number_bytes(bits) + shape.parts;
        let mut leaf = Vec::with_capacity(HEAD_BYTES + row_bytes * wanted.len() + parts_bytes);
        leaf.push(bits);
        leaf.extend_from_slice(&(wanted.len() as u32).to_le_bytes()[..HEAD_BYTES - 1]);
        if shape.fingerprints {
            leaf.extend(wanted.iter().map(|(row, _)| self.bytes[HEAD_BYTES + row]));
        }
        let (numbers, width) = (self.number_column(), number_bytes(bits));
        wanted.iter().for_each(|(row, _)| leaf.extend(&numbers[row * width..][..width]));
        match shape.parts {
            1 => leaf.extend(wanted.iter().map(|(row, _)| lengths[*row])),
            _ => leaf.extend(
                wanted.iter().flat_map(|(row, _)| [lengths[2 * row], lengths[2 * row + 1]]),
            ),
        }
        wanted.into_iter().for_each(|(_, parts)| leaf.extend_from_slice(&self.bytes[parts]));
        leaf
    }

    /// A leaf of the rows at these positions. Panics: there are not so many. Cost: their bytes, and a pass over
    /// the lengths in front of them.
    pub fn slice(&self, range: Range<usize>) -> Vec<u8> {
        assert!(range.start <= range.end && range.end <= self.len());
        let shape = self.shape();
        let start = self.part_start(range.start * shape.parts);
        let first = (range.start * shape.parts, start);
        let end = self.part_start_after(first, range.end * shape.parts);
        let mut leaf = vec![self.bytes[0]];
        leaf.extend_from_slice(&(range.len() as u32).to_le_bytes()[..HEAD_BYTES - 1]);
        let columns = [
            (HEAD_BYTES, usize::from(shape.fingerprints)),
            (self.numbers_start(), number_bytes(self.bytes[0])),
            (self.lengths_start(), shape.parts),
        ];
        for (column, width) in columns {
            let rows = &self.bytes[column + range.start * width..column + range.end * width];
            leaf.extend_from_slice(rows);
        }
        leaf.extend_from_slice(&self.bytes[start..end]);
        leaf
    }

    /// Appends the numbers of all rows as a leaf of these bits has them, in which they fit: 0 where these rows have none.
    fn extend_numbers(&self, bits: u8, out: &mut Vec<u8>) {
        let width = number_bytes(bits);
        if number_bytes(self.bytes[0]) == width {
            return out.extend_from_slice(self.number_column());
        }
        (0..self.len()).for_each(|row| out.extend(&self.number(row).to_le_bytes()[..width]));
    }

    /// All rows from `row` on.
    pub fn iter_from(&self, row: usize) -> Iter<'a> {
        let row = row.min(self.len());
        let at = self.part_start(row * self.shape().parts);
        Iter { rows: *self, row, at }
    }
}

impl fmt::Debug for Rows<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

/// How many numbers stand in front of the first that is not `is_before`.
#[inline]
fn partition<const N: usize>(column: &[[u8; N]], is_before: impl Fn(u64) -> bool) -> usize {
    column.partition_point(|number| is_before(read_number(number)))
}

/// The bits of a leaf with the rows of two, which have the same shape, but that one may have no numbers.
fn bits_of_both(one: u8, two: u8) -> u8 {
    let differ = (one ^ two) & !(LONG_BIT | NUMBERS_BIT | NARROW_MASK);
    assert!(differ == 0, "leaves of one shape");
    let narrow = narrow_of(one).min(narrow_of(two));
    (one | two) & !NARROW_MASK | narrow << NARROW_SHIFT
}

/// The rows of a leaf in order.
#[derive(Clone)]
pub struct Iter<'a> {
    rows: Rows<'a>,
    row: usize,
    at: usize,
}

impl<'a> Iter<'a> {
    fn next_part(&mut self, index: usize) -> &'a [u8] {
        let len = self.rows.bytes[self.rows.lengths_start() + index];
        let part = self.rows.part_at(len, self.at);
        self.at += encoded_len(part.len());
        part
    }
}

impl<'a> Iterator for Iter<'a> {
    type Item = Row<'a>;

    #[inline]
    fn next(&mut self) -> Option<Row<'a>> {
        if self.row == self.rows.len() {
            return None;
        }
        let row = self.row;
        let number = self.rows.number(row);
        let parts = self.rows.shape().parts;
        let first = self.next_part(row * parts);
        let second = if parts == 2 { self.next_part(row * 2 + 1) } else { &[] };
        self.row += 1;
        Some(Row { first, second, number })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = self.rows.len() - self.row;
        (left, Some(left))
    }
}

impl ExactSizeIterator for Iter<'_> {}

/// A leaf to be changed. Cost of every change: one pass over what lies behind it.
pub struct RowsMut<'a> {
    bytes: &'a mut Vec<u8>,
}

impl<'a> RowsMut<'a> {
    /// A leaf that this process has made. Panics, there or later: it is no leaf.
    #[inline]
    pub fn new(bytes: &'a mut Vec<u8>) -> RowsMut<'a> {
        Rows::new(bytes);
        RowsMut { bytes }
    }

    /// The leaf to be read.
    #[inline]
    pub fn rows(&self) -> Rows<'_> {
        Rows { bytes: self.bytes }
    }

    fn set_len(&mut self, rows: usize) {
        assert!(rows <= ROWS_MAX, "a leaf is divided long before");
        self.bytes[1..HEAD_BYTES].copy_from_slice(&(rows as u32).to_le_bytes()[..3]);
    }

    /// Puts a row in front of the `at`-th. What the leaf's shape has no column for is left out. Panics:
    /// there are fewer rows, or the parts are not those of the shape.
    pub fn insert(&mut self, at: usize, fingerprint: u8, number: u64, parts: &[&[u8]]) {
        self.have_room_for(number);
        let rows = self.rows();
        let (shape, count) = (rows.shape(), rows.len());
        assert!(at <= count && parts.len() == shape.parts);
        let part_bytes = parts.iter().map(|part| encoded_len(part.len())).sum();
        let mut gaps = Gaps::new();
        if shape.fingerprints {
            gaps.push((HEAD_BYTES + at, 1));
        }
        if shape.numbers {
            gaps.push((rows.number_start(at), number_bytes(rows.bytes[0])));
        }
        gaps.push((rows.lengths_start() + at * shape.parts, shape.parts));
        gaps.push((rows.part_start(at * shape.parts), part_bytes));
        gaps::open(self.bytes, &gaps);
        self.set_len(count + 1);
        if shape.fingerprints {
            self.bytes[HEAD_BYTES + at] = fingerprint;
        }
        if shape.numbers {
            self.set_number(at, number);
        }
        let mut start = gaps.iter().map(|(_, len)| len).sum::<usize>() - part_bytes;
        start += gaps.last().expect("invariant: the parts' is there").0;
        for (index, part) in (at * shape.parts..).zip(parts) {
            self.put_part(index, start, part);
            start += encoded_len(part.len());
        }
    }

    /// Puts a row behind all others.
    pub fn push(&mut self, fingerprint: u8, number: u64, parts: &[&[u8]]) {
        self.insert(self.rows().len(), fingerprint, number, parts);
    }

    /// Puts rows of one part and nothing else in front of the `at`-th, with one pass over what lies behind
    /// it for all of them. Panics: there are fewer rows, or rows have more than a part.
    pub fn insert_all<'p>(&mut self, at: usize, parts: impl Iterator<Item = &'p [u8]> + Clone) {
        let rows = self.rows();
        let count = rows.len();
        assert!(at <= count && rows.shape() == PART_ALONE);
        let (mut added, mut part_bytes) = (0, 0);
        for part in parts.clone() {
            added += 1;
            part_bytes += encoded_len(part.len());
        }
        let (length_at, mut start) = (rows.lengths_start() + at, rows.part_start(at));
        gaps::open(self.bytes, &[(length_at, added), (start, part_bytes)]);
        self.set_len(count + added);
        start += added;
        for (index, part) in (at..).zip(parts) {
            self.put_part(index, start, part);
            start += encoded_len(part.len());
        }
    }

    /// Writes a part and its length where there is room for them.
    fn put_part(&mut self, index: usize, mut start: usize, part: &[u8]) {
        let length_at = self.rows().lengths_start() + index;
        self.bytes[length_at] = part.len().min(usize::from(LONG)) as u8;
        if part.len() >= usize::from(LONG) {
            let len = u32::try_from(part.len()).expect("invariant: a string is at most 512 MiB");
            self.bytes[start..start + LONG_LEN_BYTES].copy_from_slice(&len.to_le_bytes());
            self.bytes[0] |= LONG_BIT;
            start += LONG_LEN_BYTES;
        }
        self.bytes[start..start + part.len()].copy_from_slice(part);
    }

    /// Takes out rows. Panics: there are not so many.
    pub fn remove(&mut self, range: Range<usize>) {
        let rows = self.rows();
        let (shape, count, removed) = (rows.shape(), rows.len(), range.len());
        assert!(range.start <= range.end && range.end <= count);
        let (start, end) =
            (rows.part_start(range.start * shape.parts), rows.part_start(range.end * shape.parts));
        let mut gaps = Gaps::new();
        if shape.fingerprints {
            gaps.push((HEAD_BYTES + range.start, removed));
        }
        if shape.numbers {
            let width = number_bytes(rows.bytes[0]);
            gaps.push((rows.number_start(range.start), removed * width));
        }
        gaps.push((rows.lengths_start() + range.start * shape.parts, removed * shape.parts));
        gaps.push((start, end - start));
        gaps::close(self.bytes, &gaps);
        self.set_len(count - removed);
    }

    /// Takes out the rows, of one part and nothing else, of which `keeps` does not say so, with one pass
    /// for all of them. Panics: rows have more than a part.
    pub fn retain(&mut self, mut keeps: impl FnMut(&[u8]) -> bool) {
        let rows = self.rows();
        assert!(rows.shape() == PART_ALONE);
        let (count, lengths) = (rows.len(), rows.lengths_start());
        let (mut kept, mut from, mut to) = (0, rows.parts_start(), rows.parts_start());
        for row in 0..count {
            let rows = self.rows();
            let len = rows.bytes[lengths + row];
            let end = from + rows.stored_len(len, from);
            if keeps(rows.part_at(len, from)) {
                self.bytes.copy_within(from..end, to);
                self.bytes[lengths + kept] = len;
                kept += 1;
                to += end - from;
            }
            from = end;
        }
        self.bytes.truncate(to);
        gaps::close(self.bytes, &[(lengths + kept, count - kept)]);
        self.set_len(kept);
    }

    /// Gives the second part of a row other bytes. Panics: there is no such row or part.
    pub fn set_second(&mut self, row: usize, part: &[u8]) {
        assert!(row < self.rows().len() && self.rows().shape().parts == 2);
        self.set_part(row * 2 + 1, part);
    }

    /// Gives the first part of a row other bytes. Panics: there is no such row, or rows have
    /// fingerprints, which would be wrong then.
    pub fn set_first(&mut self, row: usize, part: &[u8]) {
        let shape = self.rows().shape();
        assert!(row < self.rows().len() && !shape.fingerprints);
        self.set_part(row * shape.parts, part);
    }

    fn set_part(&mut self, index: usize, part: &[u8]) {
        let rows = self.rows();
        let start = rows.part_start(index);
        let old = rows.stored_len(rows.bytes[rows.lengths_start() + index], start);
        let new = encoded_len(part.len());
        if new > old {
            gaps::open(self.bytes, &[(start + old, new - old)]);
        } else {
            gaps::close(self.bytes, &[(start + new, old - new)]);
        }
        self.put_part(index, start, part);
    }

    /// Gives a row another number. Panics: there is no such row, or rows have none.
    pub fn set_number(&mut self, row: usize, number: u64) {
        self.have_room_for(number);
        let rows = self.rows();
        assert!(row < rows.len() && rows.shape().numbers);
        let (start, width) = (rows.number_start(row), number_bytes(rows.bytes[0]));
        self.bytes[start..start + width].copy_from_slice(&number.to_le_bytes()[..width]);
    }

    /// Has the numbers of all rows take as many bytes as this one needs, unless they take more. What the leaf has no
    /// column for needs none. Cost: where they take fewer, a pass over all behind them.
    #[inline]
    fn have_room_for(&mut self, number: u64) {
        let bits = self.bytes[0];
        let narrow = narrow_of(bits).min(narrow_for(number));
        if narrow < narrow_of(bits) {
            self.widen(bits & !NARROW_MASK | narrow << NARROW_SHIFT);
        }
    }

    /// Has them take as many bytes as in a leaf of these bits, which are more.
    #[cold]
    fn widen(&mut self, bits: u8) {
        let rows = self.rows();
        let mut numbers = Vec::new();
        rows.extend_numbers(bits, &mut numbers);
        let column = rows.numbers_start()..rows.lengths_start();
        gaps::open(self.bytes, &[(column.end, numbers.len() - column.len())]);
        self.bytes[column.start..column.start + numbers.len()].copy_from_slice(&numbers);
        self.bytes[0] = bits;
    }

    /// Gives every row a number, which is 0, or takes the numbers away, unless that is so already. Cost: one
    /// pass. Panics: they are narrow.
    pub fn have_numbers(&mut self, has: bool) {
        let rows = self.rows();
        assert!(!rows.shape().narrow);
        if rows.shape().numbers == has {
            return;
        }
        let (start, bytes) = (rows.numbers_start(), NUMBER_BYTES * rows.len());
        if has {
            gaps::open(self.bytes, &[(start, bytes)]);
            self.bytes[start..start + bytes].fill(0);
        } else {
            gaps::close(self.bytes, &[(start, bytes)]);
        }
        self.bytes[0] ^= NUMBERS_BIT;
    }

    /// Takes the rows from `at` on into a leaf of their own. Panics: there are fewer.
    pub fn split_off(&mut self, at: usize) -> Vec<u8> {
        let count = self.rows().len();
        let mut right = self.bytes.clone();
        RowsMut { bytes: &mut right }.remove(0..at);
        self.remove(at..count);
        right
    }

    /// Puts the rows of another leaf of the same shape behind these. Where one has numbers, those of the other
    /// are 0.
    pub fn append(&mut self, other: Rows<'_>) {
        if self.rows().shape().numbers && !other.shape().numbers {
            let mut numbered = other.bytes.to_vec();
            RowsMut::new(&mut numbered).have_numbers(true);
            return self.append(Rows::new(&numbered));
        }
        if other.shape().numbers && !self.rows().shape().numbers {
            self.have_numbers(true);
        }
        let bits = bits_of_both(self.bytes[0], other.bytes[0]);
        if narrow_of(bits) < narrow_of(other.bytes[0]) {
            let mut widened = other.bytes.to_vec();
            RowsMut::new(&mut widened).widen(bits);
            return self.append(Rows::new(&widened));
        }
        if narrow_of(bits) < narrow_of(self.bytes[0]) {
            self.widen(bits);
        }
        let rows = self.rows();
        let (shape, count, more) = (rows.shape(), rows.len(), other.len());
        assert!(shape == other.shape());
        let columns = [
            (rows.numbers_start(), HEAD_BYTES..other.numbers_start()),
            (rows.lengths_start(), other.numbers_start()..other.lengths_start()),
            (rows.parts_start(), other.lengths_start()..other.parts_start()),
            (rows.byte_len(), other.parts_start()..other.byte_len()),
        ];
        let gaps: Gaps = columns.iter().map(|(at, from)| (*at, from.len())).collect();
        gaps::open(self.bytes, &gaps);
        let mut before = 0;
        for (at, from) in columns {
            let to = at + before;
            self.bytes[to..to + from.len()].copy_from_slice(&other.bytes[from.clone()]);
            before += from.len();
        }
        self.bytes[0] |= other.bytes[0] & LONG_BIT;
        self.set_len(count + more);
    }
}

#[cfg(test)]
mod tests;
