//! Flash is switched off while the server runs: all values come back to RAM, and then it is closed and its files go.
//!
//! A thread of its own does it (`tier/src/drain.rs`), and flash stays as it is if it does not get to the end: where there is
//! no memory, where a value cannot be read, where a client wants it back. Until the last value is in RAM what memory
//! lacks still goes to flash, so no key is evicted and no write refused for a drain. Checkpoints of the journal have all values
//! from its beginning on, and one takes the place of the last that refers to flash before any file goes.

use std::sync::Arc;
use std::time::{Duration, Instant};

use keyspace::SLOT_COUNT;
use tier::TierWorker;

use crate::config::{ConfigError, OptionRow, ProtectedOptions, WaitForChange};
use crate::limits::{DRAIN_LOOKS_MAX, DRAIN_WALKS_MAX};
use crate::session::flash::{LOOK_EVERY, await_workers};
use crate::session::journal::is_begun;
use crate::session::save::{forget_references, take_checkpoint};
use crate::state::flash::{Drain, DrainEnd};
use crate::state::server::Server;

/// Between two walks over all slots.
const WALK_EVERY: Duration = Duration::from_millis(10);

/// Begins to bring all values back to RAM, after which flash is closed, if it has not begun.
///
/// Errors: they do not fit, or it cannot be done now.
pub(super) fn switch_off(server: &Arc<Server>) -> Result<(), String> {
    if server.flash_changes.drain().is_some() {
        return Ok(());
    }
    if server.saves.is_loading() {
        return Err("flash cannot be switched off while the data is loaded".to_owned());
    }
    let room = server.tier.drain_room();
    if !room.is_enough() {
        return Err(format!(
            "the values on flash take {} bytes in RAM, and {} are free within maxmemory",
            room.wanted_bytes, room.free_bytes
        ));
    }
    let drain = server.flash_changes.begin_drain();
    server.tier.set_drains(true);
    let draining = server.clone();
    let job = move || run(&draining, &drain);
    server.threads.start("drain", Box::new(job)).map_err(|error| {
        server.tier.set_drains(false);
        server.flash_changes.end_drain(None);
        format!("no thread to bring values back: {error}")
    })
}

/// Calls off the drain under way, and waits until it has ended, be it at its end. Whether there was one.
pub(super) fn call_off_drain(server: &Server) -> bool {
    let Some(drain) = server.flash_changes.drain() else { return false };
    drain.call_off();
    while server.flash_changes.drain().is_some() && !server.is_stopping() {
        std::thread::sleep(LOOK_EVERY);
    }
    true
}

fn run(server: &Arc<Server>, drain: &Drain) {
    let start = Instant::now();
    let room = server.tier.drain_room();
    tracing::info!(bytes = room.wanted_bytes, "flash is to go: values come back to RAM");
    let drained = drain_all(server, drain);
    let end = drained.err().unwrap_or(DrainEnd::Done);
    let seconds = start.elapsed().as_secs_f64();
    match end {
        DrainEnd::Done => tracing::info!(seconds, "flash is off: all values are in RAM"),
        DrainEnd::CalledOff => tracing::info!(seconds, "flash stays after all"),
        _ => {
            let reason = end.word();
            tracing::error!(seconds, reason, "flash stays, for values could not be brought back");
            put_options_back(server, drain);
        }
    }
    server.tier.set_drains(false);
    server.flash_changes.end_drain(Some(end));
}

fn drain_all(server: &Arc<Server>, drain: &Drain) -> Result<(), DrainEnd> {
    let worker = TierWorker::reader(server.tier.clone()).map_err(|error| {
        tracing::error!(%error, "cannot read flash");
        DrainEnd::Unreadable
    })?;
    bring_back(server, &worker, drain)?;
    // It may take long, and what memory lacks goes to flash meanwhile.
    supersede(server, drain)?;
    while !server.tier.end_demoting(&server.tier.keyspace.lock_all()) {
        bring_back(server, &worker, drain)?;
    }
    drop(worker);
    forget_references(server);
    close_flash(server);
    Ok(())
}

/// Walks over all slots.
struct Walks {
    /// The fewest values that one has left on flash.
    least: i64,
    /// Those since, which have left no fewer.
    vain: u32,
}

impl Default for Walks {
    fn default() -> Walks {
        Walks { least: i64::MAX, vain: 0 }
    }
}

impl Walks {
    /// Notes one, by the values that it has left on flash.
    ///
    /// Errors: there is no getting on.
    fn note(&mut self, left: i64) -> Result<(), DrainEnd> {
        self.vain = if left < self.least { 0 } else { self.vain + 1 };
        self.least = self.least.min(left);
        if self.vain < DRAIN_WALKS_MAX { Ok(()) } else { Err(DrainEnd::NoProgress) }
    }
}

/// Brings values back until none is on flash.
fn bring_back(server: &Server, worker: &TierWorker, drain: &Drain) -> Result<(), DrainEnd> {
    let may_take = |bytes| await_room(server, drain, bytes);
    let unreadable = |failure: &str| {
        tracing::error!(failure, "a value on flash cannot be read");
        DrainEnd::Unreadable
    };
    let mut walks = Walks::default();
    while !server.tier.is_flash_empty() {
        for slot in 0..SLOT_COUNT as u16 {
            worker.drain_slot(slot, &may_take, unreadable)?;
        }
        // Others may have as many values leave RAM.
        walks.note(server.tier.counters.flash_count())?;
        // What is being freed, or collected, is so soon.
        std::thread::sleep(WALK_EVERY);
    }
    Ok(())
}

/// Waits until values of so many bytes may come back.
fn await_room(server: &Server, drain: &Drain, bytes: u64) -> Result<(), DrainEnd> {
    for _ in 0..DRAIN_LOOKS_MAX {
        if drain.is_called_off() || server.is_stopping() {
            return Err(DrainEnd::CalledOff);
        }
        if bytes == 0 || server.tier.has_room_to_drain(bytes) {
            return Ok(());
        }
        std::thread::sleep(LOOK_EVERY);
    }
    Err(DrainEnd::NoMemory)
}

/// Has a checkpoint that refers to nothing on flash take the place of the last of the journal, if there is one.
fn supersede(server: &Arc<Server>, drain: &Drain) -> Result<(), DrainEnd> {
    // One that has begun before may refer to flash, and takes the place of that before it.
    while server.saves.purpose().is_some() || server.saves.is_loading() {
        if drain.is_called_off() || server.is_stopping() {
            return Err(DrainEnd::CalledOff);
        }
        std::thread::sleep(LOOK_EVERY);
    }
    if !is_begun(server) || take_checkpoint(server) || !is_begun(server) {
        return Ok(());
    }
    match drain.is_called_off() || server.is_stopping() {
        true => Err(DrainEnd::CalledOff),
        false => Err(DrainEnd::NoCheckpoint),
    }
}

/// Has the workers let go of the engine, and closes it: its files go with it.
pub(super) fn close_flash(server: &Server) {
    server.tier.recall_engine();
    while let Err(reason) = await_workers(server) {
        if server.is_stopping() {
            // The files go with the process, or are emptied by the next.
            return;
        }
        tracing::error!(reason, "a worker cannot let go of flash");
    }
    let Some(engine) = server.tier.take_engine() else { return };
    // Others may have it for a moment. The files go when nobody has.
    while Arc::strong_count(&engine) > 1 && !server.is_stopping() {
        std::thread::sleep(LOOK_EVERY);
    }
}

/// Has the options of flash say again what there is.
fn put_options_back(server: &Server, drain: &Drain) {
    let mut put_back = |_: &[&'static OptionRow]| {
        server.config.put_flash(server.flash_changes.options());
        Ok(())
    };
    // A change that is under way may be one that waits for the end of this.
    while !drain.is_called_off() && !server.is_stopping() {
        let (protected, wait) = (ProtectedOptions::Allowed, WaitForChange::No);
        match server.config.set(&[], protected, wait, &mut put_back) {
            Err(ConfigError::Busy) => std::thread::sleep(LOOK_EVERY),
            Err(error) => {
                return tracing::error!(%error, "flash-path and flash-size do not say what there is");
            }
            Ok(()) => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;
    use crate::state::client_memory::tests::server;
    use crate::state::saves::Purpose;

    #[test]
    fn walks_in_vain_end_it() {
        let mut walks = Walks::default();
        for left in [100, 90] {
            assert_eq!(walks.note(left), Ok(()));
            // As many leave RAM as come back, or more.
            for _ in 1..DRAIN_WALKS_MAX {
                assert_eq!(walks.note(left + 5), Ok(()));
            }
        }
        assert_eq!(walks.note(90), Err(DrainEnd::NoProgress));
    }

    /// So long a test waits for what must not come.
    const MOMENT: Duration = Duration::from_millis(50);

    /// A checkpoint that was begun before refers to flash, whether there is a journal yet or not.
    #[test]
    fn what_is_saved_by_others_is_waited_for() {
        for is_called_off in [false, true] {
            let (server, drain) = (Arc::new(server()), Arc::new(Drain::default()));
            assert!(server.saves.begin(Purpose::Checkpoint));
            let (sender, receiver) = mpsc::channel();
            let (waiting, of_waiting) = (server.clone(), drain.clone());
            std::thread::spawn(move || sender.send(supersede(&waiting, &of_waiting)));
            assert!(receiver.recv_timeout(MOMENT).is_err(), "one is under way");
            let end = match is_called_off {
                true => {
                    drain.call_off();
                    Err(DrainEnd::CalledOff)
                }
                false => {
                    server.saves.end(None, false);
                    Ok(())
                }
            };
            assert_eq!(receiver.recv(), Ok(end));
        }
    }
}
