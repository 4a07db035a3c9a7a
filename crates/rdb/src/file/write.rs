//! Writes files, as Redis 7.0 does unless it is told another version.

use std::io::{self, Read, Write};

use crate::checksum::Checksum;
use crate::file::{AUX, DATABASE, END, EXPIRE_MS, MAGIC_REDIS, RESIZE};
use crate::length;
use crate::text;

/// Bytes that are written at a time.
const WRITE_BYTES: usize = 256 << 10;

/// Writes a value that the format has no type for, as a string, its type in front. Other programs refuse the file.
pub fn own_value(out: &mut Vec<u8>, own_type: u8, value: &[u8]) {
    out.push(own_type);
    text::write(out, value);
}

/// A file under way. What it has been given need not have been written before [`FileWriter::finish`].
pub struct FileWriter<W: Write> {
    output: W,
    buffer: Vec<u8>,
    /// None: the file has no checksum.
    checksum: Option<Checksum>,
    db: Option<u64>,
    written: u64,
}

impl<W: Write> FileWriter<W> {
    /// Begins a file of a version of Redis's format.
    pub fn new(output: W, version: u16, has_checksum: bool) -> FileWriter<W> {
        let mut buffer = Vec::with_capacity(WRITE_BYTES);
        buffer.extend_from_slice(MAGIC_REDIS);
        buffer.extend_from_slice(format!("{version:04}").as_bytes());
        let checksum = has_checksum.then(Checksum::default);
        FileWriter { output, buffer, checksum, db: None, written: 0 }
    }

    /// Begins keys that will be appended to a file ([`FileWriter::append`]).
    pub fn part(output: W) -> FileWriter<W> {
        FileWriter { output, buffer: Vec::new(), checksum: None, db: None, written: 0 }
    }

    /// Ends them, and returns what they were written to. Errors: they cannot be written.
    pub fn finish_part(mut self) -> io::Result<W> {
        self.write_out()?;
        self.output.flush()?;
        Ok(self.output)
    }

    /// Appends keys that were written by themselves. Errors: they cannot be read or written.
    pub fn append(&mut self, part: &mut impl Read) -> io::Result<()> {
        let mut bytes = Vec::with_capacity(WRITE_BYTES);
        while part.by_ref().take(WRITE_BYTES as u64).read_to_end(&mut bytes)? > 0 {
            self.more(&bytes)?;
            bytes.clear();
        }
        // Which database they ended with is not known.
        self.db = None;
        Ok(())
    }

    /// Bytes so far.
    pub fn bytes(&self) -> u64 {
        self.written + self.buffer.len() as u64
    }

    /// Says something about the file. Errors: it cannot be written.
    pub fn aux(&mut self, name: &str, value: &str) -> io::Result<()> {
        self.buffer.push(AUX);
        text::write(&mut self.buffer, name.as_bytes());
        text::write(&mut self.buffer, value.as_bytes());
        self.write_full()
    }

    /// Says how many keys of a database are to come, and how many of these expire. Errors: it cannot be written.
    pub fn size(&mut self, db: u64, keys: u64, expiring: u64) -> io::Result<()> {
        self.select(db);
        self.buffer.push(RESIZE);
        length::write(&mut self.buffer, keys);
        length::write(&mut self.buffer, expiring);
        self.write_full()
    }

    fn select(&mut self, db: u64) {
        if self.db != Some(db) {
            self.buffer.push(DATABASE);
            length::write(&mut self.buffer, db);
            self.db = Some(db);
        }
    }

    /// Begins a key of a database, which expires at a time, Unix milliseconds, 0 for never. `object` is its value
    /// as [`crate::write`] writes it, the type in front, or the first bytes of it, two at least.
    ///
    /// Errors: it cannot be written.
    pub fn key(&mut self, db: u64, key: &[u8], expire_at_ms: u64, object: &[u8]) -> io::Result<()> {
        self.select(db);
        if expire_at_ms != 0 {
            self.buffer.push(EXPIRE_MS);
            self.buffer.extend_from_slice(&expire_at_ms.to_le_bytes());
        }
        let (object_type, value) = object.split_first().expect("an object has a type");
        self.buffer.push(*object_type);
        text::write(&mut self.buffer, key);
        self.more(value)
    }

    /// Goes on with the value of the key. Errors: it cannot be written.
    pub fn more(&mut self, bytes: &[u8]) -> io::Result<()> {
        if bytes.len() < WRITE_BYTES {
            self.buffer.extend_from_slice(bytes);
            return self.write_full();
        }
        self.write_out()?;
        self.add(bytes)
    }

    /// Ends the file, and returns what it was written to. Errors: it cannot be written.
    pub fn finish(mut self) -> io::Result<W> {
        self.buffer.push(END);
        self.write_out()?;
        let sum = self.checksum.take().map_or(0, |checksum| checksum.value());
        self.output.write_all(&sum.to_le_bytes())?;
        self.output.flush()?;
        Ok(self.output)
    }

    fn write_full(&mut self) -> io::Result<()> {
        if self.buffer.len() < WRITE_BYTES { Ok(()) } else { self.write_out() }
    }

    fn write_out(&mut self) -> io::Result<()> {
        let buffer = std::mem::take(&mut self.buffer);
        self.add(&buffer)?;
        self.buffer = buffer;
        self.buffer.clear();
        Ok(())
    }

    fn add(&mut self, bytes: &[u8]) -> io::Result<()> {
        if let Some(checksum) = &mut self.checksum {
            checksum.add(bytes);
        }
        self.written += bytes.len() as u64;
        self.output.write_all(bytes)
    }
}
