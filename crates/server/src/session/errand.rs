//! Work that a command of the session wants done before it answers, while others are served.
//!
//! A handler is synchronous. One that needs something that takes long leaves an errand with its
//! session and returns; the connection carries it out and runs the request again, and the handler
//! then finds what came of it. Such commands are not allowed in transactions, which cannot wait.

use std::rc::Rc;
use std::sync::Arc;

use tier::Demoted;
use tokio::sync::oneshot;

use crate::config::ConfigError;
use crate::session::digest::{DigestOf, Digests, others};
use crate::session::load::Load;
use crate::session::save::{save_and_shut_down, start_save};
use crate::state::saves::Purpose;
use crate::state::server::Server;
use crate::state::worker::Worker;

/// A change of options. It may wait for drives, so it has a thread of its own.
pub(crate) type Change = Box<dyn FnOnce(&Arc<Server>) -> Result<(), ConfigError> + Send>;

/// What is to be done, or what came of it.
#[derive(Default)]
pub(crate) enum Errand {
    /// Nothing.
    #[default]
    None,
    /// Demote every value that can be.
    DemoteAll,
    /// Wait until the drive has taken a write.
    DeviceTurn,
    /// Change options.
    Change(Change),
    /// What demoting everything came to.
    Demoted(Demoted),
    /// Read values and work out their digests.
    Digest(DigestOf),
    /// What the digests are.
    Digested(Digests),
    /// Take a snapshot.
    Save(Purpose),
    /// Whether there is its file.
    Saved(bool),
    /// Read the snapshot's file into the databases.
    Load(Load),
    /// What came of that.
    Loaded(Result<(), String>),
    /// What changing options came to.
    Changed(Result<(), ConfigError>),
}

impl Errand {
    /// Whether it is still to be done.
    #[inline]
    pub(crate) fn is_wanted(&self) -> bool {
        matches!(
            self,
            Errand::DemoteAll
                | Errand::DeviceTurn
                | Errand::Digest(_)
                | Errand::Change(_)
                | Errand::Save(_)
                | Errand::Load(_)
        )
    }

    /// Does it.
    pub(crate) async fn run(self, worker: &Rc<Worker>) -> Errand {
        match self {
            Errand::DemoteAll => Errand::Demoted(worker.tier.demote_all(others).await),
            Errand::DeviceTurn => {
                worker.tier.device_turn().await;
                Errand::None
            }
            Errand::Digest(what) => Errand::Digested(what.run(worker).await),
            Errand::Change(change) => Errand::Changed(run_change(worker, change).await),
            Errand::Save(Purpose::Shutdown) => {
                let turn = async || worker.upkeep_tick.notified().await;
                Errand::Saved(save_and_shut_down(&worker.server, turn).await.is_ok())
            }
            Errand::Save(purpose) => Errand::Saved(save(worker, purpose).await),
            Errand::Load(load) => Errand::Loaded(load.run(worker).await),
            done => done,
        }
    }

    /// Takes it out.
    pub(crate) fn take(&mut self) -> Errand {
        std::mem::take(self)
    }
}

/// Takes a snapshot and waits for it. False: there is none, or another is under way.
pub(super) async fn save(worker: &Worker, purpose: Purpose) -> bool {
    let (sender, receiver) = oneshot::channel();
    let done = move |is_saved| {
        // A client that has gone does not wait for it any more.
        let _ = sender.send(is_saved);
    };
    match start_save(&worker.server, purpose, done) {
        Ok(true) => receiver.await.unwrap_or(false),
        Ok(false) => false,
        Err(error) => {
            tracing::error!(%error, "cannot start a thread to save");
            false
        }
    }
}

/// The same, once those that are under way have ended.
pub(super) async fn save_in_turn(worker: &Worker, purpose: Purpose) -> bool {
    loop {
        if save(worker, purpose).await {
            return true;
        }
        if worker.server.saves.purpose().is_none() || worker.server.is_stopping() {
            return false;
        }
        worker.upkeep_tick.notified().await;
    }
}

async fn run_change(worker: &Worker, change: Change) -> Result<(), ConfigError> {
    let (sender, receiver) = oneshot::channel();
    let server = worker.server.clone();
    let run = move || {
        // A client that has gone does not wait for it any more.
        let _ = sender.send(change(&server));
    };
    if let Err(error) = worker.server.threads.start("change", Box::new(run)) {
        return Err(ConfigError::NoThread(error.to_string()));
    }
    receiver.await.unwrap_or_else(|_| Err(ConfigError::NoThread("it has ended".to_owned())))
}
