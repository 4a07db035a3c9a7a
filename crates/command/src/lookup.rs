//! The lookup from a command's name, in any case, to whatever a server keeps for it.

use crate::spec::Row;

/// Longest command name, `|` and what follows it left out: subcommands are not in a table.
const NAME_BYTES_MAX: usize = 24;

/// A command name in upper case, packed into integers: the first 16 bytes and the rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Name(u128, u64);

impl Name {
    /// Packs a name; none when it cannot be a command's: it is longer than any, or ends with a zero
    /// byte, which the padding of a shorter name would equal.
    #[inline]
    pub fn new(name: &[u8]) -> Option<Name> {
        if name.len() > NAME_BYTES_MAX || name.last() == Some(&0) {
            return None;
        }
        if name.len() <= 8 {
            return Some(Name(u128::from(upper_word(name)), 0));
        }
        let mut words = [0u64; 3];
        for (word, bytes) in words.iter_mut().zip(name.chunks(8)) {
            *word = upper_word(bytes);
        }
        Some(Name(u128::from(words[1]) << 64 | u128::from(words[0]), words[2]))
    }

    #[inline]
    fn hash(self) -> u64 {
        let second = ((self.0 >> 64) as u64) ^ self.1.rotate_left(17);
        let mixed = (self.0 as u64) ^ second.rotate_left(29);
        mixed.wrapping_mul(0x9E37_79B9_7F4A_7C15)
    }
}

/// Up to eight bytes as an integer, zeros behind them, ASCII letters in upper case.
#[inline]
fn upper_word(bytes: &[u8]) -> u64 {
    const ONES: u64 = u64::from_ne_bytes([1; 8]);
    let len = bytes.len();
    // Of fewer than a word the halves overlap: to move bytes one by one costs a call.
    let word = match (bytes.first_chunk::<8>(), bytes.first_chunk::<4>(), bytes.last_chunk::<4>()) {
        (Some(word), _, _) => u64::from_le_bytes(*word),
        (None, Some(first), Some(last)) => {
            let last = u64::from(u32::from_le_bytes(*last)) << (8 * (len - 4));
            u64::from(u32::from_le_bytes(*first)) | last
        }
        // Of one to three the first, the middle and the last are all.
        _ if len > 0 => [0, len / 2, len - 1]
            .into_iter()
            .fold(0, |word, at| word | u64::from(bytes[at]) << (8 * at)),
        _ => 0,
    };
    // The high bit of each byte that is a lower-case letter, moved to the bit that tells the cases apart.
    let low = word & (ONES * 0x7f);
    let from_a = low + ONES * (0x80 - b'a' as u64);
    let beyond_z = low + ONES * (0x7f - b'z' as u64);
    let lower = from_a & !beyond_z & !word & (ONES * 0x80);
    word ^ (lower >> 2)
}

/// Whether all these rows can stand in a table. It is asked when they are compiled.
pub const fn names_are_short_enough<F>(families: &[&[Row<F>]]) -> bool {
    let mut family = 0;
    while family < families.len() {
        let mut row = 0;
        while row < families[family].len() {
            if !is_short_enough(families[family][row].name) {
                return false;
            }
            row += 1;
        }
        family += 1;
    }
    true
}

const fn is_short_enough(name: &str) -> bool {
    let (name, mut len) = (name.as_bytes(), 0);
    while len < name.len() && name[len] != b'|' {
        len += 1;
    }
    len <= NAME_BYTES_MAX
}

/// An open-addressed table of names, at most a quarter full, built once. Cost of a lookup: one or
/// two cache lines.
pub struct CommandTable<T> {
    places: Box<[Option<(Name, T)>]>,
    shift: u32,
}

impl<T: Copy> CommandTable<T> {
    /// Builds the table. Panics: when a name stands in it twice or is too long.
    pub fn new(rows: impl IntoIterator<Item = (&'static str, T)>) -> Self {
        let rows: Vec<_> = rows.into_iter().collect();
        let size = (rows.len() * 4).next_power_of_two();
        let mut table = CommandTable {
            places: std::iter::repeat_n(None, size).collect(),
            shift: 64 - size.ilog2(),
        };
        for (text, row) in rows {
            let name = Name::new(text.as_bytes()).expect("invariant: command names are short");
            assert!(table.get(text.as_bytes()).is_none(), "{text} has two rows");
            let place = table.place(name);
            table.places[place] = Some((name, row));
        }
        table
    }

    /// The row of a name in any case.
    #[inline]
    pub fn get(&self, name: &[u8]) -> Option<T> {
        let place = self.place(Name::new(name)?);
        self.places[place].as_ref().map(|(_, row)| *row)
    }

    /// Where `name` is, or where it would go.
    #[inline]
    fn place(&self, name: Name) -> usize {
        let mut index = (name.hash() >> self.shift) as usize;
        while let Some((other, _)) = &self.places[index] {
            if *other == name {
                break;
            }
            index = (index + 1) & (self.places.len() - 1);
        }
        index
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_names_in_any_case_and_nothing_else() {
        let table = CommandTable::new([("GET", 1), ("SET", 2), ("BITFIELD_RO", 3)]);
        let cases: [(&[u8], Option<i32>); 11] = [
            (b"get", Some(1)),
            (b"get\0", None),
            (b"get\0\0", None),
            (b"ge\0t", None),
            (b"\0get", None),
            (b"sEt", Some(2)),
            (b"bitfield_ro", Some(3)),
            (b"", None),
            (b"gets", None),
            (b"a_name_longer_than_any_other", None),
            (b"\xff\x00", None),
        ];
        for (name, row) in cases {
            assert_eq!(table.get(name), row, "{name:?}");
        }
    }

    #[test]
    fn every_byte_of_every_length_is_made_upper_case_as_ascii_is() {
        for len in 1..=NAME_BYTES_MAX {
            for byte in 1..=u8::MAX {
                let name = vec![byte; len];
                let mut padded = name.to_ascii_uppercase();
                padded.resize(NAME_BYTES_MAX, 0);
                let word = |at: usize| {
                    u64::from_le_bytes(padded[at..at + 8].try_into().expect("eight bytes"))
                };
                let expected = Name(u128::from(word(8)) << 64 | u128::from(word(0)), word(16));
                assert_eq!(Name::new(&name), Some(expected), "{name:?}");
            }
        }
        assert_eq!(Name::new(b"g3t_ab"), Name::new(b"G3T_AB"));
    }

    #[test]
    fn only_the_name_of_a_command_is_bound() {
        for (name, fits) in [
            ("ZREVRANGEBYSCORE", true),
            ("GEORADIUSBYMEMBER_RO", true),
            ("A_NAME_LONGER_THAN_ANY_OTHER", false),
            ("LATENCY|HISTOGRAM-OF-ALL", true),
            ("A_NAME_LONGER_THAN_ANY_OTHER|HELP", false),
        ] {
            assert_eq!(is_short_enough(name), fits, "{name}");
        }
    }
}
