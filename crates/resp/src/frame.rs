//! Reads replies, for the client's side: tests, benchmarks, comparisons with other servers.
//!
//! Invariants:
//! 1. Nothing is lost: [`Frame::encode`] gives back the bytes that a frame was read from. That is
//!    why doubles stay text and the three spellings of null stay apart.
//! 2. Nothing is allocated for what a reply announces, only for what has arrived of it, and
//!    nesting is bounded.

use memchr::memchr;

use crate::ProtocolError;
use crate::integer::parse_integer;

/// Replies nest no deeper. COMMAND DOCS, the deepest of Redis's, reaches about ten.
pub const FRAME_DEPTH_MAX: usize = 64;

/// Bytes of a line: a simple string, an error, a number.
const LINE_BYTES_MAX: usize = 64 << 10;

/// Bytes of a bulk.
const BULK_BYTES_MAX: usize = 512 << 20;

/// A reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame {
    /// `+text`.
    Simple(Vec<u8>),
    /// `-text`.
    Error(Vec<u8>),
    /// `:number`.
    Integer(i64),
    /// `$length` and the bytes.
    Bulk(Vec<u8>),
    /// `!length` and the bytes of an error.
    BulkError(Vec<u8>),
    /// `=length`, a format of three bytes, and text.
    Verbatim([u8; 3], Vec<u8>),
    /// `$-1`.
    NullBulk,
    /// `*-1`.
    NullArray,
    /// `_`.
    Null,
    /// `#t` or `#f`.
    Bool(bool),
    /// `,number`, as it is written.
    Double(Vec<u8>),
    /// `(digits`.
    BigNumber(Vec<u8>),
    /// `*count` and the elements.
    Array(Vec<Frame>),
    /// `~count` and the elements.
    Set(Vec<Frame>),
    /// `>count` and the elements.
    Push(Vec<Frame>),
    /// `%count` and pairs of a key and a value.
    Map(Vec<(Frame, Frame)>),
    /// `|count` and pairs, and the reply that they belong to.
    Attributed(Vec<(Frame, Frame)>, Box<Frame>),
}

/// Reads the reply at the start of `input`: the frame and its length, or `None` if there is more
/// to come.
///
/// Errors: [`ProtocolError::InvalidReply`].
/// Cost: an incomplete reply is read again from its start when more has arrived.
pub fn parse_frame(input: &[u8]) -> Result<Option<(Frame, usize)>, ProtocolError> {
    let mut reader = Reader { input, position: 0 };
    match reader.frame(0) {
        Ok(frame) => Ok(Some((frame, reader.position))),
        Err(Stop::Incomplete) => Ok(None),
        Err(Stop::Invalid(what)) => Err(ProtocolError::InvalidReply(what)),
    }
}

impl Frame {
    /// Appends the bytes that the frame is read from.
    pub fn encode(&self, output: &mut Vec<u8>) {
        match self {
            Self::Simple(text) => encode_line(output, b'+', text),
            Self::Error(text) => encode_line(output, b'-', text),
            Self::Integer(number) => encode_line(output, b':', number.to_string().as_bytes()),
            Self::Bulk(bytes) => encode_bulk(output, b'$', &[bytes]),
            Self::BulkError(bytes) => encode_bulk(output, b'!', &[bytes]),
            Self::Verbatim(format, text) => encode_bulk(output, b'=', &[format, b":", text]),
            Self::NullBulk => encode_line(output, b'$', b"-1"),
            Self::NullArray => encode_line(output, b'*', b"-1"),
            Self::Null => encode_line(output, b'_', b""),
            Self::Bool(value) => encode_line(output, b'#', if *value { b"t" } else { b"f" }),
            Self::Double(text) => encode_line(output, b',', text),
            Self::BigNumber(digits) => encode_line(output, b'(', digits),
            Self::Array(elements) => encode_elements(output, b'*', elements),
            Self::Set(elements) => encode_elements(output, b'~', elements),
            Self::Push(elements) => encode_elements(output, b'>', elements),
            Self::Map(pairs) => encode_pairs(output, b'%', pairs),
            Self::Attributed(pairs, frame) => {
                encode_pairs(output, b'|', pairs);
                frame.encode(output);
            }
        }
    }
}

fn encode_line(output: &mut Vec<u8>, marker: u8, text: &[u8]) {
    output.push(marker);
    output.extend_from_slice(text);
    output.extend_from_slice(b"\r\n");
}

fn encode_bulk(output: &mut Vec<u8>, marker: u8, parts: &[&[u8]]) {
    let len: usize = parts.iter().map(|part| part.len()).sum();
    encode_line(output, marker, len.to_string().as_bytes());
    parts.iter().for_each(|part| output.extend_from_slice(part));
    output.extend_from_slice(b"\r\n");
}

fn encode_elements(output: &mut Vec<u8>, marker: u8, elements: &[Frame]) {
    encode_line(output, marker, elements.len().to_string().as_bytes());
    elements.iter().for_each(|element| element.encode(output));
}

fn encode_pairs(output: &mut Vec<u8>, marker: u8, pairs: &[(Frame, Frame)]) {
    encode_line(output, marker, pairs.len().to_string().as_bytes());
    for (key, value) in pairs {
        key.encode(output);
        value.encode(output);
    }
}

/// Why there is no frame.
enum Stop {
    /// Not all of it has arrived.
    Incomplete,
    /// It is none.
    Invalid(&'static str),
}

struct Reader<'a> {
    input: &'a [u8],
    position: usize,
}

impl<'a> Reader<'a> {
    fn frame(&mut self, depth: usize) -> Result<Frame, Stop> {
        if depth == FRAME_DEPTH_MAX {
            return Err(Stop::Invalid("reply nests too deep"));
        }
        let marker = *self.input.get(self.position).ok_or(Stop::Incomplete)?;
        if !b"+-:$!=_#,(*~>%|".contains(&marker) {
            return Err(Stop::Invalid("unknown type of reply"));
        }
        self.position += 1;
        let line = self.line()?;
        Ok(match marker {
            b'+' => Frame::Simple(line.to_vec()),
            b'-' => Frame::Error(line.to_vec()),
            b',' => Frame::Double(line.to_vec()),
            b'(' => Frame::BigNumber(line.to_vec()),
            b':' => Frame::Integer(parse_integer(line).ok_or(Stop::Invalid("invalid integer"))?),
            b'_' if line.is_empty() => Frame::Null,
            b'#' if line == b"t" => Frame::Bool(true),
            b'#' if line == b"f" => Frame::Bool(false),
            b'$' if line == b"-1" => Frame::NullBulk,
            b'$' => Frame::Bulk(self.bulk(line)?.to_vec()),
            b'!' => Frame::BulkError(self.bulk(line)?.to_vec()),
            b'=' => match self.bulk(line)? {
                [a, b, c, b':', text @ ..] => Frame::Verbatim([*a, *b, *c], text.to_vec()),
                _ => return Err(Stop::Invalid("invalid format of text")),
            },
            b'*' if line == b"-1" => Frame::NullArray,
            b'*' => Frame::Array(self.elements(line, depth)?),
            b'~' => Frame::Set(self.elements(line, depth)?),
            b'>' => Frame::Push(self.elements(line, depth)?),
            b'%' => Frame::Map(self.pairs(line, depth)?),
            b'|' => {
                let pairs = self.pairs(line, depth)?;
                Frame::Attributed(pairs, Box::new(self.frame(depth + 1)?))
            }
            _ => return Err(Stop::Invalid("invalid null or boolean")),
        })
    }

    fn line(&mut self) -> Result<&'a [u8], Stop> {
        let rest = &self.input[self.position..];
        let searched = &rest[..rest.len().min(LINE_BYTES_MAX + 1)];
        let Some(end) = memchr(b'\r', searched) else {
            if rest.len() > LINE_BYTES_MAX {
                return Err(Stop::Invalid("too long a line"));
            }
            return Err(Stop::Incomplete);
        };
        match rest.get(end + 1) {
            None => Err(Stop::Incomplete),
            Some(b'\n') => {
                self.position += end + 2;
                Ok(&rest[..end])
            }
            Some(_) => Err(Stop::Invalid("invalid end of line")),
        }
    }

    fn bulk(&mut self, line: &[u8]) -> Result<&'a [u8], Stop> {
        let len = parse_integer(line).and_then(|len| usize::try_from(len).ok());
        let len = len.filter(|len| *len <= BULK_BYTES_MAX);
        let len = len.ok_or(Stop::Invalid("invalid bulk length"))?;
        let rest = &self.input[self.position..];
        let ended = rest.get(..len + 2).ok_or(Stop::Incomplete)?;
        let bytes = ended.strip_suffix(b"\r\n").ok_or(Stop::Invalid("invalid end of bulk"))?;
        self.position += len + 2;
        Ok(bytes)
    }

    fn elements(&mut self, line: &[u8], depth: usize) -> Result<Vec<Frame>, Stop> {
        (0..count(line)?).map(|_| self.frame(depth + 1)).collect()
    }

    fn pairs(&mut self, line: &[u8], depth: usize) -> Result<Vec<(Frame, Frame)>, Stop> {
        (0..count(line)?).map(|_| Ok((self.frame(depth + 1)?, self.frame(depth + 1)?))).collect()
    }
}

fn count(line: &[u8]) -> Result<u64, Stop> {
    let count = parse_integer(line).and_then(|count| u64::try_from(count).ok());
    count.ok_or(Stop::Invalid("invalid count"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{Protocol, Reply};

    fn bulk(text: &str) -> Frame {
        Frame::Bulk(text.as_bytes().to_vec())
    }

    #[test]
    fn reads_every_type() {
        let cases: &[(&str, Frame)] = &[
            ("+OK\r\n", Frame::Simple(b"OK".to_vec())),
            ("-ERR no\r\n", Frame::Error(b"ERR no".to_vec())),
            (":-5\r\n", Frame::Integer(-5)),
            ("$2\r\n\r\n\r\n", bulk("\r\n")),
            ("!3\r\nERR\r\n", Frame::BulkError(b"ERR".to_vec())),
            ("=6\r\ntxt:hi\r\n", Frame::Verbatim(*b"txt", b"hi".to_vec())),
            ("$-1\r\n", Frame::NullBulk),
            ("*-1\r\n", Frame::NullArray),
            ("_\r\n", Frame::Null),
            ("#t\r\n", Frame::Bool(true)),
            ("#f\r\n", Frame::Bool(false)),
            (",1.5\r\n", Frame::Double(b"1.5".to_vec())),
            ("(123\r\n", Frame::BigNumber(b"123".to_vec())),
            ("*0\r\n", Frame::Array(vec![])),
            (
                "*2\r\n$1\r\na\r\n*1\r\n:1\r\n",
                Frame::Array(vec![bulk("a"), Frame::Array(vec![Frame::Integer(1)])]),
            ),
            ("~1\r\n:1\r\n", Frame::Set(vec![Frame::Integer(1)])),
            (">1\r\n:1\r\n", Frame::Push(vec![Frame::Integer(1)])),
            ("%1\r\n$1\r\nk\r\n:1\r\n", Frame::Map(vec![(bulk("k"), Frame::Integer(1))])),
            (
                "|1\r\n$1\r\nk\r\n:1\r\n_\r\n",
                Frame::Attributed(vec![(bulk("k"), Frame::Integer(1))], Box::new(Frame::Null)),
            ),
        ];
        for (text, expected) in cases {
            let read = parse_frame(text.as_bytes());
            assert_eq!(read, Ok(Some((expected.clone(), text.len()))), "{text:?}");
            for cut in 0..text.len() {
                assert_eq!(parse_frame(&text.as_bytes()[..cut]), Ok(None), "{text:?} cut at {cut}");
            }
            let mut encoded = Vec::new();
            expected.encode(&mut encoded);
            assert_eq!(encoded, text.as_bytes());
        }
    }

    #[test]
    fn refuses_what_is_no_reply() {
        let deep = "*1\r\n".repeat(FRAME_DEPTH_MAX + 1);
        let long = "+".to_owned() + &"a".repeat(LINE_BYTES_MAX + 1);
        for text in [
            "GET",
            "+a\rb",
            ":\r\n",
            ":1.5\r\n",
            ":01\r\n",
            "$-2\r\n",
            "$536870913\r\n",
            "$1\r\nabc\r\n",
            "*-2\r\n",
            "*x\r\n",
            "%-1\r\n",
            "_x\r\n",
            "#x\r\n",
            "=3\r\ntxt\r\n",
            "$?\r\n",
            &deep,
            &long,
        ] {
            assert!(parse_frame(text.as_bytes()).is_err(), "{text:?}");
        }
    }

    #[test]
    fn announced_elements_cost_nothing() {
        assert_eq!(parse_frame(b"*9223372036854775807\r\n"), Ok(None));
    }

    #[test]
    fn reads_what_reply_writes() {
        let mut reply = Reply::new(Protocol::Resp3);
        reply.map(2);
        reply.bulk(b"a");
        reply.double(0.5);
        reply.bulk_integer(7);
        reply.set(1);
        reply.verbatim("mkd", "# x");
        let expected = Frame::Map(vec![
            (bulk("a"), Frame::Double(b"0.5".to_vec())),
            (bulk("7"), Frame::Set(vec![Frame::Verbatim(*b"mkd", b"# x".to_vec())])),
        ]);
        assert_eq!(parse_frame(reply.as_slice()), Ok(Some((expected, reply.len()))));
    }

    proptest! {
        #[test]
        fn what_is_read_encodes_to_the_same_bytes(
            input in r"([-+:$!=_#,(*~>%|][0-3]\r\n([a-c:]{0,3}\r\n)?){0,12}",
        ) {
            if let Ok(Some((frame, consumed))) = parse_frame(input.as_bytes()) {
                let mut encoded = Vec::new();
                frame.encode(&mut encoded);
                prop_assert_eq!(&encoded[..], &input.as_bytes()[..consumed]);
            }
        }
    }
}
