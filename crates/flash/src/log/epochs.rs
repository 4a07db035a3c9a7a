//! Which checkpoints may refer to records, and which freed segments wait for that.
//!
//! Checkpoints are numbered in the order in which they begin, one after the other. One refers to records of segments that
//! were opened before its last reference was made, and freed after it had begun. A start may find the last that was put in
//! place, the one under way, or one of which nobody knows whether it was: what these may refer to stays as it is.

/// The checkpoints of a log. Without any nothing is held.
#[derive(Debug, Default)]
pub(crate) struct Epochs {
    /// The number of the last that has begun.
    begun: u64,
    /// The last to which no more references are added.
    closed: u64,
    /// Those that a start may find: the last in place first, the one under way last, and one between them of which nobody
    /// knows, at most.
    possible: Vec<u64>,
}

/// How a checkpoint has ended.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub enum CheckpointEnd {
    /// It is what a start will find.
    InPlace,
    /// No start will find it.
    Failed,
    /// A start may find it, or the one before.
    Unknown,
}

impl Epochs {
    /// Those of a log that was opened by the state of a checkpoint.
    pub(crate) fn behind(number: u64) -> Self {
        Self { begun: number, closed: number, possible: vec![number] }
    }

    pub(crate) fn begin(&mut self) -> u64 {
        self.begun += 1;
        self.possible.push(self.begun);
        self.begun
    }

    /// No more references are made for a checkpoint.
    pub(crate) fn close(&mut self, number: u64) {
        self.closed = self.closed.max(number);
    }

    pub(crate) fn end(&mut self, number: u64, end: CheckpointEnd) {
        self.close(number);
        match end {
            CheckpointEnd::InPlace => self.possible.retain(|&other| other >= number),
            CheckpointEnd::Failed => self.possible.retain(|&other| other != number),
            CheckpointEnd::Unknown => {
                // What those between may refer to is held with it.
                let last = self.possible.len().saturating_sub(1);
                self.possible.drain(last.min(1)..last);
            }
        }
    }

    /// No start will find a checkpoint that refers to records.
    pub(crate) fn forget(&mut self) {
        self.close(self.begun);
        self.possible.clear();
    }

    /// What a segment that is opened now is to remember.
    pub(crate) fn at_opening(&self) -> u64 {
        self.closed
    }

    /// What is to be remembered of a segment that is freed now.
    pub(crate) fn at_freeing(&self) -> u64 {
        self.begun
    }

    /// Segments that were opened with less to remember are held when they are freed now. 0: none is.
    pub(crate) fn holds_before(&self) -> u64 {
        self.possible.last().copied().unwrap_or(0)
    }

    /// Whether a segment may be referred to that was opened and freed then.
    pub(crate) fn holds(&self, opened: u64, freed: u64) -> bool {
        let [Some(&first), Some(&last)] = [self.possible.first(), self.possible.last()] else {
            return false;
        };
        opened < last && first <= freed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_segment_is_held_while_a_checkpoint_that_may_be_found_may_refer_to_it() {
        let mut epochs = Epochs::default();
        let old = epochs.at_opening();
        assert!(!epochs.holds(old, epochs.at_freeing()));
        let first = epochs.begin();
        let freed = epochs.at_freeing();
        let within = epochs.at_opening();
        assert!(epochs.holds(old, freed) && epochs.holds(within, freed));
        epochs.close(first);
        let behind = epochs.at_opening();
        assert!(!epochs.holds(behind, epochs.at_freeing()), "it was opened too late");
        epochs.end(first, CheckpointEnd::InPlace);
        assert!(epochs.holds(old, freed), "the one in place refers to it");
        let second = epochs.begin();
        assert!(epochs.holds(behind, epochs.at_freeing()), "the second may refer to it");
        epochs.end(second, CheckpointEnd::Failed);
        assert!(!epochs.holds(behind, epochs.at_freeing()) && epochs.holds(old, freed));
        let third = epochs.begin();
        epochs.end(third, CheckpointEnd::Unknown);
        assert!(epochs.holds(old, freed) && epochs.holds(behind, epochs.at_freeing()));
        let freed_before = epochs.at_freeing();
        let fourth = epochs.begin();
        epochs.end(fourth, CheckpointEnd::InPlace);
        assert!(!epochs.holds(old, freed_before), "it was freed before the fourth began");
        assert!(epochs.holds(old, epochs.at_freeing()));
        epochs.forget();
        assert!(!epochs.holds(old, epochs.at_freeing()));
    }

    #[test]
    fn checkpoints_of_which_nobody_knows_do_not_add_up() {
        let mut epochs = Epochs::default();
        let first = epochs.begin();
        epochs.end(first, CheckpointEnd::InPlace);
        let mut segments = vec![(0, epochs.at_freeing())];
        for _ in 0..100 {
            let number = epochs.begin();
            segments.push((epochs.at_opening(), epochs.at_freeing()));
            epochs.end(number, CheckpointEnd::Unknown);
            let failed = epochs.begin();
            epochs.end(failed, CheckpointEnd::Failed);
            assert_eq!(epochs.possible, [first, number]);
            assert!(segments.iter().all(|&(opened, freed)| epochs.holds(opened, freed)));
        }
        let last = epochs.begin();
        epochs.end(last, CheckpointEnd::InPlace);
        assert!(!segments.iter().any(|&(opened, freed)| epochs.holds(opened, freed)));
    }

    #[test]
    fn a_start_goes_on_behind_its_checkpoint() {
        let mut epochs = Epochs::behind(7);
        assert!(epochs.holds(0, epochs.at_freeing()), "the seventh refers to it");
        assert!(!epochs.holds(epochs.at_opening(), epochs.at_freeing()));
        assert_eq!(epochs.begin(), 8);
    }
}
