//! Strings that may be HyperLogLogs, since clients can write any: corrupted, or registers that are the same sparse and
//! dense, and rise as they should.

#![no_main]

use libfuzzer_sys::fuzz_target;
use value::hyperloglog::{
    DENSE_BYTES, Encoding, REGISTERS, Union, Wish, cached_cardinality, cardinality, dense_of,
    dense_registers, encoding, make_dense, opcodes, raise,
};

const HEADER: &[u8] = b"HYLL\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x80";

fuzz_target!(|input: &[u8]| {
    let Some((&choice, rest)) = input.split_first() else { return };
    let (elements, rest) = rest.split_at(usize::from(choice >> 3).min(rest.len()));
    let bytes = match choice % 4 {
        0 => rest.to_vec(),
        1 => {
            let mut bytes = [HEADER, rest].concat();
            bytes[4] = 0;
            bytes.resize(DENSE_BYTES, choice);
            bytes
        }
        2 => [HEADER, rest].concat(),
        // Runs of the input, and zeros up to the last register.
        _ => filled(rest),
    };
    let Some(form) = encoding(&bytes) else { return };
    let _ = cached_cardinality(&bytes);
    let counted = cardinality(&bytes);
    let mut union = Union::default();
    assert_eq!(union.add(&bytes).is_ok(), counted.is_ok());
    let mut dense = bytes.clone();
    assert_eq!(make_dense(&mut dense).is_ok(), counted.is_ok());
    if let Ok(counted) = counted {
        assert_eq!(union.cardinality(), counted);
        assert_eq!(cardinality(&dense), Ok(counted));
        if form == Encoding::Sparse {
            assert_eq!(dense_of(&bytes).as_ref(), Ok(&dense));
            let registers: usize = opcodes(&bytes).map(|opcode| opcode.registers).sum();
            assert_eq!(registers, REGISTERS);
        }
    }
    // Of an opcode without its second byte Redis makes something that is corrupted, and so must we.
    let opcode_bytes: usize = opcodes(&bytes).map(|opcode| 1 + usize::from(opcode.is_long)).sum();
    let is_whole = form == Encoding::Dense || HEADER.len() + opcode_bytes == bytes.len();
    raise_all(bytes, dense, elements, counted.is_ok() && is_whole);
});

fn filled(runs: &[u8]) -> Vec<u8> {
    let mut bytes = HEADER.to_vec();
    let mut left = REGISTERS;
    for run in runs.chunks(2) {
        let mut more = HEADER.to_vec();
        more.extend_from_slice(run);
        let covered: usize = opcodes(&more).map(|opcode| opcode.registers).sum();
        if covered > left {
            break;
        }
        bytes.extend_from_slice(run);
        if run[0] & 0xc0 == 0x40 && run.len() == 1 {
            bytes.push(0);
        }
        left -= covered;
    }
    if let Some(more) = left.checked_sub(1) {
        bytes.extend([0x40 | (more >> 8) as u8, more as u8]);
    }
    bytes
}

/// Adds elements, and compares with the dense form, if what is there makes sense.
fn raise_all(mut bytes: Vec<u8>, mut dense: Vec<u8>, elements: &[u8], makes_sense: bool) {
    let sparse_bytes_max = 16 + usize::from(elements.first().copied().unwrap_or(40)) * 4;
    for element in elements.chunks(3) {
        let wish = Wish::of(element);
        let before = bytes.len();
        let raised = raise(&mut bytes, wish, sparse_bytes_max);
        assert!(bytes.len() <= before.max(sparse_bytes_max).max(DENSE_BYTES));
        if !makes_sense {
            continue;
        }
        let expected = raise(&mut dense, wish, 0).expect("a dense one");
        assert_eq!(raised, Ok(expected));
        let mut now = bytes.clone();
        make_dense(&mut now).expect("it made sense before");
        assert!(dense_registers(&now).eq(dense_registers(&dense)));
    }
}
