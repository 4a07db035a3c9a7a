//! A snapshot without some of its keys, written beside it. Values are copied as they are.

use std::fs::File;
use std::io::{self, BufWriter, Read};
use std::path::Path;

use command::saved::PLACED_TYPE;
use keyspace::DB_COUNT;
use rdb::file::{FileError, FileReader, FileWriter, KeyPart, OwnPart, Part, own_value};

use super::error::CheckError;
use crate::limits::CHECKED_STRING_BYTES_MAX;
use crate::session::save::{AUX_CHECKPOINT, AUX_LOST};
use crate::state::packed::Unpacker;

/// Its name until it takes the place of the other: a start removes it.
pub(super) const REWRITTEN_NAME: &str = "temp-0.rdb";
/// Bytes of a value that are copied at a time.
const COPIED_BYTES: u64 = 256 << 10;

/// Writes what a snapshot has but for the keys that are lost; it is durable when this returns. `refers`: it still refers to
/// flash. Returns how many keys were left out.
///
/// Errors: it cannot be read, or not be written.
pub(super) fn rewrite_snapshot(
    path: &Path,
    out: &Path,
    tables: [u8; DB_COUNT],
    refers: bool,
    is_lost: &dyn Fn(u8, &[u8]) -> bool,
) -> Result<u64, CheckError> {
    let failed = |path: &Path| {
        let path = path.display().to_string();
        move |error| CheckError::File { path, error }
    };
    let open = || File::open(path).and_then(Unpacker::new).map_err(failed(path));
    let mut reader =
        FileReader::new(open()?, CHECKED_STRING_BYTES_MAX).map_err(|error| unread(path, error))?;
    reader.take_own(PLACED_TYPE);
    let target = File::create(out).map_err(failed(out))?;
    let writer = FileWriter::new(BufWriter::new(target), reader.version(), true);
    let mut rewrite =
        Rewrite { source: open()?, at: 0, writer, tables, refers, is_lost, left_out: 0 };
    rewrite.writer.aux(AUX_LOST, "1").map_err(failed(out))?;
    loop {
        let part = reader.next_part().map_err(|error| unread(path, error))?;
        if part == Part::End {
            break;
        }
        let begin = reader.offset();
        if let Part::Key(part) = &part {
            reader.pass_over(part.object_type).map_err(|error| unread(path, error))?;
        }
        rewrite.add(part, (begin, reader.offset())).map_err(failed(out))?;
    }
    let Rewrite { writer, left_out, .. } = rewrite;
    let ended = writer.finish().and_then(|buffered| Ok(buffered.into_inner()?));
    ended.and_then(|file| file.sync_all()).map_err(failed(out))?;
    Ok(left_out)
}

fn unread(path: &Path, error: FileError) -> CheckError {
    CheckError::Snapshot { path: path.display().to_string(), error }
}

struct Rewrite<'a> {
    /// The same file, for the bytes of values.
    source: Unpacker<File>,
    /// Bytes of it that were read.
    at: u64,
    writer: FileWriter<BufWriter<File>>,
    tables: [u8; DB_COUNT],
    refers: bool,
    is_lost: &'a dyn Fn(u8, &[u8]) -> bool,
    left_out: u64,
}

impl Rewrite<'_> {
    /// Writes a part, whose value stands there in the source.
    fn add(&mut self, part: Part, value: (u64, u64)) -> io::Result<()> {
        match part {
            Part::Aux { name, value } => self.add_aux(&name, &value),
            Part::Key(part) => self.add_key(&part, value),
            Part::Own(part) => self.add_place(&part),
            Part::Size { .. } | Part::Skipped(_) | Part::End => Ok(()),
        }
    }

    fn add_aux(&mut self, name: &[u8], value: &[u8]) -> io::Result<()> {
        // Which tables there are is needed in any case: records and references to the journal go by them.
        let is_of_flash = AUX_CHECKPOINT.as_bytes() == name;
        match (std::str::from_utf8(name), std::str::from_utf8(value)) {
            (Ok(name), Ok(value)) if self.refers || !is_of_flash => self.writer.aux(name, value),
            _ => Ok(()),
        }
    }

    fn add_place(&mut self, part: &OwnPart) -> io::Result<()> {
        let table = usize::try_from(part.db).ok().and_then(|db| self.tables.get(db));
        if table.is_none_or(|&table| (self.is_lost)(table, &part.key)) {
            self.left_out += 1;
            return Ok(());
        }
        let mut object = Vec::new();
        own_value(&mut object, PLACED_TYPE, &part.value);
        self.writer.key(part.db, &part.key, part.expire_at_ms, &object)
    }

    /// Writes a key and the bytes of its value as they are.
    fn add_key(&mut self, part: &KeyPart, (begin, end): (u64, u64)) -> io::Result<()> {
        // Keys come in the order of the file.
        let passed = io::copy(&mut self.source.by_ref().take(begin - self.at), &mut io::sink())?;
        self.at += passed;
        let mut left = self.source.by_ref().take(end - begin);
        let mut bytes = vec![part.object_type.byte()];
        left.by_ref().take(COPIED_BYTES).read_to_end(&mut bytes)?;
        self.writer.key(part.db, &part.key, part.expire_at_ms, &bytes)?;
        loop {
            bytes.clear();
            if left.by_ref().take(COPIED_BYTES).read_to_end(&mut bytes)? == 0 {
                break;
            }
            self.writer.more(&bytes)?;
        }
        let is_short = self.at < begin || left.limit() > 0;
        self.at = end;
        match is_short {
            true => Err(io::ErrorKind::UnexpectedEof.into()),
            false => Ok(()),
        }
    }
}
