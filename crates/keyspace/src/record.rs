//! The record of a key: one allocation with the key, what is known of it, and its value or where
//! the value lies.
//!
//! ```text
//! offset 0  head: kind (bits 0-4), has expiry (bit 5), state (bits 6-7)
//!        1  key length, 0 to 252; 253: two bytes follow; 254: four bytes follow
//!        .  key
//!        .  expiry, Unix milliseconds, 6 bytes             when "has expiry"
//!        .  expiry, 8 bytes                                when the 6 are all ones (year 10889)
//!        .  flash place, 5 bytes of 16-byte units          clean, cold
//!        .  stored length << 1 | compressed, varint        clean, cold
//!        .  value length, varint                           inline, hot; clean, cold: if compressed
//!        .  address of the value, 8 bytes                  hot, clean
//!        .  value                                          inline
//! ```
//!
//! A cold key of 16 bytes with a value of 512 is 25 bytes. The kind is opaque here: the value
//! crate's type and encoding.
//!
//! Invariants:
//! 1. A `Record` owns its allocation and, when hot or clean, the value's; [`Record::free`] is the
//!    one place where they end.
//! 2. An allocation has the size of its size class, so that a record that changes state stays
//!    where it is when the new layout falls into the same class, as most do.

mod relocate;

pub(crate) use relocate::DetachedBlock;

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::mem::MaybeUninit;
use std::ptr::NonNull;

use stdx::size_class;

/// Longest key: Redis's own limit of a string.
pub const KEY_BYTES_MAX: usize = 512 << 20;

/// Values up to this length stand in the record itself: they save an address and a cache miss.
pub(crate) const INLINE_BYTES_MAX: usize = 128;

/// Records lie on multiples of 8, so that an address leaves three low bits to the table entry.
pub(crate) const RECORD_ALIGN: usize = 8;

const KIND_MASK: u8 = 0x1f;
const EXPIRY_BIT: u8 = 0x20;
const STATE_SHIFT: u32 = 6;
const STATE_INLINE: u8 = 0;
const STATE_HOT: u8 = 1;
const STATE_CLEAN: u8 = 2;
const STATE_COLD: u8 = 3;
const KEY_LEN_U16: u8 = 253;
const KEY_LEN_U32: u8 = 254;
const EXPIRY_BYTES: usize = 6;
const EXPIRY_WIDE_BYTES: usize = 8;
/// Expiries from here on stand in the wide field behind this mark: a client may ask for any.
const EXPIRY_WIDE: u64 = (1 << (8 * EXPIRY_BYTES)) - 1;
const PLACE_BYTES: usize = 5;
const ADDRESS_BYTES: usize = 8;

/// Where a value lies on flash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlashRef {
    /// Place in the log, in 16-byte units: 40 bits.
    pub units: u64,
    /// Bytes of the stored (perhaps compressed) value.
    pub stored_len: u32,
    /// Whether those bytes are compressed.
    pub compressed: bool,
}

/// Where the value of a record is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stored<'a> {
    /// In RAM alone.
    Hot(&'a [u8]),
    /// In RAM, with an identical copy on flash.
    Clean(&'a [u8], FlashRef),
    /// On flash alone; the length is that of the value itself.
    Cold(FlashRef, u32),
}

/// A record taken apart.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    /// Type and encoding of the value, opaque to the keyspace.
    pub kind: u8,
    /// Unix time in milliseconds, 0 for none.
    pub expire_at_ms: u64,
    /// The key.
    pub key: &'a [u8],
    /// The value or its place.
    pub stored: Stored<'a>,
}

impl View<'_> {
    /// Length of the value in bytes, wherever it is.
    pub fn value_len(&self) -> usize {
        match self.stored {
            Stored::Hot(bytes) | Stored::Clean(bytes, _) => bytes.len(),
            Stored::Cold(_, len) => len as usize,
        }
    }
}

/// The state of a record about to be made.
pub(crate) enum NewState<'a> {
    /// Short value in RAM.
    Inline(&'a [u8]),
    /// Value in RAM, outside the record.
    Hot(Box<[u8]>),
    /// Value in RAM and on flash.
    Clean(Box<[u8]>, FlashRef),
    /// Value on flash.
    Cold(FlashRef, u32),
}

/// An owned record. Dropping it leaks: the table frees it with [`Record::free`], because nearly
/// always the value or the place in it goes on living elsewhere.
pub(crate) struct Record(NonNull<u8>);

// SAFETY: a record is plain owned memory; the slot mutex around it serialises all access.
unsafe impl Send for Record {}

impl Record {
    /// Makes a record. Panics: if the key is longer than [`KEY_BYTES_MAX`].
    pub(crate) fn new(kind: u8, expire_at_ms: u64, key: &[u8], state: NewState<'_>) -> Record {
        assert!(key.len() <= KEY_BYTES_MAX);
        let key_start = 1 + key_len_bytes(key.len());
        let tail_start = key_start + key.len();
        let layout = layout(tail_start + tail_bytes(expire_at_ms, &state));
        // SAFETY: the layout's size is not zero: a head is at least two bytes.
        let start = unsafe { alloc(layout) };
        let Some(start) = NonNull::new(start) else { handle_alloc_error(layout) };
        let mut record = Record(start);
        let mut pen = record.pen(1, layout.size() - 1);
        pen.put_key_len(key.len());
        pen.put(key);
        record.put_head(kind, expire_at_ms, &state);
        record.pen(tail_start, layout.size() - tail_start).put_tail(expire_at_ms, state);
        record
    }

    /// Gives the record another kind, expiry and state, and hands out the value it had. Cost: the
    /// record stays where it is when its size class does; otherwise it is made anew.
    ///
    /// Shape: `state` does not borrow from the record itself.
    pub(crate) fn change(
        mut self,
        kind: u8,
        expire_at_ms: u64,
        state: NewState<'_>,
    ) -> (Record, Option<Box<[u8]>>) {
        let (view, size) = self.parse();
        let tail_start = self.key_range().0 + view.key.len();
        let room = size_class(size);
        if size_class(tail_start + tail_bytes(expire_at_ms, &state)) != room {
            let record = Record::new(kind, expire_at_ms, view.key, state);
            return (record, self.free());
        }
        let old = self.boxed_value(&view);
        self.put_head(kind, expire_at_ms, &state);
        self.pen(tail_start, room - tail_start).put_tail(expire_at_ms, state);
        // SAFETY: what named the value in the record has just been written over.
        (self, old.map(|value| unsafe { Box::from_raw(value) }))
    }

    /// Notes where a value that stands apart and is in RAM alone has a copy on flash. Panics: it is another value.
    pub(crate) fn with_copy(self, place: FlashRef) -> Record {
        assert!(self.is_hot());
        let View { kind, expire_at_ms, .. } = self.view();
        // An empty box leaves the record about as long as it was.
        let (record, value) = self.change(kind, expire_at_ms, NewState::Hot(Box::default()));
        let value = value.expect("invariant: a hot value stands apart");
        record.change(kind, expire_at_ms, NewState::Clean(value, place)).0
    }

    /// Lets the record's flash place be `to`, a copy of the same bytes elsewhere. Panics: if it has
    /// none.
    pub(crate) fn set_place(&mut self, to: u64) {
        let (view, size) = self.parse();
        assert!(matches!(view.stored, Stored::Clean(..) | Stored::Cold(..)));
        let mut offset = self.key_range().0 + view.key.len();
        offset += expiry_bytes(view.expire_at_ms);
        self.pen(offset, size - offset).put_units(to);
    }

    fn put_head(&mut self, kind: u8, expire_at_ms: u64, state: &NewState<'_>) {
        assert!(kind & !KIND_MASK == 0);
        let expiry_bit = if expire_at_ms == 0 { 0 } else { EXPIRY_BIT };
        let state_bits = match state {
            NewState::Inline(_) => STATE_INLINE,
            NewState::Hot(_) => STATE_HOT,
            NewState::Clean(..) => STATE_CLEAN,
            NewState::Cold(..) => STATE_COLD,
        };
        self.pen(0, 1).put(&[kind | expiry_bit | (state_bits << STATE_SHIFT)]);
    }

    fn pen(&mut self, offset: usize, len: usize) -> Pen<'_> {
        // SAFETY: callers pass ranges inside the allocation, and `self` is borrowed mutably.
        Pen(unsafe { std::slice::from_raw_parts_mut(self.0.as_ptr().add(offset).cast(), len) })
    }

    /// The address as a table entry keeps it.
    pub(crate) fn into_address(self) -> u64 {
        self.0.as_ptr().expose_provenance() as u64
    }

    /// The record behind an address that came from [`Record::into_address`].
    ///
    /// # Safety
    /// The record must not have been freed, and the caller must hold the only access to it.
    pub(crate) unsafe fn from_address(address: u64) -> Record {
        let start = std::ptr::with_exposed_provenance_mut(address as usize);
        Record(NonNull::new(start).expect("invariant: entries hold no null record"))
    }

    fn byte(&self, offset: usize) -> u8 {
        // SAFETY: callers pass offsets inside the record, as its own header gives them.
        unsafe { *self.0.as_ptr().add(offset) }
    }

    fn slice(&self, offset: usize, len: usize) -> &[u8] {
        // SAFETY: callers pass ranges inside the record, as its own header gives them.
        unsafe { std::slice::from_raw_parts(self.0.as_ptr().add(offset), len) }
    }

    /// The key's bytes. Cost: one cache line.
    #[inline]
    pub(crate) fn key(&self) -> &[u8] {
        let (start, len) = self.key_range();
        self.slice(start, len)
    }

    #[inline]
    fn key_range(&self) -> (usize, usize) {
        match self.byte(1) {
            KEY_LEN_U16 => (4, self.little_endian::<2>(2) as usize),
            KEY_LEN_U32 => (6, self.little_endian::<4>(2) as usize),
            len => (2, len as usize),
        }
    }

    /// A number of `LEN` bytes. Read as one or two words: bytes put together on the stack would
    /// stall their reader.
    #[inline]
    fn little_endian<const LEN: usize>(&self, offset: usize) -> u64 {
        let half = |offset| {
            let bytes = self.slice(offset, 2);
            u64::from(u16::from_le_bytes([bytes[0], bytes[1]]))
        };
        let word = |offset| {
            let bytes = self.slice(offset, 4);
            u64::from(u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
        };
        match LEN {
            2 => half(offset),
            4 => word(offset),
            5 => word(offset) | u64::from(self.byte(offset + 4)) << 32,
            6 => word(offset) | half(offset + 4) << 32,
            _ => word(offset) | word(offset + 4) << 32,
        }
    }

    fn varint(&self, offset: &mut usize) -> u32 {
        let mut value = 0u32;
        for shift in (0..32).step_by(7) {
            let byte = self.byte(*offset);
            *offset += 1;
            value |= u32::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                break;
            }
        }
        value
    }

    /// Takes the record apart. Cost: a few branches; the value itself is not touched.
    #[inline]
    pub(crate) fn view(&self) -> View<'_> {
        self.parse().0
    }

    /// The view and the record's size in bytes.
    #[inline]
    fn parse(&self) -> (View<'_>, usize) {
        self.parse_in_place()
    }

    /// The same, compiled where it is called: what is not asked for costs nothing.
    #[inline(always)]
    fn parse_in_place(&self) -> (View<'_>, usize) {
        let head = self.byte(0);
        let (key_start, key_len) = self.key_range();
        let mut offset = key_start + key_len;
        let mut expire_at_ms = 0;
        if head & EXPIRY_BIT != 0 {
            expire_at_ms = self.little_endian::<EXPIRY_BYTES>(offset);
            offset += EXPIRY_BYTES;
        }
        if expire_at_ms == EXPIRY_WIDE {
            expire_at_ms = self.little_endian::<EXPIRY_WIDE_BYTES>(offset);
            offset += EXPIRY_WIDE_BYTES;
        }
        let stored = match head >> STATE_SHIFT {
            STATE_INLINE => {
                let len = self.varint(&mut offset) as usize;
                offset += len;
                Stored::Hot(self.slice(offset - len, len))
            }
            STATE_HOT => {
                let len = self.varint(&mut offset);
                Stored::Hot(self.value(&mut offset, len))
            }
            STATE_CLEAN => {
                let (at, len) = self.place(&mut offset);
                Stored::Clean(self.value(&mut offset, len), at)
            }
            _ => {
                let (at, len) = self.place(&mut offset);
                Stored::Cold(at, len)
            }
        };
        let key = self.slice(key_start, key_len);
        (View { kind: head & KIND_MASK, expire_at_ms, key, stored }, offset)
    }

    fn place(&self, offset: &mut usize) -> (FlashRef, u32) {
        let units = self.little_endian::<PLACE_BYTES>(*offset);
        *offset += PLACE_BYTES;
        let stored = self.varint(offset);
        let at = FlashRef { units, stored_len: stored >> 1, compressed: stored & 1 == 1 };
        let len = if at.compressed { self.varint(offset) } else { at.stored_len };
        (at, len)
    }

    fn value(&self, offset: &mut usize, len: u32) -> &[u8] {
        let address = self.little_endian::<ADDRESS_BYTES>(*offset);
        *offset += ADDRESS_BYTES;
        let start = std::ptr::with_exposed_provenance(address as usize);
        // SAFETY: a hot or clean record owns a value of this length at this address.
        unsafe { std::slice::from_raw_parts(start, len as usize) }
    }

    /// The value's bytes; none when it is not in RAM. Cost: less than [`Record::view`], since nothing else is made of
    /// the record.
    #[inline(always)]
    pub(crate) fn bytes(&self) -> Option<&[u8]> {
        match self.parse_in_place().0.stored {
            Stored::Hot(bytes) | Stored::Clean(bytes, _) => Some(bytes),
            Stored::Cold(..) => None,
        }
    }

    /// The value's bytes for a change in place; none when it is not in RAM.
    #[inline]
    pub(crate) fn value_mut(&mut self) -> Option<&mut [u8]> {
        let bytes = self.bytes()?;
        let (address, len) = (bytes.as_ptr().addr(), bytes.len());
        let start = if self.is_inline() {
            // SAFETY: an inline value lies inside the record's allocation.
            unsafe { self.0.as_ptr().add(address - self.0.addr().get()) }
        } else {
            std::ptr::with_exposed_provenance_mut(address)
        };
        // SAFETY: the bytes belong to this record (inline or boxed) and `self` is borrowed mutably.
        Some(unsafe { std::slice::from_raw_parts_mut(start, len) })
    }

    /// Takes out a value that stands apart and is in RAM alone, with its kind, for a change. The record has an
    /// empty one meanwhile, in as many bytes, so it stays as long as it is. None: it is another value.
    pub(crate) fn take_hot(&mut self) -> Option<(u8, Vec<u8>)> {
        if !self.is_hot() {
            return None;
        }
        let view = self.view();
        let kind = view.kind;
        let value = self.boxed_value(&view).expect("invariant: a hot value stands apart");
        self.put_hot_len(0);
        // SAFETY: the record names no byte of the value any more.
        Some((kind, unsafe { Box::from_raw(value) }.into_vec()))
    }

    /// Puts a value in the place of the empty one that [`Record::take_hot`] has left, with its kind. Errors: its
    /// length takes other bytes than the record has for it, or it is to stand in the record: it is handed back.
    ///
    /// Panics: nothing was taken out.
    pub(crate) fn put_hot(&mut self, kind: u8, value: Vec<u8>) -> Result<(), Vec<u8>> {
        let (len_at, len_bytes) = self.hot_len_place();
        let mut at = len_at;
        assert!(self.is_hot() && self.varint(&mut at) == 0, "its value is taken out first");
        let fits = value.len() > INLINE_BYTES_MAX && varint_bytes(length(&value)) == len_bytes;
        if !fits {
            return Err(value);
        }
        self.set_kind(kind);
        self.put_hot_len(length(&value));
        let address = value_address(value.into_boxed_slice());
        self.pen(len_at + len_bytes, ADDRESS_BYTES).put(&address.to_le_bytes());
        Ok(())
    }

    /// Where the length of a hot value stands, and in how many bytes.
    #[inline]
    fn hot_len_place(&self) -> (usize, usize) {
        let (key_start, key_len) = self.key_range();
        let mut len_at = key_start + key_len;
        if self.is_volatile() {
            let is_wide = self.little_endian::<EXPIRY_BYTES>(len_at) == EXPIRY_WIDE;
            len_at += EXPIRY_BYTES + if is_wide { EXPIRY_WIDE_BYTES } else { 0 };
        }
        let mut end = len_at;
        self.varint(&mut end);
        (len_at, end - len_at)
    }

    /// Writes the length of a hot value in the bytes that it has. Panics: they are too few.
    #[inline]
    fn put_hot_len(&mut self, mut len: u32) {
        let (at, bytes) = self.hot_len_place();
        let mut pen = self.pen(at, bytes);
        for _ in 1..bytes {
            pen.put(&[len as u8 | 0x80]);
            len >>= 7;
        }
        assert!(len < 0x80, "a length in as many bytes");
        pen.put(&[len as u8]);
    }

    /// Asks for the first lines of a value that stands apart. Returns its kind, and where it is if that is on flash alone.
    #[inline(always)]
    pub(crate) fn prefetch_value(&self, lines: usize) -> (u8, Option<FlashRef>) {
        let view = self.parse_in_place().0;
        let cold = match view.stored {
            Stored::Hot(bytes) | Stored::Clean(bytes, _) => {
                stdx::prefetch::prefetch_lines(bytes, lines);
                None
            }
            Stored::Cold(at, _) => Some(at),
        };
        (view.kind, cold)
    }

    /// Whether the value stands in the record itself.
    pub(crate) fn is_inline(&self) -> bool {
        self.byte(0) >> STATE_SHIFT == STATE_INLINE
    }

    /// Whether the value stands apart and is in RAM alone.
    #[inline]
    fn is_hot(&self) -> bool {
        self.byte(0) >> STATE_SHIFT == STATE_HOT
    }

    /// Whether the value is in RAM and on flash.
    #[inline]
    pub(crate) fn is_clean(&self) -> bool {
        self.byte(0) >> STATE_SHIFT == STATE_CLEAN
    }

    /// Whether the value is on flash alone.
    #[inline]
    pub(crate) fn is_cold(&self) -> bool {
        self.byte(0) >> STATE_SHIFT == STATE_COLD
    }

    /// Whether the key has an expiry.
    #[inline]
    pub(crate) fn is_volatile(&self) -> bool {
        self.byte(0) & EXPIRY_BIT != 0
    }

    /// Changes the kind in place.
    pub(crate) fn set_kind(&mut self, kind: u8) {
        assert!(kind & !KIND_MASK == 0);
        let head = (self.byte(0) & !KIND_MASK) | kind;
        // SAFETY: offset 0 is inside every record, and `self` is borrowed mutably.
        unsafe { *self.0.as_ptr() = head };
    }

    /// Changes an expiry where it stands. False, and nothing done: the record has no room for this
    /// one. Panics: at 0, which ends an expiry and gives back its room.
    pub(crate) fn set_expiry_in_place(&mut self, expire_at_ms: u64) -> bool {
        assert!(expire_at_ms != 0);
        let narrow = 1..EXPIRY_WIDE;
        if !narrow.contains(&self.view().expire_at_ms) || !narrow.contains(&expire_at_ms) {
            return false;
        }
        let (key_start, key_len) = self.key_range();
        let bytes = expire_at_ms.to_le_bytes();
        // SAFETY: the record has an expiry, so six bytes for it follow the key.
        unsafe {
            let field = self.0.as_ptr().add(key_start + key_len);
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), field, EXPIRY_BYTES);
        }
        true
    }

    /// Ends the record and hands out its boxed value, if it has one.
    pub(crate) fn free(self) -> Option<Box<[u8]>> {
        let (view, size) = self.parse();
        let boxed = self.boxed_value(&view);
        // SAFETY: allocated in `new` with the layout of this size's class.
        unsafe { dealloc(self.0.as_ptr(), layout(size)) };
        // SAFETY: the record that owned the value has ended.
        boxed.map(|value| unsafe { Box::from_raw(value) })
    }

    /// The value that the record owns, as it came out of `Box::into_raw`.
    fn boxed_value(&self, view: &View<'_>) -> Option<*mut [u8]> {
        let (address, len) = match view.stored {
            Stored::Hot(bytes) if !self.is_inline() => (bytes.as_ptr().addr(), bytes.len()),
            Stored::Clean(bytes, _) => (bytes.as_ptr().addr(), bytes.len()),
            _ => return None,
        };
        let start = std::ptr::with_exposed_provenance_mut::<u8>(address);
        Some(std::ptr::slice_from_raw_parts_mut(start, len))
    }

    /// The view, and RAM of the record and of its boxed value, allocator rounding included.
    pub(crate) fn measure(&self) -> (View<'_>, usize, usize) {
        let (view, size) = self.parse();
        let value = match view.stored {
            Stored::Hot(bytes) if !self.is_inline() => size_class(bytes.len()),
            Stored::Clean(bytes, _) => size_class(bytes.len()),
            _ => 0,
        };
        (view, size_class(size), value)
    }
}

fn layout(size: usize) -> Layout {
    Layout::from_size_align(size_class(size), RECORD_ALIGN)
        .expect("invariant: records are below 1 GiB")
}

/// The length of a value as a record keeps it. Panics: if it takes more than 32 bits, which would be cut off, and
/// the value be freed with another length.
fn length(value: &[u8]) -> u32 {
    u32::try_from(value.len()).expect("invariant: values are shorter than 4 GiB")
}

fn value_address(value: Box<[u8]>) -> u64 {
    Box::into_raw(value).cast::<u8>().expose_provenance() as u64
}

/// Bytes of the length in front of a key.
fn key_len_bytes(len: usize) -> usize {
    match len {
        len if len < KEY_LEN_U16 as usize => 1,
        len if len <= u16::MAX as usize => 3,
        _ => 5,
    }
}

fn expiry_bytes(expire_at_ms: u64) -> usize {
    match expire_at_ms {
        0 => 0,
        EXPIRY_WIDE.. => EXPIRY_BYTES + EXPIRY_WIDE_BYTES,
        _ => EXPIRY_BYTES,
    }
}

fn varint_bytes(value: u32) -> usize {
    (u32::BITS - (value | 1).leading_zeros()).div_ceil(7) as usize
}

fn place_bytes(at: FlashRef, value_len: u32) -> usize {
    let len_bytes = if at.compressed { varint_bytes(value_len) } else { 0 };
    PLACE_BYTES + varint_bytes(at.stored_len << 1) + len_bytes
}

/// Bytes of what follows the key.
fn tail_bytes(expire_at_ms: u64, state: &NewState<'_>) -> usize {
    let state_bytes = match state {
        NewState::Inline(bytes) => varint_bytes(bytes.len() as u32) + bytes.len(),
        NewState::Hot(value) => varint_bytes(value.len() as u32) + ADDRESS_BYTES,
        NewState::Clean(value, at) => place_bytes(*at, value.len() as u32) + ADDRESS_BYTES,
        NewState::Cold(at, len) => place_bytes(*at, *len),
    };
    expiry_bytes(expire_at_ms) + state_bytes
}

/// Part of a record that is written, front to back. Panics: at its end.
struct Pen<'a>(&'a mut [MaybeUninit<u8>]);

impl Pen<'_> {
    #[inline]
    fn put(&mut self, bytes: &[u8]) {
        let (here, rest) = std::mem::take(&mut self.0).split_at_mut(bytes.len());
        here.write_copy_of_slice(bytes);
        self.0 = rest;
    }

    fn put_varint(&mut self, mut value: u32) {
        while value >= 0x80 {
            self.put(&[value as u8 | 0x80]);
            value >>= 7;
        }
        self.put(&[value as u8]);
    }

    fn put_key_len(&mut self, len: usize) {
        match key_len_bytes(len) {
            1 => self.put(&[len as u8]),
            3 => {
                self.put(&[KEY_LEN_U16]);
                self.put(&(len as u16).to_le_bytes());
            }
            _ => {
                self.put(&[KEY_LEN_U32]);
                self.put(&(len as u32).to_le_bytes());
            }
        }
    }

    fn put_tail(&mut self, expire_at_ms: u64, state: NewState<'_>) {
        if expire_at_ms != 0 {
            self.put(&expire_at_ms.min(EXPIRY_WIDE).to_le_bytes()[..EXPIRY_BYTES]);
        }
        if expire_at_ms >= EXPIRY_WIDE {
            self.put(&expire_at_ms.to_le_bytes());
        }
        match state {
            NewState::Inline(bytes) => {
                self.put_varint(bytes.len() as u32);
                self.put(bytes);
            }
            NewState::Hot(value) => {
                self.put_varint(length(&value));
                self.put(&value_address(value).to_le_bytes());
            }
            NewState::Clean(value, at) => {
                self.put_place(at, length(&value));
                self.put(&value_address(value).to_le_bytes());
            }
            NewState::Cold(at, len) => self.put_place(at, len),
        }
    }

    fn put_place(&mut self, at: FlashRef, value_len: u32) {
        self.put_units(at.units);
        assert!(at.stored_len >> 31 == 0, "invariant: records on flash are shorter than 2 GiB");
        self.put_varint(at.stored_len << 1 | u32::from(at.compressed));
        if at.compressed {
            self.put_varint(value_len);
        } else {
            assert!(at.stored_len == value_len);
        }
    }

    fn put_units(&mut self, units: u64) {
        assert!(units >> (8 * PLACE_BYTES) == 0);
        self.put(&units.to_le_bytes()[..PLACE_BYTES]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(units: u64, stored_len: u32, compressed: bool) -> FlashRef {
        FlashRef { units, stored_len, compressed }
    }

    #[test]
    #[should_panic(expected = "values are shorter than 4 GiB")]
    fn a_length_that_does_not_fit_is_not_cut_off() {
        // Zeros that nobody touches take no memory.
        length(&vec![0; 1 << 32]);
    }

    #[test]
    fn every_state_reads_back_as_it_was_made() {
        for key_len in [0usize, 1, 15, 252, 253, 70_000] {
            let key = vec![b'k'; key_len];
            for expiry in [0u64, 1, 1_700_000_000_000, EXPIRY_WIDE - 1, EXPIRY_WIDE, u64::MAX] {
                for value_len in [0usize, 5, 128, 129, 20_000] {
                    let value = vec![7u8; value_len];
                    let flash = at((1 << 40) - 1, value_len as u32, false);
                    let packed = at(77, 3, true);
                    let states: [(NewState, Stored); 5] = [
                        (NewState::Inline(&value), Stored::Hot(&value)),
                        (NewState::Hot(value.clone().into()), Stored::Hot(&value)),
                        (
                            NewState::Clean(value.clone().into(), flash),
                            Stored::Clean(&value, flash),
                        ),
                        (
                            NewState::Cold(flash, value_len as u32),
                            Stored::Cold(flash, value_len as u32),
                        ),
                        (NewState::Cold(packed, 9_999), Stored::Cold(packed, 9_999)),
                    ];
                    for (state, expected) in states {
                        let record = Record::new(9, expiry, &key, state);
                        let view = record.view();
                        assert_eq!(view.key, key);
                        assert_eq!(view.kind, 9);
                        assert_eq!(view.expire_at_ms, expiry);
                        assert_eq!(view.stored, expected);
                        record.free();
                    }
                }
            }
        }
    }

    #[test]
    fn a_hot_value_is_taken_out_and_another_put_there_if_its_length_has_as_many_bytes() {
        for key_len in [0usize, 12, 300] {
            let key = vec![b'k'; key_len];
            for expiry in [0u64, 1_700_000_000_000, u64::MAX] {
                for (old_len, new_len, fits) in [
                    (200, 129, true),
                    (200, 16_383, true),
                    (16_383, 16_384, false),
                    (200, 128, false),
                    (200, 0, false),
                    (2_097_151, 20_000, true),
                ] {
                    let state = NewState::Hot(vec![7; old_len].into());
                    let mut record = Record::new(9, expiry, &key, state);
                    let size = record.parse().1;
                    let (kind, mut value) = record.take_hot().expect("it is hot");
                    assert_eq!((kind, value.len()), (9, old_len));
                    assert_eq!(record.view().stored, Stored::Hot(&[]));
                    assert_eq!(record.parse().1, size);
                    value.resize(new_len, 8);
                    let expected = value.clone();
                    match record.put_hot(10, value) {
                        Ok(()) => {
                            assert!(fits);
                            let view = record.view();
                            assert_eq!((view.kind, view.expire_at_ms), (10, expiry));
                            assert_eq!(view.stored, Stored::Hot(&expected));
                            assert_eq!((view.key, record.parse().1), (&key[..], size));
                        }
                        Err(value) => assert!(!fits && value == expected),
                    }
                    record.free();
                }
            }
        }
        let mut record = Record::new(9, 0, b"k", NewState::Inline(b"short"));
        assert!(record.take_hot().is_none());
        record.free();
    }

    #[test]
    fn every_state_can_follow_every_other() {
        let value = |len: usize| vec![7u8; len].into_boxed_slice();
        let states = || {
            let place = at(9, 512, false);
            let states: Vec<(NewState<'static>, usize)> = vec![
                (NewState::Inline(b""), 0),
                (NewState::Inline(&[3; 40]), 40),
                (NewState::Hot(value(200)), 200),
                (NewState::Hot(value(20_000)), 20_000),
                (NewState::Clean(value(512), place), 512),
                (NewState::Cold(place, 512), 512),
                (NewState::Cold(at((1 << 40) - 1, 3, true), 512), 512),
            ];
            states
        };
        for (old_expiry, new_expiry) in [(0, 0), (0, 5), (5, u64::MAX), (u64::MAX, 0)] {
            for from in 0..states().len() {
                for (to, to_len) in states() {
                    let (from, from_len) = states().swap_remove(from);
                    let old_boxed = matches!(from, NewState::Hot(_) | NewState::Clean(..));
                    let expected = std::mem::discriminant(&to);
                    let record = Record::new(1, old_expiry, b"memtier-00000001", from);
                    let address = record.0;
                    let (record, old) = record.change(2, new_expiry, to);
                    let from_cold = from_len == 512 && !old_boxed;
                    if old_expiry == new_expiry && from_cold && to_len == 200 {
                        assert_eq!(record.0, address, "a cold record turns hot where it is");
                    }
                    assert_eq!(old.map(|old| old.len()), old_boxed.then_some(from_len));
                    let view = record.view();
                    assert_eq!((view.kind, view.expire_at_ms), (2, new_expiry));
                    assert_eq!((view.key, view.value_len()), (&b"memtier-00000001"[..], to_len));
                    let is_cold = matches!(view.stored, Stored::Cold(..));
                    let cold = std::mem::discriminant(&NewState::Cold(at(0, 0, false), 0));
                    assert_eq!(is_cold, expected == cold);
                    record.free();
                }
            }
        }
    }

    #[test]
    fn a_place_changes_alone() {
        for expiry in [0, 7, u64::MAX] {
            let mut record = Record::new(3, expiry, b"key", NewState::Cold(at(5, 9, true), 90));
            record.set_place(1 << 39);
            let view = record.view();
            assert_eq!((view.kind, view.expire_at_ms, view.key), (3, expiry, &b"key"[..]));
            assert_eq!(view.stored, Stored::Cold(at(1 << 39, 9, true), 90));
            record.free();
        }
    }

    #[test]
    fn a_cold_key_of_16_bytes_takes_25_bytes() {
        let record = Record::new(0, 0, &[b'k'; 16], NewState::Cold(at(1, 512, false), 512));
        assert_eq!(record.parse().1, 25);
        let (_, record_bytes, value_bytes) = record.measure();
        assert_eq!((record_bytes, value_bytes), (32, 0));
        record.free();
    }

    #[test]
    fn edits_in_place_change_nothing_else() {
        let mut record = Record::new(1, 5, b"key", NewState::Inline(b"value"));
        record.set_kind(2);
        assert!(record.set_expiry_in_place(1 << 45));
        assert!(!record.set_expiry_in_place(1 << 48), "no room for a wide one");
        record.value_mut().expect("in RAM").copy_from_slice(b"other");
        let view = record.view();
        assert_eq!((view.kind, view.expire_at_ms, view.key), (2, 1 << 45, &b"key"[..]));
        assert_eq!(view.stored, Stored::Hot(b"other"));
        record.free();
    }
}
