//! Opening and closing gaps in a byte string at several places with one pass over it.

use smallvec::SmallVec;

/// Where gaps are, in bytes of the string without them (opened) or with them (closed): place and length.
/// Places ascend.
pub(crate) type Gaps = SmallVec<[(usize, usize); 4]>;

/// Opens gaps in front of the given places. They hold arbitrary bytes; the `n`-th begins at its place plus
/// the lengths of those in front of it. Cost: a copy of what lies behind the first.
pub(crate) fn open(bytes: &mut Vec<u8>, gaps: &[(usize, usize)]) {
    let mut end = bytes.len();
    let mut shift: usize = gaps.iter().map(|(_, len)| len).sum();
    bytes.reserve_exact(shift);
    bytes.resize(end + shift, 0);
    for &(at, len) in gaps.iter().rev() {
        bytes.copy_within(at..end, at + shift);
        (end, shift) = (at, shift - len);
    }
}

/// Takes out what lies at the given places. Cost: a copy of what lies behind the first.
pub(crate) fn close(bytes: &mut Vec<u8>, gaps: &[(usize, usize)]) {
    let Some(&(mut to, _)) = gaps.first() else { return };
    let ends = gaps.iter().skip(1).map(|(at, _)| *at).chain([bytes.len()]);
    for (&(at, len), end) in gaps.iter().zip(ends) {
        bytes.copy_within(at + len..end, to);
        to += end - (at + len);
    }
    bytes.truncate(to);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A text, the gaps to open in it, and what it is with them.
    type Case = (&'static str, &'static [(usize, usize)], &'static str);

    #[test]
    fn gaps_open_and_close_where_they_should() {
        let cases: &[Case] = &[
            ("", &[(0, 2)], "__"),
            ("abc", &[], "abc"),
            ("abc", &[(0, 1)], "_abc"),
            ("abc", &[(3, 2)], "abc__"),
            ("abcdef", &[(1, 1), (3, 2), (6, 1)], "a_bc__def_"),
            ("abcdef", &[(2, 1), (2, 3)], "ab____cdef"),
            ("abcdef", &[(2, 0), (4, 1)], "abcd_ef"),
        ];
        for (text, gaps, expected) in cases {
            let mut bytes = text.as_bytes().to_vec();
            open(&mut bytes, gaps);
            let mut before = 0;
            let mut opened = Gaps::new();
            for (at, len) in *gaps {
                bytes[at + before..at + before + len].fill(b'_');
                opened.push((at + before, *len));
                before += len;
            }
            assert_eq!(bytes.escape_ascii().to_string(), *expected);
            close(&mut bytes, &opened);
            assert_eq!(bytes.escape_ascii().to_string(), *text);
        }
    }
}
