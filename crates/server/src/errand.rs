//! Work that a command of the session wants done before it answers, while others are served.
//!
//! A handler is synchronous. One that needs something that takes long leaves an errand with its
//! session and returns; the connection carries it out and runs the request again, and the handler
//! then finds what came of it. Such commands are not allowed in transactions, which cannot wait.

use tier::Demoted;

use crate::digest::{DigestOf, Digests};
use crate::worker::Worker;

/// What is to be done, or what came of it.
#[derive(Debug, Default)]
pub(crate) enum Errand {
    /// Nothing.
    #[default]
    None,
    /// Demote every value that can be.
    DemoteAll,
    /// Wait until the drive has taken a write.
    DeviceTurn,
    /// What demoting everything came to.
    Demoted(Demoted),
    /// Read values and work out their digests.
    Digest(DigestOf),
    /// What the digests are.
    Digested(Digests),
}

impl Errand {
    /// Whether it is still to be done.
    #[inline]
    pub(crate) fn is_wanted(&self) -> bool {
        matches!(self, Errand::DemoteAll | Errand::DeviceTurn | Errand::Digest(_))
    }

    /// Does it.
    pub(crate) async fn run(self, worker: &Worker) -> Errand {
        match self {
            Errand::DemoteAll => {
                // Tokio looks at the sockets before it comes back from this.
                let others = async || tokio::task::yield_now().await;
                Errand::Demoted(worker.tier.demote_all(others).await)
            }
            Errand::DeviceTurn => {
                worker.tier.device_turn().await;
                Errand::None
            }
            Errand::Digest(what) => Errand::Digested(what.run(worker).await),
            done => done,
        }
    }
}
