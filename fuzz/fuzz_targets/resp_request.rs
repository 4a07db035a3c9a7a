//! The request parser: whatever arrives, in whatever pieces, it does not panic, its ranges lie in
//! the bytes it was given, and the requests are those of the bytes in one piece. Where requests that announce too
//! much are refused, all others are the same.

#![no_main]

use libfuzzer_sys::fuzz_target;
use resp::{ArgRange, Args, Limits, ProtocolError, RequestParser};

/// Bytes of the input that say where to cut and what the limits are; the rest is the stream.
const CUTS: usize = 6;

/// A request's words, or the error that ends the stream.
type Parsed = Result<Vec<Vec<u8>>, ProtocolError>;

/// What bytes stand for when the stream is spelled in pieces of requests, so that deep ones are
/// found soon. All other bytes stand for themselves.
const PIECES: [&[u8]; 16] = [
    b"*1\r\n",
    b"*2\r\n",
    b"*3\r\n",
    b"*0\r\n",
    b"*-1\r\n",
    b"*16\r\n",
    b"$0\r\n\r\n",
    b"$1\r\nk\r\n",
    b"$3\r\nGET\r\n",
    b"$3\r\n",
    b"$12\r\nabcdefghijkl\r\n",
    b"$100\r\n",
    b"$16385\r\n",
    b"\r\n",
    b"PING\r\n",
    b"\"\\x41",
];

fuzz_target!(|input: &[u8]| {
    let Some((head, stream)) = input.split_first_chunk::<{ CUTS + 1 }>() else {
        return;
    };
    let stream = &if head[CUTS] & 4 == 0 { stream.to_vec() } else { spell(stream) };
    let limits = Limits {
        bulk_bytes_max: 1 << 16,
        inline_bytes_max: if head[CUTS] & 2 == 0 { 32 } else { 64 << 10 },
        args_max: 1 << 20,
        request_bytes_max: usize::MAX,
        authenticated: head[CUTS] & 1 == 0,
    };
    let mut offsets: Vec<usize> =
        head[..CUTS].iter().map(|cut| usize::from(*cut) * (stream.len() + 1) / 256).collect();
    offsets.extend([0, stream.len()]);
    offsets.sort_unstable();
    let pieces: Vec<&[u8]> = offsets.windows(2).map(|pair| &stream[pair[0]..pair[1]]).collect();
    let (all, _) = parse(&[stream], &limits);
    assert_eq!(parse(&pieces, &limits), (all.clone(), 0));
    let limits = Limits { request_bytes_max: usize::from(head[CUTS]) << 3, ..limits };
    let (some, refused) = parse(&pieces, &limits);
    are_all_but(&some, refused, &all);
});

/// The first requests are the second ones, without so many that were refused.
fn are_all_but(some: &[Parsed], refused: usize, all: &[Parsed]) {
    let is_request = |parsed: &&Parsed| !matches!(parsed, Ok(words) if words.is_empty());
    let mut some = some.iter().filter(is_request).peekable();
    let missing = all.iter().filter(is_request).filter(|parsed| some.next_if_eq(parsed).is_none());
    // One that was refused may end behind the stream, or with the error that all have.
    assert!(missing.count() <= refused);
    assert_eq!(some.next(), None);
}

fn spell(stream: &[u8]) -> Vec<u8> {
    let piece = |byte: &u8| match PIECES.get(usize::from(*byte)) {
        Some(piece) => piece.to_vec(),
        None => vec![*byte],
    };
    stream.iter().flat_map(piece).collect()
}

/// What is parsed, and how many requests were refused.
fn parse(pieces: &[&[u8]], limits: &Limits) -> (Vec<Parsed>, usize) {
    let mut parser = RequestParser::new();
    let mut buffer = Vec::new();
    let (mut parsed, mut refused) = (Vec::new(), 0);
    for piece in pieces {
        let wanted = parser.bytes_wanted();
        buffer.extend_from_slice(piece);
        loop {
            // What a caller leaves in its vector is none of the parser's business.
            let mut ranges = vec![ArgRange { start: u32::MAX, len: u32::MAX }];
            let result = parser.parse(&mut buffer, &mut ranges, limits);
            refused += usize::from(parser.take_refused().is_some());
            // What is kept is of what has arrived, not of what was announced.
            assert!(parser.memory_bytes() <= 4 * size_of::<ArgRange>() * (buffer.len() + 4));
            match result {
                Ok(Some(consumed)) => {
                    assert!(consumed > 0 && consumed <= buffer.len());
                    assert_eq!(parser.bytes_wanted(), 0);
                    // Panics if a range is out of bounds.
                    let args = Args::new(&buffer[..consumed], &ranges);
                    parsed.push(Ok(args.iter().map(<[u8]>::to_vec).collect()));
                    buffer.drain(..consumed);
                }
                Ok(None) => {
                    assert!(ranges.is_empty());
                    break;
                }
                Err(error) => {
                    assert!(ranges.is_empty());
                    parsed.push(Err(error));
                    return (parsed, refused);
                }
            }
        }
        if piece.len() < wanted {
            assert_eq!(parser.bytes_wanted(), wanted - piece.len());
        }
    }
    (parsed, refused)
}
