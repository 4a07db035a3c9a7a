//! What one record of the journal carries: commands that lead to the same data when they are run again, with the
//! time at which they ran.
//!
//! ```text
//! time            varint   Unix milliseconds
//! then for each command:
//!   database * 2  varint   + 1 if it runs at time zero, at which nothing has expired
//!   arguments     varint   one at least, the command's name first
//!   for each:     varint   its length, then its bytes
//! ```
//!
//! A varint is as [`crate::varint`] has it. A record
//! is whole or absent, and so are the commands of a transaction, which share one.

use keyspace::DB_COUNT;
use resp::{ArgRange, Args};
use smallvec::SmallVec;

use crate::varint::{self, BadVarint};

/// An argument from so many bytes on is not copied into the record.
const LARGE_BYTES: usize = 16 << 10;

/// A record that is being made. It borrows long arguments of requests.
#[derive(Debug)]
pub struct Record<'a> {
    bytes: Vec<u8>,
    /// Long arguments, and where in `bytes` each belongs.
    large: SmallVec<[(usize, &'a [u8]); 1]>,
    empty_len: usize,
}

impl<'a> Record<'a> {
    /// A record of what runs at a time, made in a buffer that is kept from record to record.
    pub fn new(mut buffer: Vec<u8>, now_ms: u64) -> Record<'a> {
        buffer.clear();
        varint::put(&mut buffer, now_ms);
        let empty_len = buffer.len();
        Record { bytes: buffer, large: SmallVec::new(), empty_len }
    }

    /// Whether it has no command: it is not to be written then.
    pub fn is_empty(&self) -> bool {
        self.bytes.len() == self.empty_len
    }

    /// Its bytes, piece by piece.
    pub fn pieces(&self) -> SmallVec<[&[u8]; 3]> {
        let (mut pieces, mut from) = (SmallVec::new(), 0);
        for &(at, argument) in &self.large {
            pieces.extend([&self.bytes[from..at], argument]);
            from = at;
        }
        pieces.push(&self.bytes[from..]);
        pieces
    }

    /// The buffer, for another record.
    pub fn into_buffer(self) -> Vec<u8> {
        self.bytes
    }

    /// Adds a command, which is run again at the time of the record.
    pub fn add(&mut self, db: u8, args: impl ExactSizeIterator<Item = &'a [u8]>) {
        self.begin(db, args.len());
        args.for_each(|arg| self.add_argument(arg));
    }

    /// Begins a command, of which so many arguments follow.
    pub(crate) fn begin(&mut self, db: u8, args: usize) {
        varint::put(&mut self.bytes, u64::from(db) << 1);
        varint::put(&mut self.bytes, args as u64);
    }

    /// Adds an argument that lives as long as the request does.
    #[inline]
    pub(crate) fn add_argument(&mut self, argument: &'a [u8]) {
        if argument.len() < LARGE_BYTES {
            return self.add_copy(argument);
        }
        varint::put(&mut self.bytes, argument.len() as u64);
        self.large.push((self.bytes.len(), argument));
    }

    /// Adds an argument that does not.
    #[inline]
    pub(crate) fn add_copy(&mut self, argument: &[u8]) {
        put_argument(&mut self.bytes, argument);
    }

    /// Adds commands as [`put_command`] has written them.
    pub(crate) fn add_commands(&mut self, commands: &[u8]) {
        self.bytes.extend_from_slice(commands);
    }
}

/// When a command is run again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum At {
    /// At the time of its record.
    ItsTime,
    /// At time zero: what has expired is there to be removed by name.
    TimeZero,
}

/// Writes a command.
pub(crate) fn put_command<'b>(
    out: &mut Vec<u8>,
    (db, at): (u8, At),
    args: impl ExactSizeIterator<Item = &'b [u8]>,
) {
    varint::put(out, u64::from(db) << 1 | u64::from(at == At::TimeZero));
    varint::put(out, args.len() as u64);
    args.for_each(|arg| put_argument(out, arg));
}

fn put_argument(out: &mut Vec<u8>, argument: &[u8]) {
    varint::put(out, argument.len() as u64);
    out.extend_from_slice(argument);
}

/// Bytes that are no record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} at offset {offset} of the record")]
pub struct BadRecord {
    /// Where in its bytes.
    pub offset: usize,
    /// What is wrong there.
    pub what: &'static str,
}

/// A command of a record, to be run again.
#[derive(Clone, Copy, Debug)]
pub struct LoggedCommand<'a> {
    /// The database.
    pub db: u8,
    /// The time at which it is to run: Unix milliseconds.
    pub now_ms: u64,
    /// Its arguments, the name first.
    pub args: Args<'a>,
}

/// The commands of a record, in their order.
#[derive(Debug)]
pub struct Commands<'a> {
    bytes: &'a [u8],
    offset: usize,
    now_ms: u64,
    /// The arguments of the command that was read last.
    ranges: Vec<ArgRange>,
}

impl<'a> Commands<'a> {
    /// Reads a record.
    ///
    /// Errors: it does not begin as one.
    pub fn read(bytes: &'a [u8]) -> Result<Commands<'a>, BadRecord> {
        let mut commands = Commands { bytes, offset: 0, now_ms: 0, ranges: Vec::new() };
        commands.now_ms = commands.varint()?;
        Ok(commands)
    }

    /// The next command. None: there is no other. Cost: 8 bytes of memory an argument, each of which takes one byte
    /// at least.
    ///
    /// Errors: the bytes are none.
    pub fn read_next(&mut self) -> Result<Option<LoggedCommand<'_>>, BadRecord> {
        if self.offset == self.bytes.len() {
            return Ok(None);
        }
        let start = self.offset;
        let head = self.varint()?;
        let db = u8::try_from(head >> 1).ok().filter(|&db| usize::from(db) < DB_COUNT);
        let db = db.ok_or(BadRecord { offset: start, what: "no such database" })?;
        let now_ms = if head & 1 == 1 { 0 } else { self.now_ms };
        let count = self.len("a number of arguments that is none")?;
        if count == 0 {
            return Err(self.bad("a command without a name"));
        }
        self.ranges.clear();
        for _ in 0..count {
            let len = self.len("an argument that goes beyond the end")?;
            let at = self.offset - start;
            let range = u32::try_from(at).ok().zip(u32::try_from(len).ok());
            let Some((start, len)) = range else { return Err(self.bad("a command of 4 GiB")) };
            self.ranges.push(ArgRange { start, len });
            self.offset += len as usize;
        }
        let args = Args::new(&self.bytes[start..self.offset], &self.ranges);
        Ok(Some(LoggedCommand { db, now_ms, args }))
    }

    /// A number of things that take a byte each at least, and follow.
    fn len(&mut self, what: &'static str) -> Result<usize, BadRecord> {
        let number = self.varint()?;
        let left = self.bytes.len() - self.offset;
        usize::try_from(number).ok().filter(|&len| len <= left).ok_or(self.bad(what))
    }

    fn varint(&mut self) -> Result<u64, BadRecord> {
        let (value, len) = varint::read(&self.bytes[self.offset..]).map_err(|error| {
            self.bad(match error {
                BadVarint::TooLarge => "a number of more than 64 bits",
                BadVarint::Unended => "a number without an end",
            })
        })?;
        self.offset += len;
        Ok(value)
    }

    fn bad(&self, what: &'static str) -> BadRecord {
        BadRecord { offset: self.offset, what }
    }
}

#[cfg(test)]
mod tests {
    use stdx::Random;

    use super::*;

    type Read = (u8, u64, Vec<Vec<u8>>);

    fn read(bytes: &[u8]) -> Result<Vec<Read>, BadRecord> {
        let (mut commands, mut read) = (Commands::read(bytes)?, Vec::new());
        while let Some(LoggedCommand { db, now_ms, args }) = commands.read_next()? {
            read.push((db, now_ms, args.iter().map(<[u8]>::to_vec).collect()));
        }
        Ok(read)
    }

    fn random_commands(random: &mut Random) -> Vec<(u8, At, Vec<Vec<u8>>)> {
        let len = |random: &mut Random| match random.below(20) {
            0 => LARGE_BYTES as u64 + random.below(3) - 1,
            1 => 126 + random.below(4),
            _ => random.below(12),
        };
        let argument = |random: &mut Random| {
            let byte = random.below(256) as u8;
            vec![byte; len(random) as usize]
        };
        let command = |random: &mut Random| {
            let count = 1 + random.below(5);
            let args = (0..count).map(|_| argument(random)).collect();
            let at = if random.below(3) == 0 { At::TimeZero } else { At::ItsTime };
            (random.below(DB_COUNT as u64) as u8, at, args)
        };
        (0..random.below(5)).map(|_| command(random)).collect()
    }

    fn slices(args: &[Vec<u8>]) -> impl ExactSizeIterator<Item = &[u8]> {
        args.iter().map(Vec::as_slice)
    }

    #[test]
    fn what_was_written_is_read() {
        let mut random = Random::new(1);
        let mut buffer = Vec::new();
        for _ in 0..500 {
            let commands = random_commands(&mut random);
            let now_ms = random.below(u64::MAX) >> random.below(64);
            let mut record = Record::new(std::mem::take(&mut buffer), now_ms);
            for (db, at, args) in &commands {
                if *at == At::TimeZero {
                    let mut bytes = Vec::new();
                    put_command(&mut bytes, (*db, *at), slices(args));
                    record.add_commands(&bytes);
                } else {
                    record.add(*db, slices(args));
                }
            }
            let written = record.pieces().concat();
            assert_eq!(record.is_empty(), commands.is_empty());
            let expected: Vec<Read> = commands
                .iter()
                .map(|(db, at, args)| {
                    (*db, if *at == At::TimeZero { 0 } else { now_ms }, args.clone())
                })
                .collect();
            assert_eq!(read(&written), Ok(expected));
            buffer = record.into_buffer();
        }
    }

    #[test]
    fn a_record_is_as_documented() {
        let mut record = Record::new(Vec::new(), 300);
        let mut gone = Vec::new();
        put_command(&mut gone, (3, At::TimeZero), [&b"DEL"[..], b"k"].into_iter());
        record.add_commands(&gone);
        record.add(0, [&b"SET"[..], b"k", b""].into_iter());
        assert_eq!(
            record.pieces().concat(),
            b"\xAC\x02\x07\x02\x03DEL\x01k\x00\x03\x03SET\x01k\x00"
        );
    }

    #[test]
    fn other_bytes_are_refused() {
        let (none, beyond) = ("a number without an end", "an argument that goes beyond the end");
        for (bytes, offset, what) in [
            (&b""[..], 0, none),
            (b"\xFF", 0, none),
            (b"\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\x02", 0, "a number of more than 64 bits"),
            (b"\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x00", 0, "a number of more than 64 bits"),
            (b"\x01\x20", 1, "no such database"),
            (b"\x01\x02", 2, none),
            (b"\x01\x02\x00", 3, "a command without a name"),
            (b"\x01\x02\x02\x00", 3, "a number of arguments that is none"),
            (b"\x01\x02\x01\x02a", 4, beyond),
            (b"\x01\x02\x02\x01aa", 6, beyond),
            (b"\x01\x02\x02\x01a", 5, none),
        ] {
            assert_eq!(read(bytes), Err(BadRecord { offset, what }), "{}", bytes.escape_ascii());
        }
    }

    #[test]
    fn damage_never_panics() {
        let mut random = Random::new(2);
        for _ in 0..300 {
            let commands = random_commands(&mut random);
            let mut record = Record::new(Vec::new(), random.below(1 << 42));
            commands.iter().for_each(|(db, _, args)| record.add(*db, slices(args)));
            let mut bytes = record.pieces().concat();
            bytes.truncate(200);
            for _ in 0..40 {
                let at = random.below(bytes.len() as u64) as usize;
                let old = std::mem::replace(&mut bytes[at], random.below(256) as u8);
                let _ = read(&bytes);
                let _ = read(&bytes[..at]);
                bytes[at] = old;
            }
        }
    }
}
