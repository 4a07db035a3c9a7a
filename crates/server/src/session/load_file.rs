//! A file that is loaded is read by a thread of its own, and comes in batches of pieces of values.

use std::io::{self, Read};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use command::saved::{PLACED_TYPE, Piece, PieceMax, Placed, Reference, read_pieces};
use flash::Checkpoints;
use keyspace::{DB_COUNT, Key};
use rdb::file::{FileReader, KeyPart, OwnPart, Part, Short};
use rdb::{Error, ObjectType};
use rustix::fs::Advice;
use tokio::sync::{mpsc, oneshot};

use crate::limits::{
    LOADED_AHEAD_BYTES, LOADED_BATCHES_MAX, LOADED_BYTES_MAX, LOADED_ELEMENT_BYTES,
    LOADED_ELEMENTS_MAX, LOADED_FIRST_ELEMENTS_MAX, LOADED_KEYS_MAX, LOADED_LARGE_BYTES,
    LOADED_PLACES_BYTES_MAX, LOADED_PLACES_MAX,
};
use crate::session::load::NotLoaded;
use crate::session::load_recent::RecentKey;
use crate::session::save::{AUX_CHECKPOINT, AUX_LOST, AUX_TABLES};
use crate::state::files::SavedFile;
use crate::state::packed::Unpacker;
use crate::state::server::Server;
use crate::state::threads::wait_for;

/// What follows one another in the file, but for the order of keys.
#[derive(Default)]
pub(super) struct Batch {
    pub(super) pieces: Vec<LoadedPiece>,
    pub(super) places: Vec<LoadedPlaces>,
    pub(super) recent: Vec<RecentKey>,
    /// What they take on their way.
    bytes: u64,
    /// To be told when a large batch has been put: only then is more read.
    pub(super) put: Option<oneshot::Sender<()>>,
}

/// Keys of one slot and database whose values are on flash: they come slot by slot, as they were saved, so that each slot is
/// locked, and its table made larger, once for many.
#[derive(Default)]
pub(super) struct LoadedPlaces {
    pub(super) slot: u16,
    pub(super) db: u64,
    pub(super) places: Vec<LoadedPlace>,
    /// What they take on their way.
    pub(super) bytes: u64,
}

impl LoadedPlaces {
    /// Whether one of another slot and database would have to stand beside others, or there are enough.
    fn is_full_for(&self, slot: u16, db: u64) -> bool {
        let is_enough =
            self.places.len() >= LOADED_PLACES_MAX || self.bytes >= LOADED_PLACES_BYTES_MAX;
        !self.places.is_empty() && (is_enough || (self.slot, self.db) != (slot, db))
    }

    fn add(&mut self, slot: u16, db: u64, place: LoadedPlace) {
        (self.slot, self.db) = (slot, db);
        self.bytes += (place.key.len() + size_of::<LoadedPlace>()) as u64;
        self.places.push(place);
    }
}

/// A key whose value is on flash.
pub(super) struct LoadedPlace {
    pub(super) key: Short,
    pub(super) hash: u64,
    pub(super) expire_at_ms: u64,
    pub(super) placed: Placed,
    /// Where it ends in the file.
    pub(super) offset: u64,
}

/// A piece of the value of a key.
pub(super) struct LoadedPiece {
    pub(super) part: Arc<KeyPart>,
    pub(super) piece: Piece,
    /// Where the value begins in the file.
    pub(super) offset: u64,
}

/// Begins to read a file on a thread of its own. No value, and no element of one, may take more than `bytes_max`.
/// What comes ends with an error, or an empty batch. One that `refers` may do so to values on flash.
///
/// Errors: it is no such file; there is no thread.
pub(super) fn start_reading(
    server: &Arc<Server>,
    file: SavedFile,
    bytes_max: u64,
    refers: bool,
) -> Result<mpsc::Receiver<Result<Batch, NotLoaded>>, NotLoaded> {
    let file_bytes = file.size()?;
    let file = Counted { file, server: server.clone(), read: 0, asked_for: 0 };
    let mut reader = FileReader::new(Unpacker::new(file)?, bytes_max)?;
    if refers {
        reader.take_own(PLACED_TYPE);
    }
    tracing::info!(version = reader.version(), "loading");
    let (sender, receiver) = mpsc::channel(LOADED_BATCHES_MAX);
    let out = Out { sender, batch: Batch::default(), places: LoadedPlaces::default() };
    let (server_of_thread, is_of_flash) = (server.clone(), false);
    let read = FileThread {
        server: server_of_thread,
        reader,
        file_bytes,
        bytes_max,
        refers,
        is_of_flash,
        out,
    };
    server.threads.start("load", Box::new(move || read.run()))?;
    Ok(receiver)
}

/// Counts the bytes of a file that have been read, and has the kernel read ahead.
struct Counted {
    file: SavedFile,
    server: Arc<Server>,
    read: u64,
    /// So many bytes from its beginning the kernel was asked for.
    asked_for: u64,
}

impl Read for Counted {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.ask_ahead();
        let read = self.file.read(buffer)?;
        self.read += read as u64;
        self.server.saves.loading.note_read(read as u64);
        Ok(read)
    }
}

impl Counted {
    /// By itself the kernel reads too little ahead for a drive to be busy while what came is dealt with.
    fn ask_ahead(&mut self) {
        if self.asked_for > self.read + LOADED_AHEAD_BYTES / 2 {
            return;
        }
        let from = self.asked_for.max(self.read);
        self.asked_for = from + LOADED_AHEAD_BYTES;
        self.file.advise(from, LOADED_AHEAD_BYTES, Advice::WillNeed);
    }
}

struct FileThread {
    server: Arc<Server>,
    reader: FileReader<Unpacker<Counted>>,
    file_bytes: u64,
    bytes_max: u64,
    /// Whether it may refer to values on flash, and in the journal.
    refers: bool,
    /// It says to which flash it refers.
    is_of_flash: bool,
    out: Out,
}

/// Where pieces go.
struct Out {
    sender: mpsc::Sender<Result<Batch, NotLoaded>>,
    batch: Batch,
    /// What goes into the next batch when there is a key of another slot, or enough.
    places: LoadedPlaces,
}

/// Nobody takes what is read any more.
struct Left;

impl Batch {
    pub(super) fn is_empty(&self) -> bool {
        self.pieces.is_empty() && self.places.is_empty() && self.recent.is_empty()
    }
}

impl Out {
    fn add(&mut self, piece: LoadedPiece) -> Result<(), Left> {
        self.add_bytes(piece.piece.bytes())?;
        self.batch.pieces.push(piece);
        self.send_enough()
    }

    /// Counts what is added next. What is large comes by itself.
    fn add_bytes(&mut self, bytes: u64) -> Result<(), Left> {
        if self.batch.bytes + bytes >= LOADED_LARGE_BYTES {
            self.send()?;
        }
        self.batch.bytes += bytes;
        Ok(())
    }

    fn send_enough(&mut self) -> Result<(), Left> {
        let Batch { pieces, recent, bytes, .. } = &self.batch;
        match *bytes >= LOADED_BYTES_MAX || pieces.len() + recent.len() >= LOADED_KEYS_MAX {
            true => self.send(),
            false => Ok(()),
        }
    }

    fn add_recent(&mut self, key: RecentKey) -> Result<(), Left> {
        self.add_bytes(key.bytes())?;
        self.batch.recent.push(key);
        self.send_enough()
    }

    fn add_place(&mut self, slot: u16, db: u64, place: LoadedPlace) -> Result<(), Left> {
        if self.places.is_full_for(slot, db) {
            self.add_places()?;
        }
        self.places.add(slot, db, place);
        Ok(())
    }

    fn add_places(&mut self) -> Result<(), Left> {
        let places = std::mem::take(&mut self.places);
        if places.places.is_empty() {
            return Ok(());
        }
        self.add_bytes(places.bytes)?;
        self.batch.places.push(places);
        self.send_enough()
    }

    /// Hands over all that there is.
    fn end(&mut self) -> Result<(), Left> {
        self.add_places()?;
        self.send()
    }

    /// Hands over what there is of a batch; behind what is large nothing is read before it has been put.
    fn send(&mut self) -> Result<(), Left> {
        let mut batch = std::mem::take(&mut self.batch);
        if batch.is_empty() {
            return Ok(());
        }
        let put = (batch.bytes >= LOADED_LARGE_BYTES).then(|| {
            let (sender, put) = oneshot::channel();
            batch.put = Some(sender);
            put
        });
        wait_for(self.sender.send(Ok(batch))).map_err(|_| Left)?;
        put.map_or(Ok(()), |put| wait_for(put).map_err(|_| Left))
    }
}

impl FileThread {
    fn run(mut self) {
        let last = match self.read() {
            Ok(()) => Ok(Batch::default()),
            Err(Ended::Left) => return,
            Err(Ended::Not(error)) => Err(error),
        };
        // Whoever has left knows why.
        let _ = wait_for(self.out.sender.send(last));
    }

    fn read(&mut self) -> Result<(), Ended> {
        loop {
            match self.reader.next_part().map_err(NotLoaded::from)? {
                Part::End => {
                    let bytes = self.reader.offset();
                    self.server.saves.loading.note_compressed(bytes, self.file_bytes);
                    return Ok(self.out.end()?);
                }
                Part::Key(part) => self.read_value(Arc::new(part))?,
                Part::Skipped(what) => {
                    let offset = self.reader.offset();
                    tracing::warn!(?what, offset, "passed over: not supported");
                }
                Part::Own(part) => self.read_reference(part)?,
                Part::Aux { name, value } => self.note(&name, &value)?,
                Part::Size { .. } => {}
            }
        }
    }

    fn note(&mut self, name: &[u8], value: &[u8]) -> Result<(), Ended> {
        self.note_references(name, value)?;
        if name == b"used-mem" {
            let bytes = value::number::parse_u64(value).unwrap_or(0);
            self.server.saves.loading.used_bytes.store(bytes, Ordering::Relaxed);
        }
        let (name, value) = (name.escape_ascii(), value.escape_ascii());
        tracing::debug!(%name, %value, "the file says");
        Ok(())
    }

    /// Gets ready for references to values on flash. Errors: the flash is not the one that they are to.
    fn note_references(&mut self, name: &[u8], value: &[u8]) -> Result<(), Ended> {
        let tier = &self.server.tier;
        if !self.refers {
            return Ok(());
        }
        if name == AUX_TABLES.as_bytes() {
            let tables = parse_tables(value);
            let all = tier.keyspace.lock_all();
            let is_set = tables.is_some_and(|tables| tier.keyspace.set_tables(&all, tables));
            return match is_set {
                true => Ok(()),
                false => Err(Ended::Not(NotLoaded::Flash("its tables are damaged".to_owned()))),
            };
        }
        if name == AUX_LOST.as_bytes() {
            tracing::warn!("keys were taken out of this snapshot by a repair");
            self.server.journaling.lacks_keys.store(true, Ordering::Relaxed);
        }
        if name == AUX_CHECKPOINT.as_bytes() {
            let engine = tier.engine();
            let checkpoints = engine.as_ref().and_then(|engine| engine.checkpoints());
            let opened_by = checkpoints.and_then(Checkpoints::opened_by);
            if opened_by.is_none() || value::number::parse_u64(value) != opened_by {
                let what = "it refers to values on flash, and the flash was not opened for it";
                return Err(Ended::Not(NotLoaded::Flash(what.to_owned())));
            }
            self.is_of_flash = true;
        }
        Ok(())
    }

    fn read_reference(&mut self, part: OwnPart) -> Result<(), Ended> {
        let offset = self.reader.offset();
        let OwnPart { db, key, expire_at_ms, value } = part;
        let placed = match Reference::read(&value) {
            Some(Reference::Placed(placed)) if self.is_of_flash => placed,
            Some(Reference::Journaled(journaled)) => {
                self.server.saves.loading.note_compressed(journaled.value_len.into(), 0);
                let key = RecentKey { db, key, expire_at_ms, journaled, offset };
                return Ok(self.out.add_recent(key)?);
            }
            _ => {
                let error = self.reader.error(Error::Malformed("reference to a value"));
                return Err(Ended::Not(error.into()));
            }
        };
        let Key { slot, hash, .. } = Key::new(&key);
        let place = LoadedPlace { key, hash, expire_at_ms, placed, offset };
        Ok(self.out.add_place(slot, db, place)?)
    }

    fn read_value(&mut self, part: Arc<KeyPart>) -> Result<(), Ended> {
        let FileThread { server, reader, bytes_max, out, .. } = self;
        let (bytes_max, offset) = (*bytes_max, reader.offset());
        let elements = usize::try_from(bytes_max / LOADED_ELEMENT_BYTES).unwrap_or(usize::MAX);
        let max = PieceMax {
            bytes: LOADED_BYTES_MAX,
            first_elements: LOADED_FIRST_ELEMENTS_MAX,
            elements: elements.clamp(1, LOADED_ELEMENTS_MAX),
            item_bytes: bytes_max,
        };
        let (mut has_left, mut bytes) = (false, 0);
        let read = read_pieces(reader, &part, &**server, max, &mut |piece| {
            bytes = piece.bytes();
            let piece = LoadedPiece { part: part.clone(), piece, offset };
            out.add(piece).map_err(|Left| {
                has_left = true;
                Error::Stopped
            })
        });
        match read {
            Ok(()) if part.object_type == ObjectType::String => {
                // With its type, which stands in front of the key.
                let in_file = 1 + reader.offset() - offset;
                server.saves.loading.note_compressed(bytes, in_file);
                Ok(())
            }
            Ok(()) => Ok(()),
            Err(Error::Empty) => {
                let (key, db) = (part.key.escape_ascii(), part.db);
                tracing::warn!(%key, db, offset, "passed over: an empty key");
                Ok(())
            }
            Err(Error::Stopped) if has_left => Err(Ended::Left),
            Err(Error::Stopped) => Err(Ended::Not(NotLoaded::TooLarge {
                offset: reader.offset(),
                key: part.key.escape_ascii().to_string(),
                db: part.db,
                bytes_max,
            })),
            Err(error) => Err(Ended::Not(reader.error(error).into())),
        }
    }
}

/// The table of each database, as a snapshot that refers to flash says it.
pub(crate) fn parse_tables(text: &[u8]) -> Option<[u8; DB_COUNT]> {
    let table = |text: &[u8]| u8::try_from(value::number::parse_u64(text)?).ok();
    let tables: Option<Vec<u8>> = text.split(|byte| *byte == b' ').map(table).collect();
    tables?.try_into().ok()
}

/// Why the thread reads no further.
enum Ended {
    Left,
    Not(NotLoaded),
}

impl From<NotLoaded> for Ended {
    fn from(error: NotLoaded) -> Ended {
        Ended::Not(error)
    }
}

impl From<Left> for Ended {
    fn from(_: Left) -> Ended {
        Ended::Left
    }
}
