//! Where fibers wait, and where they may be stopped.

use std::cell::Cell;
use std::sync::LazyLock;

use keyspace::schedule::LockPoint;
use stdx::waiting::Waiting;

use crate::command::KEYS;
use crate::fiber::{Pause, is_inside, pass, pause, point};

/// Of how many slots without a client's key one is where whoever walks over all lets others run.
const WALKED_ONE_IN: u32 = 2_000;

/// The slots of the clients' keys: to stop a worker at others would show nothing.
static SLOTS: LazyLock<Vec<u16>> =
    LazyLock::new(|| KEYS.iter().map(|key| stdx::key_slot(key.as_bytes())).collect());

thread_local! {
    /// Whether the slot that was locked last is one of them.
    static IS_AT_KEYS: Cell<bool> = const { Cell::new(false) };
    /// Others that whoever walks over all has left behind.
    static WALKED: Cell<u32> = const { Cell::new(0) };
}

/// Has the fibers of this thread stop.
pub(super) fn set_hooks() {
    WALKED.set(0);
    keyspace::schedule::set_hook(|at| match at {
        LockPoint::Before(slot) => {
            let is_at_keys = SLOTS.contains(&slot);
            if is_at_keys {
                point()
            } else {
                pass()
            }
            IS_AT_KEYS.set(is_at_keys);
        }
        LockPoint::Shared => point(),
        LockPoint::Held => {
            assert!(is_inside(), "a slot is held by a fiber that does not run");
            pause(Pause::Blocked);
        }
    });
    stdx::waiting::set_hook(|waiting| match waiting {
        Waiting::For(duration) => pause(Pause::Sleeping(duration.as_micros() as u64)),
        Waiting::ForOthers => {
            assert!(is_inside(), "it waits for a fiber that does not run");
            pause(Pause::Blocked);
        }
        Waiting::GivesWay => give_way(),
    });
}

/// The walk over all slots is held up where clients have keys, and now and then elsewhere.
fn give_way() {
    let walked = WALKED.get() + 1;
    let is_due = IS_AT_KEYS.get() || walked >= WALKED_ONE_IN;
    WALKED.set(if is_due { 0 } else { walked });
    if is_due {
        pause(Pause::Preempted);
    }
}
