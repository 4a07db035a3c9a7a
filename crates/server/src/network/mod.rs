//! Sockets, connections, the event loops that serve them, and what goes by time.

mod closing;
pub(crate) mod connection;
mod deadline_timer;
pub(crate) mod event_loop;
mod flash_tasks;
pub(crate) mod listener;
pub(crate) mod measure;
mod prefault;
pub(crate) mod stream;
pub(crate) mod supervisor;
#[allow(unsafe_code, reason = "no crate here wraps sched_setattr")]
mod time_slice;
mod upkeep_timer;
mod wake;
