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
        let mut bytes = [0u8; NAME_BYTES_MAX];
        bytes[..name.len()].copy_from_slice(name);
        bytes.make_ascii_uppercase();
        let (first, rest) = bytes.split_at(16);
        Some(Name(
            u128::from_le_bytes(first.try_into().expect("invariant: 16 bytes")),
            u64::from_le_bytes(rest.try_into().expect("invariant: 8 bytes")),
        ))
    }

    #[inline]
    fn hash(self) -> u64 {
        let second = ((self.0 >> 64) as u64) ^ self.1.rotate_left(17);
        let mixed = (self.0 as u64) ^ second.rotate_left(29);
        mixed.wrapping_mul(0x9E37_79B9_7F4A_7C15)
    }
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
