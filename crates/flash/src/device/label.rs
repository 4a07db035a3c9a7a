//! The label of a data file that is kept: whose it is, and what a journal refers to in it. 64 bytes, little endian:
//!
//! | offset | bytes | field |
//! |-------:|------:|-------|
//! | 0      | 8     | magic "KelvFlLb" |
//! | 8      | 4     | CRC32C of bytes 12 to 64 |
//! | 12     | 4     | version, 1 |
//! | 16     | 8     | flash: drawn when it was first kept, the same in the labels of all its files |
//! | 24     | 8     | number of a checkpoint: no older one can be loaded any more; 0: none was seen in place |
//! | 32     | 4     | which of the files of the flash |
//! | 36     | 4     | starts: how often it was opened |
//! | 40     | 8     | number of the newest checkpoint of which all was durable that it refers to; 0: there was none |
//! | 48     | 8     | journal of these checkpoints |
//! | 56     | 8     | position in it of the checkpoint at 24; 0 without one |

use crate::journal::JournalMark;
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
    pub(crate) journal: u64,
    pub(crate) position: u64,
}

impl Label {
    /// Whether a start may find a checkpoint that refers to what is in the file. `without`: a journal whose last checkpoint
    /// refers to nothing on flash. It is the one that the file was kept for, and has gone on since, or was never seen to
    /// refer to anything.
    pub(crate) fn is_needed(&self, without: Option<JournalMark>) -> bool {
        let is_over = |mark: JournalMark| {
            mark.journal == self.journal
                && (self.checkpoint == 0 || mark.checkpoint.0 > self.position)
        };
        self.newest > 0 && !without.is_some_and(is_over)
    }

    pub(crate) fn encode(&self) -> [u8; LABEL_BYTES] {
        let mut bytes = [0; LABEL_BYTES];
        bytes[..8].copy_from_slice(MAGIC);
        bytes[12..16].copy_from_slice(&VERSION.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.flash.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.checkpoint.to_le_bytes());
        bytes[32..36].copy_from_slice(&self.file.to_le_bytes());
        bytes[36..40].copy_from_slice(&self.starts.to_le_bytes());
        bytes[40..48].copy_from_slice(&self.newest.to_le_bytes());
        bytes[48..56].copy_from_slice(&self.journal.to_le_bytes());
        bytes[56..64].copy_from_slice(&self.position.to_le_bytes());
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
        let label = Label {
            flash: long(16),
            checkpoint: long(24),
            file: word(32),
            starts: word(36),
            newest: long(40),
            journal: long(48),
            position: long(56),
        };
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
    use crate::journal::Position;

    #[test]
    fn a_label_comes_back_and_damage_is_seen() {
        let label = Label {
            flash: u64::MAX - 1,
            checkpoint: 7,
            file: 63,
            starts: 12,
            newest: u64::MAX,
            journal: 1 << 63 | 5,
            position: 1 << 40,
        };
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

    #[test]
    fn a_file_is_needed_unless_its_journal_has_gone_on_without_it() {
        let label = |checkpoint, newest| {
            let position = checkpoint * 100;
            Label { flash: 1, checkpoint, file: 0, starts: 1, newest, journal: 5, position }
        };
        let mark = |journal, at| Some(JournalMark { journal, checkpoint: Position(at) });
        for (checkpoint, newest, without, is_needed) in [
            // No checkpoint has ever come so far that it could be put in place.
            (0, 0, None, false),
            (0, 0, mark(6, 50), false),
            // One has, and nobody has seen whether it was.
            (0, 1, None, true),
            (0, 1, mark(6, 50), true),
            (0, 1, mark(5, 0), false),
            (0, 1, mark(5, 50), false),
            (7, 8, None, true),
            (7, 8, mark(6, 701), true),
            // A copy that was made before, and the very checkpoint whose state is missing.
            (7, 8, mark(5, 0), true),
            (7, 8, mark(5, 699), true),
            (7, 8, mark(5, 700), true),
            (7, 8, mark(5, 701), false),
        ] {
            let found = label(checkpoint, newest).is_needed(without);
            assert_eq!(found, is_needed, "{checkpoint} {newest} {without:?}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_panic(at in 0..LABEL_BYTES, byte: u8, len in 0..=LABEL_BYTES + 1) {
            let label = Label {
                flash: 1, checkpoint: 2, file: 3, starts: 4, newest: 5, journal: 6, position: 7,
            };
            let mut bytes = [&label.encode()[..], &[0]].concat();
            bytes[at] = byte;
            let checksum = crc_fast::crc32_iscsi(&bytes[CHECKSUMMED_FROM..LABEL_BYTES]);
            bytes[CHECKSUM_AT..CHECKSUMMED_FROM].copy_from_slice(&checksum.to_le_bytes());
            bytes.truncate(len);
            let _ = Label::decode(&bytes);
        }
    }
}
