//! The families of commands that need the session or the server: one line each.

pub(crate) mod connection;
pub(crate) mod transaction;

use crate::table::SessionCommand;

/// Every command of this crate that runs on a session; those of `transaction` the dispatcher
/// carries out itself.
pub(crate) const FAMILIES: &[&[SessionCommand]] = &[connection::COMMANDS];
