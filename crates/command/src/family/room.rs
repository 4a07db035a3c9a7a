//! Room in a reply.

use keyspace::Key;
use resp::Reply;
use stdx::size_class;

use crate::cx::Cx;
use crate::error::{CommandError, CommandResult};

/// Bytes that a reply has around an element, beyond those that a leaf has around it.
pub(super) const FRAME_BYTES: u64 = 8;

/// Whether a reply of what a key holds, which may come to `reply_bytes_max`, may have so many bytes more.
///
/// Errors: [`CommandError::ReplyTooLong`].
pub(super) fn check_room(
    key: &Key<'_>,
    bytes: u64,
    reply_bytes_max: usize,
    reply: &Reply,
) -> CommandResult {
    match (reply.full_len() as u64).saturating_add(bytes) > reply_bytes_max as u64 {
        true => Err(CommandError::too_long_of(key, bytes)),
        false => Ok(()),
    }
}

/// The same of a command that makes copies: the memory is for these, and its reply is short or counts among
/// them.
///
/// Errors: [`CommandError::ReplyTooLong`].
pub(super) fn check_stored(
    key: &Key<'_>,
    bytes: u64,
    reply_bytes_max: usize,
    reply: &Reply,
) -> CommandResult {
    check_room(key, bytes, reply_bytes_max, reply).map_err(CommandError::of_copies)
}

/// Whether a command may hold so many bytes while it runs: copies of what keys hold, of which it makes a
/// value. More than a little is reserved, as for a reply, before it runs again.
///
/// Errors: [`CommandError::OUT_OF_MEMORY`], if that is never possible; [`CommandError::ReplyTooLong`].
pub(super) fn check_copies(
    cx: &Cx<'_, '_>,
    key: &Key<'_>,
    bytes: u64,
    reply: &Reply,
) -> CommandResult {
    cx.check_memory(usize::try_from(bytes).unwrap_or(usize::MAX))?;
    check_stored(key, bytes, cx.reply_bytes_max, reply)
}

/// A string grows by this without asking for memory first: writers are held to `maxmemory` by what has been
/// allocated, and to run twice costs more than that. Of more, a few clients overrun it between two measurements.
const GROWTH_BYTES_FREE: usize = 64 << 10;

/// A long string that grows by a part of its length moves to where it fits, and is there twice meanwhile: from
/// this length on it asks for that.
const MOVED_BYTES_FREE: usize = 1 << 20;

/// Whether a string of `old_len` bytes (0: there is none) may be lengthened to `len`, for which it may have
/// to be copied.
///
/// Errors: [`CommandError::OUT_OF_MEMORY`], if that is never possible; [`CommandError::ReplyTooLong`].
pub(super) fn check_lengthened(
    cx: &Cx<'_, '_>,
    key: &Key<'_>,
    (old_len, len): (usize, usize),
    reply: &Reply,
) -> CommandResult {
    if len <= old_len {
        return Ok(());
    }
    cx.check_memory(len)?;
    // Within its size class a string grows where it is.
    let moves = len > MOVED_BYTES_FREE && size_class(len) != size_class(old_len);
    match len - old_len > GROWTH_BYTES_FREE || moves {
        true => check_stored(key, len as u64, cx.reply_bytes_max, reply),
        false => Ok(()),
    }
}

/// Elements of a reply that may not be longer than there is memory for. One that does not fit is left out, and
/// so are those behind it, but they are counted, so that memory for all of them is asked for.
pub(super) struct Room {
    bytes_max: usize,
    left_out: u64,
}

impl Room {
    /// In a reply that may come to `bytes_max`.
    pub(super) fn new(bytes_max: usize) -> Room {
        Room { bytes_max, left_out: 0 }
    }

    /// Whether an element is written that takes so many bytes, with what stands around it.
    pub(super) fn takes(&mut self, bytes: u64, reply: &Reply) -> bool {
        let fits = reply.full_len() as u64 + bytes <= self.bytes_max as u64;
        if self.left_out > 0 || !fits {
            self.left_out += bytes;
        }
        self.left_out == 0
    }

    /// Ends a reply of what `key` holds.
    ///
    /// Errors: [`CommandError::ReplyTooLong`].
    pub(super) fn end(&self, key: &Key<'_>, reply: &Reply) -> CommandResult {
        match self.left_out {
            0 => Ok(()),
            left_out => Err(CommandError::too_long_of(key, reply.full_len() as u64 + left_out)),
        }
    }
}

/// What a reply comes to before it is written, for lists that are gathered first.
pub(super) struct Gathering<'k> {
    key: Key<'k>,
    bytes_max: u64,
    bytes: u64,
    is_for_copies: bool,
}

impl<'k> Gathering<'k> {
    /// Of a reply of what a key holds, which may come to `reply_bytes_max` with what it has now.
    pub(super) fn new(key: &Key<'k>, reply_bytes_max: usize, reply: &Reply) -> Gathering<'k> {
        let bytes_max = reply_bytes_max.saturating_sub(reply.full_len()) as u64;
        Gathering { key: *key, bytes_max, bytes: 0, is_for_copies: false }
    }

    /// Says that what is gathered is copies, and that a reply which is made of them counts besides: its buffer
    /// is allocated when it is known how long it is.
    pub(super) fn of_copies(self) -> Gathering<'k> {
        Gathering { is_for_copies: true, ..self }
    }

    /// What may still be counted.
    pub(super) fn bytes_left(&self) -> u64 {
        self.bytes_max.saturating_sub(self.bytes)
    }

    /// Whether there would be memory for so many bytes more. Errors: [`CommandError::ReplyTooLong`].
    pub(super) fn check_with(&self, bytes: u64) -> CommandResult {
        match self.bytes + bytes > self.bytes_max && bytes > 0 {
            true => Err(self.too_long(self.bytes + bytes)),
            false => Ok(()),
        }
    }

    #[cold]
    fn too_long(&self, bytes: u64) -> CommandError {
        let error = CommandError::too_long_of(&self.key, bytes);
        if self.is_for_copies { error.of_copies() } else { error }
    }

    /// What was counted so far.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Counts so many bytes more. Whether there is memory for all so far.
    pub(super) fn take(&mut self, bytes: usize) -> bool {
        self.bytes += bytes as u64;
        self.bytes <= self.bytes_max
    }

    /// Whether there is memory for all that was counted. Errors: [`CommandError::ReplyTooLong`].
    pub(super) fn check(&self) -> CommandResult {
        match self.bytes > self.bytes_max && self.bytes > 0 {
            true => Err(self.too_long(self.bytes)),
            false => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::harness::Harness;

    const COUNT: usize = 600;

    /// To ask costs a run, which is worth it only where a long string has to move.
    #[test]
    fn a_long_string_asks_when_it_moves() {
        let mut server = Harness::new(false);
        server.reply_bytes_free = 256;
        for (line, runs) in [
            ("SETBIT k 8388607 1", 2),
            // From here on it is in a place of 1.25 MiB.
            ("APPEND k x", 2),
            ("APPEND k x", 1),
            ("SETRANGE k 1100000 x", 1),
            ("SETRANGE k 1310719 x", 2),
            ("APPEND k x", 2),
            ("SETRANGE k 0 x", 1),
            ("SETBIT short 500000 1", 1),
            ("SETBIT short 1000000 1", 1),
            ("SETBIT short 1600000 1", 2),
        ] {
            server.run(line);
            assert_eq!(server.runs, runs, "{line}");
        }
    }

    /// Collections of so many elements, of which some, the last of those that have an order, are longer.
    fn fill(server: &mut Harness, (len, long, long_len): (usize, usize, usize)) {
        let name = |number: usize| {
            let len = if number + long >= COUNT { long_len } else { len };
            format!("{number:x}{}", "x".repeat(len))
        };
        let joined = |word: &dyn Fn(usize) -> String| (0..COUNT).map(word).collect::<String>();
        server.run(&format!("HSET h{}", joined(&|number| format!(" {} v", name(number)))));
        server.run(&format!("SADD s{}", joined(&|number| format!(" {}", name(number)))));
        server.run(&format!("RPUSH l{}", joined(&|number| format!(" {}", name(number)))));
        let scored = joined(&|number| format!(" {number} {}", name(number)));
        server.run(&format!("ZADD z{scored}"));
        server.run(&format!("ZADD y{scored}"));
        let placed = joined(&|number| format!(" 13.{number:04} 38.1 {}", name(number)));
        server.run(&format!("GEOADD g{placed}"));
        for (name, piece) in [("left", "abcd"), ("right", "dabc")] {
            server.run(&format!("SET {name} {}", piece.repeat(200)));
        }
        let long = "x".repeat(1_000);
        for line in [format!("HSET hash {long} v"), format!("ZADD zset 1 {long}")] {
            server.run(&line);
        }
    }

    /// The harness sees to it that no reply is longer than was granted.
    #[test]
    fn a_long_reply_is_asked_for_once() {
        let lines = [
            "HGETALL h",
            "HKEYS h",
            "HVALS h",
            "HRANDFIELD hash",
            "HRANDFIELD h 300 WITHVALUES",
            "HRANDFIELD h -300 WITHVALUES",
            "HRANDFIELD h 600 WITHVALUES",
            "SMEMBERS s",
            "SRANDMEMBER s",
            "SRANDMEMBER s 300",
            "SRANDMEMBER s -300",
            "SRANDMEMBER s 600",
            "SUNION s",
            "LRANGE l 0 -1",
            "LRANGE l 300 -1",
            "SORT s ALPHA",
            "ZRANGE z 0 -1 WITHSCORES",
            "ZRANGE z 300 -1 WITHSCORES",
            "ZRANGE z 0 -1 REV",
            "ZRANDMEMBER zset",
            "ZRANDMEMBER z 300 WITHSCORES",
            "ZRANDMEMBER z -300 WITHSCORES",
            "SORT l ALPHA STORE to",
            "SORT l BY nosort GET # GET # STORE to",
            "SORT l BY nosort LIMIT 300 300 STORE to",
            "SORT s ALPHA BY missing_* STORE to",
            "SUNIONSTORE to s",
            "SINTERSTORE to s s",
            "SINTERCARD 1 s",
            "ZUNIONSTORE to 2 z y",
            "ZINTERCARD 2 z y",
            "ZRANGESTORE to z 0 -1",
            "GEOSEARCHSTORE to g FROMLONLAT 13 38 BYRADIUS 999 km",
            "ZUNION 2 z y WITHSCORES",
            "ZINTER 2 z y WITHSCORES",
            "ZDIFF 2 z missing WITHSCORES",
            "GEOSEARCH g FROMLONLAT 13 38 BYRADIUS 999 km WITHCOORD WITHDIST WITHHASH",
            "GEOSEARCH g FROMLONLAT 13 38 BYRADIUS 999 km",
            "ZPOPMAX z 200",
            "ZPOPMIN z 300",
            "ZMPOP 1 z MIN COUNT 90",
            "LPOP l 200",
            "RPOP l 200",
            "LMPOP 1 l LEFT COUNT 150",
            "SPOP s",
            "SPOP s 300",
            "SPOP s 200",
            "SPOP s 600",
            "LCS left right",
            "LCS left right IDX",
            "LCS left right LEN",
        ];
        for demote in [false, true] {
            for sizes in [(0, 0, 0), (20, 0, 0), (0, 60, 1_000)] {
                let mut server = Harness::new(demote);
                fill(&mut server, sizes);
                server.reply_bytes_free = 256;
                for line in lines {
                    let reply = server.run(line);
                    assert!(reply.len() > 1 && !reply.starts_with('-'), "{line}: {reply:.100}");
                    // If those that are wanted are longer than others, that is known when they have been
                    // met. SORT and GEOSEARCH copy all of them first, SORT then what they are sorted by.
                    let more = match line.starts_with("SORT") || line.starts_with("GEO") {
                        true => 1 + u32::from(line.contains("ALPHA BY")),
                        false => u32::from(sizes.1 > 0),
                    };
                    let runs_max = 2 + more + 4 * u32::from(demote);
                    assert!(server.runs <= runs_max, "{line} {sizes:?}: {} runs", server.runs);
                }
            }
        }
    }
}
