//! Replies, cut out of the byte stream as it arrives, in whatever pieces.
//!
//! All of RESP2 is understood and what RESP3 answers to commands with. A bulk string is handed on in
//! the pieces that it comes in; nothing is copied but a head line that is split between two reads.
//! The replies do not depend on how the stream is cut. Of
//! an aggregate only the elements are told, however they nest: [`Parser::is_between_replies`] says
//! when the last of them has come.

use crate::values::VALUE_BYTES_MAX;

/// Longest head line (`+OK`, `$512`, `-ERR ...`) that is understood, in bytes; of a longer text the
/// rest is dropped.
const LINE_BYTES_MAX: usize = 256;

/// What a reply is, or a piece of one.
#[derive(Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// `+...`, `:...`, or any other that fits a line.
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

/// The bytes are no reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the server sent something that is no reply")]
pub struct Malformed;

/// Where in the stream a connection is.
#[derive(Debug)]
pub struct Parser {
    state: State,
    line: [u8; LINE_BYTES_MAX],
    line_size: usize,
    /// Elements of aggregates that are still to come.
    open: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// At the beginning of a reply, or inside its head line.
    Line,
    /// The head line was a text that is too long: skip to its end. `last` is what came last of it.
    LongLine { last: u8 },
    /// Inside a bulk string: its size, and how many bytes of it and of its line end have come.
    Bulk { size: usize, taken: usize },
}

impl Default for Parser {
    fn default() -> Self {
        Self { state: State::Line, line: [0; LINE_BYTES_MAX], line_size: 0, open: 0 }
    }
}

impl Parser {
    /// Whether the last event was the end of a whole reply. To be asked after events only.
    #[inline]
    pub fn is_between_replies(&self) -> bool {
        self.open == 0
    }

    /// Takes the next event from the front of `input`, and tells how many bytes it used; without an
    /// event when they were none that is told.
    ///
    /// Errors: [`Malformed`]; the stream cannot be read any further.
    #[inline]
    pub fn next<'a>(
        &'a mut self,
        input: &'a [u8],
    ) -> Result<(usize, Option<Event<'a>>), Malformed> {
        match self.state {
            // What a load of writes is answered with, nearly always.
            State::Line if self.line_size == 0 && input.starts_with(b"+OK\r\n") => {
                Ok((b"+OK\r\n".len(), self.end_element(Event::Status)))
            }
            State::Line => self.next_line(input),
            State::LongLine { last } => self.skip_line(input, last),
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
        if self.line_size + end > LINE_BYTES_MAX {
            return self.keep_line(input);
        }
        if self.line_size == 0 {
            return self.read_line(&input[..end], input, used);
        }
        self.line[self.line_size..self.line_size + end].copy_from_slice(&input[..end]);
        let line_size = std::mem::take(&mut self.line_size) + end;
        // Read from a copy, as reading the line changes the state beside it.
        let line = self.line;
        match parse_line(&line[..line_size])? {
            Head::Bulk(size) => self.begin_bulk(input, used, size),
            Head::Aggregate(count) => Ok((used, self.begin_aggregate(count)?)),
            Head::Status => Ok((used, self.end_element(Event::Status))),
            Head::Null => Ok((used, self.end_element(Event::Null))),
            Head::Error => {
                self.open = self.open.saturating_sub(1);
                Ok((used, Some(Event::Error(&self.line[1..line_size - 1]))))
            }
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
            Head::Bulk(size) => self.begin_bulk(input, used, size),
            Head::Aggregate(count) => Ok((used, self.begin_aggregate(count)?)),
            Head::Status => Ok((used, self.end_element(Event::Status))),
            Head::Null => Ok((used, self.end_element(Event::Null))),
            Head::Error => Ok((used, self.end_element(Event::Error(&line[1..line.len() - 1])))),
        }
    }

    #[inline]
    fn begin_bulk<'a>(
        &mut self,
        input: &'a [u8],
        used: usize,
        size: usize,
    ) -> Result<(usize, Option<Event<'a>>), Malformed> {
        self.state = State::Bulk { size, taken: 0 };
        let (more, event) = self.next_bulk(&input[used..], size, 0)?;
        Ok((used + more, event))
    }

    /// An aggregate of `count` elements takes its own place among those that are still to come.
    fn begin_aggregate<'a>(&mut self, count: u64) -> Result<Option<Event<'a>>, Malformed> {
        if count == 0 {
            return Ok(self.end_element(Event::Status));
        }
        self.open = self.open.saturating_sub(1).checked_add(count).ok_or(Malformed)?;
        Ok(None)
    }

    /// An element, or a reply of its own, is complete with `event`.
    #[inline]
    fn end_element<'a>(&mut self, event: Event<'a>) -> Option<Event<'a>> {
        self.open = self.open.saturating_sub(1);
        Some(event)
    }

    /// Keeps a head line whose end has not come, or what fits of a text that is too long.
    #[cold]
    fn keep_line<'a>(&'a mut self, input: &[u8]) -> Result<(usize, Option<Event<'a>>), Malformed> {
        let room = LINE_BYTES_MAX - self.line_size;
        let kept = room.min(input.len());
        self.line[self.line_size..self.line_size + kept].copy_from_slice(&input[..kept]);
        self.line_size += kept;
        if kept == input.len() {
            return Ok((kept, None));
        }
        // What does not fit is not the end of the line: that would have been read.
        self.state = State::LongLine { last: input[kept] };
        self.line_size = 0;
        self.open = self.open.saturating_sub(1);
        match &self.line {
            [b'-', text @ ..] => Ok((kept + 1, Some(Event::Error(text)))),
            [b'+' | b'(', ..] => Ok((kept + 1, Some(Event::Status))),
            _ => Err(Malformed),
        }
    }

    #[cold]
    fn skip_line<'a>(
        &mut self,
        input: &[u8],
        last: u8,
    ) -> Result<(usize, Option<Event<'a>>), Malformed> {
        let Some(end) = input.iter().position(|byte| *byte == b'\n') else {
            self.state = State::LongLine { last: *input.last().unwrap_or(&last) };
            return Ok((input.len(), None));
        };
        self.state = State::Line;
        match input[..end].last().unwrap_or(&last) {
            b'\r' => Ok((end + 1, None)),
            _ => Err(Malformed),
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
        let line_end = &input[body..used];
        // Nearly always it is there as a whole.
        if line_end != b"\r\n" {
            let come = taken.saturating_sub(size);
            if !b"\r\n"[come..].starts_with(line_end) {
                return Err(Malformed);
            }
        }
        self.state = if end { State::Line } else { State::Bulk { size, taken: taken + used } };
        if end {
            self.open = self.open.saturating_sub(1);
        }
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
    /// Of so many elements.
    Aggregate(u64),
}

/// Reads a head line that still has its carriage return.
#[inline]
fn parse_line(line: &[u8]) -> Result<Head, Malformed> {
    let Some((b'\r', line)) = line.split_last() else { return Err(Malformed) };
    match line {
        [b'$' | b'=' | b'!', digits @ ..] => parse_size(digits),
        [b'+' | b':' | b',' | b'#' | b'(', ..] => Ok(Head::Status),
        [b'-', ..] => Ok(Head::Error),
        [b'*' | b'~', digits @ ..] => parse_count(digits, 1),
        [b'%', digits @ ..] => parse_count(digits, 2),
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

/// Reads how many elements an aggregate has, `scale` for each that it counts.
fn parse_count(digits: &[u8], scale: u64) -> Result<Head, Malformed> {
    if digits == b"-1" {
        return Ok(Head::Null);
    }
    let text = std::str::from_utf8(digits).map_err(|_| Malformed)?;
    let count: u64 = text.parse().map_err(|_| Malformed)?;
    count.checked_mul(scale).map(Head::Aggregate).ok_or(Malformed)
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
    fn a_long_text_is_cut_and_the_stream_goes_on() {
        let long = [b'x'; 1000];
        let stream = [b"-", &long[..], b"\r\n+", &long[..], b"\r\n:1\r\n"].concat();
        let error = Whole::Error(long[..LINE_BYTES_MAX - 1].to_vec());
        for piece in 1..stream.len() + 1 {
            let replies = parse(stream.chunks(piece)).expect("replies");
            let expected = [error.clone(), Whole::Status, Whole::Status];
            assert_eq!(replies, expected, "in pieces of {piece}");
        }
    }

    #[test]
    fn aggregates_end_with_their_last_element() {
        // The replies, and after how many events each of them ends.
        let cases: [(&[u8], &[usize]); 6] = [
            (b"*0\r\n+OK\r\n", &[1, 2]),
            (b"*-1\r\n", &[1]),
            (b"*2\r\n$1\r\na\r\n$-1\r\n:1\r\n", &[2, 3]),
            (b"%1\r\n+a\r\n*2\r\n:1\r\n*0\r\n", &[3]),
            (b"*2\r\n*1\r\n*1\r\n:1\r\n-ERR\r\n", &[2]),
            (b"~1\r\n#t\r\n,1.5\r\n=5\r\ntxt:a\r\n", &[1, 2, 3]),
        ];
        for (stream, expected) in cases {
            let (mut parser, mut rest, mut events) = (Parser::default(), stream, 0);
            let mut ends = Vec::new();
            while !rest.is_empty() {
                let (used, event) = parser.next(rest).expect("replies");
                rest = &rest[used..];
                if event.is_some() {
                    events += 1;
                    if parser.is_between_replies() {
                        ends.push(events);
                    }
                }
            }
            assert_eq!(ends, expected, "{}", stream.escape_ascii());
        }
    }

    #[test]
    fn malformed_streams_are_refused() {
        let long = [b"$", &[b'1'; 1000][..]].concat();
        let bare = [b"-", &[b'x'; 1000][..], b"\n"].concat();
        let streams: [&[u8]; 12] = [
            b"OK\r\n",
            b"$5x\r\n",
            b"$\r\n",
            b"$-2\r\n",
            b"$99999999999999999999\r\n",
            b"+OK\n",
            b"$1\r\nabcd",
            b"$1\r\na\rx",
            b"*x\r\n",
            b">1\r\n",
            &long,
            &bare,
        ];
        for stream in streams {
            for piece in 1..stream.len() + 1 {
                let parsed = parse(stream.chunks(piece));
                assert_eq!(parsed, Err(Malformed), "{} by {piece}", stream.escape_ascii());
            }
        }
    }
}
