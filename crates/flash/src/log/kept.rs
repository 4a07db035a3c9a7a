//! The records on flash that a checkpoint refers to, looked at without a log: are they there, and as they were written?
//!
//! Records come in batches. Each batch is read in the order of the places, neighbours together, by some threads with a
//! buffer each, so what is in memory is bounded by the batch.

use std::ops::Range;
use std::path::PathBuf;

use parking_lot::Mutex;

use super::format::SEGMENT_HEADER_BYTES;
use super::geometry::{Geometry, Piece};
use super::recover::check_label;
use super::space::Blocks;
use super::state::{Holds, LogState};
use crate::device::FileIndex;
use crate::device::buffer::AlignedBuffer;
use crate::device::file::DataFile;
use crate::error::EngineError;
use crate::journal::JournalMark;
use crate::limits::{CHECK_GAP_BYTES, CHECK_THREADS};
use crate::location::RecordId;
use crate::record::{self, Header, PieceChecker, Place, RECORD_HEADER_BYTES, record_size};

/// The files of a flash that is kept, opened for nobody else.
pub struct KeptFlash {
    state: LogState,
    geometry: Geometry,
    /// By their indexes.
    files: Vec<Option<DataFile>>,
    /// Bytes of the records of each segment that were claimed.
    claimed: Vec<u64>,
    has_refused_file: bool,
}

/// A record as a checkpoint refers to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptRecord {
    /// Where it is.
    pub id: RecordId,
    /// The table of its key.
    pub table: u8,
    /// Its key.
    pub key: Box<[u8]>,
    /// Bytes of the value as it is stored.
    pub stored_len: usize,
}

impl KeptRecord {
    fn size(&self) -> usize {
        record_size(self.key.len(), self.stored_len)
    }

    /// Bytes that it takes in memory.
    pub fn bytes(&self) -> usize {
        size_of::<Self>() + self.key.len()
    }
}

/// Files on the paths that a start would refuse with a journal that refers to nothing on flash: they are kept.
///
/// Errors: a server has one.
pub fn refused_files(
    paths: &[PathBuf],
    journal: JournalMark,
) -> Result<Vec<EngineError>, EngineError> {
    let mut refused = Vec::new();
    for path in paths.iter().filter(|path| DataFile::has_label(path)) {
        match DataFile::reopen(path) {
            Ok(file) => refused.extend(file.check_needless(Some(journal)).err()),
            Err(EngineError::Io { errno: libc::ENOENT, .. }) => {
                refused.push(EngineError::Settings(format!(
                    "{}: there is a label of a flash file, and not the file",
                    path.display()
                )));
            }
            Err(error) => return Err(error),
        }
    }
    Ok(refused)
}

/// Gives labels another name beside which there is no file any more: a start would want it. Returns the names.
///
/// Errors: one cannot be renamed, durably.
pub fn set_labels_aside(paths: &[PathBuf]) -> Result<Vec<String>, EngineError> {
    let mut names = Vec::new();
    for path in paths {
        names.extend(DataFile::set_label_aside(path)?);
    }
    Ok(names)
}

/// Where the bytes of a record are.
enum Found {
    /// In a segment, from there on.
    In(u32, u32),
    /// In several, from the start of the first on.
    Over(Vec<u32>),
}

/// Records that are read together.
struct Run {
    segment: u32,
    /// Bytes of the segment, in whole sectors.
    bytes: Range<u32>,
    /// Which of the batch, by their places in its order.
    records: Range<usize>,
}

impl KeptFlash {
    /// Opens the files that belong to the state of a checkpoint. What a start would refuse them for goes to `refused`; what
    /// can be read of them can be checked all the same. None: the state is damaged.
    ///
    /// Errors: with a text for the operator: a server has the files, or they cannot be opened.
    pub fn open(
        paths: &[PathBuf],
        state: &[u8],
        refused: &mut Vec<EngineError>,
    ) -> Result<Option<Self>, EngineError> {
        let state = match LogState::decode(state) {
            Ok(state) => state,
            Err(what) => {
                refused.push(EngineError::Settings(format!(
                    "what the journal says of the flash cannot be used: {what}"
                )));
                return Ok(None);
            }
        };
        let geometry = Geometry::new(state.segment_bytes, state.sector_bytes);
        let claimed = vec![0; state.segments.len()];
        let (files, has_refused_file) = (Vec::new(), false);
        let mut kept = Self { state, geometry, files, claimed, has_refused_file };
        for path in paths {
            let file = match DataFile::reopen(path) {
                Ok(file) => file,
                Err(EngineError::Io { errno: libc::ENOENT, .. }) => continue,
                Err(error) => return Err(error),
            };
            if let Err(error) = kept.take(file) {
                refused.push(error);
                kept.has_refused_file = true;
            }
        }
        refused.extend(kept.missing_files());
        Ok(Some(kept))
    }

    /// Errors: it is not as the state has it. It may have been taken all the same.
    fn take(&mut self, file: DataFile) -> Result<(), EngineError> {
        let name = file.path().display().to_string();
        let refused = |what: String| Err(EngineError::Settings(what));
        let Some(label) = file.label()? else {
            return refused(format!("{name} has no label, so it is not known whose it is"));
        };
        let index = FileIndex(label.file as u16);
        let is_outdated =
            label.newest < self.state.number && !self.state.refers_to_file(label.file);
        if label.flash == self.state.flash && is_outdated {
            return Ok(());
        }
        check_label(&name, index, &label, &self.state)?;
        if file.sector_bytes() > self.state.sector_bytes {
            let (sector, least) = (file.sector_bytes(), self.state.sector_bytes);
            return refused(format!("{name} has sectors of {sector} bytes, not {least}"));
        }
        if self.files.len() <= label.file as usize {
            self.files.resize_with(label.file as usize + 1, || None);
        }
        match self.files[label.file as usize].replace(file) {
            None => Ok(()),
            Some(other) => refused(format!("{} and {name} are copies", other.path().display())),
        }
    }

    /// Where the last segment of each file ends to which the state refers; 0: there is none.
    fn ends(&self) -> Vec<u64> {
        let referred = self.state.segments.iter().filter(|one| one.holds.is_referred());
        let mut ends: Vec<u64> = Vec::new();
        for home in referred.map(|one| one.home) {
            let file = usize::from(home.file.0);
            ends.resize(ends.len().max(file + 1), 0);
            ends[file] = ends[file].max((u64::from(home.number) + 1) * self.state.segment_bytes);
        }
        ends
    }

    /// What the state refers to and is not there, or not as long.
    fn missing_files(&self) -> Vec<EngineError> {
        let look = |(index, &end): (usize, &u64)| match self.file(FileIndex(index as u16)) {
            _ if end == 0 => Ok(()),
            None => Err(EngineError::Settings(format!(
                "the journal refers to values in file {index} of the flash, which is on none of the paths"
            ))),
            Some(file) => match file.bytes()? {
                bytes if bytes < end => Err(EngineError::Settings(format!(
                    "{} has {bytes} bytes, and the journal refers to {end}",
                    file.path().display()
                ))),
                _ => Ok(()),
            },
        };
        self.ends().iter().enumerate().filter_map(|one| look(one).err()).collect()
    }

    /// Makes files as long as the state wants them; nothing is behind their end.
    ///
    /// Errors: one cannot be made so, durably.
    pub fn lengthen(&self) -> Result<(), EngineError> {
        for (file, end) in self.files.iter().zip(self.ends()) {
            if let Some(file) = file {
                file.lengthen(end)?;
            }
        }
        Ok(())
    }

    fn file(&self, file: FileIndex) -> Option<&DataFile> {
        self.files.get(usize::from(file.0))?.as_ref()
    }

    /// The number of the checkpoint whose state it is.
    pub fn number(&self) -> u64 {
        self.state.number
    }

    /// The names of the files that are there.
    pub fn names(&self) -> Vec<String> {
        self.files.iter().flatten().map(|file| file.path().display().to_string()).collect()
    }

    /// Checks a batch of records, and puts it into the order of their places. Those that are not there, or not as they were
    /// written, come to `lost`, with the reason; the others count as claimed.
    ///
    /// Cost: a read for neighbours together, of a write buffer at most; those of long records piece by piece.
    pub fn check(
        &mut self,
        batch: &mut [KeptRecord],
        mut lost: impl FnMut(&KeptRecord, &EngineError),
    ) {
        batch.sort_unstable_by_key(|record| record.id.at);
        let batch = &*batch;
        let runs = Mutex::new(Runs { kept: self, batch, next: 0 });
        let failures: Mutex<Vec<(usize, EngineError)>> = Mutex::default();
        let read = || {
            let mut buffer = AlignedBuffer::new(self.geometry.write_buffer_bytes());
            let next = || runs.lock().next();
            while let Some(run) = next() {
                let failed = self.check_run(batch, run, &mut buffer);
                failures.lock().extend(failed);
            }
        };
        std::thread::scope(|scope| {
            let start = |_: &usize| std::thread::Builder::new().spawn_scoped(scope, read).is_ok();
            // Those that the system does not give are done without.
            (1..CHECK_THREADS).take_while(start).for_each(drop);
            read();
        });
        let mut failures = failures.into_inner();
        failures.sort_unstable_by_key(|(index, _)| *index);
        let mut failures = failures.into_iter().peekable();
        for (index, record) in batch.iter().enumerate() {
            match failures.next_if(|(failed, _)| *failed == index) {
                Some((_, error)) => lost(record, &error),
                None => {
                    self.claimed[self.geometry.split(record.id.at).0 as usize] +=
                        record.size() as u64
                }
            }
        }
    }

    /// The state with nothing referred to but what was claimed.
    pub fn state_of_claims(&self) -> Vec<u8> {
        let mut state = self.state.clone();
        let mut needless = Vec::new();
        for (one, &claimed) in state.segments.iter_mut().zip(&self.claimed) {
            match &mut one.holds {
                Holds::Records(records) if claimed > 0 => records.referred_bytes = claimed as u32,
                Holds::Records(_) => one.holds = Holds::Unused(Blocks::Written),
                Holds::Long { rest, .. } if claimed == 0 => {
                    needless.append(rest);
                    one.holds = Holds::Unused(Blocks::Written);
                }
                _ => {}
            }
        }
        for index in needless {
            state.segments[index as usize].holds = Holds::Unused(Blocks::Written);
        }
        state.encode()
    }

    /// Whether a start would find a file of it.
    pub fn has_files(&self) -> bool {
        self.files.iter().any(Option::is_some)
    }

    /// Whether there is a file on the paths that a start would refuse: nobody can say what of it is to be given up.
    pub fn has_refused_file(&self) -> bool {
        self.has_refused_file
    }

    /// Whether all that the state says is referred to was claimed. Otherwise a start refuses the checkpoint.
    pub fn is_all_claimed(&self) -> bool {
        let referred = |holds: &Holds| match holds {
            Holds::Records(records) => u64::from(records.referred_bytes),
            Holds::Long { bytes, .. } => u64::from(*bytes),
            _ => 0,
        };
        let segments = self.state.segments.iter().zip(&self.claimed);
        segments.into_iter().all(|(one, claimed)| referred(&one.holds) == *claimed)
    }

    /// Where a record is to be. Errors: there is no such record.
    fn find(&self, record: &KeptRecord) -> Result<Found, EngineError> {
        let (index, offset) = self.geometry.split(record.id.at);
        let size = record.size();
        let segment = self.state.segments.get(index as usize);
        let segment = segment.filter(|one| one.generation == record.id.generation);
        let is_long = size > self.geometry.segment_record_max();
        match segment.map(|one| &one.holds) {
            Some(Holds::Records(_))
                if !is_long
                    && u64::from(offset) + size as u64 <= self.geometry.data_end().into() =>
            {
                Ok(Found::In(index, offset))
            }
            Some(Holds::Long { bytes, rest })
                if is_long
                    && *bytes as usize == size
                    && offset as usize == SEGMENT_HEADER_BYTES =>
            {
                Ok(Found::Over([&[index][..], rest].concat()))
            }
            _ => Err(EngineError::Gone { units: record.id.at.units() }),
        }
    }

    /// Reads and checks some records. Returns those that are not as they should be, by their places in the batch.
    fn check_run(
        &self,
        batch: &[KeptRecord],
        run: Run,
        buffer: &mut AlignedBuffer,
    ) -> Vec<(usize, EngineError)> {
        let records = &batch[run.records.clone()];
        let indexes = run.records;
        if let [record] = records
            && (run.bytes.is_empty() || run.bytes.len() > buffer.len())
        {
            let checked = self.check_long(record, buffer);
            return checked.err().map(|error| (indexes.start, error)).into_iter().collect();
        }
        let bytes = &mut buffer[..run.bytes.len()];
        if let Err(error) = self.read(run.segment, run.bytes.start, bytes) {
            return match records {
                [_] => vec![(indexes.start, error)],
                // What can be read of them is found one by one.
                _ => {
                    let alone = |index: usize| Runs { kept: self, batch, next: index }.one();
                    let checked =
                        indexes.flat_map(|index| self.check_run(batch, alone(index), buffer));
                    checked.collect()
                }
            };
        }
        let bytes = &*bytes;
        let check = |(index, record): (usize, &KeptRecord)| {
            let (_, offset) = self.geometry.split(record.id.at);
            let bytes = &bytes[(offset - run.bytes.start) as usize..][..record.size()];
            let checked = check_one(bytes, record);
            let error = checked.err().map(|what| self.corrupted(record, what))?;
            Some((index, error))
        };
        indexes.zip(records).filter_map(check).collect()
    }

    /// Reads and checks a record piece by piece. Errors: it is not there, or not as it was written.
    fn check_long(
        &self,
        record: &KeptRecord,
        buffer: &mut AlignedBuffer,
    ) -> Result<(), EngineError> {
        let (segments, offset) = match self.find(record)? {
            Found::In(segment, offset) => (vec![segment], offset),
            Found::Over(segments) => (segments, self.geometry.split(record.id.at).1),
        };
        let mut checker: Option<PieceChecker> = None;
        for Piece { segment, offset, size, skip, stream, .. } in
            self.geometry.pieces(&segments, offset, record.size())
        {
            let bytes = &mut buffer[..size as usize];
            self.read(segment, offset, bytes)?;
            let bytes = &bytes[skip as usize..][..stream.len()];
            let checked = match &mut checker {
                None => begin(record, bytes).map(|begun| checker = Some(begun)),
                Some(checker) => go_on(checker, record, stream.start, bytes),
            };
            checked.map_err(|what| self.corrupted(record, what))?;
        }
        let finished = checker.ok_or("no header").and_then(|checker| checker.finish());
        finished.map_err(|what| self.corrupted(record, what))
    }

    fn read(&self, segment: u32, offset: u32, bytes: &mut [u8]) -> Result<(), EngineError> {
        let home = self.state.segments[segment as usize].home;
        let Some(file) = self.file(home.file) else {
            let file = home.file.0;
            return Err(EngineError::Settings(format!("file {file} of the flash is not there")));
        };
        let at = u64::from(home.number) * self.state.segment_bytes + u64::from(offset);
        file.read_now(at, bytes).map_err(|errno| EngineError::io(file.path(), "read", errno))
    }

    fn corrupted(&self, record: &KeptRecord, what: &'static str) -> EngineError {
        let (segment, offset) = self.geometry.split(record.id.at);
        let home = self.state.segments[segment as usize].home;
        let path =
            self.file(home.file).map_or_else(String::new, |file| file.path().display().to_string());
        EngineError::Corrupted { path, segment, offset: offset.into(), what }
    }
}

/// The runs of a batch that is in the order of its places.
struct Runs<'a> {
    kept: &'a KeptFlash,
    batch: &'a [KeptRecord],
    /// The first record that is in none yet.
    next: usize,
}

impl Runs<'_> {
    fn next(&mut self) -> Option<Run> {
        self.batch.get(self.next)?;
        let mut run = self.one();
        let buffer_bytes = self.kept.geometry.write_buffer_bytes();
        while let Some(bytes) =
            self.batch.get(run.records.end).and_then(|record| self.bytes_of(record, run.segment))
            && !run.bytes.is_empty()
            && bytes.start <= run.bytes.end + CHECK_GAP_BYTES
            && (bytes.end - run.bytes.start) as usize <= buffer_bytes
        {
            run.bytes.end = run.bytes.end.max(bytes.end);
            run.records.end += 1;
        }
        self.next = run.records.end;
        Some(run)
    }

    /// The next record by itself. Without bytes: it is to be read by pieces, or is not there.
    fn one(&self) -> Run {
        let record = &self.batch[self.next];
        let segment = self.kept.geometry.split(record.id.at).0;
        let bytes = self.bytes_of(record, segment).unwrap_or(0..0);
        Run { segment, bytes, records: self.next..self.next + 1 }
    }

    /// None: it is not in that segment alone.
    fn bytes_of(&self, record: &KeptRecord, segment: u32) -> Option<Range<u32>> {
        match self.kept.find(record) {
            Ok(Found::In(index, offset)) if index == segment => {
                Some(self.kept.geometry.sectors(offset, record.size()))
            }
            _ => None,
        }
    }
}

/// Whether bytes are a record, and the one that is meant. Errors: what is wrong.
fn check_one(bytes: &[u8], record: &KeptRecord) -> Result<(), &'static str> {
    let header = record::verify(bytes, place_of(record))?;
    check_header(&header, record)?;
    match bytes[header.key()] == *record.key {
        true => Ok(()),
        false => Err("it is the value of another key"),
    }
}

fn place_of(record: &KeptRecord) -> Place {
    Place { at: record.id.at, generation: record.id.generation }
}

fn check_header(header: &Header, record: &KeptRecord) -> Result<(), &'static str> {
    let lengths = (header.key_len, header.payload_len);
    if lengths != (record.key.len(), record.stored_len) {
        return Err("length");
    }
    match header.meta.db == record.table {
        true => Ok(()),
        false => Err("it is the value of a key of another database"),
    }
}

/// Begins with the first bytes of a long record.
fn begin(record: &KeptRecord, bytes: &[u8]) -> Result<PieceChecker, &'static str> {
    let mut checker = PieceChecker::new(bytes, place_of(record))?;
    check_header(checker.header(), record)?;
    go_on(&mut checker, record, RECORD_HEADER_BYTES, &bytes[RECORD_HEADER_BYTES..])?;
    Ok(checker)
}

/// Goes on with bytes that stand there in the record.
fn go_on(
    checker: &mut PieceChecker,
    record: &KeptRecord,
    start: usize,
    bytes: &[u8],
) -> Result<(), &'static str> {
    let end = RECORD_HEADER_BYTES + record.key.len() + record.stored_len;
    let bytes = &bytes[..bytes.len().min(end.saturating_sub(start))];
    let key = record.key.get(start - RECORD_HEADER_BYTES..).unwrap_or_default();
    let in_key = key.len().min(bytes.len());
    if bytes[..in_key] != key[..in_key] {
        return Err("it is the value of another key");
    }
    checker.add(bytes);
    Ok(())
}
