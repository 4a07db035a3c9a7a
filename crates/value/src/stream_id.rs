//! The IDs of a stream's entries: a time in milliseconds and a sequence number.

use std::fmt;

/// Longest text that is looked at as an ID. Units: bytes.
const TEXT_BYTES_MAX: usize = 127;
/// Bytes of an ID as [`StreamId::to_bytes`] gives it.
pub const STREAM_ID_BYTES: usize = 16;

/// The ID of an entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId {
    /// Unix milliseconds, or what the client says.
    pub ms: u64,
    /// Which of the same millisecond.
    pub seq: u64,
}

impl StreamId {
    /// The smallest, which no entry has.
    pub const MIN: StreamId = StreamId { ms: 0, seq: 0 };
    /// The greatest.
    pub const MAX: StreamId = StreamId { ms: u64::MAX, seq: u64::MAX };

    /// The ID of these parts.
    pub const fn new(ms: u64, seq: u64) -> StreamId {
        StreamId { ms, seq }
    }

    /// The next one. None: it is the greatest.
    pub fn next(self) -> Option<StreamId> {
        match self.seq.checked_add(1) {
            Some(seq) => Some(StreamId { seq, ..self }),
            None => Some(StreamId { ms: self.ms.checked_add(1)?, seq: 0 }),
        }
    }

    /// The one before. None: it is the smallest.
    pub fn previous(self) -> Option<StreamId> {
        match self.seq.checked_sub(1) {
            Some(seq) => Some(StreamId { seq, ..self }),
            None => Some(StreamId { ms: self.ms.checked_sub(1)?, seq: u64::MAX }),
        }
    }

    /// As bytes that are in the order of IDs.
    pub fn to_bytes(self) -> [u8; STREAM_ID_BYTES] {
        let mut bytes = [0; STREAM_ID_BYTES];
        bytes[..8].copy_from_slice(&self.ms.to_be_bytes());
        bytes[8..].copy_from_slice(&self.seq.to_be_bytes());
        bytes
    }

    /// The ID in such bytes.
    pub fn from_bytes(bytes: [u8; STREAM_ID_BYTES]) -> StreamId {
        let both = u128::from_be_bytes(bytes);
        StreamId { ms: (both >> u64::BITS) as u64, seq: both as u64 }
    }

    /// The ID that a text names. `seq_missing` is the sequence number of one that has none; `-` and `+` are
    /// the smallest and the greatest ID. None: it is no ID.
    pub fn parse(text: &[u8], seq_missing: u64) -> Option<StreamId> {
        match text {
            b"-" => Some(StreamId::MIN),
            b"+" => Some(StreamId::MAX),
            _ => StreamId::parse_strict(text, seq_missing),
        }
    }

    /// The same without `-` and `+`.
    pub fn parse_strict(text: &[u8], seq_missing: u64) -> Option<StreamId> {
        match NewId::parse(text, seq_missing)? {
            NewId::Whole(id) => Some(id),
            NewId::Time(_) => None,
        }
    }
}

/// The ID that a client asks for a new entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NewId {
    /// This one.
    Whole(StreamId),
    /// One of this time, with the next sequence number: `<ms>-*`.
    Time(u64),
}

impl NewId {
    /// What a text names. None: it is no ID.
    pub fn parse(text: &[u8], seq_missing: u64) -> Option<NewId> {
        if text.len() > TEXT_BYTES_MAX {
            return None;
        }
        // As a string of C.
        let text = text.split(|&byte| byte == 0).next()?;
        let Some(dash) = text.iter().position(|&byte| byte == b'-') else {
            return Some(NewId::Whole(StreamId::new(parse_u64(text)?, seq_missing)));
        };
        let (ms, seq) = (&text[..dash], &text[dash + 1..]);
        let ms = parse_u64(ms)?;
        if seq == b"*" {
            return Some(NewId::Time(ms));
        }
        Some(NewId::Whole(StreamId::new(ms, parse_u64(seq)?)))
    }
}

/// A number as Redis takes one without a sign: what it prints, and whatever else `strtoull` takes: space in
/// front, a plus, zeros in front, and with such zeros a minus, which counts down from 2^64.
fn parse_u64(text: &[u8]) -> Option<u64> {
    if let Some(number) = crate::parse_i64(text) {
        return u64::try_from(number).ok();
    }
    let is_space = |byte: &u8| matches!(byte, b' ' | b'\t'..=b'\r');
    let start = text.iter().position(|byte| !is_space(byte))?;
    let (is_negative, digits) = match text[start] {
        b'-' => (true, &text[start + 1..]),
        b'+' => (false, &text[start + 1..]),
        _ => (false, &text[start..]),
    };
    if digits.is_empty() {
        return None;
    }
    let mut number = 0u64;
    for byte in digits {
        let digit = byte.is_ascii_digit().then(|| u64::from(byte - b'0'))?;
        number = number.checked_mul(10)?.checked_add(digit)?;
    }
    Some(if is_negative { number.wrapping_neg() } else { number })
}

impl fmt::Display for StreamId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.ms, self.seq)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_name_ids() {
        let max = u64::MAX;
        let cases: [(&str, Option<StreamId>); 22] = [
            ("0-0", Some(StreamId::MIN)),
            ("5-7", Some(StreamId::new(5, 7))),
            ("5", Some(StreamId::new(5, 9))),
            ("18446744073709551615-18446744073709551615", Some(StreamId::MAX)),
            ("18446744073709551616-0", None),
            ("-", Some(StreamId::MIN)),
            ("+", Some(StreamId::MAX)),
            ("", None),
            ("5-", None),
            ("-5", None),
            ("5-*", None),
            ("*", None),
            ("5-6-7", None),
            ("5-06", Some(StreamId::new(5, 6))),
            ("005-+6", Some(StreamId::new(5, 6))),
            (" 5-\t6", Some(StreamId::new(5, 6))),
            ("5 -6", None),
            ("5--6", None),
            ("5--06", Some(StreamId::new(5, max - 5))),
            ("5-6\0x", Some(StreamId::new(5, 6))),
            ("x-6", None),
            ("(5-6", None),
        ];
        for (text, expected) in cases {
            assert_eq!(StreamId::parse(text.as_bytes(), 9), expected, "{text:?}");
        }
        for text in ["-", "+", "5-*"] {
            assert_eq!(StreamId::parse_strict(text.as_bytes(), 0), None);
        }
        assert_eq!(NewId::parse(b"5-*", 0), Some(NewId::Time(5)));
        assert_eq!(StreamId::parse(&[b'0'; TEXT_BYTES_MAX], 0), Some(StreamId::MIN));
        assert_eq!(StreamId::parse(&[b'0'; TEXT_BYTES_MAX + 1], 0), None);
    }

    #[test]
    fn neighbours_and_order() {
        let ids = [
            StreamId::MIN,
            StreamId::new(0, 1),
            StreamId::new(0, u64::MAX),
            StreamId::new(1, 0),
            StreamId::new(1 << 40, 5),
            StreamId::MAX,
        ];
        for pair in ids.windows(2) {
            assert!(pair[0] < pair[1] && pair[0].to_bytes() < pair[1].to_bytes());
        }
        for id in ids {
            assert_eq!(StreamId::from_bytes(id.to_bytes()), id);
            assert_eq!(id.next().and_then(StreamId::previous).unwrap_or(StreamId::MAX), id);
        }
        assert_eq!(StreamId::new(0, u64::MAX).next(), Some(StreamId::new(1, 0)));
        assert_eq!((StreamId::MAX.next(), StreamId::MIN.previous()), (None, None));
    }
}
