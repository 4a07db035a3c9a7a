//! The output buffer that commands write their replies to, in either version of the protocol.
//!
//! Invariants:
//! 1. Bytes are only appended; [`Reply::truncate`] takes back a reply that was begun and could
//!    not be finished.
//! 2. A command writes the same calls for both versions: types that RESP2 lacks fall back to
//!    what Redis sends there (a map is an array of twice the length, null is `$-1`, ...).
//! 3. Simple strings and errors stay on one line whatever they are made of.
//! 4. Gaps, where the bytes of bulks are still to come, are in ascending order, each in front of a line
//!    end. The reply is not read before they are filled.

use std::mem::MaybeUninit;

use crate::{DoubleText, ProtocolError};

/// The version of the protocol that a connection has chosen with HELLO.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Protocol {
    /// Strings, errors, integers, bulks and arrays.
    #[default]
    Resp2,
    /// With maps, sets, doubles, booleans, null, big numbers, attributes and pushes.
    Resp3,
}

/// An output buffer.
#[derive(Debug, Default)]
pub struct Reply {
    buffer: Vec<u8>,
    protocol: Protocol,
    gaps: Vec<Gap>,
    /// Bytes that the gaps lack.
    gap_bytes: usize,
    filling: Option<Filling>,
}

/// Where the bytes of a bulk are still to come.
#[derive(Debug)]
struct Gap {
    /// Its place in the buffer.
    at: usize,
    /// Bytes that it lacks: the first ones of the value.
    len: usize,
    /// Which value it is, to whoever fills it.
    source: u32,
}

/// How far gaps have been filled, from the last one on.
#[derive(Clone, Copy, Debug)]
struct Filling {
    /// Length of the reply without gaps.
    full_len: usize,
    /// What lies in front is where it was written.
    thin_end: usize,
    /// What lies from here on is where it belongs.
    full_from: usize,
}

impl Reply {
    /// An empty buffer.
    pub fn new(protocol: Protocol) -> Self {
        Self { protocol, ..Self::default() }
    }

    /// The version that replies are written in.
    #[inline]
    pub fn protocol(&self) -> Protocol {
        self.protocol
    }

    /// Changes the version for the replies to come.
    pub fn set_protocol(&mut self, protocol: Protocol) {
        self.protocol = protocol;
    }

    /// `+text`. Line ends become spaces.
    pub fn simple(&mut self, text: &str) {
        self.line(b'+', text.as_bytes());
    }

    /// `+OK`.
    #[inline]
    pub fn ok(&mut self) {
        self.buffer.extend_from_slice(b"+OK\r\n");
    }

    /// `+QUEUED`.
    #[inline]
    pub fn queued(&mut self) {
        self.buffer.extend_from_slice(b"+QUEUED\r\n");
    }

    /// `-text`: the whole text with its code, such as `ERR syntax error`. Line ends become
    /// spaces, since a client's own bytes may be quoted in it.
    pub fn error(&mut self, text: impl AsRef<[u8]>) {
        self.line(b'-', text.as_ref());
    }

    /// The last reply of a connection that did not keep to the protocol.
    pub fn protocol_error(&mut self, error: &ProtocolError) {
        let mut text = b"ERR ".to_vec();
        text.extend_from_slice(&error.to_bytes());
        self.error(text);
    }

    /// `:number`.
    #[inline]
    pub fn integer(&mut self, number: i64) {
        if let 0..=9 = number {
            self.buffer.extend_from_slice(&[b':', b'0' + number as u8, b'\r', b'\n']);
            return;
        }
        self.buffer.push(b':');
        self.buffer.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
        self.buffer.extend_from_slice(b"\r\n");
    }

    /// `$length` and the bytes.
    #[inline]
    pub fn bulk(&mut self, bytes: &[u8]) {
        let wanted = bytes.len() + HEADER_BYTES_MAX + 2;
        if wanted > self.buffer.capacity() - self.buffer.len() {
            self.grow(wanted);
        }
        self.header(b'$', bytes.len());
        self.buffer.extend_from_slice(bytes);
        self.buffer.extend_from_slice(b"\r\n");
    }

    /// `$length`, and a gap for the bytes, which [`Reply::fill`] brings: where a reply is large, they need
    /// not be copied while slots are locked.
    pub fn bulk_later(&mut self, len: usize, source: u32) {
        self.header(b'$', len);
        self.gaps.push(Gap { at: self.buffer.len(), len, source });
        self.gap_bytes += len;
        self.buffer.extend_from_slice(b"\r\n");
    }

    /// Whether there are gaps to fill before the reply can be read.
    #[inline]
    pub fn has_gaps(&self) -> bool {
        !self.gaps.is_empty()
    }

    /// Fills gaps with the values of their sources, as far as `bytes_max` goes. To be called until
    /// [`Reply::has_gaps`] says that none is left, with nothing else done to the reply meanwhile.
    pub fn fill<'v>(&mut self, bytes_max: usize, value: impl Fn(u32) -> &'v [u8]) {
        let thin_end = self.buffer.len();
        let full_len = thin_end + self.gap_bytes;
        let mut filling =
            self.filling.unwrap_or(Filling { full_len, thin_end, full_from: full_len });
        let lacking = filling.full_len - self.buffer.len();
        if lacking > 0 {
            self.buffer.reserve_exact(lacking);
            self.buffer.resize(self.buffer.len() + lacking.min(bytes_max), 0);
        } else {
            self.fill_from_end(&mut filling, bytes_max, value);
        }
        self.filling = self.has_gaps().then_some(filling);
        if self.filling.is_none() {
            self.gaps = Vec::new();
        }
    }

    /// Moves what follows each gap to where it belongs, and brings the value in front of it.
    fn fill_from_end<'v>(
        &mut self,
        filling: &mut Filling,
        mut bytes_max: usize,
        value: impl Fn(u32) -> &'v [u8],
    ) {
        while let Some(gap) = self.gaps.last_mut()
            && bytes_max > 0
        {
            let moved = (filling.thin_end - gap.at).min(bytes_max);
            let source = filling.thin_end - moved..filling.thin_end;
            filling.thin_end -= moved;
            filling.full_from -= moved;
            self.buffer.copy_within(source, filling.full_from);
            bytes_max -= moved;
            if filling.thin_end > gap.at {
                return;
            }
            let brought = gap.len.min(bytes_max);
            let piece = &value(gap.source)[gap.len - brought..gap.len];
            let end = filling.full_from;
            filling.full_from -= brought;
            self.buffer[filling.full_from..end].copy_from_slice(piece);
            gap.len -= brought;
            self.gap_bytes -= brought;
            bytes_max -= brought;
            if gap.len == 0 {
                self.gaps.pop();
            }
        }
        assert_eq!(filling.full_from - filling.thin_end, self.gap_bytes);
    }

    /// Makes room for so many bytes more: no more than that for a value that is large beside what is
    /// there, and a quarter of what is there for a small one behind much.
    #[cold]
    fn grow(&mut self, wanted: usize) {
        let len = self.buffer.len();
        let ahead = if len > LARGE_REPLY_BYTES_MIN { len / 4 } else { len };
        self.buffer.reserve_exact(wanted.max(ahead));
    }

    /// Makes room for so many bytes more at once: to grow to a large size step by step leaves pages of
    /// smaller buffers behind, which take twice as much for a moment.
    pub fn reserve(&mut self, bytes: usize) {
        self.buffer.reserve_exact(bytes);
    }

    /// Gives back what is allocated beyond what it holds and `bytes`.
    pub fn shrink_to(&mut self, bytes: usize) {
        self.buffer.shrink_to(bytes);
    }

    /// What is allocated and holds nothing yet.
    pub fn spare(&mut self) -> &mut [MaybeUninit<u8>] {
        self.buffer.spare_capacity_mut()
    }

    /// A bulk of `len` zeros for the caller to overwrite, so that a value that lies in pieces
    /// needs no copy of its own.
    pub fn reserve_bulk(&mut self, len: usize) -> &mut [u8] {
        self.buffer.reserve(len + HEADER_BYTES_MAX + 2);
        self.header(b'$', len);
        let start = self.buffer.len();
        self.buffer.resize(start + len, 0);
        self.buffer.extend_from_slice(b"\r\n");
        &mut self.buffer[start..start + len]
    }

    /// An integer as a bulk, as in the items of HGETALL.
    pub fn bulk_integer(&mut self, number: i64) {
        self.bulk(itoa::Buffer::new().format(number).as_bytes());
    }

    /// A double as a bulk, whatever the version.
    pub fn bulk_double(&mut self, number: f64) {
        self.bulk(DoubleText::new(number).as_bytes());
    }

    /// No value: `$-1`, or `_` in RESP3.
    #[inline]
    pub fn null(&mut self) {
        match self.protocol {
            Protocol::Resp2 => self.buffer.extend_from_slice(b"$-1\r\n"),
            Protocol::Resp3 => self.buffer.extend_from_slice(b"_\r\n"),
        }
    }

    /// No value where an array was expected: `*-1`, or `_` in RESP3.
    pub fn null_array(&mut self) {
        match self.protocol {
            Protocol::Resp2 => self.buffer.extend_from_slice(b"*-1\r\n"),
            Protocol::Resp3 => self.buffer.extend_from_slice(b"_\r\n"),
        }
    }

    /// The header of an array; `len` replies follow.
    #[inline]
    pub fn array(&mut self, len: usize) {
        self.header(b'*', len);
    }

    /// The header of a map; `pairs` times a key and a value follow.
    pub fn map(&mut self, pairs: usize) {
        match self.protocol {
            Protocol::Resp2 => self.header(b'*', 2 * pairs),
            Protocol::Resp3 => self.header(b'%', pairs),
        }
    }

    /// The header of an array in front of what was written from `start` on, its `len` elements: for when
    /// their number is known behind them. Panics: there are gaps among them.
    pub fn array_from(&mut self, start: usize, len: usize) {
        self.header_from(start, |reply| reply.array(len));
    }

    /// The same for a map of `pairs` keys and values.
    pub fn map_from(&mut self, start: usize, pairs: usize) {
        self.header_from(start, |reply| reply.map(pairs));
    }

    /// What `write` writes, in front of what was written from `start` on. Panics: there are gaps in that.
    pub fn header_from(&mut self, start: usize, write: impl FnOnce(&mut Reply)) {
        assert!(self.gaps.last().is_none_or(|gap| gap.at < start));
        let end = self.buffer.len();
        write(self);
        let header_len = self.buffer.len() - end;
        self.buffer[start..].rotate_right(header_len);
    }

    /// The header of a set; `len` replies follow.
    pub fn set(&mut self, len: usize) {
        match self.protocol {
            Protocol::Resp2 => self.header(b'*', len),
            Protocol::Resp3 => self.header(b'~', len),
        }
    }

    /// The header of a message that answers no request, an array in RESP2; `len` replies follow.
    pub fn push(&mut self, len: usize) {
        match self.protocol {
            Protocol::Resp2 => self.header(b'*', len),
            Protocol::Resp3 => self.header(b'>', len),
        }
    }

    /// The header of attributes of the next reply; `pairs` times a key and a value follow.
    ///
    /// Panics: in RESP2, which has nothing like it. The caller leaves attributes out there.
    pub fn attribute(&mut self, pairs: usize) {
        assert_eq!(self.protocol, Protocol::Resp3);
        self.header(b'|', pairs);
    }

    /// A double: a bulk, or `,number` in RESP3. Printed as Redis 7.0 does, see [`DoubleText`].
    pub fn double(&mut self, number: f64) {
        match self.protocol {
            Protocol::Resp2 => self.bulk_double(number),
            Protocol::Resp3 => self.line(b',', DoubleText::new(number).as_bytes()),
        }
    }

    /// A truth value: `:1` or `:0`, or `#t` or `#f` in RESP3.
    pub fn bool(&mut self, value: bool) {
        let text: &[u8] = match (self.protocol, value) {
            (Protocol::Resp2, true) => b":1\r\n",
            (Protocol::Resp2, false) => b":0\r\n",
            (Protocol::Resp3, true) => b"#t\r\n",
            (Protocol::Resp3, false) => b"#f\r\n",
        };
        self.buffer.extend_from_slice(text);
    }

    /// An integer of any size, in decimal: a bulk, or `(digits` in RESP3.
    pub fn big_number(&mut self, digits: &str) {
        match self.protocol {
            Protocol::Resp2 => self.bulk(digits.as_bytes()),
            Protocol::Resp3 => self.line(b'(', digits.as_bytes()),
        }
    }

    /// Text to be shown to people as it is: a bulk, or in RESP3 one with its format in front.
    ///
    /// Panics: if `format` is not of three bytes (`txt`, `mkd`), which the protocol asks for.
    pub fn verbatim(&mut self, format: &str, text: impl AsRef<[u8]>) {
        assert_eq!(format.len(), 3);
        let text = text.as_ref();
        if self.protocol == Protocol::Resp2 {
            self.bulk(text);
            return;
        }
        self.header(b'=', text.len() + 4);
        self.buffer.extend_from_slice(format.as_bytes());
        self.buffer.push(b':');
        self.buffer.extend_from_slice(text);
        self.buffer.extend_from_slice(b"\r\n");
    }

    /// Bytes that are a reply already.
    #[inline]
    pub fn raw(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// How many bytes have been written, without those that gaps lack.
    #[inline]
    pub fn len(&self) -> usize {
        self.buffer.len()
    }

    /// How many bytes it is when all gaps are filled.
    #[inline]
    pub fn full_len(&self) -> usize {
        self.buffer.len() + self.gap_bytes
    }

    /// Whether nothing has been written.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.buffer.is_empty()
    }

    /// How many bytes the buffer holds on to.
    pub fn capacity(&self) -> usize {
        self.buffer.capacity()
    }

    /// Takes back what was written beyond `len` bytes. Panics: when gaps are being filled.
    pub fn truncate(&mut self, len: usize) {
        assert!(self.filling.is_none());
        self.buffer.truncate(len);
        while let Some(gap) = self.gaps.pop_if(|gap| gap.at >= len) {
            self.gap_bytes -= gap.len;
        }
    }

    /// What has been written. Panics: when it has gaps.
    #[inline]
    pub fn as_slice(&self) -> &[u8] {
        assert!(!self.has_gaps());
        &self.buffer
    }

    /// Empties the buffer and keeps its memory. Panics: when it has gaps.
    pub fn clear(&mut self) {
        assert!(!self.has_gaps());
        self.buffer.clear();
    }

    /// Writes into `buffer`, an empty one with memory of its own, from here on. Panics: when what
    /// was written before has not been taken.
    pub fn give(&mut self, buffer: Vec<u8>) {
        assert!(self.buffer.is_empty());
        assert!(buffer.is_empty());
        self.buffer = buffer;
    }

    /// Goes on behind `buffer`, replies that were taken before. Panics: when something has been written since.
    pub fn restore(&mut self, buffer: Vec<u8>) {
        assert!(self.buffer.is_empty());
        self.buffer = buffer;
    }

    /// Hands over what has been written, with its memory, and forgets gaps.
    pub fn take(&mut self) -> Vec<u8> {
        self.gaps = Vec::new();
        (self.gap_bytes, self.filling) = (0, None);
        std::mem::take(&mut self.buffer)
    }

    fn line(&mut self, marker: u8, text: &[u8]) {
        self.buffer.push(marker);
        let start = self.buffer.len();
        self.buffer.extend_from_slice(text);
        for byte in &mut self.buffer[start..] {
            if matches!(byte, b'\r' | b'\n') {
                *byte = b' ';
            }
        }
        self.buffer.extend_from_slice(b"\r\n");
    }

    /// A marker and a length. Lengths below a thousand, which nearly all are, go out as one
    /// array of a size known to the compiler.
    #[inline]
    fn header(&mut self, marker: u8, len: usize) {
        let digit = |place: usize| b'0' + (len / place % 10) as u8;
        match len {
            0..=9 => self.buffer.extend_from_slice(&[marker, digit(1), b'\r', b'\n']),
            10..=99 => {
                self.buffer.extend_from_slice(&[marker, digit(10), digit(1), b'\r', b'\n']);
            }
            100..=999 => self.buffer.extend_from_slice(&[
                marker,
                digit(100),
                digit(10),
                digit(1),
                b'\r',
                b'\n',
            ]),
            _ => {
                self.buffer.push(marker);
                self.buffer.extend_from_slice(itoa::Buffer::new().format(len).as_bytes());
                self.buffer.extend_from_slice(b"\r\n");
            }
        }
    }
}

/// A marker, the digits of a 64-bit length, and the line end.
const HEADER_BYTES_MAX: usize = 1 + 20 + 2;

/// Replies that are longer together grow by less than as much again.
const LARGE_REPLY_BYTES_MIN: usize = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    fn check(expected: [&str; 2], write: impl Fn(&mut Reply)) {
        for (protocol, expected) in [Protocol::Resp2, Protocol::Resp3].into_iter().zip(expected) {
            let mut reply = Reply::new(protocol);
            write(&mut reply);
            assert_eq!(reply.as_slice().escape_ascii().to_string(), expected);
        }
    }

    fn check_same(expected: &str, write: impl Fn(&mut Reply)) {
        check([expected, expected], write);
    }

    #[test]
    fn headers_are_put_in_front_of_what_they_count() {
        for (protocol, expected) in [
            (Protocol::Resp2, &b"+OK\r\n*4\r\n:1\r\n*2\r\n:2\r\n:3\r\n"[..]),
            (Protocol::Resp3, b"+OK\r\n%2\r\n:1\r\n*2\r\n:2\r\n:3\r\n"),
        ] {
            let mut reply = Reply::new(protocol);
            reply.ok();
            let map = reply.len();
            reply.integer(1);
            let array = reply.len();
            reply.integer(2);
            reply.integer(3);
            reply.array_from(array, 2);
            reply.map_from(map, 2);
            assert_eq!(reply.as_slice(), expected);
        }
    }

    #[test]
    fn writes_what_both_versions_share() {
        check_same(r"+OK\r\n", Reply::ok);
        check_same(r"+QUEUED\r\n", Reply::queued);
        check_same(r"+PONG\r\n", |reply| reply.simple("PONG"));
        check_same(r"-ERR a  b\r\n", |reply| reply.error("ERR a\r\nb"));
        check_same(r"-ERR Protocol error: expected \'$\', got \'\xff\'\r\n", |reply| {
            reply.protocol_error(&ProtocolError::ExpectedBulk(0xff));
        });
        check_same(r"$0\r\n\r\n", |reply| reply.bulk(b""));
        check_same(r"$3\r\na\r\n\r\n", |reply| reply.bulk(b"a\r\n"));
        check_same(r"$2\r\n-7\r\n", |reply| reply.bulk_integer(-7));
        check_same(r"$4\r\n-inf\r\n", |reply| reply.bulk_double(f64::NEG_INFINITY));
        check_same(r"*2\r\n", |reply| reply.array(2));
        check_same(r"$3\r\nxyz\r\n", |reply| reply.reserve_bulk(3).copy_from_slice(b"xyz"));
        check_same(r":1\r\n", |reply| reply.raw(b":1\r\n"));
    }

    #[test]
    fn falls_back_where_resp2_has_no_type() {
        check([r"$-1\r\n", r"_\r\n"], Reply::null);
        check([r"*-1\r\n", r"_\r\n"], Reply::null_array);
        check([r"*6\r\n", r"%3\r\n"], |reply| reply.map(3));
        check([r"*3\r\n", r"~3\r\n"], |reply| reply.set(3));
        check([r"*3\r\n", r">3\r\n"], |reply| reply.push(3));
        check([r"$5\r\n2.625\r\n", r",2.625\r\n"], |reply| reply.double(2.625));
        check([r"$3\r\ninf\r\n", r",inf\r\n"], |reply| reply.double(f64::INFINITY));
        check([r":1\r\n", r"#t\r\n"], |reply| reply.bool(true));
        check([r":0\r\n", r"#f\r\n"], |reply| reply.bool(false));
        check([r"$2\r\n12\r\n", r"(12\r\n"], |reply| reply.big_number("12"));
        check([r"$2\r\nhi\r\n", r"=6\r\ntxt:hi\r\n"], |reply| reply.verbatim("txt", "hi"));
    }

    #[test]
    fn numbers_of_all_widths() {
        for number in [0, 7, 9, 10, 42, 99, 100, 512, 999, 1000, 123_456, i64::MAX] {
            check_same(&format!(r":{number}\r\n"), |reply| reply.integer(number));
            check_same(&format!(r"*{number}\r\n"), |reply| reply.array(number as usize));
        }
        check_same(r":-1\r\n", |reply| reply.integer(-1));
        check_same(r":-9223372036854775808\r\n", |reply| reply.integer(i64::MIN));
    }

    #[test]
    fn takes_back_a_reply_that_was_begun() {
        let mut reply = Reply::new(Protocol::Resp2);
        reply.ok();
        let mark = reply.len();
        reply.array(2);
        reply.integer(1);
        reply.truncate(mark);
        reply.error("ERR no");
        assert_eq!(reply.take(), b"+OK\r\n-ERR no\r\n");
        assert!(reply.is_empty());
    }

    /// What a reply with gaps becomes, filled in steps of so many bytes.
    fn filled(step: usize, write: impl Fn(&mut Reply)) -> String {
        let values: [&[u8]; 3] = [b"", b"one", b"a longer value"];
        let mut reply = Reply::new(Protocol::Resp2);
        write(&mut reply);
        let full_len = reply.full_len();
        while reply.has_gaps() {
            reply.fill(step, |source| values[source as usize]);
        }
        assert_eq!((reply.len(), reply.full_len()), (full_len, full_len));
        reply.ok();
        reply.as_slice().escape_ascii().to_string()
    }

    #[test]
    fn gaps_are_filled_in_steps_of_any_size() {
        let write = |reply: &mut Reply| {
            reply.array(5);
            reply.bulk_later(14, 2);
            reply.bulk_later(0, 0);
            reply.bulk(b"at once");
            reply.bulk_later(3, 1);
            reply.null();
        };
        let expected = r"*5\r\n$14\r\na longer value\r\n$0\r\n\r\n$7\r\nat once\r\n$3\r\none\r\n$-1\r\n+OK\r\n";
        for step in 1..80 {
            assert_eq!(filled(step, write), expected);
        }
    }

    #[test]
    fn gaps_of_what_is_taken_back_are_forgotten() {
        let write = |reply: &mut Reply| {
            reply.bulk_later(3, 1);
            let mark = reply.len();
            reply.bulk_later(14, 2);
            assert_eq!(reply.full_len(), reply.len() + 17);
            reply.truncate(mark);
        };
        assert_eq!(filled(2, write), r"$3\r\none\r\n+OK\r\n");
    }

    #[test]
    #[should_panic(expected = "assertion")]
    fn attributes_need_resp3() {
        Reply::new(Protocol::Resp2).attribute(1);
    }
}
