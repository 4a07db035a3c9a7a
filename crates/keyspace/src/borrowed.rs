//! The one bridge from entries to the records they own: a table lends a record for as long as it is
//! borrowed itself, so that none outlives its entry.

use std::marker::PhantomData;
use std::ops::Deref;

use crate::entry::Entry;
use crate::record::{DetachedBlock, Record, View};

/// A record that is looked at while its table keeps it.
pub(crate) struct Borrowed<'a>(Record, PhantomData<&'a Entry>);

impl<'a> Borrowed<'a> {
    /// The record of an entry.
    ///
    /// # Safety
    /// The entry stays in its table, and its record as it is, for all of `'a`.
    #[inline]
    pub(crate) unsafe fn new(entry: Entry) -> Borrowed<'a> {
        // SAFETY: the entry owns the record behind its address, see `own`; the caller lends it.
        Borrowed(unsafe { own(entry) }, PhantomData)
    }

    /// Takes the record apart.
    #[inline]
    pub(crate) fn into_view(self) -> View<'a> {
        // SAFETY: the parts lie in the record and in its value, which outlive the handle to it:
        // dropping a handle frees nothing, and the record stays for `'a` as `new` was promised.
        unsafe { std::mem::transmute::<View<'_>, View<'a>>(self.0.view()) }
    }

    /// The bytes of a value in RAM.
    #[inline]
    pub(crate) fn into_bytes(self) -> Option<&'a [u8]> {
        let bytes = self.0.bytes()?;
        // SAFETY: as in `into_view`.
        Some(unsafe { std::slice::from_raw_parts(bytes.as_ptr(), bytes.len()) })
    }
}

impl Deref for Borrowed<'_> {
    type Target = Record;
    #[inline]
    fn deref(&self) -> &Record {
        &self.0
    }
}

/// A record that is changed where it is. What changes its size or its place is left to
/// [`crate::table::Table`], whose entry changes with it.
pub(crate) struct BorrowedMut<'a>(Record, PhantomData<&'a mut Entry>);

impl<'a> BorrowedMut<'a> {
    /// The record of an entry.
    ///
    /// # Safety
    /// The entry stays in its table for all of `'a`, and nothing else reaches its record.
    #[inline]
    pub(crate) unsafe fn new(entry: Entry) -> BorrowedMut<'a> {
        // SAFETY: as in `Borrowed::new`.
        BorrowedMut(unsafe { own(entry) }, PhantomData)
    }

    /// The bytes of a value in RAM.
    #[inline]
    pub(crate) fn into_value(mut self) -> Option<&'a mut [u8]> {
        let value = self.0.value_mut()?;
        let (start, len) = (value.as_mut_ptr(), value.len());
        // SAFETY: the bytes outlive the handle, as in `Borrowed::into_view`, and the handle that
        // could have handed them out a second time is gone.
        Some(unsafe { std::slice::from_raw_parts_mut(start, len) })
    }

    /// Takes a hot value out ([`Record::take_hot`]).
    #[inline]
    pub(crate) fn take_hot(&mut self) -> Option<(u8, Vec<u8>)> {
        self.0.take_hot()
    }

    /// Puts another one there ([`Record::put_hot`]).
    #[inline]
    pub(crate) fn put_hot(&mut self, kind: u8, value: Vec<u8>) -> Result<(), Vec<u8>> {
        self.0.put_hot(kind, value)
    }

    #[inline]
    pub(crate) fn set_kind(&mut self, kind: u8) {
        self.0.set_kind(kind);
    }

    pub(crate) fn set_expiry_in_place(&mut self, expire_at_ms: u64) -> bool {
        self.0.set_expiry_in_place(expire_at_ms)
    }

    pub(crate) fn set_place(&mut self, to: u64) {
        self.0.set_place(to);
    }

    pub(crate) fn relocate_value(&mut self) -> Option<DetachedBlock> {
        self.0.relocate_value()
    }
}

impl Deref for BorrowedMut<'_> {
    type Target = Record;
    #[inline]
    fn deref(&self) -> &Record {
        &self.0
    }
}

/// The record of an entry, as its owner has it.
///
/// # Safety
/// The record has not been freed, and of all handles to it no more than one is used to change, move
/// or free it. An entry that has left its table has an owner's: its address came from `Entry::new`,
/// which took the record over.
#[inline]
pub(crate) unsafe fn own(entry: Entry) -> Record {
    // SAFETY: the caller's promise is the one that is asked for.
    unsafe { Record::from_address(entry.address()) }
}
