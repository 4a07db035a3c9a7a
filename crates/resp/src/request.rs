//! Cuts requests out of the bytes that a client has sent.
//!
//! Two forms: `*2\r\n$3\r\nGET\r\n$1\r\nk\r\n` (an array of bulk strings) and `GET k\r\n` (an
//! inline command, for people with telnet). Like Redis, the parser looks at the `\r` of a line
//! end and takes the byte behind it, and the two bytes behind an argument, unseen.
//!
//! Invariants:
//! 1. The result does not depend on how the bytes were split on their way: a prefix of a request
//!    gives "incomplete", and nothing else, until the request or its first fault is complete.
//! 2. What has been parsed of an incomplete request is not parsed again. The caller hands in the
//!    same bytes with more behind them; a bulk that is under way costs one comparison a call.
//! 3. Nothing is allocated for what a request announces, only for what has arrived of it.
//! 4. A request that announces more than it may take is refused as soon as it says so; the rest of
//!    it is passed over as it comes, and the next request is read as if nothing had happened. One
//!    that has arrived whole is not refused: its memory is taken already.

use memchr::memchr;

use crate::inline::split_words;
use crate::integer::parse_integer;
use crate::{ArgRange, ProtocolError};

/// Arguments that a client may send in one request before it has authenticated.
const UNAUTHENTICATED_ARGS_MAX: usize = 10;

/// Bytes in one argument that a client may send before it has authenticated.
const UNAUTHENTICATED_BULK_BYTES_MAX: usize = 16 * 1024;

/// Bytes of a whole request: argument ranges have 32 bits.
const REQUEST_BYTES_MAX: usize = u32::MAX as usize;

/// Memory that an argument takes besides its bytes: its range, and what commands note of a key.
const ARG_BYTES: usize = 96;

/// Bytes of the longest header that the short way reads: `$ddd\r\n`. No complete request ends
/// less than this behind the start of its last header, so the short way is never cut off.
const SHORT_HEADER_BYTES_MAX: usize = 6;

/// What a client may send.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Bytes of one argument: `proto-max-bulk-len`.
    pub bulk_bytes_max: usize,
    /// Bytes of an inline command, and of the line before an argument.
    pub inline_bytes_max: usize,
    /// Arguments of one request.
    pub args_max: usize,
    /// Memory that one request may take, what is kept of each argument included.
    pub request_bytes_max: usize,
    /// Whether the client may send more than it takes to authenticate.
    pub authenticated: bool,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            bulk_bytes_max: 512 << 20,
            inline_bytes_max: 64 << 10,
            args_max: 1 << 20,
            request_bytes_max: usize::MAX,
            authenticated: true,
        }
    }
}

/// The state of one connection's input between two reads.
#[derive(Debug, Default)]
pub struct RequestParser {
    /// Arguments of the request under way that have arrived, unless none is under way.
    parsed: Vec<ArgRange>,
    /// Arguments of the request under way that are still to be read. Zero: none is under way.
    args_left: usize,
    /// Offset of the next argument's header from the start of the request.
    position: usize,
    /// Input below this length cannot bring the request under way any further.
    input_bytes_needed: usize,
    /// What was missing to that at the last call, when an argument's length was known.
    bytes_wanted: usize,
    /// What is left of a refused request.
    skipped: Option<Skipped>,
    /// Bytes that a request announced which was refused, until the caller takes note.
    refused_bytes: Option<usize>,
}

/// The rest of a request that was refused.
#[derive(Debug)]
struct Skipped {
    /// Arguments whose headers are still to come.
    args_left: usize,
    /// Bytes of the argument under way, its end included.
    bytes_left: usize,
}

impl RequestParser {
    /// A parser before its first request.
    pub fn new() -> Self {
        Self::default()
    }

    /// Cuts the next request from the start of `input` and fills `ranges` with its arguments.
    ///
    /// `Ok(Some(consumed))` is a request of so many bytes; one with no arguments (an empty line,
    /// `*0`, a part of one that was refused: see [`RequestParser::take_refused`]) is to be passed
    /// over. `Ok(None)` means that it is incomplete: call again with the same bytes and more behind
    /// them.
    ///
    /// Shape: `ranges` is cleared first and relative to `input`; it may serve other connections
    /// between two calls. The words of an inline command are unescaped in place, which is why
    /// `input` is mutable; nothing behind the request is touched, and nothing of an array.
    /// Errors: the connection answers with the text and closes; the parser starts afresh.
    /// Cost: one pass over headers, none over arguments.
    pub fn parse(
        &mut self,
        input: &mut [u8],
        ranges: &mut Vec<ArgRange>,
        limits: &Limits,
    ) -> Result<Option<usize>, ProtocolError> {
        ranges.clear();
        if input.len() < self.input_bytes_needed {
            self.bytes_wanted = self.input_bytes_needed - input.len();
            return Ok(None);
        }
        let result = match input.first() {
            None => Ok(None),
            Some(_) if self.skipped.is_some() => self.skip(input, limits),
            Some(b'*') => self.parse_array(input, ranges, limits),
            Some(_) => parse_inline(input, ranges, limits),
        };
        if result.is_err() {
            ranges.clear();
            *self = Self::default();
        }
        result
    }

    /// How many more bytes the argument under way needs, so that the caller can size its buffer.
    /// Zero when the argument's length is not known yet, or when nothing is under way.
    pub fn bytes_wanted(&self) -> usize {
        self.bytes_wanted
    }

    /// How long the request under way will be, about, and at least up to the end of the argument that is arriving:
    /// those still to come are taken to be as long as those that have arrived. Zero when none is under way.
    pub fn bytes_expected(&self) -> usize {
        let average = self.position.checked_div(self.parsed.len()).unwrap_or(0);
        let expected = average.saturating_mul(self.args_left).saturating_add(self.position);
        if self.args_left == 0 { 0 } else { expected.max(self.input_bytes_needed) }
    }

    /// Memory that is kept for the request under way.
    pub fn memory_bytes(&self) -> usize {
        self.parsed.capacity() * size_of::<ArgRange>()
    }

    /// The bytes that a request announced, once, when the last call refused it for them.
    #[inline]
    pub fn take_refused(&mut self) -> Option<usize> {
        self.refused_bytes.take()
    }

    #[inline]
    fn parse_array(
        &mut self,
        input: &[u8],
        ranges: &mut Vec<ArgRange>,
        limits: &Limits,
    ) -> Result<Option<usize>, ProtocolError> {
        let (mut args_left, mut position) = if self.args_left == 0 {
            match args_header(input, limits)? {
                Some((count, next)) if count > limits.request_bytes_max / ARG_BYTES => {
                    return self.refuse(input, ranges, (count, next), limits);
                }
                Some(header) => header,
                None => return Ok(None),
            }
        } else {
            std::mem::swap(&mut self.parsed, ranges);
            (self.args_left, self.position)
        };
        while args_left > 0 {
            let Some((len, start)) = bulk_header(input, position, limits)? else {
                if exceeds(position, ranges.len() + args_left, limits) {
                    return self.refuse(input, ranges, (args_left, position), limits);
                }
                self.suspend(ranges, args_left, position);
                self.input_bytes_needed = input.len() + 1;
                self.bytes_wanted = 0;
                return Ok(None);
            };
            let end = start + len + 2;
            if end > REQUEST_BYTES_MAX {
                return Err(ProtocolError::TooBigRequest);
            }
            if end > input.len() {
                if exceeds(end, ranges.len() + args_left, limits) {
                    return self.refuse(input, ranges, (args_left, position), limits);
                }
                self.suspend(ranges, args_left, position);
                self.input_bytes_needed = end;
                self.bytes_wanted = end - input.len();
                return Ok(None);
            }
            ranges.push(ArgRange { start: start as u32, len: len as u32 });
            position = end;
            args_left -= 1;
        }
        self.args_left = 0;
        self.input_bytes_needed = 0;
        self.bytes_wanted = 0;
        Ok(Some(position))
    }

    /// Refuses the request under way and passes over what has arrived of it.
    #[cold]
    fn refuse(
        &mut self,
        input: &[u8],
        ranges: &mut Vec<ArgRange>,
        (args_left, position): (usize, usize),
        limits: &Limits,
    ) -> Result<Option<usize>, ProtocolError> {
        // What its next argument announces, when that is what is too much.
        let announced = bulk_header(input, position, limits)?.map_or(0, |(len, _)| len);
        let args = ranges.len() + args_left;
        ranges.clear();
        *self = Self {
            skipped: Some(Skipped { args_left, bytes_left: 0 }),
            refused_bytes: Some(position + announced + args * ARG_BYTES),
            ..Self::default()
        };
        let rest = self.skip(&input[position..], limits)?.unwrap_or(0);
        Ok(Some(position + rest))
    }

    /// Passes over what has arrived of a refused request. `Ok(None)`: not even a header.
    #[cold]
    fn skip(&mut self, input: &[u8], limits: &Limits) -> Result<Option<usize>, ProtocolError> {
        let Some(skipped) = &mut self.skipped else { return Ok(None) };
        let mut position = 0;
        loop {
            let passed = skipped.bytes_left.min(input.len() - position);
            skipped.bytes_left -= passed;
            position += passed;
            if skipped.bytes_left > 0 {
                return Ok(Some(position));
            }
            if skipped.args_left == 0 {
                self.skipped = None;
                return Ok(Some(position));
            }
            let Some((len, start)) = bulk_header(input, position, limits)? else {
                return Ok((position > 0).then_some(position));
            };
            skipped.args_left -= 1;
            skipped.bytes_left = len + 2;
            position = start;
        }
    }

    /// Keeps what has been parsed. It leaves the caller's vector, which may see other requests
    /// before this one goes on.
    #[cold]
    fn suspend(&mut self, ranges: &mut Vec<ArgRange>, args_left: usize, position: usize) {
        std::mem::swap(&mut self.parsed, ranges);
        ranges.clear();
        self.args_left = args_left;
        self.position = position;
    }
}

/// Whether a request of so many bytes and arguments takes more than one may.
#[inline]
fn exceeds(bytes: usize, args: usize, limits: &Limits) -> bool {
    bytes > limits.request_bytes_max.saturating_sub(args.saturating_mul(ARG_BYTES))
}

/// Reads `*count\r\n` at the start: the count, zero if it is negative, and the offset behind it.
#[inline(always)]
fn args_header(input: &[u8], limits: &Limits) -> Result<Option<(usize, usize)>, ProtocolError> {
    let (count, next) = match short_header(input, 0, b'*') {
        Some(header) => header,
        None => match long_args_header(input, limits)? {
            Some(header) => header,
            None => return Ok(None),
        },
    };
    let count = count.max(0) as usize;
    if count > UNAUTHENTICATED_ARGS_MAX && !limits.authenticated {
        return Err(ProtocolError::UnauthenticatedMultibulkLength);
    }
    if count > limits.args_max {
        return Err(ProtocolError::InvalidMultibulkLength);
    }
    Ok(Some((count, next)))
}

/// Reads `$length\r\n` at `at`: the length, and the offset behind the header.
#[inline(always)]
fn bulk_header(
    input: &[u8],
    at: usize,
    limits: &Limits,
) -> Result<Option<(usize, usize)>, ProtocolError> {
    let (len, next) = match short_header(input, at, b'$') {
        Some(header) => header,
        None => match long_bulk_header(input, at, limits)? {
            Some(header) => header,
            None => return Ok(None),
        },
    };
    // No header of either way gives a negative length.
    let len = len as usize;
    if len > limits.bulk_bytes_max {
        return Err(ProtocolError::InvalidBulkLength);
    }
    if len > UNAUTHENTICATED_BULK_BYTES_MAX && !limits.authenticated {
        return Err(ProtocolError::UnauthenticatedBulkLength);
    }
    Ok(Some((len, next)))
}

/// Reads a header with a number of one to three digits, which is nearly every one. Anything it
/// does not know, right or wrong, is left to the long way.
#[inline(always)]
fn short_header(input: &[u8], at: usize, marker: u8) -> Option<(i64, usize)> {
    let window: &[u8; SHORT_HEADER_BYTES_MAX] =
        input.get(at..)?.first_chunk::<SHORT_HEADER_BYTES_MAX>()?;
    let digit = |index: usize| window[index].wrapping_sub(b'0');
    if window[0] != marker || digit(1) > 9 {
        return None;
    }
    let mut number = i64::from(digit(1));
    if window[2] == b'\r' {
        return Some((number, at + 4));
    }
    // A leading zero is an error, which the long way reports.
    if digit(1) == 0 || digit(2) > 9 {
        return None;
    }
    number = number * 10 + i64::from(digit(2));
    if window[3] == b'\r' {
        return Some((number, at + 5));
    }
    if digit(3) > 9 || window[4] != b'\r' {
        return None;
    }
    Some((number * 10 + i64::from(digit(3)), at + 6))
}

#[inline(never)]
fn long_args_header(input: &[u8], limits: &Limits) -> Result<Option<(i64, usize)>, ProtocolError> {
    let Some(line) = header_line(input, limits).map_err(|_| ProtocolError::TooBigMultibulkCount)?
    else {
        return Ok(None);
    };
    let count = parse_integer(&line[1..]).ok_or(ProtocolError::InvalidMultibulkLength)?;
    Ok(Some((count, line.len() + 2)))
}

#[inline(never)]
fn long_bulk_header(
    input: &[u8],
    at: usize,
    limits: &Limits,
) -> Result<Option<(i64, usize)>, ProtocolError> {
    let Some(line) =
        header_line(&input[at..], limits).map_err(|_| ProtocolError::TooBigBulkCount)?
    else {
        return Ok(None);
    };
    if line.first() != Some(&b'$') {
        // An empty line shows its own end.
        return Err(ProtocolError::ExpectedBulk(line.first().copied().unwrap_or(b'\r')));
    }
    match parse_integer(&line[1..]) {
        Some(len) if len >= 0 => Ok(Some((len, at + line.len() + 2))),
        _ => Err(ProtocolError::InvalidBulkLength),
    }
}

/// No line end where there should have been one.
struct LineTooLong;

/// The line at the start of `input` without its end, once both bytes of the end have arrived.
/// A line that arrives byte by byte is searched again each time; it is short, or refused.
fn header_line<'a>(input: &'a [u8], limits: &Limits) -> Result<Option<&'a [u8]>, LineTooLong> {
    let searched = &input[..input.len().min(limits.inline_bytes_max + 1)];
    match memchr(b'\r', searched) {
        Some(end) if end + 2 <= input.len() => Ok(Some(&input[..end])),
        Some(_) => Ok(None),
        None if input.len() > limits.inline_bytes_max => Err(LineTooLong),
        None => Ok(None),
    }
}

/// Cuts one line and splits it into words.
///
/// A line longer than the limit is refused, also when it arrived with its end. (Redis takes
/// such a line if the end came in the same read, so that its answer depends on the network.)
fn parse_inline(
    input: &mut [u8],
    ranges: &mut Vec<ArgRange>,
    limits: &Limits,
) -> Result<Option<usize>, ProtocolError> {
    let searched = &input[..input.len().min(limits.inline_bytes_max + 1)];
    let Some(end) = memchr(b'\n', searched) else {
        if input.len() > limits.inline_bytes_max {
            return Err(ProtocolError::TooBigInline);
        }
        return Ok(None);
    };
    // A `\r` before the end is white space, so it needs no care of its own.
    split_words(&mut input[..end], ranges).map_err(|_| ProtocolError::UnbalancedQuotes)?;
    Ok(Some(end + 1))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::Args;

    /// One request as its words, or the error that ended the stream.
    type Parsed = Result<Vec<Vec<u8>>, ProtocolError>;

    /// Parses a stream that arrives in `pieces`, as a connection would.
    fn parse_pieces(pieces: &[&[u8]], limits: &Limits) -> Vec<Parsed> {
        let mut parser = RequestParser::new();
        let mut buffer = Vec::new();
        let mut parsed = Vec::new();
        for piece in pieces {
            buffer.extend_from_slice(piece);
            loop {
                // A fresh vector each time: the parser must not rely on the caller keeping it.
                let mut ranges = vec![ArgRange { start: 7, len: 7 }];
                match parser.parse(&mut buffer, &mut ranges, limits) {
                    Ok(Some(consumed)) => {
                        let args = Args::new(&buffer[..consumed], &ranges);
                        parsed.push(Ok(args.iter().map(<[u8]>::to_vec).collect()));
                        buffer.drain(..consumed);
                    }
                    Ok(None) => break,
                    Err(error) => {
                        parsed.push(Err(error));
                        return parsed;
                    }
                }
            }
        }
        parsed
    }

    fn parse_whole(input: &[u8]) -> Vec<Parsed> {
        parse_pieces(&[input], &Limits::default())
    }

    fn words(words: &[&str]) -> Parsed {
        Ok(words.iter().map(|word| word.as_bytes().to_vec()).collect())
    }

    #[test]
    fn a_request_too_large_is_passed_over_as_it_comes() {
        let limits = Limits { request_bytes_max: 1000, ..Limits::default() };
        let large = |len: usize| {
            let body = vec![b'$'; len];
            [
                b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$",
                len.to_string().as_bytes(),
                b"\r\n",
                &body,
                b"\r\n",
            ]
            .concat()
        };
        let many = [b"*11\r\n".to_vec(), b"$1\r\nk\r\n".repeat(11)].concat();
        for (request, announced) in [(large(900), 900), (large(100_000), 100_000), (many, 0)] {
            let stream = [&request[..], b"PING\r\n", &request[..], b"PING\r\n"].concat();
            for piece in [1, 7, 64] {
                let (mut parser, mut buffer, mut ranges) = (RequestParser::new(), vec![], vec![]);
                let (mut refused, mut answered, mut kept_max) = (0, 0, 0);
                for bytes in stream.chunks(piece) {
                    buffer.extend_from_slice(bytes);
                    while !buffer.is_empty()
                        && let Some(consumed) =
                            parser.parse(&mut buffer, &mut ranges, &limits).expect("no fault")
                    {
                        if let Some(bytes) = parser.take_refused() {
                            assert!(bytes > announced && refused == answered);
                            refused += 1;
                        } else if !ranges.is_empty() {
                            assert_eq!(&Args::new(&buffer[..consumed], &ranges)[0], b"PING");
                            answered += 1;
                        }
                        buffer.drain(..consumed);
                    }
                    kept_max = kept_max.max(buffer.len());
                }
                assert_eq!([refused, answered], [2, 2], "{announced} in pieces of {piece}");
                assert!(kept_max < 100, "{kept_max} bytes were kept");
            }
        }
    }

    #[test]
    fn parses_requests_as_redis_does() {
        let cases: &[(&str, Vec<Parsed>)] = &[
            ("", vec![]),
            ("*2\r\n$3\r\nGET\r\n$1\r\nk\r\n", vec![words(&["GET", "k"])]),
            ("*1\r\n$4\r\nPING\r\nPING\r\n", vec![words(&["PING"]), words(&["PING"])]),
            ("*1\r\n$0\r\n\r\n", vec![words(&[""])]),
            ("*0\r\n*1\r\n$4\r\nPING\r\n", vec![words(&[]), words(&["PING"])]),
            ("*-10\r\n\r\n\nPING\n", vec![words(&[]), words(&[]), words(&[]), words(&["PING"])]),
            ("*1\rX$4\rXPINGXX", vec![words(&["PING"])]),
            ("*1\r\n$12\r\nabcdefghijkl\r\n", vec![words(&["abcdefghijkl"])]),
            ("ECHO \"a\\x41\"\r\n", vec![words(&["ECHO", "aA"])]),
            ("PING\r", vec![]),
            ("*1\r\n$4\r\nPING\r", vec![]),
            ("*1\r", vec![]),
            ("*1\r\n$536870912\r\n", vec![]),
            ("*1048576\r\n", vec![]),
        ];
        for (input, expected) in cases {
            assert_eq!(&parse_whole(input.as_bytes()), expected, "{input:?}");
        }
    }

    #[test]
    fn refuses_what_redis_refuses_with_its_texts() {
        let cases: &[(&str, &str)] = &[
            ("*x\r\n", "invalid multibulk length"),
            ("*\r\n", "invalid multibulk length"),
            ("*01\r\n", "invalid multibulk length"),
            ("*+1\r\n", "invalid multibulk length"),
            ("*-0\r\n", "invalid multibulk length"),
            ("* 1\r\n", "invalid multibulk length"),
            ("*1\n$4\r\n", "invalid multibulk length"),
            ("*1048577\r\n", "invalid multibulk length"),
            ("*99999999999999999999\r\n", "invalid multibulk length"),
            ("*-9223372036854775809\r\n", "invalid multibulk length"),
            ("*1\r\n:4\r\n", "expected '$', got ':'"),
            ("*1\r\n\r\n", "expected '$', got ' '"),
            ("*1\r\n\n4\r\n", "expected '$', got ' '"),
            ("*1\r\n$-1\r\n", "invalid bulk length"),
            ("*1\r\n$\r\n", "invalid bulk length"),
            ("*1\r\n$x\r\n", "invalid bulk length"),
            ("*1\r\n$04\r\nPING\r\n", "invalid bulk length"),
            ("*1\r\n$4\nPING\r\n", "invalid bulk length"),
            ("*1\r\n$536870913\r\n", "invalid bulk length"),
            ("*1\r\n$2147483648\r\n", "invalid bulk length"),
            ("\"\r\n", "unbalanced quotes in request"),
        ];
        for (input, text) in cases {
            let parsed = parse_whole(input.as_bytes());
            let error = parsed.last().unwrap().as_ref().unwrap_err();
            assert_eq!(error.to_string(), format!("Protocol error: {text}"), "{input:?}");
        }
    }

    #[test]
    fn refuses_lines_without_end() {
        let cases: &[(&[u8], u8, ProtocolError)] = &[
            (b"*", b'1', ProtocolError::TooBigMultibulkCount),
            (b"*1\r\n$", b'1', ProtocolError::TooBigBulkCount),
            (b"", b'a', ProtocolError::TooBigInline),
            (b"", 0, ProtocolError::TooBigInline),
        ];
        let line_max = Limits::default().inline_bytes_max;
        for (start, filler, error) in cases {
            let header_start = if start.len() > 1 { start.len() - 1 } else { 0 };
            let mut input = start.to_vec();
            input.resize(header_start + line_max, *filler);
            assert_eq!(parse_whole(&input), [], "{error:?} came early");
            input.push(*filler);
            assert_eq!(parse_whole(&input), [Err(*error)]);
        }
    }

    #[test]
    fn takes_the_longest_inline_command() {
        let line_max = Limits::default().inline_bytes_max;
        let mut input = vec![b'a'; line_max];
        input.push(b'\n');
        assert_eq!(parse_whole(&input), [Ok(vec![vec![b'a'; line_max]])]);
        input.insert(0, b'a');
        assert_eq!(parse_whole(&input), [Err(ProtocolError::TooBigInline)]);
    }

    #[test]
    fn limits_clients_that_have_not_authenticated() {
        let limits = Limits { authenticated: false, ..Limits::default() };
        let cases: &[(&[u8], &[Parsed])] = &[
            (b"*11\r\n", &[Err(ProtocolError::UnauthenticatedMultibulkLength)]),
            (b"*1\r\n$16385\r\n", &[Err(ProtocolError::UnauthenticatedBulkLength)]),
            (b"*1\r\n$536870913\r\n", &[Err(ProtocolError::InvalidBulkLength)]),
            (b"*10\r\n$16384\r\n", &[]),
        ];
        for (input, expected) in cases {
            assert_eq!(&parse_pieces(&[input], &limits), expected);
        }
    }

    #[test]
    fn says_how_long_a_request_will_be() {
        let mut parser = RequestParser::new();
        let (mut ranges, limits) = (Vec::new(), Limits::default());
        let mut parts = b"*100\r\n$4\r\nSADD\r\n$1\r\ns\r\n".to_vec();
        assert_eq!(parser.bytes_expected(), 0);
        for (more, expected) in [(&b""[..], 98 * 11 + 23), (b"$5000\r\n", 30 + 5002)] {
            parts.extend(more);
            assert_eq!(parser.parse(&mut parts, &mut ranges, &limits), Ok(None));
            assert_eq!(parser.bytes_expected(), expected);
        }
        let mut whole = b"PING\r\n".to_vec();
        let mut parser = RequestParser::new();
        assert_eq!(parser.parse(&mut whole, &mut ranges, &limits), Ok(Some(6)));
        assert_eq!(parser.bytes_expected(), 0);
    }

    #[test]
    fn says_how_much_of_an_argument_is_missing() {
        let mut parser = RequestParser::new();
        let mut ranges = Vec::new();
        let limits = Limits::default();
        let mut input = b"*2\r\n$3\r\nGET\r\n$1000\r\n".to_vec();
        for expected in [1002, 1001] {
            assert_eq!(parser.parse(&mut input, &mut ranges, &limits), Ok(None));
            assert_eq!(parser.bytes_wanted(), expected);
            input.push(b'x');
        }
        input.resize(input.len() + 1000, b'x');
        assert_eq!(parser.parse(&mut input, &mut ranges, &limits), Ok(Some(input.len())));
        assert_eq!(parser.bytes_wanted(), 0);
        assert_eq!(ranges.iter().map(|range| range.len).collect::<Vec<_>>(), [3, 1000]);
    }

    #[test]
    fn an_unexpected_byte_is_shown_as_it_came() {
        assert_eq!(
            ProtocolError::ExpectedBulk(0xff).to_bytes(),
            b"Protocol error: expected '$', got '\xff'"
        );
    }

    /// Bytes that are nearly requests, so that the deep branches are reached.
    fn stream() -> impl Strategy<Value = Vec<u8>> {
        let token = prop_oneof![
            8 => (0usize..40).prop_map(|len| {
                let mut bulk = format!("${len}\r\n").into_bytes();
                bulk.resize(bulk.len() + len, b'v');
                bulk.extend_from_slice(b"\r\n");
                bulk
            }),
            4 => (-1i64..6).prop_map(|count| format!("*{count}\r\n").into_bytes()),
            2 => "[a-z\"'\\\\ ]{0,9}\r?\n".prop_map(String::into_bytes),
            1 => proptest::collection::vec(any::<u8>(), 0..4),
            1 => Just(b"$1000\r\n".to_vec()),
        ];
        proptest::collection::vec(token, 0..20).prop_map(|tokens| tokens.concat())
    }

    proptest! {
        #[test]
        fn result_does_not_depend_on_how_the_bytes_arrive(
            input in stream(),
            cuts in proptest::collection::vec(any::<prop::sample::Index>(), 0..12),
        ) {
            let mut offsets: Vec<usize> = cuts.iter().map(|cut| cut.index(input.len() + 1)).collect();
            offsets.extend([0, input.len()]);
            offsets.sort_unstable();
            let pieces: Vec<&[u8]> = offsets.windows(2).map(|pair| &input[pair[0]..pair[1]]).collect();
            let single: Vec<&[u8]> = input.chunks(1).collect();
            let limits = Limits { inline_bytes_max: 24, bulk_bytes_max: 100, ..Limits::default() };
            let whole = parse_pieces(&[&input], &limits);
            prop_assert_eq!(&parse_pieces(&pieces, &limits), &whole);
            prop_assert_eq!(&parse_pieces(&single, &limits), &whole);
        }

        #[test]
        fn reads_back_what_was_sent(
            requests in proptest::collection::vec(
                proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..1200), 1..5), 0..4),
        ) {
            let mut input = Vec::new();
            for request in &requests {
                input.extend_from_slice(format!("*{}\r\n", request.len()).as_bytes());
                for word in request {
                    input.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
                    input.extend_from_slice(word);
                    input.extend_from_slice(b"\r\n");
                }
            }
            let expected: Vec<Parsed> = requests.into_iter().map(Ok).collect();
            prop_assert_eq!(parse_whole(&input), expected);
        }
    }
}
