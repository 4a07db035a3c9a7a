//! A worker's turn: how much its clients may read and be answered before it looks for new events.

use std::cell::Cell;

use crate::limits::TURN_BYTES_MAX;

/// What a worker's clients have read and been answered since it looked for new events. Those that
/// ask for much would otherwise all have their turn before it looks again.
#[derive(Default)]
pub(crate) struct Turn {
    bytes: Cell<usize>,
    number: Cell<u32>,
}

impl Turn {
    /// Counts bytes that were read or answered.
    #[inline]
    pub(crate) fn add(&self, bytes: usize) {
        self.bytes.set(self.bytes.get() + bytes);
    }

    /// Whether it is time to look for new events.
    #[inline]
    pub(crate) fn is_spent(&self) -> bool {
        self.bytes.get() > TURN_BYTES_MAX
    }

    /// Waits for the next turn that is not spent.
    #[cold]
    pub(crate) async fn end(&self) {
        while self.is_spent() {
            let number = self.number.get();
            // The runtime looks for events first, and wakes whoever they are for before us.
            tokio::task::yield_now().await;
            // The first that goes on begins a turn for all.
            if self.number.get() == number {
                self.number.set(number.wrapping_add(1));
                self.bytes.set(0);
            }
        }
    }
}
