//! The label of a data file that is kept: whose it is, and what a journal refers to in it. 64 bytes, little endian:
//!
//! | offset | bytes | field |
//! |-------:|------:|-------|
//! | 0      | 8     | magic "KelvFlLb" |
//! | 8      | 4     | CRC32C of bytes 12 to 64 |
//! | 12     | 4     | version, 1 |
//! | 16     | 8     | flash: drawn when it was first kept, the same in the labels of all its files |
//! | 24     | 8     | number of a checkpoint: no older one can be loaded any more; 0: none was ever in place |
//! | 32     | 4     | which of the files of the flash |
//! | 36     | 4     | starts: how often it was opened |
//! | 40     | 8     | number of the newest checkpoint of which all was durable that it refers to |
//! | 48     | 16    | zero |

use crate::limits::PATHS_MAX;

pub(crate) const LABEL_BYTES: usize = 64;

const VERSION: u32 = 1;
const MAGIC: &[u8; 8] = b"KelvFlLb";
const CHECKSUM_AT: usize = 8;
const CHECKSUMMED_FROM: usize = 12;

/// What it says.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub(crate) struct Label {
    pub(crate) flash: u64,
    pub(crate) checkpoint: u64,
    pub(crate) file: u32,
    pub(crate) starts: u32,
    pub(crate) newest: u64,
}

impl Label {
    pub(crate) fn encode(&self) -> [u8; LABEL_BYTES] {
        let mut bytes = [0; LABEL_BYTES];
        bytes[..8].copy_from_slice(MAGIC);
        bytes[12..16].copy_from_slice(&VERSION.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.flash.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.checkpoint.to_le_bytes());
        bytes[32..36].copy_from_slice(&self.file.to_le_bytes());
        bytes[36..40].copy_from_slice(&self.starts.to_le_bytes());
        bytes[40..48].copy_from_slice(&self.newest.to_le_bytes());
        let checksum = crc_fast::crc32_iscsi(&bytes[CHECKSUMMED_FROM..]);
        bytes[CHECKSUM_AT..CHECKSUMMED_FROM].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    /// Errors: what is wrong with it.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Label, String> {
        let Ok(bytes) = <&[u8; LABEL_BYTES]>::try_from(bytes) else {
            return Err("it has another length".to_owned());
        };
        let word = |at: usize| u32::from_le_bytes(std::array::from_fn(|index| bytes[at + index]));
        let long = |at: usize| u64::from_le_bytes(std::array::from_fn(|index| bytes[at + index]));
        if &bytes[..8] != MAGIC {
            return Err("it does not begin as one".to_owned());
        }
        if crc_fast::crc32_iscsi(&bytes[CHECKSUMMED_FROM..]) != word(CHECKSUM_AT) {
            return Err("its checksum does not match".to_owned());
        }
        if word(12) != VERSION {
            return Err(format!("it is of version {}, and this Kelvin reads {VERSION}", word(12)));
        }
        let (flash, checkpoint, newest) = (long(16), long(24), long(40));
        let label = Label { flash, checkpoint, file: word(32), starts: word(36), newest };
        if label.file as usize >= PATHS_MAX {
            return Err("it is of an impossible file".to_owned());
        }
        Ok(label)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_label_comes_back_and_damage_is_seen() {
        let label =
            Label { flash: u64::MAX - 1, checkpoint: 7, file: 63, starts: 12, newest: u64::MAX };
        let mut bytes = label.encode();
        assert_eq!(Label::decode(&bytes), Ok(label));
        for at in 0..LABEL_BYTES {
            bytes[at] ^= 1;
            assert!(Label::decode(&bytes).is_err(), "byte {at}");
            bytes[at] ^= 1;
        }
        assert!(Label::decode(&bytes[1..]).is_err());
        let beyond = Label { file: 64, ..label };
        assert!(Label::decode(&beyond.encode()).is_err());
    }

    proptest! {
        #[test]
        fn no_bytes_panic(at in 0..LABEL_BYTES, byte: u8, len in 0..=LABEL_BYTES + 1) {
            let label = Label { flash: 1, checkpoint: 2, file: 3, starts: 4, newest: 5 };
            let mut bytes = [&label.encode()[..], &[0]].concat();
            bytes[at] = byte;
            let checksum = crc_fast::crc32_iscsi(&bytes[CHECKSUMMED_FROM..LABEL_BYTES]);
            bytes[CHECKSUM_AT..CHECKSUMMED_FROM].copy_from_slice(&checksum.to_le_bytes());
            bytes.truncate(len);
            let _ = Label::decode(&bytes);
        }
    }
}
