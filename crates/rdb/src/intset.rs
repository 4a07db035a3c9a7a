//! Intsets: sets of integers.
//!
//! ```text
//! bytes of an integer (4): 2, 4 or 8; integers (4), integers in ascending order
//! ```
//!
//! The low byte comes first.

use crate::error::Error;
use crate::packed::signed;

const MALFORMED: Error = Error::Malformed("intset");

const HEAD_BYTES: usize = 8;

/// The integers of an intset.
///
/// Errors: it is none, told before the first, or where the order is broken.
pub(crate) fn integers(
    bytes: &[u8],
) -> Result<impl Iterator<Item = Result<i64, Error>> + '_, Error> {
    let (head, rest) = bytes.split_at_checked(HEAD_BYTES).ok_or(MALFORMED)?;
    let (width, count) = (signed(&head[..4]), signed(&head[4..]) as u32);
    if !matches!(width, 2 | 4 | 8) || rest.len() as u64 != width as u64 * u64::from(count) {
        return Err(MALFORMED);
    }
    let mut last = None;
    Ok(rest.chunks_exact(width as usize).map(move |chunk| {
        let number = signed(chunk);
        match last.replace(number) {
            Some(last) if last >= number => Err(MALFORMED),
            _ => Ok(number),
        }
    }))
}

/// Bytes of an intset of so many integers at most.
pub(crate) fn byte_len(integers: &[i64]) -> usize {
    HEAD_BYTES + integers.len() * width_of(integers)
}

fn width_of(integers: &[i64]) -> usize {
    let ends = || integers.first().into_iter().chain(integers.last());
    if ends().all(|&number| i16::try_from(number).is_ok()) {
        2
    } else if ends().all(|&number| i32::try_from(number).is_ok()) {
        4
    } else {
        8
    }
}

/// Appends an intset of integers in ascending order, less than 2^32 of them.
pub(crate) fn write(out: &mut Vec<u8>, integers: &[i64]) {
    let width = width_of(integers);
    out.extend((width as u32).to_le_bytes());
    out.extend((integers.len() as u32).to_le_bytes());
    integers.iter().for_each(|number| out.extend_from_slice(&number.to_le_bytes()[..width]));
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(bytes: &[u8]) -> Result<Vec<i64>, Error> {
        integers(bytes)?.collect()
    }

    #[test]
    fn only_ascending_integers_are_one() {
        assert_eq!(read(b"\x02\0\0\0\x02\0\0\0\xff\xff\x05\0"), Ok(vec![-1, 5]));
        for wrong in [
            &b"\x02\0\0\0\x02\0\0\0\x05\0\xff\xff"[..],
            b"\x02\0\0\0\x02\0\0\0\x05\0\x05\0",
            b"\x02\0\0\0\x03\0\0\0\xff\xff\x05\0",
            b"\x03\0\0\0\x01\0\0\0\x01\0\0",
            b"\x00\0\0\0\x00\0\0\0",
            b"\x02\0\0",
        ] {
            assert_eq!(read(wrong), Err(MALFORMED));
        }
    }

    proptest! {
        #[test]
        fn integers_come_back(
            integers in prop::collection::btree_set(
                prop_oneof![-40_000i64..40_000, any::<i64>(), -5_000_000_000i64..5_000_000_000], 0..50),
        ) {
            let integers: Vec<i64> = integers.into_iter().collect();
            let mut out = Vec::new();
            write(&mut out, &integers);
            prop_assert_eq!(out.len(), byte_len(&integers));
            prop_assert_eq!(read(&out), Ok(integers));
        }
    }
}
