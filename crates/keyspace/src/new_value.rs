//! New values, as a batch notes them for whoever decides when they leave RAM.

use crate::SLOT_COUNT;
use crate::key::{Hint, Key};
use crate::key_group::{GROUP_BITS, key_group};
use crate::slot::TABLE_COUNT;

/// A value of a key that did not exist before, in 16 bytes: queues of these hold millions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewValue {
    hash: u64,
    /// The bytes of the value, and below them the group of its key, the slot and the physical table.
    packed: u64,
}

const _: () = assert!(size_of::<NewValue>() == 16);
const TABLE_BITS: u32 = 5;
const SLOT_BITS: u32 = 14;
const GROUP_SHIFT: u32 = SLOT_BITS + TABLE_BITS;
const BYTES_SHIFT: u32 = GROUP_BITS + GROUP_SHIFT;
const _: () = assert!(TABLE_COUNT == 1 << TABLE_BITS && SLOT_COUNT == 1 << SLOT_BITS);

impl NewValue {
    /// Bytes of the longest value that is noted: a byte less than 16 MiB.
    const BYTES_MAX: usize = (1 << (u64::BITS - BYTES_SHIFT)) - 1;

    /// `None` if the value is longer than `BYTES_MAX`: it is left to the hand.
    #[inline]
    pub(crate) fn new(table: u8, key: &Key<'_>, bytes: usize) -> Option<NewValue> {
        (bytes <= NewValue::BYTES_MAX).then(|| NewValue {
            hash: key.hash,
            packed: (bytes as u64) << BYTES_SHIFT
                | u64::from(key_group(table, key)) << GROUP_SHIFT
                | u64::from(key.slot) << TABLE_BITS
                | u64::from(table),
        })
    }

    /// Bytes of the value, as the client counts them.
    pub fn bytes(&self) -> usize {
        (self.packed >> BYTES_SHIFT) as usize
    }

    /// The group of its key: keys that are numbered one after another have the same.
    pub fn group(&self) -> u32 {
        (self.packed >> GROUP_SHIFT) as u32 & ((1 << GROUP_BITS) - 1)
    }

    /// The hint to its key.
    pub fn hint(&self) -> Hint {
        Hint {
            table: self.packed as u8 & ((1 << TABLE_BITS) - 1),
            slot: (self.packed >> TABLE_BITS) as u16 & ((1 << SLOT_BITS) - 1),
            hash: self.hash,
            guess: None,
            kind: None,
            cold: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_noted_comes_back_whole() {
        let last_slot = (SLOT_COUNT - 1) as u16;
        for bytes in [0, 1, NewValue::BYTES_MAX] {
            for table in [0, 15, 16, TABLE_COUNT as u8 - 1] {
                for slot in [0, 1, last_slot] {
                    let key = Key::in_slot(b"user:1234567", slot);
                    let value = NewValue::new(table, &key, bytes).expect("short enough");
                    assert_eq!(value.bytes(), bytes);
                    assert_eq!(value.group(), key_group(table, &key));
                    let hint = value.hint();
                    assert_eq!((hint.table, hint.slot, hint.hash), (table, slot, key.hash));
                }
            }
        }
        assert_eq!(NewValue::new(0, &Key::new(b"key"), NewValue::BYTES_MAX + 1), None);
    }
}
