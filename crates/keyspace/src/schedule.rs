//! Locking in a simulation, where the threads are fibers of one thread: whoever finds a slot held
//! lets another run instead of waiting for ever, and may be stopped wherever it is about to lock
//! one, or where it reads what others change without a lock. A thread that has set no [`Hook`] locks as usual.

use std::cell::Cell;

use parking_lot::{Mutex, MutexGuard};

/// What a simulation is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockPoint {
    /// This slot is about to be locked, or tried.
    Before(u16),
    /// Somebody holds it.
    Held,
    /// What threads share without a lock was read just now, or is about to be changed.
    Shared,
}

/// Called on the thread that has set it.
pub type Hook = fn(LockPoint);

thread_local! {
    static HOOK: Cell<Option<Hook>> = const { Cell::new(None) };
}

/// Has `hook` called by this thread.
pub fn set_hook(hook: Hook) {
    HOOK.set(Some(hook));
}

/// The thread may be stopped here.
pub fn shared() {
    if let Some(hook) = HOOK.get() {
        hook(LockPoint::Shared);
    }
}

pub(crate) fn lock<T>(mutex: &Mutex<T>, slot: u16) -> MutexGuard<'_, T> {
    let Some(hook) = HOOK.get() else { return mutex.lock() };
    hook(LockPoint::Before(slot));
    loop {
        if let Some(guard) = mutex.try_lock() {
            return guard;
        }
        hook(LockPoint::Held);
    }
}

pub(crate) fn try_lock<T>(mutex: &Mutex<T>, slot: u16) -> Option<MutexGuard<'_, T>> {
    if let Some(hook) = HOOK.get() {
        hook(LockPoint::Before(slot));
    }
    mutex.try_lock()
}
