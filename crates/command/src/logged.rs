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
    #[cold]
    pub fn log<'a>(&self, db: u8, args: Args<'a>, record: &mut Record<'a>) {
        let logged = self.logged.as_deref();
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
        self.logged.get_or_insert_default()
    }

    /// Logs that a key has expired.
    pub(crate) fn log_expired(&mut self, db: u8, key: &[u8]) {
        let args = [&b"EXISTS"[..], key].into_iter();
        put_command(&mut self.logged().gone, (db, At::ItsTime), args);
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
        *self = Logged { gone: std::mem::take(&mut self.gone), ..Logged::default() };
    }

    fn replace(&mut self, args: &[Arg<'_>]) {
        self.is_replaced = true;
        for arg in args {
            let part = match arg {
                Arg::Bytes(bytes) => self.text_of(bytes),
                Arg::Number(number) => {
                    self.text_of(itoa::Buffer::new().format(*number).as_bytes())
                }
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
