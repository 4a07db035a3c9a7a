//! A snapshot's file: every part is read, and what it refers to on flash is checked in batches.

use std::cell::Cell;
use std::fmt::Display;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::rc::Rc;

use command::saved::{PLACED_TYPE, Reference};
use flash::{KeptFlash, KeptRecord, Location, RecordId};
use keyspace::DB_COUNT;
use rdb::Error;
use rdb::file::{FileError, FileReader, OwnPart, Part};

use super::error::CheckError;
use super::follow::database_of;
use super::lost::Lost;
use super::recent::RecentKeys;
use super::report::Report;
use crate::limits::{CHECKED_BATCH_BYTES, CHECKED_STRING_BYTES_MAX};
use crate::session::load_file::parse_tables;
use crate::session::save::{AUX_CHECKPOINT, AUX_TABLES};
use crate::state::packed::Unpacker;

/// What a snapshot is of.
pub(super) enum SnapshotOf<'a> {
    /// All values.
    All,
    /// A checkpoint, which may refer to flash. None: the state of that is not there.
    Checkpoint(Option<&'a mut KeptFlash>),
}

/// What was found of a snapshot.
pub(super) struct SnapshotFound {
    /// Whether all of it could be read.
    pub(super) is_whole: bool,
    /// The table of each database, if it says so.
    pub(super) tables: Option<[u8; DB_COUNT]>,
    /// Whether it refers to flash.
    pub(super) is_of_flash: bool,
    /// Keys whose value is lost.
    pub(super) lost: Lost,
    /// Keys whose value is in the journal.
    pub(super) recent: RecentKeys,
}

/// Checks a file.
///
/// Errors: it cannot be opened.
pub(super) fn check_snapshot(
    path: &Path,
    of: SnapshotOf<'_>,
    report: &mut Report,
) -> Result<SnapshotFound, CheckError> {
    let failed = |error| CheckError::File { path: path.display().to_string(), error };
    let file = File::open(path).map_err(failed)?;
    let bytes = file.metadata().map_err(failed)?.len();
    let (unpacker, done) = open(file).map_err(failed)?;
    let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy();
    let (is_checkpoint, flash) = match of {
        SnapshotOf::All => (false, None),
        SnapshotOf::Checkpoint(flash) => (true, flash),
    };
    let mut walk = Walk {
        name: &name,
        bytes,
        done,
        is_checkpoint,
        is_of_flash: false,
        flash,
        report,
        tables: None,
        batch: Vec::new(),
        batch_bytes: 0,
        keys: 0,
        references: 0,
        lost: Lost::default(),
        recent: RecentKeys::default(),
    };
    let reader = FileReader::new(unpacker, CHECKED_STRING_BYTES_MAX);
    let read = reader.and_then(|reader| walk.all(reader));
    walk.check_batch();
    let Walk { keys, references, report, tables, is_of_flash, lost, recent, .. } = walk;
    let is_whole = read.is_ok();
    match read {
        Ok(()) => {}
        // What cannot be unpacked is no error of the system.
        Err(FileError { io: Some(error), .. }) if error.raw_os_error().is_some() => {
            return Err(failed(error));
        }
        Err(error) => report.damage(format_args!("{}: {error}", path.display())),
    }
    let on_flash = match references {
        0 => String::new(),
        _ => format!(", {references} of them on flash or in the journal"),
    };
    report.line(format_args!("  {name}: {keys} keys{on_flash}, {bytes} bytes"));
    Ok(SnapshotFound { is_whole, tables, is_of_flash, lost, recent })
}

/// Whether a snapshot can be read to its end, and is what its checksum says.
pub(super) fn is_whole(path: &Path) -> bool {
    let Ok(unpacker) = File::open(path).and_then(Unpacker::new) else { return false };
    let read = FileReader::new(unpacker, CHECKED_STRING_BYTES_MAX).and_then(|mut reader| {
        reader.take_own(PLACED_TYPE);
        loop {
            match reader.next_part()? {
                Part::End => return Ok(()),
                Part::Key(part) => reader.pass_over(part.object_type)?,
                _ => {}
            }
        }
    });
    read.is_ok()
}

/// A file whose bytes are counted as they are read: where it is packed, more come of them.
struct Counted {
    file: File,
    read: Rc<Cell<u64>>,
}

impl Read for Counted {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read(buffer)?;
        self.read.set(self.read.get() + read as u64);
        Ok(read)
    }
}

/// Reads a file, and tells how much of it was read.
fn open(file: File) -> io::Result<(Unpacker<Counted>, Rc<Cell<u64>>)> {
    let read = Rc::<Cell<u64>>::default();
    let counted = Counted { file, read: read.clone() };
    Ok((Unpacker::new(counted)?, read))
}

struct Walk<'a> {
    name: &'a str,
    bytes: u64,
    /// Bytes of it that were read.
    done: Rc<Cell<u64>>,
    is_checkpoint: bool,
    /// It says to which flash it refers.
    is_of_flash: bool,
    flash: Option<&'a mut KeptFlash>,
    report: &'a mut Report,
    /// Of each database.
    tables: Option<[u8; DB_COUNT]>,
    batch: Vec<KeptRecord>,
    batch_bytes: usize,
    keys: u64,
    references: u64,
    lost: Lost,
    recent: RecentKeys,
}

impl Walk<'_> {
    fn all(&mut self, mut reader: FileReader<Unpacker<Counted>>) -> Result<(), FileError> {
        if self.is_checkpoint {
            reader.take_own(PLACED_TYPE);
        }
        loop {
            self.report.progress(self.name, self.done.get(), self.bytes);
            match reader.next_part()? {
                Part::End => return Ok(()),
                Part::Key(part) => {
                    self.keys += 1;
                    reader.pass_over(part.object_type)?;
                }
                Part::Own(part) => {
                    self.keys += 1;
                    self.references += 1;
                    self.refer(part).map_err(|error| reader.error(error))?;
                }
                Part::Aux { name, value } => self.note(&mut reader, &name, &value)?,
                Part::Size { .. } | Part::Skipped(_) => {}
            }
        }
    }

    /// What a file says of its references.
    fn note(
        &mut self,
        reader: &mut FileReader<Unpacker<Counted>>,
        name: &[u8],
        value: &[u8],
    ) -> Result<(), FileError> {
        if !self.is_checkpoint {
            return Ok(());
        }
        if name == AUX_TABLES.as_bytes() {
            let tables = parse_tables(value).ok_or(Error::Malformed("list of tables"));
            self.tables = Some(tables.map_err(|error| reader.error(error))?);
        } else if name == AUX_CHECKPOINT.as_bytes() {
            self.is_of_flash = true;
            let number = self.flash.as_ref().map(|flash| flash.number());
            if number.is_none() || value::number::parse_u64(value) != number {
                self.report.damage(format_args!(
                    "{}: it refers to values on flash, and the state of that is another's, or missing",
                    self.name
                ));
            }
        }
        Ok(())
    }

    /// Errors: it is no reference.
    fn refer(&mut self, part: OwnPart) -> Result<(), Error> {
        let reference =
            Reference::read(&part.value).ok_or(Error::Malformed("reference to a value"))?;
        let tables = self.tables.ok_or(Error::Malformed("file: it does not say its tables"))?;
        let db = usize::try_from(part.db).unwrap_or(usize::MAX);
        let table = *tables.get(db).ok_or(Error::Malformed("database"))?;
        let placed = match reference {
            Reference::Placed(placed) => placed,
            Reference::Journaled(journaled) => {
                self.recent.add(table, part.key.into_boxed_slice(), journaled);
                return Ok(());
            }
        };
        if !self.is_of_flash {
            return Err(Error::Malformed("reference to flash: it does not say to which"));
        }
        let id =
            RecordId { at: Location::from_units(placed.at.units), generation: placed.generation };
        let stored_len = placed.at.stored_len as usize;
        let record = KeptRecord { id, table, key: part.key.into_boxed_slice(), stored_len };
        self.batch_bytes += record.bytes();
        self.batch.push(record);
        if self.batch_bytes >= CHECKED_BATCH_BYTES {
            self.check_batch();
        }
        Ok(())
    }

    fn check_batch(&mut self) {
        let mut batch = std::mem::take(&mut self.batch);
        self.batch_bytes = 0;
        let tables = self.tables.unwrap_or_default();
        let (report, lost) = (&mut *self.report, &mut self.lost);
        let mut lose = |record: &KeptRecord, why: &dyn Display| {
            lost.add(record.table, &record.key);
            report.lost(database_of(&tables, record.table).into(), &record.key, why);
        };
        match &mut self.flash {
            Some(flash) => flash.check(&mut batch, |record, error| lose(record, error)),
            None => {
                batch.iter().for_each(|record| lose(record, &"its place on flash is not known"))
            }
        }
        batch.clear();
        self.batch = batch;
    }
}
