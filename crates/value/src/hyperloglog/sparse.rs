//! Registers as runs of equal ones.
//!
//! Format: a sequence of opcodes that cover all registers in their order:
//!
//! ```text
//! 00nnnnnn            n+1 zeros
//! 01nnnnnn nnnnnnnn   n+1 zeros, the high bits first
//! 1vvvvvnn            n+1 registers of value v+1
//! ```
//!
//! Bytes that say something else come from SETRANGE and the like. They are read as Redis reads them, where
//! a zero stands behind the last byte.

use smallvec::SmallVec;

use super::{Corrupted, HEADER_BYTES, REGISTERS, Wish};

/// Bytes of an opcode at most.
pub(super) const OPCODE_BYTES_MAX: usize = 2;
const LONG_ZEROS_BIT: u8 = 0x40;
const VALUE_BIT: u8 = 0x80;
const SHORT_ZEROS_MAX: usize = 64;
const VALUE_MAX: u8 = 32;
const EQUAL_MAX: usize = 4;
/// Bytes of the opcodes that one is divided into: of a register, and of what is left on both sides.
const MADE_BYTES_MAX: usize = 2 * OPCODE_BYTES_MAX + 1;
/// Bytes that a sparse one grows by at most when a register is raised.
pub const RAISED_BYTES_MAX: usize = MADE_BYTES_MAX - 1;
/// Opcodes that are looked at for equal neighbours when one was divided.
const JOINED_MAX: usize = 5;

/// One opcode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opcode {
    /// 0 in runs of zeros.
    pub value: u8,
    /// Registers of this value.
    pub registers: usize,
    /// Whether it is a run of zeros of two bytes.
    pub is_long: bool,
}

impl Opcode {
    fn at(bytes: &[u8], at: usize) -> Opcode {
        let first = bytes[at];
        if first & VALUE_BIT != 0 {
            let (value, registers) = ((first >> 2 & 0x1f) + 1, (first & 3) as usize + 1);
            return Opcode { value, registers, is_long: false };
        }
        let low = (first & !LONG_ZEROS_BIT) as usize;
        if first & LONG_ZEROS_BIT == 0 {
            return Opcode { value: 0, registers: low + 1, is_long: false };
        }
        let second = bytes.get(at + 1).copied().unwrap_or_default();
        Opcode { value: 0, registers: (low << 8 | second as usize) + 1, is_long: true }
    }

    fn bytes(self) -> usize {
        1 + usize::from(self.is_long)
    }
}

/// Adds what covers so many registers of a value.
pub(super) fn push_run(bytes: &mut impl Extend<u8>, value: u8, registers: usize) {
    debug_assert!(registers <= if value > 0 { EQUAL_MAX } else { REGISTERS });
    let Some(more) = registers.checked_sub(1) else { return };
    if value > 0 {
        bytes.extend([VALUE_BIT | (value - 1) << 2 | more as u8]);
    } else if registers <= SHORT_ZEROS_MAX {
        bytes.extend([more as u8]);
    } else {
        bytes.extend([LONG_ZEROS_BIT | (more >> 8) as u8, more as u8]);
    }
}

/// The opcodes of a sparse one, in their order. One that covers more than all registers may have more
/// opcodes than are given: it is corrupted.
pub fn opcodes(bytes: &[u8]) -> impl Iterator<Item = Opcode> {
    let mut at = HEADER_BYTES;
    let next = move || {
        let opcode = (at < bytes.len()).then(|| Opcode::at(bytes, at))?;
        at += opcode.bytes();
        Some(opcode)
    };
    std::iter::from_fn(next).take(REGISTERS + 1)
}

/// Calls `run` with the first register, the value, and the number of registers of each opcode.
///
/// Errors: they do not cover all registers, or more.
pub(super) fn for_each_run(
    bytes: &[u8],
    run: &mut impl FnMut(usize, u8, usize),
) -> Result<(), Corrupted> {
    let mut first = 0;
    for opcode in opcodes(bytes) {
        if first + opcode.registers > REGISTERS {
            return Err(Corrupted);
        }
        run(first, opcode.value, opcode.registers);
        first += opcode.registers;
    }
    if first == REGISTERS { Ok(()) } else { Err(Corrupted) }
}

/// What became of a wish.
pub(super) enum Raised {
    /// The register has the value, or a greater one.
    No,
    /// It has been raised.
    Yes,
    /// It takes too many bytes, or a value that no opcode has.
    TooLong,
}

/// Grants a wish if that takes no more than `bytes_max` in all.
pub(super) fn raise(
    bytes: &mut Vec<u8>,
    wish: Wish,
    bytes_max: usize,
) -> Result<Raised, Corrupted> {
    let Wish { register, value } = wish;
    if value > VALUE_MAX {
        return Ok(Raised::TooLong);
    }
    let mut before = None;
    let (mut at, mut first) = (HEADER_BYTES, 0);
    let found = opcodes(bytes).find(|opcode| {
        let is_found = register < first + opcode.registers;
        if !is_found {
            before = Some(at);
            at += opcode.bytes();
            first += opcode.registers;
        }
        is_found
    });
    let opcode = found.ok_or(Corrupted)?;
    if opcode.value >= value {
        return Ok(Raised::No);
    }
    let mut made: SmallVec<[u8; MADE_BYTES_MAX]> = SmallVec::new();
    push_run(&mut made, opcode.value, register - first);
    push_run(&mut made, value, 1);
    push_run(&mut made, opcode.value, first + opcode.registers - 1 - register);
    let len = bytes.len() + made.len() - opcode.bytes();
    if len > bytes.len() && len > bytes_max {
        return Ok(Raised::TooLong);
    }
    let end = (at + opcode.bytes()).min(bytes.len());
    bytes.splice(at..end, made);
    // Of an opcode whose second byte was missing.
    bytes.truncate(len);
    join(bytes, before.unwrap_or(HEADER_BYTES));
    Ok(Raised::Yes)
}

/// Joins neighbours of the same value, from the opcode at `at` on.
fn join(bytes: &mut Vec<u8>, mut at: usize) {
    for _ in 0..JOINED_MAX {
        if at >= bytes.len() {
            return;
        }
        let left = Opcode::at(bytes, at);
        if left.value > 0 && at + 1 < bytes.len() {
            let right = Opcode::at(bytes, at + 1);
            let registers = left.registers + right.registers;
            if left.value == right.value && registers <= EQUAL_MAX {
                bytes.remove(at);
                bytes[at] = VALUE_BIT | (left.value - 1) << 2 | (registers - 1) as u8;
                continue;
            }
        }
        at += left.bytes();
    }
}
