//! Values in RAM that a record of the journal has, in front of the checkpoint: what is overwritten again and again was
//! written there a moment ago, and need not be written with each checkpoint once more.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use command::{BadRecord, Commands};
use flash::{Checkpoints, Engine, Journal, JournalError, Position, Recent, RecentRecords};
use keyspace::{Key, Stored};
use resp::Args;
use value::Kind;

use crate::limits::{
    RECENT_BYTES_MAX, RECENT_SHARE, RECENT_VALUE_BYTES_MIN, RECENT_VALUES_SHIFT, RECENT_WORTH,
};
use crate::state::recent_values::RecentValues;
use crate::state::server::Server;
use crate::state::snapshot::Snapshot;

/// Beyond all records.
const NO_END: Position = Position(u64::MAX);

/// What is gathered.
pub(super) struct Gathering {
    records: RecentRecords,
    /// Where the last record ends that was read.
    read_to: Position,
    values: RecentValues,
    values_max: u64,
    _room: Room,
}

/// Room on flash that is kept for the checkpoint, which begins when this has been read.
struct Room(Arc<dyn Engine>);

impl Room {
    fn keep(engine: Arc<dyn Engine>) -> Room {
        let room = Room(engine);
        room.checkpoints().keep_room();
        room
    }

    fn checkpoints(&self) -> &dyn Checkpoints {
        self.0.checkpoints().expect("invariant: it takes one")
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        self.checkpoints().release_room();
    }
}

/// Why records are read no further.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
enum Ended {
    Journal(#[from] JournalError),
    Record(#[from] BadRecord),
}

impl Gathering {
    /// Begins with what the journal has by now. None: nothing is in RAM alone, or the journal cannot be read,
    /// of which the log tells.
    pub(super) fn begin(
        server: &Server,
        journal: &Journal,
        engine: Arc<dyn Engine>,
    ) -> Option<Gathering> {
        let hot_bytes = server.tier.counters.hot_bytes.load(Ordering::Relaxed).max(0) as u64;
        if hot_bytes == 0 {
            return None;
        }
        let room = Room::keep(engine);
        let records = journal.recent(hot_bytes.saturating_mul(RECENT_SHARE).min(RECENT_BYTES_MAX));
        let records = records.inspect_err(tell).ok()?;
        let values_max = match server.config.maxmemory.load() {
            0 => u64::MAX,
            bytes => (bytes >> RECENT_VALUES_SHIFT) / RecentValues::VALUE_BYTES,
        };
        let (values, read_to) = (RecentValues::new(&server.tier), Position(0));
        let mut gathering = Gathering { records, read_to, values, values_max, _room: room };
        // What was read by then is right.
        let _ = gathering.read_backwards(server, hot_bytes).inspect_err(tell);
        // From its moment on the checkpoint waits for what is not durable by then, and values are written meanwhile that
        // change.
        journal.sync_soon();
        gathering.go_on(server, journal, NO_END);
        Some(gathering)
    }

    /// Goes on to what the journal has got in front of the checkpoint, whose moment has come, and has the snapshot refer to
    /// what was found.
    pub(super) fn end(
        mut self,
        server: &Server,
        (journal, checkpoint): (&Journal, Position),
        snapshot: &Snapshot,
    ) {
        // All in front of it is in the segments then, unless the journal fails, which is told in the end.
        let _ = journal.await_checkpoint_segment(checkpoint);
        self.go_on(server, journal, checkpoint);
        self.values.keep_from(self.records.starts().first().copied().unwrap_or(NO_END));
        snapshot.set_recent(self.values, checkpoint);
    }

    /// The number of the first segment.
    pub(super) fn first(&self) -> Option<u64> {
        self.records.first()
    }

    /// Reads the segments, the last one first: most keys of those in front of it were noted by then. One that brings little is
    /// the first that stays, and so is one with damage.
    fn read_backwards(&mut self, server: &Server, hot_bytes: u64) -> Result<(), Ended> {
        let starts = self.records.starts();
        let mut end = None;
        for (index, &start) in starts.iter().enumerate().rev() {
            self.records.go_to(start);
            let before = self.values.bytes();
            let read = self.read(server, end.unwrap_or(NO_END));
            if end.is_none() {
                self.read_to = self.records.read_to();
            }
            match (end, &read) {
                // What was read of it in front of the damage was noted.
                (_, Err(_)) => self.records.forget_before(index),
                (None, Ok(())) => {}
                (Some(Position(end)), Ok(())) => {
                    // A short one is passed over.
                    let (bytes, new) = (end - start.0, self.values.bytes() - before);
                    if bytes > hot_bytes / RECENT_WORTH && new < bytes / RECENT_WORTH {
                        self.records.forget_before(index);
                        break;
                    }
                }
            }
            read?;
            end = Some(start);
        }
        Ok(())
    }

    fn go_on(&mut self, server: &Server, journal: &Journal, end: Position) {
        let mut go_on = || {
            self.records.go_on(journal)?;
            self.records.go_to(self.read_to);
            let read = self.read(server, end);
            self.read_to = self.records.read_to();
            read
        };
        let _ = go_on().inspect_err(tell);
    }

    /// Reads up to where a record begins, or to the end.
    fn read(&mut self, server: &Server, end: Position) -> Result<(), Ended> {
        while self.records.position() < end
            && self.values.len() < self.values_max
            && !server.is_stopping()
        {
            let (begin, payload) = match self.records.read()? {
                Recent::Record { begin, payload } => (begin, payload),
                Recent::Damage(error) => return Err(error.into()),
                Recent::End => break,
            };
            note_values(server, &mut self.values, (begin, payload))?;
        }
        Ok(())
    }
}

fn tell(error: &impl std::fmt::Display) {
    // Whoever needs what cannot be read tells of it: here a value is written that need not be.
    tracing::info!(%error, "a checkpoint refers to fewer records of the journal");
}

/// Notes what a record sets keys to, each of which counts as the last command has it.
fn note_values(
    server: &Server,
    values: &mut RecentValues,
    (begin, payload): (Position, &[u8]),
) -> Result<(), BadRecord> {
    let mut commands = Commands::read(payload)?;
    while let Some(command) = commands.read_next()? {
        for (name, at) in set_values(command.args) {
            let (key, value) = (Key::new(name), &command.args[at]);
            if values.is_to_be_noted(&key, begin) && is_hot(server, command.db, &key, value.len()) {
                values.note(&key, value, begin);
            }
        }
    }
    Ok(())
}

/// The keys that a command sets to values of its own: each with the place of the value among the arguments.
pub(crate) fn set_values<'a>(args: Args<'a>) -> impl Iterator<Item = (&'a [u8], usize)> {
    let is =
        |names: &[&str]| names.iter().any(|name| args[0].eq_ignore_ascii_case(name.as_bytes()));
    // From a key to its value, and to the next key.
    let (value, next) = if is(&["SET", "SETNX", "GETSET"]) {
        (1, usize::MAX)
    } else if is(&["SETEX", "PSETEX"]) {
        (2, usize::MAX)
    } else if is(&["MSET", "MSETNX"]) {
        (1, 2)
    } else {
        (args.len(), usize::MAX)
    };
    let keys = (1..args.len().saturating_sub(value)).step_by(next);
    keys.map(move |key| (args.get(key).unwrap_or_default(), key + value))
}

/// Whether a string of such a length is in RAM alone: what stays on flash is referred to there.
fn is_hot(server: &Server, db: u8, key: &Key<'_>, value_len: usize) -> bool {
    let keyspace = &server.tier.keyspace;
    value_len >= RECENT_VALUE_BYTES_MIN
        && keyspace.lock(key.slot).view(keyspace.table_of(db), key).is_some_and(|view| {
            let is_string = Kind::from_bits(view.kind).is_string();
            is_string && matches!(view.stored, Stored::Hot(value) if value.len() == value_len)
        })
}
