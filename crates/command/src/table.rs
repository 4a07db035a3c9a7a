//! The lookup from a command's name, in any case, to whatever a server keeps for it.

/// Longest command name.
const NAME_BYTES_MAX: usize = 16;

/// A command name in upper case, packed into an integer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Name(u128);

impl Name {
    /// Packs a name; none when it is longer than any command's.
    #[inline]
    pub fn new(name: &[u8]) -> Option<Name> {
        if name.len() > NAME_BYTES_MAX {
            return None;
        }
        let mut bytes = [0u8; NAME_BYTES_MAX];
        bytes[..name.len()].copy_from_slice(name);
        bytes.make_ascii_uppercase();
        Some(Name(u128::from_le_bytes(bytes)))
    }

    #[inline]
    fn hash(self) -> u64 {
        let mixed = (self.0 as u64) ^ ((self.0 >> 64) as u64).rotate_left(29);
        mixed.wrapping_mul(0x9E37_79B9_7F4A_7C15)
    }
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
        let cases: [(&[u8], Option<i32>); 7] = [
            (b"get", Some(1)),
            (b"sEt", Some(2)),
            (b"bitfield_ro", Some(3)),
            (b"", None),
            (b"gets", None),
            (b"a_name_longer_than_any", None),
            (b"\xff\x00", None),
        ];
        for (name, row) in cases {
            assert_eq!(table.get(name), row, "{name:?}");
        }
    }
}
