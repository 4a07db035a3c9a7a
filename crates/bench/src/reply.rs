//! Replies, cut out of the byte stream as it arrives, in whatever pieces.
//!
//! Only what the answers to SET and GET can be is understood: status, error, integer, null and bulk
//! string, in RESP2 or RESP3. A bulk string is handed on in the pieces that it comes in; nothing is
//! copied but a head line that is split between two reads.

use crate::values::VALUE_BYTES_MAX;

/// Longest head line (`+OK`, `$512`, `-ERR ...`) that is understood, in bytes; of a longer error
/// the rest is dropped.
const LINE_BYTES_MAX: usize = 256;

/// What a reply is, or a piece of one.
#[derive(Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// `+...` or `:...`.
    Status,
    /// `-...`, without the sign and the line end.
    Error(&'a [u8]),
    /// No value.
    Null,
    /// A piece of a bulk string.
    Bulk {
        /// Bytes of the whole string.
        size: usize,
        /// Where the piece begins.
        offset: usize,
        /// The piece; it may be empty.
        bytes: &'a [u8],
        /// Whether the reply is complete with it.
        end: bool,
    },
}

/// The bytes are no reply that SET or GET can have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the server sent something that is no reply to SET or GET")]
pub struct Malformed;

/// Where in the stream a connection is.
#[derive(Debug)]
pub struct Parser {
    state: State,
    line: [u8; LINE_BYTES_MAX],
    line_size: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// At the beginning of a reply, or inside its head line.
    Line,
    /// The head line was an error that is too long: skip to its end.
    LongLine,
    /// Inside a bulk string: its size, and how many bytes of it and of its line end have come.
    Bulk { size: usize, taken: usize },
}

impl Default for Parser {
    fn default() -> Self {
        Self { state: State::Line, line: [0; LINE_BYTES_MAX], line_size: 0 }
    }
}

impl Parser {
    /// Takes the next event from the front of `input`, and tells how many bytes it used. No event
    /// means that all of the input is used, and the next needs more.
    ///
    /// Errors: [`Malformed`]; the stream cannot be read any further.
    #[inline]
    pub fn next<'a>(
        &'a mut self,
        input: &'a [u8],
    ) -> Result<(usize, Option<Event<'a>>), Malformed> {
        match self.state {
            State::Line => self.next_line(input),
            State::LongLine => Ok(self.skip_line(input)),
            State::Bulk { size, taken } => self.next_bulk(input, size, taken),
        }
    }

    #[inline]
    fn next_line<'a>(
        &'a mut self,
        input: &'a [u8],
    ) -> Result<(usize, Option<Event<'a>>), Malformed> {
        // Head lines are a few bytes long: a plain loop finds the end sooner than a vector search.
        let Some(end) = input.iter().position(|byte| *byte == b'\n') else {
            return self.keep_line(input);
        };
        let used = end + 1;
        if self.line_size == 0 {
            return self.read_line(&input[..end], input, used);
        }
        if self.line_size + end > LINE_BYTES_MAX {
            return self.keep_line(&input[..used]).map(|(_, event)| (used, event));
        }
        self.line[self.line_size..self.line_size + end].copy_from_slice(&input[..end]);
        let line_size = std::mem::take(&mut self.line_size) + end;
        // Read from a copy, as reading the line changes the state beside it.
        let line = self.line;
        match parse_line(&line[..line_size])? {
            Head::Bulk(size) => {
                self.state = State::Bulk { size, taken: 0 };
                let (more, event) = self.next_bulk(&input[used..], size, 0)?;
                Ok((used + more, event))
            }
            Head::Status => Ok((used, Some(Event::Status))),
            Head::Null => Ok((used, Some(Event::Null))),
            Head::Error => Ok((used, Some(Event::Error(&self.line[1..line_size - 1])))),
        }
    }

    #[inline]
    fn read_line<'a>(
        &mut self,
        line: &'a [u8],
        input: &'a [u8],
        used: usize,
    ) -> Result<(usize, Option<Event<'a>>), Malformed> {
        match parse_line(line)? {
            Head::Bulk(size) => {
                let (more, event) = self.next_bulk(&input[used..], size, 0)?;
                Ok((used + more, event))
            }
            Head::Status => Ok((used, Some(Event::Status))),
            Head::Null => Ok((used, Some(Event::Null))),
            Head::Error => Ok((used, Some(Event::Error(&line[1..line.len() - 1])))),
        }
    }

    /// Keeps a head line whose end has not come, and all of it that fits if it is an error.
    #[cold]
    fn keep_line<'a>(&'a mut self, input: &[u8]) -> Result<(usize, Option<Event<'a>>), Malformed> {
        let room = LINE_BYTES_MAX - self.line_size;
        let kept = room.min(input.len());
        self.line[self.line_size..self.line_size + kept].copy_from_slice(&input[..kept]);
        self.line_size += kept;
        if kept == input.len() {
            return Ok((kept, None));
        }
        if self.line[0] != b'-' {
            return Err(Malformed);
        }
        self.line_size = 0;
        self.state = if input.ends_with(b"\n") { State::Line } else { State::LongLine };
        Ok((input.len(), Some(Event::Error(&self.line[1..]))))
    }

    #[cold]
    fn skip_line<'a>(&mut self, input: &[u8]) -> (usize, Option<Event<'a>>) {
        match input.iter().position(|byte| *byte == b'\n') {
            Some(end) => {
                self.state = State::Line;
                (end + 1, None)
            }
            None => (input.len(), None),
        }
    }

    /// The rest of a bulk string and its line end, or what has come of them.
    #[inline]
    fn next_bulk<'a>(
        &mut self,
        input: &'a [u8],
        size: usize,
        taken: usize,
    ) -> Result<(usize, Option<Event<'a>>), Malformed> {
        let wanted = size + 2 - taken;
        let used = wanted.min(input.len());
        let body = used.min(size.saturating_sub(taken));
        let end = used == wanted;
        if end && used >= 2 && &input[used - 2..used] != b"\r\n" {
            return Err(Malformed);
        }
        self.state = if end { State::Line } else { State::Bulk { size, taken: taken + used } };
        let offset = taken.min(size);
        let event = Event::Bulk { size, offset, bytes: &input[..body], end };
        Ok((used, (used > 0).then_some(event)))
    }
}

enum Head {
    Status,
    Error,
    Null,
    Bulk(usize),
}

/// Reads a head line that still has its carriage return.
#[inline]
fn parse_line(line: &[u8]) -> Result<Head, Malformed> {
    let Some((b'\r', line)) = line.split_last() else { return Err(Malformed) };
    match line {
        [b'$', digits @ ..] => parse_size(digits),
        [b'+' | b':', ..] => Ok(Head::Status),
        [b'-', ..] => Ok(Head::Error),
        [b'_'] => Ok(Head::Null),
        _ => Err(Malformed),
    }
}

#[inline]
fn parse_size(digits: &[u8]) -> Result<Head, Malformed> {
    if digits == b"-1" {
        return Ok(Head::Null);
    }
    if digits.is_empty() {
        return Err(Malformed);
    }
    let mut size = 0_usize;
    for digit in digits {
        if !digit.is_ascii_digit() {
            return Err(Malformed);
        }
        size = size * 10 + usize::from(digit - b'0');
        if size > VALUE_BYTES_MAX {
            return Err(Malformed);
        }
    }
    Ok(Head::Bulk(size))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[derive(Debug, Clone, PartialEq, Eq)]
    enum Whole {
        Status,
        Error(Vec<u8>),
        Null,
        Bulk(Vec<u8>),
    }

    /// All replies in the chunks.
    fn parse<'a>(chunks: impl IntoIterator<Item = &'a [u8]>) -> Result<Vec<Whole>, Malformed> {
        let mut parser = Parser::default();
        let mut replies = Vec::new();
        let mut body = Vec::new();
        for chunk in chunks {
            let mut rest = chunk;
            while !rest.is_empty() {
                let (used, event) = parser.next(rest)?;
                assert!(used > 0);
                rest = &rest[used..];
                match event {
                    None => {}
                    Some(Event::Status) => replies.push(Whole::Status),
                    Some(Event::Null) => replies.push(Whole::Null),
                    Some(Event::Error(text)) => replies.push(Whole::Error(text.to_vec())),
                    Some(Event::Bulk { size, offset, bytes, end }) => {
                        assert_eq!(offset, body.len());
                        body.extend_from_slice(bytes);
                        if end {
                            assert_eq!(size, body.len());
                            replies.push(Whole::Bulk(std::mem::take(&mut body)));
                        }
                    }
                }
            }
        }
        Ok(replies)
    }

    fn encode(reply: &Whole) -> Vec<u8> {
        match reply {
            Whole::Status => b"+OK\r\n".to_vec(),
            Whole::Null => b"$-1\r\n".to_vec(),
            Whole::Error(text) => [b"-", &text[..], b"\r\n"].concat(),
            Whole::Bulk(body) => {
                [format!("${}\r\n", body.len()).as_bytes(), &body[..], b"\r\n"].concat()
            }
        }
    }

    fn any_reply() -> impl Strategy<Value = Whole> {
        prop_oneof![
            Just(Whole::Status),
            Just(Whole::Null),
            "[ -~]{0,100}".prop_map(|text| Whole::Error(text.into_bytes())),
            prop::collection::vec(any::<u8>(), 0..600).prop_map(Whole::Bulk),
        ]
    }

    proptest! {
        #[test]
        fn replies_survive_any_cut(
            replies in prop::collection::vec(any_reply(), 0..20), piece in 1_usize..700,
        ) {
            let stream: Vec<u8> = replies.iter().flat_map(encode).collect();
            prop_assert_eq!(parse(stream.chunks(piece)), Ok(replies));
        }

        #[test]
        fn noise_never_panics(noise: Vec<u8>, piece in 1_usize..20) {
            let _ = parse(noise.chunks(piece));
        }
    }

    #[test]
    fn a_long_error_is_cut_and_the_stream_goes_on() {
        let stream = [b"-", &[b'x'; 1000][..], b"\r\n+OK\r\n"].concat();
        for piece in 1..stream.len() + 1 {
            let replies = parse(stream.chunks(piece)).expect("replies");
            assert!(matches!(&replies[0], Whole::Error(text) if text.starts_with(b"xxxx")));
            assert_eq!(replies[1..], [Whole::Status], "in pieces of {piece}");
        }
    }

    #[test]
    fn malformed_streams_are_refused() {
        let long = [b"+", &[b'x'; 1000][..]].concat();
        let streams: [&[u8]; 9] = [
            b"OK\r\n",
            b"$5x\r\n",
            b"$\r\n",
            b"$-2\r\n",
            b"$99999999999999999999\r\n",
            b"+OK\n",
            b"$1\r\nabcd",
            b"*1\r\n",
            &long,
        ];
        for stream in streams {
            assert_eq!(parse([stream]), Err(Malformed), "{:?}", stream.escape_ascii().to_string());
        }
    }
}
