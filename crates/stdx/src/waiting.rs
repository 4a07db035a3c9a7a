//! Waits of a thread for what others do. In a simulation, where threads are fibers of one thread, whoever waits lets
//! others run instead.

use std::time::Duration;

/// Why a fiber lets others run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waiting {
    /// It sleeps.
    For(Duration),
    /// It looks again when others have done something.
    ForOthers,
    /// It waits for nothing, and others may run first.
    GivesWay,
}

#[cfg(feature = "simulation")]
mod hook {
    use std::cell::Cell;

    use super::Waiting;

    thread_local! {
        static HOOK: Cell<Option<fn(Waiting)>> = const { Cell::new(None) };
    }

    /// Has `hook` called by this thread, which lets others run.
    pub fn set_hook(hook: fn(Waiting)) {
        HOOK.set(Some(hook));
    }

    pub(super) fn is_set() -> bool {
        HOOK.get().is_some()
    }

    pub(super) fn run(waiting: Waiting) -> bool {
        HOOK.get().inspect(|hook| hook(waiting)).is_some()
    }
}

#[cfg(feature = "simulation")]
pub use hook::set_hook;

#[cfg(not(feature = "simulation"))]
mod hook {
    pub(super) fn is_set() -> bool {
        false
    }

    pub(super) fn run(_: super::Waiting) -> bool {
        false
    }
}

/// Whether others run instead of a wait.
pub fn is_simulated() -> bool {
    hook::is_set()
}

/// Sleeps.
pub fn sleep(duration: Duration) {
    if !hook::run(Waiting::For(duration)) {
        std::thread::sleep(duration);
    }
}

/// Lets others run in a simulation, which is the wait: look again. False: this is none, wait as usual.
pub fn let_others_run() -> bool {
    hook::run(Waiting::ForOthers)
}

/// The same where the thread waits for nothing.
pub fn give_way() -> bool {
    hook::run(Waiting::GivesWay)
}
