//! Limits of commands for what is loaded or run again: there are none. It was within them once, and would be lost
//! otherwise. What bounds the memory of a load is the reader of the file, by what a request might take when it began.

use command::Limits;

use crate::state::server::Server;

/// What was taken once is taken again, whatever the options are now, and whatever keys leave to clients.
pub(super) struct TakenOnce {
    counts_uses: bool,
}

impl TakenOnce {
    pub(super) fn of(server: &Server) -> TakenOnce {
        TakenOnce { counts_uses: server.tier.settings.policy().is_lfu() }
    }
}

impl Limits for TakenOnce {
    fn string_bytes_max(&self) -> usize {
        usize::MAX
    }

    fn memory_bytes_max(&self) -> usize {
        usize::MAX
    }

    fn counts_uses(&self) -> bool {
        self.counts_uses
    }

    /// The journal has checksums of its own, and what it says was taken, whatever DEBUG had been told.
    fn checks_sums(&self) -> bool {
        false
    }
}
