//! From parsed requests to their runs: which command, whether it may run, what it must wait for.

pub(crate) mod batch;
mod call;
pub(crate) mod dispatch;
pub(crate) mod effects;
pub(crate) mod field_expiry;
pub(crate) mod gather;
mod handler_run;
mod journal;
mod keys;
pub(crate) mod need;
pub(crate) mod outcome;
pub(crate) mod read_many;
pub(crate) mod read_windows;
pub(crate) mod refusal;
mod rehearse;
mod serve;
mod transaction;
pub(crate) mod upkeep;
pub(crate) mod watched_read;
