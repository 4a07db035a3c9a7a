//! Room on flash for a load: what its writes free may be held for the last checkpoint, and none can be taken before the load has
//! ended. So the flash is larger than `flash-size` for a while, until a checkpoint is in place.

use std::sync::atomic::Ordering;

use flash::Engine;

use crate::state::server::Server;

/// So many times `flash-size` it is at most, the drive permitting.
const SIZE_MAX_FACTOR: u64 = 2;
/// A step is an eighth of `flash-size`.
const STEP_SHIFT: u32 = 3;

/// Makes room if somebody has found none and some is held. Whoever finds none waits for that, as for a checkpoint, unless no more
/// can be made.
pub(super) fn make_room_for_load(server: &Server) {
    let tier = &server.tier;
    let Some(engine) = &tier.engine else { return };
    let (size, now) = (server.config.flash_size.load(), engine.free_space().capacity_bytes);
    let bytes = now + (size >> STEP_SHIFT);
    let may_be_larger = bytes <= size * SIZE_MAX_FACTOR;
    let is_short =
        may_be_larger && tier.is_checkpoint_waited_for() && tier.take_wish_for_checkpoint();
    let comes = may_be_larger && (!is_short || enlarge(server, &**engine, bytes));
    tier.set_checkpoint_comes(comes);
}

/// Whether it could be done.
fn enlarge(server: &Server, engine: &dyn Engine, bytes: u64) -> bool {
    if let Err(error) = engine.resize(bytes) {
        tracing::warn!(%error, "flash cannot be larger for what is loaded");
        return false;
    }
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
    let size = server.config.flash_size.load();
    let Some(engine) = server.tier.engine.as_deref().filter(|engine| is_larger(*engine, size))
    else {
        return;
    };
    match engine.resize(size) {
        Ok(()) => tracing::info!(bytes = size, "flash is as large as flash-size again"),
        Err(error) => tracing::warn!(%error, "flash stays larger than flash-size"),
    }
}
