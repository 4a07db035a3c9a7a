//! Leaves of hashes on flash alone from which fields are to be removed, on their way from upkeep, which has met
//! them, to the task that reads them.

use std::cell::{Cell, RefCell};

use command::collection::ColdLeaf;
use tokio::sync::Notify;

use crate::limits::COLD_FIELDS_LEAVES_MAX;

/// The leaves of a worker's slots.
#[derive(Default)]
pub(crate) struct ColdFields {
    leaves: RefCell<Vec<ColdLeaf>>,
    is_reading: Cell<bool>,
    found: Notify,
}

impl ColdFields {
    /// Has leaves read. While others are being read they are left out: upkeep will meet them again.
    pub(crate) fn add(&self, found: Vec<ColdLeaf>) {
        if found.is_empty() || self.is_reading.get() {
            return;
        }
        let mut leaves = self.leaves.borrow_mut();
        leaves.extend(found);
        leaves.truncate(COLD_FIELDS_LEAVES_MAX);
        self.found.notify_one();
    }

    /// Waits for leaves, and takes them to be read: none are added before this is called again.
    pub(crate) async fn next(&self) -> Vec<ColdLeaf> {
        self.is_reading.set(false);
        loop {
            self.found.notified().await;
            let leaves = self.leaves.take();
            if !leaves.is_empty() {
                self.is_reading.set(true);
                return leaves;
            }
        }
    }
}
