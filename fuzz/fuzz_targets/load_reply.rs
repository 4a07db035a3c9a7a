//! The load generator's reader of replies: whatever arrives, it does not panic, takes every byte
//! once, tells the same replies however the stream is cut, and ends a reply where the server's own
//! parser ends it.

#![no_main]

use bench::reply::{Event, Malformed, Parser};
use libfuzzer_sys::fuzz_target;
use resp::parse_frame;

/// Bytes of the input that say where to cut.
const CUTS: usize = 6;

/// What bytes stand for when the stream is spelled in pieces of replies, so that deep ones are
/// found soon. All other bytes stand for themselves.
const PIECES: [&[u8]; 20] = [
    b"+OK\r\n",
    b"-ERR no\r\n",
    b":1\r\n",
    b"$-1\r\n",
    b"_\r\n",
    b"$0\r\n\r\n",
    b"$1\r\nk\r\n",
    b"$5\r\n",
    b"\r\n",
    b"*1\r\n",
    b"*2\r\n",
    b"*0\r\n",
    b"*-1\r\n",
    b"%1\r\n",
    b"~2\r\n",
    b"*9223372036854775807\r\n",
    b"=5\r\ntxt:a\r\n",
    b"#t\r\n",
    b",1.5\r\n",
    b"-0123456789012345678901234567890123456789012345678901234567890123456789",
];

#[derive(Debug, PartialEq)]
enum Told {
    Status,
    Error(Vec<u8>),
    Null,
    Bulk(Vec<u8>),
    /// A whole reply has ended.
    End,
}

fuzz_target!(|input: &[u8]| {
    let Some((head, stream)) = input.split_first_chunk::<{ CUTS + 1 }>() else {
        return;
    };
    let stream = &if head[CUTS] & 1 == 0 { stream.to_vec() } else { spell(stream) };
    let mut offsets: Vec<usize> =
        head[..CUTS].iter().map(|cut| usize::from(*cut) * (stream.len() + 1) / 256).collect();
    offsets.extend([0, stream.len()]);
    offsets.sort_unstable();
    let pieces: Vec<&[u8]> = offsets.windows(2).map(|pair| &stream[pair[0]..pair[1]]).collect();
    let whole = read(&[stream]);
    assert_eq!(read(&pieces), whole);
    agree(stream);
});

fn spell(stream: &[u8]) -> Vec<u8> {
    let piece = |byte: &u8| match PIECES.get(usize::from(*byte)) {
        Some(piece) => piece.to_vec(),
        None => vec![*byte],
    };
    stream.iter().flat_map(piece).collect()
}

/// All that is told of the pieces, and whether they made sense to the end.
fn read(pieces: &[&[u8]]) -> (Vec<Told>, Result<(), Malformed>) {
    let (mut parser, mut told, mut body) = (Parser::default(), Vec::new(), Vec::new());
    for piece in pieces {
        let mut rest = *piece;
        while !rest.is_empty() {
            let (used, event) = match parser.next(rest) {
                Ok(step) => step,
                Err(error) => return (told, Err(error)),
            };
            assert!(used > 0 && used <= rest.len());
            rest = &rest[used..];
            let ended = match event {
                None => false,
                Some(event) => tell(event, &mut body, &mut told),
            };
            if ended && parser.is_between_replies() {
                told.push(Told::End);
            }
        }
    }
    (told, Ok(()))
}

/// Adds an event; whether it ends an element.
fn tell(event: Event<'_>, body: &mut Vec<u8>, told: &mut Vec<Told>) -> bool {
    match event {
        Event::Status => told.push(Told::Status),
        Event::Null => told.push(Told::Null),
        Event::Error(text) => told.push(Told::Error(text.to_vec())),
        Event::Bulk { size, offset, bytes, end } => {
            assert_eq!(offset, body.len());
            body.extend_from_slice(bytes);
            if !end {
                return false;
            }
            assert_eq!(size, body.len());
            told.push(Told::Bulk(std::mem::take(body)));
        }
    }
    true
}

/// The first reply ends where the other parser says, if both take it for one.
fn agree(stream: &[u8]) {
    let Ok(Some((_, expected))) = parse_frame(stream) else { return };
    let (mut parser, mut taken) = (Parser::default(), 0);
    while taken < stream.len() {
        let Ok((used, event)) = parser.next(&stream[taken..]) else { return };
        taken += used;
        let ended = match event {
            None => false,
            Some(Event::Bulk { end, .. }) => end,
            Some(_) => true,
        };
        if ended && parser.is_between_replies() {
            agree_on_rest(&mut parser, &stream[taken..expected]);
            return;
        }
    }
    panic!("a reply of {expected} bytes does not end");
}

/// A text that is too long is told before its line ends: nothing more may be.
fn agree_on_rest(parser: &mut Parser, mut rest: &[u8]) {
    while !rest.is_empty() {
        let Ok((used, event)) = parser.next(rest) else { return };
        assert_eq!(event, None);
        rest = &rest[used..];
    }
}
