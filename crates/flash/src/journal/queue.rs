//! What those who append hand to the writer, and how it waits for them.

use std::time::Instant;

use parking_lot::{Condvar, Mutex, MutexGuard};

use super::Position;
use super::buffer::Buffer;
use super::error::JournalError;
use super::shared::Shared;
use crate::limits::JOURNAL_GATHER_BYTES;

pub(crate) struct Queue {
    state: Mutex<State>,
    /// The writer has something to do.
    work: Condvar,
    /// A segment was cut, or the journal fails, or its writer has ended.
    cut: Condvar,
}

pub(crate) struct State {
    pub(crate) buffer: Buffer,
    /// Bytes in the buffer with which the writer is woken. None: it is awake.
    wake_at: Option<usize>,
    /// Up to where somebody waits for the journal to be durable.
    wanted: u64,
    /// What the last mark says.
    pub(crate) marked: u64,
    /// Where a segment is to begin.
    cut: Option<u64>,
    /// The position of the last checkpoint that was begun, whatever became of it.
    last_cut: Option<u64>,
    /// Where one did, for a checkpoint.
    cut_done: Option<Cut>,
    pub(crate) is_closing: bool,
}

/// A place at which a segment begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cut {
    pub(crate) position: u64,
    /// The first number of the segments behind it.
    pub(crate) number: u64,
}

/// What the writer waits for, beside work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wait {
    /// Until then at most.
    pub(crate) until: Option<Instant>,
    /// So long it lets little gather.
    pub(crate) gathers_until: Instant,
    /// It has failed and waits to try again: work is no reason to do so earlier.
    pub(crate) is_failing: bool,
}

impl State {
    /// Whether somebody waits for what the writer is to do.
    pub(crate) fn is_urgent(&self, durable: u64) -> bool {
        self.is_closing || self.cut.is_some() || self.wanted > durable
    }

    /// Whether the buffer is to be taken now.
    pub(crate) fn is_due(&self, now: Instant, gathers_until: Instant, durable: u64) -> bool {
        self.buffer.bytes() > 0
            && (self.is_urgent(durable)
                || self.buffer.bytes() >= JOURNAL_GATHER_BYTES
                || now >= gathers_until)
    }

    /// Whether there is work for a writer that waits so.
    pub(crate) fn ends_wait(&self, wait: Wait, shared: &Shared) -> bool {
        let has_work =
            || self.is_urgent(shared.durable()) || self.buffer.bytes() >= JOURNAL_GATHER_BYTES;
        self.is_closing || (!wait.is_failing && has_work())
    }

    /// Until when it waits if none comes.
    pub(crate) fn waits_until(&self, wait: Wait) -> Option<Instant> {
        let gathers = !wait.is_failing && self.buffer.bytes() > 0;
        let gathers_until = gathers.then_some(wait.gathers_until);
        wait.until.into_iter().chain(gathers_until).min()
    }

    /// See `cut`.
    pub(crate) fn cut(&self) -> Option<u64> {
        self.cut
    }

    pub(crate) fn wanted(&self) -> u64 {
        self.wanted
    }
}

impl Queue {
    /// What goes on with a buffer, behind a checkpoint at `last_cut`.
    pub(crate) fn new(buffer: Buffer, last_cut: Option<u64>) -> Self {
        let (start, end) = (buffer.start(), buffer.end());
        let state = State {
            buffer,
            wake_at: None,
            // What is there already is to be durable soon.
            wanted: end,
            marked: start,
            cut: None,
            last_cut,
            cut_done: None,
            is_closing: false,
        };
        Self { state: Mutex::new(state), work: Condvar::new(), cut: Condvar::new() }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Lets go of the state that `append` has changed, and wakes the writer if that is enough for it.
    pub(crate) fn unlock_appended(&self, mut state: MutexGuard<'_, State>) {
        let is_enough = state.wake_at.is_some_and(|bytes| state.buffer.bytes() >= bytes);
        if is_enough {
            state.wake_at = None;
        }
        drop(state);
        if is_enough {
            self.work.notify_one();
        }
    }

    /// Has the writer bring all up to `position` to the drive soon.
    pub(crate) fn want(&self, position: u64) {
        let mut state = self.lock();
        if position > state.wanted {
            state.wanted = position;
            state.wake_at = None;
            drop(state);
            self.work.notify_one();
        }
    }

    /// Has a segment begin where the next record does. One that was to begin and has not is none then. No two checkpoints
    /// have one position: their files go by it, and those of the one that counts must stay until the next does.
    pub(crate) fn begin_cut(&self, shared: &Shared) -> u64 {
        let mut state = self.lock();
        if state.last_cut == Some(state.buffer.end()) {
            let marked = state.marked;
            state.buffer.append_mark(marked);
            shared.set_appended(state.buffer.end());
        }
        let position = state.buffer.end();
        (state.cut, state.last_cut) = (Some(position), Some(position));
        state.wake_at = None;
        drop(state);
        self.work.notify_one();
        position
    }

    /// A segment will begin there.
    pub(crate) fn end_cut(&self, cut: Cut) {
        let mut state = self.lock();
        // Another one may have been asked for meanwhile.
        if state.cut == Some(cut.position) {
            state.cut = None;
        }
        state.cut_done = Some(cut);
        drop(state);
        self.cut.notify_all();
    }

    /// Waits until the segments are cut there.
    ///
    /// Errors: they are cut elsewhere, or the journal fails.
    pub(crate) fn wait_for_cut(&self, at: Position, shared: &Shared) -> Result<Cut, JournalError> {
        let mut state = self.lock();
        loop {
            if let Some(cut) = state.cut_done.filter(|cut| cut.position == at.0) {
                return Ok(cut);
            }
            shared.outcome()?;
            if state.cut != Some(at.0) {
                return Err(JournalError::Overtaken);
            }
            match stdx::waiting::is_simulated() {
                true => drop(MutexGuard::unlocked(&mut state, stdx::waiting::let_others_run)),
                false => self.cut.wait(&mut state),
            }
        }
    }

    /// Wakes those who wait for a cut, to look whether there will be one.
    pub(crate) fn recheck_cut(&self) {
        // With the lock held, so that whoever has just looked is waiting now.
        let _state = self.lock();
        self.cut.notify_all();
    }

    /// Has the writer end.
    pub(crate) fn close(&self) {
        let mut state = self.lock();
        state.is_closing = true;
        state.wake_at = None;
        drop(state);
        self.work.notify_one();
    }

    /// The writer waits for work.
    pub(crate) fn wait(&self, wait: Wait, shared: &Shared) {
        let mut state = self.lock();
        while !state.ends_wait(wait, shared) {
            let bytes = state.buffer.bytes();
            if !wait.is_failing {
                state.wake_at = Some(if bytes == 0 { 1 } else { JOURNAL_GATHER_BYTES });
            }
            match state.waits_until(wait) {
                Some(until) => {
                    if self.work.wait_until(&mut state, until).timed_out() {
                        break;
                    }
                }
                None => self.work.wait(&mut state),
            }
        }
        state.wake_at = None;
    }
}
