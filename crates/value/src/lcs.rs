//! The longest common subsequence of two strings, with the choices among equals that Redis makes.
//!
//! The classic table: the length for every pair of prefixes, filled row by row, then walked back
//! from the end. Where the last bytes differ, the walk shortens the first string if that loses
//! less, otherwise the second. Only that choice is kept of a cell, one bit, so the walk needs a
//! thirty-second of Redis's memory, and the length alone needs two rows.
//!
//! Redis refuses strings whose table would exceed `proto-max-bulk-len`; so do we, since it bounds
//! the time as well: at 512 MiB the table has 134 million cells.

use std::ops::Range;

use thiserror::Error;

/// Bytes that a cell of the table counts for against the limit.
const CELL_BYTES: u64 = 4;

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
/// Cost: the product of the lengths in time, the length of the second string in memory.
pub fn length(left: &[u8], right: &[u8], bytes_max: u64) -> Result<usize, LcsError> {
    check(left, right, bytes_max)?;
    Ok(fill(left, right, |_, _| {}))
}

/// The longest common subsequence that Redis finds.
///
/// Errors: [`LcsError`], if the table would take more than `bytes_max`.
/// Cost: the product of the lengths, in time and in bits.
pub fn find(left: &[u8], right: &[u8], bytes_max: u64) -> Result<Lcs, LcsError> {
    check(left, right, bytes_max)?;
    let mut choices = Choices::new(left.len(), right.len());
    let len = fill(left, right, |row, column| choices.set(row, column));
    Ok(walk_back(left, right, &choices, len))
}

fn check(left: &[u8], right: &[u8], bytes_max: u64) -> Result<(), LcsError> {
    if left.len() > STRING_BYTES_MAX || right.len() > STRING_BYTES_MAX {
        return Err(LcsError::TooLong);
    }
    // 32 bits times 32 bits times four.
    let bytes = (left.len() as u128 + 1) * (right.len() as u128 + 1) * u128::from(CELL_BYTES);
    if bytes > u128::from(bytes_max) { Err(LcsError::TooMuchMemory) } else { Ok(()) }
}

/// Fills the table and returns its last cell. `shorten_left` is told each cell, counted from zero,
/// where the bytes differ and the cell above is larger than the one before.
fn fill(left: &[u8], right: &[u8], mut shorten_left: impl FnMut(usize, usize)) -> usize {
    // The row above, without its first cell, which is zero as in all rows.
    let mut above = vec![0u32; right.len()];
    for (row, left_byte) in left.iter().enumerate() {
        let (mut diagonal, mut before) = (0, 0);
        for (column, (cell, right_byte)) in above.iter_mut().zip(right).enumerate() {
            let value = if left_byte == right_byte {
                diagonal + 1
            } else {
                if *cell > before {
                    shorten_left(row, column);
                }
                before.max(*cell)
            };
            diagonal = std::mem::replace(cell, value);
            before = value;
        }
    }
    above.last().map_or(0, |len| *len as usize)
}

fn walk_back(left: &[u8], right: &[u8], choices: &Choices, len: usize) -> Lcs {
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
            if choices.get(row - 1, column - 1) {
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

/// A bit for each cell: whether to shorten the first string there.
struct Choices {
    columns: usize,
    words: Vec<u64>,
}

impl Choices {
    fn new(rows: usize, columns: usize) -> Self {
        Self { columns, words: vec![0; (rows * columns).div_ceil(64)] }
    }

    fn set(&mut self, row: usize, column: usize) {
        let index = row * self.columns + column;
        self.words[index / 64] |= 1 << (index % 64);
    }

    fn get(&self, row: usize, column: usize) -> bool {
        let index = row * self.columns + column;
        self.words[index / 64] >> (index % 64) & 1 == 1
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

    /// The length by its definition, with the table that needs no thought.
    fn length_by_definition(left: &[u8], right: &[u8]) -> usize {
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
        table[left.len()][right.len()]
    }

    proptest! {
        #[test]
        fn is_common_and_longest(left in "[abc]{0,30}", right in "[abc]{0,30}") {
            let (left, right) = (left.as_bytes(), right.as_bytes());
            let lcs = find(left, right, NO_LIMIT).unwrap();
            prop_assert_eq!(lcs.text.len(), length_by_definition(left, right));
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
