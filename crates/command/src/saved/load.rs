//! Values that are read from a file, in pieces: a large collection is never in memory as a whole.

use keyspace::Key;
use rdb::file::KeyPart;
use rdb::{Error, Item, ObjectType, Source, read_object};

use super::load_stream::{StreamCutter, StreamPiece};
use crate::collection::Encodings;
use crate::cx::Cx;
use crate::error::CommandResult;
use crate::family::restore::uses;
use crate::family::restored::{Gathered, Restored, item_bytes};

/// How large pieces are.
#[derive(Clone, Copy, Debug)]
pub struct PieceMax {
    /// Bytes that one takes on its way, from which on it is given away.
    pub bytes: u64,
    /// Elements likewise of the piece that makes a key.
    pub first_elements: usize,
    /// Elements of one that is added: each may need a leaf that is on flash.
    pub elements: usize,
    /// Bytes that an element, a string or what Redis has packed may take on its way.
    pub item_bytes: u64,
}

impl PieceMax {
    /// Whether a piece is full, the one that makes a key or another.
    pub(super) fn is_full(&self, bytes: u64, elements: usize, is_first: bool) -> bool {
        let elements_max = if is_first { self.first_elements } else { self.elements };
        bytes >= self.bytes || elements >= elements_max
    }
}

/// A piece of a value that was read: the first, or one that is added to what a key holds.
pub struct Piece {
    content: Content,
    bytes: u64,
}

enum Content {
    /// None once it was put.
    First(Option<Restored>),
    More(Restored),
    Stream(StreamPiece),
}

/// Reads the value of a key, and gives away its pieces in their order.
///
/// Errors: it is none; those of `give`; [`Error::Stopped`] if something takes more than `max.item_bytes`.
pub fn read_pieces(
    source: &mut impl Source,
    part: &KeyPart,
    encodings: &dyn Encodings,
    max: PieceMax,
    give: &mut impl FnMut(Piece) -> Result<(), Error>,
) -> Result<(), Error> {
    if part.object_type.is_stream() {
        return read_stream(source, part, encodings, max, give);
    }
    // What is packed is in memory as a whole: it stays so, since Redis would tell that of few elements, however
    // long they are.
    let max = match part.object_type.is_packed() {
        true => PieceMax { bytes: max.item_bytes / 2, first_elements: usize::MAX, ..max },
        false => max,
    };
    let (mut gathered, mut bytes, mut is_first) = (Gathered::default(), 0, true);
    let mut cut = |gathered: Gathered, bytes: u64, is_first: bool| {
        let restored = gathered.finish(part.object_type)?;
        let content = match is_first {
            true => Content::First(Some(restored)),
            false => Content::More(restored),
        };
        give(Piece { content, bytes })
    };
    read_object(source, part.object_type, &mut |item| {
        let more = item_bytes(&item);
        if more > max.item_bytes {
            return Err(Error::Stopped);
        }
        if max.is_full(bytes, gathered.len(), is_first) {
            let is_first = std::mem::replace(&mut is_first, false);
            cut(std::mem::take(&mut gathered), std::mem::take(&mut bytes), is_first)?;
        }
        gathered.add(&item);
        bytes += more;
        Ok(())
    })?;
    cut(gathered, bytes, is_first)
}

fn read_stream(
    source: &mut impl Source,
    part: &KeyPart,
    encodings: &dyn Encodings,
    max: PieceMax,
    give: &mut impl FnMut(Piece) -> Result<(), Error>,
) -> Result<(), Error> {
    let mut cutter = StreamCutter::new(encodings.stream_leaf(), max);
    let mut give = |(piece, bytes)| give(Piece { content: Content::Stream(piece), bytes });
    read_object(source, part.object_type, &mut |item| {
        if item_bytes(&item) > max.item_bytes {
            return Err(Error::Stopped);
        }
        let Item::Stream(item) = item else { unreachable!("a stream has nothing else") };
        cutter.add(item)?.map_or(Ok(()), &mut give)
    })?;
    cutter.finish()?.map_or(Ok(()), give)
}

impl Piece {
    /// A whole string.
    pub fn of_string(value: &[u8]) -> Piece {
        let (item, mut gathered) = (Item::String(value), Gathered::default());
        gathered.add(&item);
        let restored = gathered.finish(ObjectType::String);
        let content = Content::First(Some(restored.expect("invariant: a string is one")));
        Piece { content, bytes: item_bytes(&item) }
    }

    /// Bytes that it takes on its way.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether a key is made of it.
    pub fn is_first(&self) -> bool {
        matches!(&self.content, Content::First(_) | Content::Stream(StreamPiece::Begin(..)))
    }

    /// Makes a key of it, whatever that held, or adds it to what the key holds; if that is gone, it is no more. Once
    /// for each piece, but that it is done again after [`crate::CommandError::NotResident`].
    ///
    /// Errors: that; [`crate::CommandError::OUT_OF_MEMORY`], and nothing is changed; it is not a piece of the rest.
    pub fn put(&mut self, cx: &mut Cx<'_, '_>, part: &KeyPart) -> CommandResult {
        let key = Key::new(&part.key);
        let is_first = self.is_first();
        // Only eviction and expiry take it away: nobody else writes to it.
        if !is_first && !cx.exists(&key) {
            return Ok(());
        }
        match &mut self.content {
            Content::First(restored) => {
                let restored = restored.take().expect("invariant: it is put once");
                restored.store(cx, &key)?;
            }
            Content::More(restored) => restored.append(cx, &key)?,
            Content::Stream(piece) => piece.put(cx, &key)?,
        }
        if is_first {
            set_attributes(cx, &key, part);
        }
        Ok(())
    }
}

fn set_attributes(cx: &mut Cx<'_, '_>, key: &Key<'_>, part: &KeyPart) {
    if part.expire_at_ms > 0 {
        cx.db(key).set_expiry(key, part.expire_at_ms);
    }
    let idle_seconds = part.idle_seconds.map(|seconds| i64::try_from(seconds).unwrap_or(i64::MAX));
    if let Some(uses) = uses(idle_seconds, part.frequency.map(i64::from)) {
        cx.db(key).set_frequency(key, uses);
    }
}

#[cfg(test)]
mod tests {
    use rdb::payload::Payload;
    use resp::{ArgRange, Args, Reply};
    use value::parse_i64;

    use super::*;
    use crate::harness::Harness;

    const MAX: PieceMax =
        PieceMax { bytes: 4_000, first_elements: 60, elements: 30, item_bytes: 10_000 };

    /// Puts a piece of what DUMP has given: a key, the number of the piece, and the payload.
    fn put_piece(cx: &mut Cx<'_, '_>, args: Args<'_>, reply: &mut Reply) -> CommandResult {
        let payload = Payload::check(&args[3]).expect("a payload");
        let (object_type, mut bytes) = payload.object().expect("a type");
        let (expire_at_ms, idle_seconds, frequency) = (9_999_999_999_999, None, None);
        let key = args[1].to_vec();
        let part = KeyPart { db: 0, key, object_type, expire_at_ms, idle_seconds, frequency };
        let mut pieces = Vec::new();
        let read = read_pieces(&mut bytes, &part, cx.encodings, MAX, &mut |piece| {
            assert!(piece.bytes() < MAX.bytes + MAX.item_bytes);
            pieces.push(piece);
            Ok(())
        });
        read.expect("an object");
        let number = parse_i64(&args[2]).expect("a number") as usize;
        match pieces.get_mut(number) {
            Some(piece) => {
                assert_eq!(piece.is_first(), number == 0);
                piece.put(cx, &part)?;
                reply.ok();
            }
            None => reply.null(),
        }
        Ok(())
    }

    fn run(server: &mut Harness, words: &[&[u8]]) -> Vec<u8> {
        let ranges: Vec<ArgRange> = words
            .iter()
            .scan(0, |end, word| {
                let (start, len) = (*end, word.len() as u32);
                *end += len;
                Some(ArgRange { start, len })
            })
            .collect();
        let buffer = words.concat();
        let handler = (words[0] == b"RESTORE").then_some(put_piece as crate::Handler);
        server.run_args(Args::new(&buffer, &ranges), handler)
    }

    /// Fills a key so that its value has very many pieces. Returns what is asked of it afterwards.
    fn fill(server: &mut Harness, key: &str) -> &'static [&'static str] {
        for number in 0..1_500 {
            let line = match key {
                "hash" => format!("HSET hash field:{number} value:{number}"),
                "set" => format!("SADD set member:{number}"),
                "integers" => format!("SADD integers {}", number * 7_919),
                "list" => format!("RPUSH list {number} other:{number}"),
                "zset" => format!("ZADD zset {}.5 member:{number}", number * 7_919 % 1_000),
                _ => format!("XADD stream {number}-1 field value:{number}"),
            };
            server.run(&line);
        }
        match key {
            "hash" => {
                server.run("HPEXPIREAT hash 9999999999999 FIELDS 2 field:3 field:1400");
                &["HGETALL", "HLEN", "HPEXPIRETIME hash FIELDS 3 field:3 field:4 field:1400"]
            }
            "set" => &["SMEMBERS", "SCARD", "OBJECT ENCODING"],
            "integers" => &["SMEMBERS", "OBJECT ENCODING"],
            "list" => &["LRANGE list 0 -1", "LLEN"],
            "zset" => &["ZRANGE zset 0 -1 WITHSCORES", "ZCARD", "ZRANK zset member:700"],
            _ => {
                for line in [
                    "XDEL stream 3-1 1499-1",
                    "XGROUP CREATE stream one 0",
                    "XGROUP CREATE stream two $ ENTRIESREAD 4",
                    "XREADGROUP GROUP one alice COUNT 300 STREAMS stream >",
                    "XREADGROUP GROUP one bob COUNT 200 STREAMS stream >",
                    "XREADGROUP GROUP one alice COUNT 300 STREAMS stream >",
                    "XDEL stream 7-1",
                    "XACK stream one 9-1",
                ] {
                    server.run(line);
                }
                &[
                    "XRANGE stream - +",
                    "XLEN",
                    "XINFO GROUPS stream",
                    "XINFO CONSUMERS stream one",
                    "XPENDING stream one - + 10000",
                    "XPENDING stream one - + 10000 bob",
                ]
            }
        }
    }

    /// What is replied, in an order that does not depend on where elements stand.
    fn sorted(reply: &str) -> Vec<String> {
        let words = reply.split(' ').map(|word| word.trim_matches(['~', '{', '}', '[', ']', ',']));
        let mut words: Vec<String> = words.map(str::to_owned).collect();
        words.sort_unstable();
        words
    }

    #[test]
    fn pieces_come_to_what_they_were_cut_from() {
        for key in ["hash", "set", "integers", "list", "zset", "stream"] {
            for demote in [false, true] {
                let mut server = Harness::new(demote);
                let lines = fill(&mut server, key);
                let ask = |server: &mut Harness, line: &str| {
                    let line =
                        if line.contains(key) { line.to_owned() } else { format!("{line} {key}") };
                    sorted(&server.run(&line))
                };
                let expected: Vec<Vec<String>> =
                    lines.iter().map(|line| ask(&mut server, line)).collect();
                let dump = run(&mut server, &[b"DUMP", key.as_bytes()]);
                let start = dump.iter().position(|byte| *byte == b'\n').expect("a bulk") + 1;
                let payload = &dump[start..dump.len() - 2];
                server.run(&format!("DEL {key}"));
                let mut pieces = 0;
                loop {
                    let number = pieces.to_string();
                    let words = [b"RESTORE", key.as_bytes(), number.as_bytes(), payload];
                    let reply = run(&mut server, &words);
                    if reply != b"+OK\r\n" {
                        assert_eq!(reply, b"_\r\n", "{key}: {}", reply.escape_ascii());
                        break;
                    }
                    pieces += 1;
                }
                assert!(pieces > 20, "{key}: {pieces}");
                for (line, expected) in lines.iter().zip(expected) {
                    assert!(ask(&mut server, line) == expected, "{line} {key}, {demote}");
                }
                assert_eq!(server.run(&format!("PEXPIRETIME {key}")), ":9999999999999");
                server.check_counts();
            }
        }
    }
}
