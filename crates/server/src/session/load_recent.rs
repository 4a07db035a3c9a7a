//! Values that a checkpoint refers to in the journal: they are read there, in the order in which they were written, before
//! the records behind the checkpoint are run.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use command::saved::{Journaled, Piece};
use command::{BadRecord, Commands};
use flash::{JournalError, Position, Recent, Recovery};
use rapidhash::RapidHashMap;
use rdb::ObjectType;
use rdb::file::{KeyPart, Short};
use smallvec::SmallVec;
use tier::{Counted, Tier};

use crate::limits::LOADED_BYTES_MAX;
use crate::session::load::{Loading, Merging, NotLoaded, Putting};
use crate::session::load_file::LoadedPiece;
use crate::session::save::set_values;
use crate::state::worker::Worker;

const READ: &str = "invariant: it was read a moment ago";
/// What a key takes in the table beside its name, and what is free there.
const KEY_OVERHEAD_BYTES: u64 = 64;

/// A key whose value is in a record of the journal.
pub(super) struct RecentKey {
    pub(super) db: u64,
    pub(super) key: Short,
    pub(super) expire_at_ms: u64,
    pub(super) journaled: Journaled,
    /// Where it ends in the snapshot.
    pub(super) offset: u64,
}

impl RecentKey {
    /// What it takes until its value is there.
    pub(super) fn bytes(&self) -> u64 {
        size_of::<RecentKey>() as u64 + self.key.len() as u64 + KEY_OVERHEAD_BYTES
    }

    fn value_len(&self) -> usize {
        self.journaled.value_len as usize
    }

    fn refused(&self, reason: impl Into<String>) -> NotLoaded {
        let key = self.key.escape_ascii().to_string();
        NotLoaded::Key { offset: self.offset, key, db: self.db, reason: reason.into().into() }
    }
}

/// Such keys, by how far in front of the checkpoint their records begin.
pub(super) struct RecentKeys {
    keys: RapidHashMap<u64, SmallVec<[RecentKey; 1]>>,
    memory: Counted,
}

impl RecentKeys {
    pub(super) fn new(tier: &Arc<Tier>) -> RecentKeys {
        RecentKeys { keys: RapidHashMap::default(), memory: Counted::new(tier.clone()) }
    }

    pub(super) fn add(&mut self, key: RecentKey) {
        self.memory.add(key.bytes());
        self.keys.entry(key.journaled.back).or_default().push(key);
    }

    /// Takes those out whose values a record has.
    fn take(&mut self, back: u64) -> SmallVec<[RecentKey; 1]> {
        let keys = self.keys.remove(&back).unwrap_or_default();
        self.memory.subtract(keys.iter().map(RecentKey::bytes).sum());
        keys
    }
}

/// Makes keys of the values that the journal has.
///
/// Errors: one of them is not there; there is no memory for it.
pub(super) async fn load_recent(
    worker: &Worker,
    mut recent: RecentKeys,
    recovery: &Recovery,
) -> Result<(), NotLoaded> {
    let (loading, checkpoint) = (Loading::new(worker, Merging::Before), recovery.checkpoint().0);
    let (mut records, mut damage) = (recovery.kept_records(), None);
    let (loaded, mut turn) = (&worker.server.saves.loaded_recent, Turn::default());
    let progress = &worker.server.saves.loading;
    let mut left = recent.keys.keys().max().copied().unwrap_or(0);
    records.go_to(Position(checkpoint.saturating_sub(left)));
    progress.begin_file(left);
    while !recent.keys.is_empty() {
        let (begin, payload) = match records.read()? {
            Recent::Record { begin, payload } => (begin, payload),
            // It matters if it is what is sought.
            Recent::Damage(error) => {
                damage.get_or_insert(error);
                continue;
            }
            Recent::End => break,
        };
        let (back, bytes) = (checkpoint.saturating_sub(begin.0), payload.len() as u64);
        progress.note_read(left.saturating_sub(back));
        left = left.min(back);
        let keys = recent.take(back);
        if !keys.is_empty() {
            loaded.fetch_add(keys.len() as u64, Ordering::Relaxed);
            load_of_record(&loading, keys, (begin, payload)).await?;
        }
        turn.give_way(worker, bytes).await;
    }
    worker.tier.after_batch(&mut worker.tally.borrow_mut());
    let keys = loaded.load(Ordering::Relaxed);
    tracing::info!(keys, "values of the checkpoint were read from the journal");
    match recent.keys.values().flatten().next() {
        None => Ok(()),
        Some(key) => Err(missing(key, checkpoint, damage)),
    }
}

/// Makes keys of what a record has.
async fn load_of_record(
    loading: &Loading<'_>,
    keys: SmallVec<[RecentKey; 1]>,
    (begin, payload): (Position, &[u8]),
) -> Result<(), NotLoaded> {
    let bad = |error: BadRecord| keys[0].refused(format!("{}: {error}", place(begin.0)));
    let sets = last_sets(payload, keys.iter().map(|key| &key.key[..])).map_err(bad)?;
    let set_of = |key: &RecentKey| {
        let set = sets.get(&key.key[..]).filter(|set| set.value_len == key.value_len());
        let what = || key.refused(format!("no such value is in {}", place(begin.0)));
        set.copied().ok_or_else(what)
    };
    let sets: Result<Vec<LastSet>, NotLoaded> = keys.iter().map(set_of).collect();
    let mut sought: Vec<(LastSet, RecentKey)> = sets?.into_iter().zip(keys).collect();
    sought.sort_by_key(|(set, _)| set.command);
    let mut sought = sought.into_iter().peekable();
    let mut commands = Commands::read(payload).expect(READ);
    for number in 0.. {
        let Some(command) = commands.read_next().expect(READ) else { break };
        while let Some((set, key)) = sought.next_if(|(set, _)| set.command == number) {
            let piece = piece_of(key, &command.args[set.argument]);
            loading.put(&mut Putting::default(), piece).await?;
        }
    }
    Ok(())
}

fn place(position: u64) -> String {
    format!("the record of the journal that begins at position {position}")
}

fn missing(key: &RecentKey, checkpoint: u64, damage: Option<JournalError>) -> NotLoaded {
    let place = place(checkpoint.saturating_sub(key.journaled.back));
    let reason = damage.map_or("it is missing".to_owned(), |damage| damage.to_string());
    key.refused(format!("its value is in {place}: {reason}"))
}

/// The last command of a record that sets a key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LastSet {
    /// Its number among those of the record.
    command: usize,
    /// Where the value is among its arguments.
    argument: usize,
    pub(crate) value_len: usize,
}

/// Those of some keys. Cost: one pass over the record, however many there are.
pub(crate) fn last_sets<'k>(
    payload: &[u8],
    names: impl Iterator<Item = &'k [u8]>,
) -> Result<RapidHashMap<&'k [u8], LastSet>, BadRecord> {
    let mut sets: RapidHashMap<&[u8], Option<LastSet>> = names.map(|name| (name, None)).collect();
    let mut commands = Commands::read(payload)?;
    for command in 0.. {
        let Some(logged) = commands.read_next()? else { break };
        for (name, argument) in set_values(logged.args) {
            if let Some(set) = sets.get_mut(name) {
                let value_len = logged.args[argument].len();
                *set = Some(LastSet { command, argument, value_len });
            }
        }
    }
    Ok(sets.into_iter().filter_map(|(name, set)| Some((name, set?))).collect())
}

/// Has others run now and then.
#[derive(Default)]
struct Turn {
    /// Bytes of records that were read since.
    bytes: u64,
}

impl Turn {
    async fn give_way(&mut self, worker: &Worker, bytes: u64) {
        self.bytes += bytes;
        if self.bytes >= LOADED_BYTES_MAX {
            self.bytes = 0;
            worker.tier.after_batch(&mut worker.tally.borrow_mut());
            tokio::task::yield_now().await;
        }
    }
}

fn piece_of(key: RecentKey, value: &[u8]) -> LoadedPiece {
    let RecentKey { db, key, expire_at_ms, offset, .. } = key;
    let (object_type, idle_seconds, frequency) = (ObjectType::String, None, None);
    let key = key.into_vec();
    let part = KeyPart { db, key, object_type, expire_at_ms, idle_seconds, frequency };
    LoadedPiece { part: Arc::new(part), piece: Piece::of_string(value), offset }
}
