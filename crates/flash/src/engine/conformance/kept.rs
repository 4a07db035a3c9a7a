//! The model keyspace takes checkpoints, and goes on from one as a start does.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::{Entry, Mix, Rig, Value, size_of};
use crate::engine::{CheckpointEnd, Engine};
use crate::error::EngineError;
use crate::journal::Position;
use crate::location::RecordId;

/// A checkpoint under way.
pub(crate) struct Taking {
    number: u64,
    unsaved: BTreeSet<u32>,
    saved: BTreeMap<u32, Saved>,
}

/// What a checkpoint says of a key: its value, and where the record is if it refers to that.
type Saved = (Value, Option<RecordId>);

/// A checkpoint.
#[derive(Clone)]
pub(crate) struct Kept {
    pub(crate) state: Vec<u8>,
    saved: BTreeMap<u32, Saved>,
}

impl Kept {
    /// Values that it refers to.
    pub(crate) fn references(&self) -> usize {
        self.saved.values().filter(|saved| saved.1.is_some()).count()
    }

    /// Those of them that are longer than so many bytes.
    pub(crate) fn references_to_longer(&self, bytes: u64) -> usize {
        let is_longer = |(key, (value, _)): &(&u32, &Saved)| size_of(**key, *value) as u64 > bytes;
        self.saved.iter().filter(is_longer).filter(|(_, saved)| saved.1.is_some()).count()
    }
}

impl Rig {
    /// The keyspace of a checkpoint, on an engine that was opened by its state.
    pub(crate) fn reopened(
        engine: Arc<dyn Engine>,
        workers: usize,
        seed: u64,
        kept: &Kept,
    ) -> Self {
        let rig = Self { kept: Some(kept.clone()), ..Self::new(engine, workers, seed) };
        let checkpoints = rig.engine.checkpoints().expect("it keeps records");
        for (&key, &(value, record)) in &kept.saved {
            if let Some(record) = record {
                assert!(checkpoints.claim(record, size_of(key, value)), "key-{key} {value:?}");
            }
            let at = record.map(|record| record.at);
            rig.keyspace.entries.borrow_mut().insert(key, Entry { value, at });
        }
        checkpoints.end_claims().expect("all are there");
        rig
    }

    /// Takes a checkpoint while nothing else happens.
    pub(crate) fn take_checkpoint(&mut self) {
        self.begin_checkpoint();
        self.save_some(usize::MAX);
        let taken = self.close_checkpoint().expect("nothing fails");
        self.end_checkpoint(taken, CheckpointEnd::InPlace);
    }

    /// Takes one while other things happen. Errors: it has failed.
    pub(crate) fn take_beside(&mut self, mix: &Mix, end: CheckpointEnd) -> Result<(), EngineError> {
        self.begin_checkpoint();
        while self.save_some(20) {
            self.work(mix);
        }
        let closed = self.close_checkpoint();
        self.work(mix);
        closed.map(|taken| self.end_checkpoint(taken, end))
    }

    fn begin_checkpoint(&mut self) {
        let checkpoints = self.engine.checkpoints().expect("it keeps records");
        checkpoints.prepare(1).expect("nothing fails");
        let unsaved = self.keyspace.entries.borrow().keys().copied().collect();
        let number = checkpoints.begin();
        self.is_taking = true;
        self.taking = Some(Taking { number, unsaved, saved: BTreeMap::new() });
    }

    /// Saves so many of the keys that are left. False: none is.
    fn save_some(&mut self, count: usize) -> bool {
        let unsaved = &self.taking.as_ref().expect("one is taken").unsaved;
        let keys: Vec<u32> = unsaved.iter().take(count).copied().collect();
        let is_more = keys.len() == count;
        keys.into_iter().for_each(|key| self.save_first(key));
        is_more
    }

    /// Saves a key that is about to change, if it is to be saved.
    pub(super) fn save_first(&mut self, key: u32) {
        let Some(taking) = &mut self.taking else { return };
        let entry = self.keyspace.entries.borrow().get(&key).copied();
        let Some(entry) = entry.filter(|_| taking.unsaved.remove(&key)) else { return };
        let checkpoints = self.engine.checkpoints().expect("it keeps records");
        let refer = |at| checkpoints.refer(taking.number, at, size_of(key, entry.value));
        taking.saved.insert(key, (entry.value, entry.at.and_then(refer)));
    }

    /// Closes the checkpoint, for which the workers turn. Errors: it has failed.
    fn close_checkpoint(&mut self) -> Result<(u64, Kept), EngineError> {
        let taking = self.taking.take().expect("one is taken");
        let engine = Arc::clone(&self.engine);
        let checkpoints = engine.checkpoints().expect("it keeps records");
        let rig = RefCell::new(self);
        let closed = checkpoints.close(taking.number, Position(taking.number * 100), &|| {
            let mut rig = rig.borrow_mut();
            (0..rig.workers.len()).for_each(|worker| rig.turn(worker));
            true
        });
        if closed.is_err() {
            checkpoints.end(taking.number, CheckpointEnd::Failed);
            rig.into_inner().is_taking = false;
        }
        let state = closed?;
        Ok((taking.number, Kept { state, saved: taking.saved }))
    }

    fn end_checkpoint(&mut self, (number, kept): (u64, Kept), end: CheckpointEnd) {
        self.engine.checkpoints().expect("it keeps records").end(number, end);
        self.is_taking = false;
        let is_found = match end {
            CheckpointEnd::InPlace => true,
            CheckpointEnd::Failed => false,
            CheckpointEnd::Unknown => self.random.below(2) == 0,
        };
        if is_found {
            self.kept = Some(kept);
        }
    }
}
