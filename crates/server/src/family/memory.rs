//! MEMORY: what memory is used for.

use command::Group;

use super::container;
use crate::table::SessionCommand;

/// The rows of this family.
pub(crate) const COMMANDS: &[SessionCommand] =
    &[container("MEMORY", Group::Server, "4.0.0", "A container for memory diagnostics commands.")];
