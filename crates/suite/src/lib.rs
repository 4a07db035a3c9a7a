//! The published benchmarks of this field, scaled to a machine, and the report of a run.
//!
//! A run: [`catalogue`] has the tests as data, over the [`data_set`]s whose keys follow from the
//! RAM; [`command_line`] scales what is published; [`run`] runs it, with the [`servers`] it starts,
//! the [`load`] as a child process and a [`sampler`] beside it; [`comparisons`] sets the figures
//! beside the published ones. [`results`] is what a run leaves and all that a report or a
//! comparison reads.

#![deny(unsafe_code)]

pub mod catalogue;
#[allow(unsafe_code, reason = "what a child does between fork and exec")]
mod child;
pub mod cli;
pub mod command_line;
pub mod compare;
pub mod comparisons;
mod cores;
pub mod csv;
pub mod data_set;
mod drive;
mod error;
mod info;
mod load;
mod machine;
mod options;
mod outcome;
mod probe;
mod progress;
pub mod published;
pub mod read;
pub mod report;
pub mod results;
mod rounds;
pub mod run;
mod sampler;
mod scale;
mod servers;
mod snapshot;
mod store;
mod test_run;

pub use error::SuiteError;
pub use options::Options;
