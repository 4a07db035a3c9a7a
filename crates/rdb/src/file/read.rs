//! Reads files.

use std::io::{self, Read};

use smallvec::SmallVec;

use crate::checksum::Checksum;
use crate::error::Error;
use crate::file::{
    AUX, DATABASE, END, EXPIRE_MS, EXPIRE_SECONDS, FREQUENCY, FUNCTION, FUNCTION_OF_CANDIDATE,
    HEAD_BYTES, IDLE, MAGIC_REDIS, MAGIC_VALKEY, MODULE_AUX, RESIZE, SLOT_INFO, SUMMED_FROM,
};
use crate::length;
use crate::object::{Dialect, ObjectType, read_object};
use crate::payload::is_known;
use crate::source::{STRING_BYTES_MAX, Source, array, byte};
use crate::text;

/// Bytes that are read at a time.
const READ_BYTES: usize = 256 << 10;
/// A buffer that a long string has made larger than this is given back.
const BUFFER_BYTES_MAX: usize = 4 * READ_BYTES;

/// Types of values that modules have made.
const MODULE_VALUE: u8 = 6;
const MODULE_VALUE_2: u8 = 7;
/// Values of a module: their sorts.
const MODULE_END: u64 = 0;
const MODULE_SIGNED: u64 = 1;
const MODULE_UNSIGNED: u64 = 2;
const MODULE_FLOAT: u64 = 3;
const MODULE_DOUBLE: u64 = 4;
const MODULE_STRING: u64 = 5;

/// Why a file cannot be read, and where.
#[derive(Debug, thiserror::Error)]
#[error("at byte {offset}: {}", self.reason())]
pub struct FileError {
    /// Behind so many bytes.
    pub offset: u64,
    /// What is wrong there.
    pub error: Error,
    /// What the system says, if the bytes cannot be had.
    pub io: Option<io::Error>,
}

impl FileError {
    fn reason(&self) -> String {
        self.io.as_ref().map_or_else(|| self.error.to_string(), io::Error::to_string)
    }
}

/// What a file has that is passed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Skipped {
    /// A library of functions.
    Functions,
    /// What a module keeps beside keys.
    ModuleAux,
}

/// A part of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// Something about the file.
    Aux {
        /// What.
        name: Vec<u8>,
        /// How it is.
        value: Vec<u8>,
    },
    /// How many keys are to come. They need not.
    Size {
        /// All in this database.
        keys: u64,
        /// Those that expire.
        expiring: u64,
    },
    /// Something that is not read.
    Skipped(Skipped),
    /// A key. Its value comes next: it must be read ([`crate::read_object`]) before the next part.
    Key(KeyPart),
    /// A key whose value is of the type that the reader takes as its own ([`FileReader::take_own`]).
    Own(OwnPart),
    /// The end, where everything is as the checksum says.
    End,
}

/// A key, and what is known of it besides its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyPart {
    /// Its database.
    pub db: u64,
    /// Its name.
    pub key: Vec<u8>,
    /// How its value is kept.
    pub object_type: ObjectType,
    /// When it expires: Unix milliseconds, 0 for never.
    pub expire_at_ms: u64,
    /// Seconds for which it was not used, if the file tells.
    pub idle_seconds: Option<u64>,
    /// How often it was used, up to 255, if the file tells.
    pub frequency: Option<u8>,
}

/// A key whose value is of a type that is none of the format's: a string.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnPart {
    /// Its database.
    pub db: u64,
    /// Its name.
    pub key: Short,
    /// When it expires: Unix milliseconds, 0 for never.
    pub expire_at_ms: u64,
    /// Its value.
    pub value: Short,
}

/// Bytes that take no allocation where they are few: there are as many as keys.
pub type Short = SmallVec<[u8; 32]>;

/// A file that is read from front to back.
pub struct FileReader<R> {
    bytes: Buffered<R>,
    version: u16,
    db: u64,
    /// The type of which values are taken that the format does not know.
    own_type: Option<u8>,
}

/// Where values are read.
impl<R: Read> Source for FileReader<R> {
    #[inline]
    fn bytes(&mut self, len: u64) -> Result<&[u8], Error> {
        self.bytes.bytes(len)
    }

    #[inline]
    fn string_bytes_max(&self) -> u64 {
        self.bytes.string_bytes_max()
    }
}

impl<R: Read> FileReader<R> {
    /// A file whose strings are no longer than `string_bytes_max`.
    ///
    /// Errors: it is none, or one of a version that is not known.
    pub fn new(input: R, string_bytes_max: u64) -> Result<FileReader<R>, FileError> {
        let bytes = Buffered::new(input, string_bytes_max);
        let mut reader = FileReader { bytes, version: 0, db: 0, own_type: None };
        reader.version = read_version(&mut reader.bytes).map_err(|error| reader.error(error))?;
        Ok(reader)
    }

    /// Has values of a type handed over that the format does not know, and that [`super::own_value`] wrote.
    pub fn take_own(&mut self, own_type: u8) {
        self.own_type = Some(own_type);
    }

    /// The version of its format.
    pub fn version(&self) -> u16 {
        self.version
    }

    /// Bytes that have been read of it.
    pub fn offset(&self) -> u64 {
        self.bytes.offset()
    }

    #[cfg(test)]
    pub(super) fn buffer_bytes(&self) -> usize {
        self.bytes.buffer.capacity()
    }

    /// The error of who has read a value from here.
    pub fn error(&mut self, error: Error) -> FileError {
        FileError { offset: self.offset(), error, io: self.bytes.failure.take() }
    }

    /// Passes over the value of a key, which may be a collection without elements.
    ///
    /// Errors: it cannot be read, or is none.
    pub fn pass_over(&mut self, object_type: ObjectType) -> Result<(), FileError> {
        match read_object(self, object_type, &mut |_| Ok(())) {
            Ok(()) | Err(Error::Empty) => Ok(()),
            Err(error) => Err(self.error(error)),
        }
    }

    /// The next part.
    ///
    /// Errors: it cannot be read, or is nothing that is known.
    pub fn next_part(&mut self) -> Result<Part, FileError> {
        self.bytes.shrink();
        self.read_part().map_err(|error| self.error(error))
    }

    fn read_part(&mut self) -> Result<Part, Error> {
        let (mut expire_at_ms, mut idle_seconds, mut frequency) = (0, None, None);
        loop {
            let bytes = &mut self.bytes;
            match byte(bytes)? {
                // A key whose expiry is 0, or lies before 1970, has expired long since: 0 is never.
                EXPIRE_MS => expire_at_ms = i64::from_le_bytes(array(bytes)?).max(1) as u64,
                EXPIRE_SECONDS => {
                    let seconds = i64::from(i32::from_le_bytes(array(bytes)?));
                    expire_at_ms = (seconds * 1_000).max(1) as u64;
                }
                IDLE => idle_seconds = Some(length::read(bytes)?),
                FREQUENCY => frequency = Some(byte(bytes)?),
                DATABASE => self.db = length::read(bytes)?,
                SLOT_INFO => (0..3).try_for_each(|_| length::read(bytes).map(drop))?,
                RESIZE => {
                    let (keys, expiring) = (length::read(bytes)?, length::read(bytes)?);
                    return Ok(Part::Size { keys, expiring });
                }
                AUX => {
                    let name = text::read(bytes, &mut Vec::new())?.to_vec();
                    let value = text::read(bytes, &mut Vec::new())?.to_vec();
                    return Ok(Part::Aux { name, value });
                }
                FUNCTION => {
                    text::skip(bytes)?;
                    return Ok(Part::Skipped(Skipped::Functions));
                }
                FUNCTION_OF_CANDIDATE => {
                    return Err(Error::Unsupported(
                        "functions: part",
                        FUNCTION_OF_CANDIDATE.into(),
                    ));
                }
                MODULE_AUX => {
                    skip_module_aux(bytes)?;
                    return Ok(Part::Skipped(Skipped::ModuleAux));
                }
                END => {
                    self.check_sum()?;
                    return Ok(Part::End);
                }
                other => {
                    if Some(other) == self.own_type {
                        return self.read_own(expire_at_ms);
                    }
                    let object_type = self.object_type(other)?;
                    let key = text::read(&mut self.bytes, &mut Vec::new())?.to_vec();
                    let db = self.db;
                    return Ok(Part::Key(KeyPart {
                        db,
                        key,
                        object_type,
                        expire_at_ms,
                        idle_seconds,
                        frequency,
                    }));
                }
            }
        }
    }

    fn read_own(&mut self, expire_at_ms: u64) -> Result<Part, Error> {
        let key = Short::from_slice(text::read(&mut self.bytes, &mut Vec::new())?);
        let value = Short::from_slice(text::read(&mut self.bytes, &mut Vec::new())?);
        Ok(Part::Own(OwnPart { db: self.db, key, expire_at_ms, value }))
    }

    fn object_type(&self, byte: u8) -> Result<ObjectType, Error> {
        if [MODULE_VALUE, MODULE_VALUE_2].contains(&byte) {
            return Err(Error::Unsupported("value of a module: type", byte.into()));
        }
        ObjectType::from_byte(byte, Dialect::of_version(self.version))
    }

    fn check_sum(&mut self) -> Result<(), Error> {
        if self.version < SUMMED_FROM {
            return Ok(());
        }
        let sum = self.bytes.sum();
        match u64::from_le_bytes(array(&mut self.bytes)?) {
            0 => Ok(()),
            stored if stored == sum => Ok(()),
            _ => Err(Error::Malformed("checksum")),
        }
    }
}

fn read_version(bytes: &mut impl Source) -> Result<u16, Error> {
    let head: [u8; HEAD_BYTES] = array(bytes)?;
    let digits = head.strip_prefix(MAGIC_REDIS).or(head.strip_prefix(MAGIC_VALKEY));
    let digits = digits.ok_or(Error::Malformed("file: it is no RDB file"))?;
    let text = std::str::from_utf8(digits).ok().filter(|_| digits.iter().all(u8::is_ascii_digit));
    let version: u16 = text
        .and_then(|text| text.parse().ok())
        .ok_or(Error::Malformed("file: its version is no number"))?;
    match version {
        0 => Err(Error::Unsupported("version", 0)),
        version if is_known(version) => Ok(version),
        other => Err(Error::Unsupported("version", other.into())),
    }
}

fn skip_module_aux(bytes: &mut impl Source) -> Result<(), Error> {
    length::read(bytes)?;
    // When it is to be loaded: as an unsigned number.
    if length::read(bytes)? != MODULE_UNSIGNED {
        return Err(Error::Malformed("part of a module"));
    }
    length::read(bytes)?;
    loop {
        match length::read(bytes)? {
            MODULE_END => return Ok(()),
            MODULE_SIGNED | MODULE_UNSIGNED => length::read(bytes).map(drop)?,
            MODULE_FLOAT => bytes.bytes(4).map(drop)?,
            MODULE_DOUBLE => bytes.bytes(8).map(drop)?,
            MODULE_STRING => text::skip(bytes).map(drop)?,
            _ => return Err(Error::Malformed("part of a module")),
        }
    }
}

/// Bytes that are read ahead.
struct Buffered<R> {
    input: R,
    buffer: Vec<u8>,
    /// Where the next byte stands in the buffer.
    at: usize,
    /// The bytes in front of this one are in the checksum.
    summed: usize,
    checksum: Checksum,
    /// Bytes of the file in front of the buffer.
    passed: u64,
    string_bytes_max: u64,
    /// Why nothing more can be read.
    failure: Option<io::Error>,
}

impl<R: Read> Buffered<R> {
    fn new(input: R, string_bytes_max: u64) -> Buffered<R> {
        Buffered {
            input,
            buffer: Vec::new(),
            at: 0,
            summed: 0,
            checksum: Checksum::default(),
            passed: 0,
            string_bytes_max,
            failure: None,
        }
    }

    fn offset(&self) -> u64 {
        self.passed + self.at as u64
    }

    /// The checksum of all bytes so far.
    fn sum(&mut self) -> u64 {
        self.checksum.add(&self.buffer[self.summed..self.at]);
        self.summed = self.at;
        self.checksum.value()
    }

    /// Drops what has been read from the buffer.
    fn drop_read(&mut self) {
        self.sum();
        self.passed += self.at as u64;
        self.buffer.drain(..self.at);
        (self.at, self.summed) = (0, 0);
    }

    /// Gives back what a long string has taken, before others are read.
    #[inline]
    fn shrink(&mut self) {
        if self.buffer.capacity() > BUFFER_BYTES_MAX {
            self.drop_read();
            self.buffer.shrink_to(READ_BYTES);
        }
    }

    /// Reads until `len` bytes are there. The buffer grows with what has been read.
    #[cold]
    fn fill(&mut self, len: u64) -> Result<(), Error> {
        if len > self.string_bytes_max {
            return Err(Error::Unsupported("string of a length of", len));
        }
        let len = usize::try_from(len).map_err(|_| Error::Short)?;
        self.drop_read();
        while self.buffer.len() < len {
            let more = (len - self.buffer.len()).clamp(READ_BYTES / 2, READ_BYTES);
            let read = self.input.by_ref().take(more as u64).read_to_end(&mut self.buffer);
            match read {
                Ok(0) => return Err(Error::Short),
                Ok(_) => {}
                // What came before it was read.
                Err(_) if self.buffer.len() >= len => {}
                Err(failure) => {
                    self.failure = Some(failure);
                    return Err(Error::Unreadable);
                }
            }
        }
        Ok(())
    }
}

impl<R: Read> Source for Buffered<R> {
    #[inline]
    fn bytes(&mut self, len: u64) -> Result<&[u8], Error> {
        if ((self.buffer.len() - self.at) as u64) < len {
            self.fill(len)?;
        }
        let start = self.at;
        self.at += len as usize;
        Ok(&self.buffer[start..self.at])
    }

    #[inline]
    fn string_bytes_max(&self) -> u64 {
        self.string_bytes_max.min(STRING_BYTES_MAX)
    }
}
