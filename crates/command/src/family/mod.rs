//! The families of commands that work on keys: one line each.

pub mod string;

use crate::spec::Command;

/// Every command of this crate.
pub const FAMILIES: &[&[Command]] = &[string::COMMANDS];
