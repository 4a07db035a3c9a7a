//! The published benchmarks of this field, scaled to a machine, and the report of a run.
//!
//! [`results`] is what a run leaves and all that a report or a comparison reads.

pub mod published;
pub mod results;
