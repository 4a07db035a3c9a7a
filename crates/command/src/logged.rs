//! What the journal is told of a run.
//!
//! A record says at which time its commands ran ([`crate::Record`]), and they are run again at that time, in their
//! order, on data as they were. So most commands are logged as they were sent, if they have changed something, also
//! those that reckon with the time. Their handler logs others in their place ([`Cx::log_as`])
//! - whose outcome follows from chance, from where leaves end, or from which key of theirs had something first
//!   (SPOP, XTRIM with `~`, BLPOP);
//! - whose outcome follows from arithmetic that may differ by a bit elsewhere (INCRBYFLOAT);
//! - that answer a value, which a replay would have to fetch from flash (GETDEL).
//!
//! What goes because its time has come, or for want of memory, is logged wherever that happens, in front of what the
//! run itself does.
//! - A key that has expired: a look at it (EXISTS), which removes it if its time has come by then. Some walks let go of
//!   the slot before they tell of it, and somebody may have made another key of that name.
//! - Fields that have expired: HDEL at time zero, when they are still there. A replay removes none by itself
//!   ([`Effects::of_replay`]), since it may have other leaves.
//! - A key that was evicted: DEL at time zero.
//!
//! While [`Classes::LOGGED`] is listened to, whoever has run a handler takes what the keyspace has noted
//! ([`Effects::take_notes`]), whether the run has ended or is to be made again ([`Effects::take_back`]), and adds the run
//! to a record ([`Effects::log`]), which is appended with the slots of the run still held, unless it is empty. A record is
//! made for the time of the run; a transaction has one for all its commands. Where keys go without a command, the time is
//! the one by which they have expired, or a later one.
//!
//! To replay, each command of a record ([`crate::Commands`]) is run in its database, at its time, with
//! [`Effects::of_replay`], never waiting, and without limits on strings, memory and replies. Nothing else may remove what
//! has expired until all records are replayed.

use std::ops::Range;

use keyspace::Key;
use resp::Args;

use crate::cx::Cx;
use crate::effect::{Classes, Effects};
use crate::journal_record::{At, Record, put_command};

/// An argument of a command that is logged.
#[derive(Clone, Copy, Debug)]
pub enum Arg<'a> {
    /// These bytes.
    Bytes(&'a [u8]),
    /// A number.
    Number(i64),
    /// One of the arguments as it was sent.
    Sent(usize),
    /// All of them from this one on.
    SentFrom(usize),
}

/// What is logged of a run beside, or instead of, the command as it was sent.
#[derive(Debug, Default)]
pub(crate) struct Logged {
    /// What has gone, as [`put_command`] writes it.
    gone: Vec<u8>,
    /// By when the keys of it that have expired had: Unix milliseconds.
    expired_ms: u64,
    /// What stands behind the command, likewise.
    behind: Vec<u8>,
    /// Whether the parts stand for the command, though they be none.
    is_replaced: bool,
    parts: Vec<Part>,
    text: Vec<u8>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    /// The end of a command.
    End,
    /// Bytes of the text.
    Text(Range<usize>),
    Sent(usize),
    SentFrom(usize),
}

impl Effects {
    /// Those of a command that is run again for what a record says of it.
    pub fn of_replay() -> Effects {
        Effects { keeps_expired: true, ..Effects::new(Classes::NONE, true) }
    }

    /// Whether the journal listens.
    #[inline]
    pub(crate) fn are_logged(&self) -> bool {
        self.listened.has(Classes::LOGGED)
    }

    /// Adds to a record what is to be logged of a run in a database, of a command of these arguments; of none, where
    /// keys have expired or were evicted without a command.
    #[inline(never)]
    pub fn log<'a>(&self, db: u8, args: Args<'a>, record: &mut Record<'a>) {
        let logged = self.told.as_ref().and_then(|told| told.logged.as_ref());
        if let Some(logged) = logged {
            record.add_commands(&logged.gone);
        }
        match logged.filter(|logged| logged.is_replaced) {
            Some(logged) => logged.add_parts(db, args, record),
            None if self.changes > 0 => record.add(db, args.iter()),
            None => {}
        }
        if let Some(logged) = logged {
            record.add_commands(&logged.behind);
        }
    }

    #[cold]
    fn logged(&mut self) -> &mut Logged {
        self.told().logged.get_or_insert_default()
    }

    /// Logs that a key has expired, whose time was `at_ms`.
    pub(crate) fn log_expired(&mut self, db: u8, key: &[u8], at_ms: u64) {
        let args = [&b"EXISTS"[..], key].into_iter();
        let logged = self.logged();
        put_command(&mut logged.gone, (db, At::ItsTime), args);
        logged.expired_ms = logged.expired_ms.max(at_ms);
    }

    /// The time of a record that is made at `now_ms` of what has gone without a command: a clock that was put back is
    /// not to have a replay find keys that had expired.
    pub fn time_of_gone(&self, now_ms: u64) -> u64 {
        let logged = self.told.as_ref().and_then(|told| told.logged.as_ref());
        now_ms.max(logged.map_or(0, |logged| logged.expired_ms))
    }

    /// Logs that a key was evicted.
    pub(crate) fn log_evicted(&mut self, db: u8, key: &[u8]) {
        let args = [&b"DEL"[..], key].into_iter();
        put_command(&mut self.logged().gone, (db, At::TimeZero), args);
    }

    /// Logs that fields of a hash have expired and were removed.
    pub(crate) fn log_expired_fields(&mut self, db: u8, key: &[u8], fields: &[Box<[u8]>]) {
        let mut args: Vec<&[u8]> = vec![b"HDEL", key];
        args.extend(fields.iter().map(|field| &**field));
        put_command(&mut self.logged().gone, (db, At::TimeZero), args.into_iter());
    }
}

impl Logged {
    /// Forgets what a run has logged that will be made again: what is gone stays so.
    pub(crate) fn take_back(&mut self) {
        let (gone, expired_ms) = (std::mem::take(&mut self.gone), self.expired_ms);
        *self = Logged { gone, expired_ms, ..Logged::default() };
    }

    fn replace(&mut self, args: &[Arg<'_>]) {
        self.is_replaced = true;
        for arg in args {
            let part = match arg {
                Arg::Bytes(bytes) => self.text_of(bytes),
                Arg::Number(number) => self.text_of(itoa::Buffer::new().format(*number).as_bytes()),
                Arg::Sent(index) => Part::Sent(*index),
                Arg::SentFrom(index) => Part::SentFrom(*index),
            };
            self.parts.push(part);
        }
        self.parts.push(Part::End);
    }

    fn text_of(&mut self, bytes: &[u8]) -> Part {
        let start = self.text.len();
        self.text.extend_from_slice(bytes);
        Part::Text(start..self.text.len())
    }

    fn add_parts<'a>(&self, db: u8, args: Args<'a>, record: &mut Record<'a>) {
        for command in self.parts.split_inclusive(|part| *part == Part::End) {
            let count = command.iter().map(|part| match part {
                Part::End => 0,
                Part::Text(_) | Part::Sent(_) => 1,
                Part::SentFrom(index) => args.from(*index).len(),
            });
            record.begin(db, count.sum());
            for part in command {
                match part {
                    Part::End => {}
                    Part::Text(range) => record.add_copy(&self.text[range.clone()]),
                    Part::Sent(index) => {
                        record.add_argument(args.get(*index).expect("invariant: it was sent"));
                    }
                    Part::SentFrom(index) => {
                        args.from(*index).iter().for_each(|arg| record.add_argument(arg));
                    }
                }
            }
        }
    }
}

impl Cx<'_, '_> {
    /// Whether the journal listens.
    #[inline]
    pub(crate) fn is_logged(&self) -> bool {
        self.effects.are_logged()
    }

    /// Has a command logged in place of the one that was sent; of several, all in their order. Whoever calls it has
    /// changed something. Cost: a look at a flag while there is no journal.
    #[inline]
    pub fn log_as(&mut self, args: &[Arg<'_>]) {
        if self.is_logged() {
            self.effects.logged().replace(args);
        }
    }

    /// Logs that fields of a hash have expired and were removed. If they were all there were, a replay has no key for
    /// the fields that the command adds next: the expiry of the key that there is then is logged behind.
    pub(crate) fn log_expired_fields(&mut self, key: &Key<'_>, fields: &[Box<[u8]>]) {
        let db = self.db;
        self.effects.log_expired_fields(db, key.bytes, fields);
        let expire_at_ms = self.peek(key).map_or(0, |view| view.expire_at_ms);
        if expire_at_ms > 0 {
            let mut number = itoa::Buffer::new();
            let at_ms = number.format(expire_at_ms).as_bytes();
            let args = [&b"PEXPIREAT"[..], key.bytes, at_ms];
            let behind = &mut self.effects.logged().behind;
            put_command(behind, (db, At::TimeZero), args.into_iter());
        }
    }
}

#[cfg(test)]
mod tests {
    use keyspace::{Keyspace, Note, Noted};

    use super::*;
    use crate::harness::{Harness, check_logged};
    use crate::wait::Waits;

    #[test]
    fn strings() {
        check_logged(&[
            ("SET k v", "SET k v"),
            ("SET k v NX", ""),
            ("SET k v EX 100", "SET k v EX 100"),
            ("SET k v GET", "SET k v"),
            ("SET k v XX GET KEEPTTL", "SET k v KEEPTTL"),
            ("SET k v GET PX 5000", "SET k v PXAT 1700000005000"),
            ("SET k v GET NX", ""),
            ("SET k v GET PXAT 1", "DEL k"),
            ("SET k v GET PXAT 1", ""),
            ("SET k v PXAT 1", ""),
            ("SETEX k 10 v", "SETEX k 10 v"),
            ("SET k v PXAT 1", "SET k v PXAT 1"),
            ("SETNX k v", "SETNX k v"),
            ("GETEX k", ""),
            ("GETEX k PERSIST", ""),
            ("GETEX k EX 100", "PEXPIREAT k 1700000100000"),
            ("GETEX k PERSIST", "PERSIST k"),
            ("GETEX k EXAT 1", "DEL k"),
            ("GETSET k v", "SET k v"),
            ("GETDEL k", "DEL k"),
            ("GETDEL k", ""),
            ("MSET a 1 b 2", "MSET a 1 b 2"),
            ("MSETNX a 1 c 2", ""),
            ("INCRBY a 5", "INCRBY a 5"),
            ("INCRBYFLOAT a 0.5", "SET a 6.5 KEEPTTL"),
            ("INCR a", ""),
            ("APPEND b 3", "APPEND b 3"),
            ("SETRANGE b 1 ''", ""),
            ("SETBIT bit 9 0", "SETBIT bit 9 0"),
            ("SETBIT bit 9 0", ""),
            ("BITFIELD f OVERFLOW FAIL SET u4 0 16", "BITFIELD f OVERFLOW FAIL SET u4 0 16"),
            ("BITFIELD f OVERFLOW FAIL SET u4 0 16", ""),
            ("BITFIELD f GET u4 0", ""),
            ("BITOP NOT not bit", "BITOP NOT not bit"),
            ("PFADD h a", "PFADD h a"),
            ("PFADD h a", ""),
            ("PFCOUNT h", "PFCOUNT h"),
            ("PFCOUNT h", ""),
        ]);
    }

    #[test]
    fn keys_of_any_type() {
        check_logged(&[
            ("MSET a 1 b 2 c 3", "MSET a 1 b 2 c 3"),
            ("DEL a x", "DEL a x"),
            ("DEL a x", ""),
            ("EXPIRE b 100", "EXPIRE b 100"),
            ("EXPIRE b 100 NX", ""),
            ("EXPIRE x 100", ""),
            ("PERSIST b", "PERSIST b"),
            ("PERSIST b", ""),
            ("EXPIRE b -1", "EXPIRE b -1"),
            ("RENAME c d", "RENAME c d"),
            ("RENAME d d", ""),
            ("COPY d e DB 3", "COPY d e DB 3"),
            ("COPY d e DB 3", ""),
            ("MOVE d 2", "MOVE d 2"),
            ("SELECT 2", ""),
            ("SET e 1", "2:SET e 1"),
            ("SWAPDB 2 3", "2:SWAPDB 2 3"),
            ("FLUSHDB", "2:FLUSHDB"),
            ("FLUSHALL", "2:FLUSHALL"),
            ("FLUSHALL", ""),
            ("GET d", ""),
        ]);
    }

    #[test]
    fn lists() {
        check_logged(&[
            ("RPUSH l a b c d e f", "RPUSH l a b c d e f"),
            ("LPUSHX x a", ""),
            ("LPOP l", "LPOP l"),
            ("RPOP l 0", ""),
            ("BLPOP x l 0", "lpop l"),
            ("BLMOVE l m LEFT RIGHT 0", "LMOVE l m LEFT RIGHT"),
            ("BRPOPLPUSH l m 0", "RPOPLPUSH l m"),
            ("LMPOP 2 x l LEFT", "lpop l 1"),
            ("BLMPOP 0 2 x l RIGHT COUNT 9", "rpop l 1"),
            ("BRPOP l 0", ""),
            ("LTRIM m 0 -1", ""),
            ("LREM m 0 x", ""),
            ("SORT m ALPHA STORE n", "SORT m ALPHA STORE n"),
            ("SORT m ALPHA", ""),
            ("SORT m BY w_* STORE n", "DEL n, RPUSH n c f"),
            ("SORT m BY nosort GET w_* STORE n", "DEL n, RPUSH n  "),
            ("SORT x BY w_* STORE n", "DEL n"),
            ("SORT x BY w_* STORE n", ""),
        ]);
    }

    #[test]
    fn sets_and_hashes() {
        check_logged(&[
            ("SADD s a", "SADD s a"),
            ("SADD s a", ""),
            ("SPOP s", "SREM s a"),
            ("SADD s a b", "SADD s a b"),
            ("SPOP s 0", ""),
            ("SPOP s 2", "DEL s"),
            ("SPOP s 2", ""),
            ("SADD s 1 2 3", "SADD s 1 2 3"),
            ("SUNIONSTORE t s", "SUNIONSTORE t s"),
            ("SDIFFSTORE o s t", ""),
            ("HSET h a 1 b 2", "HSET h a 1 b 2"),
            ("HSETNX h a 2", ""),
            ("HINCRBY h a 1", "HINCRBY h a 1"),
            ("HINCRBYFLOAT h a 0.5", "HSETEX h KEEPTTL FIELDS 1 a 2.5"),
            ("HEXPIRE h 10 FIELDS 1 b", "HEXPIRE h 10 FIELDS 1 b"),
            ("HEXPIRE h 10 NX FIELDS 1 b", ""),
            ("HGETEX h PERSIST FIELDS 1 b", "HGETEX h PERSIST FIELDS 1 b"),
            ("HGETDEL h FIELDS 1 b", "HGETDEL h FIELDS 1 b"),
            ("HDEL h b", ""),
        ]);
    }

    #[test]
    fn sorted_sets_and_streams() {
        check_logged(&[
            ("ZADD z 1 a 2 b 3 c 4 d", "ZADD z 1 a 2 b 3 c 4 d"),
            ("ZADD z 1 a", ""),
            ("ZINCRBY z 0.5 a", "ZINCRBY z 0.5 a"),
            ("ZPOPMIN z", "ZPOPMIN z"),
            ("BZPOPMAX x z 0", "zpopmax z 1"),
            ("ZMPOP 2 x z MIN COUNT 5", "zpopmin z 2"),
            ("BZPOPMIN z 0", ""),
            ("XADD s 1-1 f v", "XADD s 1-1 f v"),
            ("XADD s MAXLEN 1 * f v", "XADD s MAXLEN 1 * f v"),
            ("XADD s NOMKSTREAM MINID ~ 1 * f v", "XADD s MAXLEN = 2 * f v"),
            ("XTRIM s MAXLEN 2", ""),
            ("XGROUP CREATE s g 0", "XGROUP CREATE s g 0"),
            (
                "XREADGROUP GROUP g c COUNT 1 BLOCK 0 STREAMS s >",
                "XREADGROUP GROUP g c COUNT 1 BLOCK 0 STREAMS s >",
            ),
            ("XACK s g 1-1", ""),
            ("XTRIM s MAXLEN ~ 0", "XTRIM s MAXLEN = 0"),
        ]);
    }

    #[test]
    fn who_has_waited_is_logged_as_if_it_had_not() {
        for demote in [false, true] {
            let mut server = Harness::new(demote);
            server.run("XGROUP CREATE s g 0 MKSTREAM");
            server.run("XGROUP CREATE t g 0 MKSTREAM");
            server.run("XADD s 1-1 f v");
            server.run("XADD t 1-1 f v");
            server.waits = Waits::For(1);
            server.run("XREADGROUP GROUP g c NOACK BLOCK 0 STREAMS s t > >");
            assert_eq!(server.logged(), "XREADGROUP GROUP g c COUNT 1 NOACK STREAMS t >");
            server.waits = Waits::May;
            server.run("XADD t 1-2 f v");
            server.run("XDEL t 1-2");
            server.waits = Waits::For(1);
            server.run("XREADGROUP GROUP g d BLOCK 0 STREAMS s t > >");
            let behind_all = "18446744073709551615-18446744073709551614";
            let expected = format!("XREADGROUP GROUP g d COUNT 1 STREAMS t {behind_all}");
            assert_eq!(server.logged(), expected);
            server.run("RPUSH l a");
            server.run("RPUSH m a");
            server.run("BLPOP l m 0");
            assert_eq!(server.logged(), "lpop m");
            server.check_counts();
        }
    }

    #[test]
    fn keys_that_expire() {
        for demote in [false, true] {
            let mut server = Harness::new(demote);
            server.run("SET k v PX 10");
            server.now_ms += 10;
            server.run("GET k");
            assert_eq!(server.logged(), "EXISTS k");
            server.run("SET k v PX 10");
            server.now_ms += 10;
            server.run("SET k w NX");
            assert_eq!(server.logged(), "EXISTS k, SET k w NX");
            server.run("HSET h a 1");
            server.run("PEXPIRE h 10");
            server.now_ms += 10;
            server.run("INCR h");
            assert_eq!(server.logged(), "EXISTS h, INCR h");
            server.check_counts();
        }
    }

    #[test]
    fn fields_that_expire() {
        for demote in [false, true] {
            let mut server = Harness::new(demote);
            server.run("HSET h a 1 b 2 c 3");
            server.run("HPEXPIRE h 10 FIELDS 2 a b");
            server.now_ms += 10;
            server.run("HGETALL h");
            assert_eq!(server.logged(), "");
            server.run("HSETNX h a 3");
            assert_eq!(server.logged(), "@0 HDEL h a b, HSETNX h a 3");
            server.run("HPEXPIRE h 10 FIELDS 1 a");
            server.now_ms += 10;
            server.expire_fields();
            assert_eq!(server.logged(), "@0 HDEL h a");
            // The key keeps its expiry, though a replay makes it anew.
            server.run("PEXPIRE h 1000");
            server.run("HPEXPIRE h 10 FIELDS 1 c");
            server.now_ms += 10;
            server.run("HSET h d 4");
            let at_ms = server.now_ms + 990;
            let expected = format!("@0 HDEL h c, HSET h d 4, @0 PEXPIREAT h {at_ms}");
            assert_eq!(server.logged(), expected);
            server.run("HPEXPIRE h 10 FIELDS 1 d");
            server.now_ms += 10;
            server.run("HINCRBY h d 1");
            assert_eq!(server.run("HGET h d"), "$1 1");
            server.check_counts();
        }
    }

    /// Clocks of workers differ: a command may run at an earlier time than one in front of it.
    #[test]
    fn a_replay_removes_no_field_that_it_is_not_told_of() {
        let mut replica = Harness::new(false).take_replica().expect("there is one");
        for (now_ms, line) in [
            (1_000, "HSET h a 1 b 1"),
            (1_000, "HPEXPIRE h 10 FIELDS 1 a"),
            (2_000, "HINCRBY h b 1"),
            (1_001, "HINCRBY h a 1"),
        ] {
            let mut record = Record::new(Vec::new(), now_ms);
            let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
            record.add(0, words.into_iter());
            replica.run_record(&record.pieces().concat());
        }
        assert_eq!(replica.run("HMGET h a b"), "[$1 2, $1 2]");
    }

    #[test]
    fn keys_that_are_evicted() {
        let mut effects = Effects::new(Classes::LOGGED, true);
        let mut notes = vec![Note { table: 3, key: (*b"k").into(), noted: Noted::Evicted }];
        effects.take_notes(&Keyspace::default(), &mut notes);
        let mut record = Record::new(Vec::new(), 1);
        effects.log(0, Args::new(&[], &[]), &mut record);
        assert_eq!(record.pieces().concat(), b"\x01\x07\x02\x03DEL\x01k");
        assert!(effects.noted().is_empty(), "nobody listens to events");
    }

    #[test]
    fn keys_that_had_expired_before_the_clock_was_put_back() {
        let mut replica = Harness::new(false).take_replica().expect("there is one");
        let mut record = Record::new(Vec::new(), 1_000);
        record.add(0, [&b"SET"[..], b"k", b"v", b"PXAT", b"2000"].into_iter());
        replica.run_record(&record.pieces().concat());
        let mut effects = Effects::new(Classes::LOGGED, true);
        let noted = Noted::Expired { at_ms: 2_000 };
        let mut notes = vec![Note { table: 0, key: (*b"k").into(), noted }];
        effects.take_notes(&Keyspace::default(), &mut notes);
        assert_eq!(effects.time_of_gone(3_000), 3_000);
        let mut record = Record::new(Vec::new(), effects.time_of_gone(1_500));
        effects.log(0, Args::new(&[], &[]), &mut record);
        replica.run_record(&record.pieces().concat());
        replica.now_ms = 1_500;
        assert_eq!(replica.run("PERSIST k"), ":0");
    }

    /// What is made of long arguments is the same as of others, and they are not copied.
    #[test]
    fn long_arguments() {
        let long = vec![b'v'; 100_000];
        let (buffer, lens) = ([&b"SETk"[..], &long].concat(), [3, 1, 100_000]);
        let mut start = 0;
        let ranges = lens.map(|len| {
            start += len;
            resp::ArgRange { start: start - len, len }
        });
        let args = Args::new(&buffer, &ranges);
        let mut effects = Effects::new(Classes::LOGGED, true);
        effects.logged().replace(&[Arg::Bytes(b"SET"), Arg::SentFrom(1), Arg::Bytes(&long)]);
        let mut record = Record::new(Vec::new(), 1);
        effects.log(0, args, &mut record);
        assert!(record.pieces().iter().any(|piece| std::ptr::eq(*piece, &args[2])));
        let bytes = record.pieces().concat();
        let mut commands = crate::Commands::read(&bytes).expect("a record");
        let command = commands.read_next().expect("a record").expect("a command");
        let words: Vec<&[u8]> = command.args.iter().collect();
        assert_eq!(words, [&b"SET"[..], b"k", &long, &long]);
    }
}
