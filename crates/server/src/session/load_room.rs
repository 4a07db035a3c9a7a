//! Room on flash for a load: what its writes free may be held for the last checkpoint, and none can be taken before the load has
//! ended. So the flash is larger than `flash-size` for a while, until a checkpoint is in place.

use std::sync::atomic::Ordering;

use flash::{Engine, EngineError};

use crate::state::server::Server;

/// So many times `flash-size` it is at most, the drive permitting.
const SIZE_MAX_FACTOR: u64 = 2;
/// A step is an eighth of `flash-size`.
const STEP_SHIFT: u32 = 3;

/// Makes room if somebody has found none and some is held. Whoever finds none waits for that, as for a checkpoint, unless no more
/// can be made.
pub(super) fn make_room_for_load(server: &Server) {
    let tier = &server.tier;
    let Some(engine) = tier.engine() else { return };
    let (size, now) = (server.config.flash_size.load(), engine.free_space().capacity_bytes);
    let bytes = now + (size >> STEP_SHIFT);
    let may_be_larger = bytes <= size * SIZE_MAX_FACTOR;
    let is_short =
        may_be_larger && tier.is_checkpoint_waited_for() && tier.take_wish_for_checkpoint();
    let comes = may_be_larger && (!is_short || enlarge(server, &*engine, bytes));
    tier.set_checkpoint_comes(comes);
}

/// Whether it could be done.
fn enlarge(server: &Server, engine: &dyn Engine, bytes: u64) -> bool {
    let larger = || bytes.max(server.config.flash_size.load());
    let bytes = match resize(larger, |bytes| engine.resize(bytes)) {
        Ok(bytes) => bytes,
        Err(error) => {
            tracing::warn!(%error, "flash cannot be larger for what is loaded");
            return false;
        }
    };
    tracing::warn!(
        bytes,
        "flash is larger than flash-size for what is loaded, until the journal's next checkpoint"
    );
    // As soon as it can be taken.
    server.journaling.is_scheduled.store(true, Ordering::Relaxed);
    true
}

/// Lets the flash be as large as it should be again, now that a checkpoint is in place.
pub(super) fn give_room_of_load_back(server: &Server) {
    let is_larger = |engine: &dyn Engine, size| engine.free_space().capacity_bytes > size;
    let size = || server.config.flash_size.load();
    let Some(engine) = server.tier.engine().filter(|engine| is_larger(&**engine, size())) else {
        return;
    };
    match resize(size, |bytes| engine.resize(bytes)) {
        Ok(bytes) => tracing::info!(bytes, "flash is as large as flash-size again"),
        Err(error) => tracing::warn!(%error, "flash stays larger than flash-size"),
    }
}

/// Has the flash resized to a size that may change meanwhile, when CONFIG SET has it resized, too: the last is to be what it
/// says then. Returns it.
fn resize(
    size: impl Fn() -> u64,
    resize: impl Fn(u64) -> Result<(), EngineError>,
) -> Result<u64, EngineError> {
    loop {
        let bytes = size();
        let resized = resize(bytes);
        if size() == bytes {
            return resized.map(|()| bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn a_size_that_is_set_meanwhile_is_not_undone() {
        for is_refused in [false, true] {
            let (option, flash) = (Cell::new(10), Cell::new(20));
            let resized = resize(
                || option.get(),
                |bytes| {
                    if bytes == 10 {
                        // Another thread sets the option, and has the flash resized, before this one has.
                        option.set(30);
                        flash.set(30);
                        if is_refused {
                            return Err(EngineError::Settings("no room".to_owned()));
                        }
                    }
                    flash.set(bytes);
                    Ok(())
                },
            );
            assert_eq!((resized.ok(), flash.get()), (Some(30), 30));
        }
    }
}
