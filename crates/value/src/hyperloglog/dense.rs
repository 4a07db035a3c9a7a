//! Registers of six bits each, from the lowest bit of the first byte on.

use super::REGISTERS;

const BITS: usize = 6;
const MASK: u8 = (1 << BITS) - 1;
/// Bytes of all registers.
pub(super) const BYTES: usize = REGISTERS * BITS / 8;
/// Registers that begin and end with whole bytes.
const TOGETHER: usize = 4;
const TOGETHER_BYTES: usize = TOGETHER * BITS / 8;

/// The value of a register.
pub(super) fn get(registers: &[u8], register: usize) -> u8 {
    let (byte, shift) = place(register);
    let low = registers[byte] >> shift;
    let high = if shift > 8 - BITS { registers[byte + 1] << (8 - shift) } else { 0 };
    (low | high) & MASK
}

/// Sets a register.
pub(super) fn set(registers: &mut [u8], register: usize, value: u8) {
    let (byte, shift) = place(register);
    registers[byte] = registers[byte] & !(MASK << shift) | value << shift;
    if shift > 8 - BITS {
        let high = &mut registers[byte + 1];
        *high = *high & !(MASK >> (8 - shift)) | value >> (8 - shift);
    }
}

fn place(register: usize) -> (usize, usize) {
    (register * BITS / 8, register * BITS % 8)
}

/// All values, in their order.
pub(super) fn values(registers: &[u8]) -> impl Iterator<Item = u8> {
    let (groups, _) = registers.as_chunks::<TOGETHER_BYTES>();
    groups.iter().flat_map(|group| {
        let word = u32::from_le_bytes([group[0], group[1], group[2], 0]);
        (0..TOGETHER).map(move |index| (word >> (index * BITS)) as u8 & MASK)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn registers_do_not_touch_each_other() {
        let mut registers = vec![0; BYTES];
        let mut model = vec![0u8; REGISTERS];
        for round in 0..3usize {
            for (register, value) in model.iter_mut().enumerate() {
                *value = (register * 31 + round * 17) as u8 % 64;
                set(&mut registers, register, *value);
            }
            assert!(values(&registers).eq(model.iter().copied()));
            assert!((0..REGISTERS).all(|register| get(&registers, register) == model[register]));
        }
    }
}
