//! The longest common subsequence of two strings, with the choices among equals that Redis makes.
//!
//! The classic table has the length for every pair of prefixes; Redis fills it cell by cell and walks back
//! from the end. Where the last bytes differ, the walk shortens the first string if that loses less, otherwise
//! the second. Cells that stand side by side differ by one at most, so a row is kept as bits, and 64 cells
//! follow from those above by an addition (Crochemore, Iliopoulos, Pinzon and Reid 2001; Hyyro 2004). These
//! bits are the walk's choice as well. Two texts of 10 kB took some 650 ms cell by cell.
//!
//! Redis refuses strings whose table would exceed `proto-max-bulk-len`; so do we, since it bounds
//! the time as well: at 512 MiB the table has 134 million cells.

use std::ops::Range;

use thiserror::Error;

/// Bytes that a cell of the table counts for against the limit.
const CELL_BYTES: u64 = 4;

/// Columns of the table that are filled together: bits of a word.
const BLOCK_COLUMNS: usize = 64;
const BLOCK_BYTES: usize = BLOCK_COLUMNS / 8;

/// Redis's own bound on each string.
const STRING_BYTES_MAX: usize = u32::MAX as usize - 2;

/// Why there is no answer. `Display` is Redis's reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum LcsError {
    /// A string is too long.
    #[error("ERR String too long for LCS")]
    TooLong,
    /// Both together are.
    #[error("ERR Insufficient memory, transient memory for LCS exceeds proto-max-bulk-len")]
    TooMuchMemory,
}

/// A common subsequence.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lcs {
    /// Its bytes.
    pub text: Vec<u8>,
    /// The runs that it is made of, the last one first.
    pub matches: Vec<Match>,
}

/// A run of bytes that both strings have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Match {
    /// Where it starts in the first string.
    pub left_start: usize,
    /// Where it starts in the second string.
    pub right_start: usize,
    /// How many bytes it has, at least one.
    pub len: usize,
}

impl Match {
    /// The run in the first string.
    pub fn left(&self) -> Range<usize> {
        self.left_start..self.left_start + self.len
    }

    /// The run in the second string.
    pub fn right(&self) -> Range<usize> {
        self.right_start..self.right_start + self.len
    }
}

/// The length of the longest common subsequence.
///
/// Errors: [`LcsError`], if the table would take more than `bytes_max`.
/// Cost: a 64th of the product of the lengths in time, the length of the first string in memory.
pub fn length(left: &[u8], right: &[u8], bytes_max: u64) -> Result<usize, LcsError> {
    check((left.len(), right.len()), bytes_max)?;
    Ok(fill(left, right, |_, _| {}))
}

/// The longest common subsequence that Redis finds.
///
/// Errors: [`LcsError`], if the table would take more than `bytes_max`.
/// Cost: a 64th of the product of the lengths in time, and that of [`memory_bytes`].
pub fn find(left: &[u8], right: &[u8], bytes_max: u64) -> Result<Lcs, LcsError> {
    check((left.len(), right.len()), bytes_max)?;
    let mut table = Table::new(left.len(), right.len());
    let len = fill(left, right, |cell, grows| table.set(cell, grows));
    Ok(walk_back(left, right, &table, len))
}

/// Memory that [`find`] takes for strings so long, at most.
///
/// Errors: [`LcsError`], as [`find`] has it.
pub fn memory_bytes((left, right): (usize, usize), bytes_max: u64) -> Result<u64, LcsError> {
    check((left, right), bytes_max)?;
    // While the list of runs grows it is there twice, once with as much room again.
    let of_match = 1 + 3 * size_of::<Match>();
    let bytes = left + left * right.div_ceil(8) + left.min(right) * of_match;
    Ok(bytes as u64)
}

fn check((left, right): (usize, usize), bytes_max: u64) -> Result<(), LcsError> {
    if left > STRING_BYTES_MAX || right > STRING_BYTES_MAX {
        return Err(LcsError::TooLong);
    }
    // 32 bits times 32 bits times four.
    let bytes = (left as u128 + 1) * (right as u128 + 1) * u128::from(CELL_BYTES);
    if bytes > u128::from(bytes_max) { Err(LcsError::TooMuchMemory) } else { Ok(()) }
}

/// Fills the table, 64 columns at a time, and returns its last cell. `row_is` is told of each row, counted from
/// zero, and of the columns from one on, which of these cells are larger than the one before.
fn fill(left: &[u8], right: &[u8], mut row_is: impl FnMut((usize, usize), u64)) -> usize {
    let (mut len, mut carries) = (0, vec![false; left.len()]);
    for (block, bytes) in right.chunks(BLOCK_COLUMNS).enumerate() {
        let mut places = [0u64; 256];
        bytes.iter().enumerate().for_each(|(at, byte)| places[usize::from(*byte)] |= 1 << at);
        // The cells that are as large as the one before. All of the row above the first are zero.
        let mut same = u64::MAX;
        for (row, (byte, carry)) in left.iter().zip(&mut carries).enumerate() {
            let equal = places[usize::from(*byte)];
            let (sum, over) = same.overflowing_add(same & equal);
            let (sum, over_by_carry) = sum.overflowing_add(u64::from(*carry));
            *carry = over || over_by_carry;
            same = sum | (same & !equal);
            row_is((row, block * BLOCK_COLUMNS), !same);
        }
        len += (!same & (u64::MAX >> (BLOCK_COLUMNS - bytes.len()))).count_ones() as usize;
    }
    len
}

fn walk_back(left: &[u8], right: &[u8], table: &Table, len: usize) -> Lcs {
    let mut lcs = Lcs { text: Vec::with_capacity(len), matches: Vec::new() };
    let (mut row, mut column) = (left.len(), right.len());
    let mut in_match = false;
    while row > 0 && column > 0 {
        if left[row - 1] == right[column - 1] {
            row -= 1;
            column -= 1;
            lcs.text.push(left[row]);
            match lcs.matches.last_mut().filter(|_| in_match) {
                Some(run) => {
                    (run.left_start, run.right_start) = (row, column);
                    run.len += 1;
                }
                None => lcs.matches.push(Match { left_start: row, right_start: column, len: 1 }),
            }
            in_match = true;
        } else {
            in_match = false;
            if table.grows(row - 1, column - 1) {
                row -= 1;
            } else {
                column -= 1;
            }
        }
    }
    lcs.text.reverse();
    debug_assert_eq!(lcs.text.len(), len);
    lcs
}

/// A bit for each cell: whether it is larger than the one before. Where the bytes differ the cell above is, too,
/// then, so the first string is shortened.
struct Table {
    rows: usize,
    /// Bytes of a row.
    row_bytes: usize,
    /// The first 64 columns of all rows, the next ones of all rows, and so on; of the last ones as many bytes as
    /// there are columns for.
    bits: Vec<u8>,
}

impl Table {
    fn new(rows: usize, columns: usize) -> Table {
        let row_bytes = columns.div_ceil(8);
        Table { rows, row_bytes, bits: vec![0; rows * row_bytes] }
    }

    /// Where the bytes of a row lie that belong to the block of a column.
    fn range(&self, row: usize, column: usize) -> Range<usize> {
        let before = column / BLOCK_COLUMNS * BLOCK_BYTES;
        let len = (self.row_bytes - before).min(BLOCK_BYTES);
        let start = before * self.rows + row * len;
        start..start + len
    }

    fn set(&mut self, (row, column): (usize, usize), grows: u64) {
        let range = self.range(row, column);
        let len = range.len();
        self.bits[range].copy_from_slice(&grows.to_le_bytes()[..len]);
    }

    fn grows(&self, row: usize, column: usize) -> bool {
        let at = column % BLOCK_COLUMNS;
        self.bits[self.range(row, column)][at / 8] >> (at % 8) & 1 == 1
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const NO_LIMIT: u64 = u64::MAX;

    #[test]
    fn finds_what_redis_finds() {
        let lcs = find(b"ohmytext", b"mynewtext", NO_LIMIT).unwrap();
        assert_eq!(lcs.text, b"mytext");
        let ranges: Vec<_> = lcs.matches.iter().map(|run| (run.left(), run.right())).collect();
        assert_eq!(ranges, [(4..8, 5..9), (2..4, 0..2)]);
        for (left, right) in [("", ""), ("", "a"), ("a", ""), ("a", "b")] {
            assert_eq!(find(left.as_bytes(), right.as_bytes(), NO_LIMIT), Ok(Lcs::default()));
        }
    }

    #[test]
    fn refuses_what_would_take_too_long() {
        let (left, right) = ([0; 1023], [0; 1023]);
        assert_eq!(length(&left, &right, 4 << 20), Ok(1023));
        assert_eq!(length(&left, &right, (4 << 20) - 1), Err(LcsError::TooMuchMemory));
        assert_eq!(find(&left, &right, (4 << 20) - 1), Err(LcsError::TooMuchMemory));
    }

    /// By its definition, with the table that needs no thought: the subsequence, the walk of Redis back included.
    fn by_definition(left: &[u8], right: &[u8]) -> Vec<u8> {
        let mut table = vec![vec![0usize; right.len() + 1]; left.len() + 1];
        for row in 1..=left.len() {
            for column in 1..=right.len() {
                table[row][column] = if left[row - 1] == right[column - 1] {
                    table[row - 1][column - 1] + 1
                } else {
                    table[row - 1][column].max(table[row][column - 1])
                };
            }
        }
        let (mut row, mut column, mut text) = (left.len(), right.len(), Vec::new());
        while row > 0 && column > 0 {
            if left[row - 1] == right[column - 1] {
                (row, column) = (row - 1, column - 1);
                text.push(left[row]);
            } else if table[row - 1][column] > table[row][column - 1] {
                row -= 1;
            } else {
                column -= 1;
            }
        }
        text.reverse();
        text
    }

    #[test]
    fn takes_no_more_than_it_says() {
        for (left, right, bytes) in [(0, 0, 0), (10_000, 10_000, 13_240_000), (1 << 20, 1, 2 << 20)]
        {
            let said = memory_bytes((left, right), NO_LIMIT).unwrap();
            assert!((bytes..=bytes + (bytes >> 4)).contains(&said), "{left} by {right}: {said}");
        }
        assert_eq!(memory_bytes((1023, 1023), (4 << 20) - 1), Err(LcsError::TooMuchMemory));
    }

    proptest! {
        #[test]
        fn is_common_and_longest(left in "[abc]{0,200}", right in "[abc]{0,200}") {
            let (left, right) = (left.as_bytes(), right.as_bytes());
            let lcs = find(left, right, NO_LIMIT).unwrap();
            prop_assert_eq!(&lcs.text, &by_definition(left, right));
            prop_assert_eq!(length(left, right, NO_LIMIT), Ok(lcs.text.len()));
            let mut from_left = Vec::new();
            let mut from_right = Vec::new();
            for run in lcs.matches.iter().rev() {
                from_left.extend_from_slice(&left[run.left()]);
                from_right.extend_from_slice(&right[run.right()]);
            }
            prop_assert_eq!(&from_left, &lcs.text);
            prop_assert_eq!(&from_right, &lcs.text);
            for pair in lcs.matches.windows(2) {
                prop_assert!(pair[1].left().end <= pair[0].left_start);
                prop_assert!(pair[1].right().end <= pair[0].right_start);
            }
        }
    }
}
